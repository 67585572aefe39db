/* SPDX-License-Identifier: Apache-2.0
 *
 * Links of a pipeline whose first messages fail. */
#include "links.h"
#include "loong/comm_backend.h"
#include "loong/register.h"
#include "test.h"

/* A communicator of one rank whose messages never end. */
typedef struct stuck {
    int begun;
    int cancelled;
} stuck_t;

static loong_status_t run(loong_comm_t *comm, const loong_collective_t *call)
{
    (void)comm;
    (void)call;
    return LOONG_OK;
}

static loong_status_t begin(loong_comm_t *comm, loong_comm_request_t *request)
{
    stuck_t *s = loong_comm_impl(comm);
    request->backend[0] = (uint64_t)++s->begun;
    return LOONG_OK;
}

static loong_status_t begin_send(loong_comm_t *comm, const void *data,
                                 loong_comm_request_t *request)
{
    (void)data;
    return begin(comm, request);
}

static loong_status_t wait_for(loong_comm_t *comm,
                               loong_comm_request_t *request)
{
    (void)request;
    return loong_comm_fail(comm, LOONG_ERR_COMM, "nobody comes");
}

static bool cancel(loong_comm_t *comm, loong_comm_request_t *request)
{
    stuck_t *s = loong_comm_impl(comm);
    assert_true(request->backend[0] > 0);
    s->cancelled++;
    return true;
}

static void destroy(loong_comm_t *comm, bool failed)
{
    (void)comm;
    (void)failed;
}

static loong_status_t split(loong_comm_t *comm, int color, int key,
                            const char *name, loong_comm_t **group_p);

static const loong_comm_ops_t ops = {
    .name = "stuck",
    .run = run,
    .split = split,
    .isend = begin_send,
    .irecv = begin,
    .wait = wait_for,
    .cancel = cancel,
    .destroy = destroy,
};

static loong_status_t make(loong_context_t *ctx, stuck_t *s, const char *name,
                           loong_comm_t **comm_p)
{
    const loong_comm_description_t description = {
        .name = name, .size = 1, .ops = &ops, .impl = s};
    return loong_comm_create(ctx, &description, comm_p);
}

static loong_status_t split(loong_comm_t *comm, int color, int key,
                            const char *name, loong_comm_t **group_p)
{
    (void)color;
    (void)key;
    return make(loong_comm_context(comm), loong_comm_impl(comm), name,
                group_p);
}

/* Both ends are taken back: their memory goes. */
static void test_meeting(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_schedule_params_t p = {.ranks = 1, .chunks = 2, .micro_batches = 1};
    stuck_t s = {0, 0};
    loong_comm_t *pipeline = NULL;
    loong_device_t *device = NULL;
    loong_schedule_t *schedule = NULL;
    loong_links_t *links = NULL;
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_device_create(ctx, "cpu", 0, &device));
    assert_ok(ctx, loongi_schedule_create(ctx, "evaluate", &p, &schedule));
    assert_ok(ctx, make(ctx, &s, "pipeline", &pipeline));
    assert_int_equal(
        loongi_links_create(ctx, device, pipeline, schedule, &links),
        LOONG_ERR_COMM);
    assert_null(links);
    assert_int_equal(s.begun, 2);
    assert_int_equal(s.cancelled, 2);
    loong_comm_destroy(&pipeline);
    loongi_schedule_destroy(&schedule);
    loong_device_destroy(&device);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meeting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
