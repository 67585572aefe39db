/* SPDX-License-Identifier: Apache-2.0
 *
 * What an image processor does to a picture: resize, tiles, crop, rescale,
 * normalise; then patches. Called by patch_processor.c. Read processor.h
 * before. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "patch_place.h"
#include "processor.h"

void loongi_processor_tabulate(loong_image_processor_t *p)
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

/* Where the crop begins: half of what is too much, rounded down, so that a
 * picture that is too small has its larger border before it. */
static int64_t crop_from(int64_t has, int64_t wanted)
{
    int64_t more = has - wanted;
    return more >= 0 ? more / 2 : -((1 - more) / 2);
}

/* Where a row of a patch goes: so many numbers, every step-th one. */
typedef struct row_to {
    float *at;
    int64_t count, step;
} row_to_t;

/* One row of a patch, of one channel; black outside of the picture. */
static void copy_row(const loong_image_t *image, const float values[256],
                     int64_t x, const uint8_t *row, const row_to_t *to)
{
    for (int64_t i = 0; i < to->count; i++, x++) {
        bool inside = row != NULL && x >= 0 && x < image->width;
        to->at[i * to->step] = values[inside ? row[x * CHANNELS] : 0];
    }
}

/* Tiles of width x height pixels, of an image whose pixel (left, top) comes
 * first; to [rows,columns,CHANNELS,frames,height,width], tiles in blocks. The
 * picture is frames [first, last) of them. */
typedef struct tiling {
    int64_t left, top, rows, columns, width, height;
    loong_patch_cut_t cut;
    int64_t first, last;
} tiling_t;

static void unfold(const loong_image_processor_t *p, const loong_image_t *image,
                   const tiling_t *t, float *to)
{
    int64_t pixels = t->width * t->height;
    int64_t step = t->cut.channels_last ? CHANNELS : 1;
    const loong_patch_grid_t grid = {t->rows, t->columns, t->cut.merge,
                                     t->cut.window, t->cut.inner};
    for (int64_t tile = 0; tile < t->rows * t->columns; tile++) {
        loong_patch_place_t at = loongi_patch_place(&grid, tile);
        int64_t x = t->left + at.column * t->width;
        int64_t first = t->top + at.row * t->height;
        for (int c = 0; c < CHANNELS; c++) {
            int64_t plane = step > 1 ? 1 : t->cut.frames * pixels;
            float *frame = to + c * plane + t->first * pixels;
            for (int64_t y = 0; y < t->height; y++) {
                const uint8_t *row = NULL;
                if (first + y >= 0 && first + y < image->height) {
                    row = image->pixels +
                          (first + y) * image->width * CHANNELS + c;
                }
                const row_to_t own = {frame + y * t->width * step, t->width,
                                      step};
                copy_row(image, p->values[c], x, row, &own);
            }
            for (int64_t f = t->first + 1; f < t->last; f++) {
                memcpy(frame + (f - t->first) * pixels, frame,
                       (size_t)pixels * sizeof(*to));
            }
        }
        to += CHANNELS * t->cut.frames * pixels;
    }
}

/* The cut of a picture of width x height pixels into patches. */
static void cut_patches(const loong_patch_cut_t *cut, int64_t width,
                        int64_t height, tiling_t *t)
{
    t->rows = height / cut->patch;
    t->columns = width / cut->patch;
    t->width = t->height = cut->patch;
    t->cut.patch = cut->patch;
    t->cut.window = cut->window;
    t->cut.channels_last = cut->channels_last;
    t->cut.inner = cut->inner;
    t->cut.merge = LOONG_MAX(cut->merge, 1);
    t->cut.frames = LOONG_MAX(cut->frames, 1);
}

void loongi_process_frame(const loong_image_processor_t *p,
                          const loong_image_t *image,
                          const loong_patch_cut_t *cut, int64_t first,
                          int64_t last, float *patches)
{
    tiling_t t = {.first = first, .last = last};
    cut_patches(cut, image->width, image->height, &t);
    unfold(p, image, &t, patches);
}

