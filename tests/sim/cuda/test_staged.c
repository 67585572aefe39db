/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of ranks on simulated devices and on the processor: every kind
 * of call in several pieces against what it should give, the adjoint of every
 * transfer, messages begun far ahead, and what is said when a rank does not
 * come, calls something else or has no room. */
#include "comm_place.h"

#include <math.h>
#include <unistd.h>

#include "cudasim.h"

enum { RANKS = MOST_RANKS };

const char *const place_device = "cuda";

void place_devices(int ranks)
{
    cudasim_devices(ranks, (size_t)16 << 20);
}

/* ---- values -------------------------------------------------------------- */

/* Elements from rank q to rank r. */
static int64_t sent(int q, int r)
{
    return q == 1 && r == 2 ? 0 : N / 2 + 100 * q + 10 * r;
}

static loong_status_t exchange_blocks(place_t *p, const double *from,
                                      double *to, bool back)
{
    int64_t go[RANKS];
    int64_t come[RANKS];
    for (int r = 0; r < RANKS; r++) {
        go[r] = back ? sent(r, p->rank) : sent(p->rank, r);
        come[r] = back ? sent(p->rank, r) : sent(r, p->rank);
    }
    const loong_all_to_all_t blocks = {from, go, to, come};
    return loong_comm_all_to_all(p->comm, &blocks, LOONG_F64, "blocks");
}

static loong_status_t exchange(place_t *p)
{
    int64_t at = 0;
    LOONG_TRY(put_numbers(p));
    LOONG_TRY(exchange_blocks(p, p->there, p->second, false));
    LOONG_TRY(get(p, p->second));
    for (int r = 0; r < RANKS; r++) {
        int64_t from = 0;
        for (int k = 0; k < p->rank; k++) {
            from += sent(r, k);
        }
        for (int64_t i = 0; i < sent(r, p->rank); i++) {
            LOONG_TRY(check(p, at++, number(r, from + i)));
        }
    }
    return LOONG_OK;
}

/* Nothing is in any piece: no rank waits for another for ever. */
static loong_status_t nothing(place_t *p)
{
    static const int64_t none[RANKS] = {0};
    const loong_all_to_all_t blocks = {p->there, none, p->second, none};
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->there, 0, LOONG_F64,
                                    LOONG_REDUCE_SUM, "nothing"));
    LOONG_TRY(loong_comm_all_gather(p->comm, p->there, none, LOONG_F64,
                                    "nothing"));
    return loong_comm_all_to_all(p->comm, &blocks, LOONG_F64, "nothing");
}

/* ---- adjoints ------------------------------------------------------------ */

/* In -1 .. 1, of a rank and a name. */
static void draw(place_t *p, uint64_t name, int64_t count)
{
    uint64_t x = name * 1000 + (uint64_t)p->rank + 1;
    for (int64_t i = 0; i < ALL; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        p->here[i] = i < count ? (double)(x >> 11) * 0x1p-52 - 1.0 : 0.0;
    }
}

/* A transfer of elements of this rank to elements of this rank. */
typedef struct transfer {
    int64_t in, out;
    loong_status_t (*forward)(place_t *p);  /* second = A there */
    loong_status_t (*backward)(place_t *p); /* there = At second */
} transfer_t;

static const int64_t uneven[RANKS] = {N + 9, 5, 2 * N - 9, N - 5};

static int64_t begin_of(int rank)
{
    int64_t begin = 0;
    for (int r = 0; r < rank; r++) {
        begin += uneven[r];
    }
    return begin;
}

static loong_status_t gather_there(place_t *p)
{
    LOONG_TRY(loong_device_copy(p->device, p->second + begin_of(p->rank),
                                p->there,
                                (size_t)uneven[p->rank] * sizeof(double)));
    return loong_comm_all_gather(p->comm, p->second, uneven, LOONG_F64, "A");
}

static loong_status_t scatter_back(place_t *p)
{
    LOONG_TRY(loong_comm_reduce_scatter(p->comm, p->second, uneven, LOONG_F64,
                                        LOONG_REDUCE_SUM, "At"));
    return loong_device_copy(p->device, p->there,
                             p->second + begin_of(p->rank),
                             (size_t)uneven[p->rank] * sizeof(double));
}

static loong_status_t blocks_there(place_t *p)
{
    return exchange_blocks(p, p->there, p->second, false);
}

