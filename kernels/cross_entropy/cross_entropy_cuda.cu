/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy and token_logprob: products by cuBLASLt, between them one
 * kernel that makes of a row of logits its value and its gradient; the formulas
 * stand in cross_entropy_ref.c. Rows come in chunks, so that not all logits
 * exist at once; a gradient in bf16 takes the place of its logits. Ranks that
 * share a vocabulary exchange what they know of the rows of a chunk first. */
#include "cross_entropy.h"
#include "cublaslt.h"
#include "softmax.cuh"

using namespace loong_cuda;

namespace {

/* Rows of a chunk, multiples of the first, so that no tile of a product is cut:
 * as many as have so many logits, but no fewer than LEAST, since w and dw are
 * read and written once a chunk. */
#ifdef CUDASIM
constexpr int64_t STEP = 4, LEAST = 8, MOST = 64, LOGITS = 1 << 15;
#else
constexpr int64_t STEP = 256, LEAST = 2048, MOST = 4096, LOGITS = 1 << 28;
#endif

/* Columns of logits that are products of their own: for a count of them that
 * does not fill 16 bytes cuBLASLt has kernels of a third of the rate, so that
 * what is over is the second piece. */
constexpr int PIECES = 2;

/* Of one pair of x and w; NULL: not wanted. Logits of the second are added. */
struct products_t {
    loong_cublaslt_t *logits[PIECES], *dx[PIECES], *dw[PIECES];
};

struct state_t {
    products_t pair[LOONG_HEAD_PAIRS];
    int64_t *counts; /* doubles of each rank's statistics */
};

const loong_cross_entropy_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return static_cast<const loong_cross_entropy_attr_t *>(q->attr);
}

int64_t ld_of(const loong_kernel_query_t *q)
{
    return loongi_round_up(loongi_cross_entropy_columns(q), 2 * PACK);
}

struct piece_t {
    int64_t first, columns; /* 0: there is none */
};

piece_t piece_of(const loong_kernel_query_t *q, int piece)
{
    int64_t columns = loongi_cross_entropy_columns(q);
    int64_t whole = columns / PACK * PACK;
    if (whole == 0 || q->arg[0].dtype != LOONG_BF16) {
        whole = columns;
    }
    return piece == 0 ? piece_t{0, whole} : piece_t{whole, columns - whole};
}

/* Rows of a chunk. Ranks that share a vocabulary cut alike, though they may
 * have different columns of it, and be on processors. */
int64_t chunk_of(const loong_kernel_query_t *q)
{
    int64_t rows = LOGITS / ld_of(q) / STEP * STEP;
    rows = LOONG_MAX(LOONG_MIN(rows, MOST), LEAST);
    rows = attr_of(q)->size > 1
               ? loongi_cross_entropy_chunk(q)
               : LOONG_MIN(rows, loong_karg_rows(&q->arg[0]));
    return LOONG_MAX(rows, 1);
}

struct chunk_t {
    const loong_kernel_call_t *call;
    const loong_head_roles_t *roles;
    const state_t *state;
    int64_t first, rows;
    float *logits;
    loong_softmax_stats_t *shared;
};

char *row_at(const chunk_t &c, int operand, int64_t row)
{
    const loong_karg_t *a = &c.call->query->arg[operand];
    return static_cast<char *>(c.call->ptr[operand]) +
           (size_t)(row * a->ld) * loong_dtype_size(a->dtype);
}

/* Of no product none. */
loong_status_t multiply(const loong_kernel_call_t *call, loong_cublaslt_t *made,
                        loong_cublaslt_operands_t o)
{
    o.workspace = call->workspace;
    o.stream = call->stream;
    o.bias = NULL;
    o.aux = NULL;
    return made == NULL ? LOONG_OK : loongi_cublaslt_run(call->ctx, made, &o);
}

