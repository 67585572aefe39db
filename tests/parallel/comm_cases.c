/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives against plain references, bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "comm_cases.h"
#include "convert.h"

enum { MAX_RANKS = 16 };

typedef struct cases {
    loong_context_t *ctx;
    loong_comm_t *comm;
    const comm_cases_params_t *params;
    uint64_t state; /* the same on all ranks */
    int rank;
    int size;
    bool shared;         /* this round's buffers come from alloc_shared */
    unsigned char *data; /* what this rank passes */
    unsigned char *other;
    unsigned char *inputs; /* what all ranks passed, one after the other */
    size_t stride;         /* bytes of each */
} cases_t;

static uint64_t scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* 0...limit */
static int64_t draw(cases_t *c, int64_t limit)
{
    c->state = scramble(c->state);
    return (int64_t)(c->state % (uint64_t)(limit + 1));
}

/* Small, odd and long counts, all of them often. */
static int64_t draw_count(cases_t *c, int64_t limit)
{
    int64_t kind = draw(c, 5);
    int64_t count = draw(c, kind == 0 ? 2 : kind == 1 ? 100 : limit);
    count = kind == 2 ? loongi_round_up(count, 64) : count;
    return LOONG_MIN(count, limit);
}

/* Values whose sums depend on the order. */
static double value_of(uint64_t hash)
{
    double unit = (double)(hash >> 11) * 0x1p-53 * 2.0 - 1.0;
    return ldexp(unit, (int)(hash & 7));
}

static void fill(uint64_t seed, int rank, loong_dtype_t dtype, void *data,
                 int64_t count)
{
    uint64_t base = scramble(seed + (uint64_t)rank * 7919);
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = scramble(base + (uint64_t)i);
        double value = value_of(hash);
        switch (dtype) {
        case LOONG_F64:
            ((double *)data)[i] = value;
            break;
        case LOONG_F32:
            ((float *)data)[i] = (float)value;
            break;
        case LOONG_BF16:
            ((uint16_t *)data)[i] = loongi_f32_to_bf16((float)value);
            break;
        case LOONG_F16:
            ((uint16_t *)data)[i] = loongi_f32_to_f16((float)value);
            break;
        case LOONG_BOOL:
            ((uint8_t *)data)[i] = hash & 1;
            break;
        default:
            memcpy((char *)data + (size_t)i * loong_dtype_size(dtype), &hash,
                   loong_dtype_size(dtype));
        }
    }
}

static double pick(double a, double b, loong_reduce_t reduce)
{
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    return reduce == LOONG_REDUCE_MAX ? fmax(a, b) : fmin(a, b);
}

static int64_t pick_int(int64_t a, int64_t b, loong_reduce_t reduce)
{
    switch (reduce) {
    case LOONG_REDUCE_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case LOONG_REDUCE_MAX:
        return LOONG_MAX(a, b);
    default:
        return LOONG_MIN(a, b);
    }
}

