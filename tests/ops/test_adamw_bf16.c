/* SPDX-License-Identifier: Apache-2.0
 *
 * Moments in bf16, rounded by chance, by every kernel of adamw. All is chosen
 * so that fp32 holds the moments exactly: then what is stored is known to the
 * bit. */
#include <stdlib.h>

#include "convert.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "op_device.h"
#include "rng.h"
#include "test.h"

enum { ROWS = 12, COLS = 1500, SIZE = ROWS * COLS, MAX_KERNELS = 8 };

static const uint64_t stream = 0x9bdf13579bdf1357u;

/* What one call works on. */
typedef struct data {
    float grad[SIZE];
    float param[SIZE];
    uint16_t exp_avg[SIZE];
    uint16_t exp_avg_sq[SIZE];
} data_t;

/* Which elements: see loong_update_piece_t. */
typedef struct part {
    int64_t n;
    int64_t begin, first, run, stride;
} part_t;
static const part_t whole = {SIZE, 0, 0, SIZE, SIZE};

typedef struct when { /* of the frame */
    uint64_t seed;
    int64_t step;
} when_t;

static loong_context_t *ctx;

static loong_karg_t vector(loong_dtype_t dtype, int64_t n)
{
    loong_karg_t a = {dtype, 1, {n, 0, 0, 0}, n};
    return a;
}

/* Kernels that this device has and, last, the reference. */
static int kernels_of(const loong_kernel_t *list[MAX_KERNELS])
{
    loong_kernel_query_t q = {"adamw", NULL, 1, 1, 1, 0, {{0}}, {0}};
    char reason[LOONG_REASON_SIZE];
    const loong_kernel_t *k = NULL;
    const loong_kernel_t *last = NULL;
    int count = 0;
    for (int i = 0; (k = loong_find_kernel(ctx, "adamw", "cpu", i)) != NULL;
         i++) {
        last = k;
    }
    for (int i = 0; (k = loong_find_kernel(ctx, "adamw", OP_DEVICE, i)) != NULL;
         i++) {
        if (k != last && (k->support == NULL || k->support(&q, reason))) {
            assert_true(count + 1 < MAX_KERNELS);
            list[count++] = k;
        }
    }
    list[count++] = last;
    assert_true(count >= 2);
    return count;
}

/* ---- what is to come out ------------------------------------------------- */

/* The random word of element e of the parameter. */
static uint32_t chance_of(when_t when, int64_t e)
{
    uint64_t key =
        when.seed ^ (stream * 0x9E3779B97F4A7C15u + 0x3C6EF372FE94F82Bu);
    uint32_t words[4] = {(uint32_t)(e / 4), (uint32_t)((uint64_t)e >> 34),
                         (uint32_t)when.step,
                         (uint32_t)((uint64_t)when.step >> 32)};
    loongi_philox(words, key);
    return words[e % 4];
}

static uint16_t rounded(double exact, uint32_t chance)
{
    float value = (float)exact;
    uint32_t bits;
    assert_true((double)value == exact);
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + (chance & 0xffffu)) >> 16);
}

/* Gradients of 11 bits, moments of 8. */
static void fill(data_t *d)
{
    for (int64_t i = 0; i < SIZE; i++) {
        uint32_t c[4] = {(uint32_t)i, 1, 2, 3};
        loongi_philox(c, 5);
        d->grad[i] = (float)((int)(c[0] % 4095) - 2047) * 0x1p-12f;
        d->param[i] = (float)c[1] * 0x1p-32f;
        d->exp_avg[i] =
            loongi_f32_to_bf16((float)((int)(c[2] % 255) - 127) * 0x1p-8f);
        d->exp_avg_sq[i] = loongi_f32_to_bf16((float)(c[3] % 127) * 0x1p-8f);
    }
}

/* Both betas are 1/2. */
static double exact_avg(const data_t *before, int64_t i)
{
    return 0.5 * (double)loongi_bf16_to_f32(before->exp_avg[i]) +
           0.5 * (double)before->grad[i];
}

static double exact_avg_sq(const data_t *before, int64_t i)
{
    double g = (double)before->grad[i];
    return 0.5 * (double)loongi_bf16_to_f32(before->exp_avg_sq[i]) +
           0.5 * g * g;
}

