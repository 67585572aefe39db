/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of texts with pictures, against arrays written by hand, and pictures of
 * chosen samples in slots, against the image processor. */
#include "image_text_fixture.h"
#include "loong/image.h"
#include "loong/ops.h"

enum { T = 12, NONE = LOONG_IGNORE_LABEL };

typedef struct fixture {
    loong_context_t *ctx;
    const loong_source_class_t *source_class;
    void *source;
    loong_items_t items;
    void *row[2];
    int picture; /* that is wanted of a sample; 0: as the processor says */
} fixture_t;

static void begin(fixture_t *f)
{
    memset(f, 0, sizeof(*f));
    f->ctx = begin_files();
    f->items.ctx = f->ctx;
    put_text(f->ctx, "r.jsonl",
             "{\"images\": [\"p/turn.jpg\", \"rgb.png\"], "
             "\"text\": \"a<image>bb<image>\"}\n"
             "{\"image\": \"rgb.png\", \"prompt\": \"<image>ab\", "
             "\"completion\": \"c\"}\n"
             "{\"text\": \"cab\"}\n");
    const loong_source_params_t params = {.data = "train",
                                          .path = in_dir("r.jsonl"),
                                          .tokenizer = in_dir("tokenizer.json"),
                                          .image_token = "<image>"};
    assert_ok(f->ctx,
              loong_find_source(f->ctx, "image_text", &f->source_class));
    assert_ok(f->ctx, f->source_class->open(f->ctx, &params, &f->source));
}

static void end(fixture_t *f)
{
    f->source_class->close(f->source);
    loong_items_free(&f->items);
    for (int j = 0; j < 2; j++) {
        loongi_free(f->ctx, f->row[j]);
    }
    test_context_end(&f->ctx);
}

/* Keeps sample i as row j; picture: which, from 1; 0: as the processor says. */
static loong_status_t keep(fixture_t *f, const loong_processor_t *processor,
                           const void *config, int64_t i, int j, double *sums)
{
    assert_ok(f->ctx, processor->begin(config, &f->items));
    f->items.picture = f->picture > 0 ? f->picture : f->items.picture;
    assert_ok(f->ctx, f->source_class->read(f->source, i, &f->items));
    if (f->row[j] == NULL) {
        assert_ok(f->ctx,
                  loongi_alloc(f->ctx, processor->row_size(config, &f->items),
                               "row", &f->row[j]));
    }
    return processor->keep(config, i, &f->items, f->row[j], sums);
}

static loong_picture_rows_t three_rows(const void *config,
                                       const loong_item_t *picture)
{
    (void)config;
    (void)picture;
    return (loong_picture_rows_t){
        .encoder = 3, .sent = 3, .text = 3, .columns = 2};
}

static loong_token_params_t token_params(int64_t seq_length)
{
    return (loong_token_params_t){.vocab_size = VOCAB,
                                  .seq_length = seq_length,
                                  .rows = 1,
                                  .context_parallel_size = 1,
                                  .pictures = {NULL, three_rows, false}};
}

static void check_field(fixture_t *f, const loong_token_params_t *p,
                        const char *name, int64_t count, const int32_t *wanted)
{
    int32_t got[6 * T];
    loong_field_t field = {name, LOONG_I32, count, got, NULL};
    assert_ok(f->ctx, loong_token_processor.bind(f->ctx, p, &field));
    assert_ok(f->ctx, loong_token_processor.fill(f->ctx, p, f->row, &field));
    for (int64_t i = 0; i < count; i++) {
        if (got[i] != wanted[i]) {
            fail_msg("%s[%d] is %d, not %d", name, (int)i, got[i], wanted[i]);
        }
    }
}

