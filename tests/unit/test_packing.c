/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of samples: as many as a plain best fit makes, full to the figures that
 * are documented, each sample once in each epoch; and what is cut of a text
 * that is longer than a row. */
#include <math.h>
#include <string.h>

#include "loong/blend.h"
#include "loong/ops.h"
#include "loong/processor.h"
#include "packing.h"
#include "test.h"
#include "truncation.h"

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Lengths of conversations: log-normal, median 350, sigma 1, and one in twenty
 * eight times as long; at least 8, at most the room. */
static int32_t draw_length(uint32_t *state, int32_t room)
{
    double u = ((double)draw(state) + 1.0) / (double)(1 << 24);
    double v = (double)draw(state) / (double)(1 << 24);
    double n = sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
    double tail = draw(state) % 20 == 0 ? 8.0 : 1.0;
    return (int32_t)fmin(fmax(350.0 * exp(n) * tail, 8.0), (double)room);
}

static loong_pack_table_t make(loong_context_t *ctx, int64_t samples,
                               int32_t room, loong_packing_t packing,
                               uint32_t seed)
{
    loong_pack_table_t table;
    assert_ok(ctx, loongi_pack_begin(ctx, samples, room, &table));
    for (int64_t i = 0; i < samples; i++) {
        table.length[i] = draw_length(&seed, room);
    }
    assert_ok(ctx, loongi_pack_make(&table, packing, seed));
    return table;
}

/* Each sample is in one row, and no row is too long. */
static void check_epoch(const loong_pack_table_t *t, int64_t epoch)
{
    uint8_t *seen = calloc((size_t)t->samples + 1, 1);
    int64_t all = 0;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t ids = 0;
        assert_true(loongi_pack_count(t, r) <= t->most);
        for (int64_t i = 0; i < loongi_pack_count(t, r); i++) {
            int64_t s = loongi_pack_sample(t, r, i, epoch);
            assert_true(s >= 0 && s < t->samples && seen[s] == 0);
            seen[s] = 1;
            ids += t->length[s];
            all++;
        }
        assert_true(ids <= t->room);
    }
    assert_true(all == t->samples);
    free(seen);
}

/* The rows that a plain search makes of the same samples. */
static int64_t plain_best_fit(const int32_t *lengths, int64_t samples,
                              int32_t room)
{
    int32_t *left = calloc((size_t)samples + 1, sizeof(*left));
    int64_t rows = 0;
    for (int64_t i = 0; i < samples; i++) {
        int64_t best = -1;
        for (int64_t r = 0; r < rows; r++) {
            bool fits = left[r] >= lengths[i];
            best = fits && (best < 0 || left[r] < left[best]) ? r : best;
        }
        if (best < 0) {
            best = rows++;
            left[best] = room;
        }
        left[best] -= lengths[i];
    }
    free(left);
    return rows;
}

static int longest_first(const void *a, const void *b)
{
    return *(const int32_t *)b - *(const int32_t *)a;
}

static void rows_are_those_of_a_plain_search(void **state)
{
    static const int32_t rooms[] = {9, 64, 65, 1000, 4096, 4097, 300000};
    loong_context_t *ctx = test_context();
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(rooms); i++) {
        loong_pack_table_t t =
            make(ctx, 700, rooms[i], LOONG_PACK_BEST_FIT, 5u + (uint32_t)i);
        qsort(t.length, 700, sizeof(*t.length), longest_first);
        int64_t wanted = plain_best_fit(t.length, 700, rooms[i]);
        assert_int_equal(t.rows, wanted);
        loongi_pack_destroy(&t);
    }
    test_context_end(&ctx);
}

static void each_sample_once_an_epoch(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 63, 1000};
    loong_context_t *ctx = test_context();
    (void)state;
    for (int packing = LOONG_PACK_NONE; packing <= LOONG_PACK_BEST_FIT;
         packing++) {
        for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
            loong_pack_table_t t =
                make(ctx, sizes[i], 2049, (loong_packing_t)packing, 3);
            loong_pack_table_t again =
                make(ctx, sizes[i], 2049, (loong_packing_t)packing, 3);
            for (int64_t epoch = 0; epoch < 4; epoch++) {
                check_epoch(&t, epoch);
            }
            assert_true(t.rows == again.rows);
            for (int64_t r = 0; r < t.rows; r++) { /* it is a function */
                assert_int_equal(loongi_pack_sample(&t, r, 0, 7),
                                 loongi_pack_sample(&again, r, 0, 7));
            }
            loongi_pack_destroy(&t);
            loongi_pack_destroy(&again);
        }
    }
    test_context_end(&ctx);
}

