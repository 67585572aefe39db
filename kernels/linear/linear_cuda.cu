/* SPDX-License-Identifier: Apache-2.0
 *
 * linear, linear_gelu_grad, linear_dw and linear_dw_db by cuBLASLt. It adds the
 * bias, rounded to the type of the output, applies GELU's tanh form or
 * multiplies with its slope, sums the gradient of the bias where it can; what
 * it cannot do comes in one more pass.
 *
 * An fp32 operand beside one of bf16 (a router's weight, the gradient of its
 * logits) is multiplied as the sum of two bf16 matrices, high + low, one
 * product behind the other. They keep 16 of its 24 bits: each element is wrong
 * by at most 2^-17 of itself. */
#include "cublaslt.h"
#include "copy.cuh"
#include "fold.cuh"
#include "gelu.cuh"

using namespace loong_cuda;

namespace {

/* before = y + bias; y = f(before). The bias is fp32. */
struct finish_t {
    mat_t y, bias, before;
    loong_activation_t activation;
    bool packed; /* all of them */
};

/* y and before have type T; what a thread reads it reads before it uses any. */
template <class T>
__global__ void __launch_bounds__(BLOCK)
    finish_kernel(finish_t a)
{
    int64_t packs = (a.y.cols + PACK - 1) / PACK;
    walk_t w = walk_of((int64_t)blockIdx.x * BLOCK + threadIdx.x,
                       (int64_t)gridDim.x * BLOCK, packs);
    const float *bias = row_of<float>(a.bias, 0);
    for (; w.at < a.y.rows * packs; advance(&w)) {
        int64_t col = w.col * PACK;
        int n = least(PACK, a.y.cols - col);
        bool whole = a.packed && n == PACK;
        T *at = row_of<T>(a.y, w.row) + col;
        raw_t<float> added = {{0}};
        if (bias != NULL) {
            added = whole ? fetch(bias + col) : gather(bias + col, n);
        }
        pack_t y = unpack(whole ? fetch(at) : gather(at, n));
        pack_t b = unpack(added);
        for (int i = 0; i < PACK; i++) {
            y.v[i] += b.v[i];
        }
        if (a.before.p != NULL) {
            store(row_of<T>(a.before, w.row) + col, y, n, whole);
        }
        for (int i = 0; i < PACK && a.activation != LOONG_ACT_NONE; i++) {
            y.v[i] = gelu_of(y.v[i], a.activation);
        }
        store(at, y, n, whole);
    }
}

/* y times the slope of GELU. */
struct slope_fn {
    loong_activation_t form;
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out->v[i] = in[0].v[i] * gelu_slope(in[1].v[i], form);
        }
    }
};

const loong_linear_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return static_cast<const loong_linear_attr_t *>(q->attr);
}

bool is_dw(const loong_kernel_query_t *q)
{
    return strncmp(q->op, "linear_dw", strlen("linear_dw")) == 0;
}

/* The gradient of the bias is output 1. */
bool has_sums(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "linear_dw_db") == 0;
}

/* Operand 2 is what GELU was applied to, not a bias. */
bool is_slope(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "linear_gelu_grad") == 0;
}

bool has_bias(const loong_kernel_query_t *q)
{
    return !is_dw(q) && !is_slope(q) && q->num_in > 2 && q->arg[2].rank > 0;
}

/* The value before the activation is an output as well. */
bool has_before(const loong_kernel_query_t *q)
{
    return !is_dw(q) && q->num_out > 1 && q->arg[q->num_in + 1].rank > 0;
}

/* What the product could do of it. The library's GELU is an approximation,
 * wrong by 2e-5 of itself: enough for an output of 16 bits alone. */
loong_epilogue_t epilogue_of(const loong_kernel_query_t *q)
{
    bool bias = has_bias(q);
    if (has_sums(q)) { /* of dy, which is b but where all is transposed */
        return attr_of(q)->transposed ? LOONG_EPILOGUE_SUM_A
                                      : LOONG_EPILOGUE_SUM_B;
    }
    if (is_dw(q) || attr_of(q)->activation != LOONG_ACT_GELU_TANH ||
        q->arg[q->num_in].dtype == LOONG_F32) {
        return bias ? LOONG_EPILOGUE_BIAS : LOONG_EPILOGUE_NONE;
    }
    if (is_slope(q)) {
        return LOONG_EPILOGUE_DGELU;
    }
    if (has_before(q)) {
        return bias ? LOONG_EPILOGUE_GELU_AUX_BIAS : LOONG_EPILOGUE_GELU_AUX;
    }
    return bias ? LOONG_EPILOGUE_GELU_BIAS : LOONG_EPILOGUE_GELU;
}

