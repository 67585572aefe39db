/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize and dequantize; formulas in kernels/quantize/quantize_ref.c. Called
 * through the ops' tables; no built-in family builds them. Read
 * loong/quantize.h and op_impl.h before. */
#include "loong/quantize.h"

#include "convert.h"
#include "op_impl.h"

static loong_status_t want_blocks(const loong_op_call_t *call)
{
    const loong_quantize_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx,
                a->block_rows == 0 || a->block_rows == 1 ||
                    a->block_rows == LOONG_QUANTIZE_BLOCK,
                LOONG_ERR_ARG,
                "%s: blocks of %d rows, 1 or %d wanted, or 0 for one scale",
                call->op, a->block_rows, (int)LOONG_QUANTIZE_BLOCK);
    LOONG_CHECK(call->ctx, !a->transposed || a->block_rows != 1, LOONG_ERR_ARG,
                "%s: a transposed copy with blocks of 1 row: its blocks would "
                "be columns", call->op);
    return LOONG_OK;
}

/* Scales of the blocks of operand 0. */
static loong_shape_t scales_of(const loong_op_call_t *call)
{
    const loong_quantize_attr_t *a = call->attr;
    loong_shape_t shape = call->in[0].shape;
    if (a->block_rows == 0) {
        return loong_shape_1d(1);
    }
    shape.dim[0] = (shape.dim[0] + a->block_rows - 1) / a->block_rows;
    shape.dim[1] =
        (shape.dim[1] + LOONG_QUANTIZE_BLOCK - 1) / LOONG_QUANTIZE_BLOCK;
    return shape;
}

static loong_status_t want_scale(const loong_op_call_t *call)
{
    loong_shape_t shape = scales_of(call);
    LOONG_TRY(loongi_want_rank(call, 1, "scale", shape.rank));
    LOONG_TRY(loongi_want_dtype(call, 1, "scale", call->precision.wide));
    for (int d = 0; d < shape.rank; d++) {
        LOONG_TRY(loongi_want_dim(call, 1, "scale", d, shape.dim[d]));
    }
    return LOONG_OK;
}

static loong_status_t infer_quantize(const loong_op_call_t *call)
{
    const loong_quantize_attr_t *a = call->attr;
    const loong_tensor_type_t *x = &call->in[0];
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_CHECK(call->ctx, loongi_dtype_is_fp8(a->dtype), LOONG_ERR_ARG,
                "%s: to %s; fp8_e4m3 or fp8_e5m2 wanted", call->op,
                loong_dtype_name(a->dtype));
    LOONG_TRY(want_blocks(call));
    LOONG_CHECK(call->ctx, loongi_has(call, 1) == (a->block_rows == 0),
                LOONG_ERR_ARG, "%s: %s scale and blocks of %d rows", call->op,
                loongi_has(call, 1) ? "a" : "no", a->block_rows);
    if (a->block_rows == 0) {
        LOONG_TRY(want_scale(call));
    } else {
        call->out[1].dtype = call->precision.wide;
        call->out[1].shape = scales_of(call);
    }
    call->out[0] = *x;
    call->out[0].dtype = a->dtype;
    call->out[2].dtype = call->precision.wide;
    call->out[2].shape = loong_shape_1d(1);
    if (a->transposed) {
        call->out[3].dtype = a->dtype;
        call->out[3].shape =
            loong_shape_2d(x->shape.dim[1], x->shape.dim[0]);
    }
    return LOONG_OK;
}

static const loong_op_t quantize = {
    .name = "quantize",
    .attr_size = sizeof(loong_quantize_attr_t),
    .min_in = 1,
    .max_in = 2,
    .num_out = 4,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_quantize,
};
const loong_op_t *const loongi_op_quantize = &quantize;

loong_quantized_t loong_quantize(loong_graph_t *g, loong_val_t x,
                                 loong_val_t scale,
                                 const loong_quantize_attr_t *attr)
{
    loong_val_t in[2] = {x, scale};
    loong_val_t out[4];
    loong_graph_apply(g, &quantize, attr, scale == LOONG_NONE ? 1 : 2, in, 4,
                      out);
    loong_quantized_t y = {out[0], out[1], out[2], out[3]};
    return y;
}

static loong_status_t infer_dequantize(const loong_op_call_t *call)
{
    const loong_quantize_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "q", 2));
    LOONG_CHECK(call->ctx, loongi_dtype_is_fp8(call->in[0].dtype),
                LOONG_ERR_ARG, "%s: q is %s; fp8_e4m3 or fp8_e5m2 wanted",
                call->op, loong_dtype_name(call->in[0].dtype));
    LOONG_CHECK(call->ctx,
                a->dtype == LOONG_F64 || a->dtype == LOONG_F32 ||
                    a->dtype == LOONG_BF16,
                LOONG_ERR_ARG, "%s: to %s; fp64, fp32 or bf16 wanted",
                call->op, loong_dtype_name(a->dtype));
    LOONG_CHECK(call->ctx, !a->transposed, LOONG_ERR_ARG,
                "%s: a transposed copy, which quantize alone makes", call->op);
    LOONG_TRY(want_blocks(call));
    LOONG_TRY(want_scale(call));
    call->out[0] = call->in[0];
    call->out[0].dtype = a->dtype;
    return LOONG_OK;
}

static const loong_op_t dequantize = {
    .name = "dequantize",
    .attr_size = sizeof(loong_quantize_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_dequantize,
};
const loong_op_t *const loongi_op_dequantize = &dequantize;

loong_val_t loong_dequantize(loong_graph_t *g, loong_val_t q,
                             loong_val_t scale,
                             const loong_quantize_attr_t *attr)
{
    loong_val_t in[2] = {q, scale};
    loong_val_t y;
    return loong_graph_apply(g, &dequantize, attr, 2, in, 1, &y);
}
