/* SPDX-License-Identifier: Apache-2.0
 *
 * All that products may need is loaded before the first step: the product with
 * its epilogue, or the plain one and what makes up for it. */
#include "test.h"

#include "comm_impl.h"
#include "cudasim.h"
#include "loong/device.h"
#include "loong/ops.h"
#include "loong/register.h"

enum { RANKS = 2, ROWS = 64, N = 16, K = 24 };

typedef struct product {
    const char *op;
    const void *attr;
    int num_in, num_out;
    loong_karg_t arg[8];
} product_t;

#define MAT(dtype_, rows_, cols_) {dtype_, 2, {rows_, cols_, 0, 0}, cols_}
#define VEC(dtype_, size_) {dtype_, 1, {size_, 0, 0, 0}, size_}
#define NONE {LOONG_F32, 0, {0, 0, 0, 0}, 0}

static const loong_linear_attr_t gelu = {false, LOONG_ACT_GELU_TANH};
static const loong_linear_attr_t none = {false, LOONG_ACT_NONE};
static const loong_cross_entropy_attr_t loss = {.vocab = N};

static const product_t products[] = {
    {"linear", &none, 3, 2,
     {MAT(LOONG_BF16, ROWS, K), MAT(LOONG_BF16, N, K), NONE,
      MAT(LOONG_BF16, ROWS, N), NONE}},
    {"linear", &gelu, 3, 2,
     {MAT(LOONG_BF16, ROWS, K), MAT(LOONG_BF16, N, K), VEC(LOONG_F32, N),
      MAT(LOONG_BF16, ROWS, N), MAT(LOONG_BF16, ROWS, N)}},
    {"linear_gelu_grad", &gelu, 3, 1,
     {MAT(LOONG_BF16, ROWS, K), MAT(LOONG_BF16, N, K), MAT(LOONG_BF16, ROWS, N),
      MAT(LOONG_BF16, ROWS, N)}},
    {"linear_dw_db", &none, 2, 2,
     {MAT(LOONG_BF16, ROWS, N), MAT(LOONG_BF16, ROWS, K), MAT(LOONG_F32, N, K),
      VEC(LOONG_F32, N)}},
    {"cross_entropy", &loss, 4, 3,
     {MAT(LOONG_BF16, ROWS, K), MAT(LOONG_BF16, N, K), VEC(LOONG_I32, ROWS),
      VEC(LOONG_F32, ROWS), VEC(LOONG_F32, ROWS), MAT(LOONG_BF16, ROWS, K),
      MAT(LOONG_F32, N, K)}},
};

typedef struct trial {
    const product_t *product;
    bool loaded;    /* before */
    bool epilogues; /* the library has those */
} trial_t;

/* What a rank has, to be closed on an error, too. */
typedef struct place {
    loong_context_t *ctx;
    loong_device_t *device;
    loong_comm_t *comm;
    const loong_kernel_t *kernel;
    loong_kernel_query_t query;
    loong_kernel_call_t call;
    void *ptr[LOONG_MAX_OPERANDS];
    size_t bytes[LOONG_MAX_OPERANDS];
    void *frame, *room, *sent;
    size_t room_bytes;
} place_t;

static loong_status_t zeros(const place_t *p, size_t bytes, void **ptr_p)
{
    LOONG_TRY(loong_device_alloc(p->device, bytes, "operand", ptr_p));
    return loong_device_fill(p->device, *ptr_p, 0, bytes);
}

static loong_status_t open_place(loong_context_t *ctx, loong_comm_t *host,
                                 const product_t *product, place_t *p)
{
    loong_kernel_query_t *q = &p->query;
    p->ctx = ctx;
    q->op = product->op;
    q->attr = product->attr;
    q->num_in = product->num_in;
    q->num_out = product->num_out;
    q->threads = 1;
    memcpy(q->arg, product->arg, sizeof(product->arg));
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, "cuda", loong_comm_rank(host),
                                  &p->device));
    LOONG_TRY(loong_device_communicator(p->device, host, &p->comm));
    for (int i = 0; i < q->num_in + q->num_out; i++) {
        const loong_karg_t *a = &q->arg[i];
        if (a->rank > 0) {
            p->bytes[i] = (size_t)(loong_karg_rows(a) *
                                   loong_karg_cols(a)) *
                          loong_dtype_size(a->dtype);
            LOONG_TRY(zeros(p, p->bytes[i], &p->ptr[i]));
        }
    }
    p->kernel = loong_find_kernel(ctx, q->op, "cuda", 0);
    assert_non_null(p->kernel);
    p->room_bytes = p->kernel->workspace(q);
    LOONG_TRY(zeros(p, p->room_bytes, &p->room));
    LOONG_TRY(zeros(p, sizeof(loong_frame_t), &p->frame));
    LOONG_TRY(zeros(p, 64, &p->sent));
    p->call.ctx = ctx;
    p->call.query = q;
    p->call.ptr = p->ptr;
    p->call.workspace = p->room;
    p->call.stream = loong_device_stream(p->device);
    p->call.device = p->device;
    p->call.device_frame = p->frame;
    p->call.error = loong_device_get_error(p->device);
    return p->kernel->prepare(ctx, q, &p->call.state);
}

