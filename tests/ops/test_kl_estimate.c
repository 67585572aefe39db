/* SPDX-License-Identifier: Apache-2.0
 *
 * kl_estimate and its gradient: the formula where it subtracts nothing and,
 * where the two log-probabilities are near each other, its series; kernels
 * against the reference. Finite differences: test_gradients.c. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { MOST = 700 };

static const char *const names[] = {"kl_estimate", "kl_estimate_grad"};

static op_case_t make(int op, int64_t tokens)
{
    op_case_t c = {.op = names[op], .num_in = 2 + op, .num_out = 1};
    for (int i = 0; i < c.num_in + 1; i++) {
        c.arg[i] = op_vec(LOONG_F32, tokens);
        c.arg[i].scale = 2.0;
    }
    c.bound.terms = 1;
    return c;
}

/* exp(d) - 1 - d, and exp(d) - 1, from the terms of the series. */
static double series(double d, int first)
{
    double term = 1.0;
    double sum = 0.0;
    for (int n = 1; n < 60; n++) {
        term *= d / n;
        sum += n >= first ? term : 0.0;
    }
    return sum;
}

/* The results are right to the rounding of fp32, those of 1e-9 as well. */
static void test_values(void **state)
{
    (void)state;
    static const double policy[] = {-1.5, -1.5, -0.25, -3.0, -1.0, -0.0625};
    static const double reference[] = {-1.5,    -1.5 + 0x1p-15, -0.25 - 0x1p-9,
                                       -3.0625, -2.5,           -1.5};
    static const double dy[] = {1.0, 2.0, -0.5, 1.0, 4.0, 0.25};
    for (int op = 0; op < 2; op++) {
        double *out[LOONG_MAX_OPERANDS] = {NULL};
        op_case_t c = make(op, LOONG_COUNT_OF(policy));
        c.arg[0].wide_values = dy;
        c.arg[op].wide_values = policy;
        c.arg[op + 1].wide_values = reference;
        op_case_outputs(&c, NULL, out);
        for (int t = 0; t < LOONG_COUNT_OF(policy); t++) {
            double d = reference[t] - policy[t];
            double wanted = op == 0 ? series(d, 2) : -dy[t] * series(d, 1);
            assert_true(fabs(out[0][t] - wanted) <= 0x1p-23 * fabs(wanted));
        }
        free(out[0]);
    }
}

static void test_kernels(void **state)
{
    (void)state;
    bool host = strcmp(OP_DEVICE, "cpu") == 0;
    op_draw_t d = op_draw_begin(10);
    while (op_draw_next(&d)) {
        for (int op = 0; op < 2; op++) {
            op_case_t c = make(op, op_draw_size(&d, MOST));
            c.seed = d.seed;
            assert_true(op_case_reference(&c) > 0 || host);
            op_case_threads(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
