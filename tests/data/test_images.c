/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures against PIL and transformers (tests/oracle/images.py): pixels
 * and sizes by checksum, processors value by value; damage and limits. */
#include <inttypes.h>

#include "crc.h"
#include "file.h"
#include "loong/image.h"
#include "loong/video.h"
#include "patch_place.h"
#include "processor.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/fixtures/images/"

TEST_DIR(dir)

static void load(loong_context_t *ctx, const char *name, char **bytes,
                 size_t *length)
{
    char path[512];
    snprintf(path, sizeof(path), FIXTURES "%s", name);
    assert_ok(ctx, loongi_file_read(ctx, path, bytes, length));
}

/* Into memory of the caller's come the same pixels. */
static void check_room(loong_context_t *ctx, const char *bytes, size_t length,
                       const loong_image_t *image)
{
    size_t size = (size_t)(image->width * image->height) * 3;
    loong_image_decode_params_t params = {0};
    loong_image_t again;
    if (loongi_alloc(ctx, size, "test", &params.to) != LOONG_OK) {
        loong_context_clear_error(ctx); /* test_memory has none */
        return;
    }
    memset(params.to, 77, size);
    assert_ok(ctx, loong_image_decode(ctx, "p", (const uint8_t *)bytes, length,
                                      &params, &again));
    assert_ptr_equal(again.pixels, params.to);
    assert_true(again.width == image->width && again.height == image->height);
    assert_memory_equal(again.pixels, image->pixels, size);
    assert_memory_equal(again.clear, image->clear, sizeof(again.clear));
    loongi_free(ctx, params.to);
}

static loong_status_t decode(loong_context_t *ctx, const char *name,
                             loong_image_info_t *info, loong_image_t *image)
{
    char *bytes = NULL;
    size_t length = 0;
    load(ctx, name, &bytes, &length);
    loong_status_t status = loong_image_get_info(
        ctx, name, (const uint8_t *)bytes, length, info);
    if (status == LOONG_OK) {
        status = loong_image_decode(ctx, name, (const uint8_t *)bytes, length,
                                    NULL, image);
    }
    if (status == LOONG_OK) {
        check_room(ctx, bytes, length, image);
    }
    loongi_free(ctx, bytes);
    return status;
}

static uint32_t crc_of(const loong_image_t *image)
{
    return loongi_crc(LOONG_CRC32, image->pixels,
                      (size_t)(image->width * image->height) * 3);
}

static void expect(const char *line, const loong_image_t *image, int64_t width,
                   int64_t height, uint32_t crc)
{
    if (image->width != width || image->height != height ||
        crc_of(image) != crc) {
        fail_msg("%s: got %d x %d, %u", line, (int)image->width,
                 (int)image->height, crc_of(image));
    }
}

static void check_process(loong_context_t *ctx, const char *config,
                          const char *name, int64_t width, int64_t height)
{
    char path[512], file[160];
    loong_image_processor_t *processor = NULL;
    loong_image_info_t info;
    loong_image_t image;
    char *bytes = NULL;
    float *values = NULL;
    size_t length = 0, count = (size_t)(3 * width * height);
    int64_t w, h;
    snprintf(path, sizeof(path), FIXTURES "%s.json", config);
    assert_ok(ctx, loong_image_processor_create(ctx, path, &processor));
    assert_ok(ctx, decode(ctx, name, &info, &image));
    loong_image_processor_size(processor, image.width, image.height, &w, &h);
    assert_int_equal(w, width);
    assert_int_equal(h, height);
    assert_ok(ctx, loongi_calloc(ctx, count, sizeof(float), "test", &values));
    assert_ok(ctx, loong_image_process(ctx, processor, &image,
                                       &(loong_patch_cut_t){0}, values));
    snprintf(file, sizeof(file), "%s.%s.f32", name, config);
    load(ctx, file, &bytes, &length);
    assert_int_equal(length, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        float wanted;
        memcpy(&wanted, bytes + i * sizeof(float), sizeof(float));
        if (!(fabsf(values[i] - wanted) <= 1e-6f * fmaxf(1, fabsf(wanted)))) {
            fail_msg("%s[%zu]: %g, not %g", file, i, values[i], wanted);
        }
    }
    loongi_free(ctx, bytes);
    loongi_free(ctx, values);
    loong_image_free(ctx, &image);
    loong_image_processor_destroy(&processor);
}

