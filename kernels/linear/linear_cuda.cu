/* SPDX-License-Identifier: Apache-2.0
 *
 * linear and linear_dw by cuBLASLt; what comes after a product (bias,
 * activation) in one pass over its result. */
#include "cublaslt.h"
#include "gelu.cuh"
#include "map.cuh"

using namespace loong_cuda;

namespace {

/* before = product + bias; y = f(before). */
struct finish_t {
    mat_t product, y, bias, before;
    loong_activation_t activation;
};

__global__ void __launch_bounds__(BLOCK)
    finish_kernel(finish_t a, const loong_frame_t *frame)
{
    int64_t packs = (a.y.cols + PACK - 1) / PACK;
    int64_t units = rows_of(a.y, frame) * packs;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += step) {
        int64_t row = u / packs;
        int64_t col = u % packs * PACK;
        int n = least(PACK, a.y.cols - col);
        pack_t y = load_at(a.product, row, col, n);
        if (a.bias.p != NULL) {
            pack_t b = load_at(a.bias, 0, col, n);
            for (int i = 0; i < PACK; i++) {
                y.v[i] += b.v[i];
            }
        }
        if (a.before.p != NULL) {
            store_at(a.before, row, col, y, n);
        }
        for (int i = 0; i < PACK && a.activation != LOONG_ACT_NONE; i++) {
            y.v[i] = gelu_of(y.v[i], a.activation == LOONG_ACT_GELU_TANH);
        }
        store_at(a.y, row, col, y, n);
    }
}

const loong_linear_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return static_cast<const loong_linear_attr_t *>(q->attr);
}

bool is_dw(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "linear_dw") == 0;
}

/* Something comes after the product. */
bool has_finish(const loong_kernel_query_t *q)
{
    return !is_dw(q) && (attr_of(q)->activation != LOONG_ACT_NONE ||
                         (q->num_in > 2 && q->arg[2].rank > 0) ||
                         (q->num_out > 1 && q->arg[q->num_in + 1].rank > 0));
}

/* The product of bf16 is then kept in fp32, and rounded once. */
bool is_kept(const loong_kernel_query_t *q)
{
    return has_finish(q) && q->arg[q->num_in].dtype == LOONG_BF16;
}

/* A row-major matrix is its transposed by columns: y' = w x' and dw' = x' dy,
 * and dw = dy' x where the table lies the other way. */
loong_cublaslt_params_t product_of(const loong_kernel_query_t *q)
{
    const loong_karg_t *c = &q->arg[q->num_in];
    bool turned = attr_of(q)->transposed;
    int64_t rows = loong_karg_rows(&q->arg[0], NULL);
    loong_cublaslt_params_t p;
    memset(&p, 0, sizeof(p));
    p.in = q->arg[0].dtype;
    p.out = is_kept(q) ? LOONG_F32 : c->dtype;
    p.m = loong_karg_cols(c, NULL);
    p.ldc = is_kept(q) ? p.m : c->ld;
    if (is_dw(q)) {
        p.n = loong_karg_rows(c, NULL);
        p.k = rows;
        p.trans_b = true;
        p.lda = q->arg[turned ? 0 : 1].ld;
        p.ldb = q->arg[turned ? 1 : 0].ld;
    } else {
        p.n = rows;
        p.k = loong_karg_cols(&q->arg[0], NULL);
        p.trans_a = !turned;
        p.lda = q->arg[1].ld;
        p.ldb = q->arg[0].ld;
    }
    return p;
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

/* a and b of the product are operands `a` and 1 - a. */
static loong_status_t multiply(const loong_kernel_call_t *call, int a,
                               void *c, int64_t n, int64_t k)
{
    loong_cublaslt_operands_t o = {call->ptr[a],
                                   call->ptr[1 - a],
                                   c,
                                   n,
                                   k,
                                   (call->accumulate & 1u) != 0,
                                   call->workspace,
                                   call->stream};
    return loongi_cublaslt_run(call->ctx,
                               static_cast<loong_cublaslt_t *>(call->state),
                               &o);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int64_t rows = loong_karg_rows(&q->arg[0], call->frame);
    mat_t y = mat_out(call, 0);
    mat_t product = y;
    if (rows == 0) {
        return LOONG_OK;
    }
    if (is_kept(q)) { /* behind the workspace of the product */
        product.p = static_cast<char *>(call->workspace) +
                    LOONG_CUBLASLT_WORKSPACE;
        product.ld = y.cols;
        product.half = 0;
        product.packed = y.cols % PACK == 0;
    }
    LOONG_TRY(multiply(call, 1, product.p, rows,
                       loong_karg_cols(&q->arg[0], NULL)));
    if (!has_finish(q)) {
        return LOONG_OK;
    }
    finish_t f = {product, y, q->num_in > 2 ? mat_arg(call, 2) : mat_none(),
                  q->num_out > 1 ? mat_out(call, 1) : mat_none(),
                  attr_of(q)->activation};
    LOONG_LAUNCH((finish_kernel), grid_for(y), dim3(BLOCK), 0,
                 stream_of(call), f, call->device_frame);
    return launched(call);
}

static loong_status_t run_dw(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int64_t rows = loong_karg_rows(&q->arg[0], call->frame);
    mat_t dw = mat_out(call, 0);
    if (rows > 0) {
        return multiply(call, attr_of(q)->transposed ? 0 : 1, dw.p, dw.rows,
                        rows);
    }
    if (!(call->accumulate & 1u)) {
        cudaMemset2DAsync(dw.p, (size_t)dw.ld * sizeof(float), 0,
                          (size_t)dw.cols * sizeof(float), (size_t)dw.rows,
                          stream_of(call));
    }
    return launched(call);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    const loong_karg_t *y = &query->arg[query->num_in];
    size_t kept = is_kept(query) ? sizeof(float) *
                                       (size_t)loong_karg_rows(y, NULL) *
                                       (size_t)loong_karg_cols(y, NULL)
                                 : 0;
    return LOONG_CUBLASLT_WORKSPACE + kept;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    bool third = is_dw(query) || query->num_in > 2; /* dw, a bias */
    uint32_t wide = third ? 1u << 2 : 0;
    if (query->arg[0].dtype != query->arg[1].dtype) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "operands are %s and %s, this kernel takes one type",
                 loong_dtype_name(query->arg[0].dtype),
                 loong_dtype_name(query->arg[1].dtype));
        return false;
    }
    if ((query->accumulate & 1u) && has_finish(query)) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "bias or activation of a product that is added");
        return false;
    }
    return cuda_support(query, wide, 0, reason);
}

CUDA_KERNEL_STATE(linear, support, workspace, prepare, destroy, run);
CUDA_KERNEL_STATE(linear_dw, support, workspace, prepare, destroy, run_dw);