/* The fp32 operand beside one of bf16; -1: both have one type. */
int split_operand(const loong_kernel_query_t *q)
{
    return q->arg[0].dtype == q->arg[1].dtype ? -1
           : q->arg[0].dtype == LOONG_F32     ? 0
                                              : 1;
}

/* Which operand is a of the product; the other one is b. */
int a_of(const loong_kernel_query_t *q)
{
    return is_dw(q) && attr_of(q)->transposed ? 0 : 1;
}

/* Elements from row to row of operand i as it is multiplied: of a half of the
 * one that is split rows begin at multiples of 16 bytes. */
int64_t ld_of(const loong_kernel_query_t *q, int i)
{
    return i == split_operand(q)
               ? loongi_round_up(loong_karg_cols(&q->arg[i]), PACK)
               : q->arg[i].ld;
}

size_t half_bytes(const loong_kernel_query_t *q, int i)
{
    return (size_t)(loong_karg_rows(&q->arg[i]) * ld_of(q, i)) *
           sizeof(half_t);
}

/* A row-major matrix is its transposed by columns: y' = w x' and dw' = x' dy,
 * and dw = dy' x where the table lies the other way. */
loong_cublaslt_params_t product_of(const loong_kernel_query_t *q)
{
    const loong_karg_t *c = &q->arg[q->num_in];
    int64_t rows = loong_karg_rows(&q->arg[0]);
    loong_cublaslt_params_t p = loongi_cublaslt_begin(&q->policy);
    p.in = split_operand(q) >= 0 ? LOONG_BF16 : q->arg[0].dtype;
    p.out = c->dtype;
    p.m = loong_karg_cols(c);
    p.lda = ld_of(q, a_of(q));
    p.ldb = ld_of(q, 1 - a_of(q));
    p.ldc = c->ld;
    if (is_dw(q)) {
        p.n = loong_karg_rows(c);
        p.k = rows;
        p.trans_b = true;
    } else {
        p.n = rows;
        p.k = loong_karg_cols(&q->arg[0]);
        p.trans_a = !attr_of(q)->transposed;
    }
    return p;
}

/* With its epilogue, and without where that has no algorithm. */
struct state_t {
    loong_cublaslt_t *whole, *plain;
};

/* x = high + low */
struct split_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out[0].v[i] = stored<half_t>(in[0].v[i]);
            out[1].v[i] = in[0].v[i] - out[0].v[i];
        }
    }
};

/* Bytes behind the workspace of a product: for the halves of an operand, or for
 * a bias of the output's type. */
size_t more_bytes(const loong_kernel_query_t *q)
{
    const loong_karg_t *y = &q->arg[q->num_in];
    if (split_operand(q) >= 0) {
        return 2 * half_bytes(q, split_operand(q));
    }
    if (has_sums(q)) { /* those of this launch, or parts of them */
        return fold_bytes(loong_karg_cols(&q->arg[0]));
    }
    return has_bias(q) && y->dtype != LOONG_F32
               ? (size_t)loong_karg_cols(y) * loong_dtype_size(y->dtype)
               : 0;
}

} // namespace

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = static_cast<state_t *>(state);
    if (s != NULL) {
        loongi_cublaslt_destroy(ctx, s->whole);
        loongi_cublaslt_destroy(ctx, s->plain);
        loongi_free(ctx, s);
    }
}