static loong_status_t blocks_back(place_t *p)
{
    return exchange_blocks(p, p->second, p->there, true);
}

/* From an even rank to the odd one behind it: the edge between two stages. */
static loong_status_t edge(place_t *p, bool back)
{
    size_t bytes = ALL * sizeof(double);
    int peer = p->rank ^ 1;
    LOONG_TRY(loongi_comm_reserve(p->comm, 1, bytes));
    return (p->rank % 2 == 1) == back
               ? loong_comm_send(p->comm, back ? p->second : p->there, bytes,
                                 peer, 3)
               : loong_comm_recv(p->comm, back ? p->there : p->second, bytes,
                                 peer, 3);
}

static loong_status_t edge_there(place_t *p)
{
    return edge(p, false);
}

static loong_status_t edge_back(place_t *p)
{
    return edge(p, true);
}

/* <Ax, y> and <x, At y>, of all ranks. */
static loong_status_t check_adjoint(place_t *p, const transfer_t *t,
                                    uint64_t name)
{
    double dot[3] = {0.0, 0.0, 0.0}; /* and a sum of magnitudes */
    double *x = calloc(ALL, sizeof(*x));
    assert_non_null(x);
    draw(p, name, t->in);
    memcpy(x, p->here, ALL * sizeof(*x));
    loong_status_t status = put(p, p->there);
    status = status == LOONG_OK ? loong_device_fill(p->device, p->second, 0,
                                                    ALL * sizeof(double))
                                : status;
    status = status == LOONG_OK ? t->forward(p) : status;
    double *y = calloc(ALL, sizeof(*y));
    assert_non_null(y);
    status = status == LOONG_OK ? get(p, p->second) : status;
    memcpy(y, p->here, ALL * sizeof(*y));
    draw(p, name + 50, t->out);
    for (int64_t i = 0; i < t->out; i++) {
        dot[0] += y[i] * p->here[i];
        dot[2] += fabs(y[i] * p->here[i]);
    }
    status = status == LOONG_OK ? put(p, p->second) : status;
    status = status == LOONG_OK ? t->backward(p) : status;
    status = status == LOONG_OK ? get(p, p->there) : status;
    for (int64_t i = 0; i < t->in; i++) {
        dot[1] += x[i] * p->here[i];
    }
    free(x);
    free(y);
    LOONG_TRY(status);
    LOONG_TRY(loong_comm_all_reduce(p->host, dot, 3, LOONG_F64,
                                    LOONG_REDUCE_SUM, "products"));
    LOONG_CHECK(p->ctx,
                dot[2] > 0.0 && fabs(dot[0] - dot[1]) <= 1e-12 * dot[2],
                LOONG_ERR_INTERNAL, "transfer %d: <Ax, y> %.17g, <x, At y> "
                "%.17g", (int)name, dot[0], dot[1]);
    return LOONG_OK;
}

static loong_status_t adjoints(place_t *p)
{
    int64_t go = 0;
    int64_t come = 0;
    for (int r = 0; r < RANKS; r++) {
        go += sent(p->rank, r);
        come += sent(r, p->rank);
    }
    bool first = p->rank % 2 == 0;
    const transfer_t transfers[] = {
        {uneven[p->rank], begin_of(RANKS), gather_there, scatter_back},
        {go, come, blocks_there, blocks_back},
        {first ? ALL : 0, first ? 0 : ALL, edge_there, edge_back},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(transfers); i++) {
        LOONG_TRY(check_adjoint(p, &transfers[i], (uint64_t)i));
    }
    return LOONG_OK;
}

/* ---- messages and groups ------------------------------------------------- */

enum { MESSAGES = 5, LENGTH = ALL / MESSAGES };

static loong_status_t begin(place_t *p, loong_comm_t *link, bool sends,
                            loong_comm_request_t *request)
{
    double *at = sends ? p->there : p->second;
    for (int i = 0; i < MESSAGES; i++, at += LENGTH) {
        size_t bytes = sizeof(*at) * (size_t)(LENGTH - i);
        int peer = 1 - loong_comm_rank(link);
        LOONG_TRY(sends ? loong_comm_isend(link, at, bytes, peer, i,
                                           &request[i])
                        : loong_comm_irecv(link, at, bytes, peer, i,
                                           &request[i]));
    }
    return LOONG_OK;
}

/* Each direction on its own link, as a pipeline has them; receives are begun
 * long before, and what was sent is overwritten. */