/* One line of the index; true where it is of a kind that is checked here. */
static bool check_line(loong_context_t *ctx, const char *line)
{
    static const char *const formats[] = {"JPEG", "PNG", "WEBP"};
    char name[64], other[64];
    loong_image_info_t info;
    loong_image_t image = {0}, resized = {0};
    int64_t w, h;
    uint32_t crc;
    int filter;
    if (sscanf(line, "decode %63s %" SCNd64 " %" SCNd64 " %63s %" SCNu32, name,
               &w, &h, other, &crc) == 5) {
        assert_ok(ctx, decode(ctx, name, &info, &image));
        assert_string_equal(formats[info.format], other);
        assert_true(info.width == w && info.height == h);
        expect(line, &image, w, h, crc);
    } else if (sscanf(line, "resize %63s %d %" SCNd64 " %" SCNd64 " %" SCNu32,
                      name, &filter, &w, &h, &crc) == 5) {
        assert_ok(ctx, decode(ctx, name, &info, &image));
        assert_ok(ctx, loong_image_resize(ctx, &image, w, h,
                                          (loong_image_filter_t)filter,
                                          &resized));
        expect(line, &resized, w, h, crc);
    } else if (sscanf(line, "process %63s %63s %" SCNd64 " %" SCNd64, other,
                      name, &w, &h) == 4) {
        check_process(ctx, other, name, w, h);
    } else {
        return false;
    }
    loong_image_free(ctx, &image);
    loong_image_free(ctx, &resized);
    return true;
}

static void test_against_pil(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char *text = NULL, *rest = NULL;
    size_t length = 0;
    int checked = 0;
    load(ctx, "index.txt", &text, &length);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        checked += check_line(ctx, line);
    }
    assert_true(checked > 80);
    loongi_free(ctx, text);
    test_context_end(&ctx);
}

/* Rows of patches are a convolution's windows: entry (c, y, x) of patch (i, j)
 * is pixel (c, i*p + y, j*p + x); what is left over at the ends is dropped. */
static void test_patches(void **state)
{
    (void)state;
    enum { W = 36, H = 32, P = 5, ROWS = H / P, COLUMNS = W / P };
    static float whole[3][H][W], patches[ROWS][COLUMNS][3][P][P];
    loong_context_t *ctx = test_context();
    loong_image_processor_t *processor = NULL;
    loong_image_info_t info;
    loong_image_t image;
    assert_ok(ctx, decode(ctx, "tall.jpg", &info, &image));
    assert_ok(ctx, loong_image_processor_create(ctx, FIXTURES "clip.json",
                                                &processor));
    assert_ok(ctx, loong_image_process(ctx, processor, &image,
                                       &(loong_patch_cut_t){0},
                                       &whole[0][0][0]));
    assert_ok(ctx, loong_image_process(ctx, processor, &image,
                                       &(loong_patch_cut_t){.patch = P},
                                       &patches[0][0][0][0][0]));
    for (int n = 0; n < ROWS * COLUMNS * 3 * P * P; n++) {
        int x = n % P, y = n / P % P, c = n / P / P % 3;
        int j = n / P / P / 3 % COLUMNS, i = n / P / P / 3 / COLUMNS;
        assert_true(patches[i][j][c][y][x] == whole[c][i * P + y][j * P + x]);
    }
    loong_image_free(ctx, &image);
    loong_image_processor_destroy(&processor);
    test_context_end(&ctx);
}

/* Three of five positions as torch's interpolate finds them: what the rows of
 * the table around each place weigh, along one axis. */
