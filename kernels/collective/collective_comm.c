/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over the communicator of a group; sums are in rank order. What
 * is the same on every device: data is moved by the communicator and by the
 * device's copies.
 *
 *   all_reduce      y = sum over ranks of x
 *   all_gather      y = the ranks' x one below the other
 *   reduce_scatter  y = this rank's rows of the sum of x
 *   own_rows        y = this rank's rows of x
 *   ring_shift      y = x of the rank `distance` places before, around a ring
 *   all_to_all_rows     y = this rank's columns of the ranks' x, one below the
 *                       other
 *   all_to_all_columns  y = this rank's rows of the ranks' x, side by side
 *   flat_...        the same on a flat range, in place, pieces of any length
 *
 * Listed in kernels/list.h; read loong/collective.h before. */
#include <string.h>

#include "base.h"
#include "list.h"
#include "loong/collective.h"
#include "loong/device.h"

static const loong_collective_attr_t *attr_of(const loong_kernel_query_t *q)
{
    return q->attr;
}

static loong_status_t comm_of(const loong_kernel_call_t *call,
                              loong_comm_t **comm_p)
{
    const loong_collective_attr_t *a = attr_of(call->query);
    LOONG_CHECK(call->ctx, call->group != NULL, LOONG_ERR_INTERNAL,
                "%s: no communicator of group %s", call->query->op,
                loong_group_name(a->group));
    *comm_p = call->group[a->group];
    loong_comm_set_stream(*comm_p, call->stream);
    return LOONG_OK;
}

static loong_status_t copy(const loong_kernel_call_t *call, void *dst,
                           const void *src, size_t bytes)
{
    if (call->device != NULL) {
        return loong_device_stream_copy(call->device, call->stream, dst, src,
                                        bytes);
    }
    memcpy(dst, src, bytes);
    return LOONG_OK;
}

static loong_status_t copy_rows(const loong_kernel_call_t *call,
                                const loong_device_rows_t *r)
{
    if (call->device != NULL) {
        return loong_device_stream_copy_rows(call->device, call->stream, r);
    }
    for (size_t i = 0; i < r->rows; i++) {
        memcpy((char *)r->dst + i * r->dst_apart,
               (const char *)r->src + i * r->src_apart, r->bytes);
    }
    return LOONG_OK;
}

static int64_t elements(const loong_karg_t *arg)
{
    return loong_karg_rows(arg) * loong_karg_cols(arg);
}

static size_t bytes_of(const loong_karg_t *arg)
{
    return (size_t)elements(arg) * loong_dtype_size(arg->dtype);
}

/* Equal pieces of `whole`: what the communicator asks for. */
static loong_status_t prepare_pieces(loong_context_t *ctx, int64_t whole,
                                     int size, void **state_p)
{
    int64_t *counts = NULL;
    LOONG_TRY(loongi_calloc(ctx, (size_t)size, sizeof(*counts),
                            "pieces of a collective", &counts));
    for (int r = 0; r < size; r++) {
        counts[r] = whole / size;
    }
    *state_p = counts;
    return LOONG_OK;
}

static loong_status_t prepare_gather(loong_context_t *ctx,
                                     const loong_kernel_query_t *q,
                                     void **state_p)
{
    return prepare_pieces(ctx, elements(&q->arg[1]), attr_of(q)->size,
                          state_p);
}

static loong_status_t prepare_scatter(loong_context_t *ctx,
                                      const loong_kernel_query_t *q,
                                      void **state_p)
{
    return prepare_pieces(ctx, elements(&q->arg[0]), attr_of(q)->size,
                          state_p);
}

static void destroy(loong_context_t *ctx, void *state)
{
    loongi_free(ctx, state);
}

/* ---- inside a layer ----------------------------------------------------- */

