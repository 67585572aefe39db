/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_add. y is [T,C], x [T,K], w [N,K], z like y:
 *
 *     z[t,b+n] = y[t,b+n] + sum over k of x[t,k] w[n,k],  z = y elsewhere
 *
 * dy = dz; with g = dz[:,b:b+N], dx = g w and dw = g' x, which are linear and
 * linear_dw. With `transposed` w is stored as [K,N].
 *
 * Listed as a reference in kernels/list.h; read loong/ops.h and ref_dense.h
 * before. */
#include "loong/ops.h"
#include "ref_dense.h"

/* The product is of whole rows; a rounding of the sum is the only one. */
static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_add_attr_t *attr = q->attr;
    char *cursor = call->workspace;
    double *y = loongi_ref_load(call, 0, &cursor);
    double *x = loongi_ref_load(call, 1, &cursor);
    double *w = loongi_ref_load(call, 2, &cursor);
    double *product = loongi_ref_output(call, 0, &cursor);
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t cols = loong_karg_cols(&q->arg[0]);
    int64_t k = loong_karg_cols(&q->arg[1]);
    int64_t n = attr->transposed ? loong_karg_cols(&q->arg[2])
                                 : loong_karg_rows(&q->arg[2]);
    loong_ref_matmul_t p = {rows, n, k, x, k, 1, w, 1, k, product, q->threads};
    if (attr->transposed) {
        p.bp = n;
        p.bs = 1;
    }
    loongi_ref_matmul(&p);
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t j = 0; j < n; j++) {
            y[t * cols + attr->begin + j] += product[t * n + j];
        }
    }
    loongi_ref_store(call, 0, y);
    return LOONG_OK;
}

const loong_kernel_t loongi_linear_add_ref = {
    .name = "linear_add_ref",
    .op = "linear_add",
    .device = "cpu",
    .workspace = loongi_ref_workspace,
    .run = run,
};
