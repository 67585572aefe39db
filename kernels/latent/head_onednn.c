/* SPDX-License-Identifier: Apache-2.0
 *
 * head_linear and head_linear_dw by oneDNN (formulas: head_ref.c): one product
 * for each head, of a primitive that they share, on views of the operands: rows
 * of a head are `heads` rows apart. Two kernels each, as for linear: in the
 * operands' own types, and in fp32 on widened copies of one head. Listed in
 * kernels/list.h; read onednn.h before. */
#include <stdio.h>
#include <string.h>

#include "isa.h"
#include "loong/latent.h"
#include "onednn/onednn.h"
#include "widen.h"

/* One head's part of an operand. */
typedef struct part {
    int operand;
    int64_t rows;
    int64_t cols;
    int64_t step;  /* elements from one row to the next */
    int64_t begin; /* of head 0, in elements */
    int64_t next;  /* from one head to the next */
} part_t;

/* C = A B as the product of one head. */
typedef struct product {
    part_t a, b, c;
    bool a_transposed, b_transposed;
} product_t;

static bool is_dw(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "head_linear_dw") == 0;
}

/* Rows of a head among those of all tokens. */
static part_t head_rows_of(const loong_kernel_query_t *q, int i)
{
    const loong_head_linear_attr_t *attr = q->attr;
    const loong_karg_t *arg = &q->arg[i];
    part_t p = {i, loong_karg_rows(arg) / attr->heads,
                loong_karg_cols(arg), attr->heads * arg->ld, 0, arg->ld};
    return p;
}

/* Rows of a head of w or dw. */
static part_t rows_of(const loong_kernel_query_t *q, int i)
{
    const loong_head_linear_attr_t *attr = q->attr;
    const loong_karg_t *arg = &q->arg[i];
    part_t p = {i, attr->count, loong_karg_cols(arg), arg->ld,
                attr->first * arg->ld, attr->stride * arg->ld};
    return p;
}

static product_t product_of(const loong_kernel_query_t *q)
{
    const loong_head_linear_attr_t *attr = q->attr;
    int left = attr->transposed ? 1 : 0;
    if (is_dw(q)) {
        product_t dw = {head_rows_of(q, left), head_rows_of(q, 1 - left),
                        rows_of(q, 2), true, false};
        return dw;
    }
    product_t p = {head_rows_of(q, 0), rows_of(q, 1), head_rows_of(q, 2), false,
                   !attr->transposed};
    return p;
}

static bool is_narrow(const loong_kernel_query_t *q, const part_t *p)
{
    return q->arg[p->operand].dtype == LOONG_BF16;
}

static loong_product_matrix_t matrix_of(const loong_kernel_query_t *q,
                                        const part_t *p, bool widened,
                                        bool transposed)
{
    bool copied = widened && is_narrow(q, p);
    loong_product_matrix_t m = {copied ? LOONG_F32 : q->arg[p->operand].dtype,
                                copied ? p->cols : p->step, transposed};
    return m;
}

static loong_product_params_t params_of(const loong_kernel_query_t *q,
                                        bool widened)
{
    product_t of = product_of(q);
    loong_product_params_t p;
    memset(&p, 0, sizeof(p));
    p.m = of.c.rows;
    p.n = of.c.cols;
    p.k = of.a_transposed ? of.a.rows : of.a.cols;
    p.a = matrix_of(q, &of.a, widened, of.a_transposed);
    p.b = matrix_of(q, &of.b, widened, of.b_transposed);
    p.c = matrix_of(q, &of.c, widened, false);
    p.threads = q->threads;
    return p;
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t p = params_of(q, false);
    return loongi_product_support(&p, reason);
}

static bool widened_support(const loong_kernel_query_t *q,
                            char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t p = params_of(q, true);
    if (q->arg[0].dtype != LOONG_BF16 || q->arg[1].dtype != LOONG_BF16 ||
        q->arg[2].dtype == LOONG_F64) {
        snprintf(reason, LOONG_REASON_SIZE, "only widens bf16 operands");
        return false;
    }
    return loongi_product_support(&p, reason);
}

/* ---- what launches share ------------------------------------------------- */

typedef struct head_state {
    loong_product_pair_t pair;
    int64_t scratch; /* of the product itself, in bytes */
} head_state_t;

/* The add bit matters only where it changes the scratchpad: the larger. */
static int64_t scratch_bytes(const loong_kernel_query_t *q, bool widened)
{
    loong_product_params_t p = params_of(q, widened);
    size_t size = loongi_product_workspace(&p);
    if (q->accumulate & 1u) {
        p.add = true;
        size_t adding = loongi_product_workspace(&p);
        size = LOONG_MAX(size, adding);
    }
    return loongi_round_up((int64_t)size, 64);
}

static int64_t copy_bytes(const loong_kernel_query_t *q, const part_t *p)
{
    return is_narrow(q, p) ? loongi_round_up(p->rows * p->cols *
                                                 (int64_t)sizeof(float), 64)
                           : 0;
}