static void test_rows(void **state)
{
    (void)state;
    fixture_t f;
    double sums[LOONG_MAX_NORMALISERS] = {0};
    loong_token_params_t p = token_params(T);
    begin(&f);
    p.rows = 2;
    p.reset_attention_mask = p.reset_position_ids = true;
    for (int j = 0; j < 2; j++) {
        assert_ok(f.ctx, keep(&f, &loong_token_processor, &p, j, j, sums));
        assert_null(f.items.item[1].pixels);
    }
    assert_true(sums[0] == 4.0 + 2.0 && sums[1] == 2.0 * T);
    check_field(&f, &p, "tokens", 2 * T,
                (int32_t[]){BOS, A,     IMAGE, IMAGE, IMAGE, B,
                            B,   IMAGE, IMAGE, IMAGE, EOS,   0,
                            BOS, IMAGE, IMAGE, IMAGE, A,     B,
                            C,   EOS,   0,     0,     0,     0});
    check_field(&f, &p, "is_feature", 2 * T,
                (int32_t[]){0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0,
                            0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0});
    check_field(&f, &p, "labels", 2 * T,
                (int32_t[]){A,    NONE, NONE, NONE, B,    B,    NONE, NONE,
                            NONE, EOS,  NONE, NONE, NONE, NONE, NONE, NONE,
                            NONE, C,    EOS,  NONE, NONE, NONE, NONE, NONE});
    check_field(&f, &p, "positions", 2 * T,
                (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0,
                            0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2,  3});
    check_field(&f, &p, "axis_positions", 6 * T, /* of three rows, 2 in one */
                (int32_t[]){0, 1, 2, 2, 2, 4, 5, 6, 6, 6, 8, 0,
                            0, 1, 1, 1, 3, 4, 5, 6, 0, 1, 2, 3,
                            0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8, 0,
                            0, 1, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3,
                            0, 1, 2, 3, 2, 4, 5, 6, 7, 6, 8, 0,
                            0, 1, 2, 1, 3, 4, 5, 6, 0, 1, 2, 3});
    check_field(&f, &p, "cu_seqlens", 6, (int32_t[]){0, 11, 12, 20, 24, 24});
    p.reset_attention_mask = p.reset_position_ids = false;
    check_field(&f, &p, "cu_seqlens", 4, (int32_t[]){0, 12, 24, 24});
    p.rows = 1;
    p.context_parallel_size = 2;
    check_field(&f, &p, "is_feature", T / 2, (int32_t[]){0, 0, 1, 1, 0, 0});
    p.context_parallel_rank = 1;
    check_field(&f, &p, "is_feature", T / 2, (int32_t[]){1, 1, 0, 0, 1, 1});
    end(&f);
}

/* Texts that fit, just and not, and those of models without pictures. */
static void test_lengths(void **state)
{
    (void)state;
    fixture_t f;
    double sums[LOONG_MAX_NORMALISERS] = {0};
    loong_token_params_t p = token_params(11);
    begin(&f);
    assert_ok(f.ctx, keep(&f, &loong_token_processor, &p, 0, 0, sums));
    loongi_free(f.ctx, f.row[0]);
    f.row[0] = NULL;
    p = token_params(10);
    assert_fails(f.ctx, keep(&f, &loong_token_processor, &p, 0, 0, sums),
                 LOONG_ERR_CONFIG,
                 "r.jsonl:1: takes 11 rows, of which 6 are its 2 pictures; "
                 "data.seq_length allows 10");
    p.pictures.rows = NULL;
    assert_fails(f.ctx, keep(&f, &loong_token_processor, &p, 0, 0, sums),
                 LOONG_ERR_CONFIG, "the model reads texts of up to 11 token");
    p = token_params(3);
    p.pictures.rows = NULL;
    assert_fails(f.ctx, keep(&f, &loong_token_processor, &p, 2, 0, sums),
                 LOONG_ERR_CONFIG, "the model reads texts of up to 4 token");
    for (int n = 0; n < 2; n++) { /* T + 1 ids: today's rows */
        p = token_params(4);
        p.pictures.rows = n > 0 ? three_rows : NULL;
        assert_ok(f.ctx, keep(&f, &loong_token_processor, &p, 2, 0, sums));
        check_field(&f, &p, "labels", 4, (int32_t[]){C, A, B, EOS});
        check_field(&f, &p, "is_feature", 4, (int32_t[]){0, 0, 0, 0});
    }
    p = token_params(3);
    assert_fails(f.ctx, keep(&f, &loong_token_processor, &p, 2, 0, sums),
                 LOONG_ERR_CONFIG,
                 "r.jsonl:3: takes 5 rows, of which 0 are its 0 pictures");
    end(&f);
}

enum { SIDE = 32, PATCH = 16, PIXELS = 3 * SIDE * SIDE };

static void expect_patches(fixture_t *f, const loong_image_processor_t *with,
                           const char *name, const float *got)
{
    float wanted[PIXELS];
    char *bytes = NULL;
    size_t length = 0;
    loong_image_t image;
    assert_ok(f->ctx, loongi_file_read(f->ctx, in_dir(name), &bytes, &length));
    assert_ok(f->ctx, loong_image_decode(f->ctx, name, (uint8_t *)bytes, length,
                                         NULL, &image));
    assert_ok(f->ctx, loong_image_process(f->ctx, with, &image,
                                          &(loong_patch_cut_t){.patch = PATCH},
                                          wanted));
    assert_memory_equal(got, wanted, sizeof(wanted));
    loong_image_free(f->ctx, &image);
    loongi_free(f->ctx, bytes);
}