static loong_status_t both_ways(place_t *p, loong_comm_t *const *link)
{
    loong_comm_request_t request[2][MESSAGES];
    int rank = loong_comm_rank(link[0]);
    LOONG_TRY(put_numbers(p));
    for (int i = 0; i < 2; i++) {
        int k = i ^ (rank == 0); /* receive first */
        LOONG_TRY(loongi_comm_reserve(link[k], MESSAGES,
                                      LENGTH * sizeof(double)));
        LOONG_TRY(begin(p, link[k], k == rank, request[k]));
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < MESSAGES; i++) {
            LOONG_TRY(loong_comm_wait(link[k], &request[k][i]));
        }
    }
    LOONG_TRY(loong_device_fill(p->device, p->there, 0xff,
                                ALL * sizeof(double)));
    LOONG_TRY(get(p, p->second));
    for (int64_t i = 0; i < ALL; i++) {
        if (i % LENGTH < LENGTH - i / LENGTH && i / LENGTH < MESSAGES) {
            LOONG_TRY(check(p, i, number(p->rank ^ 1, i)));
        }
    }
    return LOONG_OK;
}

static loong_status_t messages(place_t *p)
{
    loong_comm_t *link[2] = {NULL, NULL};
    loong_status_t status = LOONG_OK;
    for (int k = 0; k < 2 && status == LOONG_OK; k++) {
        status = loong_comm_split(p->comm, p->rank / 2, p->rank, "a link",
                                  &link[k]);
    }
    status = status == LOONG_OK ? both_ways(p, link) : status;
    loong_comm_destroy(&link[0]);
    loong_comm_destroy(&link[1]);
    return status;
}

/* The next call, on another stream, and the next message find the pinned memory
 * of the last one still to be read. */
static loong_status_t in_a_row(place_t *p, void *stream)
{
    size_t bytes = N * sizeof(double);
    int peer = p->rank ^ 1;
    LOONG_TRY(put_numbers(p));
    LOONG_TRY(loong_device_copy(p->device, p->second, p->there,
                                ALL * sizeof(double)));
    LOONG_TRY(loong_device_synchronize(p->device, "numbers"));
    loong_comm_set_stream(p->comm, stream);
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                    LOONG_REDUCE_SUM, "sum"));
    loong_comm_set_stream(p->comm, loong_device_stream(p->device));
    LOONG_TRY(loong_comm_broadcast(p->comm, p->second, bytes, 1, "all"));
    for (int i = 1; i < 3; i++) { /* to the devices */
        double *at = p->second + i * N;
        LOONG_TRY(has_device(p->rank)
                      ? loong_comm_recv(p->comm, at, bytes, peer, i)
                      : loong_comm_send(p->comm, at, bytes, peer, i));
    }
    LOONG_TRY(loong_device_stream_synchronize(p->device, stream));
    LOONG_TRY(get(p, p->there));
    for (int64_t i = 0; i < N; i++) {
        LOONG_TRY(check(p, i, sum_of(p, i)));
    }
    LOONG_TRY(get(p, p->second));
    for (int64_t i = 0; i < 3 * N; i++) {
        bool came = has_device(p->rank);
        LOONG_TRY(check(p, i, number(i < N ? 1 : came ? peer : p->rank, i)));
    }
    return LOONG_OK;
}

static loong_status_t run_in_a_row(loong_context_t *ctx, loong_comm_t *host,
                                   void *user)
{
    void *stream = NULL;
    place_t *p = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, MIXED, &p);
    if (status == LOONG_OK) {
        status = loong_device_stream_create(p->device, &stream);
    }
    if (status == LOONG_OK) {
        status = loongi_comm_reserve(p->comm, 1, N * sizeof(double));
    }
    status = status == LOONG_OK ? in_a_row(p, stream) : status;
    if (p->device != NULL) {
        loong_device_stream_destroy(p->device, stream);
    }
    close_place(p);
    return status;
}