loong_status_t loongi_processor_check_cut(loong_context_t *ctx,
                                          const loong_image_processor_t *p,
                                          const loong_patch_cut_t *cut)
{
    const loong_patch_cut_t *own = &p->cut;
    bool same = (own->patch == 0 || cut->patch == own->patch) &&
                (own->merge == 0 || cut->merge == own->merge) &&
                (own->frames == 0 || cut->frames == own->frames);
    LOONG_CHECK(ctx, cut->patch >= 0, LOONG_ERR_ARG,
                "patches of %" PRId64 " pixels", cut->patch);
    LOONG_CHECK(ctx,
                same || cut->patch == 0,
                LOONG_ERR_CONFIG,
                "the image processor has patch_size %" PRId64
                ", merge_size %" PRId64 ", temporal_patch_size %" PRId64
                ", the model %" PRId64 ", %" PRId64 ", %" PRId64,
                own->patch, own->merge, own->frames, cut->patch, cut->merge,
                cut->frames);
    LOONG_CHECK(ctx,
                own->chunk == 0 || cut->patch == 0 ||
                    p->video.form == LOONG_VIDEO_NONE ||
                    own->chunk == LOONG_MAX(cut->chunk, 1),
                LOONG_ERR_CONFIG,
                "the video processor has temporal_patch_size %" PRId64
                ", the model chunk_frames %" PRId64,
                own->chunk, cut->chunk);
    return LOONG_OK;
}

loong_status_t loongi_processor_resize(loong_context_t *ctx,
                                       const loong_image_processor_t *p,
                                       const loong_image_t *image,
                                       const int64_t size[2],
                                       loong_image_t *resized)
{
    bool padded = loongi_processor_is_padded(p);
    return (padded || p->video.form != LOONG_VIDEO_NONE) && !p->is_media
               ? loongi_image_resize_as_torch(ctx, image, size, p->filter,
                                              resized)
               : loong_image_resize(ctx, image, size[0], size[1], p->filter,
                                    resized);
}

/* Of a picture or tile of that size, whole where it is not cut. */
static void lay_tiling(const loong_patch_cut_t *cut, const int64_t size[2],
                       tiling_t *t)
{
    t->width = size[0];
    t->height = size[1];
    if (cut->patch > 0) {
        cut_patches(cut, size[0], size[1], t);
        t->last = t->cut.frames;
    }
}

/* A picture that is processed. */
typedef struct job {
    loong_context_t *ctx;
    const loong_image_processor_t *p;
    const loong_patch_cut_t *cut;
    tiling_t tiling; /* of a tile of the picture */
    float *to;       /* moves on */
} job_t;

/* The largest size of its proportions within width x height pixels. */
static void fit(const loong_image_t *image, int64_t *width, int64_t *height)
{
    double wide = (double)*width / (double)image->width;
    double high = (double)*height / (double)image->height;
    if (wide < high) {
        double side = ceil((double)image->height * wide);
        *height = LOONG_MIN((int64_t)side, *height);
    } else {
        double side = ceil((double)image->width * high);
        *width = LOONG_MIN((int64_t)side, *width);
    }
}

/* At so many times the size of a tile, which it fills unless it keeps its
 * proportions in the middle, and all tiles of it. */
static loong_status_t put_tiles(job_t *job, const loong_image_t *image,
                                int64_t columns, int64_t rows, bool keeps)
{
    const loong_image_processor_t *p = job->p;
    tiling_t *t = &job->tiling;
    loong_image_t resized = {0};
    int64_t of[2]; /* a tile */
    loongi_resized_size(p, &t->cut, image->width, image->height, of);
    if (loongi_processor_is_sliced(p)) {
        const loong_image_tiles_t slices = {columns, rows, 0, false};
        if (columns * rows > 1) {
            loongi_slice_size(p, &slices, image->width, image->height, of);
        }
        lay_tiling(job->cut, of, t);
    }
    LOONG_CHECK(job->ctx, of[0] > 0 && of[1] > 0, LOONG_ERR_CONFIG,
                "a picture of %" PRId64 " x %" PRId64 " pixels is too narrow",
                image->width, image->height);
    int64_t width = of[0] * columns, height = of[1] * rows;
    bool padded = loongi_processor_is_padded(p);
    int64_t to[2] = {width, height};
    if (keeps) {
        fit(image, &to[0], &to[1]);
    } else if (padded) {
        loongi_seen_size(p, image->width, image->height, to);
    }
    if (to[0] != image->width || to[1] != image->height) {
        LOONG_TRY(loongi_processor_resize(job->ctx, p, image, to, &resized));
        image = &resized;
    }
    int64_t pixels = t->columns * t->width * t->rows * t->height;
    for (int64_t i = 0; i < columns * rows; i++) {
        t->left = i % columns * of[0] - (width - to[0]) / 2;
        t->top = i / columns * of[1] - (height - to[1]) / 2;
        if (padded) {
            t->left = t->top = 0;
        } else if (p->crop) {
            t->left = crop_from(width, p->crop_size.width);
            t->top = crop_from(height, p->crop_size.height);
        }
        unfold(p, image, t, job->to);
        job->to += pixels * CHANNELS * t->cut.frames;
    }
    loong_image_free(job->ctx, &resized);
    return LOONG_OK;
}