static void close_place(place_t *p)
{
    if (p->call.state != NULL) {
        p->kernel->destroy(p->ctx, p->call.state);
    }
    for (int i = 0; i < LOONG_MAX_OPERANDS; i++) {
        loong_device_free(p->device, p->ptr[i], p->bytes[i]);
    }
    loong_device_free(p->device, p->room, p->room_bytes);
    loong_device_free(p->device, p->frame, sizeof(loong_frame_t));
    loong_device_free(p->device, p->sent, 64);
    loong_comm_destroy(&p->comm);
    loong_device_destroy(&p->device);
}

/* The product behind a collective that is not over. */
static loong_status_t run_behind(place_t *p, loong_comm_t *host,
                                 const trial_t *t)
{
    loong_frame_t frame = {.first = true};
    p->call.frame = &frame;
    if (t->loaded) {
        p->call.load = true;
        LOONG_TRY(p->kernel->run(&p->call));
        p->call.load = false;
    }
    LOONG_TRY(loong_device_synchronize(p->device, "operands"));
    LOONG_TRY(loong_comm_barrier(host, "all have loaded"));
    LOONG_TRY(loong_device_copy(p->device, p->frame, &frame, sizeof(frame)));
    loong_comm_set_stream(p->comm, p->call.stream);
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->sent, 8, LOONG_F64,
                                    LOONG_REDUCE_SUM, "test"));
    LOONG_TRY(p->kernel->run(&p->call));
    return loong_device_synchronize(p->device, "the product");
}

static loong_status_t run_trial(loong_context_t *ctx, loong_comm_t *host,
                                void *user)
{
    const trial_t *t = user;
    place_t p;
    memset(&p, 0, sizeof(p));
    cudasim_epilogues(t->epilogues);
    loong_status_t status = open_place(ctx, host, t->product, &p);
    if (status == LOONG_OK) {
        status = run_behind(&p, host, t);
    }
    close_place(&p);
    return status;
}

static void run_ranks(const trial_t *t)
{
    loong_threads_params_t params = {0};
    loong_context_t *ctx = test_context();
    params.size = RANKS;
    params.comm.timeout = 30.0;
    cudasim_reset();
    cudasim_devices(RANKS, (size_t)16 << 20);
    cudasim_seed(1);
    cudasim_pace(0.0);
    assert_ok(ctx, loong_threads_run(ctx, &params, run_trial, (void *)t));
    test_context_end(&ctx);
}

/* Whatever the library has for the rows of a step. */
static void test_loaded(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * LOONG_COUNT_OF(products); i++) {
        trial_t t = {&products[i / 2], true, i % 2 == 0};
        run_ranks(&t);
        if (cudasim_report()[0] != '\0') {
            fail_msg("%s: %s", t.product->op, cudasim_report());
        }
    }
}

/* Without it the simulator finds each, unless an operation of NCCL has ended
 * before the launch, which a busy machine may bring about. */
static void test_unloaded(void **state)
{
    enum { TRIALS = 20 };
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(products); i++) {
        trial_t t = {&products[i], false, true};
        bool found = false;
        for (int k = 0; k < TRIALS && !found; k++) {
            cudasim_quiet(1);
            run_ranks(&t);
            cudasim_quiet(0);
            found = strstr(cudasim_report(),
                           "is loaded by its first launch while 1 operations "
                           "of NCCL are under way on device ") != NULL;
        }
        if (!found) {
            fail_msg("%s: found '%s'", t.product->op, cudasim_report());
        }
    }
    cudasim_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loaded),
        cmocka_unit_test(test_unloaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
