/* SPDX-License-Identifier: Apache-2.0
 *
 * attention and attention_grad by cuDNN (kernels/cudnn), where
 * train.attention_backend asks for it. Building a plan takes seconds: layers
 * that are alike share one. What cuDNN refuses is told once and, with auto, an
 * own kernel takes over: which it is, is known before memory is planned only
 * for refusals that stand here, so both fit the workspace. Listed in
 * kernels/list.h; read attention_cudnn.h before. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attention_cudnn.h"
#include "list.h"
#include "slots.h"

/* What the gradient keeps of scores, one launch of segments and heads, is at
 * most this, which fills a device many times over; where even one group of
 * heads of one segment has more, up to the second bound. */
#ifndef LOONG_CUDNN_LAUNCH_BYTES
#define LOONG_CUDNN_LAUNCH_BYTES (2ll << 30)
#endif
enum { MOST_GIB = 16 };

/* Segments of any length have blocks of their own in cuDNN's kernels, empty
 * ones too, and so do launches: segments x heads x rows / 128, of which at most
 * heads x (rows / 128 + segments) have rows. With 4096 rows 512 segments are 32
 * blocks for each one of them. */
enum { MOST_SEGMENTS = 512, MOST_LAUNCHES = 64, ALIGN = 256 };

/* ---- operands ------------------------------------------------------------ */

/* The operand of the op; -1: it has none. */
static const int forward_at[LOONG_CUDNN_OPERANDS] = {0, 1, 2, -1, -1,
                                                     -1, -1, -1, -1};
static const int gradient_at[LOONG_CUDNN_OPERANDS] = {1, 2, 3, 4, 5,
                                                      0, -1, -1, -1};

static bool is_gradient(const loong_kernel_query_t *query)
{
    return query->num_out > 2;
}

static int cu_of(const loong_kernel_query_t *query)
{
    return is_gradient(query) ? 6 : 3;
}

static int place_of(const loong_kernel_query_t *query, int o)
{
    if (is_gradient(query)) {
        return o >= LOONG_CUDNN_DQ ? query->num_in + o - LOONG_CUDNN_DQ
                                   : gradient_at[o];
    }
    return o == LOONG_CUDNN_O || o == LOONG_CUDNN_LSE
               ? query->num_in + o - LOONG_CUDNN_O
               : forward_at[o];
}

/* All segments are as long as the longest: so many of them fill the rows. */
static bool is_dense(const loong_kernel_query_t *query, int64_t segments,
                     int64_t length)
{
    const loong_karg_t *q = &query->arg[place_of(query, LOONG_CUDNN_Q)];
    return segments * length == q->dim[0];
}

static bool wants_lse(const loong_kernel_query_t *query)
{
    return query->arg[place_of(query, LOONG_CUDNN_LSE)].rank > 0;
}

/* All that is asked for, and lse: cuDNN has no forward without it. */
static loong_cudnn_attention_params_t
whole_of(const loong_kernel_query_t *query)
{
    const loong_attention_attr_t *attr = query->attr;
    loong_cudnn_attention_params_t p;
    p.gradient = is_gradient(query);
    p.causal = attr->causal;
    p.window = attr->window;
    p.segments = query->arg[cu_of(query)].dim[0] - 1;
    p.length = attr->max_seqlen;
    p.dense = is_dense(query, p.segments, p.length);
    p.rows = query->arg[place_of(query, LOONG_CUDNN_Q)].dim[0];
    p.heads = attr->heads;
    p.kv_heads = attr->kv_heads;
    p.head_dim = attr->head_dim;
    p.v_head_dim = loongi_attention_v_dim(attr);
    p.scale = attr->scale;
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        int at = place_of(query, o);
        p.ld[o] = at >= 0 ? query->arg[at].ld : 0;
    }
    if (!wants_lse(query)) {
        p.ld[LOONG_CUDNN_LSE] = p.heads;
    }
    return p;
}

