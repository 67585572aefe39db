/* SPDX-License-Identifier: Apache-2.0
 *
 * adamw, sumsq and sum: every kernel against the reference on the same bits;
 * records are equal, not close. test_adamw_bf16.c: moments rounded by
 * chance. */
#include "convert.h"
#include "exact_sum.h"
#include "loong/register.h"
#include "loong/kernel.h"
#include "loong/moe.h"
#include "loong/ops.h"
#include "op_device.h"
#include "test.h"
#include "rng.h"

enum { SIZE = 20000, MAX_KERNELS = 8 };

typedef struct state {
    loong_context_t *ctx;
    float grad[SIZE];
    float param[SIZE];
    uint16_t high[SIZE];
    uint16_t low[SIZE];
    float exp_avg[SIZE];
    float exp_avg_sq[SIZE];
    uint16_t half_avg[SIZE]; /* where they are bf16 */
    uint16_t half_avg_sq[SIZE];
} state_t;

/* What is bf16. */
typedef struct how {
    bool param;
    bool exp_avg;
    bool exp_avg_sq;
} how_t;

static const int64_t sizes[] = {1, 7, 63, 1023, 4097, SIZE - 1};

static loong_karg_t vector(loong_dtype_t dtype, int64_t n)
{
    loong_karg_t a = {dtype, 1, {n, 0, 0, 0}, n};
    return a;
}

static void fill(state_t *s)
{
    for (uint64_t i = 0; i < SIZE; i++) {
        float p = (float)loongi_rng_normal(5, 1, i);
        uint32_t bits;
        memcpy(&bits, &p, sizeof(bits));
        s->grad[i] = (float)(loongi_rng_normal(5, 2, i) *
                             exp2(-30.0 * loongi_rng_uniform(5, 3, i)));
        s->param[i] = p;
        s->low[i] = (uint16_t)bits;
        s->high[i] = (uint16_t)((bits >> 16) + (bits >> 15 & 1u));
        s->exp_avg[i] = 0.1f * (float)loongi_rng_normal(5, 4, i);
        s->exp_avg_sq[i] = 0.01f * (float)loongi_rng_uniform(5, 6, i);
        s->half_avg[i] = loongi_f32_to_bf16(s->exp_avg[i]);
        s->half_avg_sq[i] = loongi_f32_to_bf16(s->exp_avg_sq[i]);
    }
}

