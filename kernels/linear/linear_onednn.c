/* SPDX-License-Identifier: Apache-2.0
 *
 * linear and linear_dw by oneDNN (formulas: linear_ref.c). Two kernels each:
 * in the operands' own type, and, where the processor has no bf16 product or
 * one operand is fp32, one that widens bf16 operands into the workspace and
 * multiplies in fp32. Listed in kernels/list.h; read onednn.h before. */
#include <stdio.h>
#include <string.h>

#include "isa.h"
#include "loong/ops.h"
#include "onednn/onednn.h"
#include "widen.h"

/* What one launch needs. */
typedef struct linear_state {
    loong_product_pair_t pair;
    int a; /* which operand is A; the other is B */
    bool bias;
} linear_state_t;

static bool is_dw(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "linear_dw") == 0;
}

static loong_product_matrix_t matrix_of(const loong_karg_t *arg,
                                        bool transposed)
{
    loong_product_matrix_t m = {arg->dtype, arg->ld, transposed};
    return m;
}

static bool has_bias(const loong_kernel_query_t *q)
{
    return !is_dw(q) && q->num_in > 2 && q->arg[2].rank > 0;
}

/* The product of a query. linear: y = x w'. linear_dw: dw = dy' x, or x' dy
 * with `transposed`. */
static loong_product_params_t product_of(const loong_kernel_query_t *q)
{
    const loong_linear_attr_t *attr = q->attr;
    const loong_karg_t *c = &q->arg[q->num_in];
    loong_product_params_t p;
    memset(&p, 0, sizeof(p));
    p.m = loong_karg_rows(c);
    p.n = loong_karg_cols(c);
    p.c = matrix_of(c, false);
    p.threads = q->threads;
    if (is_dw(q)) {
        p.k = loong_karg_rows(&q->arg[0]);
        p.a = matrix_of(&q->arg[attr->transposed ? 1 : 0], true);
        p.b = matrix_of(&q->arg[attr->transposed ? 0 : 1], false);
    } else {
        p.k = loong_karg_cols(&q->arg[0]);
        p.a = matrix_of(&q->arg[0], false);
        p.b = matrix_of(&q->arg[1], !attr->transposed);
        p.bias = has_bias(q);
        p.activation = attr->activation;
    }
    return p;
}

/* A dense fp32 copy in place of a matrix of bf16. */
static void widen_matrix(loong_product_matrix_t *m, int64_t rows, int64_t cols)
{
    if (m->dtype == LOONG_BF16) {
        m->dtype = LOONG_F32;
        m->ld = m->transposed ? rows : cols;
    }
}

static loong_product_params_t widened_of(const loong_kernel_query_t *q)
{
    loong_product_params_t p = product_of(q);
    widen_matrix(&p.a, p.m, p.k);
    widen_matrix(&p.b, p.k, p.n);
    widen_matrix(&p.c, p.m, p.n);
    return p;
}

static bool shape_support(const loong_kernel_query_t *q,
                          char reason[LOONG_REASON_SIZE])
{
    if (!is_dw(q) && q->num_out > 1 && q->arg[q->num_in + 1].rank > 0) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "the value before the activation is wanted too");
        return false;
    }
    if (has_bias(q) && q->arg[2].dtype != LOONG_F32) {
        snprintf(reason, LOONG_REASON_SIZE, "bias of type %s",
                 loong_dtype_name(q->arg[2].dtype));
        return false;
    }
    return true;
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t p = product_of(q);
    return shape_support(q, reason) && loongi_product_support(&p, reason);
}

static bool is_narrow(const loong_karg_t *arg)
{
    return arg->dtype == LOONG_BF16;
}

static bool widened_support(const loong_kernel_query_t *q,
                            char reason[LOONG_REASON_SIZE])
{
    const loong_karg_t *c = &q->arg[q->num_in];
    loong_product_params_t p = widened_of(q);
    if (!is_narrow(&q->arg[0]) && !is_narrow(&q->arg[1])) {
        snprintf(reason, LOONG_REASON_SIZE, "only widens bf16 operands");
        return false;
    }
    if (q->accumulate != 0 && is_narrow(c)) {
        snprintf(reason, LOONG_REASON_SIZE, "adds to no bf16 output");
        return false;
    }
    return shape_support(q, reason) && loongi_product_support(&p, reason);
}

/* The add bit only matters where it changes the scratchpad: the larger. */
static size_t product_bytes(const loong_kernel_query_t *q,
                            loong_product_params_t p)
{
    size_t size = loongi_product_workspace(&p);
    if (q->accumulate & 1u) {
        p.add = true;
        size_t adding = loongi_product_workspace(&p);
        size = LOONG_MAX(size, adding);
    }
    return (size_t)loongi_round_up((int64_t)size, 64);
}