static int64_t get_int(loong_dtype_t dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case LOONG_I64:
        return ((const int64_t *)data)[i];
    case LOONG_I32:
        return ((const int32_t *)data)[i];
    case LOONG_I16:
        return ((const int16_t *)data)[i];
    case LOONG_I8:
        return ((const int8_t *)data)[i];
    case LOONG_U16:
        return ((const uint16_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static float get_float(loong_dtype_t dtype, const void *data, int64_t i)
{
    const uint16_t *halves = data;
    return dtype == LOONG_F32    ? ((const float *)data)[i]
           : dtype == LOONG_BF16 ? loongi_bf16_to_f32(halves[i])
                                 : loongi_f16_to_f32(halves[i]);
}

/* Element i of the reduction over all ranks, written to out. */
static void reduce_element(cases_t *c, loong_dtype_t dtype,
                           loong_reduce_t reduce, int64_t i, void *out)
{
    const unsigned char *inputs = c->inputs;
    size_t stride = c->stride;
    bool sum = reduce == LOONG_REDUCE_SUM;
    if (dtype == LOONG_F64) {
        double acc = ((const double *)(const void *)inputs)[i];
        for (int r = 1; r < c->size; r++) {
            double x = ((const double *)(const void *)(inputs +
                                                       (size_t)r * stride))[i];
            acc = sum ? acc + x : pick(acc, x, reduce);
        }
        memcpy(out, &acc, sizeof(acc));
        return;
    }
    if (loongi_dtype_is_float(dtype)) {
        float acc = get_float(dtype, inputs, i);
        for (int r = 1; r < c->size; r++) {
            float x = get_float(dtype, inputs + (size_t)r * stride, i);
            acc = sum ? acc + x : (float)pick(acc, x, reduce);
        }
        uint16_t half = dtype == LOONG_BF16 ? loongi_f32_to_bf16(acc)
                                            : loongi_f32_to_f16(acc);
        if (dtype == LOONG_F32) {
            memcpy(out, &acc, sizeof(acc));
        } else {
            memcpy(out, &half, sizeof(half));
        }
        return;
    }
    int64_t acc = get_int(dtype, inputs, i);
    for (int r = 1; r < c->size; r++) {
        acc = pick_int(acc, get_int(dtype, inputs + (size_t)r * stride, i),
                       reduce);
    }
    memcpy(out, &acc, loong_dtype_size(dtype));
}

static void fill_all(cases_t *c, loong_dtype_t dtype, int64_t count)
{
    uint64_t seed = (uint64_t)draw(c, INT32_MAX);
    for (int r = 0; r < c->size; r++) {
        fill(seed, r, dtype, c->inputs + (size_t)r * c->stride, count);
    }
    memcpy(c->data, c->inputs + (size_t)c->rank * c->stride,
           (size_t)count * loong_dtype_size(dtype));
}

static loong_status_t differs(cases_t *c, const char *what, int64_t i,
                              int64_t count, loong_dtype_t dtype)
{
    return LOONG_FAIL(c->ctx, LOONG_ERR_INTERNAL,
                      "%s: element %lld of %lld %s differs on rank %d of %d "
                      "(%s memory)",
                      what, (long long)i, (long long)count,
                      loong_dtype_name(dtype), c->rank, c->size,
                      c->shared ? "shared" : "private");
}

static loong_status_t check_reduced(cases_t *c, const char *what,
                                    loong_dtype_t dtype, loong_reduce_t reduce,
                                    int64_t begin, int64_t count)
{
    size_t size = loong_dtype_size(dtype);
    for (int64_t i = begin; i < begin + count; i++) {
        uint64_t expected = 0;
        reduce_element(c, dtype, reduce, i, &expected);
        if (memcmp(c->data + (size_t)i * size, &expected, size) != 0) {
            return differs(c, what, i, count, dtype);
        }
    }
    return LOONG_OK;
}

static loong_status_t try_reductions(cases_t *c, loong_dtype_t dtype,
                                     loong_reduce_t reduce)
{
    int64_t counts[MAX_RANKS];
    int64_t begin = 0;
    int64_t count = draw_count(c, c->params->longest);
    fill_all(c, dtype, count);
    LOONG_TRY(
        loong_comm_all_reduce(c->comm, c->data, count, dtype, reduce, "case"));
    LOONG_TRY(check_reduced(c, "all_reduce", dtype, reduce, 0, count));
    count = 0;
    for (int r = 0; r < c->size; r++) {
        begin = r == c->rank ? count : begin;
        counts[r] = draw_count(c, c->params->longest / c->size);
        count += counts[r];
    }
    fill_all(c, dtype, count);
    LOONG_TRY(loong_comm_reduce_scatter(c->comm, c->data, counts, dtype, reduce,
                                        "case"));
    return check_reduced(c, "reduce_scatter", dtype, reduce, begin,
                         counts[c->rank]);
}

/* NaN on one rank reaches all, in every reduction. */
static loong_status_t try_nan(cases_t *c)
{
    for (int reduce = 0; reduce < LOONG_REDUCE_COUNT; reduce++) {
        float *values = (float *)(void *)c->data;
        values[0] = c->rank == c->size / 2 ? NAN : (float)c->rank;
        LOONG_TRY(loong_comm_all_reduce(c->comm, values, 1, LOONG_F32,
                                        (loong_reduce_t)reduce, "nan"));
        if (!isnan(values[0])) {
            return differs(c, "NaN", 0, 1, LOONG_F32);
        }
    }
    return LOONG_OK;
}

static loong_status_t check_bytes(cases_t *c, const char *what, const void *got,
                                  const void *expected, size_t bytes)
{
    const unsigned char *a = got;
    const unsigned char *b = expected;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i]) {
            return differs(c, what, (int64_t)i, (int64_t)bytes, LOONG_U8);
        }
    }
    return LOONG_OK;
}

