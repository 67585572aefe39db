/* SPDX-License-Identifier: Apache-2.0
 *
 * grouped_linear and its gradient of weights by oneDNN (formulas: moe_ref.c):
 * one product for each expert that has rows, of a primitive whose number of
 * rows comes with the launch. Two kernels each, as for linear: in the operands'
 * own types, and in fp32 on widened copies. Listed in kernels/list.h; read
 * onednn.h before. */
#include <stdio.h>
#include <string.h>

#include "isa.h"
#include "moe.h"
#include "onednn/onednn.h"
#include "widen.h"

static bool is_dw(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "grouped_linear_dw") == 0;
}

/* An operand of one expert as a matrix. */
static loong_product_matrix_t matrix_of(const loong_karg_t *arg, bool widened,
                                        bool transposed)
{
    loong_product_matrix_t m = {widened ? LOONG_F32 : arg->dtype,
                                widened ? loong_karg_cols(arg) : arg->ld,
                                transposed};
    return m;
}

static loong_product_params_t product_of(const loong_kernel_query_t *q,
                                         bool widened)
{
    const loong_karg_t *c = &q->arg[q->num_in];
    loong_product_params_t p;
    memset(&p, 0, sizeof(p));
    p.n = loong_karg_cols(c);
    p.c = matrix_of(c, widened && c->dtype == LOONG_BF16, false);
    p.threads = q->threads;
    p.a = matrix_of(&q->arg[0], widened, is_dw(q));
    if (is_dw(q)) {
        p.m = loong_karg_cols(&q->arg[0]);
        p.k = LOONG_PRODUCT_RUNTIME;
        p.b = matrix_of(&q->arg[1], widened, false);
    } else {
        const loong_grouped_linear_attr_t *attr = q->attr;
        p.m = LOONG_PRODUCT_RUNTIME;
        p.k = loong_karg_cols(&q->arg[0]);
        p.b = matrix_of(&q->arg[1], widened, !attr->transposed);
    }
    return p;
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t p = product_of(q, false);
    return loongi_product_support(&p, reason);
}

static bool widened_support(const loong_kernel_query_t *q,
                            char reason[LOONG_REASON_SIZE])
{
    loong_product_params_t p = product_of(q, true);
    if (q->arg[0].dtype != LOONG_BF16 || q->arg[1].dtype != LOONG_BF16 ||
        q->arg[q->num_in].dtype == LOONG_F64) {
        snprintf(reason, LOONG_REASON_SIZE, "only widens bf16 operands");
        return false;
    }
    return loongi_product_support(&p, reason);
}

static void destroy(loong_context_t *ctx, void *state)
{
    if (state != NULL) {
        loongi_product_pair_destroy(ctx, state);
        loongi_free(ctx, state);
    }
}

static loong_status_t make(loong_context_t *ctx, const loong_kernel_query_t *q,
                           bool widened, void **state_p)
{
    loong_product_pair_t *pair = NULL;
    loong_product_params_t p = product_of(q, widened);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*pair), "grouped linear kernel", &pair));
    loong_status_t status = loongi_product_pair_create(
        ctx, &p, (q->accumulate & 1u) != 0, pair);
    if (status != LOONG_OK) {
        loongi_free(ctx, pair);
        return status;
    }
    *state_p = pair;
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

/* Operand i from `row` on. */
static void *at(const loong_kernel_call_t *call, int i, int64_t row)
{
    const loong_karg_t *arg = &call->query->arg[i];
    return (char *)call->ptr[i] +
           (size_t)(row * arg->ld) * loong_dtype_size(arg->dtype);
}

/* Rows of operand i in fp32, at the cursor. */
static const float *widen(const loong_kernel_call_t *call, int i, int64_t row,
                          int64_t rows, char **cursor)
{
    const loong_karg_t *arg = &call->query->arg[i];
    int64_t cols = loong_karg_cols(arg);
    float *copy = (float *)(void *)*cursor;
    loongi_widen(at(call, i, row), arg->ld, copy, rows, cols,
                 call->query->threads);
    *cursor += loongi_round_up(rows * cols * (int64_t)sizeof(*copy), 64);
    return copy;
}

/* The product of expert e, of its rows begin .. begin + rows - 1. */
typedef struct expert {
    int64_t index;
    int64_t begin;
    int64_t rows;
    const loong_product_t *product;
} expert_t;