/* Samples of no ids take no room, and all are there. */
static void empty_samples_fit_anywhere(void **state)
{
    loong_context_t *ctx = test_context();
    loong_pack_table_t t;
    (void)state;
    assert_ok(ctx, loongi_pack_begin(ctx, 5, 8, &t));
    memcpy(t.length, (int32_t[]){8, 0, 8, 0, 0}, 5 * sizeof(int32_t));
    assert_ok(ctx, loongi_pack_make(&t, LOONG_PACK_BEST_FIT, 1));
    assert_int_equal(t.rows, 2);
    check_epoch(&t, 0);
    loongi_pack_destroy(&t);
    test_context_end(&ctx);
}

/* Who shares a row with whom changes with the epoch. */
static void epochs_mix_samples(void **state)
{
    loong_context_t *ctx = test_context();
    (void)state;
    loong_pack_table_t t = make(ctx, 20000, 2049, LOONG_PACK_BEST_FIT, 9);
    int64_t moved = 0;
    for (int64_t r = 0; r < t.rows; r++) {
        moved +=
            loongi_pack_sample(&t, r, 0, 0) != loongi_pack_sample(&t, r, 0, 1);
    }
    print_message("the first samples of %lld of %lld rows are others in the "
                  "second epoch\n",
                  (long long)moved, (long long)t.rows);
    assert_true(moved > t.rows / 2);
    loongi_pack_destroy(&t);
    test_context_end(&ctx);
}

/* The figures of docs/performance.md. */
static void a_million_samples(void **state)
{
    static const int32_t rooms[] = {2049, 8193, 32769};
    static const char *const names[] = {"none", "greedy", "best_fit"};
    loong_context_t *ctx = test_context();
    (void)state;
    for (int packing = 0; packing < 3; packing++) {
        for (int i = 0; i < LOONG_COUNT_OF(rooms); i++) {
            double begin = loongi_now();
            loong_pack_table_t t =
                make(ctx, 1000000, rooms[i], (loong_packing_t)packing, 17);
            double seconds = loongi_now() - begin;
            double ids = 0.0;
            for (int64_t s = 0; s < t.samples; s++) {
                ids += t.length[s];
            }
            double full = ids / ((double)t.rows * rooms[i]);
            print_message("%-8s rows of %5d: %7lld, %6.2f %% full, %.2f s\n",
                          names[packing], rooms[i], (long long)t.rows,
                          100.0 * full, seconds);
            assert_true(packing == LOONG_PACK_NONE || full >= 0.97);
            assert_true(seconds < 10.0);
            loongi_pack_destroy(&t);
        }
    }
    test_context_end(&ctx);
}

/* ---- what is cut --------------------------------------------------------- */

static void check_cut(const loong_item_t *text, int64_t room,
                      loong_truncation_t truncation, int64_t head, int64_t tail)
{
    loong_cut_t cut = {-1, -1};
    bool fits = loongi_truncate(text, room, truncation, &cut);
    assert_true(fits == (head >= 0));
    if (fits) {
        assert_int_equal(cut.head, head);
        assert_int_equal(cut.tail, tail);
    }
}

/* Turns begin at 3, 6 and 8; 0 to 2 are the system's. */
static void texts_are_cut_as_asked(void **state)
{
    uint8_t starts[10] = {
        LOONG_START_DOCUMENT, 0, 0, LOONG_START_TURN, 0, 0, LOONG_START_TURN, 0,
        LOONG_START_TURN,     0};
    loong_item_t text = {
        .type = LOONG_ITEM_TOKENS, .size = {10, -1}, .starts = starts};
    (void)state;
    for (int k = LOONG_TRUNCATE_REFUSE; k <= LOONG_TRUNCATE_TURN; k++) {
        check_cut(&text, 10, (loong_truncation_t)k, 10, 10);
    }
    check_cut(&text, 9, LOONG_TRUNCATE_REFUSE, -1, -1);
    check_cut(&text, 9, LOONG_TRUNCATE_LEFT, 0, 1);
    check_cut(&text, 4, LOONG_TRUNCATE_LEFT, 0, 6);
    check_cut(&text, 4, LOONG_TRUNCATE_RIGHT, 4, 10);
    check_cut(&text, 9, LOONG_TRUNCATE_TURN, 3, 6);
    check_cut(&text, 7, LOONG_TRUNCATE_TURN, 3, 6);
    check_cut(&text, 6, LOONG_TRUNCATE_TURN, 3, 8);
    check_cut(&text, 5, LOONG_TRUNCATE_TURN, 3, 8);
    check_cut(&text, 4, LOONG_TRUNCATE_TURN, -1, -1); /* one turn stays */
    memset(starts, 0, sizeof(starts));
    check_cut(&text, 9, LOONG_TRUNCATE_TURN, -1, -1); /* there is none */
}