/* The largest divisor of `of` that is at most `most`, 1 at least. */
static int64_t divisor(int64_t of, int64_t most)
{
    int64_t n = LOONG_MAX(LOONG_MIN(of, most), 1);
    while (of % n != 0) {
        n--;
    }
    return n;
}

/* Key heads of one launch, as many as fit; without `dense` the lse of its heads
 * begins at a multiple of 16 bytes. */
static int heads_of(const loong_cudnn_attention_params_t *whole, int64_t most)
{
    enum { ALIKE = 4 };
    int group = whole->heads / whole->kv_heads;
    int n = (int)divisor(whole->kv_heads, most);
    while (!whole->dense && n < whole->kv_heads &&
           (n * group % ALIKE != 0 || whole->kv_heads % n != 0)) {
        n++;
    }
    return n;
}

/* The part of it that one launch makes: of the gradient some segments, or of
 * one segment the query heads of some key heads. Without `dense` the last
 * launch may have segments beyond those that there are. */
static loong_cudnn_attention_params_t
part_of(const loong_cudnn_attention_params_t *whole)
{
    loong_cudnn_attention_params_t p = *whole;
    int64_t segment = loongi_cudnn_attention_scores(whole) / whole->segments;
    if (segment > LOONG_CUDNN_LAUNCH_BYTES) {
        int64_t of_head = segment / whole->kv_heads;
        p.segments = 1;
        p.kv_heads = heads_of(whole, LOONG_CUDNN_LAUNCH_BYTES / of_head);
        p.heads = p.kv_heads * (whole->heads / whole->kv_heads);
    } else if (segment > 0) {
        int64_t most = LOONG_CUDNN_LAUNCH_BYTES / segment;
        p.segments = whole->dense ? divisor(whole->segments, most)
                                  : LOONG_MIN(whole->segments, most);
    }
    return p;
}

static int64_t rounds_of(const loong_cudnn_attention_params_t *whole,
                         const loong_cudnn_attention_params_t *part)
{
    return (whole->segments + part->segments - 1) / part->segments;
}

static const loong_kernel_t *own_kernel(const loong_kernel_query_t *query)
{
    return is_gradient(query) ? &loongi_attention_grad_tiles_cuda
                              : &loongi_attention_tiles_cuda;
}

/* ---- what is taken ------------------------------------------------------- */

static bool refuse(char reason[LOONG_REASON_SIZE], const char *format, ...)
    LOONG_PRINTF(2, 3);

static bool refuse(char reason[LOONG_REASON_SIZE], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(reason, LOONG_REASON_SIZE, format, list);
    va_end(list);
    return false;
}

static bool takes_operand(const loong_kernel_query_t *query, int o,
                          char reason[LOONG_REASON_SIZE])
{
    int at = place_of(query, o);
    loong_dtype_t type = o == LOONG_CUDNN_LSE ? LOONG_F32 : LOONG_BF16;
    if (at < 0 || query->arg[at].rank == 0) {
        return true;
    }
    const loong_karg_t *a = &query->arg[at];
    if (a->dtype != type) {
        return refuse(reason, "operand %d is %s, cuDNN takes %s", at,
                      loong_dtype_name(a->dtype), loong_dtype_name(type));
    }
    if (type == LOONG_BF16 && a->ld % 8 != 0) {
        return refuse(reason,
                      "rows of operand %d are %lld elements apart, cuDNN takes "
                      "multiples of 8", at, (long long)a->ld);
    }
    return true;
}

static bool takes_rows(const loong_kernel_query_t *query,
                       char reason[LOONG_REASON_SIZE])
{
    int ends = cu_of(query) + 4;
    if (ends < query->num_in && query->arg[ends].rank > 0) {
        return refuse(reason, "queries see keys behind them (key_ends)");
    }
    for (int i = cu_of(query) + 2; i < query->num_in; i++) {
        if (query->arg[i].rank > 0) {
            return refuse(reason, "%s are some of the rows, cuDNN takes all",
                          i == cu_of(query) + 2 ? "queries" : "keys");
        }
    }
    return query->accumulate == 0 ||
           refuse(reason, "cuDNN adds to no output");
}

