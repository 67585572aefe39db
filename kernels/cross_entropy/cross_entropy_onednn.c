/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy and token_logprob by oneDNN products, over chunks of tokens
 * with labels, whose rows are copied where others lie between (formulas:
 * cross_entropy_ref.c). Per chunk: fp32 logits -> loss, their gradient in place
 * -> rows of dx, and dw added up. "widened" is for processors without bf16
 * products: w, and x chunk by chunk, are copied to fp32 first. Listed in
 * kernels/list.h; read cross_entropy.h and onednn.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gather_rows.h"
#include "cross_entropy.h"
#include "isa.h"
#include "onednn/onednn.h"
#include "softmax.h"
#include "widen.h"

/* The products of a chunk; NULL where not wanted. */
typedef struct state {
    loong_product_t *logits[LOONG_HEAD_PAIRS]; /* the second adds */
    loong_product_t *dx[LOONG_HEAD_PAIRS];
    loong_product_pair_t dw[LOONG_HEAD_PAIRS];
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

/* Of the pair's w; copies have no gaps. */
static int64_t ld_of_w(const plan_t *p, const pair_t *pair)
{
    return p->widened ? pair->hidden : p->q->arg[pair->roles->w].ld;
}

/* Rows of x and dx have no gaps: others are copied. */
static loong_product_params_t logits_params(const plan_t *p, const pair_t *pair)
{
    return (loong_product_params_t){
        .m = p->rows,
        .n = p->vocab,
        .k = pair->hidden,
        .a = matrix(p->operand, pair->hidden, false),
        .b = matrix(p->operand, ld_of_w(p, pair), true),
        .c = matrix(LOONG_F32, p->vocab, false),
        .add = pair->add,
        .threads = p->q->threads};
}

static loong_product_params_t dx_params(const plan_t *p, const pair_t *pair)
{
    return (loong_product_params_t){
        .m = p->rows,
        .n = pair->hidden,
        .k = p->vocab,
        .a = matrix(p->operand, gradient_ld(p), false),
        .b = matrix(p->operand, ld_of_w(p, pair), false),
        .c = matrix(p->operand, pair->hidden, false),
        .threads = p->q->threads};
}

static loong_product_params_t dw_params(const plan_t *p, const pair_t *pair,
                                        bool add)
{
    return (loong_product_params_t){
        .m = p->vocab,
        .n = pair->hidden,
        .k = p->rows,
        .a = matrix(p->operand, gradient_ld(p), true),
        .b = matrix(p->operand, pair->hidden, false),
        .c = matrix(LOONG_F32, p->q->arg[pair->roles->dw].ld, false),
        .add = add,
        .threads = p->q->threads};
}

/* ---- Support and workspace ----------------------------------------------- */

static bool plan_support(const plan_t *p, char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t params = logits_params(p, &p->pair[0]);
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
    size_t tokens;  /* of all rows of chunks */
    size_t copies;  /* of rows of x and dx, and w widened */
    size_t scratch; /* of oneDNN */
} layout_t;

static size_t piece(int64_t bytes)
{
    return (size_t)loongi_round_up(bytes, 64);
}

static size_t pair_scratch(const plan_t *p, const pair_t *pair)
{
    loong_product_params_t params = logits_params(p, pair);
    size_t size = loongi_product_workspace(&params);
    if (pair->has_dx) {
        params = dx_params(p, pair);
        size_t dx = loongi_product_workspace(&params);
        size = LOONG_MAX(size, dx);
    }
    for (int add = 0; add < 2 && pair->has_dw; add++) {
        params = dw_params(p, pair, add != 0);
        size_t dw = loongi_product_workspace(&params);
        size = LOONG_MAX(size, dw);
    }
    return size;
}

/* Of `rows` times the width of a pair. */
static size_t copy_bytes(const plan_t *p, const pair_t *pair, int64_t rows)
{
    return piece(rows * pair->hidden * (int64_t)loong_dtype_size(p->operand));
}

static layout_t layout_of(const plan_t *p, bool with_scratch)
{
    layout_t l;
    memset(&l, 0, sizeof(l));
    l.logits = piece(p->rows * p->vocab * (int64_t)sizeof(float));
    l.stats = loongi_cross_entropy_room(p->q, p->rows);
    l.tokens = piece((p->tokens + p->rows) * (int64_t)sizeof(int32_t));
    for (int i = 0; i < p->num_pairs; i++) {
        const pair_t *pair = &p->pair[i];
        l.copies += (pair->has_dx ? 2 : 1) * copy_bytes(p, pair, p->rows) +
                    (p->widened ? copy_bytes(p, pair, p->vocab) : 0);
        size_t own = with_scratch ? pair_scratch(p, pair) : 0;
        l.scratch = LOONG_MAX(l.scratch, own);
    }
    return l;
}

static size_t plan_workspace(const plan_t *p)
{
    layout_t l = layout_of(p, true);
    return l.logits + l.stats + l.tokens + l.copies + l.scratch;
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

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    for (int i = 0; i < LOONG_HEAD_PAIRS && s != NULL; i++) {
        loongi_product_destroy(ctx, s->logits[i]);
        loongi_product_destroy(ctx, s->dx[i]);
        loongi_product_pair_destroy(ctx, &s->dw[i]);
    }
    loongi_free(ctx, s);
}

static loong_status_t create_products(loong_context_t *ctx, const plan_t *p,
                                      state_t *s)
{
    for (int i = 0; i < p->num_pairs; i++) {
        const pair_t *pair = &p->pair[i];
        loong_product_params_t params = logits_params(p, pair);
        LOONG_TRY(loongi_product_create(ctx, &params, &s->logits[i]));
        if (pair->has_dx) {
            params = dx_params(p, pair);
            LOONG_TRY(loongi_product_create(ctx, &params, &s->dx[i]));
        }
        if (pair->has_dw) {
            params = dw_params(p, pair, false);
            LOONG_TRY(
                loongi_product_pair_create(ctx, &params, true, &s->dw[i]));
        }
    }
    return LOONG_OK;
}

static loong_status_t create(loong_context_t *ctx, const plan_t *p,
                             void **state_p)
{
    state_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "cross_entropy kernel", &s));
    loong_status_t status = create_products(ctx, p, s);
    if (status == LOONG_OK) {
        *state_p = s;
    } else {
        destroy(ctx, s);
    }
    return status;
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
    void *room;     /* for statistics of its rows */
    int32_t *token; /* of each row of the chunks, in order */
    int64_t count;  /* of these; rows behind have none, and zeros for x */
    const void *w[LOONG_HEAD_PAIRS]; /* as the products read it */
    void *x[LOONG_HEAD_PAIRS];       /* room for copies of a chunk's rows */
    void *dx[LOONG_HEAD_PAIRS];
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

