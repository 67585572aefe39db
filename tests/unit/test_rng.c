/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox against the known answers that its authors publish with Random123
 * (kat_vectors, "philox4x32 10"), the numbers made of it against their laws. */
#include "rng.h"
#include "test.h"

static const struct {
    uint32_t counter[4];
    uint64_t key;
    uint32_t answer[4];
} known[] = {
    {{0, 0, 0, 0},
     0,
     {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
    {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu},
     0xffffffffffffffffu,
     {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
    {{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
     0x299f31d0a4093822u,
     {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
};

static void known_answers(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t c[4];
        memcpy(c, known[i].counter, sizeof(c));
        loongi_philox(c, known[i].key);
        assert_memory_equal(c, known[i].answer, sizeof(c));
    }
}

/* The first 53 bits of a block, its counter being (index, name). */
static void numbers_come_from_blocks(void **state)
{
    (void)state;
    uint64_t index = 0x85a308d3243f6a88u;
    uint64_t name = 0x0370734413198a2eu;
    uint64_t bits = (uint64_t)0xd16cfe09u << 32 | 0x94fdccebu;
    double u = loongi_rng_uniform(known[2].key, name, index);
    assert_true(u == ((double)(bits >> 11) + 0.5) * 0x1p-53);
    /* every part of the key counts */
    assert_true(u != loongi_rng_uniform(known[2].key ^ 1u, name, index));
    assert_true(u != loongi_rng_uniform(known[2].key, name ^ 1u, index));
    assert_true(u != loongi_rng_uniform(known[2].key, name, index ^ 1u));
    assert_true(u !=
                loongi_rng_uniform(known[2].key, name, index ^ 1ull << 40));
}

/* Draws stay inside (0, 1), so that log(u) is finite. */
static void draws_stay_inside(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = loongi_rng_uniform(3, 4, i);
        assert_true(u > 0.0 && u < 1.0);
        assert_true(isfinite(loongi_rng_normal(3, 4, i)));
    }
}

/* Many at once are the same numbers, near those of the mathematical library. */
static void many_normals(void **state)
{
    (void)state;
    enum { N = 1000 };
    double values[N];
    for (int64_t count = 1; count < N; count += 37) {
        uint64_t first = ((uint64_t)1 << 32) - 500;
        loongi_rng_normals(9, 5, first, count, values);
        for (int64_t i = 0; i < count; i++) {
            uint64_t at = first + (uint64_t)i;
            assert_true(values[i] == loongi_rng_normal(9, 5, at));
            double radius = sqrt(-2.0 * log(loongi_rng_uniform(9, 5, at)));
            assert_true(fabs(values[i]) <= radius * (1.0 + 1e-15));
        }
    }
}

/* Sample moments of n numbers lie within 5 standard errors. */
static void moments(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    uint64_t name = loongi_rng_name("model.layers.0.weight");
    double sum[5] = {0};
    double mean = 0.0;
    double square = 0.0;
    double neighbours = 0.0;
    double last = 0.0;
    for (uint64_t i = 0; i < N; i++) {
        double u = loongi_rng_uniform(1234, name, i) - 0.5;
        double z = loongi_rng_normal(1234, name, i);
        double power = 1.0;
        mean += u;
        square += u * u;
        neighbours += z * last;
        last = z;
        for (int k = 1; k <= 4; k++) {
            sum[k] += power *= z;
        }
    }
    double error = 5.0 / sqrt(N);
    assert_true(fabs(mean / N) < error * sqrt(1.0 / 12.0));
    assert_true(fabs(square / N - 1.0 / 12.0) < error * sqrt(1.0 / 180.0));
    assert_true(fabs(sum[1] / N) < error);                /* variance 1 */
    assert_true(fabs(sum[2] / N - 1.0) < error * sqrt(2)); /* 3 - 1 */
    assert_true(fabs(sum[3] / N) < error * sqrt(15));     /* 15 */
    assert_true(fabs(sum[4] / N - 3.0) < error * sqrt(96)); /* 105 - 9 */
    assert_true(fabs(neighbours / N) < error);
}

/* FNV-1a of the empty text, mixed by MurmurHash3's last steps, computed
 * elsewhere: a change would start every model differently. */
static void names_are_fixed(void **state)
{
    (void)state;
    assert_true(loongi_rng_name("") == 0xefd01f60ba992926u);
    assert_true(loongi_rng_name("embedding.weight") == 0xee8f1173fa35d719u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(numbers_come_from_blocks),
        cmocka_unit_test(draws_stay_inside),
        cmocka_unit_test(many_normals),
        cmocka_unit_test(moments),
        cmocka_unit_test(names_are_fixed),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