loong_status_t make_logits(const chunk_t &c)
{
    const loong_kernel_query_t *q = c.call->query;
    for (int i = 0; i < c.roles->num_pairs * PIECES; i++) {
        const loong_head_pair_t &pair = c.roles->pair[i / PIECES];
        int64_t first = piece_of(q, i % PIECES).first;
        loong_cublaslt_operands_t o;
        o.a = row_at(c, pair.w, first);
        o.b = row_at(c, pair.x, c.first);
        o.c = c.logits + first;
        o.n = c.rows;
        o.k = loong_karg_cols(&q->arg[pair.x]);
        o.add = i >= PIECES;
        LOONG_TRY(multiply(
            c.call, c.state->pair[i / PIECES].logits[i % PIECES], o));
    }
    return LOONG_OK;
}

/* dw is added to. */
bool adds(const loong_kernel_call_t *call, const loong_head_pair_t &pair)
{
    return (call->accumulate >> (pair.dw - call->query->num_in) & 1u) != 0;
}

loong_status_t make_gradients(const chunk_t &c, const loong_head_pair_t &pair,
                              const products_t &made, int piece)
{
    const loong_kernel_query_t *q = c.call->query;
    piece_t p = piece_of(q, piece);
    loong_cublaslt_operands_t o;
    o.a = row_at(c, pair.w, p.first);
    o.b = reinterpret_cast<const char *>(c.logits) +
          (size_t)p.first * loong_dtype_size(q->arg[0].dtype);
    o.c = row_at(c, pair.dx, c.first);
    o.n = c.rows;
    o.k = p.columns;
    o.add = piece > 0;
    LOONG_TRY(multiply(c.call, made.dx[piece], o));
    o.a = row_at(c, pair.x, c.first);
    o.c = row_at(c, pair.dw, p.first);
    o.n = p.columns;
    o.k = c.rows;
    o.add = c.first > 0 || adds(c.call, pair);
    return multiply(c.call, made.dw[piece], o);
}

/* The ranks' statistics of a chunk, on the stream of the launch. */
loong_status_t exchange(const chunk_t &c, const softmax_t &a)
{
    const loong_kernel_call_t *call = c.call;
    LOONG_LAUNCH((stats_kernel), dim3((unsigned)c.rows), dim3(BLOCK), 0,
                 stream_of(call), a);
    LOONG_TRY(launched(call));
    LOONG_CHECK(call->ctx, call->group != NULL, LOONG_ERR_INTERNAL,
                "cross_entropy: no communicator of group %s",
                loong_group_name(a.attr.group));
    if (call->load) {
        return LOONG_OK;
    }
    loong_comm_t *comm = call->group[a.attr.group];
    for (int r = 0; r < a.attr.size; r++) {
        c.state->counts[r] =
            c.rows * (int64_t)(sizeof(*a.shared) / sizeof(double));
    }
    loong_comm_set_stream(comm, call->stream);
    return loong_comm_all_gather(comm, a.shared, c.state->counts, LOONG_F64,
                                 "cross entropy");
}

float *vector_of(const loong_kernel_call_t *call, int role)
{
    return role > 0 ? static_cast<float *>(call->ptr[role]) : NULL;
}

loong_status_t run_chunk(const chunk_t &c)
{
    const loong_kernel_call_t *call = c.call;
    const loong_kernel_query_t *q = call->query;
    softmax_t a;
    a.logits = c.logits;
    a.ld = ld_of(q);
    a.columns = loongi_cross_entropy_columns(q);
    a.first = c.first;
    a.end = c.first + c.rows;
    a.x = mat_arg(call, 0);
    a.weight = vector_of(call, c.roles->weight);
    a.value = vector_of(call, c.roles->value);
    a.lse = vector_of(call, c.roles->lse);
    a.sign = (float)c.roles->sign;
    a.known = c.roles->known;
    a.labels = static_cast<const int32_t *>(call->ptr[2]);
    a.attr = *attr_of(q);
    a.shared = a.attr.size > 1 && !a.known ? c.shared : NULL;
    a.rows = c.rows;
    a.gradient = 0;
    for (const products_t &made : c.state->pair) {
        a.gradient |= made.dx[0] != NULL || made.dw[0] != NULL;
    }
    a.half = q->arg[0].dtype == LOONG_BF16;
    a.error = call->error;
    LOONG_TRY(make_logits(c));
    if (a.shared != NULL) {
        LOONG_TRY(exchange(c, a));
    }
    LOONG_LAUNCH((softmax_kernel), dim3((unsigned)c.rows), dim3(BLOCK), 0,
                 stream_of(call), a, call->device_frame);
    LOONG_TRY(launched(call));
    for (int i = 0; i < c.roles->num_pairs * PIECES; i++) {
        LOONG_TRY(make_gradients(c, c.roles->pair[i / PIECES],
                                 c.state->pair[i / PIECES], i % PIECES));
    }
    return LOONG_OK;
}