static bool takes_sizes(const loong_cudnn_attention_params_t *p,
                        char reason[LOONG_REASON_SIZE])
{
    loong_cudnn_attention_params_t part = part_of(p);
    double room = (double)loongi_cudnn_attention_scores(&part) / (1 << 30);
    int64_t launches = rounds_of(p, &part) * (p->heads / part.heads);
    if (p->head_dim % 8 != 0 || p->v_head_dim % 8 != 0 ||
        LOONG_MAX(p->head_dim, p->v_head_dim) > 256) {
        return refuse(reason,
                      "heads of %d and %d channels, cuDNN takes multiples of 8 "
                      "up to 256", p->head_dim, p->v_head_dim);
    }
    if (p->gradient && p->length < 2) {
        return refuse(reason, "gradients of segments of one row");
    }
    if (!p->dense && p->segments > MOST_SEGMENTS) {
        return refuse(reason,
                      "up to %lld segments of any length, at most %d are taken",
                      (long long)p->segments, (int)MOST_SEGMENTS);
    }
    if (!p->dense && launches > MOST_LAUNCHES) {
        return refuse(reason,
                      "sums in a fixed order want %lld launches for up to %lld "
                      "segments of any length, at most %d are made",
                      (long long)launches, (long long)p->segments,
                      (int)MOST_LAUNCHES);
    }
    if (room > MOST_GIB) {
        return refuse(reason,
                      "sums in a fixed order want %.1f GiB of workspace for "
                      "the %d query heads of a key head, at most %d are given",
                      room, part.heads, (int)MOST_GIB);
    }
    return true;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    const loong_attention_attr_t *attr = query->attr;
    if (query->policy.attention == LOONG_ATTENTION_LOCAL) {
        return refuse(reason, "train.attention_backend chooses own kernels");
    }
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        if (!takes_operand(query, o, reason)) {
            return false;
        }
    }
    if (attr->dropout > 0.0) {
        return refuse(reason, "cuDNN drops by random numbers of its own");
    }
    if (!(attr->scale > 0.0)) {
        return refuse(reason, "scale %g is not positive", attr->scale);
    }
    loong_cudnn_attention_params_t p = whole_of(query);
    return takes_rows(query, reason) && takes_sizes(&p, reason);
}

/* ---- workspace ----------------------------------------------------------- */

/* What a call uses, in bytes: with segments of any length the lengths and, of
 * each operand, the beginnings of those of each round of launches; the lse, by
 * heads or one that nobody wants; then the plan's, one launch after the
 * other. */
typedef struct layout {
    int64_t rounds;
    int64_t lengths, begin; /* of a round */
    int64_t lse, plan;
} layout_t;

static layout_t layout_of(const loong_kernel_query_t *query,
                          const loong_cudnn_attention_params_t *whole)
{
    loong_cudnn_attention_params_t part = part_of(whole);
    layout_t l = {rounds_of(whole, &part), 0, 0, 0,
                  loongi_cudnn_attention_room(&part)};
    int64_t rows = whole->rows;
    if (whole->dense) {
        rows = whole->segments * loongi_cudnn_attention_lse_length(whole);
    } else {
        l.lengths = loongi_round_up(part.segments * (int64_t)sizeof(int32_t),
                                    ALIGN);
        l.begin = loongi_round_up((part.segments + 1) *
                                      (int64_t)sizeof(int64_t), ALIGN);
    }
    if (whole->dense || !wants_lse(query)) {
        l.lse = loongi_round_up(rows * whole->heads * (int64_t)sizeof(float),
                                ALIGN);
    }
    return l;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    loong_cudnn_attention_params_t whole = whole_of(query);
    layout_t l = layout_of(query, &whole);
    int64_t segments = l.rounds * (l.lengths + LOONG_CUDNN_OPERANDS * l.begin);
    size_t bytes = (size_t)(ALIGN + segments + l.lse + l.plan);
    return LOONG_MAX(bytes, own_kernel(query)->workspace(query));
}

