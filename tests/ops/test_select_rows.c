/* SPDX-License-Identifier: Apache-2.0
 *
 * select_rows: the reference against rows by hand, every kernel against the
 * reference. In place: test_in_place.c. Gradients: test_gradients.c. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { ROWS = 300 };

static const loong_select_rows_attr_t plain = {false};
static const loong_select_rows_attr_t inverse = {true};

static op_case_t make(loong_dtype_t dtype, int64_t rows, int64_t cols,
                      bool zeros, const loong_select_rows_attr_t *attr,
                      const int32_t *is_feature)
{
    op_case_t c = {.op = "select_rows", .attr = attr, .num_out = 1};
    c.num_in = zeros ? 2 : 3;
    c.arg[0] = c.arg[2] = c.arg[3] = op_mat(dtype, rows, cols);
    c.arg[1] = op_vec(LOONG_I32, rows);
    c.arg[1].values = is_feature;
    return c;
}

static void test_by_hand(void **state)
{
    (void)state;
    static const int32_t is_feature[] = {0, 1, -7, 0};
    static const double x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const double features[] = {10, 20, 30, 40, 50, 60, 70, 80};
    static const double wanted[][8] = {{1, 2, 30, 40, 50, 60, 7, 8},
                                       {10, 20, 3, 4, 5, 6, 70, 80},
                                       {1, 2, 0, 0, 0, 0, 7, 8},
                                       {0, 0, 3, 4, 5, 6, 0, 0}};
    for (int i = 0; i < LOONG_COUNT_OF(wanted); i++) {
        double *out[LOONG_MAX_OPERANDS] = {NULL};
        op_case_t c =
            make(LOONG_F32, 4, 2, i > 1, i % 2 ? &inverse : &plain, is_feature);
        c.arg[0].wide_values = x;
        c.arg[2].wide_values = i > 1 ? NULL : features;
        op_case_outputs(&c, NULL, out);
        assert_memory_equal(out[0], wanted[i], sizeof(wanted[i]));
        op_case_reference(&c);
        free(out[0]);
    }
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(30);
    while (op_draw_next(&d)) {
        int32_t is_feature[ROWS];
        int64_t rows = op_draw_size(&d, ROWS);
        int64_t cols = op_draw_size(&d, 530);
        for (int64_t t = 0; t < rows; t++) {
            is_feature[t] = op_draw_below(&d, 3) - 1;
        }
        op_case_t c =
            make(op_draw_dtype(&d), rows, cols, op_draw_below(&d, 2) == 1,
                 op_draw_below(&d, 2) == 1 ? &inverse : &plain, is_feature);
        c.seed = d.seed;
        c.arg[0].gap = op_draw_gap(&d);
        c.arg[2].gap = op_draw_gap(&d);
        c.arg[3].gap = op_draw_gap(&d);
        assert_true(op_case_reference(&c) > 0);
        op_case_threads(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
