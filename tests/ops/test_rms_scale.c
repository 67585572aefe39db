/* SPDX-License-Identifier: Apache-2.0
 *
 * mean_squares and rms_scale, the RMS norm of channels that ranks share: every
 * kernel against the reference; of what add_layernorm takes the statistics.
 * Gradients: test_gradients.c. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

typedef struct shape {
    int64_t rows, cols;
} shape_t;

/* Odd sizes, below and above a vector, a chunk and a block. */
static const shape_t shapes[] = {{1, 1},   {7, 17},   {3, 64},
                                 {33, 31}, {70, 515}, {11, 1043}};

static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};

/* The statistic is a normal number here: this keeps the root real. */
static const loong_norm_attr_t large_eps = {30.0};
static const loong_mean_squares_attr_t factor = {0.02};

enum { GAPS = 1, ADD = 2, NO_DW = 4, VARIANTS = 8, OPS = 4 };

static op_case_t make(int op, shape_t s, loong_dtype_t dtype, int bits)
{
    static const char *const names[OPS] = {"mean_squares", "mean_squares_grad",
                                           "rms_scale", "rms_scale_grad"};
    loong_dtype_t wide = dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    op_arg_t full = op_mat(dtype, s.rows, s.cols);
    op_arg_t statistic = op_mat(wide, s.rows, 1);
    op_arg_t weights = op_vec(wide, s.cols);
    full.gap = bits & GAPS ? 5 : 0;
    const op_case_t cases[OPS] = {
        {.num_in = 1, .num_out = 1, .arg = {full, statistic}},
        {.num_in = 2, .num_out = 1, .arg = {full, statistic, full}},
        {.num_in = 3, .num_out = 1, .arg = {full, statistic, weights, full}},
        {.num_in = 4, .num_out = 3,
         .arg = {full, full, statistic, weights, full, statistic, weights}},
    };
    op_case_t c = cases[op];
    c.op = names[op];
    c.attr = op < 2 ? (const void *)&factor : (const void *)&large_eps;
    c.bound.roundings = 1;
    c.bound.terms = LOONG_MAX(s.rows, s.cols);
    c.threads = 1 + (bits + op) % 3;
    if (op == 3 && bits & NO_DW) {
        memset(&c.arg[6], 0, sizeof(c.arg[6]));
    } else if (op == 3) {
        c.accumulate = bits & ADD ? 4 : 0;
    }
    return c;
}

static void test_kernels(void **state)
{
    (void)state;
    for (int op = 0; op < OPS; op++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            for (int v = 0; v < VARIANTS * LOONG_COUNT_OF(shapes); v++) {
                op_case_t c =
                    make(op, shapes[v / VARIANTS], types[t], v % VARIANTS);
                if (op_case_reference(&c) < 1 && types[t] != LOONG_F64) {
                    fail_msg("%s: only the reference supports %s", c.op,
                             loong_dtype_name(types[t]));
                }
            }
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (int op = 0; op < OPS; op++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            op_case_t c = make(op, shapes[3], types[t], 0);
            op_case_threads(&c);
        }
    }
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(10);
    while (op_draw_next(&d)) {
        shape_t s = {op_draw_size(&d, 80), op_draw_size(&d, 1100)};
        loong_dtype_t dtype = op_draw_dtype(&d);
        op_case_t c = make(op_draw_below(&d, OPS), s, dtype,
                           op_draw_below(&d, VARIANTS));
        c.seed = d.seed;
        if (op_case_reference(&c) < 1) {
            fail_msg("%s: only the reference supports %s", c.op,
                     loong_dtype_name(dtype));
        }
    }
}

/* 1 + 2^-9 is 1 in bf16: beside -1 the mean is 0, and 2^-10 in fp32. */
static void test_stored_sum(void **state)
{
    (void)state;
    static const double x[] = {1.0, -1.0};
    static const double residual[] = {0x1p-9, 0.0};
    for (int half = 0; half < 2; half++) {
        static const loong_norm_attr_t attr = {1e-5};
        op_case_t c = {
            .op = "add_layernorm", .attr = &attr, .num_in = 4, .num_out = 4};
        double *out[LOONG_MAX_OPERANDS] = {NULL};
        c.arg[0] = op_mat(half ? LOONG_BF16 : LOONG_F32, 1, 2);
        c.arg[1] = c.arg[4] = c.arg[7] = c.arg[0];
        c.arg[0].wide_values = x;
        c.arg[1].wide_values = residual;
        c.arg[2] = op_vec(LOONG_F32, 2);
        c.arg[5] = c.arg[6] = op_mat(LOONG_F32, 1, 1);
        if (!op_present(c.op)) {
            continue;
        }
        op_case_outputs(&c, NULL, out);
        assert_true(out[1][0] == (half ? 0.0 : 0x1p-10));
        for (int o = 0; o < c.num_out; o++) {
            free(out[o]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_stored_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
