/* SPDX-License-Identifier: Apache-2.0
 *
 * An image processor: what its file says. */
#ifndef LOONG_IMAGE_PROCESSOR_H
#define LOONG_IMAGE_PROCESSOR_H

#include "base.h"
#include "json.h"
#include "loong/image.h"
#include "loong/video.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CHANNELS = 3 };

/* A size: bounds of all pixels or of patches, where proportions are kept and
 * sides are multiples of patch x merge; patches at most, of a side and in all,
 * where what is missing of such is black; a shortest edge; the side of a square
 * that has as many pixels as a slice; or exact. What is not meant is 0. */
typedef struct target {
    int64_t edge, width, height;
    int64_t min_pixels, max_pixels;
    int64_t max_patches;
    int64_t side_patches, all_patches;
    int64_t slice;
} target_t;

/* Which frames of a video are read, and for how many pixels; a processor of
 * pictures has none. */
typedef struct video_rules {
    loong_video_form_t form;
    bool sample; /* else all frames are read */
    double fps;  /* 0: not said */
    int64_t num_frames, min_frames, max_frames; /* likewise */
    int64_t max_seconds; /* of longer ones as many frames as of these */
    double shift;                               /* of the first; < 0: half */
    bool even; /* from the first one to the last, at most all there are */
    bool cap;                                   /* pixels of a frame */
    int64_t max_tokens;                         /* by which it is capped */
    /* Frames are made a multiple of it, the last one repeated, and their
     * number need not be whole before (ERNIE 4.5 VL); 0: neither. */
    int64_t multiple;
    bool draw; /* the time of each frame into it */
} video_rules_t;

/* Sizes of pictures that are cut into tiles, in pixels and then in tiles. */
enum { MOST_GRIDS = 256 };
typedef struct grids {
    int64_t count;
    int32_t of[MOST_GRIDS][2]; /* rows, columns */
} grids_t;

struct loong_image_processor {
    loong_context_t *ctx;
    bool bounds_all; /* bounds are of all frames together; else of each */
    bool is_clip; /* crops, and "size": 224 is a shortest edge */
    loong_patch_cut_t cut; /* that the file states; of bounded pixels */
    bool resize, crop, rescale, normalize;
    bool convert_rgb; /* transparent pixels become white */
    bool is_tiled, tile; /* it may cut pictures into tiles, and does */
    bool thumbnail;      /* the whole picture stands behind several */
    bool is_model;       /* its file says much else of the model */
    /* By Kimi's publisher's code: sizes are made as PIL does it, and what
     * stands for a picture in a text stands for a chunk of frames. */
    bool is_media;
    int64_t min_tiles, max_tiles; /* while read, also size.all_patches */
    bool is_gridded; /* tiles are of grids; else of numbers between these */
    grids_t grids;
    bool numbered; /* of slices: the picture's number stands in front of it */
    target_t size, crop_size;
    video_rules_t video;
    loong_image_filter_t filter;
    double factor;
    double mean[CHANNELS], deviation[CHANNELS];
    float values[CHANNELS][256]; /* of a byte of a channel, in the end */
};

/* Classes and what they take for fields that the file leaves out; those with a
 * form are of videos. */
typedef struct loong_processor_kind {
    const char *name;
    loong_image_processor_t defaults;
} loong_processor_kind_t;
extern const loong_processor_kind_t loongi_processor_kinds[];
extern const int64_t loongi_processor_num_kinds;

/* So many times the other may one side of a picture or a frame be that is
 * resized between bounds. */
enum { LONGEST_SIDE = 200 };

/* Sides of pixels as multiples of patch x merge, between the bounds, of frames
 * of that size, by the processor's smart_resize; 0: it refuses them. */
void loongi_bounded_size(const loong_image_processor_t *p,
                         const target_t *bounds, const int64_t of[2],
                         int64_t frames, int64_t size[2]);

/* loong_image_processor_size for a model that cuts its pictures so, whose
 * patches a processor without a size of its own counts. */
void loongi_processor_size(const loong_image_processor_t *p,
                           const loong_patch_cut_t *cut, int64_t width,
                           int64_t height, int64_t size[2]);

/* The size after resizing, before a crop. */
void loongi_resized_size(const loong_image_processor_t *p,
                         const loong_patch_cut_t *cut, int64_t width,
                         int64_t height, int64_t size[2]);

