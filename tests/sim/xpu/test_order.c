/* SPDX-License-Identifier: Apache-2.0
 *
 * What an XPU does in which order, in one run that any mistake of the host code
 * spoils (planted.sh): ordinary and pinned memory, two streams, events, fills,
 * memory that is given back while work is to come. Settings are the
 * environment's. */
#include "loong/device.h"
#include "loong/register.h"
#include "pool.h"
#include "test.h"
#include "xpusim.h"

enum { SIZE = (5 << 20) + 123 }; /* some pieces, and no multiple of any */

static unsigned char out[SIZE];
static unsigned char back[SIZE];

typedef struct used {
    loong_context_t *ctx;
    loong_device_t *device;
    unsigned char *pinned[2];
    void *stream;
    void *event;
    void *a;
} used_t;

static void draw(unsigned char *to, int seed)
{
    for (int i = 0; i < SIZE; i++) {
        to[i] = (unsigned char)(i * 7 + i / 251 + seed);
    }
}

/* It may be used again on return. */
static void ordinary(used_t *u)
{
    draw(out, 1);
    assert_ok(u->ctx, loong_device_copy(u->device, u->a, out, SIZE));
    draw(out, 2);
    assert_ok(u->ctx, loong_device_read(u->device, back, u->a, SIZE, "it"));
    draw(out, 1);
    assert_memory_equal(back, out, SIZE);
}

/* Twice, so that the second record counts. */
static void streams(used_t *u)
{
    void *compute = loong_device_stream(u->device);
    for (int n = 0; n < 2; n++) {
        draw(u->pinned[0], 3 + n);
        assert_ok(u->ctx, loong_device_stream_copy(u->device, u->stream, u->a,
                                                   u->pinned[0], SIZE));
        assert_ok(u->ctx,
                  loong_device_event_record(u->device, u->event, u->stream));
        assert_ok(u->ctx,
                  loong_device_event_wait(u->device, u->event, compute));
        assert_ok(u->ctx,
                  loong_device_copy(u->device, u->pinned[1], u->a, SIZE));
        assert_ok(u->ctx,
                  loong_device_event_record(u->device, u->event, compute));
        assert_ok(u->ctx, loong_device_event_await(u->device, u->event, "it"));
        assert_memory_equal(u->pinned[1], u->pinned[0], SIZE);
    }
}

static void fills(used_t *u)
{
    assert_ok(u->ctx, loong_device_fill(u->device, u->a, 9, SIZE));
    assert_ok(u->ctx,
              loong_device_fill(u->device, (char *)u->a + 5, 4, SIZE - 10));
    assert_ok(u->ctx, loong_device_copy(u->device, u->pinned[1], u->a, SIZE));
    assert_ok(u->ctx, loong_device_copy(u->device, back, u->a, SIZE));
    memset(out, 9, SIZE);
    memset(out + 5, 4, SIZE - 10);
    assert_memory_equal(back, out, SIZE);
    assert_memory_equal(u->pinned[1], out, SIZE);
}

/* Work on memory that is freed meanwhile: it is done before. */
static void given_back(used_t *u)
{
    void *b = NULL;
    assert_ok(u->ctx, loong_device_alloc(u->device, SIZE, "b", &b));
    assert_ok(u->ctx, loong_device_copy(u->device, b, u->a, SIZE));
    loong_device_free(u->device, b, SIZE);
    assert_ok(u->ctx, loongi_device_trim(u->device));
    assert_ok(u->ctx, loong_device_synchronize(u->device, "it"));
}

static void open_all(used_t *u, int index)
{
    memset(u, 0, sizeof(*u));
    u->ctx = test_context();
    assert_ok(u->ctx, loong_register_builtin(u->ctx));
    assert_ok(u->ctx, loong_device_create(u->ctx, "xpu", index, &u->device));
    for (int i = 0; i < 2; i++) {
        assert_ok(u->ctx, loong_device_host_alloc(u->device, SIZE, "host",
                                                  (void **)&u->pinned[i]));
    }
    assert_ok(u->ctx, loong_device_alloc(u->device, SIZE, "a", &u->a));
    assert_ok(u->ctx, loong_device_stream_create(u->device, &u->stream));
    assert_ok(u->ctx, loong_device_event_create(u->device, &u->event));
}

static void close_all(used_t *u)
{
    loong_device_event_destroy(u->device, u->event);
    loong_device_stream_destroy(u->device, u->stream);
    loong_device_free(u->device, u->a, SIZE);
    for (int i = 0; i < 2; i++) {
        loong_device_host_free(u->device, u->pinned[i]);
    }
    loong_device_destroy(&u->device);
    test_context_end(&u->ctx);
}

static void test_order(void **state)
{
    (void)state;
    uint64_t identity[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        used_t u;
        open_all(&u, i);
        identity[i] = loong_device_identity(u.device);
        ordinary(&u);
        streams(&u);
        fills(&u);
        given_back(&u);
        close_all(&u);
        assert_int_equal(xpusim_current(), 0);
    }
    assert_int_not_equal(identity[0], identity[1]);
    assert_int_equal(xpusim_alive(), 0);
    assert_int_equal(xpusim_calls("memcpy_inside"), 0);
    assert_string_equal(xpusim_report(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
