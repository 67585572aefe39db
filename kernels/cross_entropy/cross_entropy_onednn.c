/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy and token_logprob by oneDNN products, over chunks of tokens
 * (formulas: cross_entropy_ref.c). Per chunk: logits in fp32 -> loss, gradient
 * in their place (bf16 for bf16 operands) -> rows of dx, and dw added up over
 * chunks.
 *
 * "widened" is for processors without bf16 products: w, and x chunk by chunk,
 * are copied to fp32 first. Listed in kernels/list.h; read cross_entropy.h and
 * onednn.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cross_entropy.h"
#include "isa.h"
#include "onednn/onednn.h"
#include "softmax.h"
#include "widen.h"

/* The products of a chunk of `rows` tokens; NULL where not wanted. */
typedef struct chunk_products {
    int64_t rows;
    loong_product_t *logits[LOONG_HEAD_PAIRS]; /* the second adds */
    loong_product_t *dx[LOONG_HEAD_PAIRS];
    loong_product_pair_t dw[LOONG_HEAD_PAIRS];
} chunk_products_t;

typedef struct state {
    chunk_products_t whole;
    chunk_products_t tail; /* rows 0: there is none */
} state_t;

/* The operands of one of the products that logits are the sum of. */
typedef struct pair {
    const loong_head_pair_t *roles;
    int64_t hidden;
    bool has_dx, has_dw;
    bool add; /* to the logits of those before */
} pair_t;

/* The sizes of a query. */
typedef struct plan {
    const loong_kernel_query_t *q;
    const loong_head_roles_t *roles;
    bool widened;
    int64_t tokens, vocab;
    int num_pairs;
    pair_t pair[LOONG_HEAD_PAIRS];
    int64_t rows;          /* of a chunk */
    int64_t tail;          /* of the last one, 0: as the others */
    bool gradient;         /* some is wanted */
    loong_dtype_t operand; /* type of the products' operands */
} plan_t;

static plan_t plan_of(const loong_kernel_query_t *q, bool widened)
{
    plan_t p = {.q = q, .widened = widened};
    p.roles = loongi_cross_entropy_roles(q);
    p.tokens = loong_karg_rows(&q->arg[0]);
    p.vocab = loongi_cross_entropy_columns(q);
    p.num_pairs = p.roles->num_pairs;
    for (int i = 0; i < p.num_pairs; i++) {
        const loong_head_pair_t *own = &p.roles->pair[i];
        p.pair[i] = (pair_t){own, loong_karg_cols(&q->arg[own->x]),
                             loongi_cross_entropy_makes(q, own->dx),
                             loongi_cross_entropy_makes(q, own->dw), i > 0};
        p.gradient = p.gradient || p.pair[i].has_dx || p.pair[i].has_dw;
    }
    p.operand = widened ? LOONG_F32 : q->arg[0].dtype;
    p.rows = loongi_cross_entropy_chunk(q);
    p.tail = p.rows > 0 ? p.tokens % p.rows : 0;
    return p;
}

static loong_product_matrix_t matrix(loong_dtype_t dtype, int64_t ld,
                                     bool transposed)
{
    loong_product_matrix_t m = {dtype, ld, transposed};
    return m;
}

/* Elements between rows of the gradient, which stand where the logits did. */
static int64_t gradient_ld(const plan_t *p)
{
    return p->operand == LOONG_BF16 ? 2 * p->vocab : p->vocab;
}

/* Of an operand of a pair; copies have no gaps. */
static int64_t ld_of(const plan_t *p, const pair_t *pair, int role)
{
    return p->widened ? pair->hidden : p->q->arg[role].ld;
}

static loong_product_params_t logits_params(const plan_t *p, const pair_t *pair,
                                            int64_t rows)
{
    return (loong_product_params_t){
        .m = rows,
        .n = p->vocab,
        .k = pair->hidden,
        .a = matrix(p->operand, ld_of(p, pair, pair->roles->x), false),
        .b = matrix(p->operand, ld_of(p, pair, pair->roles->w), true),
        .c = matrix(LOONG_F32, p->vocab, false),
        .add = pair->add,
        .threads = p->q->threads};
}

