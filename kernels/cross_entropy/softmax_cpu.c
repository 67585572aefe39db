/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss and gradient of one row of logits, compiled once per instruction set.
 * Called by cross_entropy_onednn.c through softmax.c. Read softmax.h before,
 * and cross_entropy_ref.c for the formulas. */
#include <math.h>

#include "loong/ops.h"
#include "softmax.h"
#include "vec.h"

static const float log2_e = 1.44269504088896340736f;

static float largest(const float *a, int64_t n)
{
    vec_t top[4];
    int64_t i = 0;
    for (int u = 0; u < 4; u++) {
        top[u] = vec_set(-INFINITY);
    }
    for (; i + 4 * VEC_SIZE <= n; i += 4 * VEC_SIZE) {
        for (int u = 0; u < 4; u++) {
            top[u] = vec_max(top[u], vec_load(a + i + u * VEC_SIZE));
        }
    }
    vec_t all = vec_max(vec_max(top[0], top[1]), vec_max(top[2], top[3]));
    float result = vec_top(all);
    for (; i < n; i++) {
        result = a[i] > result ? a[i] : result;
    }
    return result;
}

/* a becomes 2^((a - top) log2 e) (when `keep`); returns the sum, in double
 * over pieces, so that its error does not grow with the vocabulary. */
static double exponentials(float *a, int64_t n, float top, bool keep)
{
    vec_t factor = vec_set(log2_e);
    vec_t base = vec_set(top * log2_e);
    double total = 0.0;
    int64_t i = 0;
    while (i + VEC_SIZE <= n) {
        vec_t sum = vec_set(0.0f);
        int64_t end = i + 256 * VEC_SIZE < n ? i + 256 * VEC_SIZE : n;
        for (; i + VEC_SIZE <= end; i += VEC_SIZE) {
            vec_t e = vec_exp2(vec_load(a + i) * factor - base);
            sum += e;
            if (keep) {
                vec_store(a + i, e);
            }
        }
        total += (double)vec_sum(sum);
    }
    for (; i < n; i++) {
        float e = expf(a[i] - top);
        total += (double)e;
        if (keep) {
            a[i] = e;
        }
    }
    return total;
}

/* Narrowing goes from left to right and never overtakes the reading. */
static void scale_exponentials(float *a, int64_t n, float factor, bool half)
{
    uint16_t *narrow = (uint16_t *)(void *)a;
    int64_t i = 0;
    for (; i + VEC_SIZE <= n; i += VEC_SIZE) {
        vec_t g = vec_load(a + i) * vec_set(factor);
        if (half) {
            vec_store_bf16(narrow + i, g);
        } else {
            vec_store(a + i, g);
        }
    }
    if (i < n) {
        float last[VEC_SIZE] = {0.0f};
        uint16_t last_narrow[VEC_SIZE];
        memcpy(last, a + i, sizeof(float) * (size_t)(n - i));
        vec_t g = vec_load(last) * vec_set(factor);
        vec_store(last, g);
        vec_store_bf16(last_narrow, g);
        if (half) {
            memcpy(narrow + i, last_narrow, 2 * (size_t)(n - i));
        } else {
            memcpy(a + i, last, 4 * (size_t)(n - i));
        }
    }
}

static void set_label(float *a, int64_t label, float g, bool half)
{
    if (half) {
        float lanes[VEC_SIZE] = {g};
        uint16_t narrow[VEC_SIZE];
        vec_store_bf16(narrow, vec_load(lanes));
        memcpy((uint16_t *)(void *)a + label, narrow, 2);
    } else {
        a[label] = g;
    }
}

static loong_softmax_stats_t measure(const loong_softmax_row_t *row)
{
    loong_softmax_stats_t stats = {0.0, 1.0, 0.0};
    float *a = row->logits;
    if (row->skip) {
        return stats;
    }
    if (row->known) {
        exponentials(a, row->columns, row->lse, true);
        return loongi_softmax_known((double)row->logp, (double)row->lse);
    }
    float top = largest(a, row->columns);
    stats.top = (double)top;
    stats.logit = row->label >= 0 ? (double)a[row->label] : 0.0;
    stats.sum = exponentials(a, row->columns, top, row->gradient);
    return stats;
}

static float finish(const loong_softmax_row_t *row,
                    const loong_softmax_stats_t *own,
                    const loong_softmax_stats_t *all)
{
    float *a = row->logits;
    if (row->skip) {
        if (row->gradient) {
            memset(a, 0, (row->half ? 2 : 4) * (size_t)row->columns);
        }
        return 0.0f;
    }
    double log_sum = log(all->sum);
    double lse = all->top + log_sum;
    double loss = (double)row->weight * (all->top - all->logit + log_sum +
                                         (double)row->z_loss * lse * lse);
    if (row->gradient) {
        double w = (double)row->scale * (double)row->weight;
        double slope = 1.0 + 2.0 * (double)row->z_loss * lse;
        double shift = own->top == all->top ? 1.0 : exp(own->top - all->top);
        scale_exponentials(a, row->columns,
                           (float)(w * slope / all->sum * shift), row->half);
        if (row->label >= 0) {
            /* p - 1 from the logit itself: no cancellation of rounded
             * values. */
            double p = exp(all->logit - lse);
            set_label(a, row->label, (float)(w * (slope * p - 1.0)),
                      row->half);
        }
    }
    return (float)loss;
}

const loong_softmax_t LOONG_ISA_NAME(loongi_softmax) = {measure, finish};