static loong_status_t run_all_reduce(const loong_kernel_call_t *call)
{
    const loong_karg_t *x = &call->query->arg[0];
    loong_comm_t *comm = NULL;
    LOONG_TRY(comm_of(call, &comm));
    if (call->ptr[0] != call->ptr[1]) {
        LOONG_TRY(copy(call, call->ptr[1], call->ptr[0], bytes_of(x)));
    }
    return loong_comm_all_reduce(comm, call->ptr[1], elements(x), x->dtype,
                                 LOONG_REDUCE_SUM,
                                 attr_of(call->query)->label);
}

static loong_status_t run_all_gather(const loong_kernel_call_t *call)
{
    const loong_collective_attr_t *a = attr_of(call->query);
    size_t piece = bytes_of(&call->query->arg[0]);
    loong_comm_t *comm = NULL;
    LOONG_TRY(comm_of(call, &comm));
    LOONG_TRY(copy(call, (char *)call->ptr[1] + (size_t)a->rank * piece,
                   call->ptr[0], piece));
    return loong_comm_all_gather(comm, call->ptr[1], call->state,
                                 call->query->arg[0].dtype, a->label);
}

static size_t workspace_reduce_scatter(const loong_kernel_query_t *query)
{
    return bytes_of(&query->arg[0]);
}

static loong_status_t run_reduce_scatter(const loong_kernel_call_t *call)
{
    const loong_collective_attr_t *a = attr_of(call->query);
    size_t piece = bytes_of(&call->query->arg[1]);
    loong_comm_t *comm = NULL;
    LOONG_TRY(comm_of(call, &comm));
    LOONG_TRY(copy(call, call->workspace, call->ptr[0],
                   bytes_of(&call->query->arg[0])));
    LOONG_TRY(loong_comm_reduce_scatter(
        comm, call->workspace, call->state, call->query->arg[0].dtype,
        LOONG_REDUCE_SUM, a->label));
    return copy(call, call->ptr[1],
                (const char *)call->workspace + (size_t)a->rank * piece,
                piece);
}

static loong_status_t run_own_rows(const loong_kernel_call_t *call)
{
    size_t piece = bytes_of(&call->query->arg[1]);
    return copy(call, call->ptr[1],
                (const char *)call->ptr[0] +
                    (size_t)attr_of(call->query)->rank * piece, piece);
}

/* x [r, n c] as n blocks [r, c], or back. */
static loong_status_t move_blocks(const loong_kernel_call_t *call,
                                  const loong_karg_t *x, char *wide, bool pack)
{
    int size = attr_of(call->query)->size;
    size_t element = loong_dtype_size(x->dtype);
    size_t apart = (size_t)x->ld * element;
    loong_device_rows_t r = {
        .bytes = (size_t)loong_karg_cols(x) / (size_t)size * element,
        .rows = (size_t)loong_karg_rows(x)};
    r.dst_apart = pack ? r.bytes : apart;
    r.src_apart = pack ? apart : r.bytes;
    for (int b = 0; b < size; b++) {
        char *in_rows = wide + (size_t)b * r.bytes;
        char *block = (char *)call->workspace + (size_t)b * r.rows * r.bytes;
        r.dst = pack ? block : in_rows;
        r.src = pack ? in_rows : block;
        LOONG_TRY(copy_rows(call, &r));
    }
    return LOONG_OK;
}

static size_t workspace_all_to_all(const loong_kernel_query_t *query)
{
    return bytes_of(&query->arg[0]);
}

static loong_status_t exchange(const loong_kernel_call_t *call,
                               const void *send, void *receive)
{
    loong_comm_t *comm = NULL;
    const loong_all_to_all_t blocks = {send, call->state, receive,
                                       call->state};
    LOONG_TRY(comm_of(call, &comm));
    return loong_comm_all_to_all(comm, &blocks, call->query->arg[0].dtype,
                                 attr_of(call->query)->label);
}