static size_t workspace(const loong_kernel_query_t *q)
{
    return product_bytes(q, product_of(q));
}

/* Of the fp32 copy of an operand; none of one that is not narrow. */
static size_t copy_bytes(const loong_karg_t *arg)
{
    if (!is_narrow(arg)) {
        return 0;
    }
    return (size_t)loongi_round_up(loong_karg_rows(arg) *
                                       loong_karg_cols(arg) *
                                       (int64_t)sizeof(float),
                                   64);
}

static size_t widened_workspace(const loong_kernel_query_t *q)
{
    return product_bytes(q, widened_of(q)) + copy_bytes(&q->arg[0]) +
           copy_bytes(&q->arg[1]) + copy_bytes(&q->arg[q->num_in]);
}

static void destroy(loong_context_t *ctx, void *state)
{
    linear_state_t *s = state;
    if (s != NULL) {
        loongi_product_pair_destroy(ctx, &s->pair);
        loongi_free(ctx, s);
    }
}

static loong_status_t make(loong_context_t *ctx, const loong_kernel_query_t *q,
                           loong_product_params_t p, void **state_p)
{
    linear_state_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "linear kernel", &s));
    const loong_linear_attr_t *attr = q->attr;
    s->a = is_dw(q) && attr->transposed ? 1 : 0;
    s->bias = has_bias(q);
    loong_status_t status = loongi_product_pair_create(
        ctx, &p, (q->accumulate & 1u) != 0, &s->pair);
    if (status != LOONG_OK) {
        loongi_free(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *q, void **state_p)
{
    return make(ctx, q, product_of(q), state_p);
}

static loong_status_t widened_prepare(loong_context_t *ctx,
                                      const loong_kernel_query_t *q,
                                      void **state_p)
{
    return make(ctx, q, widened_of(q), state_p);
}

static const loong_product_t *product_of_call(const loong_kernel_call_t *call)
{
    const linear_state_t *s = call->state;
    return s->pair.product[call->accumulate & 1u];
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const linear_state_t *s = call->state;
    loong_product_operands_t o = {call->ptr[s->a], call->ptr[1 - s->a],
                                  s->bias ? call->ptr[2] : NULL,
                                  call->ptr[q->num_in], call->workspace, 0};
    return loongi_product_run(call->ctx, product_of_call(call), &o);
}

static const float *widen_operand(const loong_kernel_call_t *call, int i,
                                  char **cursor)
{
    const loong_karg_t *arg = &call->query->arg[i];
    float *copy = (float *)(void *)*cursor;
    if (!is_narrow(arg)) {
        return call->ptr[i];
    }
    *cursor += copy_bytes(arg);
    loongi_widen(call->ptr[i], arg->ld, copy, loong_karg_rows(arg),
                 loong_karg_cols(arg), call->query->threads);
    return copy;
}

static loong_status_t widened_run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const linear_state_t *s = call->state;
    const loong_karg_t *c = &q->arg[q->num_in];
    char *cursor = call->workspace;
    const float *in[2];
    in[0] = widen_operand(call, 0, &cursor);
    in[1] = widen_operand(call, 1, &cursor);
    loong_product_operands_t o = {in[s->a], in[1 - s->a],
                                  s->bias ? call->ptr[2] : NULL,
                                  call->ptr[q->num_in], NULL, 0};
    if (is_narrow(c)) {
        o.c = cursor;
        cursor += copy_bytes(c);
    }
    o.workspace = cursor;
    LOONG_TRY(loongi_product_run(call->ctx, product_of_call(call), &o));
    if (is_narrow(c)) {
        loongi_narrow(o.c, call->ptr[q->num_in], c->ld,
                      loong_karg_rows(c), loong_karg_cols(c),
                      q->threads);
    }
    return LOONG_OK;
}

#define LINEAR_KERNEL(symbol_, name_, op_, prefix_) \
    const loong_kernel_t symbol_ = {                \
        .name = name_,                              \
        .op = op_,                                  \
        .device = "cpu",                            \
        .support = prefix_##support,                \
        .workspace = prefix_##workspace,            \
        .prepare = prefix_##prepare,                \
        .destroy = destroy,                         \
        .run = prefix_##run,                        \
    }

LINEAR_KERNEL(loongi_linear_onednn, "linear_onednn", "linear", );
LINEAR_KERNEL(loongi_linear_onednn_widened, "linear_onednn_widened", "linear",
              widened_);
LINEAR_KERNEL(loongi_linear_dw_onednn, "linear_dw_onednn", "linear_dw", );
LINEAR_KERNEL(loongi_linear_dw_onednn_widened, "linear_dw_onednn_widened",
              "linear_dw", widened_);