static loong_softmax_row_t softmax_row(const launch_t *l, int64_t r,
                                       int32_t token)
{
    const loong_kernel_call_t *call = l->call;
    const loong_cross_entropy_attr_t *attr = call->query->attr;
    const loong_head_roles_t *roles = l->plan.roles;
    int32_t label = ((const int32_t *)call->ptr[2])[token];
    loong_softmax_row_t row;
    row.columns = l->plan.vocab;
    row.logits = l->logits + r * row.columns;
    row.label = loongi_cross_entropy_column(attr, row.columns, label);
    row.skip = label == LOONG_IGNORE_LABEL;
    row.weight = (float)roles->sign;
    if (roles->weight > 0) {
        row.weight *= ((const float *)call->ptr[roles->weight])[token];
    }
    row.z_loss = (float)attr->z_loss;
    row.scale = l->scale;
    row.gradient = l->plan.gradient;
    row.half = l->plan.operand == LOONG_BF16;
    row.known = roles->known;
    if (row.known) {
        row.logp = ((const float *)call->ptr[roles->value])[token];
        row.lse = ((const float *)call->ptr[roles->lse])[token];
    }
    return row;
}

static void set_values(const launch_t *l, int64_t token, float value, float lse)
{
    if (l->value != NULL) {
        l->value[token] = value;
    }
    if (l->lse != NULL) {
        l->lse[token] = lse;
    }
}

