/* SPDX-License-Identifier: Apache-2.0
 *
 * What the image processors of transformers do to a picture, from their
 * preprocessor_config.json: resize, crop, rescale, normalise; then patches. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base.h"
#include "json.h"
#include "loong/image.h"

enum { CHANNELS = 3 };

/* A size: a shortest edge, or exact where `edge` is 0. */
typedef struct target {
    int64_t edge, width, height;
} target_t;

struct loong_image_processor {
    loong_context_t *ctx;
    bool resize, crop, rescale, normalize;
    target_t size, crop_size;
    loong_image_filter_t filter;
    double factor;
    double mean[CHANNELS], deviation[CHANNELS];
    float values[CHANNELS][256]; /* of a byte of a channel, in the end */
};

#define HALF {0.5, 0.5, 0.5}

/* Classes and what they take for fields that the file leaves out. */
static const struct {
    const char *name;
    bool by_edge; /* "size": 224 is a shortest edge */
    loong_image_processor_t defaults;
} kinds[] = {
    {"ViT",
     false,
     {.resize = true, .rescale = true, .normalize = true,
      .size = {0, 224, 224}, .filter = LOONG_IMAGE_BILINEAR,
      .factor = 1.0 / 255, .mean = HALF, .deviation = HALF}},
    {"CLIP",
     true,
     {.resize = true, .crop = true, .rescale = true, .normalize = true,
      .size = {224, 0, 0}, .crop_size = {0, 224, 224},
      .filter = LOONG_IMAGE_BICUBIC, .factor = 1.0 / 255,
      .mean = {0.48145466, 0.4578275, 0.40821073},
      .deviation = {0.26862954, 0.26130258, 0.27577711}}},
    {"Siglip",
     false,
     {.resize = true, .rescale = true, .normalize = true,
      .size = {0, 224, 224}, .filter = LOONG_IMAGE_BICUBIC,
      .factor = 1.0 / 255, .mean = HALF, .deviation = HALF}},
};

typedef struct reading {
    loong_context_t *ctx;
    const char *path;
    const loong_json_t *json;
} reading_t;

/* The field, NULL where it is absent or null. */
static const loong_json_t *field(const reading_t *r, const char *key)
{
    const loong_json_t *value = loongi_json_get(r->json, key);
    return loongi_json_kind(value) == LOONG_JSON_NULL ? NULL : value;
}

static loong_status_t wrong(const reading_t *r, const char *key,
                            const char *allowed)
{
    return LOONG_FAIL(r->ctx, LOONG_ERR_FORMAT, "%s: %s is not %s", r->path,
                      key, allowed);
}

static loong_status_t read_bool(const reading_t *r, const char *key, bool *to)
{
    const loong_json_t *value = field(r, key);
    if (value == NULL) {
        return LOONG_OK;
    }
    if (loongi_json_kind(value) != LOONG_JSON_BOOL) {
        return wrong(r, key, "true or false");
    }
    *to = loongi_json_bool(value);
    return LOONG_OK;
}

static bool is_number(const loong_json_t *value)
{
    loong_json_kind_t kind = loongi_json_kind(value);
    return kind == LOONG_JSON_INT || kind == LOONG_JSON_REAL;
}

static loong_status_t read_channels(const reading_t *r, const char *key,
                                    bool divisor, double to[CHANNELS])
{
    const loong_json_t *value = field(r, key);
    for (int64_t c = 0; value != NULL && c < CHANNELS; c++) {
        const loong_json_t *one =
            is_number(value) ? value : loongi_json_at(value, c);
        if (!is_number(one) || (divisor && loongi_json_real(one) == 0) ||
            (one != value && loongi_json_count(value) != CHANNELS)) {
            return wrong(r, key, divisor ? "a number or 3, none of them 0"
                                         : "a number or 3");
        }
        to[c] = loongi_json_real(one);
    }
    return LOONG_OK;
}

enum { LARGEST = 65536 };

static bool is_size(const loong_json_t *value)
{
    return loongi_json_kind(value) == LOONG_JSON_INT &&
           loongi_json_int(value) > 0 && loongi_json_int(value) <= LARGEST;
}

