/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops swiglu and gelu: checks, shapes, gradients, costs. Called by graph
 * building and differentiation through the op's table. Read op_impl.h before,
 * and kernels/activation/activation_ref.c for the formulas. */
#include "op_impl.h"

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        const loong_karg_t *a = &q->arg[i];
        double n = (double)loong_karg_rows(a) *
                   (double)loong_karg_cols(a);
        cost->bytes += n * (double)loong_dtype_size(a->dtype);
        cost->flops += 4.0 * n;
    }
}

/* ---- swiglu -------------------------------------------------------------- */

/* Offsets of the rows of experts, or none. */
static loong_status_t want_offsets(const loong_op_call_t *call, int i)
{
    if (!loongi_has(call, i)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_want_rank(call, i, "offsets", 1));
    return loongi_want_dtype(call, i, "offsets", LOONG_I32);
}

/* All rows that are laid out. */
static void example_swiglu(const loong_kernel_query_t *q, int i, void *data)
{
    int32_t *offset = data;
    int64_t last = q->arg[i].dim[0] - 1;
    for (int64_t e = 0; e <= last; e++) {
        offset[e] = (int32_t)(q->arg[0].dim[0] * e / LOONG_MAX(last, 1));
    }
}

static loong_status_t infer_swiglu(const loong_op_call_t *call)
{
    LOONG_TRY(want_offsets(call, 1));
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    int64_t cols = loongi_type_cols(&call->in[0]);
    LOONG_CHECK(call->ctx, cols > 0 && cols % 2 == 0, LOONG_ERR_ARG,
                "%s: x has %lld channels, an even number wanted", call->op,
                (long long)cols);
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] = cols / 2;
    return LOONG_OK;
}

/* dy, x -> like x. */
static loong_status_t infer_swiglu_grad(const loong_op_call_t *call)
{
    LOONG_TRY(want_offsets(call, 2));
    int64_t cols = loongi_type_cols(&call->in[0]);
    LOONG_TRY(loongi_want_rank(call, 0, "dy", 2));
    LOONG_TRY(loongi_want_float(call, 0, "dy"));
    LOONG_TRY(loongi_want_rank(call, 1, "x", 2));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    LOONG_TRY(loongi_want_dim(call, 1, "x", 1, 2 * cols));
    call->out[0] = call->in[1];
    return LOONG_OK;
}

static loong_status_t want_form(const loong_op_call_t *call)
{
    const loong_gelu_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx,
                a->form == LOONG_ACT_GELU || a->form == LOONG_ACT_GELU_TANH ||
                    a->form == LOONG_ACT_QUICK_GELU,
                LOONG_ERR_ARG, "%s: activation %d is no form of GELU", call->op,
                (int)a->form);
    return LOONG_OK;
}

static loong_status_t infer_gelu(const loong_op_call_t *call)
{
    LOONG_TRY(want_form(call));
    return loongi_infer_same(call);
}

static loong_status_t infer_gelu_grad(const loong_op_call_t *call)
{
    LOONG_TRY(want_form(call));
    LOONG_TRY(loongi_want_float(call, 0, "dy"));
    LOONG_TRY(loongi_want_like(call, 1, "x", 0));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    call->out[0] = call->in[1];
    return LOONG_OK;
}

static const loong_op_t swiglu_grad = {
    .name = "swiglu_grad",
    .min_in = 2,
    .max_in = 3,
    .num_out = 1,
    .in_place = 1,
    .overwrites = 1,
    .counted_by = 2,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_swiglu_grad,
    .example = example_swiglu,
    .cost = cost,
};
const loong_op_t *const loongi_op_swiglu_grad = &swiglu_grad;

static loong_status_t grad_swiglu(const loong_grad_call_t *call)
{
    loong_val_t in[3] = {call->out_grad[0], call->in[0],
                         call->num_in > 1 ? call->in[1] : LOONG_NONE};
    loong_graph_apply(call->graph, &swiglu_grad, NULL, call->num_in + 1, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t swiglu = {
    .name = "swiglu",
    .min_in = 1,
    .max_in = 2,
    .num_out = 1,
    .counted_by = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_swiglu,
    .example = example_swiglu,
    .grad = grad_swiglu,
    .cost = cost,
};
const loong_op_t *const loongi_op_swiglu = &swiglu;

loong_val_t loong_swiglu(loong_graph_t *g, loong_val_t x, loong_val_t offsets)
{
    loong_val_t in[2] = {x, offsets};
    loong_val_t y;
    return loong_graph_apply(g, &swiglu, NULL, offsets == LOONG_NONE ? 1 : 2,
                             in, 1, &y);
}

/* ---- gelu ---------------------------------------------------------------- */

static const loong_op_t gelu_grad = {
    .name = "gelu_grad",
    .attr_size = sizeof(loong_gelu_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_gelu_grad,
    .cost = cost,
};
const loong_op_t *const loongi_op_gelu_grad = &gelu_grad;

static loong_status_t grad_gelu(const loong_grad_call_t *call)
{
    loong_val_t in[2] = {call->out_grad[0], call->in[0]};
    loong_graph_apply(call->graph, &gelu_grad, call->attr, 2, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t gelu = {
    .name = "gelu",
    .attr_size = sizeof(loong_gelu_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_gelu,
    .grad = grad_gelu,
    .cost = cost,
};
const loong_op_t *const loongi_op_gelu = &gelu;

loong_val_t loong_gelu(loong_graph_t *g, loong_val_t x, loong_activation_t form)
{
    loong_gelu_attr_t attr = {form};
    loong_val_t y;
    return loong_graph_apply(g, &gelu, &attr, 1, &x, 1, &y);
}