static loong_status_t try_all_gather(cases_t *c)
{
    int64_t counts[MAX_RANKS];
    int64_t total = 0;
    for (int r = 0; r < c->size; r++) {
        counts[r] = draw_count(c, c->params->longest / c->size);
        total += counts[r];
    }
    fill_all(c, LOONG_I32, total);
    LOONG_TRY(
        loong_comm_all_gather(c->comm, c->data, counts, LOONG_I32, "case"));
    size_t at = 0;
    for (int r = 0; r < c->size; r++) {
        size_t bytes = (size_t)counts[r] * 4;
        LOONG_TRY(check_bytes(c, "all_gather", c->data + at,
                              c->inputs + (size_t)r * c->stride + at, bytes));
        at += bytes;
    }
    return LOONG_OK;
}

static loong_status_t try_all_to_all(cases_t *c)
{
    int64_t table[MAX_RANKS][MAX_RANKS]; /* from, to */
    int64_t receive[MAX_RANKS];
    for (int from = 0; from < c->size; from++) {
        for (int to = 0; to < c->size; to++) {
            table[from][to] = draw_count(c, c->params->longest / c->size);
        }
    }
    for (int r = 0; r < c->size; r++) {
        receive[r] = table[r][c->rank];
    }
    fill_all(c, LOONG_I16, c->params->longest);
    loong_all_to_all_t blocks = {c->data, table[c->rank], c->other, receive};
    LOONG_TRY(loong_comm_all_to_all(c->comm, &blocks, LOONG_I16, "case"));
    size_t at = 0;
    for (int r = 0; r < c->size; r++) {
        size_t from = 0;
        size_t bytes = (size_t)receive[r] * 2;
        for (int to = 0; to < c->rank; to++) {
            from += (size_t)table[r][to] * 2;
        }
        LOONG_TRY(check_bytes(c, "all_to_all", c->other + at,
                              c->inputs + (size_t)r * c->stride + from, bytes));
        at += bytes;
    }
    return LOONG_OK;
}

static loong_status_t try_root(cases_t *c)
{
    int root = (int)draw(c, c->size - 1);
    int64_t count = draw_count(c, c->params->longest);
    fill_all(c, LOONG_U8, count);
    LOONG_TRY(
        loong_comm_broadcast(c->comm, c->data, (size_t)count, root, "case"));
    LOONG_TRY(check_bytes(c, "broadcast", c->data,
                          c->inputs + (size_t)root * c->stride, (size_t)count));
    count = draw_count(c, c->params->longest / c->size);
    fill_all(c, LOONG_U8, count);
    LOONG_TRY(loong_comm_gather(c->comm, c->data, (size_t)count, c->other, root,
                                "case"));
    for (int r = 0; r < c->size && c->rank == root; r++) {
        LOONG_TRY(check_bytes(c, "gather", c->other + (int64_t)r * count,
                              c->inputs + (size_t)r * c->stride,
                              (size_t)count));
    }
    return LOONG_OK;
}

/* Around the ring; tags are received in the opposite order of sending. */
static loong_status_t try_messages(cases_t *c)
{
    enum { MESSAGES = 3 };
    loong_comm_request_t sends[MESSAGES];
    loong_comm_request_t receives[MESSAGES];
    int next = (c->rank + 1) % c->size;
    int previous = (c->rank + c->size - 1) % c->size;
    size_t bytes = (size_t)draw_count(c, c->params->longest / MESSAGES);
    fill_all(c, LOONG_U8, (int64_t)bytes * MESSAGES);
    for (int i = 0; i < MESSAGES; i++) {
        LOONG_TRY(loong_comm_isend(c->comm, c->data + (size_t)i * bytes, bytes,
                                   next, 100 + i, &sends[i]));
    }
    for (int i = MESSAGES - 1; i >= 0; i--) {
        LOONG_TRY(loong_comm_irecv(c->comm, c->other + (size_t)i * bytes, bytes,
                                   previous, 100 + i, &receives[i]));
        LOONG_TRY(loong_comm_wait(c->comm, &receives[i]));
    }
    for (int i = 0; i < MESSAGES; i++) {
        LOONG_TRY(loong_comm_wait(c->comm, &sends[i]));
    }
    return check_bytes(c, "messages", c->other,
                       c->inputs + (size_t)previous * c->stride,
                       bytes * MESSAGES);
}

