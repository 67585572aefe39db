/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA device table on the simulated runtime. */
#include "cudasim.h"
#include "device_streams.h"
#include "loong/device.h"
#include "loong/register.h"
#include "pool.h"
#include "first.h"
#include "test.h"

enum { SIZE = 5000 };

static loong_context_t *begin(void)
{
    loong_context_t *ctx = test_context();
    cudasim_reset();
    cudasim_devices(2, (size_t)1 << 20);
    assert_ok(ctx, loong_register_builtin(ctx));
    return ctx;
}

/* Nothing of the device is left. */
static void end(loong_context_t **ctx)
{
    test_context_end(ctx);
    assert_int_equal(cudasim_alive(), 0);
    assert_string_equal(cudasim_report(), "");
}

static void test_copies(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        loong_context_t *ctx = begin();
        loong_device_t *device = NULL;
        unsigned char out[SIZE];
        unsigned char back[SIZE];
        void *a = NULL;
        cudasim_seed(seed);
        assert_ok(ctx, loong_device_create(ctx, "cuda", 0, &device));
        assert_string_equal(loong_device_name(device), "cuda");
        assert_ok(ctx, loong_device_alloc(device, SIZE, "a", &a));
        assert_ok(ctx, loong_device_copy(device, back, a, SIZE));
        for (int i = 0; i < SIZE; i++) {
            assert_int_equal(back[i], 0); /* zeroed */
            out[i] = (unsigned char)(i * 7);
        }
        assert_ok(ctx, loong_device_copy(device, a, out, SIZE));
        assert_ok(ctx, loong_device_fill(device, (char *)a + 10, 5, 20));
        assert_ok(ctx, loong_device_copy(device, back, a, SIZE));
        assert_ok(ctx, loong_device_synchronize(device, "it"));
        memset(out + 10, 5, 20);
        assert_memory_equal(back, out, SIZE);
        loong_device_free(device, a, SIZE);
        loong_device_destroy(&device);
        end(&ctx);
    }
}

/* Whatever program it is that uses a device. */
static void test_environment(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        loong_context_t *ctx = begin();
        loong_device_t *device = NULL;
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
        if (i == 1) {
            setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
        }
        assert_ok(ctx, loong_device_create(ctx, "cuda", 0, &device));
        assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"),
                            i == 0 ? "32" : "4"); /* the user's */
        loong_device_destroy(&device);
        end(&ctx);
    }
}

/* What is freed stays with the pool, where it can be had, until it is given
 * back. */
static void test_pool(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_device_t *device = NULL;
    loong_device_usage_t u;
    size_t room[2] = {0, 0};
    bool own = false;
    void *a = NULL;
    assert_ok(ctx, loong_device_create(ctx, "cuda", 0, &device));
    assert_ok(ctx, loong_device_available(device, &own, &room[0]));
    assert_ok(ctx, loong_device_alloc(device, SIZE, "a", &a));
    loong_device_free(device, a, SIZE);
    assert_ok(ctx, loong_device_synchronize(device, "it"));
    assert_ok(ctx, loong_device_usage(device, &u));
    assert_int_equal(u.pool, SIZE);
    assert_int_equal(u.pool_most, SIZE);
    assert_int_equal(u.total - u.available, SIZE);
    assert_ok(ctx, loong_device_available(device, &own, &room[1]));
    assert_true(own && room[0] == room[1]);
    assert_ok(ctx, loongi_device_trim(device));
    assert_ok(ctx, loong_device_usage(device, &u));
    assert_int_equal(u.pool + u.pool_most, 0);
    assert_int_equal(u.available, u.total);
    loong_device_destroy(&device);
    end(&ctx);
}

static void test_streams(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        loong_context_t *ctx = begin();
        cudasim_seed((uint64_t)i);
        check_streams(ctx, "cuda", i);
        end(&ctx);
    }
}

/* One device reaches the memory of another after it was granted. */
static void test_peers(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_device_t *device[2] = {NULL, NULL};
    bool granted = false;
    for (int i = 0; i < 2; i++) {
        assert_ok(ctx, loong_device_create(ctx, "cuda", i, &device[i]));
    }
    assert_ok(ctx, loong_device_peer_enable(device[0], 1, &granted));
    assert_true(granted);
    assert_ok(ctx, loong_device_peer_enable(device[0], 1, &granted));
    assert_true(granted); /* once more does no harm */
    assert_ok(ctx, loong_device_peer_enable(device[0], 0, &granted));
    assert_false(granted); /* itself is no peer */
    loong_device_destroy(&device[0]);
    loong_device_destroy(&device[1]);
    end(&ctx);
}