/* ---- rows over a source -------------------------------------------------- */

/* Texts of 5, 12 and 7 ids: 100 s + t; a turn begins at 2 and each 3 behind. */
static const int64_t sizes[] = {5, 12, 7};

static loong_status_t open_texts(loong_context_t *ctx,
                                 const loong_source_params_t *params,
                                 void **source_p)
{
    (void)ctx, (void)params;
    *source_p = (void *)(uintptr_t)sizes;
    return LOONG_OK;
}

static void close_texts(void *source)
{
    (void)source;
}

static void texts_info(const void *source, loong_source_info_t *info)
{
    (void)source;
    *info = (loong_source_info_t){.path = "texts", .samples = 3, .hash = 7};
}

static loong_status_t read_text(const void *source, int64_t s,
                                loong_items_t *items)
{
    size_t n = (size_t)sizes[s];
    LOONG_TRY(loong_items_begin(items, 6 * n + 4 * 64));
    loong_item_t *text = &items->item[items->count++];
    *text = (loong_item_t){.type = LOONG_ITEM_TOKENS,
                           .name = s == 1 ? "texts.jsonl:2" : "another",
                           .size = {(int64_t)n, (int64_t)n - 1},
                           .ids = loong_items_take(items, 4 * n),
                           .weight = loong_items_take(items, n),
                           .starts = loong_items_take(items, n)};
    for (int t = 0; t < (int)n; t++) {
        text->ids[t] = 100 * (int)s + t;
        text->weight[t] = 1;
        text->starts[t] = t % 3 == 2 ? LOONG_START_TURN : 0;
    }
    (void)source;
    return LOONG_OK;
}

static loong_status_t peek_text(const void *source, int64_t s,
                                loong_items_t *items)
{
    return read_text(source, s, items);
}

static const loong_source_class_t texts = {
    .struct_size = sizeof(texts), .name = "texts", .open = open_texts,
    .close = close_texts, .get_info = texts_info, .read = read_text,
    .peek = peek_text, .packs = true};

static loong_status_t open_blend(loong_context_t *ctx, int64_t seq_length,
                                 loong_truncation_t truncation,
                                 loong_blend_t **blend_p)
{
    const loong_blend_source_t source = {.path = "texts",
                                         .class_name = "texts"};
    const loong_blend_params_t params = {
        .name = "train", .sources = &source, .num_sources = 1,
        .seq_length = seq_length, .packing = LOONG_PACK_BEST_FIT,
        .truncation = truncation};
    return loong_blend_create(ctx, &params, blend_p);
}

/* Row `row` has these ids, and samples begin where `begins` has ones. */
static void check_ids(loong_context_t *ctx, const loong_blend_t *blend,
                      int64_t row, int count, const int32_t *ids,
                      const uint8_t *begins)
{
    loong_items_t items = {.ctx = ctx, .vocab_size = 1000};
    loong_blend_source_info_t s;
    loong_blend_get_source(blend, 0, &s);
    assert_ok(ctx, s.source_class->read(s.source, row, &items));
    const loong_item_t *text = &items.item[0];
    assert_int_equal(text->size[0], count);
    assert_memory_equal(text->ids, ids, sizeof(*ids) * (size_t)count);
    for (int t = 0; t < count; t++) {
        assert_int_equal((text->starts[t] & LOONG_START_SAMPLE) != 0,
                         begins[t]);
    }
    loong_items_free(&items);
}

