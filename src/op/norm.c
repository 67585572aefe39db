/* SPDX-License-Identifier: Apache-2.0
 *
 * rmsnorm and layernorm, plain and with the residual added first. Called
 * through the ops' tables and by src/nn/nn.c. Read op_impl.h before. */
#include "op_impl.h"

/* ---- shape rules --------------------------------------------------------- */

static void statistic(const loong_op_call_t *call, int o, int64_t groups)
{
    call->out[o].dtype = call->precision.wide;
    call->out[o].shape = call->in[0].shape;
    call->out[o].shape.dim[call->in[0].shape.rank - 1] = groups;
}

static loong_status_t check_eps(const loong_op_call_t *call)
{
    const loong_norm_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx, a->eps >= 0.0 && a->eps < 1e300, LOONG_ERR_ARG,
                "%s: eps is %g, a number not below 0 wanted", call->op,
                a->eps);
    return LOONG_OK;
}

/* The residual is x's equal: so are their gradients. */
static loong_status_t check_residual(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_dtype(call, 1, "residual", call->in[0].dtype));
    LOONG_TRY(loongi_want_like(call, 1, "residual", 0));
    return loongi_want_rows(call, 1, "residual", 0);
}

static loong_status_t infer_rms(const loong_op_call_t *call, int w)
{
    int64_t cols = loongi_type_cols(&call->in[0]);
    LOONG_TRY(check_eps(call));
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    int64_t width = loongi_type_cols(&call->in[w]);
    LOONG_TRY(loongi_want_vector(call, w, "w", width));
    LOONG_CHECK(call->ctx, width > 0 && cols % width == 0, LOONG_ERR_ARG,
                "%s: x has %lld channels, not a multiple of w's %lld",
                call->op, (long long)cols, (long long)width);
    call->out[0] = call->in[0];
    statistic(call, 1, cols / width);
    return LOONG_OK;
}

static loong_status_t infer_rmsnorm(const loong_op_call_t *call)
{
    return infer_rms(call, 1);
}

static loong_status_t infer_add_rmsnorm(const loong_op_call_t *call)
{
    LOONG_TRY(check_residual(call));
    LOONG_TRY(infer_rms(call, 2));
    call->out[2] = call->in[0];
    return LOONG_OK;
}

static loong_status_t infer_layer(const loong_op_call_t *call, int w)
{
    int64_t cols = loongi_type_cols(&call->in[0]);
    LOONG_TRY(check_eps(call));
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(loongi_want_vector(call, w, "w", cols));
    if (loongi_has(call, w + 1)) {
        LOONG_TRY(loongi_want_vector(call, w + 1, "b", cols));
    }
    call->out[0] = call->in[0];
    statistic(call, 1, 1);
    statistic(call, 2, 1);
    return LOONG_OK;
}

static loong_status_t infer_layernorm(const loong_op_call_t *call)
{
    return infer_layer(call, 1);
}

static loong_status_t infer_add_layernorm(const loong_op_call_t *call)
{
    LOONG_TRY(check_residual(call));
    LOONG_TRY(infer_layer(call, 2));
    call->out[3] = call->in[0];
    return LOONG_OK;
}

/* dy, x and, when it is there, dsum at input `more` are alike. */
static loong_status_t check_grad(const loong_op_call_t *call, int more)
{
    LOONG_TRY(loongi_want_rank(call, 0, "dy", 2));
    LOONG_TRY(loongi_want_float(call, 0, "dy"));
    LOONG_TRY(loongi_want_like(call, 1, "x", 0));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    if (loongi_has(call, more)) {
        LOONG_TRY(loongi_want_like(call, more, "dsum", 0));
        LOONG_TRY(loongi_want_rows(call, more, "dsum", 0));
    }
    return LOONG_OK;
}

/* dy, x, w, rstd [, dsum] -> dx, dw. */
static loong_status_t infer_rmsnorm_grad(const loong_op_call_t *call)
{
    LOONG_TRY(check_grad(call, 4));
    call->out[0] = call->in[1];
    call->out[1] = call->in[2];
    return LOONG_OK;
}

/* dy, x, w, mean, rstd [, dsum] -> dx, dw, db. */
static loong_status_t infer_layernorm_grad(const loong_op_call_t *call)
{
    LOONG_TRY(check_grad(call, 5));
    call->out[0] = call->in[1];
    call->out[1] = call->in[2];
    call->out[2] = call->in[2];
    return LOONG_OK;
}

/* ---- gradients ----------------------------------------------------------- */

static void cost_norm(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        const loong_karg_t *a = &q->arg[i];
        if (a->rank > 0) {
            cost->bytes += (double)loong_karg_rows(a) *
                           (double)loong_karg_cols(a) *
                           (double)loong_dtype_size(a->dtype);
        }
    }
    cost->flops = 6.0 * (double)loong_karg_rows(&q->arg[0]) *
                  (double)loong_karg_cols(&q->arg[0]);
}