static void test_positions(void **state)
{
    (void)state;
    enum { TAPS = 16, PATCHES = 9 };
    static const int32_t places[3][4] = {
        {0, 0, 1, 2}, {1, 2, 3, 4}, {2, 3, 4, 4}};
    static const double weights[3][4] = {{-1 / 9.0, 43 / 54.0, 10 / 27.0,
                                          -1 / 18.0},
                                         {0, 1, 0, 0},
                                         {-1 / 18.0, 10 / 27.0, 43 / 54.0,
                                          -1 / 9.0}};
    loong_context_t *ctx = test_context();
    loong_patch_params_t p = {.image_size = 12,
                              .cut = {.patch = 4},
                              .positions = {5, true, false},
                              .rows = PATCHES,
                              .pictures = 1};
    int32_t taps[PATCHES * TAPS];
    double found[PATCHES * TAPS];
    const loong_field_t fields[] = {
        {"position_taps", LOONG_I32, PATCHES * TAPS, taps, NULL},
        {"position_weights", LOONG_F64, PATCHES * TAPS, found, NULL}};
    loong_items_t items = {.ctx = ctx};
    double sums[LOONG_MAX_NORMALISERS] = {0};
    void *row = NULL;
    assert_ok(ctx,
              loong_image_processor_create_default(
                  ctx, "ViT", 12, (loong_image_processor_t **)&p.processor));
    assert_ok(ctx, loong_patch_processor.begin(&p, &items));
    assert_ok(ctx, loong_patch_processor.example(&p, 0, &items));
    assert_ok(ctx, loongi_alloc(ctx, loong_patch_processor.row_size(&p, &items),
                                "row", &row));
    assert_ok(ctx, loong_patch_processor.keep(&p, 0, &items, row, sums));
    assert_ok(ctx, loong_patch_processor.fill(ctx, &p, &row, &fields[0]));
    assert_ok(ctx, loong_patch_processor.fill(ctx, &p, &row, &fields[1]));
    for (int i = 0; i < PATCHES * TAPS; i++) {
        int y = i / TAPS / 3, x = i / TAPS % 3, a = i % TAPS / 4, b = i % 4;
        assert_int_equal(taps[i], places[y][a] * 5 + places[x][b]);
        assert_true(fabs(found[i] - weights[y][a] * weights[x][b]) < 1e-14);
    }
    loongi_free(ctx, row);
    loong_items_free(&items);
    loong_image_processor_destroy((loong_image_processor_t **)&p.processor);
    test_context_end(&ctx);
}

/* Windows, blocks, the blocks in these and patches of such, each row by row. */
static void check_order(const loong_patch_grid_t *g)
{
    int64_t side = g->window * g->merge, m = g->merge, found = 0;
    int64_t n = LOONG_MAX(g->inner, 1);
    for (int64_t window = 0; window < g->rows * g->columns; window++) {
        int64_t top = window / g->columns * side;
        int64_t left = window % g->columns * side;
        int64_t bottom = LOONG_MIN(top + side, g->rows);
        int64_t right = LOONG_MIN(left + side, g->columns);
        for (int64_t y = top; y < bottom; y += m) {
            for (int64_t x = left; x < right; x += m) {
                int64_t block = y / m * (g->columns / m) + x / m;
                assert_int_equal(loongi_patch_block(g, block),
                                 found / (m * m));
                for (int64_t k = 0; k < m * m; k++, found++) {
                    loong_patch_place_t at = loongi_patch_place(g, found);
                    int64_t inner = k / (n * n), in = k % (n * n);
                    assert_int_equal(at.row,
                                     y + inner / (m / n) * n + in / n);
                    assert_int_equal(at.column,
                                     x + inner % (m / n) * n + in % n);
                }
            }
        }
    }
    assert_int_equal(found, g->rows * g->columns);
}

static void test_windows(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 2 * 4 * 7 * 7; i++) {
        for (int64_t n = 0; n <= 2; n++) {
            int64_t m = (1 + i % 2) * LOONG_MAX(n, 1);
            const loong_patch_grid_t grid = {m * (1 + i / 8 % 7),
                                             m * (1 + i / 56), m,
                                             1 + i / 2 % 4, n};
            check_order(&grid);
        }
    }
}