/* ---- plans that kernels share -------------------------------------------- */

typedef struct plan {
    loong_cudnn_attention_params_t params;
    loong_cudnn_attention_t *attention; /* NULL: refused */
    struct plan *next;
} plan_t;

typedef struct plans {
    loong_cudnn_t *cudnn;
    bool absent; /* the library, as was told */
    int64_t users;
    plan_t *first;
} plans_t;

/* Of one prepared kernel. */
typedef struct state {
    plans_t *plans;
    const plan_t *plan;
} state_t;

#define PLANS "plans of cuDNN"

static loong_status_t join_plans(loong_context_t *ctx, plans_t **plans_p)
{
    loong_slot_t *slot = loongi_context_slot(ctx, PLANS);
    if (slot->data == NULL) {
        LOONG_TRY(loongi_alloc(ctx, sizeof(plans_t), PLANS, &slot->data));
    }
    *plans_p = slot->data;
    (*plans_p)->users++;
    return LOONG_OK;
}

static void leave_plans(loong_context_t *ctx, plans_t *plans)
{
    if (--plans->users > 0) {
        return;
    }
    while (plans->first != NULL) {
        plan_t *plan = plans->first;
        plans->first = plan->next;
        loongi_cudnn_attention_destroy(ctx, plan->attention);
        loongi_free(ctx, plan);
    }
    loongi_cudnn_close(ctx, plans->cudnn);
    loongi_free(ctx, plans);
    loongi_context_slot(ctx, PLANS)->data = NULL;
}

static loong_status_t build(loong_context_t *ctx, plans_t *plans, plan_t *plan)
{
    if (plans->cudnn == NULL) {
        LOONG_TRY(loongi_cudnn_open(ctx, NULL, &plans->cudnn));
    }
    return loongi_cudnn_attention_create(ctx, plans->cudnn, &plan->params,
                                         &plan->attention);
}

/* Of what fails because cuDNN refuses it: an error, or a line of the log. */
static loong_status_t judge(loong_context_t *ctx,
                            const loong_kernel_query_t *query, plans_t *plans,
                            const plan_t *plan, loong_status_t status)
{
    const loong_cudnn_attention_params_t *p = &plan->params;
    if (status != LOONG_ERR_UNSUPPORTED ||
        query->policy.attention == LOONG_ATTENTION_FUSED) {
        loongi_error_note(ctx,
                          "%s, train.attention_backend: fused; with auto own "
                          "kernels take what cuDNN refuses", query->op);
        return status;
    }
    if (!plans->absent) {
        loongi_log(ctx, LOONG_LOG_WARN,
                   "%s of %lld x %lld rows%s, %d heads of %d channels, %d of "
                   "keys: an own kernel takes over from cuDNN: %s", query->op,
                   (long long)p->segments, (long long)p->length,
                   p->dense ? "" : " at most", p->heads, p->head_dim,
                   p->kv_heads, loong_context_error(ctx));
    }
    plans->absent = plans->cudnn == NULL;
    loong_context_clear_error(ctx);
    return LOONG_OK;
}

static loong_status_t find_plan(loong_context_t *ctx,
                                const loong_kernel_query_t *query,
                                plans_t *plans, const plan_t **plan_p)
{
    loong_cudnn_attention_params_t whole = whole_of(query);
    loong_cudnn_attention_params_t params = part_of(&whole);
    plan_t *plan = plans->first;
    while (plan != NULL &&
           !loongi_cudnn_attention_is_alike(&plan->params, &params)) {
        plan = plan->next;
    }
    if (plan == NULL) {
        LOONG_TRY(loongi_alloc(ctx, sizeof(*plan), "plan of cuDNN", &plan));
        plan->params = params;
        loong_status_t status = build(ctx, plans, plan);
        if (status != LOONG_OK) {
            status = judge(ctx, query, plans, plan, status);
        }
        if (status != LOONG_OK) {
            loongi_free(ctx, plan);
            return status;
        }
        plan->next = plans->first;
        plans->first = plan;
    }
    *plan_p = plan;
    return LOONG_OK;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query,
                              void **state_p)
{
    state_t *state = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*state), "attention of cuDNN", &state));
    LOONG_TRY_GOTO(join_plans(ctx, &state->plans), status, err_state);
    LOONG_TRY_GOTO(find_plan(ctx, query, state->plans, &state->plan), status,
                   err_plans);
    *state_p = state;
    return LOONG_OK;
