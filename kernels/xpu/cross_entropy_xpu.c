/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy, token_logprob and its gradient: products by libxpu_blas
 * (products_xpu.c), between them the shim's softmax_turn, which makes of a row
 * of logits its value and its gradient; the formulas stand in
 * cross_entropy_ref.c. Rows come in chunks, so that not all logits exist at
 * once; a gradient in bf16 takes the place of its logits. Ranks that share a
 * vocabulary exchange what they know of the rows of a chunk first. Entered by
 * launch_xpu.c. */
#include "cross_entropy/cross_entropy.h"

#include <stdio.h>
#include <string.h>

#include "loong/comm.h"
#include "loong/device.h"
#include "loong/loss_ops.h"
#include "parts_xpu.h"
#include "raw_xpu.h"
#include "xpu_kernels.h"

/* Rows of a chunk, which are as many as have the logits of a part, but no fewer
 * than the last, since w and dw are read and written once a chunk. */
enum { STEP = 256, LEAST = 2048 };

typedef struct state {
    const loong_kernel_t *linear, *linear_dw;
    void *products; /* of both */
    const loong_kernel_t *raw;
    void *stats, *turn; /* the shim's */
    int64_t counts[];   /* doubles of each rank's statistics */
} state_t;

/* The rows of a chunk. */
typedef struct chunk {
    const loong_kernel_call_t *call;
    const loong_head_roles_t *roles;
    const state_t *state;
    int64_t first, rows;
    float *logits;
    loong_softmax_stats_t *shared;
} chunk_t;

static const loong_cross_entropy_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return q->attr;
}

static int64_t ld_of(const loong_kernel_query_t *q)
{
    return loongi_round_up(loongi_cross_entropy_columns(q), 64);
}

/* Ranks that share a vocabulary cut alike, whatever devices they have. */
static int64_t chunk_of(const loong_kernel_query_t *q)
{
    int64_t part = loongi_xpu_part_elements() / ld_of(q);
    int64_t most = part < STEP ? part : LOONG_MAX(part / STEP * STEP, LEAST);
    int64_t rows = attr_of(q)->size > 1
                       ? loongi_cross_entropy_chunk(q)
                       : LOONG_MIN(most, loong_karg_rows(&q->arg[0]));
    return LOONG_MAX(rows, 1);
}

static size_t workspace(const loong_kernel_query_t *q)
{
    int64_t ranks = attr_of(q)->size > 1 ? attr_of(q)->size : 0;
    return (size_t)chunk_of(q) *
           (sizeof(float) * (size_t)ld_of(q) +
            sizeof(loong_softmax_stats_t) * (size_t)ranks);
}

/* ---- parts of a launch --------------------------------------------------- */

static loong_xpu_mat_t chunk_rows(const chunk_t *c, int role)
{
    return role > 0 && c->call->ptr[role] != NULL
               ? loongi_xpu_rows(c->call, role, c->first, c->rows)
               : loongi_xpu_mat_none();
}

static loong_status_t multiply(const chunk_t *c, const loong_kernel_t *kernel,
                               bool transposed,
                               const loong_xpu_mat_t operands[3], bool add)
{
    loong_linear_attr_t attr = {.transposed = transposed};
    loong_xpu_part_t part = {kernel, c->state->products, NULL, &attr, 2, 1};
    return loongi_xpu_launch(c->call, &part, operands, add);
}

/* ---- one chunk ----------------------------------------------------------- */

static loong_xpu_mat_t logits_of(const chunk_t *c)
{
    const loong_kernel_query_t *q = c->call->query;
    return loongi_xpu_mat(LOONG_F32, c->rows, loongi_cross_entropy_columns(q),
                          ld_of(q), c->logits);
}

/* In their place, as wide as x. */
static loong_xpu_mat_t gradient_of(const chunk_t *c)
{
    const loong_kernel_query_t *q = c->call->query;
    loong_dtype_t dtype = q->arg[0].dtype;
    return loongi_xpu_mat(dtype, c->rows, loongi_cross_entropy_columns(q),
                          ld_of(q) * (dtype == LOONG_BF16 ? 2 : 1), c->logits);
}

/* The rows of w or dw that have logits. */
static loong_xpu_mat_t columns_of(const chunk_t *c, int operand)
{
    return loongi_xpu_rows(c->call, operand, 0,
                           loongi_cross_entropy_columns(c->call->query));
}

