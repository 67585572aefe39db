/* SPDX-License-Identifier: Apache-2.0
 *
 * Blends: the permutation is a bijection, sources keep their proportions at
 * every draw, epochs are complete, and fingerprints say what changed. */
#include "apportion.h"
#include "data_test.h"
#include "loong/blend.h"
#include "loong/register.h"
#include "permutation.h"

static void check_bijection(uint64_t key, int64_t n)
{
    uint8_t *seen = calloc((size_t)n, 1);
    assert_non_null(seen);
    for (int64_t i = 0; i < n; i++) {
        int64_t image = loongi_permutation_get(key, n, i);
        assert_in_range(image, 0, n - 1);
        assert_int_equal(seen[image]++, 0);
    }
    free(seen);
}

static void test_permutation_is_bijective(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 300; n++) {
        check_bijection((uint64_t)n * 77, n);
        check_bijection(~(uint64_t)n, n);
    }
    uint64_t key = 1;
    for (int i = 0; i < 40; i++) {
        key = loongi_permutation_key(key, (uint64_t)i);
        check_bijection(key, 301 + (int64_t)(key % 100000));
    }
    int64_t huge = (int64_t)1 << 60; /* far beyond what can be enumerated */
    for (int64_t i = 0; i < 1000; i++) {
        assert_in_range(loongi_permutation_get(key, huge - 1, i), 0, huge - 2);
    }
}

/* Mean distance of neighbours and fixed points as in a random permutation:
 * n/3 with standard error below n/3/sqrt(n) * 1.5; fixed points are Poisson
 * with mean 1 a key. Six standard errors are allowed. */
static void test_permutation_scatters(void **state)
{
    (void)state;
    enum { N = 10007, KEYS = 50 };
    double distance = 0;
    int64_t fixed = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        int64_t last = loongi_permutation_get(key, N, 0);
        for (int64_t i = 1; i < N; i++) {
            int64_t image = loongi_permutation_get(key, N, i);
            distance += fabs((double)(image - last));
            fixed += image == i;
            last = image;
        }
    }
    double mean = distance / ((double)(N - 1) * KEYS);
    double error = N / 3.0 * 1.5 / sqrt((double)N * KEYS);
    assert_true(fabs(mean - N / 3.0) < 6 * error);
    assert_true(fabs((double)fixed - KEYS) < 6 * sqrt(KEYS));
}

/* |draws - g * share / period| < 1 for all sources at all g, in integers. */
static void check_proportions(const loong_apportion_t *table)
{
    int64_t *count = calloc((size_t)table->sources, sizeof(*count));
    int64_t sum = 0;
    assert_non_null(count);
    for (int64_t s = 0; s < table->sources; s++) {
        assert_true(table->share[s] >= 1);
        sum += table->share[s];
    }
    assert_int_equal(sum, table->period);
    for (int64_t g = 0; g < table->period; g++) {
        int64_t s = table->source[g];
        assert_int_equal(table->rank[g], count[s]);
        count[s]++;
        for (s = 0; s < table->sources; s++) {
            int64_t lag = count[s] * table->period - (g + 1) * table->share[s];
            assert_true(lag > -table->period && lag < table->period);
        }
    }
    free(count);
}

static void check_weights(const double *weights, int64_t sources,
                          int64_t period)
{
    loong_context_t *ctx = test_context();
    loong_apportion_t table = {0};
    assert_ok(ctx, loongi_apportion_create(ctx, weights, sources, &table));
    if (period > 0) {
        assert_int_equal(table.period, period);
    }
    check_proportions(&table);
    double sum = 0;
    double slack = 1; /* and what lifting weights below one unit takes away */
    for (int64_t s = 0; s < sources; s++) {
        sum += weights[s];
    }
    for (int64_t s = 0; s < sources; s++) {
        slack += weights[s] / sum * (double)table.period < 0.5;
    }
    for (int64_t s = 0; s < sources; s++) {
        double exact = weights[s] / sum * (double)table.period;
        assert_true(fabs((double)table.share[s] - exact) <= slack);
        for (int64_t k = 0; k < LOONG_MIN(table.share[s] * 2, 50); k++) {
            int64_t g = loongi_apportion_find(&table, s, k);
            assert_int_equal(table.source[g % table.period], s);
            assert_int_equal(loongi_apportion_count(&table, s, g), k);
            assert_int_equal(loongi_apportion_count(&table, s, g + 1), k + 1);
        }
    }
    loongi_apportion_destroy(ctx, &table);
    test_context_end(&ctx);
}

