/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_quantized and linear_add by libxpu_blas: a matrix of codes is widened
 * by the shim before its product, one expert's at a time; what a product is
 * added to is copied before. The formulas stand in linear_quantized_ref.c and
 * linear_add_ref.c; entered by launch_xpu.c. */
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "loong/device.h"
#include "loong/ops.h"
#include "loong/quantize.h"
#include "parts_xpu.h"
#include "xpu_kernels.h"

typedef struct state {
    void *product;
    void *raw[2];     /* of the shim: see ops_of */
    int32_t offset[]; /* of the experts' rows */
} state_t;

enum { MOST_RAW = 2 };

static bool is_quantized(const loong_kernel_query_t *q)
{
    return strcmp(q->op, "linear_quantized") == 0;
}

/* What the shim does beside a product. */
static const char *const *ops_of(const loong_kernel_query_t *q)
{
    static const char *const quantized[MOST_RAW] = {"dequantize_blockwise",
                                                    "bias"};
    static const char *const add[MOST_RAW] = {"copy", NULL};
    return is_quantized(q) ? quantized : add;
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    loong_dtype_t dtype = q->arg[0].dtype;
    bool same = q->arg[q->num_in].dtype == dtype;
    for (int i = 1; i < q->num_in && !is_quantized(q); i++) {
        same = same && q->arg[i].dtype == dtype;
    }
    if ((dtype != LOONG_F32 && dtype != LOONG_BF16) || !same) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%s to %s, or of two types: fp32 or bf16 are taken",
                 loong_dtype_name(dtype),
                 loong_dtype_name(q->arg[q->num_in].dtype));
        return false;
    }
    return loongi_xpu_has_blas(reason);
}

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s != NULL) {
        loongi_xpu_product("linear")->destroy(ctx, s->product);
        for (int i = 0; i < MOST_RAW; i++) {
            loongi_xpu_raw.destroy(ctx, s->raw[i]);
        }
    }
    loongi_free(ctx, s);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *q, void **state_p)
{
    size_t offsets = q->num_in > 3 ? (size_t)q->arg[3].dim[0] : 2;
    const char *const *ops = ops_of(q);
    state_t *s = NULL;
    LOONG_TRY(loongi_calloc(ctx, 1,
                            sizeof(*s) + offsets * sizeof(s->offset[0]),
                            "products of adapters", &s));
    loong_status_t status =
        loongi_xpu_product("linear")->prepare(ctx, q, &s->product);
    for (int i = 0; i < MOST_RAW && status == LOONG_OK && ops[i] != NULL; i++) {
        status = loongi_xpu_prepare_raw(ctx, ops[i], &s->raw[i]);
    }
    if (status != LOONG_OK) {
        destroy(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

/* ---- linear_quantized ---------------------------------------------------- */

static bool has_bias(const loong_kernel_query_t *q)
{
    return q->num_in > 2 && q->arg[2].rank > 0;
}

static int64_t experts_of(const loong_kernel_query_t *q)
{
    return q->num_in > 3 ? q->arg[1].dim[0] : 1;
}

/* Numbers of one expert's matrix. */
static size_t matrix_bytes(const loong_kernel_query_t *q)
{
    const loong_linear_quantized_attr_t *a = q->attr;
    size_t bytes = (size_t)(loong_karg_rows(&q->arg[1]) / experts_of(q)) *
                   (size_t)a->cols * loong_dtype_size(q->arg[0].dtype);
    return loongi_round_up(bytes, 256);
}

/* The sums before a bias are fp32. */
static size_t workspace(const loong_kernel_query_t *q)
{
    const loong_karg_t *y = &q->arg[q->num_in];
    bool sums = has_bias(q) && y->dtype != LOONG_F32;
    return matrix_bytes(q) +
           (sums ? (size_t)loong_karg_rows(y) * (size_t)loong_karg_cols(y) *
                       sizeof(float)
                 : 0);
}

static loong_status_t widen(const loong_kernel_call_t *call, int64_t e,
                            loong_xpu_mat_t *w_p)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_quantized_attr_t *a = q->attr;
    const state_t *s = call->state;
    int64_t rows = loong_karg_rows(&q->arg[1]) / experts_of(q);
    loong_dequantize_blockwise_attr_t attr = {a->quant, a->cols,
                                              q->arg[0].dtype};
    loong_xpu_part_t part = {
        &loongi_xpu_raw, s->raw[0], "dequantize_blockwise", &attr, 1, 1};
    loong_xpu_mat_t of[2] = {loongi_xpu_rows(call, 1, e * rows, rows),
                             loongi_xpu_mat(q->arg[0].dtype, rows, a->cols,
                                            a->cols, call->workspace)};
    *w_p = of[1];
    return loongi_xpu_launch(call, &part, of, false);
}

static loong_status_t add_bias(const loong_kernel_call_t *call,
                               const loong_xpu_mat_t *sums,
                               const loong_xpu_mat_t *y)
{
    const state_t *s = call->state;
    loong_linear_attr_t attr = {.transposed = false};
    loong_xpu_part_t part = {&loongi_xpu_raw, s->raw[1], "bias", &attr, 2, 2};
    loong_xpu_mat_t of[4] = {
        *sums, loongi_xpu_rows(call, 2, 0, loong_karg_cols(&y->arg)), *y,
        loongi_xpu_mat_none()};
    return loongi_xpu_launch(call, &part, of, false);
}

/* Rows first .. of expert e. */
static loong_status_t multiply(const loong_kernel_call_t *call, int64_t e,
                               int64_t first, int64_t rows)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_quantized_attr_t *a = q->attr;
    const state_t *s = call->state;
    loong_linear_attr_t attr = {.transposed = a->transposed};
    loong_xpu_part_t part = {
        loongi_xpu_product("linear"), s->product, NULL, &attr, 2, 1};
    loong_xpu_mat_t m[3] = {loongi_xpu_rows(call, 0, first, rows),
                            loongi_xpu_mat_none(),
                            loongi_xpu_rows(call, q->num_in, first, rows)};
    LOONG_TRY(widen(call, e, &m[1]));
    if (!has_bias(q)) {
        return loongi_xpu_launch(call, &part, m, false);
    }
    loong_xpu_mat_t y = m[2];
    int64_t cols = loong_karg_cols(&y.arg);
    if (y.arg.dtype != LOONG_F32) {
        m[2] = loongi_xpu_mat(LOONG_F32, rows, cols, cols,
                              (char *)call->workspace + matrix_bytes(q));
    }
    LOONG_TRY(loongi_xpu_launch(call, &part, m, false));
    return add_bias(call, &m[2], &y);
}

static loong_status_t run_quantized(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    state_t *s = call->state;
    int64_t experts = experts_of(q);
    s->offset[0] = 0;
    s->offset[1] = (int32_t)loong_karg_rows(&q->arg[0]);
    if (q->num_in > 3 && !call->load) {
        LOONG_TRY(loongi_xpu_read_offsets(call, 3, s->offset));
    }
    for (int64_t e = 0; e < (call->load ? 1 : experts); e++) {
        int64_t rows = s->offset[e + 1] - s->offset[e];
        if (rows > 0) {
            LOONG_TRY(multiply(call, e, s->offset[e], rows));
        }
    }
    return LOONG_OK;
}

/* ---- linear_add ---------------------------------------------------------- */

static loong_status_t run_add(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_add_attr_t *a = q->attr;
    const state_t *s = call->state;
    int64_t rows = loong_karg_rows(&q->arg[0]);
    loong_linear_attr_t attr = {.transposed = a->transposed};
    loong_xpu_part_t copy = {&loongi_xpu_raw, s->raw[0], "copy", NULL, 1, 1};
    loong_xpu_part_t product = {
        loongi_xpu_product("linear"), s->product, NULL, &attr, 2, 1};
    loong_xpu_mat_t whole[2] = {loongi_xpu_rows(call, 0, 0, rows),
                                loongi_xpu_rows(call, q->num_in, 0, rows)};
    loong_xpu_mat_t m[3] = {
        loongi_xpu_rows(call, 1, 0, rows),
        loongi_xpu_rows(call, 2, 0, loong_karg_rows(&q->arg[2])), whole[1]};
    m[2].arg.dim[1] = a->transposed ? loong_karg_cols(&q->arg[2])
                                    : loong_karg_rows(&q->arg[2]);
    m[2].ptr = (char *)m[2].ptr +
               (size_t)a->begin * loong_dtype_size(m[2].arg.dtype);
    if (whole[0].ptr != whole[1].ptr) {
        LOONG_TRY(loongi_xpu_launch(call, &copy, whole, false));
    }
    return loongi_xpu_launch(call, &product, m, true);
}

static const loong_kernel_t linear_quantized = {
    .name = "linear_quantized_xblas",
    .op = "linear_quantized",
    .device = "xpu",
    .support = support,
    .workspace = workspace,
    .prepare = prepare,
    .destroy = destroy,
    .run = run_quantized,
    .waits = true};
static const loong_kernel_t linear_add = {.name = "linear_add_xblas",
                                          .op = "linear_add",
                                          .device = "xpu",
                                          .support = support,
                                          .prepare = prepare,
                                          .destroy = destroy,
                                          .run = run_add};

const loong_kernel_t *const loongi_xpu_adapters[] = {&linear_quantized,
                                                     &linear_add, NULL};
