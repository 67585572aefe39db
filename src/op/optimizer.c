/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw, lion, sgd, ema, those of muon, sign_step, sumsq, sum, zero: steps that
 * are made by hand (src/optim); registered so that programs can be explained
 * and costed. Called through the ops' tables. Read loong/update.h and op_impl.h
 * before. */
#include "loong/moe.h"
#include "op_impl.h"

static loong_status_t infer_none(const loong_op_call_t *call)
{
    return LOONG_FAIL(call->ctx, LOONG_ERR_ARG,
                      "%s: is put into programs, it stands in no graph",
                      call->op);
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        const loong_karg_t *a = &q->arg[i];
        if (a->rank > 0) {
            double n = (double)loong_karg_cols(a) *
                       (double)loong_dtype_size(a->dtype);
            cost->bytes += i < q->num_in ? n : 2.0 * n;
        }
    }
    cost->flops = 12.0 * (double)loong_karg_cols(&q->arg[0]);
}

/* One of any number of inputs and outputs. */
#define UPDATE_OP(name_, attr_, num_in_, num_out_) \
    static const loong_op_t name_ = {              \
        .name = #name_,                            \
        .attr_size = sizeof(attr_),                \
        .min_in = num_in_,                         \
        .max_in = num_in_,                         \
        .num_out = num_out_,                       \
        .infer = infer_none,                       \
        .cost = cost,                              \
    };                                             \
    const loong_op_t *const loongi_op_##name_ = &(name_)

UPDATE_OP(adamw, loong_update_attr_t, 1, 4);
UPDATE_OP(lion, loong_update_attr_t, 1, 3);
UPDATE_OP(sgd, loong_update_attr_t, 1, 3);
UPDATE_OP(ema, loong_update_attr_t, 1, 3);
UPDATE_OP(ema_swap, loong_update_attr_t, 1, 3);
UPDATE_OP(muon_momentum, loong_muon_attr_t, 1, 2);
UPDATE_OP(muon_normalize, loong_muon_attr_t, 2, 1);
UPDATE_OP(muon_polynomial, loong_muon_attr_t, 2, 1);
UPDATE_OP(muon_step, loong_muon_attr_t, 1, 2);

static const loong_op_t sign_step = {
    .name = "sign_step",
    .attr_size = sizeof(loong_sign_step_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_none,
    .cost = cost,
};
static const loong_op_t sumsq = {
    .name = "sumsq",
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_none,
    .cost = cost,
};
static const loong_op_t sum = {
    .name = "sum",
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_none,
    .cost = cost,
};
static const loong_op_t zero = {
    .name = "zero",
    .num_out = 1,
    .infer = infer_none,
};
const loong_op_t *const loongi_op_zero = &zero;
const loong_op_t *const loongi_op_sign_step = &sign_step;
const loong_op_t *const loongi_op_sumsq = &sumsq;
const loong_op_t *const loongi_op_sum = &sum;