static void test_proportions(void **state)
{
    (void)state;
    static const double one[] = {0.3};
    static const double three[] = {3, 2, 1};
    static const double decimal[] = {0.7, 0.2, 0.1};
    static const double fine[] = {0.9999, 0.0001};
    static const double irrational[] = {1.4142135623730951, 1, 2.23606797749979,
                                        3.141592653589793};
    static const double tiny[] = {1e-12, 1, 1e-9};
    double many[200];
    check_weights(one, 1, 1);
    check_weights(three, 3, 6);
    check_weights(decimal, 3, 10);
    check_weights(fine, 2, 10000);
    check_weights(irrational, 4, APPORTION_MAX_PERIOD);
    check_weights(tiny, 3, APPORTION_MAX_PERIOD);
    for (int i = 0; i < LOONG_COUNT_OF(many); i++) {
        many[i] = pow(1.05, i); /* from 1 to 16,000 */
    }
    check_weights(many, 40, 0);
    for (int i = 0; i < LOONG_COUNT_OF(many); i++) {
        many[i] = 1;
    }
    check_weights(many, 200, 200);
}

static loong_blend_t *make_blend(loong_context_t *ctx, const char *dir,
                                 const double weights[2], uint64_t seed)
{
    char a[SCRATCH_SIZE];
    char b[SCRATCH_SIZE];
    loong_blend_t *blend = NULL;
    loong_blend_source_t sources[] = {
        {scratch_path(dir, "a", a), weights[0], 0, 0, 0, NULL, NULL, NULL, 0},
        {scratch_path(dir, "b", b), weights[1], 0, 0, 0, NULL, NULL, NULL, 0}};
    loong_blend_params_t params = {.name = "train",
                                   .sources = sources,
                                   .num_sources = 2,
                                   .seq_length = 16,
                                   .seed = seed,
                                   .shuffle = true};
    assert_ok(ctx, loong_blend_create(ctx, &params, &blend));
    return blend;
}

static void make_sets(loong_context_t *ctx, char dir[SCRATCH_SIZE])
{
    char path[SCRATCH_SIZE];
    scratch_make(dir);
    assert_ok(ctx, loong_register_builtin(ctx));
    known_write(ctx, scratch_path(dir, "a", path), 200, LOONG_U16, false);
    known_write(ctx, scratch_path(dir, "b", path), 90, LOONG_I32, false);
}

/* Every epoch of every source takes each of its samples once, in a new order;
 * draws of a source count up without a gap. */
