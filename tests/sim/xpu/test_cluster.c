/* SPDX-License-Identifier: Apache-2.0
 *
 * The host model of clusters: a kernel that is right gives right results in
 * every order of cores and copies, and each mistake is found. */
#include "clustersim.h"
#include "proof.h"
#include "test.h"

enum { SIZE = 1000, SEEDS = 8 };

static float *numbers; /* [SIZE] */

void *clustersim_device_memory(const void *device, size_t bytes, char *text,
                               size_t size)
{
    uintptr_t from = (uintptr_t)device - (uintptr_t)numbers;
    size_t all = SIZE * sizeof(*numbers);
    bool inside = from < all && bytes <= all - from;
    snprintf(text, size, "not in the array");
    return inside ? (void *)(uintptr_t)device : NULL;
}

int clustersim_stream_run(void *stream, int (*run)(void *arg), void *arg)
{
    (void)stream;
    return run(arg);
}

static int run(proof_bug_t bug, uint64_t seed)
{
    for (int i = 0; i < SIZE; i++) {
        numbers[i] = (float)i;
    }
    clustersim_reset();
    clustersim_seed(seed);
    return proof_run(bug, numbers, SIZE);
}

static void test_right(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        assert_int_equal(run(PROOF_NOTHING, seed), 0);
        assert_string_equal(clustersim_report(), "");
        for (int i = 0; i < SIZE; i++) {
            assert_true(numbers[i] == (float)i + 1.0f);
        }
    }
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const texts[] = {
#define PROOF_TEXT(name_, text_) text_,
        PROOF_BUGS(PROOF_TEXT)
#undef PROOF_TEXT
    };
    for (int bug = 1; bug < PROOF_COUNT; bug++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            int error = run((proof_bug_t)bug, seed);
            if (error == 0 || strstr(clustersim_report(), texts[bug]) == NULL) {
                fail_msg("mistake %d, seed %d: %d, \"%s\", wanted \"%s\"", bug,
                         (int)seed, error, clustersim_report(), texts[bug]);
            }
        }
    }
    print_message("%d mistakes\n", PROOF_COUNT - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_mistakes),
    };
    numbers = calloc(SIZE, sizeof(*numbers));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(numbers);
    return failed;
}