/* Two lists of counts: what goes to each rank, what comes from it. */
static loong_status_t prepare_shift(loong_context_t *ctx,
                                    const loong_kernel_query_t *q,
                                    void **state_p)
{
    const loong_collective_attr_t *a = attr_of(q);
    int64_t *counts = NULL;
    LOONG_TRY(loongi_calloc(ctx, 2 * (size_t)a->size, sizeof(*counts),
                            "pieces of a collective", &counts));
    counts[(a->rank + a->distance) % a->size] = elements(&q->arg[0]);
    counts[a->size + (a->rank + a->size - a->distance) % a->size] =
        elements(&q->arg[0]);
    *state_p = counts;
    return LOONG_OK;
}

static loong_status_t run_ring_shift(const loong_kernel_call_t *call)
{
    const int64_t *counts = call->state;
    loong_comm_t *comm = NULL;
    const loong_all_to_all_t blocks = {call->ptr[0], counts, call->ptr[1],
                                       counts + attr_of(call->query)->size};
    LOONG_TRY(comm_of(call, &comm));
    return loong_comm_all_to_all(comm, &blocks, call->query->arg[0].dtype,
                                 attr_of(call->query)->label);
}

static loong_status_t run_all_to_all_rows(const loong_kernel_call_t *call)
{
    LOONG_TRY(move_blocks(call, &call->query->arg[0], call->ptr[0], true));
    return exchange(call, call->workspace, call->ptr[1]);
}

static loong_status_t run_all_to_all_columns(const loong_kernel_call_t *call)
{
    LOONG_TRY(exchange(call, call->ptr[0], call->workspace));
    return move_blocks(call, &call->query->arg[1], call->ptr[1], false);
}

/* ---- flat --------------------------------------------------------------- */

static loong_status_t run_flat_all_reduce(const loong_kernel_call_t *call)
{
    const loong_karg_t *x = &call->query->arg[0];
    loong_comm_t *comm = NULL;
    LOONG_TRY(comm_of(call, &comm));
    return loong_comm_all_reduce(comm, call->ptr[0], x->dim[0], x->dtype,
                                 LOONG_REDUCE_SUM,
                                 attr_of(call->query)->label);
}

static loong_status_t run_flat_reduce_scatter(const loong_kernel_call_t *call)
{
    const loong_collective_attr_t *a = attr_of(call->query);
    loong_comm_t *comm = NULL;
    LOONG_TRY(comm_of(call, &comm));
    return loong_comm_reduce_scatter(comm, call->ptr[0], a->counts,
                                     call->query->arg[0].dtype,
                                     LOONG_REDUCE_SUM, a->label);
}

static loong_status_t run_flat_all_gather(const loong_kernel_call_t *call)
{
    const loong_collective_attr_t *a = attr_of(call->query);
    loong_comm_t *comm = NULL;
    LOONG_TRY(comm_of(call, &comm));
    return loong_comm_all_gather(comm, call->ptr[0], a->counts,
                                 call->query->arg[0].dtype, a->label);
}

#define COLLECTIVE(name_, ...)                                                \
    const loong_kernel_t loongi_##name_##_comm = {                            \
        .name = #name_ "_comm", .op = #name_,                                 \
        .run = run_##name_, .communicates = true, ##__VA_ARGS__}

COLLECTIVE(all_reduce);
COLLECTIVE(all_gather, .prepare = prepare_gather, .destroy = destroy);
COLLECTIVE(reduce_scatter, .prepare = prepare_scatter, .destroy = destroy,
           .workspace = workspace_reduce_scatter);
const loong_kernel_t loongi_own_rows_comm = {
    .name = "own_rows_comm", .op = "own_rows",
    .run = run_own_rows};
COLLECTIVE(ring_shift, .prepare = prepare_shift, .destroy = destroy);
COLLECTIVE(all_to_all_rows, .prepare = prepare_scatter, .destroy = destroy,
           .workspace = workspace_all_to_all);
COLLECTIVE(all_to_all_columns, .prepare = prepare_scatter, .destroy = destroy,
           .workspace = workspace_all_to_all);
COLLECTIVE(flat_all_reduce);
COLLECTIVE(flat_reduce_scatter);
COLLECTIVE(flat_all_gather);