static loong_status_t run_expert(const loong_kernel_call_t *call,
                                 const expert_t *e, bool widened)
{
    const loong_kernel_query_t *q = call->query;
    const loong_karg_t *c = &q->arg[q->num_in];
    bool dw = is_dw(q);
    bool narrow = widened && c->dtype == LOONG_BF16;
    int64_t b_row = dw ? e->begin : e->index * q->arg[1].dim[1];
    int64_t b_rows = dw ? e->rows : q->arg[1].dim[1];
    int64_t c_row = dw ? e->index * c->dim[1] : e->begin;
    char *cursor = call->workspace;
    loong_product_operands_t o;
    memset(&o, 0, sizeof(o));
    o.runtime = e->rows;
    o.a = widened ? (const void *)widen(call, 0, e->begin, e->rows, &cursor)
                  : at(call, 0, e->begin);
    o.b = widened ? (const void *)widen(call, 1, b_row, b_rows, &cursor)
                  : at(call, 1, b_row);
    o.c = narrow ? cursor : at(call, q->num_in, c_row);
    LOONG_TRY(loongi_product_run(call->ctx, e->product, &o));
    if (narrow) {
        loongi_narrow(o.c, at(call, q->num_in, c_row), c->ld, e->rows,
                      loong_karg_cols(c), q->threads);
    }
    return LOONG_OK;
}

/* Rows of the gradient of an expert that has none. */
static void clear(const loong_kernel_call_t *call, int64_t row, int64_t rows)
{
    const loong_karg_t *c = &call->query->arg[call->query->num_in];
    size_t bytes = (size_t)loong_karg_cols(c) *
                   loong_dtype_size(c->dtype);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t r = row; r < row + rows; r++) {
        memset(at(call, call->query->num_in, r), 0, bytes);
    }
}

static loong_status_t run_all(const loong_kernel_call_t *call, bool widened)
{
    const loong_kernel_query_t *q = call->query;
    const loong_product_pair_t *pair = call->state;
    const int32_t *offset = call->ptr[2];
    int64_t experts = q->arg[2].dim[0] - 1;
    int64_t rows = q->arg[0].dim[0];
    bool add = call->accumulate & 1u;
    LOONG_TRY(loongi_moe_check_offsets(call, 2, rows));
    for (int64_t e = 0; e < experts; e++) {
        expert_t expert = {e, offset[e], offset[e + 1] - offset[e],
                           pair->product[add]};
        if (expert.rows > 0) {
            LOONG_TRY(run_expert(call, &expert, widened));
        } else if (is_dw(q) && !add) {
            int64_t n = q->arg[q->num_in].dim[1];
            clear(call, e * n, n);
        }
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

/* All rows may be those of one expert. */
static size_t widened_workspace(const loong_kernel_query_t *q)
{
    const loong_karg_t *w = &q->arg[1];
    const loong_karg_t *c = &q->arg[q->num_in];
    int64_t rows = q->arg[0].dim[0];
    int64_t b_rows = is_dw(q) ? rows : w->dim[1];
    int64_t bytes = loongi_round_up(rows * loong_karg_cols(&q->arg[0]) *
                                        (int64_t)sizeof(float), 64);
    bytes += loongi_round_up(b_rows * loong_karg_cols(w) *
                                 (int64_t)sizeof(float), 64);
    bytes += c->dtype == LOONG_BF16
                 ? loongi_round_up(rows * loong_karg_cols(c) *
                                       (int64_t)sizeof(float), 64)
                 : 0;
    return (size_t)bytes;
}

#define GROUPED_KERNEL(op_, suffix_, prefix_, workspace_)       \
    const loong_kernel_t loongi_##op_##_onednn##suffix_ = {     \
        .name = #op_ "_onednn" #suffix_,                        \
        .op = #op_,                                             \
        .device = "cpu",                                        \
        .support = prefix_##support,                            \
        .workspace = workspace_,                                \
        .prepare = prefix_##prepare,                            \
        .destroy = destroy,                                     \
        .run = prefix_##run,                                    \
    }

GROUPED_KERNEL(grouped_linear, , , NULL);
GROUPED_KERNEL(grouped_linear, _widened, widened_, widened_workspace);
GROUPED_KERNEL(grouped_linear_dw, , , NULL);
GROUPED_KERNEL(grouped_linear_dw, _widened, widened_, widened_workspace);