static loong_status_t make_logits(const chunk_t *c)
{
    for (int i = 0; i < c->roles->num_pairs; i++) {
        const loong_head_pair_t *pair = &c->roles->pair[i];
        const loong_xpu_mat_t operands[3] = {
            loongi_xpu_rows(c->call, pair->x, c->first, c->rows),
            columns_of(c, pair->w), logits_of(c)};
        LOONG_TRY(multiply(c, c->state->linear, false, operands, i > 0));
    }
    return LOONG_OK;
}

static bool adds(const loong_kernel_call_t *call, const loong_head_pair_t *pair)
{
    return (call->accumulate >> (pair->dw - call->query->num_in) & 1u) != 0;
}

static loong_status_t make_gradients(const chunk_t *c,
                                     const loong_head_pair_t *pair)
{
    const loong_kernel_call_t *call = c->call;
    if (loongi_cross_entropy_makes(call->query, pair->dx)) {
        const loong_xpu_mat_t operands[3] = {
            gradient_of(c), columns_of(c, pair->w), chunk_rows(c, pair->dx)};
        LOONG_TRY(multiply(c, c->state->linear, true, operands, false));
    }
    if (loongi_cross_entropy_makes(call->query, pair->dw)) {
        const loong_xpu_mat_t operands[3] = {
            gradient_of(c),
            loongi_xpu_rows(c->call, pair->x, c->first, c->rows),
            columns_of(c, pair->dw)};
        LOONG_TRY(multiply(c, c->state->linear_dw, false, operands,
                           c->first > 0 || adds(call, pair)));
    }
    return LOONG_OK;
}

static loong_raw_turn_t turn_attr(const chunk_t *c)
{
    const loong_cross_entropy_attr_t *attr = attr_of(c->call->query);
    loong_raw_turn_t turn = {*attr, c->roles->sign, c->roles->known};
    return turn;
}

static loong_xpu_mat_t stats_of(const chunk_t *c)
{
    int64_t ranks = attr_of(c->call->query)->size;
    return ranks > 1 && !c->roles->known
               ? loongi_xpu_mat(LOONG_F64, ranks * c->rows, 3, 3, c->shared)
               : loongi_xpu_mat_none();
}

/* The ranks' statistics of a chunk, on the stream of the launch. */
static loong_status_t exchange(const chunk_t *c)
{
    const loong_kernel_call_t *call = c->call;
    const loong_cross_entropy_attr_t *attr = attr_of(call->query);
    loong_raw_turn_t turn = turn_attr(c);
    loong_xpu_part_t part = {
        c->state->raw, c->state->stats, "softmax_stats", &turn, 2, 1};
    const loong_xpu_mat_t operands[3] = {logits_of(c), chunk_rows(c, 2),
                                         stats_of(c)};
    LOONG_TRY(loongi_xpu_launch(call, &part, operands, false));
    LOONG_CHECK(call->ctx, call->group != NULL, LOONG_ERR_INTERNAL,
                "%s: no communicator of group %s", call->query->op,
                loong_group_name(attr->group));
    if (call->load) {
        return LOONG_OK;
    }
    loong_comm_t *comm = call->group[attr->group];
    int64_t *counts = (int64_t *)c->state->counts;
    for (int r = 0; r < attr->size; r++) {
        counts[r] = 3 * c->rows;
    }
    loong_comm_set_stream(comm, call->stream);
    return loong_comm_all_gather(comm, c->shared, counts, LOONG_F64,
                                 "cross entropy");
}

static loong_status_t run_chunk(const chunk_t *c)
{
    const loong_kernel_query_t *query = c->call->query;
    loong_raw_turn_t turn = turn_attr(c);
    bool gradient = false;
    for (int i = 0; i < c->roles->num_pairs; i++) {
        const loong_head_pair_t *pair = &c->roles->pair[i];
        gradient = gradient || loongi_cross_entropy_makes(query, pair->dx) ||
                   loongi_cross_entropy_makes(query, pair->dw);
    }
    LOONG_TRY(make_logits(c));
    if (stats_of(c).ptr != NULL) {
        LOONG_TRY(exchange(c));
    }
    loong_xpu_part_t part = {
        c->state->raw, c->state->turn, "softmax_turn", &turn, 4, 3};
    const loong_xpu_mat_t operands[7] = {logits_of(c),
                                         chunk_rows(c, 2),
                                         chunk_rows(c, c->roles->weight),
                                         stats_of(c),
                                         chunk_rows(c, c->roles->value),
                                         chunk_rows(c, c->roles->lse),
                                         gradient ? gradient_of(c)
                                                  : loongi_xpu_mat_none()};
    LOONG_TRY(loongi_xpu_launch(c->call, &part, operands, false));
    for (int i = 0; i < c->roles->num_pairs; i++) {
        LOONG_TRY(make_gradients(c, &c->roles->pair[i]));
    }
    return LOONG_OK;
}

