/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw, lion, sgd, ema, ema_swap, sumsq and sum, sign_step; the formulas stand
 * at their contracts in loong/update.h and loong/moe.h. Listed as references in
 * kernels/list.h; read ema.h, master.h and stochastic.h before. */
#include "ema.h"
#include "exact_sum.h"
#include "list.h"
#include "loong/moe.h"
#include "master.h"
#include "stochastic.h"

/* The random bits of an element's states. */
static uint32_t chance_of(const loong_kernel_call_t *call, int64_t i)
{
    const loong_update_attr_t *a = call->query->attr;
    const loong_update_piece_t *piece =
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

typedef struct factors {
    const loong_update_attr_t *attr;
    double lr;
    double bias1, bias2; /* 1 - beta^t */
    double ema_rest;     /* 1 - the decay of ema */
} factors_t;

/* The parameter p after its update by a gradient, which is scaled; x: states
 * of it that change. */
typedef double rule_t(const factors_t *f, double g, double p, double x[2]);

static double adamw_rule(const factors_t *f, double g, double p, double x[2])
{
    const loong_update_attr_t *a = f->attr;
    x[0] = a->beta1 * x[0] + (1.0 - a->beta1) * g;
    x[1] = a->beta2 * x[1] + (1.0 - a->beta2) * g * g;
    double change = x[0] / f->bias1 / (sqrt(x[1] / f->bias2) + a->eps);
    return p - f->lr * (change + a->weight_decay * p);
}

static double lion_rule(const factors_t *f, double g, double p, double x[2])
{
    const loong_update_attr_t *a = f->attr;
    double c = a->beta1 * x[0] + (1.0 - a->beta1) * g;
    double sign = c > 0.0 ? 1.0 : c < 0.0 ? -1.0 : c; /* c: 0 or NaN */
    x[0] = a->beta2 * x[0] + (1.0 - a->beta2) * g;
    return p - f->lr * (sign + a->weight_decay * p);
}

static double sgd_rule(const factors_t *f, double g, double p, double x[2])
{
    const loong_update_attr_t *a = f->attr;
    double d = g + a->weight_decay * p;
    x[0] = a->momentum * x[0] + d;
    return p - f->lr * (a->nesterov ? d + a->momentum * x[0] : x[0]);
}

static double ema_rule(const factors_t *f, double g, double p, double x[2])
{
    (void)g;
    x[0] = f->ema_rest < 1.0 ? x[0] + f->ema_rest * (p - x[0]) : p;
    return p;
}

static double ema_swap_rule(const factors_t *f, double g, double p, double x[2])
{
    double average = x[0];
    (void)f;
    (void)g;
    x[0] = p;
    return average;
}

static loong_status_t update(const loong_kernel_call_t *call, rule_t *rule)
{
    const loong_update_attr_t *a = call->query->attr;
    ref_mat_t g = ref_arg(call, 0);
    ref_mat_t p = ref_out(call, 0);
    uint16_t *low = call->ptr[2];
    int num_states = call->query->num_out - 2;
    double t = (double)call->frame->updates + 1.0;
    const factors_t f = {a, call->frame->lr[a->group], 1.0 - pow(a->beta1, t),
                         1.0 - pow(a->beta2, t),
                         loongi_ema_rest(a, call->frame->updates)};
    ref_mat_t state[2];
    for (int k = 0; k < num_states; k++) {
        state[k] = ref_out(call, 2 + k);
    }
#pragma omp parallel for
    for (int64_t i = 0; i < g.cols; i++) {
        double x[2] = {0.0, 0.0};
        double w = ref_master_get(&p, low, i);
        for (int k = 0; k < num_states; k++) {
            x[k] = ref_at(&state[k], 0, i);
        }
        w = rule(&f, ref_at(&g, 0, i) * call->frame->grad_scale, w, x);
        for (int k = 0; k < num_states; k++) {
            if (a->num_pieces > 0) {
                put_by_chance(&state[k], i, x[k], chance_of(call, i) >> 16 * k);
            } else {
                ref_put(&state[k], 0, i, x[k]);
            }
        }
        ref_master_set(&p, low, i, w);
    }
    return LOONG_OK;
}

static loong_status_t adamw(const loong_kernel_call_t *call)
{
    return update(call, adamw_rule);
}

static loong_status_t lion(const loong_kernel_call_t *call)
{
    return update(call, lion_rule);
}

static loong_status_t sgd(const loong_kernel_call_t *call)
{
    return update(call, sgd_rule);
}

static loong_status_t ema(const loong_kernel_call_t *call)
{
    return update(call, ema_rule);
}

static loong_status_t ema_swap(const loong_kernel_call_t *call)
{
    return update(call, ema_swap_rule);
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
const loong_kernel_t loongi_lion_ref = {
    .name = "lion_ref", .op = "lion", .device = "cpu", .run = lion};
const loong_kernel_t loongi_sgd_ref = {
    .name = "sgd_ref", .op = "sgd", .device = "cpu", .run = sgd};
const loong_kernel_t loongi_ema_ref = {
    .name = "ema_ref", .op = "ema", .device = "cpu", .run = ema};
const loong_kernel_t loongi_ema_swap_ref = {
    .name = "ema_swap_ref", .op = "ema_swap", .device = "cpu", .run = ema_swap};
const loong_kernel_t loongi_sumsq_ref = {
    .name = "sumsq_ref", .op = "sumsq", .device = "cpu", .run = sumsq};
const loong_kernel_t loongi_sum_ref = {
    .name = "sum_ref", .op = "sum", .device = "cpu", .run = sum};