static size_t workspace(const loong_kernel_query_t *q)
{
    return (size_t)scratch_bytes(q, false);
}

static size_t widened_workspace(const loong_kernel_query_t *q)
{
    product_t p = product_of(q);
    return (size_t)(scratch_bytes(q, true) + copy_bytes(q, &p.a) +
                    copy_bytes(q, &p.b) + copy_bytes(q, &p.c));
}

static void destroy(loong_context_t *ctx, void *state)
{
    head_state_t *s = state;
    if (s != NULL) {
        loongi_product_pair_destroy(ctx, &s->pair);
        loongi_free(ctx, s);
    }
}

static loong_status_t make(loong_context_t *ctx, const loong_kernel_query_t *q,
                           bool widened, void **state_p)
{
    head_state_t *s = NULL;
    loong_product_params_t p = params_of(q, widened);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "head linear kernel", &s));
    s->scratch = scratch_bytes(q, widened);
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
    return make(ctx, q, false, state_p);
}

static loong_status_t widened_prepare(loong_context_t *ctx,
                                      const loong_kernel_query_t *q,
                                      void **state_p)
{
    return make(ctx, q, true, state_p);
}

/* ---- a launch ------------------------------------------------------------ */

static void *at(const loong_kernel_call_t *call, const part_t *p, int64_t head)
{
    return (char *)call->ptr[p->operand] +
           (size_t)(p->begin + head * p->next) *
               loong_dtype_size(call->query->arg[p->operand].dtype);
}

/* A head's part in fp32, at the cursor where it has to be copied. */
static const void *widened(const loong_kernel_call_t *call, const part_t *p,
                           int64_t head, char **cursor)
{
    float *copy = (float *)(void *)*cursor;
    if (!is_narrow(call->query, p)) {
        return at(call, p, head);
    }
    loongi_widen(at(call, p, head), p->step, copy, p->rows, p->cols,
                 call->query->threads);
    *cursor += copy_bytes(call->query, p);
    return copy;
}

static loong_status_t run_head(const loong_kernel_call_t *call,
                               const product_t *p, int64_t head, bool widen)
{
    const head_state_t *s = call->state;
    bool narrow = widen && is_narrow(call->query, &p->c);
    char *cursor = (char *)call->workspace + s->scratch;
    loong_product_operands_t o;
    memset(&o, 0, sizeof(o));
    o.a = widen ? widened(call, &p->a, head, &cursor) : at(call, &p->a, head);
    o.b = widen ? widened(call, &p->b, head, &cursor) : at(call, &p->b, head);
    o.c = narrow ? (void *)cursor : at(call, &p->c, head);
    o.workspace = call->workspace;
    const loong_product_t *one = s->pair.product[call->accumulate & 1u];
    LOONG_TRY(loongi_product_run(call->ctx, one, &o));
    if (narrow) {
        loongi_narrow(o.c, at(call, &p->c, head), p->c.step, p->c.rows,
                      p->c.cols, call->query->threads);
    }
    return LOONG_OK;
}

/* The rows of dw that no product writes. */
static void clear_others(const loong_kernel_call_t *call, const product_t *p)
{
    const loong_head_linear_attr_t *attr = call->query->attr;
    const loong_karg_t *dw = &call->query->arg[2];
    size_t size = loong_dtype_size(dw->dtype);
    for (int64_t r = 0; r < dw->dim[0]; r++) {
        int64_t own = r % attr->stride - attr->first;
        if (own < 0 || own >= attr->count) {
            memset((char *)call->ptr[2] + (size_t)(r * dw->ld) * size, 0,
                   (size_t)p->c.cols * size);
        }
    }
}

static loong_status_t run_all(const loong_kernel_call_t *call, bool widen)
{
    const loong_head_linear_attr_t *attr = call->query->attr;
    product_t p = product_of(call->query);
    for (int64_t h = 0; h < attr->heads && p.c.rows > 0; h++) {
        LOONG_TRY(run_head(call, &p, h, widen));
    }
    if (is_dw(call->query) && !(call->accumulate & 1u)) {
        clear_others(call, &p);
    }
    return LOONG_OK;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    return run_all(call, false);
}

static loong_status_t widened_run(const loong_kernel_call_t *call)
{
    return run_all(call, true);
}

#define HEAD_KERNEL(op_, suffix_, prefix_)                  \
    const loong_kernel_t loongi_##op_##_onednn##suffix_ = { \
        .name = #op_ "_onednn" #suffix_,                    \
        .op = #op_,                                         \
        .device = "cpu",                                    \
        .support = prefix_##support,                        \
        .workspace = prefix_##workspace,                    \
        .prepare = prefix_##prepare,                        \
        .destroy = destroy,                                 \
        .run = prefix_##run,                                \
    }

HEAD_KERNEL(head_linear, , );
HEAD_KERNEL(head_linear, _widened, widened_);
HEAD_KERNEL(head_linear_dw, , );
HEAD_KERNEL(head_linear_dw, _widened, widened_);
