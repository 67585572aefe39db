/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to the ranks of their experts, on simulated devices of several ranks:
 * every number that the kernels of the processor make, in every order of
 * streams; both ways are each other's adjoint; what is refused. */
#include "test.h"

#include <stdlib.h>

#include "comm_impl.h"
#include "cudasim.h"
#include "loong/device.h"
#include "loong/moe.h"
#include "loong/register.h"
#include "rng.h"

enum { RANKS = 4 };

typedef enum pattern { RANDOM, ONE, NONE, TWICE } pattern_t;

typedef struct dispatch_case {
    int ranks;
    int copies;
    int experts;
    int64_t tokens; /* more than 256: several blocks */
    int64_t k;
    int64_t cols;
    loong_dtype_t dtype;
    pattern_t pattern;
    int sets; /* of experts */
} dispatch_case_t;

static const dispatch_case_t cases[] = {
    {2, 1, 4, 5, 2, 7, LOONG_F32, RANDOM, 1},
    {4, 2, 8, 300, 3, 12, LOONG_BF16, RANDOM, 1},
    {3, 1, 9, 40, 8, 3, LOONG_F32, RANDOM, 1},
    {2, 1, 2, 600, 1, 1, LOONG_F32, ONE, 1},
    {4, 4, 3, 20, 2, 5, LOONG_BF16, RANDOM, 1},
    {2, 1, 4, 6, 2, 4, LOONG_F32, NONE, 1},
    {3, 1, 6, 30, 2, 4, LOONG_BF16, TWICE, 1},
    {4, 2, 12, 70, 2, 4, LOONG_F32, RANDOM, 3},
};

/* One operand, on both sides; the device's is exactly so long. */
typedef struct pair {
    void *host;
    void *there;
    size_t bytes;
} pair_t;

typedef struct place {
    loong_context_t *ctx;
    loong_device_t *device;
    loong_comm_t *host;
    loong_comm_t *comm;
    const dispatch_case_t *c;
    loong_collective_attr_t at;
    loong_expert_routes_attr_t routes;
    int64_t round;
    int64_t sent;    /* rows there is room for */
    int64_t arrived;
    pair_t chosen, source, dest, counts, coming;
    pair_t x, y, back;
    pair_t kept, rounds, more;
} place_t;

/* ---- launches ------------------------------------------------------------ */

static bool unloaded; /* a mistake: kernels are launched at once */

static loong_karg_t mat(loong_dtype_t dtype, int64_t rows, int64_t cols)
{
    loong_karg_t a = {dtype, 2, {rows, cols, 0, 0}, cols};
    return a;
}

static loong_status_t launch(place_t *p, const loong_kernel_query_t *q,
                             bool there, void *const *ptr)
{
    const loong_kernel_t *kernel =
        loong_find_kernel(p->ctx, q->op, there ? "cuda" : "cpu", 0);
    loong_comm_t *group[LOONG_GROUP_COUNT] = {NULL};
    loong_kernel_call_t call = {.ctx = p->ctx, .query = q, .ptr = ptr,
                                .group = group, .round = p->round};
    char reason[LOONG_REASON_SIZE] = "";
    size_t room = 0;
    assert_non_null(kernel);
    LOONG_CHECK(p->ctx, kernel->support == NULL || kernel->support(q, reason),
                LOONG_ERR_UNSUPPORTED, "%s", reason);
    group[LOONG_GROUP_ETP_EP] = there ? p->comm : p->host;
    room = kernel->workspace != NULL ? kernel->workspace(q) : 0;
    if (there) {
        call.device = p->device;
        call.stream = loong_device_stream(p->device);
        call.error = loong_device_get_error(p->device);
        LOONG_TRY(loong_device_alloc(p->device, room, "room",
                                     &call.workspace));
        LOONG_TRY(loong_device_fill(p->device, call.workspace, 0xff, room));
    } else {
        LOONG_TRY(loongi_alloc(p->ctx, room + 1, "room", &call.workspace));
    }
    if (kernel->prepare != NULL) {
        LOONG_TRY(kernel->prepare(p->ctx, q, &call.state));
    }
    call.load = there && !unloaded;
    loong_status_t status = call.load ? kernel->run(&call) : LOONG_OK;
    call.load = false;
    status = status == LOONG_OK ? kernel->run(&call) : status;
    if (kernel->destroy != NULL) {
        kernel->destroy(p->ctx, call.state);
    }
    if (there) {
        loong_device_free(p->device, call.workspace, room);
    } else {
        loongi_free(p->ctx, call.workspace);
    }
    return status;
}

