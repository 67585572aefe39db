/* SPDX-License-Identifier: Apache-2.0 */
#include "comm_place.h"

#include "loong/register.h"
#include "staged_comm.h"

loong_status_t watch_comm(void *user, bool waits)
{
    return loongi_comm_watch(user, waits);
}

bool has_device(int rank)
{
    return rank % 2 == 0;
}

static loong_status_t alloc(place_t *p, double **ptr_p)
{
    void *memory = NULL;
    LOONG_TRY(loong_device_alloc(p->device, ALL * sizeof(double), "numbers",
                                 &memory));
    *ptr_p = memory;
    return LOONG_OK;
}

loong_status_t open_place(loong_context_t *ctx, loong_comm_t *host,
                          place_kind_t kind, place_t **place_p)
{
    place_t *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    *place_p = p;
    p->ctx = ctx;
    p->host = host;
    p->rank = loong_comm_rank(host);
    p->ranks = loong_comm_size(host);
    p->here = calloc(ALL, sizeof(*p->here));
    assert_non_null(p->here);
    bool device = kind != MIXED || has_device(p->rank);
    int index = kind != MIXED ? p->rank : device ? p->rank / 2 : 0;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, device ? place_device : "cpu", index,
                                  &p->device));
    const loong_staged_params_t params = {kind == STAGED, PIECE};
    LOONG_TRY(kind == OWN ? loong_device_communicator(p->device, host,
                                                       &p->comm)
                           : loongi_staged_create(ctx, p->device, host,
                                                  &params, &p->comm));
    LOONG_TRY(alloc(p, &p->there));
    LOONG_TRY(alloc(p, &p->second));
    loong_comm_set_stream(p->comm, loong_device_stream(p->device));
    loong_device_set_watch(p->device, watch_comm, p->comm);
    return LOONG_OK;
}

void close_place(place_t *p)
{
    loong_status_t status =
        p->device != NULL ? loong_device_synchronize(p->device, "the end")
                          : LOONG_OK;
    if (p->comm != NULL) {
        loong_device_set_watch(p->device, NULL, NULL);
        if (status != LOONG_OK) {
            loong_comm_abort(p->comm, loong_context_error(p->ctx));
        }
        loong_comm_destroy(&p->comm);
        loong_device_free(p->device, p->there, ALL * sizeof(double));
        loong_device_free(p->device, p->second, ALL * sizeof(double));
    }
    loong_device_destroy(&p->device);
    free(p->here);
    free(p);
}

loong_status_t run_places(loong_context_t *ctx, int ranks, loong_threads_fn fn,
                          double timeout, void *user)
{
    loong_threads_params_t params = {0};
    params.size = ranks;
    params.comm.timeout = timeout;
    place_devices(ranks);
    return loong_threads_run(ctx, &params, fn, user);
}

/* ---- numbers ------------------------------------------------------------- */

double number(int rank, int64_t i)
{
    return (double)(rank * 7 + (int)(i % 1000));
}

double sum_of(const place_t *p, int64_t i)
{
    double sum = 0.0;
    for (int r = 0; r < p->ranks; r++) {
        sum += number(r, i);
    }
    return sum;
}

loong_status_t put(place_t *p, double *to)
{
    return loong_device_copy(p->device, to, p->here, ALL * sizeof(double));
}

loong_status_t put_numbers(place_t *p)
{
    for (int64_t i = 0; i < ALL; i++) {
        p->here[i] = number(p->rank, i);
    }
    return put(p, p->there);
}

loong_status_t get(place_t *p, const double *from)
{
    return loong_device_read(p->device, p->here, from, ALL * sizeof(double),
                             "numbers");
}

loong_status_t check(place_t *p, int64_t i, double wanted)
{
    LOONG_CHECK(p->ctx, p->here[i] == wanted, LOONG_ERR_INTERNAL,
                "rank %d: element %lld is %g, %g wanted", p->rank,
                (long long)i, p->here[i], wanted);
    return LOONG_OK;
}

/* ---- collectives --------------------------------------------------------- */

loong_status_t check_reduce(place_t *p, const int64_t *counts)
{
    int64_t all = (int64_t)p->ranks * N;
    int64_t begin = 0;
    LOONG_TRY(put_numbers(p));
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->there, all, LOONG_F64,
                                    LOONG_REDUCE_SUM, "sum"));
    LOONG_TRY(get(p, p->there));
    for (int64_t i = 0; i < all; i++) {
        LOONG_TRY(check(p, i, sum_of(p, i)));
    }
    LOONG_TRY(put_numbers(p));
    LOONG_TRY(loong_comm_reduce_scatter(p->comm, p->there, counts, LOONG_F64,
                                        LOONG_REDUCE_SUM, "pieces"));
    LOONG_TRY(get(p, p->there));
    for (int r = 0; r < p->rank; r++) {
        begin += counts[r];
    }
    for (int64_t i = begin; i < begin + counts[p->rank]; i++) {
        LOONG_TRY(check(p, i, sum_of(p, i)));
    }
    return LOONG_OK;
}