/* A PNG that is turned, whose eXIf chunk is moved to its end. */
static void test_late_orientation(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_image_info_t info;
    loong_image_t image;
    char *bytes = NULL, *moved = NULL;
    size_t length = 0, at = 0, size = 0;
    load(ctx, "turn6.png", &bytes, &length);
    while (memcmp(bytes + at, "eXIf", 4) != 0) {
        at++;
    }
    size = 12 + (uint8_t)bytes[at - 1];
    at -= 4;
    assert_ok(ctx, loongi_alloc(ctx, length, "test", &moved));
    memcpy(moved, bytes, at);
    memcpy(moved + at, bytes + at + size, length - at - size - 12);
    memcpy(moved + length - 12 - size, bytes + at, size);
    memcpy(moved + length - 12, bytes + length - 12, 12);
    assert_ok(ctx, loong_image_get_info(ctx, "p", (uint8_t *)moved, length,
                                        &info));
    assert_true(info.width == 21 && info.height == 13);
    assert_fails(ctx, loong_image_decode(ctx, "p", (uint8_t *)moved, length,
                                         NULL, &image),
                 LOONG_ERR_UNSUPPORTED,
                 "p: PNG: its orientation stands behind");
    assert_ok(ctx, loong_image_get_info(ctx, "p", (uint8_t *)bytes, length,
                                        &info));
    assert_true(info.width == 13 && info.height == 21);
    loongi_free(ctx, bytes);
    loongi_free(ctx, moved);
    test_context_end(&ctx);
}

static const struct {
    const char *json, *says;
    loong_status_t status;
} refused[] = {
    {"{\"image_processor_type\": \"ViTImageProcessor\", "
     "\"crop_to_patches\": true}",
     "crop_to_patches = true is not", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"GotOcr2ImageProcessor\", "
     "\"max_patches\": 0}",
     "max_patches = 0 is not", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"LlavaNextImageProcessor\"}",
     "LlavaNextImageProcessor", LOONG_ERR_UNSUPPORTED},
    {"{\"image_processor_type\": \"Qwen2VLImageProcessor\", "
     "\"size\": {\"shortest_edge\": 9}}",
     "size = {\"shortest_edge\":9} is not {\"shortest_edge\": ., \"longest_"
     "edge\": .}", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"Qwen2VLImageProcessor\", "
     "\"do_resize\": false}",
     "do_resize = false is not true, or", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"Qwen2VLImageProcessor\", "
     "\"patch_size\": 4611686018427387904}",
     "patch_size = 4611686018427387904 is not a number of 1 to 65536",
     LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"ViTImageProcessor\", "
     "\"max_pixels\": 9}",
     "max_pixels = 9 is not", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"Qwen2VLImageProcessor\", "
     "\"size\": {\"shortest_edge\": 9, \"longest_edge\": 8}}",
     "no picture is between", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"GotOcr2ImageProcessor\", "
     "\"min_patches\": 9, \"max_patches\": 6}",
     "at least 9 tiles (min_patches) and at most 6", LOONG_ERR_FORMAT},
    {"{}", "image_processor_type is \"\"", LOONG_ERR_UNSUPPORTED},
    {"[]", "is not an object", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"ViTImageProcessor\", \"resample\": 0}",
     "resample = 0 is not 2 (bilinear) or 3", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"ViTImageProcessor\", \"size\": "
     "{\"shortest_edge\": 3}}",
     "size = {\"shortest_edge\":3} is not a size of", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"CLIPImageProcessor\", \"crop_size\": "
     "-1}",
     "crop_size = -1 is not", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"SiglipImageProcessor\", \"image_std\": "
     "[1, 1, 0]}",
     "image_std = [1,1,0] is not", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"SiglipImageProcessor\", \"do_rescale\": "
     "1}",
     "do_rescale = 1 is not", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"ViTImageProcessorFast\", \"do_pad\": "
     "true}",
     "do_pad = true is not false or", LOONG_ERR_FORMAT},
    {"{\"image_processor_type\": \"LlavaOnevisionImageProcessor\", "
     "\"image_grid_pinpoints\": [[384, 384], [384, 500]]}",
     "500 is no multiple of size 384", LOONG_ERR_UNSUPPORTED},
    {"{\"image_processor_type\": \"ViTImageProcessor\", "
     "\"do_center_crop\": true}",
     "do_center_crop = true is not false", LOONG_ERR_FORMAT},
};

static void test_processor_errors(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_image_processor_t *processor = NULL;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_ok(ctx, loongi_file_write(ctx, in_dir("p.json"), refused[i].json,
                                         strlen(refused[i].json)));
        assert_fails(ctx, loong_image_processor_create(ctx, in_dir("p.json"),
                                                       &processor),
                     refused[i].status, refused[i].says);
        assert_null(processor);
    }
    test_context_end(&ctx);
}