static void rows_hold_what_stays(void **state)
{
    static const struct {
        loong_truncation_t truncation;
        int32_t ids[8]; /* of the row of the longest text, cut */
        int count;
    } cases[] = {
        {LOONG_TRUNCATE_LEFT, {104, 105, 106, 107, 108, 109, 110, 111}, 8},
        {LOONG_TRUNCATE_RIGHT, {100, 101, 102, 103, 104, 105, 106, 107}, 8},
        {LOONG_TRUNCATE_TURN, {100, 101, 108, 109, 110, 111}, 6}};
    loong_context_t *ctx = test_context();
    loong_blend_t *blend = NULL;
    loong_blend_source_info_t s;
    (void)state;
    assert_ok(ctx, loong_register_source(ctx, &texts));
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        assert_ok(ctx, open_blend(ctx, 7, cases[i].truncation, &blend));
        loong_blend_get_source(blend, 0, &s);
        assert_int_equal(s.info.samples, 3);
        assert_int_equal(s.info.pack->cut_ids, 12 - cases[i].count);
        assert_int_equal(s.info.pack->cut_learned,
                         12 - cases[i].count -
                             (cases[i].truncation == LOONG_TRUNCATE_LEFT));
        int64_t row = cases[i].count == 8 ? 0 : 1; /* behind that of 7 */
        check_ids(ctx, blend, row, cases[i].count, cases[i].ids,
                  (const uint8_t[8]){1});
        loong_blend_destroy(&blend);
    }
    assert_ok(ctx, open_blend(ctx, 11, LOONG_TRUNCATE_REFUSE, &blend));
    check_ids(ctx, blend, 0, 12,
              (const int32_t[]){100, 101, 102, 103, 104, 105, 106, 107, 108,
                                109, 110, 111},
              (const uint8_t[12]){1});
    check_ids(ctx, blend, 1, 12,
              (const int32_t[]){200, 201, 202, 203, 204, 205, 206, 0, 1, 2, 3,
                                4},
              (const uint8_t[12]){1, 0, 0, 0, 0, 0, 0, 1});
    loong_blend_destroy(&blend);
    assert_fails(ctx, open_blend(ctx, 10, LOONG_TRUNCATE_REFUSE, &blend),
                 LOONG_ERR_CONFIG,
                 "1 of 3 samples are longer than the 11 ids of a row "
                 "(seq_length 10 + 1), and data.truncation: refuse cuts none; "
                 "allowed are left, right, turn:\n  texts.jsonl:2: 12");
    assert_fails(ctx, open_blend(ctx, 3, LOONG_TRUNCATE_TURN, &blend),
                 LOONG_ERR_CONFIG, "suffice:\n  another: 5");
    test_context_end(&ctx);
}

/* Texts of 7 and 5 ids in a row of 13 places, the last of which is padding. */
static void samples_of_a_row_are_apart(void **state)
{
    enum { PLACES = 13, SEGMENTS = 5 };
    static const int32_t none = LOONG_IGNORE_LABEL;
    const int32_t positions[PLACES] = {0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 0};
    const int32_t labels[PLACES] = {201, 202, 203, 204, 205, 206, none,
                                    1,   2,   3,   4,   none, none};
    const int32_t bounds[SEGMENTS] = {0, 7, 12, 13, 13};
    const loong_processor_t *processor = &loong_token_processor;
    const loong_token_params_t config = {
        .vocab_size = 1000, .seq_length = PLACES, .rows = 1,
        .context_parallel_size = 1,
        .loss_normalization = LOONG_NORMALIZE_SQUARE_ROOT};
    loong_context_t *ctx = test_context();
    loong_items_t items = {.ctx = ctx, .vocab_size = 1000};
    loong_blend_t *blend = NULL;
    loong_blend_source_info_t s;
    int32_t got[3][PLACES];
    double weight[PLACES];
    double sums[LOONG_MAX_NORMALISERS] = {0};
    const loong_field_t fields[] = {
        {"positions", LOONG_I32, PLACES, got[0], NULL},
        {"labels", LOONG_I32, PLACES, got[1], NULL},
        {"cu_seqlens", LOONG_I32, SEGMENTS, got[2], NULL},
        {"loss_weight", LOONG_F64, PLACES, weight, NULL}};
    (void)state;
    assert_ok(ctx, loong_register_source(ctx, &texts));
    assert_ok(ctx, open_blend(ctx, PLACES, LOONG_TRUNCATE_REFUSE, &blend));
    loong_blend_get_source(blend, 0, &s);
    assert_ok(ctx, s.source_class->read(s.source, 1, &items));
    void *row = calloc(1, processor->row_size(&config, NULL));
    assert_ok(ctx, processor->keep(&config, 0, &items, row, sums));
    for (int i = 0; i < LOONG_COUNT_OF(fields); i++) {
        assert_ok(ctx, processor->fill(ctx, &config, &row, &fields[i]));
    }
    assert_memory_equal(got[0], positions, sizeof(positions));
    assert_memory_equal(got[1], labels, sizeof(labels));
    assert_memory_equal(got[2], bounds, sizeof(bounds));
    for (int t = 0; t < PLACES; t++) {
        double wanted = labels[t] == none ? 0.0 : t < 7 ? 1.0 / sqrt(6.0) : 0.5;
        assert_true(fabs(weight[t] - wanted) < 1e-15);
    }
    assert_true(fabs(sums[0] - sqrt(6.0) - 2.0) < 1e-14);
    free(row);
    loong_items_free(&items);
    loong_blend_destroy(&blend);
    test_context_end(&ctx);
}