static loong_kernel_query_t query_routes(const place_t *p)
{
    const dispatch_case_t *c = p->c;
    loong_kernel_query_t q = {.op = "expert_routes", .attr = &p->routes,
                              .num_in = 1, .num_out = 4, .threads = 1};
    q.arg[0] = mat(LOONG_I32, c->tokens * c->ranks, c->k);
    q.arg[1] = mat(LOONG_I32, p->sent, 1);
    q.arg[1].rank = 1;
    q.arg[2] = mat(LOONG_I32, c->tokens, c->ranks);
    q.arg[3] = mat(LOONG_I32, 2, c->ranks);
    q.arg[4] = mat(LOONG_I32, p->arrived, c->k);
    return q;
}

static loong_status_t find_routes(place_t *p, bool there)
{
    loong_kernel_query_t q = query_routes(p);
    const pair_t *pairs[] = {&p->chosen, &p->source, &p->dest, &p->counts,
                             &p->coming};
    void *ptr[5];
    for (int i = 0; i < 5; i++) {
        ptr[i] = there ? pairs[i]->there : pairs[i]->host;
        if (there && i > 0) { /* no -1, which is what tails get */
            LOONG_TRY(loong_device_fill(p->device, ptr[i], 0x5a,
                                        pairs[i]->bytes));
        }
    }
    return launch(p, &q, there, ptr);
}

static loong_status_t exchange(place_t *p, bool there, const pair_t *from,
                               const pair_t *to, bool back)
{
    loong_exchange_rows_attr_t attr = {p->at,
                                       back ? p->sent : p->arrived,
                                       back ? p->arrived : p->sent, back};
    loong_kernel_query_t q = {.op = "exchange_rows", .attr = &attr,
                              .num_in = 2, .num_out = 1, .threads = 1};
    q.arg[0] = mat(p->c->dtype, attr.back_rows, p->c->cols);
    q.arg[1] = mat(LOONG_I32, 2, p->c->ranks);
    q.arg[2] = mat(p->c->dtype, attr.rows, p->c->cols);
    void *ptr[3] = {there ? from->there : from->host,
                    there ? p->counts.there : p->counts.host,
                    there ? to->there : to->host};
    return launch(p, &q, there, ptr);
}

/* ---- operands ------------------------------------------------------------ */

static loong_status_t make_pair(place_t *p, size_t bytes, pair_t *pair)
{
    pair->bytes = bytes;
    LOONG_TRY(loongi_alloc(p->ctx, bytes, "operand", &pair->host));
    memset(pair->host, 0xff, bytes);
    LOONG_TRY(loong_device_alloc(p->device, bytes, "operand", &pair->there));
    return loong_device_fill(p->device, pair->there, 0xff, bytes);
}

static loong_status_t send(place_t *p, const pair_t *pair)
{
    return loong_device_copy(p->device, pair->there, pair->host, pair->bytes);
}

static void free_pair(place_t *p, pair_t *pair)
{
    loongi_free(p->ctx, pair->host);
    loong_device_free(p->device, pair->there, pair->bytes);
}

static uint64_t draw(uint64_t seed, uint64_t stream, uint64_t i)
{
    return (uint64_t)(loongi_rng_uniform(seed, stream, i) * 0x1p48);
}

