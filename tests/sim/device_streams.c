/* SPDX-License-Identifier: Apache-2.0 */
#include "device_streams.h"

#include <string.h>

#include "loong/device.h"

enum { SIZE = 5000 };

/* Through the device and back. */
static void pass(loong_context_t *ctx, loong_device_t *device, void *stream,
                 unsigned char *host, int byte)
{
    void *event = NULL;
    void *a = NULL;
    bool done = false;
    assert_ok(ctx, loong_device_alloc(device, SIZE, "a", &a));
    assert_ok(ctx, loong_device_event_create(device, &event));
    /* Never recorded: it holds nobody up. */
    assert_ok(ctx, loong_device_event_wait(device, event, stream));
    assert_ok(ctx, loong_device_event_is_done(device, event, &done));
    assert_true(done);
    assert_ok(ctx, loong_device_synchronize(device, "it"));
    for (int n = 1; n < 3; n++) { /* the second record is what counts */
        memset(host, byte + n, SIZE);
        assert_ok(ctx, loong_device_stream_copy(device, stream, a, host, SIZE));
        assert_ok(ctx, loong_device_event_record(device, event, stream));
        assert_ok(ctx, loong_device_event_wait(device, event,
                                               loong_device_stream(device)));
        assert_ok(ctx, loong_device_copy(device, host + SIZE, a, SIZE));
        assert_ok(ctx, loong_device_synchronize(device, "it"));
        assert_memory_equal(host + SIZE, host, SIZE);
    }
    assert_ok(ctx, loong_device_stream_synchronize(device, stream));
    loong_device_event_destroy(device, event);
    loong_device_free(device, a, SIZE);
}

void check_streams(loong_context_t *ctx, const char *kind, int byte)
{
    loong_device_t *device = NULL;
    unsigned char *host = NULL;
    void *stream = NULL;
    assert_ok(ctx, loong_device_create(ctx, kind, 1, &device));
    assert_ok(ctx, loong_device_host_alloc(device, 2 * SIZE, "host",
                                           (void **)&host));
    assert_ok(ctx, loong_device_stream_create(device, &stream));
    pass(ctx, device, stream, host, byte);
    loong_device_stream_destroy(device, stream);
    loong_device_host_free(device, host);
    loong_device_destroy(&device);
}
