/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_quantized; formulas in kernels/linear/linear_quantized_ref.c. Called
 * by the linear layers of nn.c. Read loong/quantize.h, src/base/quant.h and
 * op_impl.h before. */
#include "loong/quantize.h"

#include "loong/register.h"
#include "op_impl.h"
#include "quant.h"

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_linear_quantized_attr_t *a = call->attr;
    int64_t unit = loongi_quant_columns(a->quant);
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(loongi_want_rank(call, 1, "w", 2));
    LOONG_TRY(loongi_want_dtype(call, 1, "w", LOONG_U8));
    LOONG_CHECK(call->ctx, a->quant != LOONG_QUANT_NONE && a->cols % unit == 0,
                LOONG_ERR_ARG,
                "%s: rows of %lld elements, blocks of %s have %lld", call->op,
                (long long)a->cols, loongi_quant_name(a->quant),
                (long long)unit);
    LOONG_TRY(loongi_want_dim(call, 1, "w", 1,
                              loongi_quant_row_bytes(a->quant, a->cols)));
    int64_t rows = call->in[1].shape.dim[0];
    LOONG_TRY(loongi_want_dim(call, 0, "x", 1, a->transposed ? rows : a->cols));
    if (loongi_has(call, 2)) {
        LOONG_CHECK(call->ctx, !a->transposed, LOONG_ERR_ARG,
                    "%s: a bias beside the transposed matrix", call->op);
        LOONG_TRY(loongi_want_vector(call, 2, "bias", rows));
    }
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] = a->transposed ? a->cols : rows;
    return LOONG_OK;
}

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    loong_linear_quantized_attr_t attr =
        *(const loong_linear_quantized_attr_t *)call->attr;
    loong_val_t in[2] = {call->out_grad[0], call->in[1]};
    LOONG_CHECK(loong_graph_context(g), !call->wanted[1], LOONG_ERR_UNSUPPORTED,
                "linear_quantized: a matrix that is trained; as codes it stays "
                "fixed");
    if (in[0] == LOONG_NONE) {
        return LOONG_OK;
    }
    attr.transposed = !attr.transposed;
    if (call->wanted[0]) {
        loong_graph_apply(
            g, loong_find_op(loong_graph_context(g), "linear_quantized"), &attr,
            2, in, 1, &call->in_grad[0]);
    }
    if (call->num_in > 2 && call->wanted[2]) {
        call->in_grad[2] = loong_sum_rows(g, in[0]);
    }
    return loong_graph_status(g);
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *x = &q->arg[0];
    const loong_karg_t *y = &q->arg[q->num_in];
    cost->flops = 2.0 * (double)loong_karg_rows(x) *
                  (double)loong_karg_cols(x) * (double)loong_karg_cols(y);
    cost->bytes = loongi_cost_bytes(q);
}

static const loong_op_t linear_quantized = {
    .name = "linear_quantized",
    .attr_size = sizeof(loong_linear_quantized_attr_t),
    .min_in = 2,
    .max_in = 3,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
    .cost = cost,
};
const loong_op_t *const loongi_op_linear_quantized = &linear_quantized;

loong_val_t loong_linear_quantized(loong_graph_t *g, loong_val_t x,
                                   loong_val_t w, loong_val_t bias,
                                   loong_quant_t quant)
{
    loong_shape_t shape = loong_value_shape(g, x);
    loong_linear_quantized_attr_t attr = {
        quant, shape.rank == 2 ? shape.dim[1] : 0, false};
    loong_val_t in[3] = {x, w, bias};
    loong_val_t y = LOONG_NONE;
    return loong_graph_apply(g, &linear_quantized, &attr,
                             bias == LOONG_NONE ? 2 : 3, in, 1, &y);
}