/* The file of pictures is that of videos, too, where it is the only one. */
static void test_video_fallback(void **state)
{
    (void)state;
    const char *text = "{\"image_processor_type\": "
                       "\"LlavaOnevisionImageProcessor\", \"do_pad\": true, "
                       "\"size\": {\"height\": 8, \"width\": 8}, "
                       "\"image_grid_pinpoints\": [[8, 8], [8, 16]]}";
    loong_context_t *ctx = test_context();
    loong_image_processor_t *p = NULL;
    int64_t size[2];
    assert_ok(ctx, loongi_file_write(ctx, in_dir("p.json"), text,
                                     strlen(text)));
    assert_ok(ctx, loong_video_processor_create(ctx, in_dir("p.json"),
                                                "LlavaOnevision", &p));
    loong_video_size(p, 50, 31, 2, size);
    assert_true(size[0] == 8 && size[1] == 8);
    assert_int_equal(loong_image_processor_max_tiles(p), 1);
    loong_image_processor_destroy(&p);
    assert_ok(ctx,
              loong_image_processor_create_default(ctx, "Qwen2VL", 0, &p));
    assert_ok(ctx, loongi_processor_check_narrow(ctx, p, "a.png", 2000, 10));
    assert_fails(ctx, loongi_processor_check_narrow(ctx, p, "a.png", 3000, 10),
                 LOONG_ERR_FORMAT, "one side may be up to 200 times the other");
    loong_image_processor_destroy(&p);
    test_context_end(&ctx);
}

/* Every cut of a file is an error, or (without its last bytes) the picture. */
static void test_cut_off(void **state)
{
    (void)state;
    static const char *const names[] = {"j420.jpg", "progressive.jpg",
                                        "palette4.png", "lossy_alpha.webp"};
    loong_context_t *ctx = test_context();
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        char *bytes = NULL;
        size_t length = 0;
        loong_image_t image;
        load(ctx, names[n], &bytes, &length);
        for (size_t cut = 0; cut + 20 < length; cut += 1 + cut / 50) {
            assert_int_not_equal(
                loong_image_decode(ctx, names[n], (const uint8_t *)bytes, cut,
                                   NULL, &image), LOONG_OK);
            assert_non_null(strstr(loong_context_error(ctx), names[n]));
            loong_context_clear_error(ctx);
        }
        loongi_free(ctx, bytes);
    }
    test_context_end(&ctx);
}

static void test_limits(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_image_decode_params_t params = {.max_pixels = 75 * 50 - 1};
    loong_image_info_t info;
    loong_image_t image;
    char *bytes = NULL;
    size_t length = 0;
    assert_fails(ctx, decode(ctx, "index.txt", &info, &image),
                 LOONG_ERR_UNSUPPORTED, "no JPEG, PNG or WebP");
    load(ctx, "rgb.png", &bytes, &length);
    assert_fails(ctx, loong_image_decode(ctx, "p", (uint8_t *)bytes, length,
                                         &params, &image),
                 LOONG_ERR_UNSUPPORTED, "75 x 50 pixels, more than the 3749");
    params.max_pixels++;
    assert_ok(ctx, loong_image_decode(ctx, "p", (uint8_t *)bytes, length,
                                      &params, &image));
    loong_image_free(ctx, &image);
    memset(bytes + 16, 0x7f, 8); /* width and height */
    assert_fails(ctx, loong_image_decode(ctx, "p", (uint8_t *)bytes, length,
                                         NULL, &image),
                 LOONG_ERR_UNSUPPORTED, "that are allowed");
    loongi_free(ctx, bytes);
    test_context_end(&ctx);
}

enum { MASK_PATCHES = 9, MASK_ROWS = 1 + MASK_PATCHES, MASK_DRAWS = 300 };