/* The second picture of sample 0 and the one of sample 1 stand in slots. */
static void test_slots(void **state)
{
    (void)state;
    fixture_t f;
    loong_image_processor_t *with = NULL;
    double sums[LOONG_MAX_NORMALISERS] = {0};
    static float patches[3 * PIXELS];
    int32_t labels[3];
    begin(&f);
    assert_ok(f.ctx,
              loong_image_processor_create_default(f.ctx, "CLIP", SIDE, &with));
    const loong_patch_params_t p = {.processor = with,
                                    .image_size = SIDE,
                                    .cut = {.patch = PATCH},
                                    .rows = 3 * 4,
                                    .pictures = 3};
    void *rows[3] = {NULL, NULL, NULL};
    assert_ok(f.ctx,
              loongi_alloc(f.ctx, loong_patch_processor.row_size(&p, NULL),
                           "row", &rows[2]));
    assert_ok(f.ctx, loong_patch_processor.keep(&p, -1, NULL, rows[2], sums));
    f.picture = 1;
    assert_ok(f.ctx, keep(&f, &loong_patch_processor, &p, 0, 0, sums));
    assert_null(f.items.item[0].ids);
    f.picture = 1;
    assert_ok(f.ctx, keep(&f, &loong_patch_processor, &p, 1, 1, sums));
    rows[0] = f.row[0];
    rows[1] = f.row[1];
    loong_field_t field = {"patches", LOONG_F32, 3 * PIXELS, patches, NULL};
    assert_ok(f.ctx, loong_patch_processor.fill(f.ctx, &p, rows, &field));
    expect_patches(&f, with, "p/turn.jpg", patches);
    expect_patches(&f, with, "rgb.png", patches + PIXELS);
    for (int i = 2 * PIXELS; i < 3 * PIXELS; i++) {
        assert_true(patches[i] == 0.0f);
    }
    field = (loong_field_t){"labels", LOONG_I32, 3, labels, NULL};
    assert_ok(f.ctx, loong_patch_processor.fill(f.ctx, &p, rows, &field));
    assert_true(labels[0] == NONE && labels[1] == NONE && labels[2] == NONE);
    assert_true(sums[0] == 0.0);
    f.picture = 2;
    assert_ok(f.ctx, keep(&f, &loong_patch_processor, &p, 0, 0, sums));
    assert_ok(f.ctx, loong_patch_processor.fill(
                         f.ctx, &p, rows,
                         &(loong_field_t){"patches", LOONG_F32, 3 * PIXELS,
                                          patches, NULL}));
    expect_patches(&f, with, "rgb.png", patches);
    f.items.picture = 0; /* both: which one is not said */
    assert_ok(f.ctx, f.source_class->read(f.source, 0, &f.items));
    assert_fails(f.ctx,
                 loong_patch_processor.keep(&p, 0, &f.items, f.row[0], sums),
                 LOONG_ERR_CONFIG, "the model reads pictures with their");
    loong_image_processor_destroy(&with);
    loongi_free(f.ctx, rows[2]);
    end(&f);
}

/* Three moments of two rows beside each other, a second and a half apart. */
static loong_picture_rows_t moments(const void *config,
                                    const loong_item_t *picture)
{
    (void)config;
    assert_int_equal(picture->frames, 6);
    return (loong_picture_rows_t){.grids = 3,
                                  .encoder = 6,
                                  .sent = 6,
                                  .text = 6,
                                  .columns = 2,
                                  .moments = 3,
                                  .step = 1.5F};
}

/* A text of ids[count] with a video that the token at 1 stands for, and others
 * behind it. */
static void keep_video(fixture_t *f, const loong_token_params_t *p,
                       int32_t *ids, int64_t count, const int32_t *part_at)
{
    double sums[LOONG_MAX_NORMALISERS] = {0};
    uint8_t weight[T], starts[T] = {1};
    memset(weight, 1, sizeof(weight));
    assert_ok(f->ctx, loong_token_processor.begin(p, &f->items));
    f->items.count = 2;
    f->items.item[0] = (loong_item_t){.type = LOONG_ITEM_TOKENS,
                                      .size = {count},
                                      .ids = ids,
                                      .weight = weight,
                                      .starts = starts};
    f->items.item[1] = (loong_item_t){.type = LOONG_ITEM_IMAGE,
                                      .size = {16, 8},
                                      .at = 1,
                                      .frames = 6,
                                      .parts = part_at != NULL ? 3 : 1,
                                      .part_at = part_at};
    if (f->row[0] == NULL) {
        assert_ok(f->ctx,
                  loongi_alloc(f->ctx, loong_token_processor.row_size(p, NULL),
                               "row", &f->row[0]));
    }
    assert_ok(f->ctx, loong_token_processor.keep(p, 0, &f->items, f->row[0],
                                                 sums));
}

