/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to the ranks of their experts. Rank r of the n of a group holds the
 * experts e with e n / (E c) = r / c, c ranks a part of the same; with sets of
 * E experts each, those of every set. Token t goes
 * to the ranks of its experts, to each once:
 *
 *   S_r = tokens that go to rank r, ascending; send = S_0, S_1, ... S_n-1
 *   expert_routes  the sizes of all S, which rows they are, and what the
 *                  tokens that come from the other ranks chose; every rank is
 *                  told what the tokens of all chose, on each kind of device
 *   exchange_rows  rows of S_r to rank r: y = x_0's, x_1's, ... x_n-1's
 *   back           the same rows the other way
 *
 * How many rows there are is known to the kernels alone; room is for all
 * tokens of all ranks. */
#include <stdbool.h>
#include <string.h>

#include "list.h"
#include "moe.h"

/* Elements of each block: what goes, what comes. */
typedef struct state {
    int64_t *go;
    int64_t *come;
} state_t;

/* In every attribute the collective stands first. */
static const loong_collective_attr_t *at_of(const loong_kernel_query_t *q)
{
    return q->attr;
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
    return loong_comm_all_to_all(call->group[a->group], &blocks, dtype,
                                 a->label);
}

/* ---- expert_routes ------------------------------------------------------- */

/* Marks in to[0 .. n - 1] the ranks that a token goes to. */
static loong_status_t mark(const loong_kernel_call_t *call, int64_t token,
                           const int32_t *chosen, int64_t k, int32_t *to)
{
    const loong_expert_routes_attr_t *a = call->query->attr;
    int set = a->experts / LOONG_MAX(a->sets, 1);
    int each = set / (a->at.size / a->copies);
    for (int r = 0; r < a->at.size; r++) {
        to[r] = -1;
    }
    for (int64_t j = 0; j < k; j++) {
        LOONG_CHECK(call->ctx, chosen[j] >= -1 && chosen[j] < a->experts,
                    LOONG_ERR_ARG,
                    "%s: expert %d of token %lld, allowed -1 to %d",
                    call->query->op, chosen[j], (long long)token,
                    a->experts - 1);
        int first = chosen[j] < 0 ? a->at.size
                                  : chosen[j] % set / each * a->copies;
        for (int r = first; r < a->at.size && r < first + a->copies; r++) {
            to[r] = 0;
        }
    }
    return LOONG_OK;
}

/* Numbers the rows: dest, source, rows to each rank. */
static loong_status_t number(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const int32_t *chosen = call->ptr[0];
    int32_t *source = call->ptr[1];
    int32_t *dest = call->ptr[2];
    int32_t *go = call->ptr[3];
    int64_t tokens = q->arg[0].dim[0];
    int64_t k = q->arg[0].dim[1];
    int n = at_of(q)->size;
    int32_t next = 0;
    for (int64_t t = 0; t < tokens; t++) {
        LOONG_TRY(mark(call, t, chosen + t * k, k, dest + t * n));
    }
    for (int r = 0; r < n; r++) {
        int32_t begin = next;
        for (int64_t t = 0; t < tokens; t++) {
            if (dest[t * n + r] == 0) {
                source[next] = (int32_t)(t * n + r);
                dest[t * n + r] = next++;
            }
        }
        go[r] = next - begin;
    }
    for (int64_t i = next; i < q->arg[1].dim[0]; i++) {
        source[i] = -1;
    }
    return LOONG_OK;
}

static size_t routes_room(const loong_kernel_query_t *q)
{
    int64_t own = q->arg[0].dim[0] * q->arg[0].dim[1];
    return (size_t)(at_of(q)->size * own) * sizeof(int32_t);
}