/* Slot j of a token of the group. */
static int32_t choose(const place_t *p, int64_t token, int64_t j)
{
    const dispatch_case_t *c = p->c;
    uint64_t seed = (uint64_t)(token / c->tokens) + 1;
    token %= c->tokens;
    uint64_t bits = draw(seed, 3, (uint64_t)token);
    int32_t first = (int32_t)(bits % (uint64_t)c->experts);
    bool dropped = bits >> 40 & 1 && j == c->k - 1;
    switch (c->pattern) {
    case ONE:
        return 0;
    case NONE:
        return -1;
    case TWICE:
        return first;
    default:
        return dropped ? -1 : (int32_t)((first + j) % c->experts);
    }
}

/* Whole numbers below 8, which both types have. */
static void fill(place_t *p, const pair_t *pair, uint64_t stream)
{
    uint64_t seed = (uint64_t)p->at.rank + 1;
    bool half = p->c->dtype == LOONG_BF16;
    for (size_t i = 0; i < pair->bytes / (half ? 2 : 4); i++) {
        float value = (float)(draw(seed, stream, i) % 8);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        if (half) {
            ((uint16_t *)pair->host)[i] = (uint16_t)(bits >> 16);
        } else {
            ((float *)pair->host)[i] = value;
        }
    }
}

/* Of the rows that go (side 0) or come. */
static double dot(const place_t *p, int side, const pair_t *a, const pair_t *b)
{
    bool half = p->c->dtype == LOONG_BF16;
    const int32_t *count = (int32_t *)p->counts.host + side * p->c->ranks;
    double sum = 0.0;
    size_t n = 0;
    for (int r = 0; r < p->c->ranks; r++) {
        n += (size_t)(count[r] * p->c->cols);
    }
    for (size_t i = 0; i < n; i++) {
        const pair_t *of[2] = {a, b};
        float value[2];
        for (int k = 0; k < 2; k++) {
            uint32_t bits =
                half ? (uint32_t)((uint16_t *)of[k]->host)[i] << 16
                     : ((uint32_t *)of[k]->host)[i];
            memcpy(&value[k], &bits, sizeof(bits));
        }
        sum += (double)value[0] * value[1];
    }
    return sum;
}

static loong_status_t open_place(loong_context_t *ctx, loong_comm_t *host,
                                 const dispatch_case_t *c, place_t *p)
{
    memset(p, 0, sizeof(*p));
    p->ctx = ctx;
    p->host = host;
    p->c = c;
    int rank = loong_comm_rank(host);
    loong_collective_attr_t at = {LOONG_GROUP_ETP_EP, c->ranks, rank, NULL,
                                  "rows", 0};
    p->at = at;
    p->routes.size = c->ranks;
    p->routes.rank = rank;
    p->routes.experts = c->experts;
    p->routes.copies = c->copies;
    p->routes.sets = c->sets;
    p->sent = c->tokens * LOONG_MIN(c->ranks, c->k * c->copies);
    p->arrived = c->tokens * c->ranks;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, "cuda", rank, &p->device));
    LOONG_TRY(loong_device_communicator(p->device, host, &p->comm));
    size_t row = (size_t)c->cols * loong_dtype_size(c->dtype);
    size_t tokens = (size_t)c->tokens;
    size_t chosen = (size_t)p->arrived * (size_t)c->k * 4;
    LOONG_TRY(make_pair(p, chosen, &p->chosen));
    LOONG_TRY(make_pair(p, chosen, &p->kept));
    LOONG_TRY(make_pair(p, 4, &p->rounds));
    LOONG_TRY(make_pair(p, 4, &p->more));
    LOONG_TRY(make_pair(p, (size_t)p->sent * 4, &p->source));
    LOONG_TRY(make_pair(p, tokens * (size_t)c->ranks * 4, &p->dest));
    LOONG_TRY(make_pair(p, 2 * (size_t)c->ranks * 4, &p->counts));
    LOONG_TRY(make_pair(p, (size_t)(p->arrived * c->k) * 4, &p->coming));
    LOONG_TRY(make_pair(p, (size_t)p->sent * row, &p->x));
    LOONG_TRY(make_pair(p, (size_t)p->arrived * row, &p->y));
    LOONG_TRY(make_pair(p, (size_t)p->sent * row, &p->back));
    for (int64_t i = 0; i < p->arrived * c->k; i++) {
        ((int32_t *)p->chosen.host)[i] = choose(p, i / c->k, i % c->k);
    }
    return send(p, &p->chosen);
}