static loong_product_params_t dx_params(const plan_t *p, const pair_t *pair,
                                        int64_t rows)
{
    return (loong_product_params_t){
        .m = rows,
        .n = pair->hidden,
        .k = p->vocab,
        .a = matrix(p->operand, gradient_ld(p), false),
        .b = matrix(p->operand, ld_of(p, pair, pair->roles->w), false),
        .c = matrix(p->operand, ld_of(p, pair, pair->roles->dx), false),
        .threads = p->q->threads};
}

static loong_product_params_t dw_params(const plan_t *p, const pair_t *pair,
                                        int64_t rows, bool add)
{
    return (loong_product_params_t){
        .m = p->vocab,
        .n = pair->hidden,
        .k = rows,
        .a = matrix(p->operand, gradient_ld(p), true),
        .b = matrix(p->operand, ld_of(p, pair, pair->roles->x), false),
        .c = matrix(LOONG_F32, p->q->arg[pair->roles->dw].ld, false),
        .add = add,
        .threads = p->q->threads};
}

/* ---- Support and workspace ----------------------------------------------- */

static bool plan_support(const plan_t *p, char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t params = logits_params(p, &p->pair[0], p->rows);
    if (p->tokens == 0) {
        snprintf(reason, LOONG_REASON_SIZE, "no tokens");
        return false;
    }
    if (p->q->arg[p->roles->value].dtype != LOONG_F32) {
        snprintf(reason, LOONG_REASON_SIZE, "values of type %s",
                 loong_dtype_name(p->q->arg[p->roles->value].dtype));
        return false;
    }
    return loongi_product_support(&params, reason);
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    plan_t p = plan_of(q, false);
    return plan_support(&p, reason);
}

static bool widened_support(const loong_kernel_query_t *q,
                            char reason[LOONG_REASON_SIZE])
{
    plan_t p = plan_of(q, true);
    if (q->arg[0].dtype != LOONG_BF16) {
        snprintf(reason, LOONG_REASON_SIZE, "only widens bf16 operands");
        return false;
    }
    return plan_support(&p, reason);
}

/* Pieces of the workspace, in bytes. */
typedef struct layout {
    size_t logits;
    size_t stats;   /* of rows of logits */
    size_t copies;  /* widened */
    size_t scratch; /* of oneDNN */
} layout_t;

static size_t piece(int64_t bytes)
{
    return (size_t)loongi_round_up(bytes, 64);
}

static size_t pair_scratch(const plan_t *p, const pair_t *pair, int64_t rows)
{
    loong_product_params_t params = logits_params(p, pair, rows);
    size_t size = loongi_product_workspace(&params);
    if (pair->has_dx) {
        params = dx_params(p, pair, rows);
        size_t dx = loongi_product_workspace(&params);
        size = LOONG_MAX(size, dx);
    }
    for (int add = 0; add < 2 && pair->has_dw; add++) {
        params = dw_params(p, pair, rows, add != 0);
        size_t dw = loongi_product_workspace(&params);
        size = LOONG_MAX(size, dw);
    }
    return size;
}

static size_t chunk_scratch(const plan_t *p, int64_t rows)
{
    size_t size = 0;
    for (int i = 0; i < p->num_pairs && rows > 0; i++) {
        size_t own = pair_scratch(p, &p->pair[i], rows);
        size = LOONG_MAX(size, own);
    }
    return size;
}

/* Of fp32, `rows` times the width of a pair. */
static size_t copy_bytes(const pair_t *pair, int64_t rows)
{
    return piece(rows * pair->hidden * (int64_t)sizeof(float));
}

static layout_t layout_of(const plan_t *p, bool with_scratch)
{
    layout_t l;
    memset(&l, 0, sizeof(l));
    l.logits = piece(p->rows * p->vocab * (int64_t)sizeof(float));
    l.stats = loongi_cross_entropy_room(p->q, p->rows);
    for (int i = 0; i < p->num_pairs && p->widened; i++) {
        const pair_t *pair = &p->pair[i];
        l.copies += copy_bytes(pair, p->vocab) +
                    (pair->has_dx ? 2 : 1) * copy_bytes(pair, p->rows);
    }
    if (with_scratch) {
        size_t tail = chunk_scratch(p, p->tail);
        l.scratch = chunk_scratch(p, p->rows);
        l.scratch = LOONG_MAX(l.scratch, tail);
    }
    return l;
}

static size_t plan_workspace(const plan_t *p)
{
    layout_t l = layout_of(p, true);
    return l.logits + l.stats + l.copies + l.scratch;
}