/* Ranks of one kind are served by what serves that kind. */
static loong_status_t groups(place_t *p)
{
    static const char *const wanted[2][2] = {{"nccl", "threads"},
                                             {"staged", "staged"}};
    for (int mixed = 0; mixed < 2; mixed++) {
        loong_comm_t *group = NULL;
        LOONG_TRY(loong_comm_split(p->comm,
                                   mixed ? p->rank / 2 : p->rank % 2, p->rank,
                                   "a group", &group));
        assert_string_equal(loong_comm_backend(group),
                            wanted[mixed][p->rank % 2]);
        assert_int_equal(loongi_comm_is_on_host(group), mixed);
        LOONG_TRY(put_numbers(p));
        loong_comm_set_stream(group, loong_device_stream(p->device));
        loong_status_t status =
            loong_comm_all_reduce(group, p->there, N, LOONG_F64,
                                  LOONG_REDUCE_MAX, "greatest");
        status = status == LOONG_OK ? get(p, p->there) : status;
        int greatest = mixed ? p->rank | 1 : p->rank % 2 + 2;
        for (int64_t i = 0; i < N && status == LOONG_OK; i++) {
            status = check(p, i, number(greatest, i));
        }
        loong_comm_destroy(&group);
        LOONG_TRY(status);
    }
    return LOONG_OK;
}

static loong_status_t run_all(loong_context_t *ctx, loong_comm_t *host,
                              void *user)
{
    static const int64_t equal[RANKS] = {N, N, N, N};
    const place_kind_t *kind = user;
    place_t *p = NULL;
    loong_status_t status = open_place(ctx, host, *kind, &p);
    for (int k = 0; k < 2 && status == LOONG_OK; k++) {
        const int64_t *counts = k == 0 ? equal : uneven;
        status = check_reduce(p, counts);
        status = status == LOONG_OK ? check_gather(p, counts) : status;
    }
    status = status == LOONG_OK ? exchange(p) : status;
    status = status == LOONG_OK ? nothing(p) : status;
    status = status == LOONG_OK ? adjoints(p) : status;
    status = status == LOONG_OK ? messages(p) : status;
    status = status == LOONG_OK ? check_many(p) : status;
    status = status == LOONG_OK && *kind == MIXED ? groups(p) : status;
    close_place(p);
    return status;
}

/* Seed 0: a device does nothing before somebody waits for it. */
static void try_ranks(loong_threads_fn fn, place_kind_t kind, uint64_t seed)
{
    loong_context_t *ctx = test_context();
    cudasim_seed(seed);
    if (seed == 0) {
        cudasim_pace(0.0);
    }
    assert_ok(ctx, run_places(ctx, RANKS, fn, 30.0, &kind));
    test_context_end(&ctx);
    assert_string_equal(cudasim_report(), "");
    assert_int_equal(cudasim_alive(), 0);
    cudasim_reset();
}

static void test_values(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        try_ranks(run_all, MIXED, seed);
        try_ranks(run_in_a_row, MIXED, seed);
    }
}

/* In place of what devices of one kind have themselves. */
static void test_always(void **state)
{
    (void)state;
    try_ranks(run_all, STAGED, 3);
}

/* ---- what is said -------------------------------------------------------- */

/* What the last rank (the processor) or the one before (a device) does. */
typedef struct odd {
    int rank;
    bool other; /* it calls something else; else nothing */
} odd_t;

static loong_status_t run_odd(loong_context_t *ctx, loong_comm_t *host,
                              void *user)
{
    static const int64_t counts[RANKS] = {1, 1, 1, 1};
    const odd_t *odd = user;
    place_t *p = NULL;
    loong_status_t status = open_place(ctx, host, MIXED, &p);
    if (status == LOONG_OK && p->rank != odd->rank) {
        status = loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                       LOONG_REDUCE_SUM, "gradients");
    } else if (status == LOONG_OK && odd->other) {
        status = loong_comm_all_gather(p->comm, p->there, counts, LOONG_F64,
                                       "weights");
    } else if (status == LOONG_OK) {
        sleep(2);
    }
    close_place(p);
    return status;
}

static void test_odd(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        odd_t odd = {RANKS - 1 - i % 2, i >= 2};
        char name[16];
        loong_context_t *ctx = test_context();
        cudasim_seed((uint64_t)i);
        loong_status_t status = run_places(ctx, RANKS, run_odd, 1.0, &odd);
        const char *text = loong_context_error(ctx);
        snprintf(name, sizeof(name), "rank %d", odd.rank);
        assert_int_equal(status, LOONG_ERR_COMM);
        assert_non_null(strstr(text, odd.other ? "do not call the same: "
                                               : "'gradients' of world"));
        assert_non_null(strstr(text, name));
        test_context_end(&ctx);
        assert_string_equal(cudasim_report(), "");
        cudasim_reset();
    }
}

