/* SPDX-License-Identifier: Apache-2.0
 *
 * lion and sgd: every kernel against the formulas, written here once more, and
 * the reference against torch.optim.SGD. test_optimizer.c, test_adamw_bf16.c:
 * adamw. */
#include "convert.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "op_device.h"
#include "rng.h"
#include "test.h"
#include "torch_sgd.h"

enum { SIZE = 20001, STEPS = 3 };

static loong_context_t *ctx;

/* What a call works on; parameters in fp32, or in both halves of it. */
typedef struct data {
    float grad[SIZE];
    float param[SIZE];
    uint16_t high[SIZE];
    uint16_t low[SIZE];
    float state[SIZE];
    uint16_t half_state[SIZE];
} data_t;

static data_t data;

static loong_karg_t vector(loong_dtype_t dtype, int64_t n)
{
    loong_karg_t a = {dtype, 1, {n, 0, 0, 0}, n};
    return a;
}

/* Momentum and gradient of one sign, so that rounding decides of no sign;
 * every seventh pair is 0. */
static void fill(data_t *d)
{
    for (int64_t i = 0; i < SIZE; i++) {
        uint32_t c[4] = {(uint32_t)i, 4, 7, 1};
        uint32_t bits;
        loongi_philox(c, 9);
        float sign = i % 7 == 0 ? 0.0f : c[3] % 2 == 0 ? 1.0f : -1.0f;
        d->grad[i] = sign * (1.0f + (float)c[0] * 0x1p-32f);
        d->state[i] = sign * (float)c[1] * 0x1p-32f;
        d->half_state[i] = loongi_f32_to_bf16(d->state[i]);
        d->param[i] = (float)c[2] * 0x1p-31f - 1.0f;
        memcpy(&bits, &d->param[i], sizeof(bits));
        d->low[i] = (uint16_t)bits;
        d->high[i] = (uint16_t)((bits >> 16) + (bits >> 15 & 1u));
    }
}

static double master(const data_t *d, bool half, int64_t i)
{
    uint32_t bits =
        ((uint32_t)d->high[i] - (d->low[i] >> 15)) << 16 | d->low[i];
    float value;
    memcpy(&value, &bits, sizeof(value));
    return half ? (double)value : (double)d->param[i];
}

static void run(const loong_kernel_t *kernel, const loong_update_attr_t *attr,
                bool half, bool half_state, int threads, int64_t n)
{
    data_t *d = &data;
    loong_kernel_query_t q = {kernel->op, attr, 1, 3, threads, 0, {{0}}, {0}};
    loong_frame_t frame = {.seed = 77,
                           .step = 5,
                           .updates = 5,
                           .grad_scale = 0.5,
                           .lr = {9.0, 0.125}};
    void *ptr[4] = {d->grad, half ? (void *)d->high : d->param,
                    half ? d->low : NULL,
                    half_state ? (void *)d->half_state : d->state};
    loong_kernel_call_t call = {
        .ctx = ctx, .query = &q, .frame = &frame, .ptr = ptr};
    q.arg[0] = vector(LOONG_F32, n);
    q.arg[1] = vector(half ? LOONG_BF16 : LOONG_F32, n);
    if (half) {
        q.arg[2] = vector(LOONG_U16, n);
    }
    q.arg[3] = vector(half_state ? LOONG_BF16 : LOONG_F32, n);
    assert_ok(ctx, op_device_run(kernel, &call));
}

/* ---- the formulas -------------------------------------------------------- */

typedef void formula_t(const loong_update_attr_t *a, double g, double *p,
                       double *m);

/* Chen et al. 2023, algorithm 2. */
static void lion(const loong_update_attr_t *a, double g, double *p, double *m)
{
    double c = (1.0 - a->beta1) * (g - *m) + *m;
    double sign = (c > 0.0) - (c < 0.0);
    *p = (1.0 - 0.125 * a->weight_decay) * *p - 0.125 * sign;
    *m = (1.0 - a->beta2) * (g - *m) + *m;
}

static void sgd(const loong_update_attr_t *a, double g, double *p, double *b)
{
    double whole = g + a->weight_decay * *p;
    *b = *b * a->momentum + whole;
    *p -= 0.125 * (a->nesterov ? whole + a->momentum * *b : *b);
}

