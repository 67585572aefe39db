/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as calls of BKCL: by its order of arguments, in parts of at most
 * 2^30 elements, with one message to a peer in a group. The table is called by
 * device_comm.c. Read bkcl_impl.h before. */
#include <string.h>

#include "bkcl_impl.h"
#include "convert.h"

/* A call and what it needs. */
typedef struct job {
    device_comm_t *n;
    const bkcl_library_t *l;
    const loong_collective_t *call;
    int type;
    int op;
    size_t size; /* of an element */
    void *stream;
} job_t;

/* -1: there is none. */
static int type_of(const bkcl_library_t *l, loong_dtype_t dtype)
{
    switch (dtype) {
    case LOONG_U8:
    case LOONG_BOOL:
        return l->value.UINT8;
    case LOONG_I32:
        return l->value.INT32;
    case LOONG_I64:
        return l->value.INT64;
    case LOONG_F16:
        return l->value.FLOAT16;
    case LOONG_BF16:
        return l->value.BFLOAT16;
    case LOONG_F32:
        return l->value.FLOAT;
    case LOONG_F64:
        return l->value.FLOAT64;
    default:
        return -1;
    }
}

static int op_of(const bkcl_library_t *l, loong_reduce_t reduce)
{
    return reduce == LOONG_REDUCE_SUM   ? l->value.ADD
           : reduce == LOONG_REDUCE_MAX ? l->value.MAX
                                        : l->value.MIN;
}

/* ---- in parts ------------------------------------------------------------ */

static int all_reduce(const job_t *j, char *data, size_t count)
{
    int result = 0;
    for (size_t at = 0; at < count && result == 0; at += j->l->most) {
        char *part = data + at * j->size;
        result = j->l->all_reduce(j->n->handle, part, part,
                                  LOONG_MIN(count - at, j->l->most), j->type,
                                  j->op, j->stream);
    }
    return result;
}

static int broadcast(const job_t *j, char *data, size_t count, int root)
{
    int result = 0;
    for (size_t at = 0; at < count && result == 0; at += j->l->most) {
        char *part = data + at * j->size;
        result = j->l->broadcast(j->n->handle, part, part,
                                 LOONG_MIN(count - at, j->l->most), j->type,
                                 root, j->stream);
    }
    return result;
}

/* To one rank; without such a call, to all. */
static int reduce(const job_t *j, char *data, size_t count, int root)
{
    int result = 0;
    if (j->l->reduce == NULL) {
        return all_reduce(j, data, count);
    }
    for (size_t at = 0; at < count && result == 0; at += j->l->most) {
        char *part = data + at * j->size;
        result = j->l->reduce(j->n->handle, part, part,
                              LOONG_MIN(count - at, j->l->most), j->type,
                              j->op, root, j->stream);
    }
    return result;
}

/* The part that begins at element `at`, if there is one. */
static int message_part(const job_t *j, char *data, size_t count, size_t at,
                        int peer, bool send)
{
    char *part = data + at * j->size;
    size_t some = at < count ? LOONG_MIN(count - at, j->l->most) : 0;
    return some == 0 ? 0
           : send    ? j->l->send(j->n->handle, part, some, peer, j->type,
                                  j->stream)
                     : j->l->recv(j->n->handle, part, some, peer, j->type,
                                  j->stream);
}

static int message(const job_t *j, char *data, size_t count, int peer,
                   bool send)
{
    int result = 0;
    for (size_t at = 0; at < count && result == 0; at += j->l->most) {
        result = message_part(j, data, count, at, peer, send);
    }
    return result;
}

/* ---- pieces -------------------------------------------------------------- */

/* Of one length, which is one call's. */
static bool equal_pieces(const job_t *j)
{
    const int64_t *counts = j->call->counts;
    for (int r = 1; r < j->n->comm->size; r++) {
        if (counts[r] != counts[0]) {
            return false;
        }
    }
    return (size_t)counts[0] <= j->l->most / (size_t)j->n->comm->size;
}

/* Pieces of any length: one after the other is reduced to, or sent by, its
 * rank. */