/* The marks of a micro-batch: a picture of the draw, and an empty place. */
static void masks_of(loong_context_t *ctx, const loong_patch_params_t *p,
                     int64_t draw, int32_t marks[2 * MASK_ROWS + 1])
{
    loong_items_t items = {.ctx = ctx};
    double sums[LOONG_MAX_NORMALISERS] = {0};
    void *rows[2];
    loong_field_t field = {"is_masked", LOONG_I32, p->rows, marks, NULL};
    assert_ok(ctx, loong_patch_processor.begin(p, &items));
    assert_ok(ctx, loong_patch_processor.example(p, 0, &items));
    for (int i = 0; i < 2; i++) {
        assert_ok(ctx,
                  loongi_alloc(ctx, loong_patch_processor.row_size(p, NULL),
                               "row", &rows[i]));
        assert_ok(ctx, loong_patch_processor.keep(
                           p, draw, i == 0 ? &items : NULL, rows[i], sums));
    }
    assert_true(sums[1] == 4.0); /* masked_patches */
    assert_ok(ctx, loong_patch_processor.fill(ctx, p, rows, &field));
    loongi_free(ctx, rows[0]);
    loongi_free(ctx, rows[1]);
    loong_items_free(&items);
}

/* Exactly as many as the ratio says, all patches equally often, by seed and
 * draw alone; no class token and no padding. */
static void test_masks(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_patch_params_t p = {.image_size = 12,
                              .cut = {.patch = 4},
                              .class_token = true,
                              .mask_ratio = 0.45,
                              .mask_seed = 5,
                              .rows = 2 * MASK_ROWS + 1,
                              .pictures = 2};
    int32_t marks[2][2 * MASK_ROWS + 1];
    int times[MASK_ROWS] = {0};
    assert_ok(ctx,
              loong_image_processor_create_default(
                  ctx, "ViT", 12, (loong_image_processor_t **)&p.processor));
    for (int64_t draw = 0; draw < MASK_DRAWS; draw++) {
        int masked = 0;
        masks_of(ctx, &p, draw, marks[0]);
        for (int i = 0; i < p.rows; i++) {
            masked += marks[0][i];
            times[i % MASK_ROWS] += marks[0][i];
            assert_true(marks[0][i] == 0 || (i > 0 && i < MASK_ROWS));
        }
        assert_int_equal(masked, 4);
    }
    for (int i = 1; i < MASK_ROWS; i++) { /* five standard deviations */
        double mean = MASK_DRAWS * 4.0 / MASK_PATCHES;
        assert_true(fabs(times[i] - mean) < 5.0 * sqrt(mean * 5.0 / 9.0));
    }
    masks_of(ctx, &p, MASK_DRAWS - 1, marks[1]);
    assert_memory_equal(marks[0], marks[1], sizeof(marks[0]));
    p.mask_seed++;
    masks_of(ctx, &p, MASK_DRAWS - 1, marks[1]);
    assert_memory_not_equal(marks[0], marks[1], sizeof(marks[0]));
    loong_image_processor_destroy((loong_image_processor_t **)&p.processor);
    test_context_end(&ctx);
}

/* Whichever allocation fails: an error, and nothing is left behind. */
static void test_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"cmyk.jpg", "rgb8i.png", "lossy.webp",
                                        "turn6.jpg"};
    loong_context_t *ctx = test_context();
    loong_image_info_t info;
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        loong_status_t status = LOONG_ERR_MEMORY;
        for (uint64_t nth = 2; status != LOONG_OK; nth++) {
            loong_image_t image = {0}, small = {0};
            loong_context_fail_alloc(ctx, nth);
            status = decode(ctx, names[n], &info, &image);
            if (status == LOONG_OK) {
                status = loong_image_resize(ctx, &image, 9, 8,
                                            LOONG_IMAGE_BICUBIC, &small);
            }
            loong_context_fail_alloc(ctx, 0);
            assert_true(status == LOONG_OK || status == LOONG_ERR_MEMORY);
            loong_image_free(ctx, &image);
            loong_image_free(ctx, &small);
            loong_context_clear_error(ctx);
            assert_int_equal(loong_context_alloc_bytes(ctx), 0);
        }
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_pil),      cmocka_unit_test(test_patches),
        cmocka_unit_test(test_processor_errors),
        cmocka_unit_test(test_video_fallback), cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_limits),           cmocka_unit_test(test_masks),
        cmocka_unit_test(test_memory),           cmocka_unit_test(test_windows),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_late_orientation),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
