/* SPDX-License-Identifier: Apache-2.0
 *
 * An image processor: what its file says. */
#ifndef LOONG_IMAGE_PROCESSOR_H
#define LOONG_IMAGE_PROCESSOR_H

#include "base.h"
#include "loong/image.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CHANNELS = 3 };

/* A size: bounds of all pixels, where proportions are kept and sides are
 * multiples of patch x merge; a shortest edge; or exact. What is not meant is
 * 0. */
typedef struct target {
    int64_t edge, width, height;
    int64_t min_pixels, max_pixels;
} target_t;

struct loong_image_processor {
    loong_context_t *ctx;
    bool is_clip; /* crops, and "size": 224 is a shortest edge */
    loong_patch_cut_t cut; /* that the file states; of bounded pixels */
    bool resize, crop, rescale, normalize;
    bool convert_rgb; /* transparent pixels become white */
    bool is_tiled, tile; /* it may cut pictures into tiles, and does */
    int64_t min_tiles, max_tiles;
    target_t size, crop_size;
    loong_image_filter_t filter;
    double factor;
    double mean[CHANNELS], deviation[CHANNELS];
    float values[CHANNELS][256]; /* of a byte of a channel, in the end */
};

static inline bool
loongi_processor_is_bounded(const loong_image_processor_t *p)
{
    return p->size.max_pixels > 0;
}

#ifdef __cplusplus
}
#endif

#endif
