/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_quantized and what its codes stand for, dequantize_blockwise; formulas
 * in kernels/linear/linear_quantized_ref.c. Called
 * by the layers of src/nn. Read loong/quantize.h, src/base/quant.h and
 * op_impl.h before. */
#include "loong/quantize.h"

#include "loong/register.h"
#include "op_impl.h"
#include "quant.h"

enum { OFFSETS = 3 }; /* the operand that w of experts has beside it */

/* Operand i has rows of that many elements. */
static loong_status_t want_codes(const loong_op_call_t *call, int i, int rank,
                                 loong_quant_t quant, int64_t cols)
{
    int64_t unit = loongi_quant_columns(quant);
    LOONG_TRY(loongi_want_rank(call, i, "w", rank));
    LOONG_TRY(loongi_want_dtype(call, i, "w", LOONG_U8));
    LOONG_CHECK(call->ctx, quant != LOONG_QUANT_NONE && cols % unit == 0,
                LOONG_ERR_ARG,
                "%s: rows of %lld elements, blocks of %s have %lld", call->op,
                (long long)cols, loongi_quant_name(quant), (long long)unit);
    return loongi_want_dim(call, i, "w", rank - 1,
                           loongi_quant_row_bytes(quant, cols));
}

/* ---- linear_quantized ---------------------------------------------------- */

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_linear_quantized_attr_t *a = call->attr;
    bool grouped = loongi_has(call, OFFSETS);
    int rank = grouped ? 3 : 2; /* of w */
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(want_codes(call, 1, rank, a->quant, a->cols));
    int64_t rows = call->in[1].shape.dim[rank - 2];
    LOONG_TRY(loongi_want_dim(call, 0, "x", 1, a->transposed ? rows : a->cols));
    if (loongi_has(call, 2)) {
        LOONG_CHECK(call->ctx, !a->transposed && !grouped, LOONG_ERR_ARG,
                    "%s: a bias beside %s", call->op,
                    grouped ? "experts" : "the transposed matrix");
        LOONG_TRY(loongi_want_vector(call, 2, "bias", rows));
    }
    if (grouped) {
        LOONG_TRY(loongi_want_rank(call, OFFSETS, "offsets", 1));
        LOONG_TRY(loongi_want_dtype(call, OFFSETS, "offsets", LOONG_I32));
        LOONG_TRY(loongi_want_dim(call, OFFSETS, "offsets", 0,
                                  call->in[1].shape.dim[0] + 1));
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
    bool grouped = call->num_in > OFFSETS;
    loong_val_t in[4] = {call->out_grad[0], call->in[1], LOONG_NONE,
                         grouped ? call->in[OFFSETS] : LOONG_NONE};
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
            grouped ? 4 : 2, in, 1, &call->in_grad[0]);
    }
    if (!grouped && call->num_in > 2 && call->wanted[2]) {
        call->in_grad[2] = loong_sum_rows(g, in[0]);
    }
    return loong_graph_status(g);
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_linear_quantized_attr_t *a = q->attr;
    const loong_karg_t *x = &q->arg[0];
    const loong_karg_t *y = &q->arg[q->num_in];
    cost->flops = 2.0 * a->share * (double)loong_karg_rows(x) *
                  (double)loong_karg_cols(x) * (double)loong_karg_cols(y);
    cost->bytes = loongi_cost_bytes(q);
}

static void example(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_linear_quantized_attr_t *a = q->attr;
    if (i == OFFSETS) {
        loongi_even_offsets(q, i, a->share, data);
    }
}

static const loong_op_t linear_quantized = {
    .name = "linear_quantized",
    .attr_size = sizeof(loong_linear_quantized_attr_t),
    .min_in = 2,
    .max_in = 4,
    .num_out = 1,
    .counted_by = OFFSETS,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
    .example = example,
    .cost = cost,
};
const loong_op_t *const loongi_op_linear_quantized = &linear_quantized;

static loong_val_t multiply(loong_graph_t *g, int num_in, const loong_val_t *in,
                            loong_quant_t quant, double share)
{
    loong_shape_t x = loong_value_shape(g, in[0]);
    loong_linear_quantized_attr_t attr = {quant, x.rank == 2 ? x.dim[1] : 0,
                                          false, share};
    loong_val_t y = LOONG_NONE;
    return loong_graph_apply(g, &linear_quantized, &attr, num_in, in, 1, &y);
}

loong_val_t loong_linear_quantized(loong_graph_t *g, loong_val_t x,
                                   loong_val_t w, loong_val_t bias,
                                   loong_quant_t quant)
{
    loong_val_t in[3] = {x, w, bias};
    return multiply(g, bias == LOONG_NONE ? 2 : 3, in, quant, 1.0);
}

loong_val_t loong_grouped_linear_quantized(loong_graph_t *g, loong_val_t x,
                                           loong_val_t w,
                                           const loong_expert_rows_t *rows,
                                           loong_quant_t quant)
{
    loong_val_t in[4] = {x, w, LOONG_NONE, rows->offsets};
    return multiply(g, 4, in, quant, rows->share);
}

/* ---- dequantize_blockwise ------------------------------------------------ */

static loong_status_t infer_numbers(const loong_op_call_t *call)
{
    const loong_dequantize_blockwise_attr_t *a = call->attr;
    LOONG_TRY(want_codes(call, 0, 2, a->quant, a->cols));
    LOONG_CHECK(call->ctx,
                a->dtype == LOONG_F64 || a->dtype == LOONG_F32 ||
                    a->dtype == LOONG_BF16,
                LOONG_ERR_ARG, "%s: to %s; fp64, fp32 or bf16 wanted", call->op,
                loong_dtype_name(a->dtype));
    call->out[0].dtype = a->dtype;
    call->out[0].shape = loong_shape_2d(call->in[0].shape.dim[0], a->cols);
    return LOONG_OK;
}

static const loong_op_t dequantize_blockwise = {
    .name = "dequantize_blockwise",
    .attr_size = sizeof(loong_dequantize_blockwise_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_numbers,
};
const loong_op_t *const loongi_op_dequantize_blockwise = &dequantize_blockwise;

loong_val_t
loong_dequantize_blockwise(loong_graph_t *g, loong_val_t w,
                           const loong_dequantize_blockwise_attr_t *attr)
{
    loong_val_t y = LOONG_NONE;
    return loong_graph_apply(g, &dequantize_blockwise, attr, 1, &w, 1, &y);
}