static void finish_row(const launch_t *l, int32_t token,
                       const loong_softmax_row_t *row,
                       const loong_softmax_stats_t *own,
                       const loong_softmax_stats_t *all)
{
    float value = l->softmax->finish(row, own, all);
    float lse = (float)(all->top + log(all->sum));
    set_values(l, token, value, row->skip ? 0.0f : lse);
}

/* Losses, and gradients in place of logits, of a chunk: one pass while a row is
 * in the cache, two around the exchange when ranks share the vocabulary. */
static loong_status_t softmax_rows(const launch_t *l, const int32_t *token,
                                   int64_t rows)
{
    const loong_kernel_query_t *q = l->call->query;
    loong_softmax_stats_t *own = loongi_cross_entropy_own(q, l->room, rows);
    const loong_softmax_stats_t *all =
        loongi_cross_entropy_all(q, l->room, rows);
    bool alone = own == all || l->plan.roles->known;
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t r = 0; r < rows; r++) {
        loong_softmax_row_t row = softmax_row(l, r, token[r]);
        own[r] = l->softmax->measure(&row);
        if (alone) {
            finish_row(l, token[r], &row, &own[r], &own[r]);
        }
    }
    if (alone) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_cross_entropy_exchange(l->call, l->room, rows));
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t r = 0; r < rows; r++) {
        loong_softmax_row_t row = softmax_row(l, r, token[r]);
        finish_row(l, token[r], &row, &own[r], &all[r]);
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

static bool adds_to_dw(const launch_t *l, const pair_t *pair)
{
    return pair->has_dw &&
           l->call->accumulate >> (pair->roles->dw - l->plan.q->num_in) & 1;
}

/* The products read or write operand `role` itself in this chunk. */
static bool direct(const launch_t *l, int role, const int32_t *token)
{
    const loong_karg_t *arg = &l->plan.q->arg[role];
    int64_t last = l->plan.rows - 1;
    return !l->plan.widened && arg->ld == loong_karg_cols(arg) &&
           token[last] == token[0] + last;
}

/* A chunk's rows of operand `role`. */
static loong_row_list_t rows_of(const launch_t *l, int role,
                                const int32_t *token)
{
    return (loong_row_list_t){
        &l->plan.q->arg[role], l->call->ptr[role], token,
        l->plan.rows,          l->plan.widened,    l->plan.q->threads};
}

/* Rows of pair i's x as the products read them. */
static const void *rows_of_x(const launch_t *l, int i, const int32_t *token)
{
    int x = l->plan.pair[i].roles->x;
    return direct(l, x, token) ? (const void *)row_at(l, x, token[0]) : l->x[i];
}

static loong_status_t multiply_back(const launch_t *l, int i,
                                    const int32_t *token)
{
    const state_t *s = l->call->state;
    const pair_t *pair = &l->plan.pair[i];
    if (pair->has_dx) {
        bool own = direct(l, pair->roles->dx, token);
        void *dx = own ? row_at(l, pair->roles->dx, token[0]) : l->dx[i];
        LOONG_TRY(multiply(l, s->dx[i], l->logits, l->w[i], dx));
        if (!own) {
            loong_row_list_t list = rows_of(l, pair->roles->dx, token);
            loongi_scatter_rows(&list, l->dx[i]);
        }
    }
    if (pair->has_dw) {
        bool add = token != l->token || adds_to_dw(l, pair);
        void *dw = l->call->ptr[pair->roles->dw];
        LOONG_TRY(multiply(l, s->dw[i].product[add], l->logits,
                           rows_of_x(l, i, token), dw));
    }
    return LOONG_OK;
}

/* Of the rows from `first` on. */
static loong_status_t run_chunk(const launch_t *l, int64_t first)
{
    const state_t *s = l->call->state;
    const int32_t *token = l->token + first;
    for (int i = 0; i < l->plan.num_pairs; i++) {
        int x = l->plan.pair[i].roles->x;
        if (!direct(l, x, token)) {
            loong_row_list_t list = rows_of(l, x, token);
            loongi_gather_rows(&list, l->x[i]);
        }
        LOONG_TRY(multiply(l, s->logits[i], rows_of_x(l, i, token), l->w[i],
                           l->logits));
    }
    int64_t rows = LOONG_MIN(l->plan.rows, l->count - first);
    LOONG_TRY(softmax_rows(l, token, rows));
    for (int i = 0; i < l->plan.num_pairs; i++) {
        LOONG_TRY(multiply_back(l, i, token));
    }
    return LOONG_OK;
}

/* Values and dx of tokens without rows, which have no labels. */
static void clear_unlabelled(const launch_t *l)
{
    const int32_t *labels = l->call->ptr[2];
    size_t size = loong_dtype_size(l->plan.q->arg[0].dtype);
    int64_t end = l->count < l->plan.tokens ? l->plan.tokens : 0;
#pragma omp parallel for schedule(static) num_threads(l->plan.q->threads)
    for (int64_t t = 0; t < end; t++) {
        bool skip = labels[t] == LOONG_IGNORE_LABEL;
        for (int i = 0; skip && i < l->plan.num_pairs; i++) {
            const pair_t *p = &l->plan.pair[i];
            if (p->has_dx) {
                memset(row_at(l, p->roles->dx, t), 0, p->hidden * size);
            }
            set_values(l, t, 0.0f, 0.0f);
        }
    }
}

/* Rows of padding in w have no logits: gradient 0; all where there are none. */
static void clear_padding(const launch_t *l)
{
    for (int i = 0; i < l->plan.num_pairs; i++) {
        const pair_t *pair = &l->plan.pair[i];
        int dw = pair->roles->dw;
        bool made = pair->has_dw && !adds_to_dw(l, pair);
        int64_t end = made ? l->plan.q->arg[dw].dim[0] : 0;
        for (int64_t v = l->count > 0 ? l->plan.vocab : 0; v < end; v++) {
            memset(row_at(l, dw, v), 0, sizeof(float) * (size_t)pair->hidden);
        }
    }
}

static void *take(char **cursor, size_t bytes)
{
    *cursor += bytes;
    return *cursor - bytes;
}

/* Room for copies of rows of x and dx, and w, as a copy where it is widened. */
static void place_pair(launch_t *l, int i, char **cursor)
{
    const plan_t *p = &l->plan;
    const pair_t *pair = &p->pair[i];
    int w = pair->roles->w;
    l->w[i] = l->call->ptr[w];
    if (p->widened) {
        float *wide = take(cursor, copy_bytes(p, pair, p->vocab));
        loongi_widen(l->call->ptr[w], p->q->arg[w].ld, wide, p->vocab,
                     pair->hidden, p->q->threads);
        l->w[i] = wide;
    }
    l->x[i] = take(cursor, copy_bytes(p, pair, p->rows));
    if (pair->has_dx) {
        l->dx[i] = take(cursor, copy_bytes(p, pair, p->rows));
    }
}

static loong_status_t launch(const loong_kernel_call_t *call, bool widened)
{
    launch_t l;
    memset(&l, 0, sizeof(l));
    l.call = call;
    l.plan = plan_of(call->query, widened);
    l.softmax = loongi_softmax();
    l.scale = (float)loongi_cross_entropy_scale(call->query->attr, call->frame);
    const loong_head_roles_t *roles = l.plan.roles;
    l.value = roles->known ? NULL : call->ptr[roles->value];
    l.lse = roles->known || roles->lse == 0 ? NULL : call->ptr[roles->lse];
    LOONG_TRY(loongi_cross_entropy_labels(call));
    layout_t layout = layout_of(&l.plan, false);
    char *cursor = call->workspace;
    l.logits = take(&cursor, layout.logits);
    l.room = take(&cursor, layout.stats);
    l.token = take(&cursor, layout.tokens);
    for (int i = 0; i < l.plan.num_pairs; i++) {
        place_pair(&l, i, &cursor);
    }
    l.scratch = cursor;
    l.count = loongi_cross_entropy_list(call, l.plan.rows, l.token);
    clear_unlabelled(&l);
    for (int64_t first = 0; first < l.count; first += l.plan.rows) {
        LOONG_TRY(run_chunk(&l, first));
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