/* Takes the place of the part's. */
static const loong_update_piece_t unnamed;
static const loong_update_attr_t by_chance = {.beta1 = 0.5,
                                              .beta2 = 0.5,
                                              .eps = 1e-8,
                                              .num_pieces = 1,
                                              .pieces = &unnamed};

static void run(const loong_kernel_t *kernel, const loong_update_attr_t *attr,
                const part_t *part, when_t when, data_t *d)
{
    loong_update_attr_t a = *attr;
    loong_update_piece_t piece = {0,           stream,    part->begin,
                                  part->first, part->run, part->stride};
    a.pieces = a.pieces == &unnamed ? &piece : a.pieces;
    int threads = part->n > 4096 ? 2 : 1;
    loong_kernel_query_t q = {"adamw", &a, 1, 4, threads, 0, {{0}}, {0}};
    loong_frame_t frame = {.step = when.step, .seed = when.seed,
                           .grad_scale = 1.0, .lr = {1e-3}};
    void *ptr[5] = {d->grad, d->param, NULL, d->exp_avg, d->exp_avg_sq};
    loong_kernel_call_t call = {ctx, &q, NULL, &frame, ptr, NULL,
                                NULL, 0, 0, NULL, NULL, NULL, NULL, false};
    q.arg[0] = q.arg[1] = vector(LOONG_F32, part->n);
    q.arg[3] = q.arg[4] = vector(LOONG_BF16, part->n);
    assert_ok(ctx, op_device_run(kernel, &call));
}

/* ---- tests --------------------------------------------------------------- */

static void bits_are_the_contracts(void **state)
{
    data_t *d = *state;
    const loong_kernel_t *list[MAX_KERNELS];
    const when_t when = {0x123456789abcdefu, ((int64_t)3 << 32) + 77};
    int count = kernels_of(list);
    fill(&d[0]);
    for (int k = 0; k < count; k++) {
        d[1] = d[0];
        run(list[k], &by_chance, &whole, when, &d[1]);
        for (int64_t i = 0; i < SIZE; i++) {
            uint32_t chance = chance_of(when, i);
            assert_int_equal(d[1].exp_avg[i],
                             rounded(exact_avg(&d[0], i), chance));
            assert_int_equal(d[1].exp_avg_sq[i],
                             rounded(exact_avg_sq(&d[0], i), chance >> 16));
        }
    }
}

/* A part and the elements of the whole that it has, in order. */
typedef struct cut {
    part_t part;
    int64_t row, rows; /* of every `each` rows */
    int64_t each;
    int64_t col, cols;
    int64_t skip; /* rows that another rank updates */
} cut_t;

static int64_t elements_of(const cut_t *c, int64_t *elements)
{
    int64_t n = 0;
    int64_t row = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        bool has = r % c->each >= c->row && r % c->each < c->row + c->rows;
        if (has && row++ >= c->skip) {
            for (int64_t k = c->col; k < c->col + c->cols; k++) {
                elements[n++] = r * COLS + k;
            }
        }
    }
    assert_int_equal(n, c->part.n);
    return n;
}

static void take(const data_t *from, const int64_t *elements, int64_t n,
                 data_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        to->grad[i] = from->grad[elements[i]];
        to->param[i] = from->param[elements[i]];
        to->exp_avg[i] = from->exp_avg[elements[i]];
        to->exp_avg_sq[i] = from->exp_avg_sq[elements[i]];
    }
}

static void take_from(const data_t *from, int64_t begin, int64_t n, data_t *to)
{
    memcpy(to->grad, from->grad + begin, (size_t)n * sizeof(*to->grad));
    memcpy(to->param, from->param + begin, (size_t)n * sizeof(*to->param));
    memcpy(to->exp_avg, from->exp_avg + begin,
           (size_t)n * sizeof(*to->exp_avg));
    memcpy(to->exp_avg_sq, from->exp_avg_sq + begin,
           (size_t)n * sizeof(*to->exp_avg_sq));
}

static bool is_equal(const data_t *a, const data_t *b, int64_t n)
{
    return memcmp(a->param, b->param, (size_t)n * sizeof(*a->param)) == 0 &&
           memcmp(a->exp_avg, b->exp_avg,
                  (size_t)n * sizeof(*a->exp_avg)) == 0 &&
           memcmp(a->exp_avg_sq, b->exp_avg_sq,
                  (size_t)n * sizeof(*a->exp_avg_sq)) == 0;
}

