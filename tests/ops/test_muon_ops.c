/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of muon: every kernel of the device against the reference. What they
 * make together: tests/train/test_muon.c. */
#include "convert.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "op_device.h"
#include "rng.h"
#include "test.h"

enum { ALL_ROWS = 24, ALL_COLS = 70, ALL = ALL_ROWS * ALL_COLS, SQUARE = 40 };

static loong_context_t *ctx;

typedef struct data {
    float in[2][ALL];
    float out[2][ALL];
    uint16_t high[ALL];
    uint16_t low[ALL];
    double stats[3];
} data_t;

static data_t got;
static data_t want;

static void fill(data_t *d)
{
    for (uint64_t i = 0; i < ALL; i++) {
        uint32_t bits;
        for (uint64_t k = 0; k < 2; k++) {
            d->in[k][i] = (float)loongi_rng_normal(3, k, i);
            d->out[k][i] = (float)loongi_rng_normal(3, 2 + k, i);
        }
        memcpy(&bits, &d->out[0][i], sizeof(bits));
        d->low[i] = (uint16_t)bits;
        d->high[i] = (uint16_t)((bits >> 16) + (bits >> 15 & 1u));
    }
    d->stats[0] = 7.0;
}

static loong_karg_t matrix(loong_dtype_t dtype, int64_t rows, int64_t cols)
{
    loong_karg_t a = {dtype, 2, {rows, cols, 0, 0}, cols};
    return a;
}

typedef struct part {
    int64_t rows, cols, row, span, apart, col;
} part_t;

static void run(const loong_kernel_t *kernel, const part_t *p, bool half,
                data_t *d)
{
    const loong_muon_attr_t attr = {.group = 1,
                                    .momentum = 0.9,
                                    .nesterov = p->col > 0,
                                    .weight_decay = 0.5,
                                    .scale = 1.5,
                                    .row = p->row,
                                    .span = p->span,
                                    .apart = p->apart,
                                    .col = p->col};
    loong_frame_t frame = {.grad_scale = 0.5, .lr = {9.0, 0.125}};
    loong_kernel_query_t q = {kernel->op, &attr, 1, 2, 2, 0, {{0}}, {0}};
    void *ptr[3] = {d->in[0], d->out[0], d->out[1]};
    loong_kernel_call_t call = {
        .ctx = ctx, .query = &q, .frame = &frame, .ptr = ptr};
    if (strcmp(kernel->op, "muon_momentum") == 0) {
        q.arg[0] = q.arg[1] = matrix(LOONG_F32, p->rows, p->cols);
        q.arg[2] = matrix(LOONG_F32, ALL_ROWS, ALL_COLS);
    } else if (strcmp(kernel->op, "muon_step") == 0) {
        q.arg[0] = matrix(LOONG_F32, ALL_ROWS, ALL_COLS);
        q.arg[1] = matrix(half ? LOONG_BF16 : LOONG_F32, p->rows, p->cols);
        ptr[1] = half ? (void *)d->high : d->out[0];
        ptr[2] = half ? d->low : NULL;
        if (half) {
            q.arg[2] = matrix(LOONG_U16, p->rows, p->cols);
        }
    } else if (strcmp(kernel->op, "muon_normalize") == 0) {
        q.num_in = 2;
        q.num_out = 1;
        q.arg[0] = q.arg[2] = matrix(LOONG_F32, ALL_ROWS, ALL_COLS);
        q.arg[1] = (loong_karg_t){LOONG_F64, 1, {3, 0, 0, 0}, 3};
        ptr[1] = d->stats;
        ptr[2] = d->out[0];
    } else { /* into its second operand */
        q.num_in = 2;
        q.num_out = 1;
        q.arg[0] = q.arg[1] = q.arg[2] = matrix(LOONG_F32, SQUARE, SQUARE);
        ptr[1] = ptr[2] = d->in[1];
    }
    fill(d);
    assert_ok(ctx, op_device_run(kernel, &call));
}

static double master(const data_t *d, int64_t i)
{
    uint32_t bits =
        ((uint32_t)d->high[i] - (d->low[i] >> 15)) << 16 | d->low[i];
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* Six roundings of 2^-24 of terms up to 32. */
static void near(const char *kernel, double x, double y)
{
    if (!(fabs(x - y) <= 6 * 32 * 0x1p-24)) {
        fail_msg("%s: %.9g, reference %.9g", kernel, x, y);
    }
}

static void check(const loong_kernel_t *kernel, const loong_kernel_t *ref,
                  const part_t *p, bool half)
{
    run(ref, p, half, &want);
    run(kernel, p, half, &got);
    for (int64_t i = 0; i < ALL; i++) {
        for (int k = 0; k < 2; k++) {
            near(kernel->name, (double)got.in[k][i], (double)want.in[k][i]);
            near(kernel->name, (double)got.out[k][i], (double)want.out[k][i]);
        }
        near(kernel->name, master(&got, i), master(&want, i));
    }
}

/* The whole, rows, columns, and rows of two parts. */
static const part_t parts[] = {{ALL_ROWS, ALL_COLS, 0, 0, 0, 0},
                               {12, ALL_COLS, 12, 0, 0, 0},
                               {ALL_ROWS, 35, 0, 0, 0, 35},
                               {8, ALL_COLS, 4, 4, 12, 0}};

/* The last of its op. */
static const loong_kernel_t *reference(const char *op)
{
    const loong_kernel_t *ref = NULL;
    const loong_kernel_t *next = NULL;
    for (int i = 0; (next = loong_find_kernel(ctx, op, "cpu", i)) != NULL;
         i++) {
        ref = next;
    }
    return ref;
}

static void kernels_agree(void **state)
{
    static const char *const ops[] = {"muon_momentum", "muon_normalize",
                                      "muon_polynomial", "muon_step"};
    (void)state;
    for (int o = 0; o < LOONG_COUNT_OF(ops); o++) {
        const loong_kernel_t *ref = reference(ops[o]);
        const loong_kernel_t *kernel = NULL;
        int i = 0;
        for (; (kernel = loong_find_kernel(ctx, ops[o], OP_DEVICE, i)) != NULL;
             i++) {
            for (int k = 0; k < LOONG_COUNT_OF(parts); k++) {
                check(kernel, ref, &parts[k], false);
                check(kernel, ref, &parts[k], true);
            }
        }
        assert_true(i >= OP_LEAST);
    }
}

/* Parts are those of the whole, and nothing is outside of them. */
static void parts_are_of_the_whole(void **state)
{
    const loong_kernel_t *ref = loong_find_kernel(ctx, "muon_step", "cpu", 0);
    (void)state;
    for (int k = 0; k < LOONG_COUNT_OF(parts); k++) {
        const part_t *p = &parts[k];
        run(ref, p, false, &want);
        for (int64_t r = 0; r < p->rows; r++) {
            int64_t row = k == 3 ? 4 + r / 4 * 12 + r % 4 : p->row + r;
            for (int64_t c = 0; c < p->cols; c++) {
                int64_t i = r * p->cols + c;
                double w = (double)(float)loongi_rng_normal(3, 2, (uint64_t)i);
                double o = (double)want.in[0][row * ALL_COLS + p->col + c];
                near("muon_step", (double)want.out[0][i],
                     w - 0.125 * (1.5 * o + 0.5 * w));
            }
        }
    }
}

static int setup(void **state)
{
    (void)state;
    ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_context_end(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_agree),
        cmocka_unit_test(parts_are_of_the_whole),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