err_plans:
    leave_plans(ctx, state->plans);
err_state:
    loongi_free(ctx, state);
    return status;
}

static void destroy(loong_context_t *ctx, void *state)
{
    if (state != NULL) {
        leave_plans(ctx, ((state_t *)state)->plans);
    }
    loongi_free(ctx, state);
}

/* ---- running ------------------------------------------------------------- */

/* All launches of a call. */
typedef struct launches {
    const loong_kernel_call_t *call;
    loong_cudnn_attention_params_t whole;
    layout_t layout;
    const loong_cudnn_attention_params_t *part;
    loong_cudnn_attention_operands_t all; /* of the first launch */
} launches_t;

/* Pointers to the whole, and the workspace cut up. */
static loong_status_t lay_out(launches_t *l)
{
    const loong_kernel_call_t *call = l->call;
    const loong_kernel_query_t *query = call->query;
    loong_cudnn_attention_operands_t *x = &l->all;
    layout_t layout = l->layout;
    uintptr_t base = (uintptr_t)call->workspace;
    x->stream = call->stream;
    x->workspace = (char *)loongi_round_up((int64_t)base, ALIGN);
    x->lengths =
        l->whole.dense ? NULL : (int32_t *)(void *)x->workspace;
    x->workspace += layout.rounds * layout.lengths;
    float *lse = layout.lse > 0 ? (float *)(void *)x->workspace : NULL;
    x->workspace += layout.lse;
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        int at = place_of(query, o);
        x->ptr[o] = o == LOONG_CUDNN_LSE && lse != NULL ? lse
                    : at >= 0                           ? call->ptr[at]
                                                        : NULL;
        LOONG_CHECK(call->ctx, (uintptr_t)x->ptr[o] % 16 == 0, LOONG_ERR_ARG,
                    "%s: operand %d begins at no multiple of 16 bytes",
                    query->op, at);
        x->begin[o] = l->whole.dense || x->ptr[o] == NULL
                          ? NULL
                          : (int64_t *)(void *)x->workspace;
        x->workspace += layout.rounds * layout.begin;
    }
    return LOONG_OK;
}

static loong_status_t find_begins(const launches_t *l)
{
    const loong_kernel_query_t *query = l->call->query;
    loong_attention_begins_t b;
    memset(&b, 0, sizeof(b));
    b.launches = l->layout.rounds;
    b.segments = l->part->segments;
    b.lengths_pitch = l->layout.lengths / (int64_t)sizeof(*b.lengths);
    b.begin_pitch = l->layout.begin / (int64_t)sizeof(*b.begin[0]);
    b.lengths = l->all.lengths;
    memcpy(b.begin, l->all.begin, sizeof(b.begin));
    memcpy(b.ld, l->whole.ld, sizeof(b.ld));
    return loongi_attention_begins(l->call, cu_of(query),
                                   place_of(query, LOONG_CUDNN_K), &b);
}

/* `back`: what a forward wrote. */
static loong_status_t turn_lse(const launches_t *l, bool back)
{
    const loong_cudnn_attention_params_t *p = &l->whole;
    loong_attention_lse_t lse = {
        place_of(l->call->query, LOONG_CUDNN_LSE), l->all.ptr[LOONG_CUDNN_LSE],
        p->length, loongi_cudnn_attention_lse_length(p), back};
    return p->dense && wants_lse(l->call->query) && back == !p->gradient
               ? loongi_attention_turn_lse(l->call, &lse)
               : LOONG_OK;
}

