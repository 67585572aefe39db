/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of the files of image and video processors. Called by processor.c.
 * Read processor.h before. */
#include <stddef.h>
#include <string.h>

#include "base.h"
#include "json.h"
#include "processor.h"

/* ---- fields: readers take a value to its member; false: it is none --------*/

enum { LARGEST = 65536 };

static bool read_bool(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    (void)p;
    *(bool *)to = loongi_json_bool(value);
    return loongi_json_kind(value) == LOONG_JSON_BOOL;
}

static bool read_tile(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    return read_bool(p, value, to) && (p->is_tiled || !*(bool *)to);
}

static bool read_tiles(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    enum { MOST = 1024 };
    int64_t count = loongi_json_int(value);
    *(int64_t *)to = count;
    return count > 0 && (count <= MOST || loongi_processor_is_padded(p));
}

/* [[height, width], ...] in pixels; frames of a video are not cut, whatever the
 * file of the pictures beside it says. */
static bool read_grids(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    grids_t *grids = to;
    if (p->video.form != LOONG_VIDEO_NONE) {
        return loongi_json_kind(value) == LOONG_JSON_ARRAY;
    }
    grids->count = loongi_json_count(value);
    bool good = p->is_gridded && grids->count > 0 && grids->count <= MOST_GRIDS;
    for (int64_t k = 0; good && k < 2 * grids->count; k++) {
        const loong_json_t *pair = loongi_json_at(value, k / 2);
        int64_t side = loongi_json_int(loongi_json_at(pair, k % 2));
        good = loongi_json_count(pair) == 2 && side > 0 && side <= LARGEST;
        grids->of[k / 2][k % 2] = (int32_t)side;
    }
    return good;
}

static bool read_slices(const loong_image_processor_t *p,
                        const loong_json_t *value, void *to)
{
    return read_tiles(p, value, to) && loongi_processor_is_sliced(p);
}

static bool read_slice(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    bool sliced = loongi_processor_is_sliced(p); /* before it is set */
    *(int64_t *)to = loongi_json_int(value);
    return sliced && *(int64_t *)to > 0 && *(int64_t *)to <= LARGEST;
}

/* The encoder merges 2 x 2 patches, and the projector does; or that alone. */
static bool read_downsampling(const loong_image_processor_t *p,
                              const loong_json_t *value, void *to)
{
    bool twice = strcmp(loongi_json_string(value), "16x") == 0;
    *(int64_t *)to = twice ? 4 : 2;
    return loongi_processor_is_sliced(p) &&
           (twice || strcmp(loongi_json_string(value), "4x") == 0);
}

static bool read_crop(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    return read_bool(p, value, to) && (p->is_clip || !*(bool *)to);
}

/* So that tensors of several pictures are one, which none are here. */
static bool read_padding(const loong_image_processor_t *p,
                         const loong_json_t *value, void *to)
{
    (void)to;
    return p->is_gridded || p->video.form != LOONG_VIDEO_NONE ||
           !loongi_json_bool(value);
}

