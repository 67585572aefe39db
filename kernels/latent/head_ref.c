/* SPDX-License-Identifier: Apache-2.0
 *
 * head_linear and head_linear_dw. Row t*H + h of x and y belongs to head h of
 * H; its rows of w are w_h = w[h s + f .. h s + f + c - 1]:
 *
 *     y_h = x_h w_h'     dx_h = dy_h w_h     dw_h = dy_h' x_h
 *     transposed:
 *     y_h = x_h w_h      dx_h = dy_h w_h'    dw_h = x_h' dy_h
 *
 * dx is a head_linear with `transposed` flipped. Listed as references in
 * kernels/list.h; read loong/latent.h and ref_dense.h before. */
#include "list.h"
#include "loong/latent.h"
#include "ref_dense.h"

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_head_linear_attr_t *a = q->attr;
    char *cursor = call->workspace;
    const double *x = loongi_ref_load(call, 0, &cursor);
    const double *w = loongi_ref_load(call, 1, &cursor);
    double *y = loongi_ref_output(call, 0, &cursor);
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t k = loong_karg_cols(&q->arg[0]);
    int64_t n = loong_karg_cols(&q->arg[2]);
    int64_t wide = loong_karg_cols(&q->arg[1]);
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t r = 0; r < rows; r++) {
        const double *own = w + (r % a->heads * a->stride + a->first) * wide;
        loong_ref_matmul_t p = {1,   n, k,    x + r * k, k,         1,
                                own, 1, wide, y + r * n, 1};
        if (a->transposed) {
            p.bp = wide;
            p.bs = 1;
        }
        loongi_ref_matmul(&p);
    }
    loongi_ref_store(call, 0, y);
    return LOONG_OK;
}

static loong_status_t run_dw(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_head_linear_attr_t *a = q->attr;
    int left = a->transposed ? 1 : 0; /* its channels are rows of dw */
    char *cursor = call->workspace;
    const double *in[2];
    in[0] = loongi_ref_load(call, 0, &cursor);
    in[1] = loongi_ref_load(call, 1, &cursor);
    double *dw = loongi_ref_output(call, 0, &cursor);
    int64_t stream_rows = loong_karg_rows(&q->arg[0]) / a->heads;
    int64_t wide = loong_karg_cols(&q->arg[2]);
    for (int64_t h = 0; h < a->heads; h++) {
        loong_ref_matmul_t p = {a->count,
                                wide,
                                stream_rows,
                                in[left] + h * a->count,
                                1,
                                a->heads * a->count,
                                in[1 - left] + h * wide,
                                a->heads * wide,
                                1,
                                dw + (h * a->stride + a->first) * wide,
                                q->threads};
        loongi_ref_matmul(&p);
    }
    loongi_ref_store(call, 0, dw);
    return LOONG_OK;
}

const loong_kernel_t loongi_head_linear_ref = {.name = "head_linear_ref",
                                               .op = "head_linear",
                                               .device = "cpu",
                                               .workspace =
                                                   loongi_ref_workspace,
                                               .run = run};
const loong_kernel_t loongi_head_linear_dw_ref = {.name = "head_linear_dw_ref",
                                                  .op = "head_linear_dw",
                                                  .device = "cpu",
                                                  .workspace =
                                                      loongi_ref_workspace,
                                                  .run = run_dw};
