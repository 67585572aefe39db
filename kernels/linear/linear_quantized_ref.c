/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_quantized: w [N,K] is what the bytes say (src/base/quant.h) in fp32;
 * x [T,K], b [N]:
 *
 *     y = x w' + b,  with `transposed` y = x w of x [T,N]
 *
 * dx of one is the other. Listed as a reference in kernels/list.h; read
 * loong/quantize.h and ref_dense.h before. */
#include "loong/quantize.h"
#include "quant.h"
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
    loong_quant_part_t all = {
        a->quant, call->ptr[1], q->arg[1].ld, a->cols, 0, q->arg[1].dim[0],
        0,        a->cols};
    loong_ref_matmul_t product = {rows, n, k, x, k, 1, w, 1, k, y, q->threads};
    if (a->transposed) {
        product.bp = n;
        product.bs = 1;
    }
    loongi_quant_decode(&all, LOONG_F64, w, a->cols, q->threads);
    loongi_ref_matmul(&product);
    for (int64_t i = 0; i < rows * n && bias != NULL; i++) {
        y[i] += bias[i % n];
    }
    loongi_ref_store(call, 0, y);
    return LOONG_OK;
}

const loong_kernel_t loongi_linear_quantized_ref = {
    .name = "linear_quantized_ref",
    .op = "linear_quantized",
    .device = "cpu",
    .workspace = workspace,
    .run = run,
};