/* The choices of all ranks, in the workspace. */
static loong_status_t gather_choices(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_collective_attr_t *a = at_of(q);
    const state_t *s = call->state;
    int64_t own = q->arg[0].dim[0] * q->arg[0].dim[1];
    int32_t *all = call->workspace;
    for (int r = 0; r < a->size; r++) {
        s->go[r] = own;
    }
    memcpy(all + a->rank * own, call->ptr[0], (size_t)own * sizeof(*all));
    LOONG_CHECK(call->ctx, call->group != NULL, LOONG_ERR_INTERNAL,
                "%s: no communicator of group %s", q->op,
                loong_group_name(a->group));
    return loong_comm_all_gather(call->group[a->group], all, s->go, LOONG_I32,
                                 a->label);
}

/* Does a token of these choices come to this rank? */
static bool comes(const loong_kernel_query_t *q, const int32_t *chosen)
{
    const loong_expert_routes_attr_t *a = q->attr;
    int set = a->experts / LOONG_MAX(a->sets, 1);
    int each = set / (a->at.size / a->copies);
    bool found = false;
    for (int64_t j = 0; j < q->arg[0].dim[1]; j++) {
        found = found || (chosen[j] >= 0 && chosen[j] % set / each ==
                                                a->at.rank / a->copies);
    }
    return found;
}

static loong_status_t run_expert_routes(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    int32_t *come = (int32_t *)call->ptr[3] + at_of(q)->size;
    int32_t *arrived = call->ptr[4];
    const int32_t *chosen = call->workspace;
    int64_t tokens = q->arg[0].dim[0];
    int64_t k = q->arg[0].dim[1];
    int64_t rows = 0;
    LOONG_TRY(number(call));
    LOONG_TRY(gather_choices(call));
    for (int r = 0; r < at_of(q)->size; r++) {
        int64_t before = rows;
        for (int64_t t = 0; t < tokens; t++, chosen += k) {
            if (comes(q, chosen)) {
                memcpy(arrived + rows++ * k, chosen,
                       (size_t)k * sizeof(*arrived));
            }
        }
        come[r] = (int32_t)(rows - before);
    }
    for (int64_t i = rows * k; i < q->arg[4].dim[0] * k; i++) {
        arrived[i] = -1;
    }
    return LOONG_OK;
}

/* ---- exchange_rows ------------------------------------------------------- */

/* The sizes of blocks in elements; *rows_p: rows of all. */
static loong_status_t set_blocks(const loong_kernel_call_t *call, int side,
                                 int64_t most, int64_t *block, int64_t *rows_p)
{
    const loong_kernel_query_t *q = call->query;
    int n = at_of(q)->size;
    const int32_t *count = (const int32_t *)call->ptr[1] + (int64_t)side * n;
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
    *rows_p = rows;
    return LOONG_OK;
}

static loong_status_t run_exchange_rows(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_exchange_rows_attr_t *a = q->attr;
    const loong_karg_t *y = &q->arg[2];
    state_t *s = call->state;
    int64_t rows = 0;
    LOONG_TRY(set_blocks(call, a->back, q->arg[0].dim[0], s->go, &rows));
    LOONG_TRY(set_blocks(call, !a->back, y->dim[0], s->come, &rows));
    LOONG_TRY(exchange(call, call->ptr[0], call->ptr[2], y->dtype));
    size_t row = (size_t)y->dim[1] * loong_dtype_size(y->dtype);
    memset((char *)call->ptr[2] + (size_t)rows * row, 0,
           (size_t)(y->dim[0] - rows) * row);
    return LOONG_OK;
}

const loong_kernel_t loongi_expert_routes_comm = {
    .name = "expert_routes_comm",
    .op = "expert_routes",
    .device = "cpu",
    .workspace = routes_room,
    .prepare = prepare,
    .destroy = destroy,
    .run = run_expert_routes,
    .communicates = true,
};

const loong_kernel_t loongi_exchange_rows_comm = {
    .name = "exchange_rows_comm",
    .op = "exchange_rows",
    .device = "cpu",
    .prepare = prepare,
    .destroy = destroy,
    .run = run_exchange_rows,
    .communicates = true,
};
