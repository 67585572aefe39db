/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_add by oneDNN (formula: linear_add_ref.c): the product adds to the
 * columns of its output, which holds y, in most launches in y's own memory. A
 * second kernel widens bf16 operands into the workspace where the processor has
 * no bf16 product. Listed in kernels/list.h; read onednn.h before. */
#include <stdio.h>
#include <string.h>

#include "loong/ops.h"
#include "onednn/onednn.h"
#include "widen.h"

static const loong_linear_add_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return q->attr;
}

/* Columns that are added to. */
static int64_t width_of(const loong_kernel_query_t *q)
{
    return attr_of(q)->transposed ? loong_karg_cols(&q->arg[2])
                                  : loong_karg_rows(&q->arg[2]);
}

static loong_product_params_t product_of(const loong_kernel_query_t *q)
{
    bool transposed = attr_of(q)->transposed;
    loong_product_params_t p;
    memset(&p, 0, sizeof(p));
    p.m = loong_karg_rows(&q->arg[3]);
    p.n = width_of(q);
    p.k = loong_karg_cols(&q->arg[1]);
    p.a = (loong_product_matrix_t){q->arg[1].dtype, q->arg[1].ld, false};
    p.b = (loong_product_matrix_t){q->arg[2].dtype, q->arg[2].ld, !transposed};
    p.c = (loong_product_matrix_t){q->arg[3].dtype, q->arg[3].ld, false};
    p.add = true;
    p.threads = q->threads;
    return p;
}

/* Of dense fp32 copies. */
static loong_product_params_t widened_of(const loong_kernel_query_t *q)
{
    loong_product_params_t p = product_of(q);
    p.a.dtype = p.b.dtype = p.c.dtype = LOONG_F32;
    p.a.ld = p.k;
    p.b.ld = loong_karg_cols(&q->arg[2]);
    p.c.ld = p.n;
    return p;
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t p = product_of(q);
    return loongi_product_support(&p, reason);
}

static bool widened_support(const loong_kernel_query_t *q,
                            char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t p = widened_of(q);
    if (q->arg[0].dtype != LOONG_BF16) {
        snprintf(reason, LOONG_REASON_SIZE, "only widens bf16 operands");
        return false;
    }
    return loongi_product_support(&p, reason);
}

static size_t room(int64_t elements)
{
    return (size_t)loongi_round_up(elements * (int64_t)sizeof(float), 64);
}

static size_t product_bytes(const loong_product_params_t *p)
{
    return (size_t)loongi_round_up((int64_t)loongi_product_workspace(p), 64);
}

static size_t workspace(const loong_kernel_query_t *q)
{
    loong_product_params_t p = product_of(q);
    return product_bytes(&p);
}

static size_t widened_workspace(const loong_kernel_query_t *q)
{
    loong_product_params_t p = widened_of(q);
    return product_bytes(&p) + room(p.m * p.k) + room(p.n * p.k) +
           room(p.m * p.n);
}

static void destroy(loong_context_t *ctx, void *state)
{
    loongi_product_destroy(ctx, state);
}

static loong_status_t make(loong_context_t *ctx, loong_product_params_t p,
                           void **state_p)
{
    loong_product_t *product = NULL;
    LOONG_TRY(loongi_product_create(ctx, &p, &product));
    *state_p = product;
    return LOONG_OK;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *q, void **state_p)
{
    return make(ctx, product_of(q), state_p);
}

static loong_status_t widened_prepare(loong_context_t *ctx,
                                      const loong_kernel_query_t *q,
                                      void **state_p)
{
    return make(ctx, widened_of(q), state_p);
}

/* Where output and y are not one memory. */
static void copy_rows(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const char *y = call->ptr[0];
    char *z = call->ptr[3];
    size_t size = loong_dtype_size(q->arg[0].dtype);
    size_t bytes = (size_t)loong_karg_cols(&q->arg[0]) * size;
    int64_t rows = y == z ? 0 : loong_karg_rows(&q->arg[0]);
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t t = 0; t < rows; t++) {
        memcpy(z + (size_t)(t * q->arg[3].ld) * size,
               y + (size_t)(t * q->arg[0].ld) * size, bytes);
    }
}

static void *columns(const loong_kernel_call_t *call)
{
    size_t size = loong_dtype_size(call->query->arg[3].dtype);
    return (char *)call->ptr[3] + (size_t)attr_of(call->query)->begin * size;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    copy_rows(call);
    loong_product_operands_t o = {call->ptr[1],  call->ptr[2],    NULL,
                                  columns(call), call->workspace, 0};
    return loongi_product_run(call->ctx, call->state, &o);
}

static float *widen(const loong_kernel_call_t *call, int i, char **cursor)
{
    const loong_karg_t *arg = &call->query->arg[i];
    int64_t rows = loong_karg_rows(arg);
    int64_t cols = loong_karg_cols(arg);
    float *copy = (float *)(void *)*cursor;
    *cursor += room(rows * cols);
    loongi_widen(call->ptr[i], arg->ld, copy, rows, cols, call->query->threads);
    return copy;
}

static loong_status_t widened_run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    char *cursor = call->workspace;
    int64_t rows = loong_karg_rows(&q->arg[3]);
    int64_t n = width_of(q);
    copy_rows(call);
    const float *x = widen(call, 1, &cursor);
    const float *w = widen(call, 2, &cursor);
    float *z = (float *)(void *)cursor;
    cursor += room(rows * n);
    loongi_widen(columns(call), q->arg[3].ld, z, rows, n, q->threads);
    loong_product_operands_t o = {x, w, NULL, z, cursor, 0};
    LOONG_TRY(loongi_product_run(call->ctx, call->state, &o));
    loongi_narrow(z, columns(call), q->arg[3].ld, rows, n, q->threads);
    return LOONG_OK;
}

#define LINEAR_ADD_KERNEL(symbol_, name_, prefix_) \
    const loong_kernel_t symbol_ = {               \
        .name = name_,                             \
        .op = "linear_add",                        \
        .device = "cpu",                           \
        .support = prefix_##support,               \
        .workspace = prefix_##workspace,           \
        .prepare = prefix_##prepare,               \
        .destroy = destroy,                        \
        .run = prefix_##run,                       \
    }

LINEAR_ADD_KERNEL(loongi_linear_add_onednn, "linear_add_onednn", );
LINEAR_ADD_KERNEL(loongi_linear_add_onednn_widened, "linear_add_onednn_widened",
                  widened_);