static float master(const state_t *s, int64_t i)
{
    uint32_t bits =
        ((uint32_t)s->high[i] - (s->low[i] >> 15)) << 16 | s->low[i];
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Products of these with numbers of 8 bits lie half-way between two of them by
 * chance alone, as those of 0.9 do not. */
static const double beta1 = 0.8996;
static const double beta2 = 0.9497;

/* Updates the first n numbers of a fresh state. */
static void update(const loong_kernel_t *kernel, how_t how, int64_t n,
                   int threads, state_t *s)
{
    bool half = how.param;
    const loong_update_attr_t attr = {.group = 1,
                                      .beta1 = beta1,
                                      .beta2 = beta2,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1};
    loong_kernel_query_t q = {"adamw", &attr, 1, 4, threads, 0, {{0}}, {0}};
    loong_frame_t frame = {.step = 7, .updates = n % 4 == 3 ? 100000 : 4,
                           .grad_scale = 0.7, .lr = {9.0, 3e-3}};
    char reason[LOONG_REASON_SIZE];
    void *ptr[5] = {s->grad, half ? (void *)s->high : s->param,
                    half ? s->low : NULL,
                    how.exp_avg ? (void *)s->half_avg : s->exp_avg,
                    how.exp_avg_sq ? (void *)s->half_avg_sq : s->exp_avg_sq};
    loong_kernel_call_t call = {s->ctx, &q, NULL, &frame, ptr, NULL,
                                NULL,   0, 0, NULL, NULL, NULL, NULL, false};
    fill(s);
    q.arg[0] = vector(LOONG_F32, n);
    q.arg[1] = vector(half ? LOONG_BF16 : LOONG_F32, n);
    if (half) {
        q.arg[2] = vector(LOONG_U16, n);
    }
    q.arg[3] = vector(how.exp_avg ? LOONG_BF16 : LOONG_F32, n);
    q.arg[4] = vector(how.exp_avg_sq ? LOONG_BF16 : LOONG_F32, n);
    assert_true(kernel->support == NULL || kernel->support(&q, reason));
    assert_ok(s->ctx, op_device_run(kernel, &call));
}

static void close_to(const char *kernel, float got, float want, float error)
{
    if (!(fabsf(got - want) <= error)) {
        fail_msg("%s: %.9g, reference %.9g", kernel, (double)got,
                 (double)want);
    }
}

/* Equal, but where the fp32 value is so near the middle of two numbers that its
 * own error decides: 2^-22 of the terms before a place of 2^-8 of the result,
 * so one of 2^14 where the result is as large as its terms. */
static void compare_half(const char *kernel, int64_t n, const uint16_t *got,
                         const uint16_t *want)
{
    int64_t unequal = 0;
    for (int64_t i = 0; i < n; i++) {
        int apart = abs((int)got[i] - (int)want[i]);
        if (apart > 1) {
            fail_msg("%s: %#x, reference %#x", kernel, got[i], want[i]);
        }
        unequal += apart;
    }
    assert_in_range(unequal, 0, 1 + n / 1024);
}

/* Each rounding gives 2^-24 of the terms: 4 on the way to the average, 8 to
 * the average of squares, 14 to a step of the parameter. */
static void compare(const char *kernel, how_t how, int64_t n,
                    const state_t *got, const state_t *want,
                    const state_t *begin)
{
    bool half = how.param;
    const float first = 1.0f - powf((float)beta1, 5.0f); /* as in update() */
    const float second = 1.0f - powf((float)beta2, 5.0f);
    for (int64_t i = 0; i < n; i++) {
        float terms = fabsf(begin->exp_avg[i]) + fabsf(begin->grad[i]);
        float squares = how.exp_avg_sq
                            ? loongi_bf16_to_f32(want->half_avg_sq[i])
                            : want->exp_avg_sq[i];
        float step = 3e-3f * terms / first / sqrtf(squares / second);
        close_to(kernel, got->exp_avg[i], want->exp_avg[i],
                 0x1p-22f * terms);
        close_to(kernel, got->exp_avg_sq[i], want->exp_avg_sq[i],
                 0x1p-21f * want->exp_avg_sq[i]);
        float p = half ? master(got, i) : got->param[i];
        float r = half ? master(want, i) : want->param[i];
        close_to(kernel, p, r,
                 0x1p-23f * fabsf(begin->param[i]) + 0x1p-20f * step);
    }
    compare_half(kernel, SIZE, got->half_avg, want->half_avg);
    compare_half(kernel, SIZE, got->half_avg_sq, want->half_avg_sq);
    assert_memory_equal(got->half_avg + n, begin->half_avg + n,
                        2 * (size_t)(SIZE - n));
    assert_memory_equal(got->half_avg_sq + n, begin->half_avg_sq + n,
                        2 * (size_t)(SIZE - n));
    assert_memory_equal(got->param + n, want->param + n,
                        sizeof(float) * (size_t)(SIZE - n));
    assert_memory_equal(got->high + n, want->high + n,
                        2 * (size_t)(SIZE - n));
    assert_memory_equal(got->low + n, want->low + n, 2 * (size_t)(SIZE - n));
    assert_memory_equal(got->exp_avg_sq + n, want->exp_avg_sq + n,
                        sizeof(float) * (size_t)(SIZE - n));
}

static const loong_kernel_t *reference_of(loong_context_t *ctx,
                                          const char *op)
{
    const loong_kernel_t *last = NULL;
    const loong_kernel_t *k = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, op, "cpu", i)) != NULL; i++) {
        last = k;
    }
    return last;
}