static void close_place(place_t *p)
{
    pair_t *pairs[] = {&p->chosen, &p->source, &p->dest, &p->counts,
                       &p->coming, &p->x,      &p->y,    &p->back,
                       &p->kept,   &p->rounds, &p->more};
    for (int i = 0; i < LOONG_COUNT_OF(pairs); i++) {
        free_pair(p, pairs[i]);
    }
    loong_comm_destroy(&p->comm);
    loong_device_destroy(&p->device);
}

/* ---- what both sides make ------------------------------------------------ */

static loong_status_t same(place_t *p, const pair_t *pair, const char *what)
{
    const dispatch_case_t *c = p->c;
    unsigned char *got = malloc(pair->bytes);
    assert_non_null(got);
    loong_status_t status =
        loong_device_read(p->device, got, pair->there, pair->bytes, what);
    size_t i = 0;
    while (status == LOONG_OK && i < pair->bytes &&
           got[i] == ((unsigned char *)pair->host)[i]) {
        i++;
    }
    free(got);
    LOONG_TRY(status);
    LOONG_CHECK(p->ctx, i == pair->bytes, LOONG_ERR_INTERNAL,
                "%s of %lld tokens on %d ranks, %d copies: byte %zu of %zu",
                what, (long long)c->tokens, c->ranks, c->copies, i,
                pair->bytes);
    return LOONG_OK;
}

/* There and back, of both sides; the sums of <Ax,w> and <x,A'w>. */
static loong_status_t move(place_t *p)
{
    double both[2] = {0.0, 0.0};
    fill(p, &p->x, 1);
    LOONG_TRY(send(p, &p->x));
    LOONG_TRY(exchange(p, false, &p->x, &p->y, false));
    LOONG_TRY(exchange(p, true, &p->x, &p->y, false));
    LOONG_TRY(same(p, &p->y, "rows that come"));
    pair_t w = {NULL, NULL, p->y.bytes};
    LOONG_TRY(make_pair(p, p->y.bytes, &w));
    fill(p, &w, 2);
    both[0] = dot(p, 1, &p->y, &w);
    LOONG_TRY(send(p, &w));
    LOONG_TRY(exchange(p, false, &w, &p->back, true));
    LOONG_TRY(exchange(p, true, &w, &p->back, true));
    LOONG_TRY(same(p, &p->back, "rows that come back"));
    both[1] = dot(p, 0, &p->x, &p->back);
    free_pair(p, &w);
    LOONG_TRY(loong_comm_all_reduce(p->host, both, 2, LOONG_F64,
                                    LOONG_REDUCE_SUM, "test"));
    LOONG_CHECK(p->ctx,
                both[0] == both[1] &&
                    (both[0] > 0.0) == (p->c->pattern != NONE),
                LOONG_ERR_INTERNAL, "<Ax,w> is %g, <x,A'w> is %g", both[0],
                both[1]);
    return LOONG_OK;
}

