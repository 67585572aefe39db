/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sizes pictures get and which tiles they are cut into, against
 * transformers and against OpenGVLab's rule. */
#include "file.h"
#include "loong/image.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

/* Grids of tiles as transformers' get_optimal_tiled_canvas finds them. */
static void test_tiles(void **state)
{
    (void)state;
    static const struct {
        int64_t width, height, columns, rows, count;
    } cases[] = {{48, 48, 1, 1, 1},    {200, 200, 3, 3, 10}, {70, 70, 2, 2, 5},
                 {100, 50, 2, 1, 3},   {300, 90, 6, 2, 13},
                 {90, 300, 2, 6, 13},
                 {1000, 10, 12, 1, 13}, {320, 210, 3, 2, 7},  {7, 5, 4, 3, 13},
                 {9, 5, 2, 1, 3}};
    static const char text[] =
        "{\"image_processor_type\": \"GotOcr2ImageProcessor\", \"size\": "
        "{\"height\": 48, \"width\": 48}, \"crop_to_patches\": %s, "
        "\"processor_class\": \"%s\"}";
    loong_context_t *ctx = test_context();
    for (int kind = 0; kind < 3; kind++) {
        char json[256];
        loong_image_processor_t *p = NULL;
        snprintf(json, sizeof(json), text, kind == 0 ? "true" : "false",
                 kind == 1 ? "InternVLProcessor" : "GotOcr2Processor");
        assert_ok(ctx, loongi_file_write(ctx, in_dir("p.json"), json,
                                         strlen(json)));
        assert_ok(ctx, loong_image_processor_create(ctx, in_dir("p.json"), &p));
        assert_int_equal(loong_image_processor_max_tiles(p),
                         kind < 2 ? 13 : 1);
        for (size_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
            loong_image_tiles_t found = loong_image_processor_tiles(
                p, cases[i].width, cases[i].height, false);
            bool cut = kind < 2;
            assert_int_equal(found.columns, cut ? cases[i].columns : 1);
            assert_int_equal(found.rows, cut ? cases[i].rows : 1);
            assert_int_equal(found.count, cut ? cases[i].count : 1);
        }
        loong_image_processor_destroy(&p);
    }
    test_context_end(&ctx);
}

/* Those that the publisher's rule finds for config.json of an internvl_chat
 * (tests/golden/internvl_chat.py), with the whole picture and without. */
static void test_published_tiles(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"internvl_chat\", \"force_image_size\": 448,"
        " \"dynamic_image_size\": %s, \"use_thumbnail\": %s,"
        " \"min_dynamic_patch\": %d, \"max_dynamic_patch\": %d,"
        " \"llm_config\": {}, \"ps_version\": \"v2\"}";
    loong_context_t *ctx = test_context();
    FILE *lines = fopen(LOONG_SOURCE_DIR
                        "/tests/fixtures/images/internvl_chat.txt", "r");
    int least = 0, most = 0, n = 0;
    int w, h, columns, rows;
    for (; fscanf(lines, "%d %d %d %d %d %d", &least, &most, &w, &h, &columns,
                  &rows) == 6;
         n++) {
        char json[320];
        loong_image_processor_t *p = NULL;
        bool cuts = n % 7 != 0;
        bool whole = n % 2 == 0;
        snprintf(json, sizeof(json), text, cuts ? "true" : "false",
                 whole ? "true" : "false", least, most);
        assert_ok(ctx, loongi_file_write(ctx, in_dir("p.json"), json,
                                         strlen(json)));
        assert_ok(ctx, loong_image_processor_create(ctx, in_dir("p.json"), &p));
        int tiles = cuts ? columns * rows : 1;
        loong_image_tiles_t found = loong_image_processor_tiles(p, w, h, false);
        if (cuts && (found.columns != columns || found.rows != rows)) {
            fail_msg("%d x %d of %d to %d: %d x %d", w, h, least, most,
                     (int)found.columns, (int)found.rows);
        }
        assert_int_equal(found.count, tiles + (tiles > 1 && whole));
        assert_int_equal(loong_image_processor_max_tiles(p),
                         cuts ? most + whole : 1);
        loong_image_processor_destroy(&p);
    }
    fclose(lines);
    assert_true(n > 150);
    test_context_end(&ctx);
}

