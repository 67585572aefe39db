/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_merge (formula: attention_merge_ref.c), one row of a head after
 * the other. Listed in kernels/list.h; read fast.h before. */
#include "fast.h"

typedef struct job {
    fast_mat_t a, lse_a, b, lse_b, o, lse;
    int64_t width; /* of a head */
} job_t;

/* Weights of a and b, and the lse of both. */
static float weigh(float la, float lb, float *wa, float *wb)
{
    float top = la > lb ? la : lb;
    if (top == -INFINITY) {
        *wa = *wb = 0.0f;
        return top;
    }
    float ea = expf(la - top);
    float eb = expf(lb - top);
    *wa = ea / (ea + eb);
    *wb = eb / (ea + eb);
    return top + logf(ea + eb);
}

static void merge_head(const job_t *j, int64_t t, int64_t head)
{
    float buf[3][FAST_CHUNK] __attribute__((aligned(64)));
    float wa = 0.0f;
    float wb = 0.0f;
    float lse = weigh(*(const float *)(void *)fast_at(&j->lse_a, t, head),
                      *(const float *)(void *)fast_at(&j->lse_b, t, head), &wa,
                      &wb);
    int64_t end = (head + 1) * j->width;
    for (int64_t c = head * j->width; c < end; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(end - c, FAST_CHUNK);
        const float *a = fast_get(&j->a, t, c, n, buf[0]);
        const float *b = fast_get(&j->b, t, c, n, buf[1]);
        float *o = fast_place(&j->o, t, c, buf[2]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            o[i] = wa * a[i] + wb * b[i];
        }
        fast_put(&j->o, t, c, n, o);
    }
    *(float *)(void *)fast_at(&j->lse, t, head) = lse;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    job_t j = {fast_arg(call, 0), fast_arg(call, 1), fast_arg(call, 2),
               fast_arg(call, 3), fast_out(call, 0), fast_out(call, 1), 0};
    j.width = j.o.cols / j.lse.cols;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < j.o.rows; t++) {
        for (int64_t head = 0; head < j.lse.cols; head++) {
            merge_head(&j, t, head);
        }
    }
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 1 | 1u << 3 | 1u << 5, reason);
}

FAST_KERNEL(attention_merge, support, NULL, run);