/* 224, {"shortest_edge": 224} where `edges`, {"height": 224, "width": 224}. */
static loong_status_t read_size(const reading_t *r, const char *key, bool edges,
                                bool by_edge, target_t *to)
{
    const loong_json_t *value = field(r, key);
    const loong_json_t *edge = loongi_json_get(value, "shortest_edge");
    const loong_json_t *height = loongi_json_get(value, "height");
    const loong_json_t *width = loongi_json_get(value, "width");
    if (value == NULL) {
        return LOONG_OK;
    }
    if (is_size(value)) {
        int64_t n = loongi_json_int(value);
        *to = by_edge ? (target_t){n, 0, 0} : (target_t){0, n, n};
    } else if (edges && is_size(edge) && loongi_json_count(value) == 1) {
        *to = (target_t){loongi_json_int(edge), 0, 0};
    } else if (is_size(height) && is_size(width)) {
        *to = (target_t){0, loongi_json_int(width), loongi_json_int(height)};
    } else {
        return wrong(r, key,
                     edges ? "a size, {\"shortest_edge\": .} or {\"height\": "
                             "., \"width\": .}, of 1 to 65536"
                           : "a size or {\"height\": ., \"width\": .}, of 1 "
                             "to 65536");
    }
    return LOONG_OK;
}

/* "CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPFeatureExtractor". */
static loong_status_t find_kind(const reading_t *r, int64_t *kind_p)
{
    static const char *const endings[] = {"ImageProcessor",
                                          "ImageProcessorFast",
                                          "FeatureExtractor"};
    const loong_json_t *type = field(r, "image_processor_type");
    const char *name = loongi_json_string(
        type != NULL ? type : field(r, "feature_extractor_type"));
    for (int64_t k = 0; k < LOONG_COUNT_OF(kinds); k++) {
        size_t length = strlen(kinds[k].name);
        if (strncmp(name, kinds[k].name, length) != 0) {
            continue;
        }
        for (int64_t e = 0; e < LOONG_COUNT_OF(endings); e++) {
            if (strcmp(name + length, endings[e]) == 0) {
                *kind_p = k;
                return LOONG_OK;
            }
        }
    }
    return LOONG_FAIL(r->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s: image_processor_type is \"%s\", of which ViT, CLIP "
                      "and SiglipImageProcessor are read",
                      r->path, name);
}

static loong_status_t read_filter(const reading_t *r, loong_image_filter_t *to)
{
    const loong_json_t *value = field(r, "resample");
    if (value == NULL) {
        return LOONG_OK;
    }
    int64_t number = loongi_json_kind(value) == LOONG_JSON_INT
                         ? loongi_json_int(value)
                         : -1;
    LOONG_CHECK(r->ctx,
                number >= LOONG_IMAGE_BILINEAR &&
                    number <= LOONG_IMAGE_BICUBIC,
                LOONG_ERR_UNSUPPORTED,
                "%s: resample is %" PRId64 "; 2 (bilinear) and 3 (bicubic) "
                "are known", r->path, number);
    *to = (loong_image_filter_t)number;
    return LOONG_OK;
}

/* Fields that are read here, or that change nothing here. */
static const char *const known[] = {"image_processor_type",
                                    "feature_extractor_type",
                                    "processor_class",
                                    "auto_map",
                                    "_valid_processor_keys",
                                    "do_convert_rgb",
                                    "data_format",
                                    "input_data_format",
                                    "return_tensors",
                                    "device",
                                    "default_to_square",
                                    "do_resize",
                                    "size",
                                    "resample",
                                    "crop_size",
                                    "do_rescale",
                                    "rescale_factor",
                                    "do_normalize",
                                    "image_mean",
                                    "image_std"};