static int each_piece(const job_t *j)
{
    char *at = j->call->data;
    int result = 0;
    for (int r = 0; r < j->n->comm->size && result == 0; r++) {
        size_t count = (size_t)j->call->counts[r];
        result = j->call->kind == LOONG_COLLECTIVE_ALL_GATHER
                     ? broadcast(j, at, count, r)
                     : reduce(j, at, count, r);
        at += count * j->size;
    }
    return result;
}

static int pieces(const job_t *j)
{
    const loong_collective_t *c = j->call;
    size_t count = (size_t)c->counts[0];
    char *own = (char *)c->data + (size_t)j->n->comm->rank * count * j->size;
    if (!equal_pieces(j)) {
        return each_piece(j);
    }
    if (count == 0) {
        return 0;
    }
    return c->kind == LOONG_COLLECTIVE_ALL_GATHER
               ? j->l->all_gather(j->n->handle, own, count, c->data, j->type,
                                  j->stream)
               : j->l->reduce_scatter(j->n->handle, c->data, own, count,
                                      j->type, j->op, j->stream);
}

/* ---- exchanges ----------------------------------------------------------- */

static loong_status_t room_for_counts(device_comm_t *n)
{
    bkcl_library_t *l = bkcl_of(n);
    size_t bytes = sizeof(size_t) * 4 * (size_t)n->room * (size_t)n->comm->size;
    void *there = NULL;
    void *here = NULL;
    if (l->counts != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loong_device_alloc(n->device, bytes, "counts of exchanges", &there));
    loong_status_t status =
        loong_device_host_alloc(n->device, bytes, "counts of exchanges", &here);
    if (status != LOONG_OK) {
        loong_device_free(n->device, there, bytes);
        return status;
    }
    l->counts = there;
    l->counts_here = here;
    /* It is cleared on another stream than the one that writes it. */
    return loong_device_synchronize(n->device, "room for counts");
}

/* Counts and offsets, on the device behind what is on the stream. The place is
 * that of the pending call: it was left by one that has passed. */
static loong_status_t upload_counts(const job_t *j, size_t **there_p)
{
    device_comm_t *n = j->n;
    bkcl_library_t *l = bkcl_of(n);
    size_t size = (size_t)n->comm->size;
    const int64_t *counts[2] = {j->call->counts, j->call->receive_counts};
    LOONG_TRY(room_for_counts(n));
    size_t place = (size_t)(n->begun % (uint64_t)n->room) * 4 * size;
    size_t *here = l->counts_here + place;
    for (int k = 0; k < 2; k++) {
        size_t at = 0;
        for (size_t r = 0; r < size; r++) {
            here[2 * (size_t)k * size + r] = (size_t)counts[k][r];
            here[(2 * (size_t)k + 1) * size + r] = at;
            at += (size_t)counts[k][r];
        }
    }
    *there_p = l->counts + place;
    return loong_device_stream_copy(n->device, j->stream, *there_p, here,
                                    4 * size * sizeof(*here));
}

/* A group: one message to and from each other rank, of the part that begins at
 * element `at` of theirs. */
static int exchange_part(const job_t *j, size_t at)
{
    const device_comm_t *n = j->n;
    const loong_collective_t *c = j->call;
    char *from = (char *)(uintptr_t)c->send;
    char *to = c->data;
    int before = loongi_bkcl_select(n);
    int result = j->l->group_start();
    for (int r = 0; r < n->comm->size && result == 0; r++) {
        size_t sent = (size_t)c->counts[r];
        size_t received = (size_t)c->receive_counts[r];
        if (r != n->comm->rank) {
            result = message_part(j, from, sent, at, r, true);
            result = result != 0
                         ? result
                         : message_part(j, to, received, at, r, false);
        }
        from += sent * j->size;
        to += received * j->size;
    }
    int ended = j->l->group_end();
    loongi_bkcl_restore(n, before);
    return result != 0 ? result : ended;
}

