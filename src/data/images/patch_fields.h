/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the processor of pictures, and the arrays that it fills from
 * them. */
#ifndef LOONG_PATCH_FIELDS_H
#define LOONG_PATCH_FIELDS_H

#include <math.h>

#include "base.h"
#include "loong/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A picture of a micro-batch. */
typedef struct loong_patch_row {
    int64_t label; /* -1: no picture, or one without a label */
    int64_t draw;  /* -1: no picture */
    loong_picture_rows_t size;
    float patches[]; /* of it, grid after grid, row after row */
} loong_patch_row_t;

/* Pictures, or tiles of them. */
static inline bool loongi_grids_all_equal(const loong_patch_params_t *p)
{
    return p->image_size > 0;
}

static inline bool loongi_pictures_all_equal(const loong_patch_params_t *p)
{
    return loongi_grids_all_equal(p) && p->max_tiles <= 1;
}

static inline int64_t loongi_patch_merge(const loong_patch_params_t *p)
{
    return LOONG_MAX(p->cut.merge, 1);
}

/* Of a block of n x n. */
static inline int64_t loongi_patch_block_rows(const loong_patch_params_t *p)
{
    return LOONG_MAX(p->cut.inner * p->cut.inner, 1);
}

/* So many grids of `chunk` frames of width x height pixels; the last has what
 * is left of `frames`. */
loong_picture_rows_t loongi_picture_grids(const loong_patch_params_t *p,
                                          int64_t frames, int64_t chunk,
                                          int64_t width, int64_t height);

/* Where all are equal. */
static inline loong_picture_rows_t
loongi_picture_each(const loong_patch_params_t *p)
{
    return loongi_picture_grids(p, 1, 1, p->image_size, p->image_size);
}

static inline int64_t loongi_picture_patches(const loong_picture_rows_t *size)
{
    return size->tiles > 1 ? size->encoder
                           : size->all_frames * size->width * size->height;
}
/* Of a grid. */
static inline int64_t loongi_picture_frames(const loong_picture_rows_t *size,
                                            int64_t grid)
{
    return LOONG_MIN(size->all_frames - grid * size->frames, size->frames);
}
static inline int64_t loongi_patch_chunk(const loong_patch_params_t *p)
{
    return LOONG_MAX(p->cut.chunk, 1);
}

/* Of a picture. */
static inline int64_t loongi_masked_patches(const loong_patch_params_t *p,
                                            const loong_picture_rows_t *size)
{
    return llround(p->mask_ratio * (double)loongi_picture_patches(size));
}

static inline int64_t loongi_patch_elements(const loong_patch_params_t *p)
{
    return 3 * LOONG_MAX(p->cut.frames, 1) * p->cut.patch * p->cut.patch;
}

/* Pictures that a micro-batch has room for. */
static inline int64_t loongi_picture_capacity(const loong_patch_params_t *p)
{
    return loongi_pictures_all_equal(p)
               ? p->rows / loongi_picture_each(p).encoder
               : p->pictures;
}

/* Of one axis: the rows of a table around a place, and what they weigh. */
typedef struct loong_taps {
    int64_t row[4];
    double weight[4];
} loong_taps_t;
/* Of place `index` of `size` that a side of the table is resampled to. */
loong_taps_t loongi_taps_of(const loong_position_table_t *table, int64_t index,
                            int64_t size);

enum { LOONG_MOST_SIDE = 1000 }; /* of a table of positions */
/* As torch's bilinear interpolation with antialias: what each of a side's
 * positions weighs. */
void loongi_antialias_taps(const loong_position_table_t *table, int64_t index,
                           int64_t size, double weight[LOONG_MOST_SIDE]);

/* How the rows of a picture that is cut so are packed. */
void loongi_picture_pack(const loong_patch_params_t *p,
                         const loong_item_t *picture,
                         const loong_image_tiles_t *tiles,
                         loong_picture_rows_t *rows);

/* Likewise those of a video's grids. */
void loongi_video_pack(loong_picture_rows_t *rows);

/* bind and fill of loong_packing_processor, with latents. */
LOONG_NODISCARD loong_status_t
loongi_latents_bind(loong_context_t *ctx, const loong_patch_params_t *p,
                    loong_field_t *field);
void loongi_latents_fill(const loong_patch_params_t *p, void *const *rows,
                         const loong_field_t *field);

/* Slots of loong_processor_t. */
LOONG_NODISCARD loong_status_t loongi_patch_example(const void *config,
                                                    int64_t i,
                                                    loong_items_t *items);
LOONG_NODISCARD loong_status_t loongi_patch_bind(loong_context_t *ctx,
                                                 const void *config,
                                                 loong_field_t *field);
LOONG_NODISCARD loong_status_t loongi_patch_fill(loong_context_t *ctx,
                                                 const void *config,
                                                 void *const *rows,
                                                 const loong_field_t *field);

#ifdef __cplusplus
}
#endif

#endif