/* About ten rounds, the last one of few rows, and what each of them keeps. */
static loong_status_t find_rounds(place_t *p)
{
    const dispatch_case_t *c = p->c;
    loong_expert_window_attr_t attr = {
        c->experts, c->sets, c->ranks / c->copies,
        LOONG_MAX(9, p->arrived * c->k / 10 - 1)};
    loong_kernel_query_t q = {.op = "expert_rounds", .attr = &attr,
                              .num_in = 1, .num_out = 2, .threads = 1};
    q.arg[0] = mat(LOONG_I32, p->arrived, c->k);
    q.arg[1] = mat(LOONG_I32, 1, 1);
    q.arg[2] = mat(LOONG_F32, 1, 1);
    q.arg[1].rank = q.arg[2].rank = 1;
    for (int there = 0; there < 2; there++) {
        void *ptr[3] = {there ? p->chosen.there : p->chosen.host,
                        there ? p->rounds.there : p->rounds.host,
                        there ? p->more.there : p->more.host};
        LOONG_TRY(launch(p, &q, there, ptr));
    }
    LOONG_TRY(same(p, &p->rounds, "rounds"));
    LOONG_TRY(same(p, &p->more, "rounds beyond the first"));
    LOONG_CHECK(p->ctx,
                *(float *)p->more.host ==
                    (float)(*(int32_t *)p->rounds.host - 1),
                LOONG_ERR_INTERNAL, "%g rounds beyond the first",
                (double)*(float *)p->more.host);
    q.op = "expert_window";
    q.num_out = 1;
    q.arg[1] = q.arg[0];
    for (p->round = 0; p->round < *(int32_t *)p->rounds.host; p->round++) {
        for (int there = 0; there < 2; there++) {
            void *ptr[2] = {there ? p->chosen.there : p->chosen.host,
                            there ? p->kept.there : p->kept.host};
            LOONG_TRY(launch(p, &q, there, ptr));
        }
        LOONG_TRY(same(p, &p->kept, "a round"));
    }
    p->round = 0;
    return LOONG_OK;
}

static loong_status_t run_both(loong_context_t *ctx, loong_comm_t *host,
                               void *user)
{
    place_t p;
    LOONG_TRY(open_place(ctx, host, user, &p));
    loong_status_t status = find_rounds(&p);
    status = status == LOONG_OK ? find_routes(&p, false) : status;
    for (int again = 0; again < 2 && status == LOONG_OK; again++) {
        status = find_routes(&p, true);
        status = status == LOONG_OK ? move(&p) : status;
        const pair_t *pairs[] = {&p.source, &p.dest, &p.counts, &p.coming};
        for (int i = 0; i < 4 && status == LOONG_OK; i++) {
            status = same(&p, pairs[i], "routes");
        }
    }
    close_place(&p);
    return status;
}

static loong_status_t run_ranks(loong_context_t *ctx, loong_threads_fn fn,
                                const dispatch_case_t *c)
{
    loong_threads_params_t params = {0};
    params.size = c->ranks;
    params.comm.timeout = 30.0;
    cudasim_devices(c->ranks, (size_t)16 << 20);
    return loong_threads_run(ctx, &params, fn, (void *)c);
}

static void test_values(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 2 * LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        cudasim_seed((uint64_t)i + 1);
        assert_ok(ctx, run_ranks(ctx, run_both,
                                 &cases[i % LOONG_COUNT_OF(cases)]));
        test_context_end(&ctx);
        assert_string_equal(cudasim_report(), "");
        assert_int_equal(cudasim_alive(), 0);
        cudasim_reset();
    }
}

/* What a step must not do, found: a kernel that is loaded by its launch behind
 * a collective, memory of the host that is taken. */
static loong_status_t run_unloaded(loong_context_t *ctx, loong_comm_t *host,
                                   void *user)
{
    place_t p;
    LOONG_TRY(open_place(ctx, host, user, &p));
    loong_status_t status = LOONG_OK;
    if (unloaded) { /* the host has the counts when the step begins */
        status = find_routes(&p, true);
    }
    loong_device_range_begin(p.device, "step");
    if (status == LOONG_OK) {
        status = unloaded ? exchange(&p, true, &p.x, &p.y, false)
                          : find_routes(&p, true);
    }
    loong_device_range_end(p.device);
    close_place(&p);
    return status;
}

