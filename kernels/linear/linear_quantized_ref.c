/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize_blockwise: w [N,K] is what the bytes say (src/base/quant.h) in
 * fp32. linear_quantized: x [T,K], b [N]:
 *
 *     y = x w' + b,  with `transposed` y = x w of x [T,N]
 *
 * with offsets for the rows of each expert and its w. dx of one is the other.
 * Listed as a reference in kernels/list.h; read loong/quantize.h and
 * ref_dense.h before. */
#include "loong/quantize.h"
#include "moe/moe.h"
#include "quant.h"
#include "ref.h"
#include "ref_dense.h"

static size_t matrix_bytes(const loong_kernel_query_t *q)
{
    const loong_linear_quantized_attr_t *a = q->attr;
    return (size_t)(loong_karg_rows(&q->arg[1]) * a->cols) * sizeof(double);
}

static size_t workspace(const loong_kernel_query_t *q)
{
    return loongi_ref_workspace(q) + matrix_bytes(q) + REF_ALIGN;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_quantized_attr_t *a = q->attr;
    char *cursor = call->workspace;
    double *x = loongi_ref_load(call, 0, &cursor);
    double *bias = loongi_ref_load(call, 2, &cursor);
    double *y = loongi_ref_output(call, 0, &cursor);
    double *w = loongi_ref_take(&cursor, matrix_bytes(q));
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t k = loong_karg_cols(&q->arg[0]);
    int64_t n = loong_karg_cols(&q->arg[q->num_in]);
    bool grouped = q->num_in > 3;
    int64_t experts = grouped ? q->arg[1].dim[0] : 1;
    int32_t whole[2] = {0, (int32_t)rows};
    const int32_t *offset = grouped ? ref_i32(call, 3) : whole;
    loong_quant_part_t all = {a->quant,
                              call->ptr[1],
                              q->arg[1].ld,
                              a->cols,
                              0,
                              loong_karg_rows(&q->arg[1]),
                              0,
                              a->cols};
    if (grouped) {
        LOONG_TRY(loongi_moe_check_offsets(call, 3, rows));
    }
    loongi_quant_decode(&all, LOONG_F64, w, a->cols, q->threads);
    for (int64_t e = 0; e < experts; e++) {
        loong_ref_matmul_t product = {offset[e + 1] - offset[e],
                                      n,
                                      k,
                                      x + offset[e] * k,
                                      k,
                                      1,
                                      w + e * n * k,
                                      1,
                                      k,
                                      y + offset[e] * n,
                                      q->threads};
        if (a->transposed) {
            product.bp = n;
            product.bs = 1;
        }
        loongi_ref_matmul(&product);
    }
    ref_mat_t to = ref_out(call, 0);
    for (int64_t i = 0; i < offset[experts] * n; i++) {
        ref_put(&to, i / n, i % n, y[i] + (bias != NULL ? bias[i % n] : 0.0));
    }
    return LOONG_OK;
}

/* Of the codes' numbers there is one kernel, for every type. */
static loong_status_t dequantize(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_dequantize_blockwise_attr_t *a = q->attr;
    loong_quant_part_t all = {
        a->quant, call->ptr[0], q->arg[0].ld, a->cols, 0, q->arg[0].dim[0],
        0,        a->cols};
    loongi_quant_decode(&all, q->arg[1].dtype, call->ptr[1], q->arg[1].ld,
                        q->threads);
    return LOONG_OK;
}

REF_KERNEL(dequantize_blockwise, NULL, dequantize);

REF_KERNEL(linear_quantized, workspace, run);