static const loong_op_t rmsnorm_grad = {
    .name = "rmsnorm_grad",
    .min_in = 4,
    .max_in = 5,
    .num_out = 2,
    .accumulates = 2,
    .optional_out = 2,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_rmsnorm_grad,
    .cost = cost_norm,
};
const loong_op_t *const loongi_op_rmsnorm_grad = &rmsnorm_grad;

static const loong_op_t layernorm_grad = {
    .name = "layernorm_grad",
    .min_in = 5,
    .max_in = 6,
    .num_out = 3,
    .accumulates = 6,
    .optional_out = 6,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_layernorm_grad,
    .cost = cost_norm,
};
const loong_op_t *const loongi_op_layernorm_grad = &layernorm_grad;

/* x is input 0, or output `sum` when the residual was added first; then the
 * gradient of x and of the residual is the same value. */
static loong_status_t grad_norm(const loong_grad_call_t *call,
                                const loong_op_t *op, int statistics, int sum)
{
    bool fused = sum > 0;
    int w = fused ? 2 : 1;
    loong_val_t x = fused ? call->out[sum] : call->in[0];
    loong_val_t dsum = fused ? call->out_grad[sum] : LOONG_NONE;
    if (call->out_grad[0] == LOONG_NONE) {
        call->in_grad[0] = dsum;
        call->in_grad[1] = fused ? dsum : LOONG_NONE;
        return LOONG_OK;
    }
    loong_val_t in[6] = {call->out_grad[0], x, call->in[w]};
    int n = 3;
    for (int i = 0; i < statistics; i++) {
        in[n++] = call->out[1 + i];
    }
    if (dsum != LOONG_NONE) {
        in[n++] = dsum;
    }
    loong_val_t out[3] = {LOONG_NONE, LOONG_NONE, LOONG_NONE};
    loong_graph_apply(call->graph, op, NULL, n, in, op->num_out, out);
    call->in_grad[0] = out[0];
    if (fused) {
        call->in_grad[1] = out[0];
        loong_value_set_grad(call->graph, x, out[0]);
    }
    call->in_grad[w] = out[1];
    if (w + 1 < call->num_in) {
        call->in_grad[w + 1] = out[2];
    }
    return LOONG_OK;
}

static loong_status_t grad_rmsnorm(const loong_grad_call_t *call)
{
    return grad_norm(call, &rmsnorm_grad, 1, 0);
}

static loong_status_t grad_add_rmsnorm(const loong_grad_call_t *call)
{
    return grad_norm(call, &rmsnorm_grad, 1, 2);
}

static loong_status_t grad_layernorm(const loong_grad_call_t *call)
{
    return grad_norm(call, &layernorm_grad, 2, 0);
}

static loong_status_t grad_add_layernorm(const loong_grad_call_t *call)
{
    return grad_norm(call, &layernorm_grad, 2, 3);
}

/* ---- ops ----------------------------------------------------------------- */

#define NORM_OP(name_, min_, max_, outs_)                                     \
    static const loong_op_t name_ = {                                         \
        .name = #name_,                                                       \
        .attr_size = sizeof(loong_norm_attr_t),                               \
        .min_in = min_,                                                       \
        .max_in = max_,                                                       \
        .num_out = outs_,                                                     \
        .strided_in = true,                                                   \
        .strided_out = true,                                                  \
        .infer = infer_##name_,                                               \
        .grad = grad_##name_,                                                 \
        .cost = cost_norm,                                                    \
    };                                                                        \
    const loong_op_t *const loongi_op_##name_ = &name_
NORM_OP(rmsnorm, 2, 2, 2);
NORM_OP(add_rmsnorm, 3, 3, 3);
NORM_OP(layernorm, 2, 3, 3);
NORM_OP(add_layernorm, 3, 4, 4);
#undef NORM_OP

loong_val_t loong_rmsnorm(loong_graph_t *g, loong_val_t x, loong_val_t w,
                          double eps)
{
    loong_norm_attr_t attr = {eps};
    loong_val_t in[2] = {x, w};
    loong_val_t y;
    return loong_graph_apply(g, &rmsnorm, &attr, 2, in, 1, &y);
}

loong_val_t loong_layernorm(loong_graph_t *g, loong_val_t x, loong_val_t w,
                            loong_val_t b, double eps)
{
    loong_norm_attr_t attr = {eps};
    loong_val_t in[3] = {x, w, b};
    loong_val_t y;
    return loong_graph_apply(g, &layernorm, &attr, b >= 0 ? 3 : 2, in, 1, &y);
}
