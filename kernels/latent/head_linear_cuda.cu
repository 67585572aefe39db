/* SPDX-License-Identifier: Apache-2.0
 *
 * head_linear and head_linear_dw by cuBLASLt; the formulas stand in head_ref.c.
 * The heads are one batch: rows of a head are `heads` rows apart in x and y,
 * its rows of w follow one another. */
#include "cublaslt.h"
#include "cuda.cuh"
#include "loong/latent.h"

using namespace loong_cuda;

namespace {

const loong_head_linear_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return static_cast<const loong_head_linear_attr_t *>(q->attr);
}

bool is_dw(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "head_linear_dw") == 0;
}

/* Which operands a, b and c of the product are, by columns: y' = w x', and
 * dw = dy' x, or x' dy, as dw' = x' dy. */
struct roles_t {
    int of[3];
};

roles_t roles_of(const loong_kernel_query_t *q)
{
    bool transposed = attr_of(q)->transposed;
    roles_t forward = {{1, 0, 2}};
    roles_t dw = {{transposed ? 0 : 1, transposed ? 1 : 0, 2}};
    return is_dw(q) ? dw : forward;
}

/* Operand i is w or dw: a head's rows follow one another. */
bool is_table(const loong_kernel_query_t *q, int i)
{
    return i == (is_dw(q) ? 2 : 1);
}

/* From one row of a head to the next, and from one head to the next. */
int64_t ld_of(const loong_kernel_query_t *q, int i)
{
    return is_table(q, i) ? q->arg[i].ld : q->arg[i].ld * attr_of(q)->heads;
}

int64_t step_of(const loong_kernel_query_t *q, int i)
{
    return is_table(q, i) ? q->arg[i].ld * attr_of(q)->stride : q->arg[i].ld;
}

loong_cublaslt_params_t product_of(const loong_kernel_query_t *q)
{
    const loong_head_linear_attr_t *attr = attr_of(q);
    roles_t roles = roles_of(q);
    int64_t stream_rows = loong_karg_rows(&q->arg[0]) / attr->heads;
    loong_cublaslt_params_t p = loongi_cublaslt_begin(&q->policy);
    p.in = q->arg[0].dtype;
    p.out = q->arg[2].dtype;
    p.m = loong_karg_cols(&q->arg[2]);
    p.n = is_dw(q) ? attr->count : stream_rows;
    p.k = is_dw(q) ? stream_rows : loong_karg_cols(&q->arg[0]);
    p.trans_a = !is_dw(q) && !attr->transposed;
    p.trans_b = is_dw(q);
    p.lda = ld_of(q, roles.of[0]);
    p.ldb = ld_of(q, roles.of[1]);
    p.ldc = ld_of(q, roles.of[2]);
    p.batch = attr->heads;
    for (int i = 0; i < 3; i++) {
        p.step[i] = step_of(q, roles.of[i]);
    }
    return p;
}

/* Where head 0 has its rows. */
void *operand(const loong_kernel_call_t *call, int i)
{
    const loong_karg_t *arg = &call->query->arg[i];
    int64_t first = is_table(call->query, i) ? attr_of(call->query)->first : 0;
    return static_cast<char *>(call->ptr[i]) +
           (size_t)(first * arg->ld) * loong_dtype_size(arg->dtype);
}

} // namespace

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query,
                              void **state_p)
{
    loong_cublaslt_t *product = NULL;
    loong_cublaslt_params_t params = product_of(query);
    LOONG_TRY(loongi_cublaslt_create(ctx, &params, &product));
    *state_p = product;
    return LOONG_OK;
}

static void destroy(loong_context_t *ctx, void *state)
{
    loongi_cublaslt_destroy(ctx, static_cast<loong_cublaslt_t *>(state));
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_head_linear_attr_t *attr = attr_of(q);
    roles_t roles = roles_of(q);
    int64_t stream_rows = loong_karg_rows(&q->arg[0]) / attr->heads;
    bool add = (call->accumulate & 1u) != 0;
    if (is_dw(q) && !add && attr->count < attr->stride) {
        /* Rows of nobody. */
        mat_t dw = mat_out(call, 0);
        cudaMemset2DAsync(dw.p, (size_t)dw.ld * sizeof(float), 0,
                          (size_t)dw.cols * sizeof(float), (size_t)dw.rows,
                          stream_of(call));
    }
    loong_cublaslt_operands_t o = {operand(call, roles.of[0]),
                                   operand(call, roles.of[1]),
                                   operand(call, roles.of[2]),
                                   is_dw(q) ? attr->count : stream_rows,
                                   is_dw(q) ? stream_rows
                                            : loong_karg_cols(&q->arg[0]),
                                   add,
                                   call->workspace,
                                   call->stream,
                                   NULL,
                                   NULL};
    LOONG_TRY(launched(call));
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
    if (query->arg[0].dtype != query->arg[1].dtype) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "operands are %s and %s, this kernel takes one type",
                 loong_dtype_name(query->arg[0].dtype),
                 loong_dtype_name(query->arg[1].dtype));
        return false;
    }
    return cuda_support(query, is_dw(query) ? 1u << 2 : 0, 0, reason);
}

CUDA_KERNEL_STATE(head_linear, support, workspace, prepare, destroy, run);
CUDA_KERNEL_STATE(head_linear_dw, support, workspace, prepare, destroy, run);