/* What else is asked for would not be done: an error, unless it is off. */
static loong_status_t check_fields(const reading_t *r, bool can_crop)
{
    for (const loong_json_member_t *it = loongi_json_first(r->json); it != NULL;
         it = loongi_json_next(r->json, it)) {
        const char *key = loongi_json_member_key(it);
        const loong_json_t *value = loongi_json_member_value(it);
        loong_json_kind_t kind = loongi_json_kind(value);
        bool fine = kind == LOONG_JSON_NULL ||
                    (kind == LOONG_JSON_BOOL && !loongi_json_bool(value)) ||
                    (can_crop && strcmp(key, "do_center_crop") == 0);
        for (int64_t k = 0; !fine && k < LOONG_COUNT_OF(known); k++) {
            fine = strcmp(key, known[k]) == 0;
        }
        LOONG_CHECK(r->ctx, fine, LOONG_ERR_UNSUPPORTED,
                    "%s: %s is not done by this image processor", r->path, key);
    }
    return LOONG_OK;
}

/* numpy's order of types: bytes are multiplied in 64 bits, then rounded to 32;
 * the rest is of 32 bits. */
static void tabulate(loong_image_processor_t *p)
{
    for (int c = 0; c < CHANNELS; c++) {
        for (int byte = 0; byte < 256; byte++) {
            float value = p->rescale ? (float)(byte * p->factor) : (float)byte;
            if (p->normalize) {
                value = (value - (float)p->mean[c]) / (float)p->deviation[c];
            }
            p->values[c][byte] = value;
        }
    }
}

static loong_status_t read_fields(const reading_t *r,
                                  loong_image_processor_t *p)
{
    int64_t kind = 0;
    LOONG_CHECK(r->ctx, loongi_json_kind(r->json) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s: is not an object", r->path);
    LOONG_TRY(find_kind(r, &kind));
    bool can_crop = kinds[kind].defaults.crop, by_edge = kinds[kind].by_edge;
    LOONG_TRY(check_fields(r, can_crop));
    *p = kinds[kind].defaults;
    p->ctx = r->ctx;
    LOONG_TRY(read_bool(r, "do_resize", &p->resize));
    LOONG_TRY(read_bool(r, "do_rescale", &p->rescale));
    LOONG_TRY(read_bool(r, "do_normalize", &p->normalize));
    LOONG_TRY(read_size(r, "size", by_edge, by_edge, &p->size));
    if (can_crop) {
        LOONG_TRY(read_bool(r, "do_center_crop", &p->crop));
        LOONG_TRY(read_size(r, "crop_size", false, false, &p->crop_size));
    }
    LOONG_TRY(read_filter(r, &p->filter));
    const loong_json_t *factor = field(r, "rescale_factor");
    if (factor != NULL && !is_number(factor)) {
        return wrong(r, "rescale_factor", "a number");
    }
    p->factor = factor != NULL ? loongi_json_real(factor) : p->factor;
    LOONG_TRY(read_channels(r, "image_mean", false, p->mean));
    LOONG_TRY(read_channels(r, "image_std", true, p->deviation));
    tabulate(p);
    return LOONG_OK;
}

loong_status_t
loong_image_processor_create(loong_context_t *ctx, const char *path,
                             loong_image_processor_t **processor_p)
{
    loong_json_t *json = NULL;
    loong_image_processor_t *processor = NULL;
    LOONG_TRY(loongi_json_load(ctx, path, &json));
    reading_t reading = {ctx, path, json};
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*processor), "image processor", &processor);
    if (status == LOONG_OK) {
        status = read_fields(&reading, processor);
    }
    loongi_json_destroy(&json);
    if (status != LOONG_OK) {
        loongi_free(ctx, processor);
        return status;
    }
    *processor_p = processor;
    return LOONG_OK;
}

loong_status_t
loong_image_processor_create_default(loong_context_t *ctx,
                                     const char *class_name, int64_t image_size,
                                     loong_image_processor_t **processor_p)
{
    int64_t kind = 0;
    while (kind < LOONG_COUNT_OF(kinds) &&
           strcmp(kinds[kind].name, class_name) != 0) {
        kind++;
    }
    LOONG_CHECK(ctx, kind < LOONG_COUNT_OF(kinds) && image_size > 0,
                LOONG_ERR_ARG, "no image processor %s of %" PRId64 " pixels",
                class_name, image_size);
    loong_image_processor_t *p = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "image processor", &p));
    *p = kinds[kind].defaults;
    p->ctx = ctx;
    p->size = kinds[kind].by_edge ? (target_t){image_size, 0, 0}
                                  : (target_t){0, image_size, image_size};
    p->crop_size = (target_t){0, image_size, image_size};
    tabulate(p);
    *processor_p = p;
    return LOONG_OK;
}

