/* SPDX-License-Identifier: Apache-2.0
 *
 * grouped_linear and grouped_linear_dw: a product by libxpu_blas for each
 * expert. How many rows an expert has is known on the device; libxpu_blas is
 * told by the host, which waits for it. The formulas stand in moe_ref.c;
 * entered by launch_xpu.c. */
#include <stdio.h>

#include "base.h"
#include "loong/device.h"
#include "loong/moe.h"
#include "loong/ops.h"
#include "parts_xpu.h"
#include "xpu_kernels.h"

static bool is_dw(const loong_kernel_query_t *q)
{
    return q->attr == NULL || q->arg[1].rank < 3;
}

static bool support(const loong_kernel_query_t *q,
                    char reason[LOONG_REASON_SIZE])
{
    loong_dtype_t dtype = q->arg[0].dtype;
    bool out =
        q->arg[3].dtype == dtype || (is_dw(q) && q->arg[3].dtype == LOONG_F32);
    if ((dtype != LOONG_F32 && dtype != LOONG_BF16) ||
        q->arg[1].dtype != dtype || !out) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%s times %s to %s, libxpu_blas takes fp32 or bf16, and makes "
                 "that or fp32",
                 loong_dtype_name(dtype), loong_dtype_name(q->arg[1].dtype),
                 loong_dtype_name(q->arg[3].dtype));
        return false;
    }
    return loongi_xpu_has_blas(reason);
}

typedef struct state {
    void *products;
    int32_t offset[]; /* of the experts' rows */
} state_t;

/* Expert e: its rows are [first, first + rows). */
static loong_status_t multiply(const loong_kernel_call_t *call, int64_t e,
                               int64_t first, int64_t rows)
{
    const loong_kernel_query_t *q = call->query;
    bool dw = is_dw(q);
    int three = dw ? 3 : 1; /* which operand has a matrix of each expert */
    loong_linear_attr_t attr = {.transposed = false};
    int64_t own = q->arg[three].dim[1];
    loong_xpu_mat_t m[3] = {loongi_xpu_rows(call, 0, first, rows),
                            dw ? loongi_xpu_rows(call, 1, first, rows)
                               : loongi_xpu_rows(call, 1, e * own, own),
                            dw ? loongi_xpu_rows(call, 3, e * own, own)
                               : loongi_xpu_rows(call, 3, first, rows)};
    if (!dw) {
        const loong_grouped_linear_attr_t *a = q->attr;
        attr.transposed = a->transposed;
    }
    const state_t *s = call->state;
    loong_xpu_part_t part = {loongi_xpu_product(dw ? "linear_dw" : "linear"),
                             s->products,
                             NULL,
                             &attr,
                             2,
                             1};
    return loongi_xpu_launch(call, &part, m, (call->accumulate & 1u) != 0);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int32_t *offset = ((state_t *)call->state)->offset;
    int64_t experts = q->arg[2].dim[0] - 1;
    if (call->load) {
        return multiply(call, 0, 0, 1);
    }
    LOONG_TRY(loongi_xpu_read_offsets(call, 2, offset));
    for (int64_t e = 0; e < experts; e++) {
        int64_t rows = offset[e + 1] - offset[e];
        if (rows > 0 || is_dw(q)) {
            LOONG_TRY(multiply(call, e, offset[e], rows));
        }
    }
    return LOONG_OK;
}

static void destroy(loong_context_t *ctx, void *state)
{
    state_t *s = state;
    if (s != NULL) {
        loongi_xpu_product("linear")->destroy(ctx, s->products);
    }
    loongi_free(ctx, s);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    size_t count = (size_t)query->arg[2].dim[0];
    state_t *s = NULL;
    LOONG_TRY(loongi_calloc(ctx, 1, sizeof(*s) + count * sizeof(s->offset[0]),
                            "products of experts", &s));
    loong_status_t status =
        loongi_xpu_product("linear")->prepare(ctx, query, &s->products);
    if (status != LOONG_OK) {
        loongi_free(ctx, s);
        return status;
    }
    *state_p = s;
    return LOONG_OK;
}

const loong_kernel_t loongi_xpu_grouped = {.name = "grouped_linear_xblas",
                                           .op = "grouped_linear",
                                           .device = "xpu",
                                           .support = support,
                                           .prepare = prepare,
                                           .destroy = destroy,
                                           .run = run,
                                           .waits = true};
const loong_kernel_t loongi_xpu_grouped_dw = {.name = "grouped_linear_dw_xblas",
                                              .op = "grouped_linear_dw",
                                              .device = "xpu",
                                              .support = support,
                                              .prepare = prepare,
                                              .destroy = destroy,
                                              .run = run,
                                              .waits = true};