loong_status_t check_gather(place_t *p, const int64_t *counts)
{
    size_t all = (size_t)p->ranks * N;
    int64_t begin = 0;
    LOONG_TRY(put_numbers(p));
    LOONG_TRY(loong_comm_all_gather(p->comm, p->there, counts, LOONG_F64,
                                    "pieces"));
    LOONG_TRY(get(p, p->there));
    for (int r = 0; r < p->ranks; begin += counts[r++]) {
        for (int64_t i = begin; i < begin + counts[r]; i++) {
            LOONG_TRY(check(p, i, number(r, i)));
        }
    }
    for (int root = 1; root < LOONG_MIN(3, p->ranks); root++) {
        LOONG_TRY(put_numbers(p));
        LOONG_TRY(loong_comm_broadcast(p->comm, p->there,
                                       all * sizeof(double), root, "all"));
        LOONG_TRY(get(p, p->there));
        for (size_t i = 0; i < all; i++) {
            LOONG_TRY(check(p, (int64_t)i, number(root, (int64_t)i)));
        }
    }
    return LOONG_OK;
}

loong_status_t check_many(place_t *p)
{
    enum { CALLS = 100, PART = N / CALLS };
    LOONG_TRY(put_numbers(p));
    for (int64_t k = 0; k < CALLS; k++) {
        LOONG_TRY(loong_comm_all_reduce(p->comm, p->there + k * PART, PART,
                                        LOONG_F64, LOONG_REDUCE_SUM, "many"));
    }
    LOONG_TRY(get(p, p->there));
    for (int64_t i = 0; i < ALL; i++) {
        LOONG_TRY(check(p, i,
                        i < (int64_t)CALLS * PART ? sum_of(p, i)
                                                  : number(p->rank, i)));
    }
    return LOONG_OK;
}

/* Rank q sends 100 q + 10 r + 1 elements to rank r. */
loong_status_t check_exchange(place_t *p)
{
    int64_t sent[MOST_RANKS];
    int64_t received[MOST_RANKS];
    int64_t at = 0;
    for (int r = 0; r < p->ranks; r++) {
        sent[r] = 100 * p->rank + 10 * r + 1;
        received[r] = 100 * r + 10 * p->rank + 1;
    }
    const loong_all_to_all_t blocks = {p->there, sent, p->second, received};
    LOONG_TRY(put_numbers(p));
    LOONG_TRY(loong_comm_all_to_all(p->comm, &blocks, LOONG_F64, "blocks"));
    LOONG_TRY(get(p, p->second));
    for (int r = 0; r < p->ranks; r++) {
        int64_t from = 0;
        for (int k = 0; k < p->rank; k++) {
            from += 100 * r + 10 * k + 1;
        }
        for (int64_t i = 0; i < received[r]; i++) {
            LOONG_TRY(check(p, at++, number(r, from + i)));
        }
    }
    return LOONG_OK;
}

/* Messages of the pair of the first two ranks and of the last alone: begun far
 * ahead, more of them than a communicator has room for unasked, in each
 * direction on its own link, read behind the wait. */
enum { MESSAGES = 150, LENGTH = ALL / MESSAGES };

static loong_status_t begin(place_t *p, loong_comm_t *link, bool sends,
                            loong_comm_request_t *request)
{
    int peer = loong_comm_size(link) - 1 - loong_comm_rank(link);
    double *at = sends ? p->there : p->second;
    size_t bytes = sizeof(*at) * LENGTH;
    LOONG_TRY(loongi_comm_reserve(link, MESSAGES, bytes));
    for (int i = 0; i < MESSAGES; i++, at += LENGTH) {
        LOONG_TRY(sends ? loong_comm_isend(link, at, bytes, peer, i,
                                           &request[i])
                        : loong_comm_irecv(link, at, bytes, peer, i,
                                           &request[i]));
    }
    return LOONG_OK;
}

static loong_status_t finish(loong_comm_t *link, loong_comm_request_t *request)
{
    for (int i = 0; i < MESSAGES; i++) {
        LOONG_TRY(loong_comm_wait(link, &request[i]));
    }
    return LOONG_OK;
}

/* link[0]: to the higher rank, link[1]: from it. */
static loong_status_t send_both_ways(place_t *p, loong_comm_t *const *link,
                                     int first)
{
    loong_comm_request_t request[2][MESSAGES];
    int rank = loong_comm_rank(link[0]);
    int peer = loong_comm_size(link[0]) > 1 ? 1 - p->rank : p->rank;
    LOONG_TRY(put_numbers(p));
    for (int i = 0; i < 2; i++) {
        int k = i ^ first;
        loong_comm_set_stream(link[k], loong_device_stream(p->device));
        LOONG_TRY(begin(p, link[k], k == rank, request[k]));
    }
    LOONG_TRY(finish(link[0], request[0]));
    LOONG_TRY(finish(link[1], request[1]));
    LOONG_TRY(loong_device_fill(p->device, p->there, 0xff,
                                ALL * sizeof(double)));
    LOONG_TRY(get(p, p->second));
    for (int64_t i = 0; i < MESSAGES * LENGTH; i++) {
        LOONG_TRY(check(p, i, number(peer, i)));
    }
    return LOONG_OK;
}

