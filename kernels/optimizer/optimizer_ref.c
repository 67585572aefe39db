/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw, sumsq and sum, sign_step; the formulas stand at their contracts in
 * loong/ops.h and loong/moe.h. */
#include "exact_sum.h"
#include "list.h"
#include "loong/moe.h"
#include "ref.h"
#include "stochastic.h"

static double master_get(const ref_mat_t *p, const uint16_t *low, int64_t i)
{
    if (p->dtype != LOONG_BF16) {
        return ref_get(p->p, p->dtype, i);
    }
    uint32_t hi = ((const uint16_t *)p->p)[i];
    uint32_t bits = (hi - (low[i] >> 15)) << 16 | low[i];
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static void master_set(const ref_mat_t *p, uint16_t *low, int64_t i, double v)
{
    if (p->dtype != LOONG_BF16) {
        ref_set(p->p, p->dtype, i, v);
        return;
    }
    float value = (float)v;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    low[i] = (uint16_t)bits;
    ((uint16_t *)p->p)[i] = (uint16_t)((bits >> 16) + (low[i] >> 15));
}

/* The random bits of an element's two moments. */
static uint32_t chance_of(const loong_kernel_call_t *call, int64_t i)
{
    const loong_adamw_attr_t *a = call->query->attr;
    const loong_adamw_piece_t *piece =
        a->pieces + loongi_moments_piece(a->pieces, a->num_pieces, 0, i);
    uint32_t words[4];
    int64_t e = loongi_moments_element(piece, i);
    loongi_moments_counter(call->frame->step, e / 4, words);
    loongi_philox(words, loongi_moments_key(piece, call->frame->seed));
    return words[e % 4];
}

static void put_by_chance(const ref_mat_t *m, int64_t i, double v,
                          uint32_t chance)
{
    float value = (float)v;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (m->dtype == LOONG_BF16) {
        ((uint16_t *)m->p)[i] = loongi_round_by_chance(bits, chance);
    } else {
        ref_put(m, 0, i, v);
    }
}

static loong_status_t adamw(const loong_kernel_call_t *call)
{
    const loong_adamw_attr_t *a = call->query->attr;
    ref_mat_t g = ref_arg(call, 0);
    ref_mat_t p = ref_out(call, 0);
    uint16_t *low = call->ptr[2];
    ref_mat_t m = ref_out(call, 2);
    ref_mat_t v = ref_out(call, 3);
    double t = (double)call->frame->updates + 1.0;
    double lr = call->frame->lr[a->group];
    double c1 = 1.0 - pow(a->beta1, t);
    double c2 = 1.0 - pow(a->beta2, t);
#pragma omp parallel for
    for (int64_t i = 0; i < g.cols; i++) {
        double x = ref_at(&g, 0, i) * call->frame->grad_scale;
        double mi = a->beta1 * ref_at(&m, 0, i) + (1.0 - a->beta1) * x;
        double vi = a->beta2 * ref_at(&v, 0, i) + (1.0 - a->beta2) * x * x;
        double w = master_get(&p, low, i);
        if (a->num_pieces > 0) {
            uint32_t chance = chance_of(call, i);
            put_by_chance(&m, i, mi, chance);
            put_by_chance(&v, i, vi, chance >> 16);
        } else {
            ref_put(&m, 0, i, mi);
            ref_put(&v, 0, i, vi);
        }
        double change = mi / c1 / (sqrt(vi / c2) + a->eps);
        master_set(&p, low, i, w - lr * (change + a->weight_decay * w));
    }
    return LOONG_OK;
}

static void sum_into(const loong_kernel_call_t *call, bool squares)
{
    ref_mat_t x = ref_arg(call, 0);
    int64_t *record = call->ptr[1];
    if (!(call->accumulate & 1)) {
        memset(record, 0, sizeof(*record) * LOONG_EXACT_WORDS);
    }
    for (int64_t i = 0; i < x.cols; i++) {
        double v = ref_at(&x, 0, i);
        loongi_exact_add(record, squares ? v * v : v);
        if (i % 1048576 == 1048575) {
            loongi_exact_carry(record);
        }
    }
    loongi_exact_carry(record);
}

static loong_status_t sumsq(const loong_kernel_call_t *call)
{
    sum_into(call, true);
    return LOONG_OK;
}

static loong_status_t sum(const loong_kernel_call_t *call)
{
    sum_into(call, false);
    return LOONG_OK;
}

static loong_status_t sign_step(const loong_kernel_call_t *call)
{
    const loong_sign_step_attr_t *a = call->query->attr;
    ref_mat_t g = ref_arg(call, 0);
    ref_mat_t p = ref_out(call, 0);
    for (int64_t i = 0; i < g.cols; i++) {
        double x = ref_at(&g, 0, i);
        double step = x > 0.0 ? -a->rate : x < 0.0 ? a->rate : 0.0;
        ref_put(&p, 0, i, ref_at(&p, 0, i) + step);
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_sign_step_ref = {
    .name = "sign_step_ref", .op = "sign_step", .device = "cpu",
    .run = sign_step};
const loong_kernel_t loongi_adamw_ref = {
    .name = "adamw_ref", .op = "adamw", .device = "cpu", .run = adamw};
const loong_kernel_t loongi_sumsq_ref = {
    .name = "sumsq_ref", .op = "sumsq", .device = "cpu", .run = sumsq};
const loong_kernel_t loongi_sum_ref = {
    .name = "sum_ref", .op = "sum", .device = "cpu", .run = sum};