/* Rows of dw without logits, or all of them when there is no token. */
void clear_rest(const loong_kernel_call_t *call, const loong_head_pair_t &pair,
                int64_t first)
{
    mat_t dw = pair.dw > 0 ? mat_arg(call, pair.dw) : mat_none();
    if (dw.p != NULL && !adds(call, pair) && first < dw.rows) {
        cudaMemset2DAsync(row_of<float>(dw, first),
                          (size_t)dw.ld * sizeof(float), 0,
                          (size_t)dw.cols * sizeof(float),
                          (size_t)(dw.rows - first), stream_of(call));
    }
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t chunk = chunk_of(q);
    const loong_head_roles_t *roles = loongi_cross_entropy_roles(q);
    for (int i = 0; i < roles->num_pairs; i++) {
        clear_rest(call, roles->pair[i],
                   rows > 0 ? loongi_cross_entropy_columns(q) : 0);
    }
    float *logits = reinterpret_cast<float *>(
        static_cast<char *>(call->workspace) + LOONG_CUBLASLT_WORKSPACE);
    for (int64_t first = 0; first < rows; first += chunk) {
        chunk_t c = {call,
                     roles,
                     static_cast<const state_t *>(call->state),
                     first,
                     LOONG_MIN(chunk, rows - first),
                     logits,
                     reinterpret_cast<loong_softmax_stats_t *>(
                         logits + chunk * ld_of(q))};
        LOONG_TRY(run_chunk(c));
    }
    return launched(call);
}

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = static_cast<state_t *>(state);
    for (int i = 0; s != NULL && i < LOONG_HEAD_PAIRS * PIECES; i++) {
        const products_t &made = s->pair[i / PIECES];
        loongi_cublaslt_destroy(ctx, made.logits[i % PIECES]);
        loongi_cublaslt_destroy(ctx, made.dx[i % PIECES]);
        loongi_cublaslt_destroy(ctx, made.dw[i % PIECES]);
    }
    loongi_free(ctx, s);
}

static loong_cublaslt_params_t product(const loong_kernel_query_t *q,
                                       int64_t m, int64_t n, int64_t k)
{
    loong_cublaslt_params_t p = loongi_cublaslt_begin(&q->policy);
    p.m = m;
    p.n = n;
    p.k = k;
    p.in = q->arg[0].dtype;
    return p;
}

