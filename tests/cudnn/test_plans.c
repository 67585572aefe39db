/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans by the real cuDNN without a GPU: it builds them for a device that is
 * described to it, code included, so it judges every graph of ours as on such a
 * device. driver.c stands in for libcuda. Not shown: that they compute what we
 * mean, which the simulated device shows (cuda_op_attention), and a GPU. */
#include "cudnn/cudnn_attention.h"
#include "test.h"

/* What cuDNN asks of a device; threads, registers and clocks are alike. */
#define DEVICE(name_, version_, processors_, shared_)                         \
    "{\"deviceName\": \"" name_ "\", \"deviceVer\": " #version_               \
    ", \"multiProcessorCount\": " #processors_                                \
    ", \"maxSharedMemoryPerBlockOptin\": " #shared_                           \
    ", \"driverVer\": 13000, \"cudaDeviceId\": 0, \"pciDeviceId\": 0,"        \
    " \"totalGlobalMem\": 85899345920, \"l2CacheSize\": 52428800,"            \
    " \"maxGridSize\": [2147483647, 65535, 65535],"                           \
    " \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536,"           \
    " \"maxRegistersPerSM\": 65536, \"smClockRateKHz\": 1755000,"             \
    " \"memClockRateKHz\": 2619000, \"warpSize\": 32,"                        \
    " \"maxSharedMemoryPerBlock\": 49152,"                                    \
    " \"reservedSharedMemoryPerBlock\": 1024, \"maxCtasPerSM\": 32,"          \
    " \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048,"               \
    " \"isTccDriver\": 0, \"supportCoopLaunch\": 1}"
static const char a100[] = DEVICE("A100", 800, 108, 166912);
static const char h200[] = DEVICE("H200", 900, 132, 232448);
static const char b200[] = DEVICE("B200", 1000, 148, 232448);

typedef struct plan_case {
    const char *device;
    bool gradient, dense;
    int64_t segments, length;
    int heads, kv_heads, d, d_v;
    int64_t window;
    const char *refusal; /* NULL: there is a plan */
} plan_case_t;

#define NO_ENGINE "has no engine for this on this device"

static const plan_case_t quick[] = {
    {h200, false, true, 1, 8192, 32, 8, 128, 128, 0, NULL},
    {h200, true, true, 2, 4096, 32, 8, 128, 128, 0, NULL},
    {h200, true, true, 1, 32768, 4, 1, 128, 128, 0, NULL},
    {h200, false, false, 8, 1000, 12, 4, 64, 64, 300, NULL},
    {a100, true, false, 8, 1024, 32, 8, 128, 128, 0, NO_ENGINE},
};

static const plan_case_t others[] = {
    {h200, true, true, 4, 2048, 32, 32, 128, 128, 0, NULL},
    {h200, false, true, 1, 1024, 12, 12, 64, 64, 0, NULL},
    {h200, true, true, 2, 1000, 16, 4, 96, 96, 0, NULL},
    {h200, true, true, 1, 4096, 16, 16, 192, 128, 0, NULL},
    {h200, true, true, 1, 4096, 8, 4, 256, 256, 0, NULL},
    {h200, true, true, 4, 100, 2, 1, 32, 32, 0, NULL},
    {h200, true, true, 1, 8192, 32, 8, 128, 128, 1024, NULL},
    {h200, true, true, 1, 8192, 32, 8, 128, 128, 0, NULL},
    {h200, true, true, 1, 32768, 1, 1, 64, 64, 0, NULL},
    {h200, true, true, 2, 333, 6, 2, 64, 64, 0, NULL},
    {h200, true, false, 1, 32768, 4, 1, 128, 128, 0, NULL},
    {h200, true, false, 2, 4096, 32, 8, 128, 128, 0, NULL},
    {b200, true, true, 1, 32768, 4, 1, 128, 128, 0, NULL},
    {h200, true, false, 8, 1000, 32, 32, 128, 128, 0, NULL},
    {h200, true, false, 8, 2048, 32, 8, 80, 80, 512, NULL},
    {h200, true, false, 3, 33, 2, 1, 8, 8, 0, NULL},
    {h200, false, false, 512, 8192, 32, 8, 128, 128, 0, NULL},
    {a100, false, true, 1, 8192, 32, 8, 128, 128, 0, NULL},
    {a100, true, true, 4, 4096, 16, 16, 64, 64, 512, NULL},
    {a100, false, false, 8, 1024, 32, 8, 128, 128, 0, NULL},
    {a100, true, true, 1, 2048, 8, 8, 256, 256, 0, NO_ENGINE},
    {b200, false, true, 1, 8192, 32, 8, 128, 128, 0, NULL},
    {b200, true, true, 1, 8192, 32, 8, 128, 128, 0, NULL},
    {b200, false, false, 8, 1024, 32, 8, 128, 128, 0, NULL},
    {b200, true, false, 8, 1024, 32, 8, 128, 128, 0, NO_ENGINE},
};

