/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_cross_entropy and its gradient: the reference against losses by hand,
 * every kernel against the reference, labels that are refused. Gradients by
 * finite differences: test_gradients.c. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { MOST = 80 };

static int32_t labels[MOST];

static op_case_t forward_case(int64_t rows, int64_t classes,
                              loong_dtype_t dtype)
{
    loong_dtype_t wide = dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
    op_case_t c = {.op = "softmax_cross_entropy", .num_in = 3, .num_out = 2};
    for (int64_t t = 0; t < rows; t++) {
        labels[t] =
            t % 5 == 3 ? LOONG_IGNORE_LABEL : (int32_t)(t * 7919 % classes);
    }
    c.arg[0] = op_mat(dtype, rows, classes);
    c.arg[0].scale = 3.0;
    c.arg[1] = op_vec(LOONG_I32, rows);
    c.arg[1].values = labels;
    c.arg[2] = c.arg[3] = c.arg[4] = op_vec(wide, rows);
    c.bound.roundings = 1;
    c.bound.terms = classes + 16;
    return c;
}

/* lse as a reference made it, of numbers that all types of it hold. */
static op_case_t backward_case(const op_case_t *forward,
                               double *out[LOONG_MAX_OPERANDS])
{
    op_case_t c = *forward;
    op_case_outputs(forward, "softmax_cross_entropy_ref", out);
    for (int64_t t = 0; t < forward->arg[4].dim[0]; t++) {
        out[1][t] = (double)(float)out[1][t];
    }
    c.op = "softmax_cross_entropy_grad";
    c.num_in = 5;
    c.num_out = 1;
    c.arg[3].wide_values = out[1];
    c.arg[5] = forward->arg[0];
    return c;
}

static void check(int64_t rows, int64_t classes, loong_dtype_t dtype,
                  int64_t gap, uint64_t seed)
{
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    bool host = strcmp(OP_DEVICE, "cpu") == 0;
    op_case_t c = forward_case(rows, classes, dtype);
    c.arg[0].gap = gap;
    c.seed = seed;
    assert_true(op_case_reference(&c) > 0 || host || dtype == LOONG_F64);
    c = backward_case(&c, out);
    assert_true(op_case_reference(&c) > 0 || host || dtype == LOONG_F64);
    free(out[0]);
    free(out[1]);
}

static void test_kernels(void **state)
{
    (void)state;
    static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};
    static const int64_t sizes[][2] = {{1, 1}, {5, 2}, {7, 10}, {4, 1000}};
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            check(sizes[i][0], sizes[i][1], types[t], 0, 0);
        }
    }
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(10);
    while (op_draw_next(&d)) {
        int64_t rows = op_draw_size(&d, MOST);
        int64_t classes = op_draw_size(&d, 600);
        loong_dtype_t dtype = op_draw_dtype(&d);
        check(rows, classes, dtype, op_draw_gap(&d), d.seed);
    }
}

static void test_by_hand(void **state)
{
    (void)state;
    static const double x[] = {0.0, 0.0, 1000.0, 998.9013877113318, 5.0, 1.0};
    static const double weight[] = {2.0, 1.0, 7.0};
    double wanted[] = {2.0 * log(2.0), log(4.0), 0.0};
    double *out[LOONG_MAX_OPERANDS] = {NULL};
    op_case_t c = forward_case(3, 2, LOONG_F64);
    labels[0] = 0;
    labels[1] = 1;
    labels[2] = LOONG_IGNORE_LABEL;
    c.arg[0].wide_values = x;
    c.arg[2].wide_values = weight;
    op_case_outputs(&c, "softmax_cross_entropy_ref", out);
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(out[0][i] - wanted[i]) <= 1e-12);
    }
    assert_true(fabs(out[1][2] - (5.0 + log1p(exp(-4.0)))) <= 1e-12);
    free(out[0]);
    free(out[1]);
}

static void test_bad_labels(void **state)
{
    (void)state;
    static const struct {
        int32_t label;
        const char *told;
    } bad[] = {{10, "is 10, must be in 0..9 or -100 (no loss)"},
               {-1, "is -1, must be in 0..9 or -100 (no loss)"}};
    for (int i = 0; i < LOONG_COUNT_OF(bad); i++) {
        char text[512];
        op_case_t c = forward_case(4, 10, LOONG_F32);
        labels[2] = bad[i].label;
        assert_int_equal(op_case_status(&c, NULL, text), LOONG_ERR_ARG);
        if (strstr(text, bad[i].told) == NULL) {
            fail_msg("'%s' is not '%s'", text, bad[i].told);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_bad_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