/* By columns: logits' = w x', dx' = w' g', dw' = x' g. */
static loong_status_t make_products(loong_context_t *ctx,
                                    const loong_kernel_query_t *q,
                                    const loong_head_pair_t *pair,
                                    int piece, products_t *s)
{
    const loong_karg_t *arg = q->arg;
    int64_t columns = piece_of(q, piece).columns;
    if (columns == 0) {
        return LOONG_OK;
    }
    int64_t hidden = loong_karg_cols(&arg[pair->x]);
    int64_t rows = chunk_of(q);
    loong_cublaslt_params_t logits = product(q, columns, rows, hidden);
    loong_cublaslt_params_t dx = product(q, hidden, rows, columns);
    loong_cublaslt_params_t dw = product(q, hidden, columns, rows);
    logits.trans_a = dw.trans_b = true;
    logits.out = LOONG_F32;
    logits.lda = dx.lda = arg[pair->w].ld;
    logits.ldb = dw.lda = arg[pair->x].ld;
    logits.ldc = ld_of(q);
    dx.ldb = dw.ldb = ld_of(q) * (arg[0].dtype == LOONG_BF16 ? 2 : 1);
    dx.out = arg[pair->dx].dtype;
    dx.ldc = arg[pair->dx].ld;
    dw.out = arg[pair->dw].dtype;
    dw.ldc = arg[pair->dw].ld;
    LOONG_TRY(loongi_cublaslt_create(ctx, &logits, &s->logits[piece]));
    if (loongi_cross_entropy_makes(q, pair->dx)) {
        LOONG_TRY(loongi_cublaslt_create(ctx, &dx, &s->dx[piece]));
    }
    return loongi_cross_entropy_makes(q, pair->dw)
               ? loongi_cublaslt_create(ctx, &dw, &s->dw[piece])
               : LOONG_OK;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query,
                              void **state_p)
{
    state_t *s = NULL;
    size_t ranks = (size_t)LOONG_MAX(attr_of(query)->size, 1);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s) + ranks * sizeof(*s->counts),
                           "cross entropy", &s));
    s->counts = reinterpret_cast<int64_t *>(s + 1);
    const loong_head_roles_t *roles = loongi_cross_entropy_roles(query);
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < roles->num_pairs * PIECES && status == LOONG_OK; i++) {
        status = make_products(ctx, query, &roles->pair[i / PIECES], i % PIECES,
                               &s->pair[i / PIECES]);
    }
    if (status != LOONG_OK) {
        destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    size_t rows = (size_t)chunk_of(query);
    size_t ranks = attr_of(query)->size > 1 ? (size_t)attr_of(query)->size : 0;
    return LOONG_CUBLASLT_WORKSPACE +
           rows * (sizeof(float) * (size_t)ld_of(query) +
                   ranks * sizeof(loong_softmax_stats_t));
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    if (loongi_cross_entropy_columns(query) < 1) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "rank %d has no part of a vocabulary of %lld",
                 attr_of(query)->rank, (long long)attr_of(query)->vocab);
        return false;
    }
    if (query->arg[0].dtype != query->arg[1].dtype) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "x is %s and w is %s, this kernel takes one type",
                 loong_dtype_name(query->arg[0].dtype),
                 loong_dtype_name(query->arg[1].dtype));
        return false;
    }
    const loong_head_roles_t *r = loongi_cross_entropy_roles(query);
    uint32_t wide = 1u << r->weight | 1u << r->value | 1u << r->lse;
    for (int i = 0; i < r->num_pairs; i++) {
        wide |= 1u << r->pair[i].dw;
    }
    wide &= ~1u; /* 0: no operand */
    return cuda_support(query, wide, 1u << 2, reason);
}

/* Logits are written in fp32, read for the loss and again for their gradient,
 * which is written and read by two products; and what the sums of a chunk are
 * added to is read and written again. */
static double more_bytes(const loong_kernel_query_t *query)
{
    const loong_karg_t *arg = query->arg;
    const loong_head_roles_t *r = loongi_cross_entropy_roles(query);
    const loong_head_pair_t &pair = r->pair[0]; /* the second is small */
    bool has_dw = loongi_cross_entropy_makes(query, pair.dw);
    bool gradient = has_dw || loongi_cross_entropy_makes(query, pair.dx);
    double tokens = (double)loong_karg_rows(&arg[0]);
    double columns = (double)loongi_cross_entropy_columns(query);
    double size = (double)loong_dtype_size(arg[0].dtype);
    double chunks = ceil(tokens / (double)chunk_of(query));
    double dw = has_dw ? columns * (double)loong_karg_cols(&arg[pair.dw]) *
                             (double)sizeof(float)
                       : 0.0;
    double measured = gradient && !r->known ? 12.0 : 8.0;
    return tokens * columns * (measured + (gradient ? 3.0 * size : 0.0)) +
           2.0 * dw * (chunks - 1.0);
}

/* What joins computes, and needs the other ranks in between. */
#define HEAD_CUDA(op_, joins_)                                   \
    extern "C" const loong_kernel_t loongi_##op_##_cuda = {      \
        #op_ "_cuda", #op_, "cuda", support, workspace, prepare, \
        destroy,      run,  false,  joins_,  false,     more_bytes}

HEAD_CUDA(cross_entropy, true);
HEAD_CUDA(token_logprob, true);
HEAD_CUDA(token_logprob_grad, false);
