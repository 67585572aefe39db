/* SPDX-License-Identifier: Apache-2.0
 *
 * The XPU device table on the simulated runtime: with the kernel shim, and on
 * the runtime alone (xpu_device_bare). */
#include "first.h"
#include "device_streams.h"
#include "loong/device.h"
#include "loong/register.h"
#include "pool.h"
#include "test.h"
#include "xpu_library.h"
#include "xpusim.h"

enum { SIZE = 5000, LARGE = 5 << 20 };

static const char *const settings[] = {
    "SIM_XPU_COUNT",   "SIM_XPU_MEMORY", "SIM_XPU_SEED", "SIM_XPU_PACE",
    "SIM_XPU_NEG_ERR", "SIM_XPU_OFFSET", "SIM_XPU_FAIL", "SIM_XPU_MODEL",
    "SIM_XPU_PLANT",   "LOONG_XPU_CHUNK"};

static void set(const char *name, const char *value)
{
    setenv(name, value, 1);
    xpusim_setup();
}

static loong_context_t *begin(void)
{
    loong_context_t *ctx = test_context();
    for (int i = 0; i < (int)(sizeof(settings) / sizeof(*settings)); i++) {
        unsetenv(settings[i]);
    }
    xpusim_setup();
    assert_ok(ctx, loong_register_builtin(ctx));
    return ctx;
}

/* Nothing of the device is left. */
static void end(loong_context_t **ctx)
{
    test_context_end(ctx);
    assert_int_equal(xpusim_alive(), 0);
    assert_string_equal(xpusim_report(), "");
}

static void seed(int number)
{
    char text[2][16];
    snprintf(text[0], sizeof(text[0]), "%d", number);
    snprintf(text[1], sizeof(text[1]), "%.2f", number / 7.0);
    set("SIM_XPU_SEED", text[0]);
    set("SIM_XPU_PACE", text[1]); /* 0: nothing before it is waited for */
}

/* Ordinary memory may be used again when a copy returns, pinned memory when
 * it is waited for; both in pieces, and of any length. */
static void test_copies(void **state)
{
    (void)state;
    static unsigned char out[LARGE];
    static unsigned char back[LARGE];
    for (int i = 0; i < 8; i++) {
        loong_context_t *ctx = begin();
        loong_device_t *device = NULL;
        unsigned char *pinned = NULL;
        void *a = NULL;
        size_t size = i == 7 ? LARGE : SIZE;
        seed(i);
        assert_ok(ctx, loong_device_create(ctx, "xpu", 0, &device));
        assert_string_equal(loong_device_name(device), "xpu");
        assert_ok(ctx, loong_device_host_alloc(device, size, "host",
                                               (void **)&pinned));
        assert_ok(ctx, loong_device_alloc(device, 2 * size, "a", &a));
        assert_int_equal((uintptr_t)a % 256, 0);
        assert_ok(ctx, loong_device_copy(device, back, a, size));
        for (size_t k = 0; k < size; k++) {
            assert_int_equal(back[k], 0); /* zeroed */
            out[k] = (unsigned char)(k * 7 + (size_t)i);
        }
        assert_ok(ctx, loong_device_copy(device, a, out, size));
        out[0]++; /* the device has it */
        assert_ok(ctx, loong_device_fill(device, (char *)a + 10, 5, 20));
        assert_ok(ctx, loong_device_copy(device, (char *)a + size, a, size));
        assert_ok(ctx,
                  loong_device_copy(device, pinned, (char *)a + size, size));
        assert_ok(ctx, loong_device_copy(device, back, a, size));
        assert_ok(ctx, loong_device_synchronize(device, "it"));
        out[0]--;
        memset(out + 10, 5, 20);
        assert_memory_equal(back, out, size);
        assert_memory_equal(pinned, out, size);
        loong_device_free(device, a, 2 * size);
        loong_device_host_free(device, pinned);
        loong_device_destroy(&device);
        end(&ctx);
    }
}

/* Rows, within the device and to either side. */
static void test_rows(void **state)
{
    (void)state;
    enum { ROWS = 7, WIDE = 48, APART = 80 };
    loong_context_t *ctx = begin();
    loong_device_t *device = NULL;
    char *a = NULL;
    char out[ROWS * APART];
    char back[ROWS * WIDE];
    memset(back, 0, sizeof(back));
    for (int i = 0; i < ROWS * APART; i++) {
        out[i] = (char)(i * 3 + 1);
    }
    assert_ok(ctx, loong_device_create(ctx, "xpu", 1, &device));
    void *stream = loong_device_stream(device);
    assert_ok(ctx,
              loong_device_alloc(device, 3 * sizeof(out), "a", (void **)&a));
    const loong_device_rows_t rows[3] = {
        {a, APART, out, APART, WIDE, ROWS},
        {a + sizeof(out), WIDE, a, APART, WIDE, ROWS},
        {back, WIDE, a + sizeof(out), WIDE, WIDE, ROWS}};
    for (int i = 0; i < 3; i++) {
        assert_ok(ctx, loong_device_stream_copy_rows(device, stream, &rows[i]));
    }
    for (int r = 0; r < ROWS; r++) {
        assert_memory_equal(back + r * WIDE, out + r * APART, WIDE);
    }
    /* A kernel copies inside a device, where there is one. */
    assert_true(xpusim_calls("memcpy_inside") <= ROWS);
    loong_device_free(device, a, 3 * sizeof(out));
    loong_device_destroy(&device);
    end(&ctx);
}