/* Whole, its rows have the time of their moment, and what follows goes on
 * behind its rows and columns; in parts, each begins where it stands. */
static void test_videos(void **state)
{
    (void)state;
    fixture_t f;
    loong_token_params_t p = token_params(T);
    int32_t whole[] = {A, IMAGE, B, C};
    int32_t parts[] = {A, IMAGE, B, IMAGE, IMAGE, C};
    begin(&f);
    p.pictures.rows = moments;
    keep_video(&f, &p, whole, 4, NULL);
    check_field(&f, &p, "tokens", T,
                (int32_t[]){A, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, B, C,
                            0, 0, 0});
    check_field(&f, &p, "axis_positions", 3 * T,
                (int32_t[]){0, 1, 1, 2, 2, 4, 4, 3, 4, 5, 6, 7,
                            0, 1, 1, 1, 1, 1, 1, 3, 4, 5, 6, 7,
                            0, 1, 2, 1, 2, 1, 2, 3, 4, 5, 6, 7});
    keep_video(&f, &p, parts, 6, (const int32_t[]){0, 2, 3});
    check_field(&f, &p, "tokens", T,
                (int32_t[]){A, IMAGE, IMAGE, B, IMAGE, IMAGE, IMAGE, IMAGE, C,
                            0, 0, 0});
    check_field(&f, &p, "axis_positions", 3 * T,
                (int32_t[]){0, 1, 1, 3, 4, 4, 6, 6, 8, 9, 10, 11,
                            0, 1, 1, 3, 4, 4, 6, 6, 8, 9, 10, 11,
                            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    check_field(&f, &p, "is_feature", T,
                (int32_t[]){0, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0});
    check_field(&f, &p, "labels", T,
                (int32_t[]){NONE, NONE, B, NONE, NONE, NONE, NONE, C, NONE,
                            NONE, NONE, NONE});
    end(&f);
}

/* Rows of a text that transformers' processor of LLaVA-OneVision gives pictures
 * of tiles of 384 pixels, which have 27 patches a side. */
static const struct {
    int64_t width, height, rows;
} packed[] = {
    {1, 1, 1485},
    {384, 384, 1485},
    {385, 384, 1512},
    {1000, 10, 811},
    {7, 3000, 1053},
    {2304, 2304, 7371},
    {1920, 1080, 7269},
    {640, 480, 2929},
    {5000, 4000, 7281},
    {1024, 768, 4725},
    {975, 2428, 7333},
    {2230, 535, 6923},
    {1516, 2474, 7321},
    {1942, 2563, 7261},
    {2380, 269, 3826},
    {2481, 54, 1218},
    {1922, 1063, 7269},
    {2257, 960, 7229},
    {786, 2938, 8019},
    {1927, 2216, 7341},
    {2252, 1952, 7329},
    {1627, 2618, 7321},
    {617, 950, 5022},
    {2601, 622, 6923},
    {2143, 1598, 7309},
    {63, 2751, 1377},
    {263, 653, 1917},
    {2422, 176, 2522},
    {1234, 128, 1928},
    {1104, 1937, 7363},
    {2437, 2945, 7241},
    {1588, 2926, 7269},
    {1749, 1618, 7274},
    {2983, 2364, 7281},
    {1822, 550, 6169},
    {1498, 400, 3781},
    {147, 557, 1593},
    {2028, 889, 7248},
    {1057, 2753, 7308},
    {1787, 2567, 7257}};

static void test_packing(void **state)
{
    loong_context_t *ctx = test_context();
    loong_patch_params_t p = {
        .image_size = 384, .cut = {.patch = 14}, .packed_tiles = 9};
    loong_image_processor_t *processor = NULL;
    (void)state;
    assert_ok(ctx, loong_image_processor_create_default(ctx, "LlavaOnevision",
                                                        384, &processor));
    p.processor = processor;
    p.max_tiles = loong_image_processor_max_tiles(processor);
    assert_int_equal(p.max_tiles, 37);
    for (size_t i = 0; i < LOONG_COUNT_OF(packed); i++) {
        loong_item_t item = {.type = LOONG_ITEM_IMAGE,
                             .size = {packed[i].width, packed[i].height}};
        assert_int_equal(loong_picture_rows(&p, &item).text, packed[i].rows);
        item.several = true;
        assert_int_equal(loong_picture_rows(&p, &item).text, 27 * 27 + 1);
    }
    loong_image_processor_destroy(&processor);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),
        cmocka_unit_test(test_videos),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_slots),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