/* ---- a device that hangs ------------------------------------------------- */

/* Whose devices, and in what. */
typedef struct hang {
    int first;
    int last;
    int message; /* else in a collective */
} hang_t;

static loong_status_t send_next(place_t *p)
{
    size_t bytes = N * sizeof(double);
    int peer = p->rank ^ 1;
    return p->rank < peer
               ? loong_comm_send(p->comm, p->there, bytes, peer, 0)
               : loong_comm_recv(p->comm, p->there, bytes, peer, 0);
}

static loong_status_t run_hang(loong_context_t *ctx, loong_comm_t *host,
                               void *user)
{
    const hang_t *hang = user;
    place_t *p = NULL;
    loong_status_t status = open_place(ctx, host, STAGED, &p);
    status = status == LOONG_OK ? put_numbers(p) : status;
    status = status == LOONG_OK ? get(p, p->there) : status;
    if (status == LOONG_OK) {
        status = loongi_comm_reserve(p->comm, 1, N * sizeof(double));
    }
    bool hangs = p->rank >= hang->first && p->rank <= hang->last;
    cudasim_hang(p->rank, hangs);
    if (status == LOONG_OK && hang->message) {
        status = send_next(p);
    } else if (status == LOONG_OK) {
        status = loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                       LOONG_REDUCE_SUM, "gradients");
    }
    /* The next wait does not begin anew. */
    double begin = loongi_now();
    if (hangs && loong_device_synchronize(p->device, "norm and loss") !=
                     LOONG_ERR_COMM) {
        status = LOONG_ERR_INTERNAL;
    }
    assert_true(loongi_now() - begin < 0.5);
    if (status != LOONG_OK && p->comm != NULL) {
        loong_comm_abort(p->comm, loong_context_error(ctx));
        loong_comm_destroy(&p->comm); /* frees nothing that the device has */
        loong_device_set_watch(p->device, NULL, NULL);
        cudasim_hang(p->rank, 0);
    }
    close_place(p);
    return status;
}

/* Who waits for a device waits no longer than the limit, whether others wait
 * for this rank or for their own devices. */
static void test_hang(void **state)
{
    static const struct {
        hang_t hang;
        const char *text[3];
    } cases[] = {
        {{2, 2, 0}, {"all_reduce #1 'gradients' of world (32008 bytes",
                     ": rank 2 has waited ", "waiting for gradients"}},
        {{0, 3, 0}, {"all_reduce #1 'gradients' of world (32008 bytes",
                     " s for its device (limit 1.0 s)",
                     "waiting for gradients"}},
        {{0, 0, 1}, {"world: rank 0 has waited ", " s for its device",
                     "waiting for a message"}},
    };
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        double begin = loongi_now();
        cudasim_seed((uint64_t)i);
        void *hang = (void *)(uintptr_t)&cases[i].hang;
        loong_status_t status = run_places(ctx, RANKS, run_hang, 1.0, hang);
        assert_true(loongi_now() - begin < 10.0);
        assert_int_equal(status, LOONG_ERR_COMM);
        for (int k = 0; k < 3; k++) {
            if (strstr(loong_context_error(ctx), cases[i].text[k]) == NULL) {
                fail_msg("case %d: no '%s' in: %s", (int)i, cases[i].text[k],
                         loong_context_error(ctx));
            }
        }
        test_context_end(&ctx);
        assert_string_equal(cudasim_report(), "");
        cudasim_reset();
    }
}

/* More under way than there is room for is a mistake of the program. */
static loong_status_t overfill(loong_context_t *ctx, loong_comm_t *host,
                               void *user)
{
    loong_comm_request_t request;
    place_t *p = NULL;
    (void)user;
    LOONG_TRY(open_place(ctx, host, MIXED, &p));
    loong_status_t status = loongi_comm_reserve(p->comm, 1, 64);
    if (status == LOONG_OK) {
        status = loong_comm_irecv(p->comm, p->there, 65, p->rank ^ 1, 0,
                                  &request);
    }
    close_place(p);
    return status;
}

static void test_room(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    assert_int_equal(run_places(ctx, RANKS, overfill, 5.0, NULL),
                     LOONG_ERR_INTERNAL);
    assert_non_null(strstr(loong_context_error(ctx),
                           "a message of 65 bytes beside 0 others, room is "
                           "for 1 of 64"));
    test_context_end(&ctx);
    cudasim_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_always),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_hang),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