/* Of each of the slices that a picture is cut into. */
void loongi_slice_size(const loong_image_processor_t *p,
                       const loong_image_tiles_t *slices, int64_t width,
                       int64_t height, int64_t size[2]);

/* Takes the value of a field. Errors: LOONG_ERR_FORMAT, and
 * LOONG_ERR_UNSUPPORTED of one that no processor here has, with the path. */
LOONG_NODISCARD loong_status_t loongi_processor_read_field(
    loong_image_processor_t *p, const char *path, const char *key,
    const loong_json_t *value);

/* Frames of a part of a text. */
static inline int64_t loongi_patch_frames(const loong_image_processor_t *p)
{
    return LOONG_MAX(p->cut.frames, 1) * LOONG_MAX(p->cut.chunk, 1);
}

/* Of all that chooses frames, and where they, or slices of pictures, stand in
 * texts. */
uint64_t loongi_processor_hash(const loong_image_processor_t *p);

/* Fills what follows from a video's size, frames and rate. Errors:
 * LOONG_ERR_FORMAT, with the path. */
LOONG_NODISCARD loong_status_t loongi_video_choose(
    loong_context_t *ctx, const char *path, const loong_image_processor_t *p,
    loong_video_t *video);

/* Of a picture or a frame before it is filled up to its size. */
void loongi_seen_size(const loong_image_processor_t *p, int64_t width,
                      int64_t height, int64_t size[2]);

/* The grids of a processor that has some, in tiles: those that it read, or all
 * of one to six tiles a side. Errors: LOONG_ERR_UNSUPPORTED, with the path. */
LOONG_NODISCARD loong_status_t loongi_settle_grids(const char *path,
                                                   loong_image_processor_t *p);

/* What the model's own patches and tiles are by the fields of a file. Errors:
 * as above, and LOONG_ERR_FORMAT where a bound is above its other one. */
LOONG_NODISCARD loong_status_t loongi_settle_processor(
    const char *path, loong_image_processor_t *p);

/* Whether it makes something of a picture of that size; p NULL: of all. Errors:
 * LOONG_ERR_FORMAT, with the name, the size and the limit. */
LOONG_NODISCARD loong_status_t loongi_processor_check_narrow(
    loong_context_t *ctx, const loong_image_processor_t *p, const char *name,
    int64_t width, int64_t height);
/* What the pictures that it refuses so depend on; 0: there are none. */
int64_t loongi_processor_narrowest(const loong_image_processor_t *p);

/* loong_image_resize as torch does it with bytes: rows first, weights of 16
 * bits. */
LOONG_NODISCARD loong_status_t loongi_image_resize_as_torch(
    loong_context_t *ctx, const loong_image_t *image, const int64_t size[2],
    loong_image_filter_t filter, loong_image_t *resized);

/* At another size, as the class' own backend does it: torch or PIL. */
LOONG_NODISCARD loong_status_t loongi_processor_resize(
    loong_context_t *ctx, const loong_image_processor_t *p,
    const loong_image_t *image, const int64_t size[2], loong_image_t *resized);

/* Of the pixels of a picture, to frames [first, last) of each patch. */
void loongi_process_frame(const loong_image_processor_t *p,
                          const loong_image_t *image,
                          const loong_patch_cut_t *cut, int64_t first,
                          int64_t last, float *patches);

/* Its values, in numpy's order of types: bytes are multiplied in 64 bits, then
 * rounded to 32; the rest is of 32 bits. */
void loongi_processor_tabulate(loong_image_processor_t *p);

/* A cut that the processor's file states is the model's. */
LOONG_NODISCARD loong_status_t loongi_processor_check_cut(
    loong_context_t *ctx, const loong_image_processor_t *p,
    const loong_patch_cut_t *cut);

static inline bool
loongi_processor_is_bounded(const loong_image_processor_t *p)
{
    return p->size.max_pixels > 0 || p->size.max_patches > 0;
}
static inline bool loongi_processor_is_padded(const loong_image_processor_t *p)
{
    return p->size.side_patches > 0;
}
/* Its tiles have proportions of their own, others than the whole picture. */
static inline bool loongi_processor_is_sliced(const loong_image_processor_t *p)
{
    return p->size.slice > 0;
}
/* Pictures keep sizes of their own, of whole blocks. */
static inline bool loongi_processor_is_native(const loong_image_processor_t *p)
{
    return loongi_processor_is_bounded(p) || loongi_processor_is_padded(p) ||
           loongi_processor_is_sliced(p);
}

#ifdef __cplusplus
}
#endif

#endif
