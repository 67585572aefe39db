/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw in one pass over memory; the formula stands in loong/ops.h. */
#include "fast.h"

/* The factors of one step, rounded once. */
typedef struct factors {
    float grad_scale;
    float beta1;
    float beta2;
    float rest1; /* 1 - beta1 */
    float rest2;
    float unbias1; /* 1 / (1 - beta1^t) */
    float unbias2;
    float eps;
    float lr;
    float weight_decay;
} factors_t;

typedef struct range {
    const float *grad;
    float *param;   /* fp32 */
    uint16_t *high; /* bf16 */
    uint16_t *low;
    float *exp_avg;
    float *exp_avg_sq;
} range_t;

static factors_t make_factors(const loong_kernel_call_t *call)
{
    const loong_adamw_attr_t *a = call->query->attr;
    double t = (double)call->frame->step + 1.0;
    factors_t f;
    f.grad_scale = (float)call->frame->grad_scale;
    f.beta1 = (float)a->beta1;
    f.beta2 = (float)a->beta2;
    f.rest1 = (float)(1.0 - a->beta1);
    f.rest2 = (float)(1.0 - a->beta2);
    f.unbias1 = (float)(1.0 / (1.0 - pow(a->beta1, t)));
    f.unbias2 = (float)(1.0 / (1.0 - pow(a->beta2, t)));
    f.eps = (float)a->eps;
    f.lr = (float)call->frame->lr[a->group];
    f.weight_decay = (float)a->weight_decay;
    return f;
}

VEC_INLINE float updated(const factors_t *f, float grad, float p, float *m_p,
                         float *v_p)
{
    float g = grad * f->grad_scale;
    float m = f->beta1 * *m_p + f->rest1 * g;
    float v = f->beta2 * *v_p + f->rest2 * g * g;
    *m_p = m;
    *v_p = v;
    float change = m * f->unbias1 / (sqrtf(v * f->unbias2) + f->eps);
    return p - f->lr * (change + f->weight_decay * p);
}

static void update(const factors_t *factors, const range_t *r, int64_t begin,
                   int64_t end)
{
    const factors_t f = *factors;
    const float *grad = r->grad;
    float *param = r->param;
    float *m = r->exp_avg;
    float *v = r->exp_avg_sq;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        param[i] = updated(&f, grad[i], param[i], m + i, v + i);
    }
}

static void update_half(const factors_t *factors, const range_t *r,
                        int64_t begin, int64_t end)
{
    const factors_t f = *factors;
    const float *grad = r->grad;
    uint16_t *high = r->high;
    uint16_t *low = r->low;
    float *m = r->exp_avg;
    float *v = r->exp_avg_sq;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        uint32_t l = low[i];
        uint32_t bits = ((uint32_t)high[i] - (l >> 15)) << 16 | l;
        float p;
        memcpy(&p, &bits, sizeof(p));
        p = updated(&f, grad[i], p, m + i, v + i);
        memcpy(&bits, &p, sizeof(bits));
        low[i] = (uint16_t)bits;
        high[i] = (uint16_t)((bits >> 16) + (bits >> 15 & 1u));
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_karg_t *arg = call->query->arg;
    int64_t n = loong_karg_cols(&arg[0], call->frame);
    factors_t f = make_factors(call);
    bool half = arg[1].dtype == LOONG_BF16;
    range_t r = {call->ptr[0], half ? NULL : call->ptr[1],
                 half ? call->ptr[1] : NULL, call->ptr[2], call->ptr[3],
                 call->ptr[4]};
    int64_t pieces = (n + FAST_PIECE - 1) / FAST_PIECE;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t i = 0; i < pieces; i++) {
        int64_t begin = i * FAST_PIECE;
        int64_t end = LOONG_MIN(begin + FAST_PIECE, n);
        if (half) {
            update_half(&f, &r, begin, end);
        } else {
            update(&f, &r, begin, end);
        }
    }
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    if (query->arg[1].dtype == LOONG_BF16 && query->arg[2].rank == 0) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "a bf16 parameter needs the low half of its master");
        return false;
    }
    return fast_support(query, 1u << 0 | 1u << 3 | 1u << 4, reason);
}

FAST_KERNEL(adamw, support, NULL, run);
