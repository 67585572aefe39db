/* SPDX-License-Identifier: Apache-2.0
 *
 * attention and attention_grad by cuDNN (kernels/cudnn), where
 * train.attention_backend asks for it. Building a plan takes seconds: layers
 * that are alike share one. What cuDNN refuses is told once and, with auto, an
 * own kernel takes over: which it is, is known before memory is planned only
 * for refusals that stand here, so both fit the workspace. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attention_cudnn.h"
#include "list.h"
#include "products.h"

/* Segments have blocks of their own in cuDNN's kernels, empty ones too. Of
 * memory a launch gets no more than this. */
enum { MOST_SEGMENTS = 512, MOST_GIB = 8, ALIGN = 256 };

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
    return q->count < 0 && segments * length == q->dim[0];
}

static loong_cudnn_attention_params_t
params_of(const loong_kernel_query_t *query)
{
    const loong_attention_attr_t *attr = query->attr;
    loong_cudnn_attention_params_t p;
    memset(&p, 0, sizeof(p)); /* compared as bytes */
    p.gradient = is_gradient(query);
    p.lse = query->arg[place_of(query, LOONG_CUDNN_LSE)].rank > 0;
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
    return p;
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
    double room = (double)loongi_cudnn_attention_room(p) / (1 << 30);
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
    if (room > MOST_GIB) {
        return refuse(reason,
                      "sums in a fixed order want %.1f GiB of workspace, at "
                      "most %d are given", room, (int)MOST_GIB);
    }
    return true;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    const loong_attention_attr_t *attr = query->attr;
    if (attr->backend == LOONG_ATTENTION_LOCAL) {
        return refuse(reason, "train.attention_backend is local");
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
    loong_cudnn_attention_params_t p = params_of(query);
    return takes_rows(query, reason) && takes_sizes(&p, reason);
}

/* ---- workspace: lengths, beginnings, the plan's -------------------------- */

static int64_t lengths_bytes(const loong_cudnn_attention_params_t *p)
{
    return p->dense ? 0
                    : loongi_round_up(p->segments * (int64_t)sizeof(int32_t),
                                      ALIGN);
}

static int64_t begin_bytes(const loong_cudnn_attention_params_t *p)
{
    return p->dense
               ? 0
               : loongi_round_up((p->segments + 1) * (int64_t)sizeof(int64_t),
                                 ALIGN);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    loong_cudnn_attention_params_t p = params_of(query);
    size_t bytes = (size_t)(ALIGN + lengths_bytes(&p) +
                            LOONG_CUDNN_OPERANDS * begin_bytes(&p) +
                            loongi_cudnn_attention_room(&p));
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

static loong_status_t join_plans(loong_context_t *ctx, plans_t **plans_p)
{
    void **slot = loongi_context_attention_plans(ctx);
    if (*slot == NULL) {
        LOONG_TRY(loongi_alloc(ctx, sizeof(plans_t), "plans of cuDNN", slot));
    }
    *plans_p = *slot;
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
    *loongi_context_attention_plans(ctx) = NULL;
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
    const loong_attention_attr_t *attr = query->attr;
    const loong_cudnn_attention_params_t *p = &plan->params;
    if (status != LOONG_ERR_UNSUPPORTED ||
        attr->backend == LOONG_ATTENTION_FUSED) {
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
    loong_cudnn_attention_params_t params = params_of(query);
    plan_t *plan = plans->first;
    while (plan != NULL &&
           memcmp(&plan->params, &params, sizeof(params)) != 0) {
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

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *query = call->query;
    const plan_t *plan = ((const state_t *)call->state)->plan;
    const loong_cudnn_attention_params_t *p = &plan->params;
    loong_cudnn_attention_operands_t x;
    loong_attention_begins_t b;
    if (plan->attention == NULL) {
        return own_kernel(query)->run(call);
    }
    memset(&x, 0, sizeof(x));
    memset(&b, 0, sizeof(b));
    uintptr_t base = (uintptr_t)call->workspace;
    x.workspace = (char *)loongi_round_up((int64_t)base, ALIGN);
    x.stream = call->stream;
    x.lengths = b.lengths = p->dense ? NULL : (int32_t *)(void *)x.workspace;
    x.workspace += lengths_bytes(p);
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        int at = place_of(query, o);
        x.ptr[o] = at >= 0 ? call->ptr[at] : NULL;
        LOONG_CHECK(call->ctx, (uintptr_t)x.ptr[o] % 16 == 0, LOONG_ERR_ARG,
                    "%s: operand %d begins at no multiple of 16 bytes",
                    query->op, at);
        x.begin[o] = b.begin[o] =
            p->dense || x.ptr[o] == NULL ? NULL
                                         : (int64_t *)(void *)x.workspace;
        b.ld[o] = p->ld[o];
        x.workspace += begin_bytes(p);
    }
    LOONG_TRY(loongi_attention_begins(call, cu_of(query),
                                      place_of(query, LOONG_CUDNN_K), &b));
    return loongi_cudnn_attention_run(call->ctx, plan->attention, &x);
}

const loong_kernel_t loongi_attention_cudnn_cuda = {
    .name = "attention_cudnn_cuda",
    .op = "attention",
    .device = "cuda",
    .support = support,
    .workspace = workspace,
    .prepare = prepare,
    .destroy = destroy,
    .run = run,
};

const loong_kernel_t loongi_attention_grad_cudnn_cuda = {
    .name = "attention_grad_cudnn_cuda",
    .op = "attention_grad",
    .device = "cuda",
    .support = support,
    .workspace = workspace,
    .prepare = prepare,
    .destroy = destroy,
    .run = run,
};
