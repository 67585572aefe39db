/* SPDX-License-Identifier: Apache-2.0
 *
 * What the image processors of transformers do to a picture, from their
 * preprocessor_config.json: resize, crop, rescale, normalise; then patches.
 * Created by src/run_data/open_data.c, called by patch_processor.c. Read
 * loong/image.h before. */
#include <inttypes.h>
#include <stddef.h>
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
    bool is_clip; /* crops, and "size": 224 is a shortest edge */
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
    loong_image_processor_t defaults;
} kinds[] = {
    {"ViT",
     {.resize = true,
      .rescale = true,
      .normalize = true,
      .size = {0, 224, 224},
      .filter = LOONG_IMAGE_BILINEAR,
      .factor = 1.0 / 255,
      .mean = HALF,
      .deviation = HALF}},
    {"CLIP",
     {.is_clip = true,
      .resize = true,
      .crop = true,
      .rescale = true,
      .normalize = true,
      .size = {224, 0, 0},
      .crop_size = {0, 224, 224},
      .filter = LOONG_IMAGE_BICUBIC,
      .factor = 1.0 / 255,
      .mean = {0.48145466, 0.4578275, 0.40821073},
      .deviation = {0.26862954, 0.26130258, 0.27577711}}},
    {"Siglip",
     {.resize = true,
      .rescale = true,
      .normalize = true,
      .size = {0, 224, 224},
      .filter = LOONG_IMAGE_BICUBIC,
      .factor = 1.0 / 255,
      .mean = HALF,
      .deviation = HALF}},
};

/* ---- fields: readers take a value to its member; false: it is none --------*/

enum { LARGEST = 65536 };

static bool read_bool(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    (void)p;
    *(bool *)to = loongi_json_bool(value);
    return loongi_json_kind(value) == LOONG_JSON_BOOL;
}

static bool read_crop(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    return read_bool(p, value, to) && (p->is_clip || !*(bool *)to);
}

static bool read_filter(const loong_image_processor_t *p,
                        const loong_json_t *value, void *to)
{
    int64_t number = loongi_json_int(value);
    (void)p;
    *(loong_image_filter_t *)to = (loong_image_filter_t)number;
    return number == LOONG_IMAGE_BILINEAR || number == LOONG_IMAGE_BICUBIC;
}

static bool read_number(const loong_image_processor_t *p,
                        const loong_json_t *value, void *to)
{
    loong_json_kind_t kind = loongi_json_kind(value);
    (void)p;
    *(double *)to = loongi_json_real(value);
    return kind == LOONG_JSON_INT || kind == LOONG_JSON_REAL;
}

static bool read_channels(const loong_image_processor_t *p,
                          const loong_json_t *value, void *to)
{
    double *channels = to;
    bool is_list = loongi_json_kind(value) == LOONG_JSON_ARRAY;
    bool good = !is_list || loongi_json_count(value) == CHANNELS;
    for (int64_t c = 0; good && c < CHANNELS; c++) {
        good = read_number(p, is_list ? loongi_json_at(value, c) : value,
                           &channels[c]);
    }
    return good;
}

static bool read_divisors(const loong_image_processor_t *p,
                          const loong_json_t *value, void *to)
{
    const double *channels = to;
    return read_channels(p, value, to) && channels[0] != 0 &&
           channels[1] != 0 && channels[2] != 0;
}

static bool is_size(const loong_json_t *value)
{
    int64_t size = loongi_json_int(value);
    return size > 0 && size <= LARGEST;
}

static bool read_exact_size(const loong_image_processor_t *p,
                            const loong_json_t *value, void *to)
{
    bool square = is_size(value);
    const loong_json_t *w = square ? value : loongi_json_get(value, "width");
    const loong_json_t *h = square ? value : loongi_json_get(value, "height");
    (void)p;
    *(target_t *)to = (target_t){0, loongi_json_int(w), loongi_json_int(h)};
    return is_size(w) && is_size(h);
}

static bool read_size(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    const loong_json_t *edge =
        is_size(value) ? value : loongi_json_get(value, "shortest_edge");
    if (!p->is_clip || edge == NULL) {
        return read_exact_size(p, value, to);
    }
    *(target_t *)to = (target_t){loongi_json_int(edge), 0, 0};
    return is_size(edge) && loongi_json_count(value) <= 1;
}

#define AT(member) offsetof(loong_image_processor_t, member)
#define SIZE "a size of 1 to 65536, or {\"height\": ., \"width\": .}"