static loong_status_t make_products(loong_context_t *ctx,
                                    const loong_kernel_query_t *q, state_t *s)
{
    loong_cublaslt_params_t p = product_of(q);
    bool can = false;
    p.epilogue = epilogue_of(q);
    p.ld_aux = is_slope(q)     ? q->arg[2].ld
               : has_before(q) ? q->arg[q->num_in + 1].ld
                               : 0;
    LOONG_TRY(loongi_cublaslt_create(ctx, &p, &s->whole));
    LOONG_TRY(loongi_cublaslt_can(ctx, s->whole, NULL, &can));
    if (p.epilogue == LOONG_EPILOGUE_NONE || can) {
        return LOONG_OK;
    }
    loongi_log(ctx, LOONG_LOG_DEBUG,
               "%s: cuBLASLt has not all products of %s with bias %d and "
               "activation %d, m %lld, n %lld, k %lld: a pass over the result "
               "does it", q->op, loong_dtype_name(p.in), (int)has_bias(q),
               (int)attr_of(q)->activation, (long long)p.m, (long long)p.n,
               (long long)p.k);
    p.epilogue = LOONG_EPILOGUE_NONE;
    p.ld_aux = 0;
    return loongi_cublaslt_create(ctx, &p, &s->plain);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query,
                              void **state_p)
{
    state_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "linear kernel", &s));
    loong_status_t status = make_products(ctx, query, s);
    if (status != LOONG_OK) {
        destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

/* One product, or two where an operand is split. */
static loong_status_t multiply(const loong_kernel_call_t *call,
                               loong_cublaslt_t *product,
                               loong_cublaslt_operands_t o)
{
    const loong_kernel_query_t *q = call->query;
    int split = split_operand(q);
    if (split < 0) {
        return loongi_cublaslt_run(call->ctx, product, &o);
    }
    mat_t x = mat_arg(call, split);
    mat_t high = x;
    high.p = static_cast<char *>(call->workspace) + LOONG_CUBLASLT_WORKSPACE;
    high.ld = ld_of(q, split);
    high.half = high.packed = 1;
    mat_t low = high;
    low.p = static_cast<char *>(high.p) + half_bytes(q, split);
    const mat_t arg[3] = {x, high, low};
    LOONG_TRY((map_as<float, half_t, false, 1, 2>(call, split_fn(), arg)));
    const void **side = split == a_of(q) ? &o.a : &o.b;
    *side = high.p;
    LOONG_TRY(loongi_cublaslt_run(call->ctx, product, &o));
    *side = low.p;
    o.add = true;
    return loongi_cublaslt_run(call->ctx, product, &o);
}

static loong_cublaslt_operands_t operands_of(const loong_kernel_call_t *call,
                                             int64_t n, int64_t k)
{
    int a = a_of(call->query);
    loong_cublaslt_operands_t o = {call->ptr[a],
                                   call->ptr[1 - a],
                                   mat_out(call, 0).p,
                                   n,
                                   k,
                                   (call->accumulate & 1u) != 0,
                                   call->workspace,
                                   call->stream,
                                   NULL,
                                   NULL};
    return o;
}

/* The bias in the type of the output. */
static loong_status_t round_bias(const loong_kernel_call_t *call,
                                 const void **bias_p)
{
    mat_t bias = mat_arg(call, 2);
    *bias_p = bias.p;
    if (more_bytes(call->query) == 0) {
        return LOONG_OK;
    }
    mat_t narrow = bias;
    narrow.p = static_cast<char *>(call->workspace) + LOONG_CUBLASLT_WORKSPACE;
    narrow.half = narrow.packed = 1;
    *bias_p = narrow.p;
    return copy(call, bias, narrow, false);
}

/* What the product did not do. */
static loong_status_t finish(const loong_kernel_call_t *call,
                             loong_epilogue_t done)
{
    const loong_kernel_query_t *q = call->query;
    bool bias = has_bias(q) && done == LOONG_EPILOGUE_NONE;
    finish_t f = {mat_out(call, 0), bias ? mat_arg(call, 2) : mat_none(),
                  has_before(q) ? mat_out(call, 1) : mat_none(),
                  attr_of(q)->activation, true};
    if (is_slope(q) && done == LOONG_EPILOGUE_NONE) {
        const mat_t arg[3] = {f.y, mat_arg(call, 2), f.y};
        slope_fn fn = {f.activation};
        return map<2, 1>(call, fn, arg);
    }
    if (done >= LOONG_EPILOGUE_GELU ||
        (!bias && f.before.p == NULL && f.activation == LOONG_ACT_NONE)) {
        return LOONG_OK;
    }
    f.packed = f.y.packed && f.bias.packed && f.before.packed;
    if (f.y.half) {
        LOONG_LAUNCH((finish_kernel<half_t>), grid_for(call, f.y), dim3(BLOCK),
                     0, stream_of(call), f);
    } else {
        LOONG_LAUNCH((finish_kernel<float>), grid_for(call, f.y), dim3(BLOCK),
                     0, stream_of(call), f);
    }
    return launched(call);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const state_t *s = static_cast<const state_t *>(call->state);
    int64_t rows = loong_karg_rows(&q->arg[0]);
    loong_cublaslt_operands_t o =
        operands_of(call, rows, loong_karg_cols(&q->arg[0]));
    bool whole = true;
    if (rows == 0) {
        return LOONG_OK;
    }
    o.aux = is_slope(q) ? call->ptr[2] : mat_out(call, 1).p;
    if (has_bias(q)) {
        LOONG_TRY(round_bias(call, &o.bias));
    }
    if (s->plain != NULL) {
        LOONG_TRY(loongi_cublaslt_can(call->ctx, s->whole, &o, &whole));
    }
    if (!whole) {
        LOONG_TRY(loongi_cublaslt_run(call->ctx, s->plain, &o));
        return finish(call, LOONG_EPILOGUE_NONE);
    }
    LOONG_TRY(multiply(call, s->whole, o));
    return finish(call, epilogue_of(q));
}

/* dw, and db where it is wanted: the library writes its sums, and so beside
 * those that they are added to. */
static loong_status_t multiply_dw(const loong_kernel_call_t *call,
                                  loong_cublaslt_operands_t &o)
{
    const loong_kernel_query_t *q = call->query;
    const state_t *s = static_cast<const state_t *>(call->state);
    mat_t db = has_sums(q) ? mat_out(call, 1) : mat_none();
    mat_t sums = db;
    bool add = (call->accumulate >> 1 & 1u) != 0;
    bool whole = true;
    float *room = reinterpret_cast<float *>(
        static_cast<char *>(call->workspace) + LOONG_CUBLASLT_WORKSPACE);
    if (add) {
        sums.p = room;
        sums.packed = 1;
    }
    o.bias = sums.p;
    if (s->plain != NULL) {
        LOONG_TRY(loongi_cublaslt_can(call->ctx, s->whole, &o, &whole));
    }
    if (!whole) {
        loong_cublaslt_operands_t plain = o;
        plain.bias = NULL;
        LOONG_TRY(loongi_cublaslt_run(call->ctx, s->plain, &plain));
        return sum_rows(call, 0, 1, room);
    }
    LOONG_TRY(multiply(call, s->whole, o));
    return has_sums(q) && add ? copy(call, sums, db, true) : LOONG_OK;
}

static loong_status_t run_dw(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int64_t rows = loong_karg_rows(&q->arg[0]);
    mat_t dw = mat_out(call, 0);
    mat_t db = has_sums(q) ? mat_out(call, 1) : mat_none();
    if (rows > 0) {
        loong_cublaslt_operands_t o = operands_of(call, dw.rows, rows);
        return multiply_dw(call, o);
    }
    if (!(call->accumulate & 1u)) {
        cudaMemset2DAsync(dw.p, (size_t)dw.ld * sizeof(float), 0,
                          (size_t)dw.cols * sizeof(float), (size_t)dw.rows,
                          stream_of(call));
    }
    if (db.p != NULL && !(call->accumulate & 2u)) {
        cudaMemsetAsync(db.p, 0, (size_t)db.cols * sizeof(float),
                        stream_of(call));
    }
    return launched(call);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return LOONG_CUBLASLT_WORKSPACE + more_bytes(query);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    bool third = is_dw(query) || has_bias(query); /* which is wide */
    bool more = has_bias(query) || has_before(query) ||
                attr_of(query)->activation != LOONG_ACT_NONE;
    if (split_operand(query) >= 0 &&
        (has_sums(query) || more ||
         query->arg[query->num_in].dtype != LOONG_F32)) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "operands are %s and %s, this kernel takes one type",
                 loong_dtype_name(query->arg[0].dtype),
                 loong_dtype_name(query->arg[1].dtype));
        return false;
    }
    if ((query->accumulate & 1u) && !is_dw(query) && more) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "bias or activation of a product that is added");
        return false;
    }
    if (is_slope(query) && !cuda_support_same(query, 3, reason)) {
        return false;
    }
    uint32_t wide = has_sums(query) ? 3u << 2 : third ? 1u << 2 : 0;
    return cuda_support(query, wide, 0, reason);
}

CUDA_KERNEL_STATE(linear, support, workspace, prepare, destroy, run);
CUDA_KERNEL_STATE(linear_gelu_grad, support, workspace, prepare, destroy, run);
CUDA_KERNEL_STATE(linear_dw, support, workspace, prepare, destroy, run_dw);
CUDA_KERNEL_STATE(linear_dw_db, support, workspace, prepare, destroy, run_dw);