/* The launch of these segments, from round * part->segments on, and heads. */
static loong_status_t run_part(const launches_t *l,
                               loong_cudnn_attention_t *attention,
                               int64_t round, int head)
{
    static const bool of_keys[LOONG_CUDNN_OPERANDS] = {
        [LOONG_CUDNN_K] = true, [LOONG_CUDNN_V] = true,
        [LOONG_CUDNN_DK] = true, [LOONG_CUDNN_DV] = true};
    static const bool of_values[LOONG_CUDNN_OPERANDS] = {
        [LOONG_CUDNN_V] = true, [LOONG_CUDNN_O] = true,
        [LOONG_CUDNN_GRAD_O] = true, [LOONG_CUDNN_DV] = true};
    const loong_cudnn_attention_params_t *p = &l->whole;
    loong_cudnn_attention_operands_t x = l->all;
    int64_t segment = round * l->part->segments;
    int64_t row = p->dense ? segment * p->length : 0;
    int group = p->heads / p->kv_heads;
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        int h = of_keys[o] ? head / group : head;
        int64_t at = row * p->ld[o] +
                     (int64_t)h * (of_values[o] ? p->v_head_dim : p->head_dim);
        if (x.begin[o] != NULL) {
            x.begin[o] += round * l->layout.begin / (int64_t)sizeof(int64_t);
        }
        if (x.ptr[o] != NULL && o != LOONG_CUDNN_LSE) {
            x.ptr[o] = (uint16_t *)x.ptr[o] + at;
        }
    }
    if (x.ptr[LOONG_CUDNN_LSE] != NULL) {
        int64_t at = p->dense ? (segment * p->heads + head) *
                                    loongi_cudnn_attention_lse_length(p)
                              : head;
        x.ptr[LOONG_CUDNN_LSE] = (float *)x.ptr[LOONG_CUDNN_LSE] + at;
    }
    if (x.lengths != NULL) {
        x.lengths += round * l->layout.lengths / (int64_t)sizeof(int32_t);
    }
    return loongi_cudnn_attention_run(l->call->ctx, attention, &x);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const plan_t *plan = ((const state_t *)call->state)->plan;
    launches_t l;
    if (plan->attention == NULL) {
        return own_kernel(call->query)->run(call);
    }
    memset(&l, 0, sizeof(l));
    l.call = call;
    l.whole = whole_of(call->query);
    l.layout = layout_of(call->query, &l.whole);
    l.part = &plan->params;
    LOONG_TRY(lay_out(&l));
    LOONG_TRY(find_begins(&l));
    LOONG_TRY(turn_lse(&l, false));
    for (int64_t r = 0; r < l.layout.rounds; r++) {
        for (int h = 0; h < l.whole.heads; h += l.part->heads) {
            LOONG_TRY(run_part(&l, plan->attention, r, h));
        }
    }
    return turn_lse(&l, true);
}

/* The gradients of scores that count, in bf16, are written and read. */
static double more_bytes(const loong_kernel_query_t *query)
{
    loong_cudnn_attention_params_t p = whole_of(query);
    double n = (double)p.length;
    double w = p.window > 0 ? LOONG_MIN((double)p.window, n) : n;
    double keys = p.causal ? w - w * (w - 1.0) / (2.0 * n) : n;
    return 4.0 * (double)p.rows * p.heads * keys;
}

#define CUDNN_KERNEL(op_, more_bytes_)                                        \
    const loong_kernel_t loongi_##op_##_cudnn_cuda = {                        \
        .name = #op_ "_cudnn_cuda", .op = #op_, .device = "cuda",             \
        .support = support, .workspace = workspace, .prepare = prepare,       \
        .destroy = destroy, .run = run, .more_bytes = more_bytes_}
CUDNN_KERNEL(attention, NULL);
CUDNN_KERNEL(attention_grad, more_bytes);