/* MiniCPM-V 4.6's slices and sizes, as transformers' class has them. */
static void test_slices(void **state)
{
    (void)state;
    static const struct {
        int64_t width, height, columns, rows, whole[2], slice[2];
    } cases[] = {
        {448, 448, 1, 1, {448, 448}, {0, 0}},
        {449, 448, 2, 1, {448, 448}, {336, 616}},
        {1344, 448, 3, 1, {784, 280}, {448, 448}},
        {448, 1344, 1, 3, {280, 784}, {448, 448}},
        {1000, 1000, 2, 2, {448, 448}, {448, 448}},
        {2000, 700, 4, 2, {784, 280}, {560, 392}},
        {30, 20, 1, 1, {560, 392}, {0, 0}},
        {5000, 40, 1, 1, {4984, 56}, {0, 0}},
        {3000, 2000, 4, 2, {560, 392}, {392, 504}},
        {777, 1234, 2, 3, {336, 560}, {448, 448}},
        {2, 900, 1, 1, {56, 9520}, {0, 0}},
        {1344, 1344, 3, 3, {448, 448}, {448, 448}},
    };
    loong_context_t *ctx = test_context();
    loong_image_processor_t *p = NULL;
    assert_ok(ctx, loong_image_processor_create_default(ctx, "MiniCPMV4_6", 0,
                                                        &p));
    assert_true(loong_image_processor_is_sliced(p));
    assert_int_equal(loong_image_processor_max_tiles(p), 10);
    const loong_patch_params_t params = {
        .processor = p,
        .max_tiles = 10,
        .cut = {.patch = 14, .merge = 4, .frames = 1}};
    for (size_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        const loong_item_t item = {.type = LOONG_ITEM_IMAGE,
                                   .size = {cases[i].width, cases[i].height}};
        loong_image_tiles_t found = loong_image_processor_tiles(
            p, cases[i].width, cases[i].height, true);
        loong_picture_rows_t rows = loong_picture_rows(&params, &item);
        int64_t slices = cases[i].columns * cases[i].rows;
        int64_t parts = slices > 1 ? slices + 1 : 1, at = 0, size[2];
        assert_int_equal(found.columns, cases[i].columns);
        assert_int_equal(found.rows, cases[i].rows);
        assert_int_equal(found.count, parts);
        assert_int_equal(rows.grids, parts);
        loong_image_processor_size(p, cases[i].width, cases[i].height, &size[0],
                                   &size[1]);
        assert_memory_equal(size, cases[i].whole, sizeof(size));
        for (int64_t k = 0; k < parts; k++) {
            const int64_t *of = k == 0 ? cases[i].whole : cases[i].slice;
            int64_t part[2];
            loong_picture_part(&rows, true, parts, k, part);
            assert_int_equal(part[0], at);
            assert_int_equal(part[1], of[0] / 56 * (of[1] / 56));
            at += part[1];
        }
        assert_int_equal(rows.text, at);
        assert_int_equal(rows.encoder, 16 * at);
    }
    loong_image_processor_destroy(&p);
    test_context_end(&ctx);
}

/* An encoder takes what the image processor makes, before a picture is read. */
static void test_agreement(void **state)
{
    (void)state;
    static const struct {
        const char *class_name;
        int64_t made, side; /* pixels of a processor, of the model; 0: any */
        loong_patch_cut_t cut;
        const char *text; /* NULL: they agree */
    } cases[] = {
        {"CLIP", 56, 0, {.patch = 14, .merge = 2, .frames = 2}, NULL},
        {"CLIP",
         56,
         0,
         {.patch = 16, .merge = 2, .frames = 2},
         "becomes 56 x 56 pixels, the model takes multiples of 32"},
        {"Siglip",
         56,
         64,
         {.patch = 16},
         "becomes 56 x 56 pixels, the model takes 64 x 64"},
        {"GotOcr2", 48, 0, {.patch = 16, .merge = 2}, "multiples of 32"},
        {"Qwen2VL",
         0,
         56,
         {.patch = 14, .merge = 2, .frames = 2},
         "a picture of 640 x 320 pixels: becomes 644 x 308 pixels, the model "
         "takes 56 x 56"},
        {"Qwen2VL",
         0,
         0,
         {.patch = 16, .merge = 2, .frames = 2},
         "the image processor has patch_size 14"},
        {"Qwen3VL", 0, 0, {.patch = 16, .merge = 2, .frames = 2}, NULL},
        {"LlavaOnevision1_5",
         0,
         0,
         {.patch = 14, .merge = 2, .frames = 1},
         NULL},
    };
    loong_context_t *ctx = test_context();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        loong_image_processor_t *processor = NULL;
        assert_ok(ctx,
                  loong_image_processor_create_default(
                      ctx, cases[i].class_name, cases[i].made, &processor));
        const loong_patch_params_t p = {.processor = processor,
                                        .image_size = cases[i].side,
                                        .cut = cases[i].cut,
                                        .rows = 1 << 16,
                                        .pictures = 1};
        if (cases[i].text != NULL) {
            assert_fails(ctx, loong_patch_check(ctx, &p, "own"),
                         LOONG_ERR_CONFIG, cases[i].text);
        } else {
            assert_ok(ctx, loong_patch_check(ctx, &p, "own"));
        }
        loong_image_processor_destroy(&processor);
    }
    test_context_end(&ctx);
}

/* As CLIP's were called before, and bounds as Qwen2-VL is published with. */
static void test_sizes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_image_processor_t *processor = NULL;
    static const struct {
        const char *json;
        int64_t of[2], size[2];
    } read[] = {{"{\"feature_extractor_type\": \"CLIPFeatureExtractor\", "
                 "\"size\": 20, \"do_center_crop\": false, "
                 "\"do_pad\": null, \"do_reduce_labels\": false}",
                 {50, 31}, {32, 20}},
                {"{\"image_processor_type\": \"Qwen2VLImageProcessor\", "
                 "\"min_pixels\": 3136, \"max_pixels\": 12845056}",
                 {2800, 1400}, {2800, 1400}}};
    for (int i = 0; i < LOONG_COUNT_OF(read); i++) {
        int64_t w, h;
        assert_ok(ctx, loongi_file_write(ctx, in_dir("p.json"), read[i].json,
                                         strlen(read[i].json)));
        assert_ok(ctx, loong_image_processor_create(ctx, in_dir("p.json"),
                                                    &processor));
        loong_image_processor_size(processor, read[i].of[0], read[i].of[1], &w,
                                   &h);
        assert_true(w == read[i].size[0] && h == read[i].size[1]);
        loong_image_processor_destroy(&processor);
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_published_tiles),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_agreement),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