static loong_status_t expect(cases_t *c, bool condition, const char *what)
{
    LOONG_CHECK(c->ctx, condition, LOONG_ERR_INTERNAL, "%s on rank %d of %d",
                what, c->rank, c->size);
    return LOONG_OK;
}

/* A receive that nobody wants any more; what is sent later under its tag goes
 * to the one that is there then. */
static loong_status_t try_cancel(cases_t *c)
{
    enum { TAG = 200 };
    loong_comm_request_t request[2];
    int next = (c->rank + 1) % c->size;
    int previous = (c->rank + c->size - 1) % c->size;
    size_t bytes = (size_t)draw_count(c, c->params->longest / 2);
    fill_all(c, LOONG_U8, (int64_t)bytes);
    LOONG_TRY(loong_comm_irecv(c->comm, c->other + bytes, bytes, previous, TAG,
                               &request[0]));
    LOONG_TRY(expect(c, loong_comm_cancel(c->comm, &request[0]), "cancel"));
    LOONG_TRY(expect(c, loong_comm_cancel(c->comm, &request[0]), "again"));
    memset(c->other, 0x5a, 2 * bytes);
    LOONG_TRY(loong_comm_barrier(c->comm, "nobody waits"));
    LOONG_TRY(loong_comm_isend(c->comm, c->data, bytes, next, TAG,
                               &request[0]));
    LOONG_TRY(loong_comm_irecv(c->comm, c->other, bytes, previous, TAG,
                               &request[1]));
    LOONG_TRY(loong_comm_wait(c->comm, &request[1]));
    LOONG_TRY(loong_comm_wait(c->comm, &request[0]));
    LOONG_TRY(expect(c, loong_comm_cancel(c->comm, &request[1]), "complete"));
    for (size_t i = bytes; i < 2 * bytes; i++) {
        LOONG_TRY(expect(c, c->other[i] == 0x5a, "what was given up came"));
    }
    return check_bytes(c, "behind a cancelled one", c->other,
                       c->inputs + (size_t)previous * c->stride, bytes);
}

/* Odd and even ranks, in reverse order; rank 0 stays out of the second. */
static loong_status_t try_split(cases_t *c)
{
    loong_comm_t *half = NULL;
    loong_comm_t *rest = NULL;
    LOONG_TRY(loong_comm_split(c->comm, c->rank % 2, -c->rank, "half", &half));
    int members = (c->size + 1 - c->rank % 2) / 2;
    int rank = members - 1 - c->rank / 2;
    LOONG_TRY(expect(c, loong_comm_size(half) == members, "size of a half"));
    LOONG_TRY(expect(c, loong_comm_rank(half) == rank, "rank in a half"));
    LOONG_TRY(expect(c, loong_comm_world_rank(half, rank) == c->rank,
                     "world rank in a half"));
    cases_t inner = *c;
    inner.comm = half;
    inner.rank = rank;
    inner.size = members;
    for (int reduce = 0; reduce < LOONG_REDUCE_COUNT; reduce++) {
        LOONG_TRY(try_reductions(&inner, LOONG_F32, (loong_reduce_t)reduce));
    }
    LOONG_TRY(try_all_to_all(&inner));
    LOONG_TRY(
        loong_comm_split(c->comm, c->rank == 0 ? -1 : 5, 0, "rest", &rest));
    LOONG_TRY(expect(c, (rest == NULL) == (c->rank == 0), "negative color"));
    loong_comm_destroy(&rest);
    loong_comm_destroy(&half);
    return LOONG_OK;
}