/* Fast kernels that this device has, and the reference behind them. */
static int kernels_of(loong_context_t *ctx, const char *op,
                      const loong_kernel_t *list[MAX_KERNELS])
{
    loong_kernel_query_t q = {op, NULL, 1, 1, 1, 0, {{0}}, {0}};
    char reason[LOONG_REASON_SIZE];
    const loong_kernel_t *k = NULL;
    int count = 0;
    const loong_kernel_t *reference = reference_of(ctx, op);
    for (int i = 0; (k = loong_find_kernel(ctx, op, OP_DEVICE, i)) != NULL;
         i++) {
        if (k != reference && (k->support == NULL || k->support(&q, reason))) {
            assert_true(count + 1 < MAX_KERNELS);
            list[count++] = k;
        }
    }
    list[count++] = reference;
    assert_true(count >= 2);
    return count;
}

static void check_adamw(state_t *s, how_t how, int64_t n)
{
    const loong_kernel_t *list[MAX_KERNELS];
    int count = kernels_of(s[0].ctx, "adamw", list);
    update(list[count - 1], how, n, 2, &s[0]);
    for (int k = 0; k + 1 < count; k++) {
        update(list[k], how, n, 1, &s[1]);
        compare(list[k]->name, how, n, &s[1], &s[0], &s[3]);
        for (int threads = 2; threads <= 3; threads++) {
            update(list[k], how, n, threads, &s[2]);
            assert_memory_equal(&s[1], &s[2], sizeof(s[2]));
        }
    }
}

static void test_adamw(void **state)
{
    state_t *s = *state;
    fill(&s[3]);
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
            check_adamw(s, (how_t){half != 0, false, false}, sizes[i]);
        }
    }
}

static void test_adamw_bf16_moments(void **state)
{
    state_t *s = *state;
    fill(&s[3]);
    check_adamw(s, (how_t){false, true, true}, SIZE - 1);
    check_adamw(s, (how_t){true, true, true}, 4097);
    check_adamw(s, (how_t){false, true, false}, 63);
    check_adamw(s, (how_t){true, false, true}, 1023);
}

/* Against the sign, whatever the size; where there is none nothing moves. */
static void test_sign_step(void **state)
{
    state_t *s = *state;
    static const loong_sign_step_attr_t attr = {0.125};
    static const float grad[5] = {3e9f, -1e-30f, 0.0f, -2.0f, -0.0f};
    static const float want[5] = {0.875f, 1.125f, 1.0f, 1.125f, 1.0f};
    float param[5] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    loong_kernel_query_t q = {"sign_step", &attr, 1, 1, 2, 0, {{0}}, {0}};
    loong_frame_t frame = {.grad_scale = 0.0};
    float copy[5];
    void *ptr[2] = {copy, param};
    loong_kernel_call_t call = {s->ctx, &q, NULL, &frame, ptr, NULL,
                                NULL,   0, 0, NULL, NULL, NULL, NULL, false};
    memcpy(copy, grad, sizeof(copy));
    q.arg[0] = q.arg[1] = vector(LOONG_F32, 5);
    assert_ok(s->ctx, op_device_run(reference_of(s->ctx, "sign_step"), &call));
    assert_memory_equal(param, want, sizeof(want));
}

/* Sums x[n] into a record that begins with what is in it. */
static void sum_into(loong_context_t *ctx, const loong_kernel_t *kernel,
                     const float *x, int64_t n, int threads, int64_t *record)
{
    loong_kernel_query_t q = {kernel->op, NULL, 1, 1, threads, 1, {{0}}, {0}};
    loong_frame_t frame = {.step = 0};
    void *ptr[2] = {(void *)(uintptr_t)x, record};
    loong_kernel_call_t call = {ctx, &q, NULL, &frame, ptr, NULL,
                                NULL, 1, 0, NULL, NULL, NULL, NULL, false};
    q.arg[0] = vector(LOONG_F32, n);
    q.arg[1] = vector(LOONG_I64, LOONG_EXACT_WORDS);
    assert_ok(ctx, op_device_run(kernel, &call));
}