/* Fields without a reader change nothing here. */
static const struct {
    const char *key;
    bool (*read)(const loong_image_processor_t *p, const loong_json_t *value,
                 void *to);
    size_t offset;
    const char *allowed;
} fields[] = {
    {"do_resize", read_bool, AT(resize), "true or false"},
    {"size", read_size, AT(size), SIZE " or, CLIP's, {\"shortest_edge\": .}"},
    {"resample", read_filter, AT(filter), "2 (bilinear) or 3 (bicubic)"},
    {"do_center_crop", read_crop, AT(crop), "false or, CLIP's, true"},
    {"crop_size", read_exact_size, AT(crop_size), SIZE},
    {"do_rescale", read_bool, AT(rescale), "true or false"},
    {"rescale_factor", read_number, AT(factor), "a number"},
    {"do_normalize", read_bool, AT(normalize), "true or false"},
    {"image_mean", read_channels, AT(mean), "a number or 3"},
    {"image_std", read_divisors, AT(deviation), "a number or 3, none 0"},
    {"image_processor_type", NULL, 0, NULL},
    {"feature_extractor_type", NULL, 0, NULL},
    {"processor_class", NULL, 0, NULL},
    {"auto_map", NULL, 0, NULL},
    {"_valid_processor_keys", NULL, 0, NULL},
    {"do_convert_rgb", NULL, 0, NULL},
    {"data_format", NULL, 0, NULL},
    {"input_data_format", NULL, 0, NULL},
    {"return_tensors", NULL, 0, NULL},
    {"device", NULL, 0, NULL},
    {"default_to_square", NULL, 0, NULL},
};

/* A field that is not known is an error, unless it is off. */
static loong_status_t read_field(const char *path, const char *key,
                                 const loong_json_t *value,
                                 loong_image_processor_t *p)
{
    int64_t f = 0;
    bool off = loongi_json_kind(value) == LOONG_JSON_NULL;
    while (f < LOONG_COUNT_OF(fields) && strcmp(fields[f].key, key) != 0) {
        f++;
    }
    if (f == LOONG_COUNT_OF(fields)) {
        off = off || (loongi_json_kind(value) == LOONG_JSON_BOOL &&
                      !loongi_json_bool(value));
        LOONG_CHECK(p->ctx, off, LOONG_ERR_UNSUPPORTED,
                    "%s: %s is not done by this image processor", path, key);
    } else if (!off && fields[f].read != NULL) {
        LOONG_CHECK(
            p->ctx, fields[f].read(p, value, (char *)p + fields[f].offset),
            LOONG_ERR_FORMAT, "%s: %s is not %s", path, key, fields[f].allowed);
    }
    return LOONG_OK;
}

/* "CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPFeatureExtractor". */
static loong_status_t find_kind(loong_context_t *ctx, const char *path,
                                const loong_json_t *json, int64_t *kind_p)
{
    static const char *const endings[] = {"ImageProcessor",
                                          "ImageProcessorFast",
                                          "FeatureExtractor"};
    const loong_json_t *type = loongi_json_get(json, "image_processor_type");
    const char *name = loongi_json_string(
        type != NULL ? type : loongi_json_get(json, "feature_extractor_type"));
    for (int64_t k = 0; k < LOONG_COUNT_OF(kinds); k++) {
        size_t length = strlen(kinds[k].name);
        bool begins = strncmp(name, kinds[k].name, length) == 0;
        for (int64_t e = 0; begins && e < LOONG_COUNT_OF(endings); e++) {
            if (strcmp(name + length, endings[e]) == 0) {
                *kind_p = k;
                return LOONG_OK;
            }
        }
    }
    return LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED,
                      "%s: image_processor_type is \"%s\", of which ViT, CLIP "
                      "and SiglipImageProcessor are read",
                      path, name);
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

static loong_status_t read_fields(loong_context_t *ctx, const char *path,
                                  const loong_json_t *json,
                                  loong_image_processor_t *p)
{
    int64_t kind = 0;
    LOONG_CHECK(ctx, loongi_json_kind(json) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s: is not an object", path);
    LOONG_TRY(find_kind(ctx, path, json, &kind));
    *p = kinds[kind].defaults;
    p->ctx = ctx;
    for (const loong_json_member_t *it = loongi_json_first(json); it != NULL;
         it = loongi_json_next(json, it)) {
        LOONG_TRY(read_field(path, loongi_json_member_key(it),
                             loongi_json_member_value(it), p));
    }
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
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*processor), "image processor", &processor);
    if (status == LOONG_OK) {
        status = read_fields(ctx, path, json, processor);
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
    p->size = p->is_clip ? (target_t){image_size, 0, 0}
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