static void test_epochs(void **state)
{
    (void)state;
    static const double weights[] = {2, 1};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    make_sets(ctx, dir);
    loong_blend_t *blend = make_blend(ctx, dir, weights, 5);
    loong_blend_source_info_t info[2];
    loong_blend_get_source(blend, 0, &info[0]);
    loong_blend_get_source(blend, 1, &info[1]);
    int64_t draws[2] = {0, 0};
    int64_t moved = 0;
    int8_t *epoch_of[2];
    for (int s = 0; s < 2; s++) {
        assert_int_equal(info[s].info.samples, (info[s].info.tokens - 1) / 16);
        epoch_of[s] = calloc((size_t)info[s].info.samples, 1);
    }
    for (int64_t g = 0; draws[0] < 4 * info[0].info.samples; g++) {
        loong_sample_t x;
        assert_ok(ctx, loong_blend_locate(blend, g, &x));
        assert_int_equal(loong_blend_count(blend, x.source, g), x.draw);
        assert_int_equal(x.draw, draws[x.source]++);
        assert_int_equal(x.epoch, x.draw / info[x.source].info.samples);
        assert_true(x.number * 16 + 16 < info[x.source].info.tokens);
        assert_int_equal(epoch_of[x.source][x.number]++, x.epoch);
        moved += x.number != x.draw % info[x.source].info.samples;
    }
    assert_true(moved > draws[0]);
    free(epoch_of[0]);
    free(epoch_of[1]);
    loong_blend_destroy(&blend);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

/* Splits do not overlap and leave nothing out; bounds by max_epochs are kept
 * to the sample. */
static void test_split_and_bound(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    loong_blend_t *train = NULL;
    loong_blend_t *valid = NULL;
    loong_blend_source_info_t a;
    loong_blend_source_info_t b;
    loong_blend_info_t info;
    loong_dataset_info_t data;
    make_sets(ctx, dir);
    loong_blend_source_t source = {
        scratch_path(dir, "a", path), 1, 0, 0.9, 2, NULL, NULL, NULL, 0};
    loong_blend_params_t params = {.name = "train",
                                   .sources = &source,
                                   .num_sources = 1,
                                   .seq_length = 16,
                                   .seed = 1,
                                   .shuffle = true};
    assert_ok(ctx, loong_blend_create(ctx, &params, &train));
    source.split_begin = 0.9;
    source.split_end = 1;
    params.name = "valid";
    params.shuffle = false;
    assert_ok(ctx, loong_blend_create(ctx, &params, &valid));
    loong_blend_get_source(train, 0, &a);
    loong_blend_get_source(valid, 0, &b);
    loong_dataset_get_info(a.info.dataset, &data);
    assert_int_equal(a.info.first_token, 0);
    assert_int_equal(a.info.documents, 180);
    assert_int_equal(b.info.first_document, 180);
    assert_int_equal(b.info.first_token, a.info.tokens);
    assert_int_equal(a.info.tokens + b.info.tokens, data.tokens);
    loong_blend_get_info(train, &info);
    assert_int_equal(info.epoch_samples, a.info.samples);
    assert_int_equal(info.max_samples, 2 * a.info.samples);
    loong_sample_t x;
    assert_ok(ctx, loong_blend_locate(train, info.max_samples - 1, &x));
    assert_int_equal(x.epoch, 1);
    assert_fails(ctx, loong_blend_locate(train, info.max_samples, &x),
                 LOONG_ERR_ARG, "max_epochs allows");
    assert_ok(ctx, loong_blend_require(train, info.max_samples));
    assert_fails(ctx, loong_blend_require(train, info.max_samples + 1),
                 LOONG_ERR_CONFIG, "raise max_epochs");
    for (int64_t g = 0; g < b.info.samples; g++) { /* file order */
        assert_ok(ctx, loong_blend_locate(valid, g, &x));
        assert_int_equal(x.number, g);
    }
    loong_blend_destroy(&train);
    loong_blend_destroy(&valid);
    scratch_remove(ctx, dir);
    test_context_end(&ctx);
}

static void refuse(loong_context_t *ctx, const loong_blend_source_t *sources,
                   int64_t count, int64_t seq_length, const char *message)
{
    loong_blend_params_t params = {.name = "train",
                                   .sources = sources,
                                   .num_sources = count,
                                   .seq_length = seq_length,
                                   .seed = 1,
                                   .shuffle = true};
    loong_blend_t *blend = NULL;
    loong_context_clear_error(ctx);
    assert_int_not_equal(loong_blend_create(ctx, &params, &blend), LOONG_OK);
    if (strstr(loong_context_error(ctx), message) == NULL) {
        fail_msg("'%s' is not in: %s", message, loong_context_error(ctx));
    }
}

static void test_refusals(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char a[SCRATCH_SIZE];
    char e[SCRATCH_SIZE];
    make_sets(ctx, dir);
    known_write(ctx, scratch_path(dir, "empty", e), 0, LOONG_U16, false);
    scratch_path(dir, "a", a);
    loong_blend_source_t s[] = {{a, 1, 0, 0, 0, NULL, NULL, NULL, 0},
                                {a, 1, 0, 0, 0, NULL, NULL, NULL, 0}};
    refuse(ctx, s, 0, 16, "0 sources");
    refuse(ctx, s, 2, 0, "seq_length 0");
    refuse(ctx, s, 2, 100000, "one sample of seq_length 100000 takes 100001");
    s[1].weight = 0;
    refuse(ctx, s, 2, 16, "1 of 2 sources have no weight");
    s[1].weight = -1;
    refuse(ctx, s, 2, 16, "weight -1");
    s[1].weight = NAN;
    refuse(ctx, s, 2, 16, "weight nan");
    s[1].weight = 1;
    s[1].split_begin = 0.5;
    s[1].split_end = 0.4;
    refuse(ctx, s, 2, 16, "split 0.5 to 0.4");
    s[1].split_end = 1.5;
    refuse(ctx, s, 2, 16, "split 0.5 to 1.5");
    s[1].split_begin = 0;
    s[1].split_end = 0.001;
    refuse(ctx, s, 2, 16, "has 0 tokens in 0 of 200 documents");
    s[1].split_end = 1;
    s[1].max_epochs = -1;
    refuse(ctx, s, 2, 16, "max_epochs -1");
    s[1].max_epochs = 0;
    s[1].path = e;
    refuse(ctx, s, 2, 16, "is empty: 0 documents, 0 tokens");
    s[1].path = "";
    refuse(ctx, s, 2, 16, "without a path");
    scratch_remove(ctx, dir);
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

static void test_fingerprint(void **state)
{
    (void)state;
    static const double weights[] = {3, 1};
    static const double others[] = {1, 1};
    loong_context_t *ctx = test_context();
    char dir[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    char moved[SCRATCH_SIZE];
    char *text = NULL;
    size_t length = 0;
    make_sets(ctx, dir);
    loong_blend_t *first = make_blend(ctx, dir, weights, 5);
    loong_blend_t *same = make_blend(ctx, dir, weights, 5);
    loong_blend_t *seed = make_blend(ctx, dir, weights, 6);
    loong_blend_t *share = make_blend(ctx, dir, others, 5);
    const char *was = loong_blend_describe(first);
    assert_true(loong_blend_fingerprint(first) ==
                loong_blend_fingerprint(same));
    assert_ok(ctx, loong_blend_compare(same, was));
    assert_true(loong_blend_fingerprint(first) !=
                loong_blend_fingerprint(seed));
    assert_fails(ctx, loong_blend_compare(seed, was), LOONG_ERR_MISMATCH,
                 "  seed: was 5, now 6");
    assert_fails(ctx, loong_blend_compare(share, was), LOONG_ERR_MISMATCH,
                 "  source 1 share: was 1/4, now 1/2");
    assert_fails(ctx, loong_blend_compare(share, "seed: 5\nother: 1\n"),
                 LOONG_ERR_MISMATCH, "  other: was 1, now absent");
    loong_blend_destroy(&same);
    /* One changed token, same sizes. */
    scratch_path(dir, "b.bin", path);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    text[length / 2] ^= 1;
    assert_ok(ctx, loongi_file_write(ctx, path, text, length));
    same = make_blend(ctx, dir, weights, 5);
    assert_fails(ctx, loong_blend_compare(same, was), LOONG_ERR_MISMATCH,
                 "  source 1 content: was ");
    loong_blend_destroy(&same);
    text[length / 2] ^= 1;
    assert_ok(ctx, loongi_file_write(ctx, path, text, length));
    /* Moved data is the same data. */
    scratch_make(moved);
    assert_int_equal(rename(dir, moved), 0);
    same = make_blend(ctx, moved, weights, 5);
    assert_ok(ctx, loong_blend_compare(same, was));
    loong_blend_destroy(&same);
    loong_blend_destroy(&first);
    loong_blend_destroy(&seed);
    loong_blend_destroy(&share);
    loongi_free(ctx, text);
    scratch_remove(ctx, moved);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation_is_bijective),
        cmocka_unit_test(test_permutation_scatters),
        cmocka_unit_test(test_proportions),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_split_and_bound),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