/* Of the sixth update, the fourth behind the start: 1 - 5/14. */
static void ema(const loong_update_attr_t *a, double g, double *p, double *e)
{
    double d = a->ema_warmup ? 5.0 / 14.0 : a->ema_decay;
    (void)g;
    *e = a->ema_start < 5 ? d * *e + (1.0 - d) * *p : *p;
}

static void ema_swap(const loong_update_attr_t *a, double g, double *p,
                     double *e)
{
    double before = *p;
    (void)a;
    (void)g;
    *p = *e;
    *e = before;
}

static const struct {
    const char *op;
    formula_t *formula;
    loong_update_attr_t attr;
} cases[] = {
    {"lion",
     lion,
     {.group = 1, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1}},
    {"sgd", sgd, {.group = 1, .momentum = 0.9}},
    {"sgd", sgd, {.group = 1, .momentum = 0.75, .weight_decay = 0.5}},
    {"sgd",
     sgd,
     {.group = 1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}},
    {"ema", ema, {.ema_decay = 0.75}},
    {"ema", ema, {.ema_decay = 0.75, .ema_start = 1, .ema_warmup = true}},
    {"ema", ema, {.ema_decay = 0.75, .ema_start = 5}},
    {"ema_swap", ema_swap, {.ema_decay = 0.75}},
};

/* Up to ten roundings of 2^-24 of terms up to 4 a step; what a step leaves in
 * error goes into the next. */
static const double bound = STEPS * 40 * 0x1p-24;

/* An average leaves the parameter as it is, bit for bit; a swap both. */
static double bound_of(int which, bool param)
{
    return cases[which].formula == ema_swap ||
                   (cases[which].formula == ema && param)
               ? 0.0
               : bound;
}

static void check(const loong_kernel_t *kernel, int which, bool half,
                  int threads, int64_t n)
{
    static double param[SIZE];
    static double state[SIZE];
    fill(&data);
    for (int64_t i = 0; i < SIZE; i++) {
        param[i] = master(&data, half, i);
        state[i] = (double)data.state[i];
    }
    for (int k = 0; k < STEPS; k++) {
        run(kernel, &cases[which].attr, half, false, threads, n);
        for (int64_t i = 0; i < n; i++) {
            cases[which].formula(&cases[which].attr, 0.5 * (double)data.grad[i],
                                 &param[i], &state[i]);
        }
    }
    for (int64_t i = 0; i < SIZE; i++) { /* those from n on are untouched */
        double p = master(&data, half, i);
        double m = (double)data.state[i];
        if (!(fabs(p - param[i]) <= (i < n ? bound_of(which, true) : 0.0) &&
              fabs(m - state[i]) <= (i < n ? bound_of(which, false) : 0.0))) {
            fail_msg("%s, case %d, element %lld of %lld: %.9g and %.9g, the "
                     "formula gives %.9g and %.9g",
                     kernel->name, which, (long long)i, (long long)n, p, m,
                     param[i], state[i]);
        }
    }
}

static bool can_run(const loong_kernel_t *kernel,
                    const loong_update_attr_t *attr)
{
    loong_kernel_query_t q = {kernel->op, attr, 1, 1, 1, 0, {{0}}, {0}};
    char reason[LOONG_REASON_SIZE];
    return kernel->support == NULL || kernel->support(&q, reason);
}

static void kernels_follow_the_formulas(void **unused)
{
    const loong_kernel_t *kernel = NULL;
    int count = 0;
    (void)unused;
    for (int c = 0; c < LOONG_COUNT_OF(cases); c++) {
        for (int k = 0; (kernel = loong_find_kernel(ctx, cases[c].op, OP_DEVICE,
                                                    k)) != NULL;
             k++) {
            if (can_run(kernel, &cases[c].attr)) {
                check(kernel, c, false, 1, SIZE);
                check(kernel, c, false, 2, 63);
                check(kernel, c, true, 3, 4097);
                count++;
            }
        }
    }
    assert_true(count >= LOONG_COUNT_OF(cases));
}

/* ---- states in bf16 ------------------------------------------------------ */

