/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw, lion, sgd, ema and ema_swap in one pass over memory; the formulas
 * stand in loong/update.h. Listed in kernels/list.h; read fast.h, ema.h and
 * stochastic.h before. */
#include "ema.h"
#include "fast_philox.h"
#include "stochastic.h"

/* The factors of one step, rounded once. */
typedef struct factors {
    float grad_scale;
    float beta1;
    float beta2;
    float rest1; /* 1 - beta1 */
    float rest2;
    float momentum;
    float unbias1; /* 1 / (1 - beta1^t) */
    float unbias2;
    float eps;
    float lr;
    float weight_decay;
    float ema_rest; /* 1 - the decay of ema */
    bool nesterov;
} factors_t;

/* The parameter p after its update by a gradient, which is scaled; x and y:
 * states of it that change, y of adamw alone. */
typedef float rule_t(const factors_t *f, float g, float p, float *x, float *y);

typedef struct job {
    const loong_update_attr_t *attr;
    factors_t f;
    uint64_t seed;
    int64_t step;
    const float *grad;
    float *param;   /* fp32 */
    uint16_t *high; /* bf16 */
    uint16_t *low;
    int num_states;
    fast_mat_t state[2];
} job_t;

static factors_t make_factors(const loong_kernel_call_t *call)
{
    const loong_update_attr_t *a = call->query->attr;
    double t = (double)call->frame->updates + 1.0;
    factors_t f;
    f.grad_scale = (float)call->frame->grad_scale;
    f.beta1 = (float)a->beta1;
    f.beta2 = (float)a->beta2;
    f.rest1 = (float)(1.0 - a->beta1);
    f.rest2 = (float)(1.0 - a->beta2);
    f.momentum = (float)a->momentum;
    f.nesterov = a->nesterov;
    f.unbias1 = (float)(1.0 / (1.0 - pow(a->beta1, t)));
    f.unbias2 = (float)(1.0 / (1.0 - pow(a->beta2, t)));
    f.eps = (float)a->eps;
    f.lr = (float)call->frame->lr[a->group];
    f.weight_decay = (float)a->weight_decay;
    f.ema_rest = (float)loongi_ema_rest(a, call->frame->updates);
    return f;
}

VEC_INLINE float adamw(const factors_t *f, float g, float p, float *x, float *y)
{
    float m = f->beta1 * *x + f->rest1 * g;
    float v = f->beta2 * *y + f->rest2 * g * g;
    *x = m;
    *y = v;
    float change = m * f->unbias1 / (sqrtf(v * f->unbias2) + f->eps);
    return p - f->lr * (change + f->weight_decay * p);
}

VEC_INLINE float lion(const factors_t *f, float g, float p, float *x, float *y)
{
    (void)y;
    float c = f->beta1 * *x + f->rest1 * g;
    float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c; /* c: 0 or NaN */
    *x = f->beta2 * *x + f->rest2 * g;
    return p - f->lr * (sign + f->weight_decay * p);
}

VEC_INLINE float sgd(const factors_t *f, float g, float p, float *x, float *y)
{
    (void)y;
    float d = g + f->weight_decay * p;
    float b = f->momentum * *x + d;
    *x = b;
    return p - f->lr * (f->nesterov ? d + f->momentum * b : b);
}

VEC_INLINE float ema(const factors_t *f, float g, float p, float *x, float *y)
{
    (void)g;
    (void)y;
    float e = *x;
    *x = f->ema_rest < 1.0f ? e + f->ema_rest * (p - e) : p;
    return p;
}

VEC_INLINE float ema_swap(const factors_t *f, float g, float p, float *x,
                          float *y)
{
    (void)f;
    (void)g;
    (void)y;
    float average = *x;
    *x = p;
    return average;
}

VEC_INLINE void update(const job_t *j, rule_t *rule, int64_t at, int64_t n,
                       float *const x[2])
{
    const factors_t f = j->f;
    const float *grad = j->grad + at;
    float *param = j->param + at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        param[i] =
            rule(&f, grad[i] * f.grad_scale, param[i], x[0] + i, x[1] + i);
    }
}

VEC_INLINE void update_half(const job_t *j, rule_t *rule, int64_t at, int64_t n,
                            float *const x[2])
{
    const factors_t f = j->f;
    const float *grad = j->grad + at;
    uint16_t *high = j->high + at;
    uint16_t *low = j->low + at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t l = low[i];
        uint32_t bits = ((uint32_t)high[i] - (l >> 15)) << 16 | l;
        float p;
        memcpy(&p, &bits, sizeof(p));
        p = rule(&f, grad[i] * f.grad_scale, p, x[0] + i, x[1] + i);
        memcpy(&bits, &p, sizeof(bits));
        low[i] = (uint16_t)bits;
        high[i] = (uint16_t)((bits >> 16) + (bits >> 15 & 1u));
    }
}

/* ---- states of bf16 -------------------------------------------------------
 */

enum { WORDS = FAST_CHUNK + 4 * PHILOX_STEP }; /* whole steps of blocks */

/* How many elements from number `at` of the operands on have blocks that follow
 * one another by the first word of their counters. */
static int64_t together(const job_t *j, int piece, int64_t at)
{
    const loong_update_piece_t *p = &j->attr->pieces[piece];
    const int64_t wraps = INT64_C(1) << 34;
    int64_t n = LOONG_MIN(loongi_moments_together(p, at),
                          wraps - loongi_moments_element(p, at) % wraps);
    return piece + 1 < j->attr->num_pieces ? LOONG_MIN(n, p[1].at - at) : n;
}