static void test_messages(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_device_t *device = NULL;
    void *a = NULL;
    char text[256];
    cudasim_quiet(1);
    assert_fails(ctx, loong_device_create(ctx, "cuda", 2, &device),
                 LOONG_ERR_NOT_FOUND, "no device cuda:2; cuda: 2 found");
    assert_ok(ctx, loong_device_create(ctx, "cuda", 0, &device));
    loong_device_describe(device, text, sizeof(text));
    assert_string_equal(text, "simulated device, 0.0 GiB of memory, compute "
                              "capability 9.0");
    assert_fails(ctx, loong_device_alloc(device, (size_t)2 << 20, "slots", &a),
                 LOONG_ERR_MEMORY,
                 "cuda:0: 2097152 bytes for slots: cudaErrorMemoryAllocation; "
                 "1048576 of 1048576 bytes are free");
    loong_device_get_error(device)->value = 61;
    loong_device_get_error(device)->place = 2;
    loong_device_get_error(device)->end = 61;
    loong_device_get_error(device)->kind = LOONG_DEVICE_ERROR_ID;
    assert_fails(ctx, loong_device_synchronize(device, "it"), LOONG_ERR_ARG,
                 "cuda:0: id 61 at row 2, allowed 0 to 60");
    assert_ok(ctx, loong_device_synchronize(device, "it")); /* told once */
    loong_device_destroy(&device);
    assert_string_equal(loongi_device_first(ctx), "cuda");
    cudasim_devices(0, 0);
    assert_string_equal(loongi_device_first(ctx), "cpu");
    assert_fails(ctx, loong_device_create(ctx, "cuda", 0, &device),
                 LOONG_ERR_NOT_FOUND, "cuda: 0 found, cudaErrorNoDevice");
    assert_ok(ctx, loong_device_create(ctx, "auto", 0, &device));
    assert_string_equal(loong_device_name(device), "cpu");
    loong_device_destroy(&device);
    cudasim_reset(); /* what was refused on purpose */
    end(&ctx);
}

/* The host's copy of a place goes with the memory of the place. */
static void test_mirrors(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_device_t *device = NULL;
    void *memory[2] = {NULL, NULL};
    const void *host[2] = {NULL, NULL};
    assert_ok(ctx, loong_device_create(ctx, "cuda", 0, &device));
    void *stream = loong_device_stream(device);
    for (int i = 0; i < 2; i++) {
        assert_ok(ctx, loong_device_alloc(device, SIZE, "a", &memory[i]));
        assert_ok(ctx, loong_device_fill(device, memory[i], i + 1, SIZE));
        assert_ok(ctx, loong_device_mirror(device, stream,
                                           (char *)memory[i] + SIZE - 4, 4));
    }
    int64_t before = cudasim_alive();
    loong_device_free(device, memory[0], SIZE);
    assert_ok(ctx, loong_device_synchronize(device, "it"));
    assert_int_equal(before - cudasim_alive(), 2); /* the event of waits came,
        a copy, its event and the memory went */
    assert_fails(ctx, loong_device_mirrored(device,
                                            (char *)memory[0] + SIZE - 4, 4,
                                            "counts", &host[0]),
                 LOONG_ERR_INTERNAL,
                 "counts: 4 bytes of device cuda:0 that were not mirrored");
    assert_ok(ctx, loong_device_mirrored(device,
                                         (char *)memory[1] + SIZE - 4, 4,
                                         "counts", &host[1]));
    assert_int_equal(*(const int *)host[1], 0x02020202);
    loong_device_free(device, memory[1], SIZE);
    loong_device_destroy(&device);
    end(&ctx);
}

/* Each call of the runtime fails in its turn: an error, and nothing is left. */
static void test_injected(void **state)
{
    (void)state;
    int n = 1;
    bool done = false;
    cudasim_quiet(1);
    for (; n < 200 && !done; n++) {
        loong_context_t *ctx = begin();
        loong_device_t *device = NULL;
        void *a = NULL;
        cudasim_fail_at(n, cudaErrorLaunchFailure);
        loong_status_t status = loong_device_create(ctx, "cuda", 0, &device);
        if (status == LOONG_OK) {
            status = loong_device_alloc(device, SIZE, "a", &a);
        }
        if (status == LOONG_OK) {
            status = loong_device_synchronize(device, "it");
        }
        assert_true(status == LOONG_OK || status == LOONG_ERR_DEVICE ||
                    status == LOONG_ERR_NOT_FOUND);
        assert_true(status == LOONG_OK || strlen(loong_context_error(ctx)));
        done = status == LOONG_OK && cudasim_report()[0] == '\0';
        cudasim_fail_at(0, cudaSuccess);
        if (device != NULL) {
            loong_device_free(device, a, SIZE);
        }
        loong_device_destroy(&device);
        cudasim_seed(1); /* says nothing of errors */
        test_context_end(&ctx);
        assert_int_equal(cudasim_alive(), 0);
    }
    assert_true(n > 12 && n < 40);
    cudasim_reset();
    cudasim_quiet(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_copies),   cmocka_unit_test(test_pool),
        cmocka_unit_test(test_streams),  cmocka_unit_test(test_peers),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_mirrors),
        cmocka_unit_test(test_injected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