/* Whatever a rank has of a parameter it rounds as a rank with all of it. */
static void parts_are_bit_equal_to_the_whole(void **state)
{
    static const cut_t cuts[] = {
        /* rows that data-parallel ranks share out */
        {{4 * COLS, 3 * COLS, 0, SIZE, SIZE}, 3, 4, ROWS, 0, COLS, 0},
        /* columns of tensor-parallel ranks: packs stay whole, or not */
        {{ROWS * 800, 0, 200, 800, COLS}, 0, ROWS, ROWS, 200, 800, 0},
        {{ROWS * 717, 0, 333, 717, COLS}, 0, ROWS, ROWS, 333, 717, 0},
        {{7 * 717, 5 * 717, 333, 717, COLS}, 0, ROWS, ROWS, 333, 717, 5},
        /* rows of each expert */
        {{6 * COLS, 0, COLS, 2 * COLS, 4 * COLS}, 1, 2, 4, 0, COLS, 0},
        {{3 * COLS, 3 * COLS, COLS, 2 * COLS, 4 * COLS}, 1, 2, 4, 0, COLS, 3},
    };
    data_t *d = *state;
    const loong_kernel_t *list[MAX_KERNELS];
    const when_t when = {11, 4};
    int count = kernels_of(list);
    int64_t *elements = calloc(SIZE, sizeof(*elements));
    assert_non_null(elements);
    fill(&d[0]);
    for (int k = 0; k < count; k++) {
        d[1] = d[0];
        run(list[k], &by_chance, &whole, when, &d[1]);
        for (int i = 0; i < LOONG_COUNT_OF(cuts); i++) {
            int64_t n = elements_of(&cuts[i], elements);
            take(&d[0], elements, n, &d[2]);
            take(&d[1], elements, n, &d[3]);
            run(list[k], &by_chance, &cuts[i].part, when, &d[2]);
            assert_true(is_equal(&d[2], &d[3], n));
            /* An index within what the rank has would be seen. */
            part_t wrong = {n, 0, 0, n, n};
            take(&d[0], elements, n, &d[2]);
            run(list[k], &by_chance, &wrong, when, &d[2]);
            assert_false(is_equal(&d[2], &d[3], n));
        }
    }
    free(elements);
}

/* One call with the pieces of many parameters rounds each as a call of its own:
 * sizes of a few elements, so that a pack has several, and more pieces than a
 * launch of any kernel takes; the last one is long. */
static void pieces_are_bit_equal_to_calls(void **state)
{
    enum { PIECES = 300 };
    data_t *d = *state;
    loong_update_piece_t pieces[PIECES];
    const loong_kernel_t *list[MAX_KERNELS];
    const when_t when = {7, 5};
    int64_t at = 0;
    int count = kernels_of(list);
    fill(&d[0]);
    for (int i = 0; i < PIECES; i++) {
        uint32_t c[4] = {(uint32_t)i, 9, 9, 9};
        loongi_philox(c, 3);
        pieces[i] = (loong_update_piece_t){at,       stream + c[0], c[1] % 50,
                                           c[2] % 9, 60 + c[3] % 9, 90};
        at += i % 3 == 0 ? 1 + c[0] % 3 : 1 + c[0] % 90;
    }
    assert_true(at < SIZE);
    for (int k = 0; k < count; k++) {
        loong_update_attr_t attr = by_chance;
        const part_t all = {SIZE, 0, 0, 1, 1};
        d[1] = d[0];
        attr.num_pieces = PIECES;
        attr.pieces = pieces;
        run(list[k], &attr, &all, when, &d[1]);
        attr.num_pieces = 1;
        for (int i = 0; i < PIECES; i++) {
            int64_t begin = pieces[i].at;
            int64_t end = i + 1 < PIECES ? pieces[i + 1].at : SIZE;
            loong_update_piece_t alone = pieces[i];
            part_t part = {end - begin, 0, 0, 1, 1};
            alone.at = 0;
            attr.pieces = &alone;
            take_from(&d[0], begin, part.n, &d[2]);
            take_from(&d[1], begin, part.n, &d[3]);
            run(list[k], &attr, &part, when, &d[2]);
            assert_true(is_equal(&d[2], &d[3], part.n));
        }
    }
}

