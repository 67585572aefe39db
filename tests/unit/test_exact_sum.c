/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums without order, against sums in 384-bit integers done here in another
 * way: every addend is placed bit by bit. */
#include "exact_sum.h"
#include "rng.h"
#include "test.h"

/* Two's complement, the lowest word first; bit 0 weighs 2^-144. */
enum { WIDE = 12 };

typedef struct wide {
    uint32_t word[WIDE];
} wide_t;

static void wide_add_bit(wide_t *w, int bit)
{
    for (int i = bit / 32; i < WIDE; i++) {
        uint32_t old = w->word[i];
        w->word[i] += i == bit / 32 ? 1u << (bit % 32) : 1u;
        if (w->word[i] > old) {
            return; /* no carry */
        }
    }
}

static void wide_negate(wide_t *w)
{
    for (int i = 0; i < WIDE; i++) {
        w->word[i] = ~w->word[i];
    }
    wide_add_bit(w, 0);
}

/* Exact for multiples of 2^-144. */
static void wide_add(wide_t *w, double value)
{
    int exponent;
    double part = frexp(fabs(value), &exponent);
    if (value < 0.0) {
        wide_negate(w);
    }
    for (int bit = exponent - 1 + 144; part != 0.0; bit--) {
        part *= 2.0;
        if (part >= 1.0) {
            part -= 1.0;
            assert_true(bit >= 0);
            wide_add_bit(w, bit);
        }
    }
    if (value < 0.0) {
        wide_negate(w);
    }
}

/* Its nearest double is within one unit in the last place of this. */
static double wide_value(wide_t w)
{
    bool negative = w.word[WIDE - 1] >> 31 != 0;
    double value = 0.0;
    if (negative) {
        wide_negate(&w);
    }
    for (int i = WIDE - 1; i >= 0; i--) {
        value += ldexp(w.word[i], 32 * i - 144);
    }
    return negative ? -value : value;
}

/* Magnitudes over 2^-80 ... 2^80, both signs: multiples of 2^-144. */
static double addend(uint64_t i)
{
    double size = floor(160.0 * loongi_rng_uniform(1, 1, i)) - 80.0;
    return ldexp(loongi_rng_uniform(1, 2, i) - 0.5, (int)size);
}

static void equals_wide_integers(void **state)
{
    (void)state;
    int64_t record[LOONG_EXACT_WORDS] = {0};
    wide_t wide = {{0}};
    for (uint64_t i = 0; i < 20000; i++) {
        /* 53 bits from 2^-81 down end at 2^-134 */
        loongi_exact_add(record, addend(i));
        wide_add(&wide, addend(i));
        if (i % 1000 == 0 || i > 19900) {
            double expected = wide_value(wide);
            double got = loongi_exact_value(record);
            assert_true(fabs(got - expected) <= fabs(expected) * 0x1p-52);
        }
    }
    /* taking all away again leaves nothing */
    for (uint64_t i = 20000; i-- > 0;) {
        loongi_exact_add(record, -addend(i));
    }
    assert_true(loongi_exact_value(record) == 0.0);
}

/* Naive addition loses the small ones here. */
static void keeps_what_cancels(void **state)
{
    (void)state;
    int64_t record[LOONG_EXACT_WORDS] = {0};
    loongi_exact_add(record, 0x1p100);
    loongi_exact_add(record, 0x1p-100);
    loongi_exact_add(record, 3.0);
    loongi_exact_add(record, -0x1p100);
    assert_true(loongi_exact_value(record) == 3.0);
    loongi_exact_add(record, -3.0);
    assert_true(loongi_exact_value(record) == 0x1p-100);
    loongi_exact_add(record, -0x1p-99);
    assert_true(loongi_exact_value(record) == -0x1p-100);
}

/* The same bits forwards, backwards, and merged from parts of any size. */
static void order_does_not_matter(void **state)
{
    (void)state;
    enum { N = 9000 };
    int64_t forwards[LOONG_EXACT_WORDS] = {0};
    int64_t backwards[LOONG_EXACT_WORDS] = {0};
    int64_t merged[LOONG_EXACT_WORDS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        loongi_exact_add(forwards, addend(i));
        loongi_exact_add(backwards, addend(N - 1 - i));
    }
    assert_memory_equal(forwards, backwards, sizeof(forwards));
    for (uint64_t begin = 0, size = 1; begin < N; begin += size, size *= 3) {
        int64_t part[LOONG_EXACT_WORDS] = {0};
        for (uint64_t i = begin; i < begin + size && i < N; i++) {
            loongi_exact_add(part, addend(i));
        }
        loongi_exact_merge(merged, part);
    }
    loongi_exact_carry(forwards);
    assert_memory_equal(merged, forwards, sizeof(merged));
}

/* A carry changes digits, not the value; digits become 32 bits wide. */
static void carry_keeps_the_value(void **state)
{
    (void)state;
    int64_t record[LOONG_EXACT_WORDS] = {0};
    for (int i = 0; i < 100000; i++) {
        loongi_exact_add(record, i % 3 == 0 ? 0.1 : -1e10);
    }
    double before = loongi_exact_value(record);
    loongi_exact_carry(record);
    assert_true(loongi_exact_value(record) == before);
    for (int i = 0; i + 1 < LOONG_EXACT_DIGITS; i++) {
        assert_true(record[i] >= 0 && record[i] <= 0xffffffff);
    }
}

/* What is below the grid is rounded to it, half up in size. */
static void below_the_grid(void **state)
{
    (void)state;
    const struct {
        double value;
        double kept;
    } cases[] = {
        {0x1p-144, 0x1p-144}, {0x1p-145, 0x1p-144},   {-0x1p-145, -0x1p-144},
        {0x1.8p-146, 0.0},    {0x1.8p-144, 0x1p-143}, {0x1p-200, 0.0},
        {0x1p-1074, 0.0},     {0.0, 0.0},             {-0.0, 0.0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t record[LOONG_EXACT_WORDS] = {0};
        loongi_exact_add(record, cases[i].value);
        assert_true(loongi_exact_value(record) == cases[i].kept);
    }
}

/* The largest float fits; beyond the range, infinities and NaN make
 * the sum NaN for good, also through a merge. */
static void beyond_the_range(void **state)
{
    (void)state;
    const double bad[] = {0x1p170, -0x1p300, INFINITY, -INFINITY, NAN};
    int64_t sum[LOONG_EXACT_WORDS] = {0};
    loongi_exact_add(sum, 0x1.fffffep127);
    assert_true(loongi_exact_value(sum) == 0x1.fffffep127);
    for (int i = 0; i < 5; i++) {
        int64_t record[LOONG_EXACT_WORDS] = {0};
        int64_t clean[LOONG_EXACT_WORDS] = {0};
        loongi_exact_add(record, bad[i]);
        loongi_exact_add(record, 1.0);
        assert_true(isnan(loongi_exact_value(record)));
        loongi_exact_add(clean, 1.0);
        loongi_exact_merge(clean, record);
        assert_true(isnan(loongi_exact_value(clean)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_wide_integers),
        cmocka_unit_test(keeps_what_cancels),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(carry_keeps_the_value),
        cmocka_unit_test(below_the_grid),
        cmocka_unit_test(beyond_the_range),
    };
    return cmocka_run_group_tests_name("exact_sum", tests, NULL, NULL);
}