/* Rows of dw without logits, or all of them when there is no token. */
static loong_status_t clear_rest(const loong_kernel_call_t *call,
                                 const loong_head_pair_t *pair, int64_t first)
{
    if (!loongi_cross_entropy_makes(call->query, pair->dw) ||
        adds(call, pair) || call->load) {
        return LOONG_OK;
    }
    int64_t rows = loong_karg_rows(&call->query->arg[pair->dw]) - first;
    loong_xpu_mat_t rest = loongi_xpu_rows(call, pair->dw, first, rows);
    return loongi_xpu_clear(call, &rest);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_head_roles_t *roles = loongi_cross_entropy_roles(q);
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t chunk = chunk_of(q);
    float *logits = call->workspace;
    for (int i = 0; i < roles->num_pairs; i++) {
        LOONG_TRY(clear_rest(call, &roles->pair[i],
                             rows > 0 ? loongi_cross_entropy_columns(q) : 0));
    }
    for (int64_t first = 0; first < rows; first += chunk) {
        chunk_t c = {
            call,
            roles,
            call->state,
            first,
            LOONG_MIN(chunk, rows - first),
            logits,
            (loong_softmax_stats_t *)(void *)(logits + chunk * ld_of(q))};
        LOONG_TRY(run_chunk(&c));
    }
    return LOONG_OK;
}

/* ---- what is taken ------------------------------------------------------- */

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    loong_dtype_t dtype = q->arg[0].dtype;
    const loong_head_roles_t *r = loongi_cross_entropy_roles(q);
    bool one = dtype == LOONG_F32 || dtype == LOONG_BF16;
    for (int i = 0; i < r->num_pairs; i++) {
        const loong_head_pair_t *pair = &r->pair[i];
        one = one && q->arg[pair->x].dtype == dtype &&
              q->arg[pair->w].dtype == dtype &&
              (!loongi_cross_entropy_makes(q, pair->dw) ||
               q->arg[pair->dw].dtype == LOONG_F32);
    }
    one = one && q->arg[r->value].dtype == LOONG_F32;
    if (!one) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "operands are not of one type, fp32 or bf16, with losses and "
                 "gradients of weights in fp32");
    } else if (loongi_cross_entropy_columns(q) < 1) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "rank %d has no part of a vocabulary of %lld",
                 attr_of(q)->rank, (long long)attr_of(q)->vocab);
    } else {
        return loongi_xpu_has_blas(reason);
    }
    return false;
}

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s != NULL) {
        s->linear->destroy(ctx, s->products);
        s->raw->destroy(ctx, s->stats);
        s->raw->destroy(ctx, s->turn);
    }
    loongi_free(ctx, s);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    state_t *s = NULL;
    size_t ranks = (size_t)LOONG_MAX(attr_of(query)->size, 1);
    LOONG_TRY(loongi_calloc(ctx, 1, sizeof(*s) + ranks * sizeof(s->counts[0]),
                            "cross entropy", &s));
    s->raw = &loongi_xpu_raw;
    s->linear = loongi_xpu_product("linear");
    s->linear_dw = loongi_xpu_product("linear_dw");
    loong_status_t status = s->linear->prepare(ctx, query, &s->products);
    if (status == LOONG_OK) {
        status = loongi_xpu_prepare_raw(ctx, "softmax_stats", &s->stats);
    }
    if (status == LOONG_OK) {
        status = loongi_xpu_prepare_raw(ctx, "softmax_turn", &s->turn);
    }
    if (status != LOONG_OK) {
        destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

#define LOONG_XPU_HEAD(op_, joins_)                                    \
    static const loong_kernel_t op_##_xblas = {.name = #op_ "_xblas",  \
                                               .op = #op_,             \
                                               .device = "xpu",        \
                                               .support = support,     \
                                               .workspace = workspace, \
                                               .prepare = prepare,     \
                                               .destroy = destroy,     \
                                               .run = run,             \
                                               .joins = joins_};
LOONG_XPU_HEAD(cross_entropy, true)
LOONG_XPU_HEAD(token_logprob, true)
LOONG_XPU_HEAD(token_logprob_grad, false)

const loong_kernel_t *const loongi_xpu_heads[] = {
    &cross_entropy_xblas, &token_logprob_xblas, &token_logprob_grad_xblas,
    NULL};