/* ---- pictures ------------------------------------------------------------ */

static double draw_normal(uint32_t *state)
{
    double u[2];
    for (int i = 0; i < 2; i++) {
        *state = *state * 1664525u + 1013904223u;
        u[i] = ((double)(*state >> 8) + 1.0) / (double)(1 << 24);
    }
    return sqrt(-2.0 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

/* Texts of about 200 ids; of seven in ten one picture, of two in ten several,
 * of about a thousand patches each, four of which become a row of the text. */
static void draw_pictures(loong_pack_table_t *t, uint32_t seed)
{
    for (int64_t i = 0; i < t->samples; i++) {
        int32_t *of = t->sizes[i];
        int64_t kind = i % 10;
        of[LOONG_PACK_IMAGES] =
            kind < 7 ? 1 : kind < 9 ? 2 + (int32_t)(i / 10 % 3) : 0;
        of[LOONG_PACK_PATCHES] = 0;
        for (int k = 0; k < of[LOONG_PACK_IMAGES]; k++) {
            double patches = 1000.0 * exp(0.8 * draw_normal(&seed));
            of[LOONG_PACK_PATCHES] +=
                4 * (int32_t)fmin(fmax(patches / 4.0, 16.0), 1500.0);
        }
        double ids = 200.0 * exp(0.7 * draw_normal(&seed));
        of[LOONG_PACK_IDS] = (int32_t)fmin(fmax(ids, 8.0), 1500.0) +
                                of[LOONG_PACK_PATCHES] / 4;
        t->length[i] = of[LOONG_PACK_IDS];
    }
}

/* Every sample once, no row with more than it has. */
static void check_sizes(const loong_pack_table_t *t)
{
    uint8_t *seen = calloc((size_t)t->samples, 1);
    int64_t all = 0;
    for (int64_t row = 0; row < t->rows; row++) {
        int64_t sum[LOONG_PACK_SIZES] = {0};
        for (int64_t i = 0; i < loongi_pack_count(t, row); i++, all++) {
            int64_t sample = loongi_pack_sample(t, row, i, 3);
            assert_int_equal(seen[sample]++, 0);
            assert_int_equal(loongi_pack_length(t, row, i),
                             t->sizes[sample][LOONG_PACK_IDS]);
            for (int k = 0; k < LOONG_PACK_SIZES; k++) {
                sum[k] += t->sizes[sample][k];
            }
        }
        for (int k = 0; k < LOONG_PACK_SIZES; k++) {
            assert_true(sum[k] <= t->has[k]);
        }
    }
    assert_int_equal(all, t->samples);
    free(seen);
}

static void pictures_share_rows(void **state)
{
    enum { SAMPLES = 20000, ROOM = 16384, PATCHES = 41600 };
    static const int32_t has[] = {ROOM, PATCHES, 63};
    loong_context_t *ctx = test_context();
    loong_pack_table_t t;
    double sum[2] = {0.0, 0.0};
    (void)state;
    assert_ok(ctx, loongi_pack_begin(ctx, SAMPLES, ROOM, &t));
    assert_ok(ctx, loongi_pack_limit(&t, has));
    draw_pictures(&t, 11);
    assert_ok(ctx, loongi_pack_make(&t, LOONG_PACK_GREEDY, 7));
    check_sizes(&t);
    for (int64_t i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < 2; k++) {
            sum[k] += t.sizes[i][k] / ((double)t.rows * has[k]);
        }
    }
    print_message("%d rows, %.2f %% of their places, %.2f %% of their "
                  "patches\n",
                  (int)t.rows, 100.0 * sum[0], 100.0 * sum[1]);
    assert_true(sum[0] >= 0.97 && sum[1] >= 0.97);
    loongi_pack_destroy(&t);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_a_plain_search),
        cmocka_unit_test(each_sample_once_an_epoch),
        cmocka_unit_test(empty_samples_fit_anywhere),
        cmocka_unit_test(epochs_mix_samples),
        cmocka_unit_test(a_million_samples),
        cmocka_unit_test(texts_are_cut_as_asked),
        cmocka_unit_test(rows_hold_what_stays),
        cmocka_unit_test(samples_of_a_row_are_apart),
        cmocka_unit_test(pictures_share_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