/* As many groups as the longest part takes messages; the own part is a copy. */
static loong_status_t exchange(const job_t *j, int *result_p)
{
    const device_comm_t *n = j->n;
    const loong_collective_t *c = j->call;
    char *from = (char *)(uintptr_t)c->send;
    char *to = c->data;
    size_t longest = 0;
    for (int r = 0; r < n->comm->size; r++) {
        if (r != n->comm->rank) {
            longest = LOONG_MAX(longest, (size_t)c->counts[r]);
            longest = LOONG_MAX(longest, (size_t)c->receive_counts[r]);
        }
    }
    for (int r = 0; r < n->comm->rank; r++) {
        from += (size_t)c->counts[r] * j->size;
        to += (size_t)c->receive_counts[r] * j->size;
    }
    LOONG_TRY(loong_device_stream_copy(
        n->device, j->stream, to, from,
        (size_t)c->counts[n->comm->rank] * j->size));
    for (size_t at = 0; at < longest && *result_p == 0; at += j->l->most) {
        *result_p = exchange_part(j, at);
    }
    return LOONG_OK;
}

static loong_status_t all_to_all(const job_t *j, int *result_p)
{
    const loong_collective_t *c = j->call;
    size_t size = (size_t)j->n->comm->size;
    size_t *there = NULL;
    if (j->l->all_to_all_v == NULL) {
        return exchange(j, result_p);
    }
    LOONG_TRY(upload_counts(j, &there));
    BKCL_CALL(j->n, *result_p,
              j->l->all_to_all_v(j->n->handle, c->send, there, there + size,
                                 j->type, c->data, there + 2 * size,
                                 there + 3 * size, j->type, j->stream));
    return LOONG_OK;
}

/* ---- one call ------------------------------------------------------------ */

static int put(const job_t *j)
{
    const loong_collective_t *c = j->call;
    size_t count = (size_t)c->count;
    switch (c->kind) {
    case LOONG_COLLECTIVE_SEND:
        return message(j, c->data, count, c->root, true);
    case LOONG_COLLECTIVE_RECV:
        return message(j, c->data, count, c->root, false);
    case LOONG_COLLECTIVE_ALL_REDUCE:
        return all_reduce(j, c->data, count);
    case LOONG_COLLECTIVE_BROADCAST:
        return broadcast(j, c->data, count, c->root);
    default:
        return pieces(j);
    }
}

loong_status_t loongi_bkcl_enqueue(device_comm_t *n,
                                   const loong_collective_t *call)
{
    const bkcl_library_t *l = bkcl_of(n);
    bool is_message = call->kind == LOONG_COLLECTIVE_SEND ||
                      call->kind == LOONG_COLLECTIVE_RECV;
    int result = 0;
    job_t j = {n,
               l,
               call,
               type_of(l, call->dtype),
               op_of(l, call->reduce),
               loong_dtype_size(call->dtype),
               is_message ? n->messages : n->comm->stream};
    LOONG_CHECK(n->ctx, j.type >= 0, LOONG_ERR_UNSUPPORTED,
                "%s of %s: BKCL has no %s", loong_collective_name(call->kind),
                n->comm->name, loong_dtype_name(call->dtype));
    if (call->kind == LOONG_COLLECTIVE_ALL_TO_ALL) {
        LOONG_TRY(all_to_all(&j, &result));
    } else {
        BKCL_CALL(n, result, put(&j));
    }
    return result == 0 ? LOONG_OK
                       : loongi_bkcl_failed(
                             n, loong_collective_name(call->kind), result);
}

/* ---- the test of enumerators --------------------------------------------- */

enum { NUMBERS = 16 };

/* One of small whole numbers, from here, or to it. */
static loong_status_t move(loong_context_t *ctx, loong_dtype_t dtype, void *at,
                           double *number, bool store)
{
    switch (dtype) {
    case LOONG_U8:
        *(uint8_t *)at = store ? (uint8_t)*number : *(uint8_t *)at;
        *number = *(uint8_t *)at;
        return LOONG_OK;
    case LOONG_I32:
        *(int32_t *)at = store ? (int32_t)*number : *(int32_t *)at;
        *number = *(int32_t *)at;
        return LOONG_OK;
    case LOONG_I64:
        *(int64_t *)at = store ? (int64_t)*number : *(int64_t *)at;
        *number = (double)*(int64_t *)at;
        return LOONG_OK;
    default:
        return store ? loongi_convert(ctx, LOONG_F64, number, dtype, at, 1)
                     : loongi_convert(ctx, dtype, at, LOONG_F64, number, 1);
    }
}