static size_t workspace(const loong_kernel_query_t *q)
{
    plan_t p = plan_of(q, false);
    return plan_workspace(&p);
}

static size_t widened_workspace(const loong_kernel_query_t *q)
{
    plan_t p = plan_of(q, true);
    return plan_workspace(&p);
}

/* ---- State --------------------------------------------------------------- */

static void destroy_chunk(loong_context_t *ctx, chunk_products_t *c)
{
    for (int i = 0; i < LOONG_HEAD_PAIRS; i++) {
        loongi_product_destroy(ctx, c->logits[i]);
        loongi_product_destroy(ctx, c->dx[i]);
        loongi_product_pair_destroy(ctx, &c->dw[i]);
    }
}

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s != NULL) {
        destroy_chunk(ctx, &s->whole);
        destroy_chunk(ctx, &s->tail);
        loongi_free(ctx, s);
    }
}

static loong_status_t create_chunk(loong_context_t *ctx, const plan_t *p,
                                   int64_t rows, chunk_products_t *c)
{
    c->rows = rows;
    for (int i = 0; i < p->num_pairs; i++) {
        const pair_t *pair = &p->pair[i];
        loong_product_params_t params = logits_params(p, pair, rows);
        LOONG_TRY(loongi_product_create(ctx, &params, &c->logits[i]));
        if (pair->has_dx) {
            params = dx_params(p, pair, rows);
            LOONG_TRY(loongi_product_create(ctx, &params, &c->dx[i]));
        }
        if (pair->has_dw) {
            params = dw_params(p, pair, rows, false);
            LOONG_TRY(
                loongi_product_pair_create(ctx, &params, true, &c->dw[i]));
        }
    }
    return LOONG_OK;
}

static loong_status_t create(loong_context_t *ctx, const plan_t *p,
                             void **state_p)
{
    state_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "cross_entropy kernel", &s));
    loong_status_t status = create_chunk(ctx, p, p->rows, &s->whole);
    if (status == LOONG_OK && p->tail > 0) {
        status = create_chunk(ctx, p, p->tail, &s->tail);
    }
    if (status != LOONG_OK) {
        destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *q, void **state_p)
{
    plan_t p = plan_of(q, false);
    return create(ctx, &p, state_p);
}

static loong_status_t widened_prepare(loong_context_t *ctx,
                                      const loong_kernel_query_t *q,
                                      void **state_p)
{
    plan_t p = plan_of(q, true);
    return create(ctx, &p, state_p);
}

/* ---- Launch -------------------------------------------------------------- */

/* One launch. */
typedef struct launch {
    const loong_kernel_call_t *call;
    plan_t plan;
    float *logits;
    void *room;                       /* for statistics of its rows */
    const void *w[LOONG_HEAD_PAIRS];  /* as the products read it */
    float *wide_x[LOONG_HEAD_PAIRS];  /* NULL: x itself */
    float *wide_dx[LOONG_HEAD_PAIRS]; /* NULL: dx itself */
    float *value; /* of all tokens, as lse; NULL: not asked for */
    float *lse;
    float scale;
    void *scratch;
    const loong_softmax_t *softmax;
} launch_t;

static char *row_at(const launch_t *l, int i, int64_t row)
{
    const loong_karg_t *arg = &l->call->query->arg[i];
    return (char *)l->call->ptr[i] +
           (size_t)(row * arg->ld) * loong_dtype_size(arg->dtype);
}

static float *output(const launch_t *l, int role)
{
    return role >= l->plan.q->num_in ? l->call->ptr[role] : NULL;
}

static loong_softmax_row_t softmax_row(const launch_t *l, int64_t first,
                                       int64_t r)
{
    const loong_kernel_call_t *call = l->call;
    const loong_cross_entropy_attr_t *attr = call->query->attr;
    const loong_head_roles_t *roles = l->plan.roles;
    int32_t label = ((const int32_t *)call->ptr[2])[first + r];
    loong_softmax_row_t row;
    row.columns = l->plan.vocab;
    row.logits = l->logits + r * row.columns;
    row.label = loongi_cross_entropy_column(attr, row.columns, label);
    row.skip = label == LOONG_IGNORE_LABEL;
    row.weight = (float)roles->sign;
    if (roles->weight > 0) {
        row.weight *= ((const float *)call->ptr[roles->weight])[first + r];
    }
    row.z_loss = (float)attr->z_loss;
    row.scale = l->scale;
    row.gradient = l->plan.gradient;
    row.half = l->plan.operand == LOONG_BF16;
    row.known = roles->known;
    if (row.known) {
        row.logp = ((const float *)call->ptr[roles->value])[first + r];
        row.lse = ((const float *)call->ptr[roles->lse])[first + r];
    }
    return row;
}

