/* SPDX-License-Identifier: Apache-2.0
 *
 * The image processors of transformers, from their preprocessor_config.json;
 * what they do is in process.c. Created by src/run_data/open_data.c. Read
 * processor.h before. */
#include <inttypes.h>
#include <string.h>

#include "base.h"
#include "json.h"
#include "processor.h"

/* The class of pictures or videos that has this name; -1: none. */
static int64_t kind_named(const char *name, size_t length, bool videos)
{
    for (int64_t k = 0; k < loongi_processor_num_kinds; k++) {
        bool of_videos = loongi_processor_kinds[k].defaults.video.form !=
                         LOONG_VIDEO_NONE;
        const char *own = loongi_processor_kinds[k].name;
        if (of_videos == videos && strlen(own) == length &&
            strncmp(own, name, length) == 0) {
            return k;
        }
    }
    return -1;
}

/* The fields of Kimi's publisher, whose file names no class. */
static const loong_json_t *media_of(const loong_json_t *json)
{
    const loong_json_t *media = loongi_json_get(json, "media_proc_cfg");
    return loongi_json_kind(media) == LOONG_JSON_OBJECT ? media : NULL;
}

static bool is_internvl_chat(const loong_json_t *json)
{
    return strcmp(loongi_json_string(loongi_json_get(json, "model_type")),
                  "internvl_chat") == 0;
}

/* "CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPFeatureExtractor", or
 * the config.json of an internvl_chat. */
static loong_status_t find_kind(loong_context_t *ctx, const char *path,
                                const loong_json_t *json, int64_t *kind_p)
{
    static const char *const endings[] = {"ImageProcessor",
                                          "ImageProcessorFast",
                                          "FeatureExtractor"};
    const loong_json_t *type = loongi_json_get(json, "image_processor_type");
    const char *name = loongi_json_string(
        type != NULL ? type : loongi_json_get(json, "feature_extractor_type"));
    if (is_internvl_chat(json) || media_of(json) != NULL) {
        const char *own = media_of(json) != NULL ? "Kimi_K25Media"
                                                 : "InternVLChat";
        *kind_p = kind_named(own, strlen(own), false);
        return LOONG_OK;
    }
    for (int64_t e = 0; e < LOONG_COUNT_OF(endings); e++) {
        const char *end = strstr(name, endings[e]);
        if (end != NULL && strcmp(end, endings[e]) == 0) {
            *kind_p = kind_named(name, (size_t)(end - name), false);
            if (*kind_p >= 0) {
                return LOONG_OK;
            }
        }
    }
    return LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED,
                      "%s: image_processor_type is \"%s\", of which ViT, CLIP, "
                      "Siglip, Siglip2, GotOcr2, LlavaOnevision, Qwen2VL, "
                      "Ernie4_5_VLMoe, Glm4v, Kimi_K25 and "
                      "MiniCPMV4_6ImageProcessor are read",
                      path, name);
}

/* Of videos: by the file, else the one that is asked for. */
static loong_status_t find_video_kind(loong_context_t *ctx, const char *path,
                                      const loong_json_t *json,
                                      const char *class_name, int64_t *kind_p)
{
    static const char ending[] = "VideoProcessor";
    const loong_json_t *type = loongi_json_get(json, "video_processor_type");
    if (is_internvl_chat(json) || media_of(json) != NULL) {
        const char *own = media_of(json) != NULL ? "Kimi_K25Media"
                                                 : "InternVLChat";
        *kind_p = kind_named(own, strlen(own), true);
        return LOONG_OK;
    }
    const char *name = type != NULL ? loongi_json_string(type) : class_name;
    const char *end = type != NULL ? strstr(name, ending) : NULL;
    size_t length = end != NULL ? (size_t)(end - name) : strlen(name);
    *kind_p = kind_named(name, length, true);
    LOONG_CHECK(ctx,
                *kind_p >= 0 && (type == NULL ||
                                 (end != NULL && strcmp(end, ending) == 0)),
                LOONG_ERR_UNSUPPORTED,
                "%s: video_processor_type is \"%s\", of which Qwen2VL, Qwen3VL"
                ", Kimi_K25, LlavaOnevision, Ernie4_5_VLMoe, Glm4v, "
                "MiniCPMV4_6 and InternVLVideoProcessor are read",
                path != NULL ? path : "videos", name);
    return LOONG_OK;
}

/* whole: the processor of texts, pictures and videos, beside others as
 * transformers 5 writes it; it may be the same object. videos: the class that
 * is meant where none is named; NULL: it is of pictures. */