/* Rank r gives r + 1, r + 2, ...; to sums, which every type shall hold, the
 * first two ranks alone. */
static double given(const device_comm_t *n, loong_reduce_t reduce, int i)
{
    int rank = n->comm->rank;
    return reduce == LOONG_REDUCE_SUM && rank > 1 ? 0.0 : rank + 1.0 + i;
}

static double expected(const device_comm_t *n, loong_reduce_t reduce, int i)
{
    return reduce == LOONG_REDUCE_SUM   ? 3.0 + 2.0 * i
           : reduce == LOONG_REDUCE_MAX ? n->comm->size + (double)i
                                        : 1.0 + i;
}

static loong_status_t test_one(device_comm_t *n, void *there, void *here,
                               loong_dtype_t dtype, loong_reduce_t reduce)
{
    void *stream = loong_device_stream(n->device);
    void *before = n->comm->stream;
    size_t size = loong_dtype_size(dtype);
    size_t bytes = NUMBERS * size;
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_ALL_REDUCE,
                               .dtype = dtype,
                               .reduce = reduce,
                               .data = there,
                               .count = NUMBERS,
                               .label = "test of BKCL"};
    for (int i = 0; i < NUMBERS; i++) {
        double number = given(n, reduce, i);
        LOONG_TRY(move(n->ctx, dtype, (char *)here + (size_t)i * size, &number,
                       true));
    }
    LOONG_TRY(loong_device_stream_copy(n->device, stream, there, here, bytes));
    n->comm->stream = stream;
    loong_status_t status = loongi_bkcl_enqueue(n, &call);
    n->comm->stream = before;
    LOONG_TRY(status);
    LOONG_TRY(loong_device_stream_copy(n->device, stream, here, there, bytes));
    LOONG_TRY(loong_device_synchronize(n->device, "the test of BKCL"));
    for (int i = 0; i < NUMBERS; i++) {
        double number = 0.0;
        LOONG_TRY(move(n->ctx, dtype, (char *)here + (size_t)i * size, &number,
                       false));
        LOONG_CHECK(n->ctx, number == expected(n, reduce, i), LOONG_ERR_COMM,
                    "BKCL: all_reduce of %s (operation %d) gives %g, it should "
                    "be %g: the numbers of its types or operations are not "
                    "those of this libbkcl",
                    loong_dtype_name(dtype), (int)reduce, number,
                    expected(n, reduce, i));
    }
    return LOONG_OK;
}

loong_status_t loongi_bkcl_test(device_comm_t *n)
{
    static const struct {
        loong_dtype_t dtype;
        loong_reduce_t reduce;
    } all[] = {{LOONG_F32, LOONG_REDUCE_SUM}, {LOONG_F32, LOONG_REDUCE_MAX},
               {LOONG_F32, LOONG_REDUCE_MIN}, {LOONG_BF16, LOONG_REDUCE_SUM},
               {LOONG_F16, LOONG_REDUCE_SUM}, {LOONG_F64, LOONG_REDUCE_SUM},
               {LOONG_I32, LOONG_REDUCE_SUM}, {LOONG_I64, LOONG_REDUCE_SUM},
               {LOONG_U8, LOONG_REDUCE_SUM}};
    const size_t bytes = NUMBERS * sizeof(double);
    void *there = NULL;
    void *here = NULL;
    LOONG_TRY(loong_device_alloc(n->device, bytes, "the test of BKCL", &there));
    loong_status_t status =
        loong_device_host_alloc(n->device, bytes, "the test of BKCL", &here);
    for (int i = 0; i < LOONG_COUNT_OF(all) && status == LOONG_OK; i++) {
        status = test_one(n, there, here, all[i].dtype, all[i].reduce);
    }
    loong_device_host_free(n->device, here);
    loong_device_free(n->device, there, bytes);
    return status;
}