static void test_unloaded(void **state)
{
    (void)state;
    static const char *const text[] = {
        "kernel (check_counts) is loaded by its first launch while 1 "
        "operations of NCCL are under way on device ",
        "cudaMallocHost: 16 bytes within a step"};
    for (int i = 0; i < 2; i++) {
        loong_context_t *ctx = test_context();
        cudasim_seed(1);
        cudasim_pace(0.0);
        cudasim_quiet(1);
        unloaded = i == 0;
        assert_ok(ctx, run_ranks(ctx, run_unloaded, &cases[0]));
        unloaded = false;
        cudasim_quiet(0);
        if (strstr(cudasim_report(), text[i]) == NULL) {
            fail_msg("'%s' is not in: %s", text[i], cudasim_report());
        }
        test_context_end(&ctx);
        cudasim_reset();
    }
}

/* ---- refusals ------------------------------------------------------------ */

/* A choice that no expert is, on the last rank; `user` is what to do. */
static loong_status_t run_wrong(loong_context_t *ctx, loong_comm_t *host,
                                void *user)
{
    place_t p;
    LOONG_TRY(open_place(ctx, host, user, &p));
    if (p.at.rank == p.c->ranks - 1) {
        ((int32_t *)p.chosen.host)
            [(p.at.rank * p.c->tokens + 3) * p.c->k + 1] = 77;
        LOONG_TRY(send(&p, &p.chosen));
    }
    loong_status_t status = find_routes(&p, true);
    status = status == LOONG_OK
                 ? loong_device_synchronize(p.device, "norm and loss")
                 : status;
    close_place(&p);
    return status;
}

/* Counts that change behind the host's back. */
static loong_status_t run_stale(loong_context_t *ctx, loong_comm_t *host,
                                void *user)
{
    place_t p;
    LOONG_TRY(open_place(ctx, host, user, &p));
    loong_status_t status = find_routes(&p, true);
    if (status == LOONG_OK) {
        status = loong_device_fill(p.device, p.counts.there, 0,
                                   p.counts.bytes);
    }
    status = status == LOONG_OK ? exchange(&p, true, &p.x, &p.y, false)
                                : status;
    status = status == LOONG_OK ? loong_device_synchronize(p.device, "rows")
                                : status;
    close_place(&p);
    return status;
}

/* Rows before anybody counted them. */
static loong_status_t run_early(loong_context_t *ctx, loong_comm_t *host,
                                void *user)
{
    place_t p;
    LOONG_TRY(open_place(ctx, host, user, &p));
    loong_status_t status = exchange(&p, true, &p.x, &p.y, false);
    close_place(&p);
    return status;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        loong_threads_fn fn;
        int c;
        loong_status_t status;
        const char *text;
    } wrong[] = {
        {run_wrong, 0, LOONG_ERR_ARG,
         "expert_routes: expert 77 of token 3, allowed -1 to 3"},
        {run_stale, 3, LOONG_ERR_ARG,
         "exchange_rows: 0 rows on the device, "},
        {run_early, 0, LOONG_ERR_INTERNAL,
         "rows of experts: 16 bytes of device cuda:"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(wrong); i++) {
        loong_context_t *ctx = test_context();
        cudasim_seed((uint64_t)i + 1);
        assert_int_equal(run_ranks(ctx, wrong[i].fn, &cases[wrong[i].c]),
                         wrong[i].status);
        if (strstr(loong_context_error(ctx), wrong[i].text) == NULL) {
            fail_msg("'%s' is not in: %s", wrong[i].text,
                     loong_context_error(ctx));
        }
        test_context_end(&ctx);
        cudasim_reset();
    }
}

static void test_support(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_kernel_query_t q = {.op = "exchange_rows", .num_in = 2,
                              .num_out = 1};
    char reason[LOONG_REASON_SIZE] = "";
    assert_ok(ctx, loong_register_builtin(ctx));
    const loong_kernel_t *kernel =
        loong_find_kernel(ctx, "exchange_rows", "cuda", 0);
    assert_non_null(kernel);
    q.arg[0] = q.arg[2] = mat(LOONG_F64, 4, 4);
    q.arg[1] = mat(LOONG_I32, 2, 2);
    assert_false(kernel->support(&q, reason));
    assert_string_equal(reason, "operand 0 is fp64, this kernel takes fp32 "
                                "and bf16");
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_unloaded),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_support),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