static void finish_row(const launch_t *l, int64_t token,
                       const loong_softmax_row_t *row,
                       const loong_softmax_stats_t *own,
                       const loong_softmax_stats_t *all)
{
    float value = l->softmax->finish(row, own, all);
    if (l->value != NULL) {
        l->value[token] = value;
    }
    if (l->lse != NULL) {
        l->lse[token] = row->skip ? 0.0f : (float)(all->top + log(all->sum));
    }
}

/* Losses, and gradients in place of logits, of rows first ...: one pass while
 * a row is in the cache, two around the exchange when ranks share the
 * vocabulary. */
static loong_status_t softmax_rows(const launch_t *l, int64_t first,
                                   int64_t rows)
{
    const loong_kernel_query_t *q = l->call->query;
    loong_softmax_stats_t *own = loongi_cross_entropy_own(q, l->room, rows);
    const loong_softmax_stats_t *all =
        loongi_cross_entropy_all(q, l->room, rows);
    bool alone = own == all || l->plan.roles->known;
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t r = 0; r < rows; r++) {
        loong_softmax_row_t row = softmax_row(l, first, r);
        own[r] = l->softmax->measure(&row);
        if (alone) {
            finish_row(l, first + r, &row, &own[r], &own[r]);
        }
    }
    if (alone) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_cross_entropy_exchange(l->call, l->room, rows));
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t r = 0; r < rows; r++) {
        loong_softmax_row_t row = softmax_row(l, first, r);
        finish_row(l, first + r, &row, &own[r], &all[r]);
    }
    return LOONG_OK;
}

static loong_status_t multiply(const launch_t *l,
                               const loong_product_t *product, const void *a,
                               const void *b, void *c)
{
    loong_product_operands_t o = {a, b, NULL, c, l->scratch, 0};
    return loongi_product_run(l->call->ctx, product, &o);
}

/* dw is added to. */
static bool adds(const launch_t *l, const pair_t *pair)
{
    return pair->has_dw &&
           l->call->accumulate >> (pair->roles->dw - l->plan.q->num_in) & 1;
}

/* Rows of pair i's x as the products read them; made: they are there. */
static const void *rows_of_x(const launch_t *l, int i, int64_t first,
                             int64_t rows, bool made)
{
    const pair_t *pair = &l->plan.pair[i];
    const void *x = row_at(l, pair->roles->x, first);
    if (l->wide_x[i] == NULL) {
        return x;
    }
    if (!made) {
        loongi_widen(x, l->plan.q->arg[pair->roles->x].ld, l->wide_x[i], rows,
                     pair->hidden, l->plan.q->threads);
    }
    return l->wide_x[i];
}

static loong_status_t multiply_back(const launch_t *l, int i, int64_t first,
                                    const chunk_products_t *c)
{
    const pair_t *pair = &l->plan.pair[i];
    const loong_kernel_query_t *q = l->plan.q;
    if (pair->has_dx) {
        void *dx = row_at(l, pair->roles->dx, first);
        void *to = l->wide_dx[i] != NULL ? (void *)l->wide_dx[i] : dx;
        LOONG_TRY(multiply(l, c->dx[i], l->logits, l->w[i], to));
        if (l->wide_dx[i] != NULL) {
            loongi_narrow(l->wide_dx[i], dx, q->arg[pair->roles->dx].ld,
                          c->rows, pair->hidden, q->threads);
        }
    }
    if (pair->has_dw) {
        bool add = first > 0 || adds(l, pair);
        LOONG_TRY(multiply(l, c->dw[i].product[add], l->logits,
                           rows_of_x(l, i, first, c->rows, true),
                           l->call->ptr[pair->roles->dw]));
    }
    return LOONG_OK;
}

