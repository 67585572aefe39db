/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_add by cuBLASLt, which adds to the columns of its output; y is copied
 * there first unless it lies there. The formula stands in linear_add_ref.c. */
#include "copy.cuh"
#include "cublaslt.h"

using namespace loong_cuda;

static const loong_linear_add_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return static_cast<const loong_linear_add_attr_t *>(q->attr);
}

/* By columns: z' += w x', of the columns that are added to. */
static loong_cublaslt_params_t product_of(const loong_kernel_query_t *q)
{
    bool transposed = attr_of(q)->transposed;
    loong_cublaslt_params_t p = loongi_cublaslt_begin(&q->policy);
    p.in = q->arg[1].dtype;
    p.out = q->arg[3].dtype;
    p.m = transposed ? loong_karg_cols(&q->arg[2])
                     : loong_karg_rows(&q->arg[2]);
    p.n = loong_karg_rows(&q->arg[1]);
    p.k = loong_karg_cols(&q->arg[1]);
    p.trans_a = !transposed;
    p.lda = q->arg[2].ld;
    p.ldb = q->arg[1].ld;
    p.ldc = q->arg[3].ld;
    return p;
}

static void destroy(loong_context_t *ctx, void *state)
{
    loongi_cublaslt_destroy(ctx, static_cast<loong_cublaslt_t *>(state));
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    loong_cublaslt_params_t p = product_of(query);
    loong_cublaslt_t *product = NULL;
    LOONG_TRY(loongi_cublaslt_create(ctx, &p, &product));
    *state_p = product;
    return LOONG_OK;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    mat_t y = mat_arg(call, 0);
    mat_t z = mat_out(call, 0);
    int64_t rows = loong_karg_rows(&q->arg[1]);
    if (rows == 0) {
        return LOONG_OK;
    }
    if (y.p != z.p) {
        LOONG_TRY(copy(call, y, z, false));
    }
    loong_cublaslt_operands_t o = {call->ptr[2],
                                   call->ptr[1],
                                   static_cast<char *>(z.p) +
                                       (size_t)attr_of(q)->begin *
                                           loong_dtype_size(q->arg[3].dtype),
                                   rows,
                                   loong_karg_cols(&q->arg[1]),
                                   true,
                                   call->workspace,
                                   call->stream,
                                   NULL,
                                   NULL};
    return loongi_cublaslt_run(call->ctx,
                               static_cast<loong_cublaslt_t *>(call->state),
                               &o);
}

static size_t workspace(const loong_kernel_query_t *)
{
    return LOONG_CUBLASLT_WORKSPACE;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason) &&
           cuda_support_same(query, 0, reason);
}

CUDA_KERNEL_STATE(linear_add, support, workspace, prepare, destroy, run);
