/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to the ranks of their experts: with S_r the rows for rank r of the n
 * of a group, as expert_routes counts them,
 *
 *   exchange_rows  rows of S_r to rank r: y = x_0's, x_1's, ... x_n-1's
 *   back           the same rows the other way
 *
 * On a device the host has the counts that expert_routes showed it. Listed in
 * kernels/list.h; read loong/moe.h before. */
#include "list.h"
#include "loong/device.h"
#include "moe.h"

/* Elements of each block: what goes, what comes. */
typedef struct state {
    int64_t *go;
    int64_t *come;
} state_t;

static const loong_collective_attr_t *at_of(const loong_kernel_query_t *q)
{
    return &((const loong_exchange_rows_attr_t *)q->attr)->at;
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *q, void **state_p)
{
    state_t *s = NULL;
    size_t n = (size_t)at_of(q)->size;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s) + 2 * n * sizeof(*s->go),
                           "blocks of an all-to-all", &s));
    s->go = (int64_t *)(void *)(s + 1);
    s->come = s->go + n;
    *state_p = s;
    return LOONG_OK;
}

static void destroy(loong_context_t *ctx, void *state)
{
    loongi_free(ctx, state);
}

/* Blocks whose sizes the state has. */
static loong_status_t exchange(const loong_kernel_call_t *call,
                               const void *send, void *receive,
                               loong_dtype_t dtype)
{
    const loong_collective_attr_t *a = at_of(call->query);
    const state_t *s = call->state;
    const loong_all_to_all_t blocks = {send, s->go, receive, s->come};
    LOONG_CHECK(call->ctx, call->group != NULL, LOONG_ERR_INTERNAL,
                "%s: no communicator of group %s", call->query->op,
                loong_group_name(a->group));
    loong_comm_set_stream(call->group[a->group], call->stream);
    return loong_comm_all_to_all(call->group[a->group], &blocks, dtype,
                                 a->label);
}

/* ---- exchange_rows ------------------------------------------------------- */

static loong_status_t find_counts(const loong_kernel_call_t *call,
                                  const int32_t **counts_p)
{
    const void *counts = call->ptr[1];
    if (call->device != NULL && !loong_device_is_host(call->device)) {
        LOONG_TRY(loong_device_mirrored(
            call->device, call->ptr[1],
            2 * (size_t)at_of(call->query)->size * sizeof(**counts_p),
            "rows of experts", &counts));
    }
    *counts_p = counts;
    return LOONG_OK;
}

/* The sizes of blocks in elements, by `count` of each rank. */
static loong_status_t set_blocks(const loong_kernel_call_t *call,
                                 const int32_t *count, int64_t most,
                                 int64_t *block)
{
    const loong_kernel_query_t *q = call->query;
    int n = at_of(q)->size;
    int64_t cols = q->arg[0].dim[1];
    int64_t rows = 0;
    for (int r = 0; r < n; r++) {
        LOONG_CHECK(call->ctx, count[r] >= 0 && rows + count[r] <= most,
                    LOONG_ERR_ARG,
                    "%s: %d rows with rank %d after %lld, room for %lld",
                    q->op, count[r], r, (long long)rows, (long long)most);
        rows += count[r];
        block[r] = count[r] * cols;
    }
    return LOONG_OK;
}

static loong_status_t run_exchange_rows(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_exchange_rows_attr_t *a = q->attr;
    const loong_karg_t *y = &q->arg[2];
    state_t *s = call->state;
    const int32_t *counts = NULL;
    LOONG_TRY(find_counts(call, &counts));
    LOONG_TRY(set_blocks(call, counts + a->back * a->at.size,
                         q->arg[0].dim[0], s->go));
    LOONG_TRY(set_blocks(call, counts + !a->back * a->at.size, y->dim[0],
                         s->come));
    return exchange(call, call->ptr[0], call->ptr[2], y->dtype);
}

const loong_kernel_t loongi_exchange_rows_comm = {
    .name = "exchange_rows_comm",
    .op = "exchange_rows",
    .prepare = prepare,
    .destroy = destroy,
    .run = run_exchange_rows,
    .communicates = true,
    .waits = true, /* for the counts of a device */
};