static loong_status_t read_fields(loong_context_t *ctx, const char *path,
                                  const loong_json_t *whole, const char *videos,
                                  loong_image_processor_t *p)
{
    const loong_json_t *own = loongi_json_get(
        whole, videos != NULL ? "video_processor" : "image_processor");
    if (own == NULL && videos != NULL) { /* as in transformers */
        own = loongi_json_get(whole, "image_processor");
    }
    const loong_json_t *json = own != NULL ? own : whole;
    int64_t kind = 0;
    LOONG_CHECK(ctx, loongi_json_kind(json) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s: is not an object", path);
    LOONG_TRY(videos != NULL
                  ? find_video_kind(ctx, path, json, videos, &kind)
                  : find_kind(ctx, path, json, &kind));
    *p = loongi_processor_kinds[kind].defaults;
    p->ctx = ctx;
    if (loongi_processor_is_padded(p)) { /* by the names that files have */
        p->max_tiles = p->size.all_patches;
        p->cut.frames = p->cut.chunk;
    }
    json = media_of(json) != NULL ? media_of(json) : json;
    for (const loong_json_member_t *it = loongi_json_first(json); it != NULL;
         it = loongi_json_next(json, it)) {
        LOONG_TRY(loongi_processor_read_field(p, path,
                                              loongi_json_member_key(it),
                                              loongi_json_member_value(it)));
    }
    /* That of InternVL has them cut pictures, whatever their own file says. */
    const char *class_name =
        loongi_json_string(loongi_json_get(whole, "processor_class"));
    p->tile = p->tile ||
              (p->is_tiled && strcmp(class_name, "InternVLProcessor") == 0);
    p->resize = p->resize || p->tile; /* tiles have that size */
    /* These are stronger than others, as in the classes. */
    for (int i = 0; i < 3; i++) {
        static const char *const keys[] = {"min_pixels", "max_pixels",
                                           "in_patch_limit_each_frame"};
        const loong_json_t *value = loongi_json_get(json, keys[i]);
        if (value != NULL) {
            LOONG_TRY(loongi_processor_read_field(p, path, keys[i], value));
        }
    }
    LOONG_TRY(loongi_settle_processor(path, p));
    loongi_processor_tabulate(p);
    return LOONG_OK;
}

static loong_status_t create(loong_context_t *ctx, const char *path,
                             const char *videos,
                             loong_image_processor_t **processor_p)
{
    loong_json_t *json = NULL;
    loong_image_processor_t *processor = NULL;
    LOONG_TRY(loongi_json_load(ctx, path, &json));
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*processor), "image processor", &processor);
    if (status == LOONG_OK) {
        status = read_fields(ctx, path, json, videos, processor);
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
loong_image_processor_create(loong_context_t *ctx, const char *path,
                             loong_image_processor_t **processor_p)
{
    return create(ctx, path, NULL, processor_p);
}

loong_status_t
loong_video_processor_create(loong_context_t *ctx, const char *path,
                             const char *class_name,
                             loong_image_processor_t **processor_p)
{
    int64_t kind = 0;
    loong_image_processor_t *p = NULL;
    if (path != NULL) {
        return create(ctx, path, class_name, processor_p);
    }
    LOONG_TRY(find_video_kind(ctx, NULL, NULL, class_name, &kind));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "video processor", &p));
    *p = loongi_processor_kinds[kind].defaults;
    p->ctx = ctx;
    loongi_processor_tabulate(p);
    *processor_p = p;
    return LOONG_OK;
}

loong_status_t
loong_image_processor_create_default(loong_context_t *ctx,
                                     const char *class_name, int64_t image_size,
                                     loong_image_processor_t **processor_p)
{
    int64_t kind = kind_named(class_name, strlen(class_name), false);
    LOONG_CHECK(ctx,
                kind >= 0 &&
                    (image_size > 0 ||
                     loongi_processor_is_native(
                         &loongi_processor_kinds[kind].defaults)),
                LOONG_ERR_ARG, "no image processor %s of %" PRId64 " pixels",
                class_name, image_size);
    loong_image_processor_t *p = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "image processor", &p));
    *p = loongi_processor_kinds[kind].defaults;
    p->ctx = ctx;
    const target_t exact = {.width = image_size, .height = image_size};
    if (!loongi_processor_is_native(p)) {
        p->size = p->is_clip ? (target_t){.edge = image_size} : exact;
        p->crop_size = exact;
    }
    loong_status_t status = loongi_settle_grids(class_name, p);
    if (status != LOONG_OK) {
        loong_image_processor_destroy(&p);
        return status;
    }
    loongi_processor_tabulate(p);
    *processor_p = p;
    return LOONG_OK;
}

bool loong_image_class_is_sliced(const char *class_name)
{
    int64_t kind = kind_named(class_name, strlen(class_name), false);
    return kind >= 0 &&
           loongi_processor_is_sliced(&loongi_processor_kinds[kind].defaults);
}

void loong_image_processor_destroy(loong_image_processor_t **processor)
{
    if (*processor != NULL) {
        loongi_free((*processor)->ctx, *processor);
        *processor = NULL;
    }
}
