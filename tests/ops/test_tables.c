/* SPDX-License-Identifier: Apache-2.0
 *
 * rope_table, over scalings and sizes, learned rows of it, and tensor_stats,
 * over shapes and with numbers that are not finite: every kernel against the
 * reference. */
#include "op_case.h"
#include "op_device.h"

/* Kernels of a device besides the CPU's must be there. */
static void expect_kernel(int kernels)
{
    if (strcmp(OP_DEVICE, "cpu") != 0) {
        assert_true(kernels > 0);
    }
}

static void test_rope_table(void **state)
{
    (void)state;
    static const loong_rope_table_attr_t tables[] = {
        {.rotary_dim = 2, .base = 10000.0},
        {.rotary_dim = 128, .base = 500000.0, .scaling = LOONG_ROPE_LLAMA3,
         .factor = 8.0, .low_freq_factor = 1.0, .high_freq_factor = 4.0,
         .original_max_position_embeddings = 8192.0},
        {.rotary_dim = 64, .base = 10000.0, .scaling = LOONG_ROPE_YARN,
         .factor = 40.0, .beta_fast = 32.0, .beta_slow = 1.0, .mscale = 1.0,
         .original_max_position_embeddings = 4096.0, .truncate = true},
        {.rotary_dim = 26, .base = 10000.0, .scaling = LOONG_ROPE_LINEAR,
         .factor = 4.0},
        {.rotary_dim = 512, .base = 1000000.0, .scaling = LOONG_ROPE_DYNAMIC,
         .factor = 2.0, .original_max_position_embeddings = 2048.0,
         .length = 5000.0},
        {.rotary_dim = 128, .base = 1000000.0, .axes = 3,
         .sections = {16, 24, 24}},
        {.rotary_dim = 128, .base = 5000000.0, .axes = 3,
         .sections = {24, 20, 20}, .order = LOONG_ROPE_INTERLEAVED},
        {.rotary_dim = 80, .base = 10000.0, .axes = 2, .sections = {20, 20},
         .order = LOONG_ROPE_SEPARATE},
        {.rotary_dim = 72, .base = 10000.0, .axes = 2, .sections = {18, 18},
         .order = LOONG_ROPE_ALTERNATE},
    };
    enum { T = 37 };
    int32_t positions[LOONG_MAX_ROPE_AXES * T];
    for (int t = 0; t < LOONG_COUNT_OF(positions); t++) {
        positions[t] = t % T < 20 ? t : t * 7919; /* up to 870 thousand */
    }
    for (int i = 0; i < LOONG_COUNT_OF(tables); i++) {
        op_case_t c = {.op = "rope_table", .attr = &tables[i], .num_in = 1,
                       .num_out = 1};
        c.arg[0] = tables[i].axes == 0 ? op_vec(LOONG_I32, T)
                                       : op_mat(LOONG_I32, tables[i].axes, T);
        c.arg[0].values = positions;
        c.arg[1] = op_mat(LOONG_F32, T, tables[i].rotary_dim);
        c.arg[1].gap = i % 2 * 3;
        c.bound.roundings = 1;
        expect_kernel(op_case_reference(&c));
    }
}

static void check_learned(loong_dtype_t dtype, const loong_rope_attr_t *attr,
                          int64_t pairs, bool add)
{
    enum { T = 37, HEADS = 3 };
    bool known = strcmp(OP_DEVICE, "xpu") != 0;
    op_case_t angles = {.op = "rope_angles", .num_in = 1, .num_out = 1};
    angles.arg[0] = op_mat(LOONG_F32, T, pairs);
    angles.arg[1] = op_mat(LOONG_F32, T, 2 * pairs);
    angles.bound.terms = 2;
    op_case_t c = {.op = "rope_table_grad", .attr = attr, .num_in = 3,
                   .num_out = 1, .accumulate = add};
    for (int i = 0; i < 4; i++) {
        c.arg[i] = i < 2 ? op_mat(dtype, T, HEADS * attr->head_dim)
                         : op_mat(LOONG_F32, T, 2 * pairs);
        c.arg[i].gap = i % 2 * 3;
    }
    c.bound.terms = 2 * HEADS;
    int kernels[2] = {op_case_reference(&angles), op_case_reference(&c)};
    for (int i = 0; i < 2 && known; i++) {
        expect_kernel(kernels[i]);
    }
}

static void test_learned_angles(void **state)
{
    (void)state;
    static const loong_rope_attr_t attrs[] = {{8, false, false, 0},
                                              {11, true, true, 3}};
    for (int i = 0; i < LOONG_COUNT_OF(attrs); i++) {
        check_learned(LOONG_F32, &attrs[i], 4 - i, i == 1);
        check_learned(LOONG_BF16, &attrs[i], 4 - i, i == 0);
    }
}

static void check_stats(loong_dtype_t dtype, int64_t rows, int64_t cols,
                        bool add)
{
    op_case_t c = {.op = "tensor_stats", .num_in = 1, .num_out = 1};
    double *x = op_normal(rows * cols, 5, 3.0);
    static const double held[3] = {7.5, 2.0, 3.0};
    x[rows * cols / 2] = INFINITY;
    x[rows * cols / 3] = NAN;
    x[0] = -40.0; /* the largest */
    c.arg[0] = op_mat(dtype, rows, cols);
    c.arg[0].wide_values = x;
    c.arg[0].gap = cols % 3;
    c.arg[1] = op_vec(LOONG_F64, 3);
    c.arg[1].wide_values = held;
    c.accumulate = add;
    c.bound.terms = rows * cols;
    expect_kernel(op_case_reference(&c));
    free(x);
}

static void test_stats(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 8}, {3, 5}, {67, 129}, {300, 64}};
    static const loong_dtype_t types[] = {LOONG_F32, LOONG_BF16};
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            check_stats(types[t], shapes[i][0], shapes[i][1], i % 2 == t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_learned_angles),
        cmocka_unit_test(test_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