static loong_cudnn_attention_params_t params_of(const plan_case_t *c)
{
    loong_cudnn_attention_params_t p;
    memset(&p, 0, sizeof(p));
    p.gradient = c->gradient;
    p.dense = c->dense;
    p.causal = true;
    p.window = c->window;
    p.segments = c->segments;
    p.length = c->length;
    p.rows = c->dense ? c->segments * c->length : c->length;
    p.heads = c->heads;
    p.kv_heads = c->kv_heads;
    p.head_dim = c->d;
    p.v_head_dim = c->d_v;
    p.scale = 0.125;
    /* q, k and v are slices of one row, as behind a product for all three. */
    int64_t all = (int64_t)c->heads * c->d +
                  (int64_t)c->kv_heads * (c->d + c->d_v);
    for (int o = 0; o < LOONG_CUDNN_OPERANDS; o++) {
        p.ld[o] = all;
    }
    p.ld[LOONG_CUDNN_LSE] = c->heads;
    p.ld[LOONG_CUDNN_O] = p.ld[LOONG_CUDNN_GRAD_O] =
        (int64_t)c->heads * c->d_v;
    return p;
}

static void try_case(const plan_case_t *c)
{
    loong_context_t *ctx = test_context();
    loong_cudnn_t *cudnn = NULL;
    loong_cudnn_attention_t *a = NULL;
    loong_cudnn_attention_params_t p = params_of(c);
    assert_ok(ctx, loongi_cudnn_open(ctx, c->device, &cudnn));
    loong_status_t status = loongi_cudnn_attention_create(ctx, cudnn, &p, &a);
    if (c->refusal == NULL) {
        assert_ok(ctx, status);
        assert_in_range(loongi_cudnn_attention_bytes(a), 0,
                        loongi_cudnn_attention_room(&p));
    } else {
        assert_int_equal(status, LOONG_ERR_UNSUPPORTED);
        assert_non_null(strstr(loong_context_error(ctx), c->refusal));
    }
    loongi_cudnn_attention_destroy(ctx, a);
    loongi_cudnn_close(ctx, cudnn);
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

static void test_quick(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(quick); i++) {
        try_case(&quick[i]);
    }
}

static void test_others(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(others); i++) {
        try_case(&others[i]);
    }
}

static void test_bad_description(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_cudnn_t *cudnn = NULL;
    assert_int_equal(loongi_cudnn_open(ctx, "{}", &cudnn),
                     LOONG_ERR_UNSUPPORTED);
    assert_null(cudnn);
    assert_non_null(strstr(loong_context_error(ctx),
                           "cuDNN, the description of a device: "
                           "CUDNN_STATUS_BAD_PARAM, "));
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quick),
        cmocka_unit_test(test_bad_description),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_others),
    };
    (void)argv;
    return argc > 1 ? cmocka_run_group_tests(all, NULL, NULL)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