static loong_status_t try_all(cases_t *c)
{
    for (int dtype = 0; dtype < LOONG_DTYPE_COUNT; dtype++) {
        for (int reduce = 0; reduce < LOONG_REDUCE_COUNT; reduce++) {
            if ((dtype == LOONG_BOOL && reduce == LOONG_REDUCE_SUM) ||
                dtype == LOONG_F8_E4M3 || dtype == LOONG_F8_E5M2) {
                continue;
            }
            LOONG_TRY(try_reductions(c, (loong_dtype_t)dtype,
                                     (loong_reduce_t)reduce));
        }
    }
    LOONG_TRY(try_nan(c));
    for (int i = 0; i < 4; i++) {
        LOONG_TRY(try_all_gather(c));
        LOONG_TRY(try_all_to_all(c));
        LOONG_TRY(try_root(c));
        LOONG_TRY(try_messages(c));
        LOONG_TRY(try_cancel(c));
        LOONG_TRY(loong_comm_barrier(c->comm, "case"));
    }
    return try_split(c);
}

/* Peers' addresses show the peers' bytes. */
static loong_status_t try_peers(cases_t *c, uint64_t *words)
{
    words[3] = 1000 + (uint64_t)c->rank;
    LOONG_TRY(loong_comm_barrier(c->comm, "written"));
    for (int r = 0; r < c->size; r++) {
        uint64_t *peer = loong_comm_peer_pointer(c->comm, &words[3], r);
        int per_node = c->params->ranks_per_node;
        bool readable = per_node == 0 || r / per_node == c->rank / per_node;
        LOONG_TRY(expect(c, (peer != NULL) == readable, "peer pointer"));
        LOONG_TRY(expect(c, peer == NULL || *peer == 1000 + (uint64_t)r,
                         "peer's bytes"));
    }
    LOONG_TRY(expect(c, loong_comm_peer_pointer(c->comm, c, 0) == NULL,
                     "no peer pointer of private memory"));
    return loong_comm_barrier(c->comm, "read");
}

static loong_status_t run_rounds(cases_t *c, unsigned char *private_data,
                                 unsigned char *shared_data)
{
    for (int round = 0; round < c->params->rounds; round++) {
        /* All private, all shared, some of both. */
        c->shared = round % 3 == 1 || (round % 3 == 2 && c->rank % 2 == 0);
        unsigned char *memory = c->shared ? shared_data : private_data;
        c->data = memory;
        c->other = memory + c->stride;
        loong_comm_set_step(c->comm, round);
        LOONG_TRY(try_all(c));
    }
    return LOONG_OK;
}

loong_status_t comm_cases(loong_context_t *ctx, loong_comm_t *comm, void *user)
{
    const comm_cases_params_t *params = user;
    cases_t c = {.ctx = ctx,
                 .comm = comm,
                 .params = params,
                 .state = params->seed,
                 .rank = loong_comm_rank(comm),
                 .size = loong_comm_size(comm)};
    unsigned char *private_data = NULL;
    unsigned char *shared_data = NULL;
    LOONG_CHECK(ctx, c.size <= MAX_RANKS, LOONG_ERR_ARG, "%d ranks", c.size);
    c.stride = (size_t)params->longest * sizeof(double) + 64;
    LOONG_TRY(
        loongi_alloc(ctx, (size_t)c.size * c.stride, "inputs", &c.inputs));
    LOONG_TRY(loongi_alloc(ctx, 2 * c.stride, "data", &private_data));
    LOONG_TRY(loong_comm_alloc_shared(comm, 2 * c.stride, "shared data",
                                      &shared_data));
    LOONG_TRY(try_peers(&c, (uint64_t *)(void *)shared_data));
    LOONG_TRY(run_rounds(&c, private_data, shared_data));
    loong_comm_stats_t stats = loong_comm_stats(comm);
    LOONG_TRY(
        expect(&c, stats.calls > 0 && stats.seconds >= stats.wait, "figures"));
    loong_comm_free_shared(comm, &shared_data);
    loongi_free(ctx, private_data);
    loongi_free(ctx, c.inputs);
    return LOONG_OK;
}