/* In places of bf16. */
static double error_of(uint16_t stored, double exact)
{
    double low = (double)loongi_bf16_to_f32(rounded(exact, 0));
    double high = (double)loongi_bf16_to_f32(rounded(exact, 0xffff));
    double place = fabs(high - low);
    return place > 0.0
               ? ((double)loongi_bf16_to_f32(stored) - exact) / place
               : 0.0;
}

/* The mean error of every element over many seeds is 0; errors of the two
 * moments and of two steps have nothing to do with each other. Bounds: five
 * standard deviations, an error's being at most 1/2. */
static void rounding_has_no_bias(void **state)
{
    enum { ELEMENTS = 1024, SEEDS = 128 };
    data_t *d = *state;
    const loong_kernel_t *list[MAX_KERNELS];
    double sum[2][ELEMENTS] = {{0.0}};
    double all[2] = {0.0, 0.0};
    double products[2] = {0.0, 0.0};
    part_t some = whole;
    some.n = ELEMENTS;
    (void)kernels_of(list);
    fill(&d[0]);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        take_from(&d[0], 0, ELEMENTS, &d[1]);
        take_from(&d[0], 0, ELEMENTS, &d[2]);
        run(list[0], &by_chance, &some, (when_t){seed, 6}, &d[1]);
        run(list[0], &by_chance, &some, (when_t){seed, 7}, &d[2]);
        for (int64_t i = 0; i < ELEMENTS; i++) {
            double m = error_of(d[1].exp_avg[i], exact_avg(&d[0], i));
            double v = error_of(d[1].exp_avg_sq[i], exact_avg_sq(&d[0], i));
            double next = error_of(d[2].exp_avg[i], exact_avg(&d[0], i));
            assert_true(fabs(m) < 1.0 && fabs(v) < 1.0);
            sum[0][i] += m;
            sum[1][i] += v;
            all[0] += m;
            all[1] += v;
            products[0] += m * v;
            products[1] += m * next;
        }
    }
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < ELEMENTS; i++) {
            assert_true(fabs(sum[k][i]) <= 2.5 * sqrt(SEEDS));
        }
        assert_true(fabs(all[k]) <= 2.5 * sqrt(SEEDS * ELEMENTS));
        assert_true(fabs(products[k]) <= 1.25 * sqrt(SEEDS * ELEMENTS));
    }
}

/* With a large beta2 a step adds less than half a place of bf16, once there is
 * some. */
static void slow_averages_need_chance(void **state)
{
    enum { ELEMENTS = 256, STEPS = 300 };
    data_t *d = *state;
    const loong_kernel_t *list[MAX_KERNELS];
    double mean[2];
    part_t some = whole;
    some.n = ELEMENTS;
    (void)kernels_of(list);
    for (int chance = 0; chance < 2; chance++) {
        loong_update_attr_t attr = by_chance;
        attr.beta2 = 0.996;
        attr.num_pieces = chance;
        memset(&d[1], 0, sizeof(d[1]));
        for (int64_t i = 0; i < ELEMENTS; i++) {
            d[1].grad[i] = 1.0f;
        }
        for (int64_t t = 0; t < STEPS; t++) {
            run(list[0], &attr, &some, (when_t){1, t}, &d[1]);
        }
        mean[chance] = 0.0;
        for (int64_t i = 0; i < ELEMENTS; i++) {
            mean[chance] +=
                (double)loongi_bf16_to_f32(d[1].exp_avg_sq[i]) / ELEMENTS;
        }
    }
    /* From 1/2 on half a place is 2^-9, and 0.004 (1 - v) soon less. */
    assert_true(mean[0] < 0.52);
    /* A step errs by half a place below 1, 2^-9, in 256 elements and 300 steps:
     * five standard deviations. */
    double error = 5.0 * 0x1p-9 * sqrt(STEPS) / sqrt(ELEMENTS);
    assert_true(fabs(mean[1] - (1.0 - pow(0.996, STEPS))) < error);
}

static int setup(void **state)
{
    *state = calloc(4, sizeof(data_t));
    assert_non_null(*state);
    ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    test_context_end(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_contracts),
        cmocka_unit_test(parts_are_bit_equal_to_the_whole),
        cmocka_unit_test(pieces_are_bit_equal_to_calls),
        cmocka_unit_test(rounding_has_no_bias),
        cmocka_unit_test(slow_averages_need_chance),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
