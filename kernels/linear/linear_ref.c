/* SPDX-License-Identifier: Apache-2.0
 *
 * linear, linear_gelu_grad, linear_dw and linear_dw_db. x is [T,K], w [N,K], b
 * [N], y [T,N], f an activation or the identity:
 *
 *     a = x w' + b,  y = f(a)
 *
 * With g = dy f'(a):  dx = g w,  dw = g' x,  db = sum over t of g[t].
 *
 * dx is a linear with `transposed` flipped, dw the op linear_dw, db sum_rows,
 * g gelu_grad. Where x is y of another linear, dx f'(a) of that one is one op,
 * linear_gelu_grad; dw and db together are linear_dw_db. With `transposed` w is
 * stored as [K,N] and dw likewise.
 *
 * Listed as references in kernels/list.h; read loong/ops.h and ref_dense.h
 * before. */
#include <math.h>
#include <string.h>

#include "loong/ops.h"
#include "ref_dense.h"

static double activate(loong_activation_t activation, double a)
{
    if (activation == LOONG_ACT_GELU) {
        return 0.5 * a * (1.0 + erf(a * 0.70710678118654752440));
    }
    if (activation == LOONG_ACT_GELU_TANH) {
        double u = 0.79788456080286535588 * (a + 0.044715 * a * a * a);
        return 0.5 * a * (1.0 + tanh(u));
    }
    return a;
}

static double slope(loong_activation_t activation, double a)
{
    if (activation == LOONG_ACT_GELU) {
        return 0.5 * (1.0 + erf(a * 0.70710678118654752440)) +
               a * 0.39894228040143267794 * exp(-0.5 * a * a);
    }
    double c = 0.79788456080286535588;
    double t = tanh(c * (a + 0.044715 * a * a * a));
    return 0.5 * (1.0 + t) +
           0.5 * a * (1.0 - t * t) * c * (1.0 + 3.0 * 0.044715 * a * a);
}

/* Makes y of a, in place. */
static void finish(const loong_kernel_call_t *call, int64_t rows, int64_t n,
                   const double *bias, double *y, double *before)
{
    const loong_linear_attr_t *attr = call->query->attr;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < rows; t++) {
        double *row = y + t * n;
        for (int64_t j = 0; j < n && bias != NULL; j++) {
            row[j] += bias[j];
        }
        if (before != NULL) {
            memcpy(before + t * n, row, sizeof(double) * (size_t)n);
        }
        for (int64_t j = 0; j < n; j++) {
            row[j] = activate(attr->activation, row[j]);
        }
    }
}

/* y = x w' */
static void multiply(const loong_kernel_call_t *call, const double *x,
                     const double *w, double *y)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_attr_t *attr = q->attr;
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t k = loong_karg_cols(&q->arg[0]);
    int64_t n = loong_karg_cols(&q->arg[q->num_in]);
    loong_ref_matmul_t product = {rows, n, k, x, k, 1, w, 1, k, y, q->threads};
    if (attr->transposed) {
        product.bp = n;
        product.bs = 1;
    }
    loongi_ref_matmul(&product);
}

static loong_status_t linear_gelu_grad_run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_attr_t *attr = q->attr;
    char *cursor = call->workspace;
    double *x = loongi_ref_load(call, 0, &cursor);
    double *w = loongi_ref_load(call, 1, &cursor);
    double *before = loongi_ref_load(call, 2, &cursor);
    double *y = loongi_ref_output(call, 0, &cursor);
    int64_t rows = loong_karg_rows(&q->arg[0]);
    multiply(call, x, w, y);
    for (int64_t i = 0; i < rows * loong_karg_cols(&q->arg[3]); i++) {
        y[i] *= slope(attr->activation, before[i]);
    }
    loongi_ref_store(call, 0, y);
    return LOONG_OK;
}

static loong_status_t linear_run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    char *cursor = call->workspace;
    double *x = loongi_ref_load(call, 0, &cursor);
    double *w = loongi_ref_load(call, 1, &cursor);
    double *bias = loongi_ref_load(call, 2, &cursor);
    double *y = loongi_ref_output(call, 0, &cursor);
    double *before = loongi_ref_output(call, 1, &cursor);
    int64_t rows = loong_karg_rows(&q->arg[0]);
    multiply(call, x, w, y);
    finish(call, rows, loong_karg_cols(&q->arg[q->num_in]), bias, y,
           before);
    loongi_ref_store(call, 1, before);
    loongi_ref_store(call, 0, y);
    return LOONG_OK;
}

static loong_status_t linear_dw_run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_attr_t *attr = q->attr;
    char *cursor = call->workspace;
    double *dy = loongi_ref_load(call, 0, &cursor);
    double *x = loongi_ref_load(call, 1, &cursor);
    double *dw = loongi_ref_output(call, 0, &cursor);
    double *db = q->num_out > 1 ? loongi_ref_output(call, 1, &cursor) : NULL;
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t n = loong_karg_cols(&q->arg[0]);
    int64_t k = loong_karg_cols(&q->arg[1]);
    loong_ref_matmul_t product = {n, k, rows, dy, 1,         n,
                                  x, k, 1,    dw, q->threads};
    if (attr->transposed) {
        loong_ref_matmul_t other = {k,  n, rows, x,  1,         k,
                                    dy, n, 1,    dw, q->threads};
        product = other;
    }
    loongi_ref_matmul(&product);
    for (int64_t j = 0; j < n && db != NULL; j++) {
        db[j] = 0.0;
        for (int64_t t = 0; t < rows; t++) {
            db[j] += dy[t * n + j];
        }
    }
    loongi_ref_store(call, 1, db);
    loongi_ref_store(call, 0, dw);
    return LOONG_OK;
}

const loong_kernel_t loongi_linear_ref = {
    .name = "linear_ref",
    .op = "linear",
    .device = "cpu",
    .workspace = loongi_ref_workspace,
    .run = linear_run,
};

const loong_kernel_t loongi_linear_gelu_grad_ref = {
    .name = "linear_gelu_grad_ref",
    .op = "linear_gelu_grad",
    .device = "cpu",
    .workspace = loongi_ref_workspace,
    .run = linear_gelu_grad_run,
};

const loong_kernel_t loongi_linear_dw_db_ref = {
    .name = "linear_dw_db_ref",
    .op = "linear_dw_db",
    .device = "cpu",
    .workspace = loongi_ref_workspace,
    .run = linear_dw_run,
};

const loong_kernel_t loongi_linear_dw_ref = {
    .name = "linear_dw_ref",
    .op = "linear_dw",
    .device = "cpu",
    .workspace = loongi_ref_workspace,
    .run = linear_dw_run,
};