loong_status_t check_messages(place_t *p)
{
    loong_comm_t *link[2] = {NULL, NULL};
    loong_status_t status = LOONG_OK;
    for (int k = 0; k < 2 && status == LOONG_OK; k++) {
        status = loong_comm_split(p->comm, p->rank / 2, p->rank, "a link",
                                  &link[k]);
    }
    bool self = p->rank == p->ranks - 1;
    loong_comm_t *used[2] = {link[0], link[self ? 0 : 1]};
    if (status == LOONG_OK) { /* the ranks meet in one order */
        status = send_both_ways(p, used, 0);
    }
    if (status == LOONG_OK) { /* both receive first */
        status = send_both_ways(p, used, 1 - p->rank % 2);
    }
    loong_comm_destroy(&link[0]);
    loong_comm_destroy(&link[1]);
    return status;
}

/* Group g: rank g % ranks sends two messages to each other rank, of 100 g + 10
 * to + k + 1 elements. Ranks take part in their own alone, and wait behind all
 * of them. */
enum { GROUPS = 12, GROUP_MESSAGES = 2 };

static int64_t length_of(int group, int to, int k)
{
    return 100 * group + 10 * to + k + 1;
}

static loong_status_t begin_group(place_t *p, loong_comm_t *comm, int group,
                                  double *received,
                                  loong_comm_request_t **request)
{
    int from = group % p->ranks;
    int64_t at = 0;
    LOONG_TRY(loongi_comm_group_messages(comm, true));
    for (int to = 0; to < p->ranks; to++) {
        for (int k = 0; k < GROUP_MESSAGES && to != from; k++) {
            int64_t count = length_of(group, to, k);
            size_t bytes = (size_t)count * sizeof(double);
            if (p->rank == from) {
                LOONG_TRY(loong_comm_isend(comm, p->there + at, bytes, to, 0,
                                           (*request)++));
            } else if (p->rank == to) {
                LOONG_TRY(loong_comm_irecv(comm, received, bytes, from, 0,
                                           (*request)++));
                received += count;
            }
            at += count;
        }
    }
    return loongi_comm_group_messages(comm, false);
}

/* What a rank gets of a group. */
static loong_status_t check_group(place_t *p, int group, int64_t *place)
{
    int from = group % p->ranks;
    int64_t at = 0;
    for (int to = 0; to < p->ranks; to++) {
        for (int k = 0; k < GROUP_MESSAGES && to != from; k++) {
            int64_t count = length_of(group, to, k);
            for (int64_t i = 0; i < count && to == p->rank; i++) {
                LOONG_TRY(check(p, (*place)++, number(from, at + i)));
            }
            at += count;
        }
    }
    return LOONG_OK;
}

loong_status_t check_groups(place_t *p)
{
    loong_comm_t *comm = NULL;
    loong_comm_request_t requests[GROUPS * GROUP_MESSAGES * MOST_RANKS];
    loong_comm_request_t *request = requests;
    int64_t place = 0;
    LOONG_TRY(put_numbers(p));
    LOONG_TRY(loong_comm_split(p->comm, 0, p->rank, "an edge", &comm));
    loong_comm_set_stream(comm, loong_device_stream(p->device));
    loong_status_t status = LOONG_OK;
    double *received = p->second;
    for (int g = 0; g < GROUPS && status == LOONG_OK; g++) {
        const loong_comm_request_t *first = request;
        status = begin_group(p, comm, g, received, &request);
        for (; first < request && status == LOONG_OK; first++) {
            bool comes = first->kind == (int)LOONG_COLLECTIVE_RECV;
            received += comes ? first->bytes / sizeof(double) : 0;
        }
    }
    for (loong_comm_request_t *r = requests; r < request && status == LOONG_OK;
         r++) {
        status = loong_comm_wait(comm, r);
    }
    status = status == LOONG_OK ? loong_device_fill(p->device, p->there, 0xff,
                                                    ALL * sizeof(double))
                                : status;
    status = status == LOONG_OK ? get(p, p->second) : status;
    for (int g = 0; g < GROUPS && status == LOONG_OK; g++) {
        status = check_group(p, g, &place);
    }
    loong_comm_destroy(&comm);
    return status;
}

loong_status_t check_own(loong_context_t *ctx, loong_comm_t *host, void *user)
{
    static const int64_t equal[] = {N, N, N};
    static const int64_t several[] = {N + 9, 0, 2 * N - 9};
    place_t *p = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    for (int k = 0; k < 2 && status == LOONG_OK; k++) {
        const int64_t *counts = k == 0 ? equal : several;
        status = check_reduce(p, counts);
        status = status == LOONG_OK ? check_gather(p, counts) : status;
    }
    status = status == LOONG_OK ? check_exchange(p) : status;
    status = status == LOONG_OK ? check_messages(p) : status;
    status = status == LOONG_OK ? check_groups(p) : status;
    status = status == LOONG_OK ? check_many(p) : status;
    close_place(p);
    return status;
}