static bool read_resize(const loong_image_processor_t *p,
                        const loong_json_t *value, void *to)
{
    return read_bool(p, value, to) &&
           (!loongi_processor_is_native(p) || *(bool *)to);
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

/* Of videos. */
static bool read_sampling(const loong_image_processor_t *p,
                          const loong_json_t *value, void *to)
{
    return read_bool(p, value, to) && p->video.form != LOONG_VIDEO_NONE;
}

static bool read_cap(const loong_image_processor_t *p,
                     const loong_json_t *value, void *to)
{
    return read_sampling(p, value, to) &&
           (p->video.max_tokens > 0 || !*(bool *)to);
}

static bool read_rate(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    return read_number(p, value, to) && *(double *)to > 0 &&
           p->video.form != LOONG_VIDEO_NONE;
}

static bool read_frames(const loong_image_processor_t *p,
                        const loong_json_t *value, void *to)
{
    enum { MOST = 1 << 24 };
    *(int64_t *)to = loongi_json_int(value);
    return *(int64_t *)to > 0 && *(int64_t *)to <= MOST &&
           p->video.form != LOONG_VIDEO_NONE;
}

static bool read_seconds(const loong_image_processor_t *p,
                         const loong_json_t *value, void *to)
{
    return read_frames(p, value, to) && p->video.form == LOONG_VIDEO_SECONDS;
}

/* Frames of a second that are put together as one picture. */
static bool read_stack(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    (void)to;
    return loongi_json_int(value) == 1 && p->video.form == LOONG_VIDEO_SLICES;
}

/* true: half of the distance between two frames; false: 0. */
static bool read_shift(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    bool known = p->video.form == LOONG_VIDEO_FRAMES;
    if (loongi_json_kind(value) == LOONG_JSON_BOOL) {
        *(double *)to = loongi_json_bool(value) ? -1.0 : 0.0;
        return known;
    }
    return read_number(p, value, to) && *(double *)to >= 0 && known;
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
    *(target_t *)to = (target_t){.width = loongi_json_int(w),
                                 .height = loongi_json_int(h)};
    return is_size(w) && is_size(h);
}

static bool read_count(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    bool native = loongi_processor_is_native(p); /* before it is set */
    *(int64_t *)to = loongi_json_int(value);
    return native && loongi_json_int(value) > 0 &&
           loongi_json_int(value) <= LARGEST;
}

static bool read_pixels(const loong_image_processor_t *p,
                        const loong_json_t *value, void *to)
{
    bool bounded = loongi_processor_is_native(p) &&
                   loongi_processor_is_bounded(p); /* before it is set */
    *(int64_t *)to = loongi_json_int(value);
    return bounded && *(int64_t *)to > 0;
}

static bool read_patches(const loong_image_processor_t *p,
                         const loong_json_t *value, void *to)
{
    bool counted = p->size.max_patches > 0;
    *(int64_t *)to = loongi_json_int(value);
    return counted && *(int64_t *)to > 0;
}

/* Of Kimi's publisher: bounds of a frame do not concern pictures. */
static bool read_frame_patches(const loong_image_processor_t *p,
                               const loong_json_t *value, void *to)
{
    int64_t kept = *(int64_t *)to;
    bool good = p->is_media && read_tiles(p, value, to);
    *(int64_t *)to = p->video.form == LOONG_VIDEO_NONE ? kept : *(int64_t *)to;
    return good;
}

static bool read_media(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    return p->is_media && read_count(p, value, to);
}

static bool read_media_rate(const loong_image_processor_t *p,
                            const loong_json_t *value, void *to)
{
    return p->is_media && read_number(p, value, to) && *(double *)to > 0;
}

static bool read_clock(const loong_image_processor_t *p,
                       const loong_json_t *value, void *to)
{
    (void)to;
    return p->is_media &&
           strcmp(loongi_json_string(value), "hh:mm:ss.fff") == 0;
}

/* Qwen2-VL's bounds are called edges. */
static bool read_bounds(const loong_json_t *value, target_t *to)
{
    to->min_pixels = loongi_json_int(loongi_json_get(value, "shortest_edge"));
    to->max_pixels = loongi_json_int(loongi_json_get(value, "longest_edge"));
    return to->min_pixels > 0 && to->max_pixels > 0;
}

static bool read_size(const loong_image_processor_t *p,
                      const loong_json_t *value, void *to)
{
    if (loongi_processor_is_bounded(p)) {
        return read_bounds(value, to);
    }
    if (loongi_processor_is_padded(p)) {
        const loong_json_t *side = loongi_json_get(value, "max_height");
        ((target_t *)to)->side_patches = loongi_json_int(side);
        return is_size(side) &&
               loongi_json_int(side) ==
                   loongi_json_int(loongi_json_get(value, "max_width"));
    }
    if (loongi_processor_is_sliced(p)) {
        return false;
    }
    const loong_json_t *edge =
        is_size(value) ? value : loongi_json_get(value, "shortest_edge");
    if (!p->is_clip || edge == NULL) {
        return read_exact_size(p, value, to);
    }
    *(target_t *)to = (target_t){.edge = loongi_json_int(edge)};
    return is_size(edge) && loongi_json_count(value) <= 1;
}

#define AT(member) offsetof(loong_image_processor_t, member)
#define SIZE "a size of 1 to 65536, or {\"height\": ., \"width\": .}"
#define COUNT "a number above 0, of Qwen2VL, Siglip2, Kimi_K25 or MiniCPMV4_6"
#define SIDE "a number of 1 to 65536, of Qwen2VL, Siglip2, Kimi_K25 or " \
             "MiniCPMV4_6"
#define VIDEO "of a video processor"
#define MEDIA_SIDE "a number of 1 to 65536, of Kimi's media_proc_cfg"
#define MEDIA "a number above 0, of Kimi's media_proc_cfg"

/* Fields without a reader change nothing here. */
#define SKIPPED(key_) {key_, NULL, 0, NULL}
static const struct {
    const char *key;
    bool (*read)(const loong_image_processor_t *p, const loong_json_t *value,
                 void *to);
    size_t offset;
    const char *allowed;
} fields[] = {
    {"do_resize", read_resize, AT(resize),
     "true, or false where all pictures have one size"},
    {"size", read_size, AT(size), NULL}, /* by class */
    {"min_pixels", read_pixels, AT(size.min_pixels), COUNT},
    {"max_pixels", read_pixels, AT(size.max_pixels), COUNT},
    {"max_num_patches", read_patches, AT(size.max_patches),
     "a number above 0, of a Siglip2ImageProcessor"},
    {"patch_size", read_count, AT(cut.patch), SIDE},
    {"merge_size", read_count, AT(cut.merge), SIDE},
    {"temporal_patch_size", read_count, AT(cut.frames), SIDE},
    {"resample", read_filter, AT(filter), "2 (bilinear) or 3 (bicubic)"},
    {"do_center_crop", read_crop, AT(crop), "false or, CLIP's, true"},
    {"crop_size", read_exact_size, AT(crop_size), SIZE},
    {"do_rescale", read_bool, AT(rescale), "true or false"},
    {"rescale_factor", read_number, AT(factor), "a number"},
    {"do_convert_rgb", read_bool, AT(convert_rgb), "true or false"},
    {"do_normalize", read_bool, AT(normalize), "true or false"},
    {"image_mean", read_channels, AT(mean), "a number or 3"},
    {"image_std", read_divisors, AT(deviation), "a number or 3, none 0"},
    {"do_sample_frames", read_sampling, AT(video.sample), "false or, " VIDEO
     ", true"},
    {"fps", read_rate, AT(video.fps), "a number above 0, " VIDEO},
    {"num_frames", read_frames, AT(video.num_frames), "a number, " VIDEO},
    {"min_frames", read_frames, AT(video.min_frames), "a number, " VIDEO},
    {"max_frames", read_frames, AT(video.max_frames), "a number, " VIDEO},
    {"draw_on_frames", read_sampling, AT(video.draw), "true or false, " VIDEO},
    {"cap_pixels_per_frame", read_cap, AT(video.cap),
     "false or, of Qwen2VL's and Qwen3VL's videos, true"},
    {"max_video_tokens", read_frames, AT(video.max_tokens), "a number, "
     VIDEO},
    {"max_duration", read_seconds, AT(video.max_seconds),
     "a number of seconds, of GLM-4.1V's videos"},
    {"initial_shift", read_shift, AT(video.shift),
     "true, false or a number, of InternVL's videos"},
    SKIPPED("font"), SKIPPED("video_processor_type"), SKIPPED("max_image_size"),
    SKIPPED("return_metadata"), SKIPPED("image_processor_type"),
    SKIPPED("image_seq_length"), SKIPPED("feature_extractor_type"),
    SKIPPED("processor_class"), SKIPPED("auto_map"),
    SKIPPED("_valid_processor_keys"), SKIPPED("data_format"),
    SKIPPED("input_data_format"), SKIPPED("return_tensors"), SKIPPED("device"),
    SKIPPED("default_to_square"), SKIPPED("config_type"),
    {"in_patch_limit", read_tiles, AT(max_tiles), MEDIA},
    {"in_patch_limit_each_frame", read_frame_patches, AT(max_tiles), MEDIA},
    {"patch_limit_on_one_side", read_media, AT(size.side_patches), MEDIA_SIDE},
    {"merge_kernel_size", read_media, AT(cut.merge), MEDIA_SIDE},
    {"temporal_merge_kernel_size", read_media, AT(cut.frames), MEDIA_SIDE},
    {"sample_fps", read_media_rate, AT(video.fps), MEDIA},
    {"timestamp_mode", read_clock, 0, "\"hh:mm:ss.fff\", of Kimi's"},
    {"crop_to_patches", read_tile, AT(tile), "false or, GotOcr2's, true"},
    {"force_image_size", read_exact_size, AT(size), SIZE},
    {"dynamic_image_size", read_tile, AT(tile), "true or false"},
    {"use_thumbnail", read_bool, AT(thumbnail), "true or false"},
    {"min_dynamic_patch", read_tiles, AT(min_tiles), "a number of 1 to 1024"},
    {"max_dynamic_patch", read_tiles, AT(max_tiles), "a number of 1 to 1024"},
    {"min_patches", read_tiles, AT(min_tiles), "a number of 1 to 1024"},
    {"max_patches", read_tiles, AT(max_tiles), "a number of 1 to 1024"},
    {"max_slice_nums", read_slices, AT(max_tiles),
     "a number of 1 to 1024, of MiniCPMV4_6"},
    {"scale_resolution", read_slice, AT(size.slice),
     "a number of 1 to 65536, of MiniCPMV4_6"},
    {"slice_mode", read_tile, AT(tile), "true or false, of MiniCPMV4_6"},
    {"downsample_mode", read_downsampling, AT(cut.merge),
     "\"16x\" or \"4x\", of MiniCPMV4_6"},
    {"use_image_id", read_bool, AT(numbered), "true or false"},
    {"max_num_frames", read_frames, AT(video.max_frames), "a number, " VIDEO},
    {"stack_frames", read_stack, 0, "1, of MiniCPMV4_6's videos"},
    {"image_grid_pinpoints", read_grids, AT(grids),
     "a list of heights and widths, of LLaVA-OneVision's"},
    {"do_pad", read_padding, 0, "false or, LLaVA-OneVision's, true"},
};

/* What "size" may be, of its class. */
static const char *allowed_size(const loong_image_processor_t *p)
{
    return loongi_processor_is_bounded(p)
               ? "{\"shortest_edge\": ., \"longest_edge\": .}, numbers of "
                 "pixels above 0"
           : loongi_processor_is_padded(p)
               ? "{\"max_height\": ., \"max_width\": .}, two equal numbers"
           : loongi_processor_is_sliced(p) ? "allowed: scale_resolution says it"
           : p->is_clip                    ? SIZE ", or {\"shortest_edge\": .}"
                                           : SIZE;
}

loong_status_t loongi_processor_read_field(loong_image_processor_t *p,
                                           const char *path, const char *key,
                                           const loong_json_t *value)
{
    int64_t f = 0;
    bool off = loongi_json_kind(value) == LOONG_JSON_NULL;
    char text[LOONG_JSON_BRIEF];
    loongi_json_brief(p->ctx, value, text);
    while (f < LOONG_COUNT_OF(fields) && strcmp(fields[f].key, key) != 0) {
        f++;
    }
    if (f == LOONG_COUNT_OF(fields)) {
        off = off || (loongi_json_kind(value) == LOONG_JSON_BOOL &&
                      !loongi_json_bool(value));
        LOONG_CHECK(p->ctx, off || p->is_model, LOONG_ERR_UNSUPPORTED,
                    "%s: %s = %s is not done by this image processor: false, "
                    "or no such field",
                    path, key, text);
    } else if (!off && fields[f].read != NULL) {
        const char *allowed = fields[f].allowed != NULL ? fields[f].allowed
                                                        : allowed_size(p);
        LOONG_CHECK(p->ctx,
                    fields[f].read(p, value, (char *)p + fields[f].offset),
                    LOONG_ERR_FORMAT, "%s: %s = %s is not %s", path, key, text,
                    allowed);
    }
    return LOONG_OK;
}