/* Random words of such elements, n <= FAST_CHUNK: from the place that is
 * returned on. */
static const uint32_t *draw_together(const job_t *j, int piece, int64_t at,
                                     int64_t n, uint32_t words[WORDS])
{
    const loong_update_piece_t *p = &j->attr->pieces[piece];
    int64_t e = loongi_moments_element(p, at);
    uint32_t counter[4];
    loongi_moments_counter(j->step, e / 4, counter);
    fast_philox(counter, 0, loongi_moments_key(p, j->seed),
                (int)loongi_round_up(e % 4 + n, 4 * PHILOX_STEP) / 4, words);
    return words + e % 4;
}

/* Random words of any; *piece_p: one that is not behind the first of them. */
static const uint32_t *draw(const job_t *j, int *piece_p, int64_t at, int64_t n,
                            uint32_t words[WORDS])
{
    const loong_update_attr_t *a = j->attr;
    uint32_t some[WORDS] __attribute__((aligned(64)));
    for (int64_t i = 0; i < n;) {
        int piece =
            loongi_moments_piece(a->pieces, a->num_pieces, *piece_p, at + i);
        int64_t count = LOONG_MIN(together(j, piece, at + i), n - i);
        *piece_p = piece;
        if (count == n) {
            return draw_together(j, piece, at, n, words);
        }
        memcpy(words + i, draw_together(j, piece, at + i, count, some),
               (size_t)count * sizeof(*words));
        i += count;
    }
    return words;
}

static void narrow_by_chance(const float *src, uint16_t *dst, int64_t n,
                             const uint32_t *words, int shift)
{
    const word_t *bits = (const word_t *)src;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dst[i] = loongi_round_by_chance(bits[i], words[i] >> shift);
    }
}

/* n elements of a state as floats: in place, or widened into buf. */
static float *take(const fast_mat_t *m, int64_t at, int64_t n, float *buf)
{
    float *x = fast_place(m, 0, at, buf);
    if (m->half) {
        fast_widen((const uint16_t *)(const void *)fast_at(m, 0, at), x, n);
    }
    return x;
}

/* words: NULL: to nearest. */
static void give(const fast_mat_t *m, int64_t at, int64_t n, const float *x,
                 const uint32_t *words, int shift)
{
    if (m->half && words != NULL) {
        narrow_by_chance(x, (uint16_t *)(void *)fast_at(m, 0, at), n, words,
                         shift);
    } else {
        fast_put(m, 0, at, n, x);
    }
}

/* *piece_p: see draw. */
VEC_INLINE void update_chunk(const job_t *j, rule_t *rule, int *piece_p,
                             int64_t at, int64_t n)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    uint32_t room[WORDS] __attribute__((aligned(64)));
    const uint32_t *words = NULL;
    float *x[2] = {take(&j->state[0], at, n, buf[0]), buf[1]};
    if (j->num_states > 1) {
        x[1] = take(&j->state[1], at, n, buf[1]);
    }
    if (j->high != NULL) {
        update_half(j, rule, at, n, x);
    } else {
        update(j, rule, at, n, x);
    }
    if (j->attr->num_pieces > 0) {
        words = draw(j, piece_p, at, n, room);
    }
    for (int k = 0; k < j->num_states; k++) {
        give(&j->state[k], at, n, x[k], words, 16 * k);
    }
}

/* ---- the kernels --------------------------------------------------------- */

VEC_INLINE loong_status_t run(const loong_kernel_call_t *call, rule_t *rule)
{
    const loong_karg_t *arg = call->query->arg;
    const loong_update_attr_t *a = call->query->attr;
    int64_t n = loong_karg_cols(&arg[0]);
    bool half = arg[1].dtype == LOONG_BF16;
    job_t j = {a,
               make_factors(call),
               call->frame->seed,
               call->frame->step,
               call->ptr[0],
               half ? NULL : call->ptr[1],
               half ? call->ptr[1] : NULL,
               call->ptr[2],
               call->query->num_out - 2,
               {fast_out(call, 2), fast_out(call, 3)}};
    int64_t pieces = (n + FAST_PIECE - 1) / FAST_PIECE;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t i = 0; i < pieces; i++) {
        int64_t end = LOONG_MIN((i + 1) * FAST_PIECE, n);
        int piece = 0;
        for (int64_t at = i * FAST_PIECE; at < end; at += FAST_CHUNK) {
            update_chunk(&j, rule, &piece, at, LOONG_MIN(end - at, FAST_CHUNK));
        }
    }
    return LOONG_OK;
}

static loong_status_t run_adamw(const loong_kernel_call_t *call)
{
    return run(call, adamw);
}

static loong_status_t run_lion(const loong_kernel_call_t *call)
{
    return run(call, lion);
}

static loong_status_t run_sgd(const loong_kernel_call_t *call)
{
    return run(call, sgd);
}

static loong_status_t run_ema(const loong_kernel_call_t *call)
{
    return run(call, ema);
}

static loong_status_t run_ema_swap(const loong_kernel_call_t *call)
{
    return run(call, ema_swap);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    if (query->arg[1].dtype == LOONG_BF16 && query->arg[2].rank == 0) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "a bf16 parameter needs the low half of its master");
        return false;
    }
    return fast_support(query, 1u << 0, reason);
}

FAST_KERNEL(adamw, support, NULL, run_adamw);
FAST_KERNEL(lion, support, NULL, run_lion);
FAST_KERNEL(sgd, support, NULL, run_sgd);
FAST_KERNEL(ema, support, NULL, run_ema);
FAST_KERNEL(ema_swap, support, NULL, run_ema_swap);