/* What is freed is kept, until it is given back, or wanted for something that
 * does not fit otherwise. */
static void test_pool(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_device_t *device = NULL;
    loong_device_usage_t u;
    size_t room[2] = {0, 0};
    bool own = false;
    void *a = NULL;
    void *b = NULL;
    set("SIM_XPU_MEMORY", "1048576");
    assert_ok(ctx, loong_device_create(ctx, "xpu", 0, &device));
    assert_ok(ctx, loong_device_available(device, &own, &room[0]));
    assert_ok(ctx, loong_device_alloc(device, 700000, "a", &a));
    loong_device_free(device, a, 700000);
    assert_ok(ctx, loong_device_alloc(device, 700000, "b", &b));
    assert_ptr_equal(a, b);
    loong_device_free(device, b, 700000);
    assert_ok(ctx, loong_device_usage(device, &u));
    assert_in_range(u.pool, 700000, 700000 + 1024);
    assert_int_equal(u.pool_most, u.pool);
    assert_ok(ctx, loong_device_available(device, &own, &room[1]));
    assert_true(own && room[0] == room[1]);
    assert_ok(ctx, loong_device_alloc(device, 900000, "c", &a));
    loong_device_free(device, a, 900000);
    assert_ok(ctx, loongi_device_trim(device));
    assert_ok(ctx, loong_device_usage(device, &u));
    assert_in_range(u.pool, 1, 1024); /* where errors are noted */
    loong_device_destroy(&device);
    end(&ctx);
}

/* Free memory is that of the card that the list names, in whatever order. */
static void test_cards(void **state)
{
    (void)state;
    enum { ALL = 1 << 20, SOME = 500000 };
    static const char *const lists[] = {"0,1", "1,0"};
    const char *path = getenv("LOONG_XPU_PATH");
    for (int i = 0; i < 2 && strstr(path, "bare") == NULL; i++) {
        loong_context_t *ctx = begin();
        loong_device_t *device = NULL;
        loong_device_usage_t u;
        void *a = NULL;
        set("SIM_XPU_MEMORY", "1048576");
        setenv("XPU_VISIBLE_DEVICES", lists[i], 1);
        assert_ok(ctx, loong_device_create(ctx, "xpu", 0, &device));
        assert_ok(ctx, loong_device_alloc(device, SOME, "a", &a));
        assert_ok(ctx, loong_device_usage(device, &u));
        assert_int_equal(u.available > ALL - SOME, i == 1);
        loong_device_free(device, a, SOME);
        loong_device_destroy(&device);
        unsetenv("XPU_VISIBLE_DEVICES");
        end(&ctx);
    }
}

static void test_streams(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        loong_context_t *ctx = begin();
        seed(i);
        check_streams(ctx, "xpu", i);
        end(&ctx);
    }
}

/* The current device of the thread is another's affair. */
static void test_current(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_device_t *device[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        void *a = NULL;
        void *stream = NULL;
        assert_ok(ctx, loong_device_create(ctx, "xpu", i, &device[i]));
        assert_ok(ctx, loong_device_stream_create(device[i], &stream));
        assert_ok(ctx, loong_device_alloc(device[i], SIZE, "a", &a));
        assert_ok(ctx, loong_device_synchronize(device[i], "it"));
        assert_int_equal(xpusim_current(), 0);
        loong_device_stream_destroy(device[i], stream);
        loong_device_free(device[i], a, SIZE);
    }
    assert_true(loong_device_identity(device[0]) != 0 &&
                loong_device_identity(device[0]) !=
                    loong_device_identity(device[1]));
    loong_device_destroy(&device[1]);
    loong_device_destroy(&device[0]);
    end(&ctx);
}