static loong_status_t run_chunk(const launch_t *l, int64_t first,
                                const chunk_products_t *c)
{
    for (int i = 0; i < l->plan.num_pairs; i++) {
        LOONG_TRY(multiply(l, c->logits[i],
                           rows_of_x(l, i, first, c->rows, false), l->w[i],
                           l->logits));
    }
    LOONG_TRY(softmax_rows(l, first, c->rows));
    for (int i = 0; i < l->plan.num_pairs; i++) {
        LOONG_TRY(multiply_back(l, i, first, c));
    }
    return LOONG_OK;
}

/* Rows of padding in w have no logits: gradient 0. */
static void clear_padding(const launch_t *l)
{
    for (int i = 0; i < l->plan.num_pairs; i++) {
        const pair_t *pair = &l->plan.pair[i];
        int dw = pair->roles->dw;
        int64_t end =
            pair->has_dw && !adds(l, pair) ? l->plan.q->arg[dw].dim[0] : 0;
        for (int64_t v = l->plan.vocab; v < end; v++) {
            memset(row_at(l, dw, v), 0, sizeof(float) * (size_t)pair->hidden);
        }
    }
}

static float *take(char **cursor, size_t bytes)
{
    float *p = (float *)(void *)*cursor;
    *cursor += bytes;
    return p;
}

/* Copies in fp32 of w, and room for those of rows of x and dx. */
static void widen_pair(launch_t *l, int i, char **cursor)
{
    const pair_t *pair = &l->plan.pair[i];
    int w = pair->roles->w;
    float *wide = take(cursor, copy_bytes(pair, l->plan.vocab));
    loongi_widen(l->call->ptr[w], l->plan.q->arg[w].ld, wide, l->plan.vocab,
                 pair->hidden, l->plan.q->threads);
    l->w[i] = wide;
    l->wide_x[i] = take(cursor, copy_bytes(pair, l->plan.rows));
    if (pair->has_dx) {
        l->wide_dx[i] = take(cursor, copy_bytes(pair, l->plan.rows));
    }
}

static loong_status_t launch(const loong_kernel_call_t *call, bool widened)
{
    const state_t *s = call->state;
    launch_t l;
    memset(&l, 0, sizeof(l));
    l.call = call;
    l.plan = plan_of(call->query, widened);
    l.softmax = loongi_softmax();
    l.scale = (float)loongi_cross_entropy_scale(call->query->attr, call->frame);
    l.value = output(&l, l.plan.roles->value);
    l.lse = output(&l, l.plan.roles->lse);
    LOONG_TRY(loongi_cross_entropy_labels(call));
    layout_t layout = layout_of(&l.plan, false);
    char *cursor = call->workspace;
    l.logits = (float *)(void *)cursor;
    cursor += layout.logits;
    l.room = cursor;
    cursor += layout.stats;
    for (int i = 0; i < l.plan.num_pairs; i++) {
        l.w[i] = call->ptr[l.plan.pair[i].roles->w];
        if (widened) {
            widen_pair(&l, i, &cursor);
        }
    }
    l.scratch = cursor;
    int64_t first = 0;
    for (; first + l.plan.rows <= l.plan.tokens; first += l.plan.rows) {
        LOONG_TRY(run_chunk(&l, first, &s->whole));
    }
    if (l.plan.tail > 0) {
        LOONG_TRY(run_chunk(&l, first, &s->tail));
    }
    clear_padding(&l);
    return LOONG_OK;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    return launch(call, false);
}

static loong_status_t widened_run(const loong_kernel_call_t *call)
{
    return launch(call, true);
}

#define HEAD_ONEDNN(op_, suffix_, prefix_, joins_)          \
    const loong_kernel_t loongi_##op_##_onednn##suffix_ = { \
        .name = #op_ "_onednn" #suffix_,                    \
        .op = #op_,                                         \
        .device = "cpu",                                    \
        .support = prefix_##support,                        \
        .workspace = prefix_##workspace,                    \
        .prepare = prefix_##prepare,                        \
        .destroy = destroy,                                 \
        .run = prefix_##run,                                \
        .joins = joins_,                                    \
    }

HEAD_ONEDNN(cross_entropy, , , true);
HEAD_ONEDNN(cross_entropy, _widened, widened_, true);
HEAD_ONEDNN(token_logprob, , , true);
HEAD_ONEDNN(token_logprob, _widened, widened_, true);
HEAD_ONEDNN(token_logprob_grad, , , false);
HEAD_ONEDNN(token_logprob_grad, _widened, widened_, false);