/* Another picture where there are transparent pixels, else the same. */
static loong_status_t make_white(const job_t *job, const loong_image_t *image,
                                 loong_image_t *white)
{
    int64_t pixels = image->width * image->height;
    *white = *image;
    if (!job->p->convert_rgb || image->clear[CHANNELS] == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(job->ctx, (size_t)pixels, CHANNELS,
                            "pixels of a picture", &white->pixels));
    memcpy(white->pixels, image->pixels, (size_t)pixels * CHANNELS);
    for (int64_t i = 0; i < pixels; i++) {
        uint8_t *pixel = white->pixels + i * CHANNELS;
        if (memcmp(pixel, image->clear, CHANNELS) == 0) {
            memset(pixel, 255, CHANNELS);
        }
    }
    return LOONG_OK;
}

/* With a margin of the mean colour that makes it square. */
static loong_status_t make_square(const job_t *job, const loong_image_t *image,
                                  loong_image_t *square)
{
    int64_t side = LOONG_MAX(image->width, image->height);
    int64_t left = (side - image->width) / 2, top = (side - image->height) / 2;
    *square = (loong_image_t){.width = side, .height = side};
    LOONG_TRY(loongi_calloc(job->ctx, (size_t)(side * side), CHANNELS,
                            "pixels of a picture", &square->pixels));
    for (int64_t i = 0; i < side * side * CHANNELS; i++) {
        square->pixels[i] = (uint8_t)(job->p->mean[i % CHANNELS] * 255);
    }
    for (int64_t y = 0; y < image->height; y++) {
        memcpy(square->pixels + ((top + y) * side + left) * CHANNELS,
               image->pixels + y * image->width * CHANNELS,
               (size_t)image->width * CHANNELS);
    }
    return LOONG_OK;
}

/* The tiles of a picture, and the whole one. */
static loong_status_t put_all(job_t *job, const loong_image_t *image)
{
    const loong_image_processor_t *p = job->p;
    loong_image_t square = {0};
    loong_image_tiles_t tiles = loong_image_processor_tiles(
        p, image->width, image->height, image->several);
    if (tiles.whole_first && tiles.count == 1) {
        LOONG_TRY(make_square(job, image, &square));
        loong_status_t status = put_tiles(job, &square, 1, 1, false);
        loong_image_free(job->ctx, &square);
        return status;
    }
    if (tiles.whole_first) {
        LOONG_TRY(put_tiles(job, image, 1, 1, false));
    }
    LOONG_TRY(put_tiles(job, image, tiles.columns, tiles.rows,
                        p->is_gridded));
    return tiles.count > tiles.columns * tiles.rows && !tiles.whole_first
               ? put_tiles(job, image, 1, 1, false)
               : LOONG_OK;
}

loong_status_t loong_image_process(loong_context_t *ctx,
                                   const loong_image_processor_t *processor,
                                   const loong_image_t *image,
                                   const loong_patch_cut_t *cut, float *patches)
{
    loong_image_t white;
    job_t job = {
        ctx,
        processor,
        cut,
        {0, 0, 1, 1, 0, 0, {0, 1, 1, 0, false, 0, 0}, 0, 1},
        patches};
    LOONG_TRY(loongi_processor_check_cut(ctx, processor, cut));
    int64_t size[2];
    loongi_processor_size(processor, cut, image->width, image->height, size);
    lay_tiling(cut, size, &job.tiling);
    LOONG_TRY(make_white(&job, image, &white));
    loong_status_t status = put_all(&job, &white);
    if (white.pixels != image->pixels) {
        loong_image_free(ctx, &white);
    }
    return status;
}