static void test_messages(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* either sign */
        loong_context_t *ctx = begin();
        loong_device_t *device = NULL;
        void *a = NULL;
        char text[256];
        char wanted[256];
        char lines[4096];
        set("SIM_XPU_NEG_ERR", i == 0 ? "0" : "1");
        set("SIM_XPU_MEMORY", "1048576");
        assert_fails(ctx, loong_device_create(ctx, "xpu", 2, &device),
                     LOONG_ERR_NOT_FOUND, "no device xpu:2; xpu: 2 found");
        assert_ok(ctx, loong_device_create(ctx, "xpu", 0, &device));
        loong_device_describe(device, lines, sizeof(lines));
        assert_ptr_equal(
            strstr(lines, "Kunlun XPU3, model 300, 96.0 GiB of memory, 12 "
                          "clusters, runtime 5.0, driver 5.0\nlibrary: /"),
            lines);
        assert_non_null(strstr(lines, "libxpurt.so.2\n"));
        bool bare = strstr(getenv("LOONG_XPU_PATH"), "bare") != NULL;
        assert_non_null(
            strstr(lines, bare ? "libxpu_blas.so (products by the shim)"
                               : "\nmissing: nothing\n"));
        assert_true((strstr(lines, "\nkernel shim: simulator") == NULL) ==
                    bare);
        assert_non_null(strstr(lines, " XPU_FORCE_USERMODE_LAUNCH=1"));
        /* Without the management library all but what is taken here. */
        snprintf(wanted, sizeof(wanted),
                 "xpu:0: 2097152 bytes for slots: out of device memory (%d); "
                 "%s of 103079215104 bytes are free",
                 i == 0 ? 705 : -705, bare ? "103079214848" : "1048320");
        assert_fails(ctx,
                     loong_device_alloc(device, (size_t)2 << 20, "slots", &a),
                     LOONG_ERR_MEMORY, wanted);
        assert_ok(ctx, loong_device_alloc(device, SIZE, "a", &a));
        assert_fails(ctx,
                     loong_device_copy(device, text, (char *)a + SIZE, 256),
                     LOONG_ERR_ARG, "bytes from");
        loong_device_free(device, a, SIZE);
        assert_fails(ctx, loong_device_copy(device, text, a, 10), LOONG_ERR_ARG,
                     "and freed since");
        loong_device_destroy(&device);
        set("SIM_XPU_COUNT", "0");
        assert_string_equal(loongi_device_first(ctx), "cpu");
        assert_fails(ctx, loong_device_create(ctx, "xpu", 0, &device),
                     LOONG_ERR_NOT_FOUND, "see XPU_VISIBLE_DEVICES");
        set("SIM_XPU_COUNT", "2");
        assert_string_equal(loongi_device_first(ctx), "xpu");
        set("SIM_XPU_MODEL", "200");
        assert_fails(ctx, loong_device_create(ctx, "xpu", 0, &device),
                     LOONG_ERR_UNSUPPORTED, "xpu:0: model 200");
        end(&ctx);
    }
}

/* A runtime that gives memory at odd addresses. */
static void test_offset(void **state)
{
    (void)state;
    loong_context_t *ctx = begin();
    loong_device_t *device = NULL;
    void *a = NULL;
    char back[300];
    set("SIM_XPU_OFFSET", "64");
    assert_ok(ctx, loong_device_create(ctx, "xpu", 0, &device));
    assert_ok(ctx, loong_device_alloc(device, 300, "a", &a));
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_ok(ctx, loong_device_copy(device, back, a, 300));
    loong_device_free(device, a, 300);
    loong_device_destroy(&device);
    end(&ctx);
}

/* Each call of the runtime fails in its turn: an error, and nothing is left. */
static void test_injected(void **state)
{
    (void)state;
    int n = 1;
    bool done = false;
    for (; n < 300 && !done; n++) {
        loong_context_t *ctx = begin();
        loong_device_t *device = NULL;
        char fail[32];
        void *a = NULL;
        snprintf(fail, sizeof(fail), "any:%d:-714", n);
        set("SIM_XPU_FAIL", fail);
        loong_status_t status = loong_device_create(ctx, "xpu", 0, &device);
        if (status == LOONG_OK) {
            status = loong_device_alloc(device, SIZE, "a", &a);
        }
        if (status == LOONG_OK) {
            status = loong_device_synchronize(device, "it");
        }
        assert_true(status == LOONG_OK || status == LOONG_ERR_DEVICE ||
                    status == LOONG_ERR_NOT_FOUND);
        assert_true(status == LOONG_OK || strlen(loong_context_error(ctx)));
        done = status == LOONG_OK && xpusim_calls("any") < n;
        set("SIM_XPU_FAIL", "");
        if (device != NULL) {
            loong_device_free(device, a, SIZE);
        }
        loong_device_destroy(&device);
        test_context_end(&ctx);
        assert_int_equal(xpusim_alive(), 0);
    }
    assert_in_range(n, 40, 250);
    assert_string_equal(xpusim_report(), "");
}

/* By their public numbers, of either sign. */
static void test_texts(void **state)
{
    (void)state;
    assert_string_equal(loongi_xpu_text(-705), "out of device memory");
    assert_string_equal(loongi_xpu_text(719), "overheated");
    assert_string_equal(loongi_xpu_text(-808), "timeout of DMA");
    assert_string_equal(loongi_xpu_text(817), "of the tracer");
    assert_string_equal(loongi_xpu_text(-999), "not known");
    assert_string_equal(loongi_xpu_text(2), strerror(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_copies),  cmocka_unit_test(test_rows),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_cards),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_current), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_offset),  cmocka_unit_test(test_injected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