static uint32_t bits_of(double exact)
{
    float value = (float)exact;
    uint32_t bits;
    assert_true((double)value == exact);
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* States of 8 bits and gradients of 11, shares of 1/2: fp32 holds all. The low
 * half of an element's random word rounds, as it does exp_avg of adamw. */
static void states_are_rounded_by_the_contract(void **unused)
{
    static const char *const ops[] = {"lion", "sgd"};
    const loong_update_piece_t piece = {0, 3, 5, 0, SIZE + 5, SIZE + 5};
    const loong_update_attr_t attr = {.group = 1,
                                      .beta1 = 0.5,
                                      .beta2 = 0.5,
                                      .momentum = 0.5,
                                      .num_pieces = 1,
                                      .pieces = &piece};
    const uint64_t key = 77 ^ (3 * 0x9E3779B97F4A7C15u + 0x3C6EF372FE94F82Bu);
    const loong_kernel_t *kernel = NULL;
    static uint16_t before[SIZE];
    int count[2] = {0, 0};
    (void)unused;
    for (int o = 0; o < 2; o++) {
        for (int k = 0;
             (kernel = loong_find_kernel(ctx, ops[o], OP_DEVICE, k)) != NULL;
             k++) {
            fill(&data);
            for (int64_t i = 0; i < SIZE; i++) {
                data.grad[i] = (float)(i % 2047 - 1023) * 0x1p-9f;
                before[i] =
                    loongi_f32_to_bf16((float)(i % 255 - 127) * 0x1p-7f);
                data.half_state[i] = before[i];
            }
            if (!can_run(kernel, &attr)) {
                continue;
            }
            count[o]++;
            run(kernel, &attr, false, true, 2, SIZE);
            for (int64_t i = 0; i < SIZE; i++) {
                uint32_t words[4] = {(uint32_t)(i + 5) / 4, 0, 5, 0};
                double g = 0.5 * (double)data.grad[i];
                double m = 0.5 * (double)loongi_bf16_to_f32(before[i]) +
                           (o == 0 ? 0.5 : 1.0) * g;
                loongi_philox(words, key);
                uint32_t sum = bits_of(m) + (words[(i + 5) % 4] & 0xffffu);
                assert_int_equal(data.half_state[i], sum >> 16);
            }
        }
        assert_true(count[o] > 0);
    }
}

/* ---- torch --------------------------------------------------------------- */

/* In f64, so by the reference; bound: 5 steps of 4 roundings. */
static void sgd_is_torch(void **unused)
{
    const loong_kernel_t *kernel = NULL;
    const loong_kernel_t *last = NULL;
    (void)unused;
    for (int i = 0; (kernel = loong_find_kernel(ctx, "sgd", "cpu", i)) != NULL;
         i++) {
        last = kernel;
    }
    for (int c = 0; c < LOONG_COUNT_OF(torch_sgd); c++) {
        const loong_update_attr_t attr = {.momentum = torch_sgd[c].momentum,
                                          .nesterov = torch_sgd[c].nesterov,
                                          .weight_decay =
                                              torch_sgd[c].weight_decay};
        double grad[TORCH_SIZE];
        double param[TORCH_SIZE];
        double buffer[TORCH_SIZE] = {0.0};
        void *ptr[4] = {grad, param, NULL, buffer};
        loong_kernel_query_t q = {"sgd", &attr, 1, 3, 1, 0, {{0}}, {0}};
        loong_frame_t frame = {.grad_scale = 1.0, .lr = {torch_lr}};
        loong_kernel_call_t call = {
            .ctx = ctx, .query = &q, .frame = &frame, .ptr = ptr};
        q.arg[0] = q.arg[1] = q.arg[3] = vector(LOONG_F64, TORCH_SIZE);
        for (int i = 0; i < TORCH_SIZE; i++) {
            param[i] = cos(i);
        }
        for (int t = 0; t < TORCH_STEPS; t++) {
            for (int i = 0; i < TORCH_SIZE; i++) {
                grad[i] = sin(1 + i + 3 * t);
            }
            assert_ok(ctx, last->run(&call));
        }
        for (int i = 0; i < TORCH_SIZE; i++) {
            assert_true(fabs(param[i] - torch_sgd[c].param[i]) <= 20 * 0x1p-52);
        }
    }
}

static int setup(void **unused)
{
    (void)unused;
    ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    test_context_end(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_follow_the_formulas),
        cmocka_unit_test(states_are_rounded_by_the_contract),
        cmocka_unit_test(sgd_is_torch),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