void loong_image_processor_destroy(loong_image_processor_t **processor)
{
    if (*processor != NULL) {
        loongi_free((*processor)->ctx, *processor);
        *processor = NULL;
    }
}

/* The size after resizing; the longer edge is rounded down. */
static void resized_size(const loong_image_processor_t *p, int64_t width,
                         int64_t height, int64_t *width_p, int64_t *height_p)
{
    int64_t edge = p->size.edge;
    if (!p->resize) {
        *width_p = width;
        *height_p = height;
    } else if (edge == 0) {
        *width_p = p->size.width;
        *height_p = p->size.height;
    } else {
        *width_p = width <= height ? edge : edge * width / height;
        *height_p = width <= height ? edge * height / width : edge;
    }
}

void loong_image_processor_size(const loong_image_processor_t *processor,
                                int64_t width, int64_t height,
                                int64_t *width_p, int64_t *height_p)
{
    if (processor->crop) {
        *width_p = processor->crop_size.width;
        *height_p = processor->crop_size.height;
    } else {
        resized_size(processor, width, height, width_p, height_p);
    }
}

/* Where the crop begins: half of what is too much, rounded down, so that a
 * picture that is too small has its larger border before it. */
static int64_t crop_from(int64_t has, int64_t wanted)
{
    int64_t more = has - wanted;
    return more >= 0 ? more / 2 : -((1 - more) / 2);
}

/* One row of a patch, of one channel; black outside of the picture. */
static void copy_row(const loong_image_t *image, const float values[256],
                     int64_t x, const uint8_t *row, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++, x++) {
        bool inside = row != NULL && x >= 0 && x < image->width;
        to[i] = values[inside ? row[x * CHANNELS] : 0];
    }
}

/* Tiles of width x height pixels, of an image whose pixel (left, top) comes
 * first; to [rows,columns,CHANNELS,height,width]. */
typedef struct tiling {
    int64_t left, top, rows, columns, width, height;
} tiling_t;

static void unfold(const loong_image_processor_t *p, const loong_image_t *image,
                   const tiling_t *t, float *to)
{
    for (int64_t tile = 0; tile < t->rows * t->columns; tile++) {
        int64_t x = t->left + tile % t->columns * t->width;
        int64_t first = t->top + tile / t->columns * t->height;
        for (int c = 0; c < CHANNELS; c++) {
            for (int64_t y = first; y < first + t->height; y++) {
                const uint8_t *row = NULL;
                if (y >= 0 && y < image->height) {
                    row = image->pixels + y * image->width * CHANNELS + c;
                }
                copy_row(image, p->values[c], x, row, t->width, to);
                to += t->width;
            }
        }
    }
}

loong_status_t loong_image_process(loong_context_t *ctx,
                                   const loong_image_processor_t *processor,
                                   const loong_image_t *image, int64_t patch,
                                   float *patches)
{
    loong_image_t resized = {0};
    int64_t width, height;
    LOONG_CHECK(ctx, patch >= 0, LOONG_ERR_ARG,
                "patches of %" PRId64 " pixels", patch);
    resized_size(processor, image->width, image->height, &width, &height);
    if (width != image->width || height != image->height) {
        LOONG_TRY(loong_image_resize(ctx, image, width, height,
                                     processor->filter, &resized));
        image = &resized;
    }
    loong_image_processor_size(processor, width, height, &width, &height);
    tiling_t tiling = {crop_from(image->width, width),
                       crop_from(image->height, height), 1, 1, width, height};
    if (patch > 0) {
        tiling.rows = height / patch;
        tiling.columns = width / patch;
        tiling.width = tiling.height = patch;
    }
    unfold(processor, image, &tiling, patches);
    loong_image_free(ctx, &resized);
    return LOONG_OK;
}