static void check_sums(state_t *s, const char *op, const float *x, int64_t n)
{
    const loong_kernel_t *list[MAX_KERNELS];
    int count = kernels_of(s->ctx, op, list);
    int64_t want[LOONG_EXACT_WORDS] = {5, 6, 7, 8};
    sum_into(s->ctx, list[count - 1], x, n, 1, want);
    for (int k = 0; k + 1 < count; k++) {
        for (int threads = 1; threads <= 3; threads++) {
            int64_t got[LOONG_EXACT_WORDS + 1] = {5, 6, 7, 8};
            got[LOONG_EXACT_WORDS] = 1234567;
            sum_into(s->ctx, list[k], x, n, threads, got);
            assert_memory_equal(got, want, sizeof(want));
            assert_int_equal(got[LOONG_EXACT_WORDS], 1234567);
        }
    }
}

/* Values of every magnitude; then one class of hard ones at a time. */
static void fill_sums(float *x, int kind)
{
    static const float hard[][4] = {
        {INFINITY, -INFINITY, NAN, 1.0f},
        {0x1p60f, -0x1p81f, 0x1p82f, 0x1.fffffep127f},
        {0x1p-149f, -0x1p-145f, 0x1.8p-145f, 0x1.fffffep-127f},
        {0x1p-72f, 0x1.8p-73f, 0x1.fffffep-74f, -0x1.000002p-72f},
        {0x1p12f, 0x1.000002p12f, 0x1p-9f, 0x1.000002p-30f},
        {0.0f, -0.0f, 0x1p-120f, 0x1.fffffep-121f}};
    for (uint64_t i = 0; i < SIZE; i++) {
        double range = kind < 0 ? -14.0 - 4.0 * kind : 20.0;
        double power = (kind == -4 ? 20.0 : 0.0) -
                       range * loongi_rng_uniform(8, 1, i);
        x[i] = (float)(loongi_rng_normal(8, 2, i) * exp2(power));
        if (kind >= 0 && i % 97 == 5) {
            x[i] = hard[kind][i / 97 % 4];
        }
    }
}

static void test_sums(void **state)
{
    state_t *s = *state;
    for (int kind = -40; kind < 6; kind += kind < -5 ? 5 : 1) {
        fill_sums(s->grad, kind);
        for (int i = 1; i < LOONG_COUNT_OF(sizes); i += 2) {
            check_sums(s, "sumsq", s->grad, sizes[i]);
            check_sums(s, "sum", s->grad, sizes[i]);
        }
    }
}

/* So many addends that what a thread holds does not fit a number of fp64: it
 * goes into the record in between. */
static void test_long_sum(void **state)
{
    enum { LONG = 1 << 20 };
    state_t *s = *state;
    float *x = malloc(LONG * sizeof(*x));
    assert_non_null(x);
    for (uint64_t i = 0; i < LONG; i++) {
        x[i] = i % 4 == 3 ? 0x1p-18f : 0x1p24f;
    }
    check_sums(s, "sum", x, LONG);
    free(x);
}

static int setup(void **state)
{
    state_t *s = calloc(4, sizeof(*s));
    assert_non_null(s);
    s[0].ctx = test_context();
    assert_ok(s[0].ctx, loong_register_builtin(s[0].ctx));
    s[1].ctx = s[2].ctx = s[0].ctx;
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    state_t *s = *state;
    test_context_end(&s[0].ctx);
    free(s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_bf16_moments),
        cmocka_unit_test(test_sign_step),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_long_sum),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
