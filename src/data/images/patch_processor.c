/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor of pictures for models that read patches: from a picture and
 * its class to rows of a micro-batch, of which patch_fields.c makes arrays.
 * Called by the loader. Read loong/image.h before. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "loong/image.h"
#include "loong/video.h"
#include "patch_fields.h"
#include "processor.h"
#include "source_class.h"

enum { PICTURES_SUM, MASKED_SUM };
static const char *const normalisers[] = {
    [PICTURES_SUM] = "pictures", [MASKED_SUM] = "masked_patches", NULL};

loong_picture_rows_t loongi_picture_grids(const loong_patch_params_t *p,
                                          int64_t frames, int64_t chunk,
                                          int64_t width, int64_t height)
{
    loong_picture_rows_t rows = {0};
    int64_t merge = loongi_patch_merge(p);
    rows.width = width / p->cut.patch;
    rows.height = height / p->cut.patch;
    int64_t patches = rows.width * rows.height;
    if (patches > 0) {
        int64_t each = patches + (p->class_token ? 1 : 0);
        int64_t block = loongi_patch_block_rows(p);
        rows.grids = (frames + chunk - 1) / chunk;
        rows.frames = chunk;
        rows.all_frames = frames;
        rows.encoder = frames * each;
        rows.made = rows.encoder / block;
        rows.stride = chunk * each / block;
        rows.lead = p->class_token && !p->sends_class_token ? 1 : 0;
        rows.sent = rows.grids * (each / block - rows.lead);
        rows.text = rows.grids * (each - rows.lead) / (merge * merge);
        rows.columns = rows.width / merge;
        rows.moments = 1;
        if (p->latents > 0) {
            rows.text = rows.grids * p->latents;
            rows.columns = p->latents;
        }
    }
    return rows;
}

/* Of so many times a picture or frame that is cut into slices. */
static loong_picture_rows_t slice_rows(const loong_patch_params_t *p,
                                       const loong_image_processor_t *by,
                                       int64_t times, const int64_t of[2])
{
    int64_t size[2];
    loong_image_tiles_t tiles =
        loong_image_processor_tiles(by, of[0], of[1], false);
    loongi_processor_size(by, &p->cut, of[0], of[1], size);
    loong_picture_rows_t whole =
        loongi_picture_grids(p, times, 1, size[0], size[1]);
    if (tiles.count == 1 || whole.grids == 0) {
        return whole;
    }
    loongi_slice_size(by, &tiles, of[0], of[1], size);
    loong_picture_rows_t rows = loongi_picture_grids(
        p, times * (tiles.count - 1), 1, size[0], size[1]);
    rows.tiles = tiles.count;
    rows.whole.height = whole.height;
    rows.whole.width = whole.width;
    rows.whole.text = whole.text / times;
    rows.whole.columns = whole.columns;
    rows.grids += whole.grids;
    rows.all_frames += whole.all_frames;
    rows.encoder += whole.encoder;
    rows.made += whole.made;
    rows.sent += whole.sent;
    rows.text += whole.text;
    return rows;
}

/* The product is of 32 bits, as torch has it. */
static loong_picture_rows_t video_rows(const loong_patch_params_t *p,
                                       const loong_item_t *video)
{
    int64_t size[2] = {0, 0};
    int64_t each = LOONG_MAX(p->cut.frames, 1);
    int64_t frames = (video->frames + each - 1) / each;
    int64_t chunk = loongi_patch_chunk(p);
    if (p->video != NULL && loongi_processor_is_sliced(p->video)) {
        loong_picture_rows_t rows =
            slice_rows(p, p->video, video->frames, video->size);
        rows.moments = rows.grids;
        rows.step = 1.0F;
        return rows;
    }
    if (p->video != NULL) {
        loong_video_size(p->video, video->size[0], video->size[1],
                         video->frames, size);
    }
    loong_picture_rows_t rows =
        loongi_picture_grids(p, frames, chunk, size[0], size[1]);
    rows.moments = LOONG_MAX(rows.grids / LOONG_MAX(p->merge_frames, 1), 1);
    rows.text /= LOONG_MAX(p->merge_frames, 1);
    rows.step = p->tokens_per_second > 0
                    ? (float)p->tokens_per_second * (float)video->seconds
                    : 1.0F;
    if (p->packed_tiles > 0) {
        loongi_video_pack(&rows);
    }
    return rows;
}

loong_picture_rows_t loong_picture_rows(const void *params,
                                        const loong_item_t *picture)
{
    const loong_patch_params_t *p = params;
    if (picture->frames > 0) {
        return video_rows(p, picture);
    }
    int64_t width = picture->size[0];
    int64_t height = picture->size[1];
    if (p->processor != NULL && loongi_processor_is_sliced(p->processor) &&
        width > 0 && height > 0) {
        return slice_rows(p, p->processor, 1, picture->size);
    }
    int64_t size[2] = {p->image_size, p->image_size};
    loong_image_tiles_t tiles = {1, 1, 1, false};
    if (!loongi_pictures_all_equal(p)) {
        tiles = loong_image_processor_tiles(p->processor, width, height,
                                            picture->several);
        loongi_processor_size(p->processor, &p->cut, width, height, size);
    }
    loong_picture_rows_t rows =
        loongi_picture_grids(p, tiles.count, 1, size[0], size[1]);
    if (p->packed_tiles > 0) {
        loongi_picture_pack(p, picture, &tiles, &rows);
    }
    return rows;
}

/* Of a picture, or of a tile of it. */
static loong_status_t check_size(loong_context_t *ctx,
                                 const loong_patch_params_t *p,
                                 const char *name, const int64_t from[2])
{
    int64_t size[2];
    int64_t unit = LOONG_MAX(p->cut.patch * loongi_patch_merge(p), 1);
    loongi_processor_size(p->processor, &p->cut, from[0], from[1], size);
    LOONG_CHECK(ctx,
                !loongi_grids_all_equal(p) ||
                    (size[0] == p->image_size && size[1] == size[0]),
                LOONG_ERR_CONFIG,
                "%s: becomes %" PRId64 " x %" PRId64 " pixels, the model takes "
                "%" PRId64 " x %" PRId64,
                name, size[0], size[1], p->image_size, p->image_size);
    LOONG_TRY(loongi_processor_check_narrow(ctx, p->processor, name, from[0],
                                            from[1]));
    LOONG_CHECK(ctx,
                loongi_grids_all_equal(p) ||
                    (size[0] % unit == 0 && size[1] % unit == 0),
                LOONG_ERR_CONFIG,
                "%s: becomes %" PRId64 " x %" PRId64 " pixels, the model takes "
                "multiples of %" PRId64,
                name, size[0], size[1], unit);
    return LOONG_OK;
}

/* Whatever its own size, where all become the same. Of pictures that are not
 * resized each may have been made for the encoder, and decides. */
static loong_status_t check_all_sizes(loong_context_t *ctx,
                                      const loong_patch_params_t *p,
                                      const char *data)
{
    static const int64_t wide[2] = {64, 32}, high[2] = {32, 64};
    int64_t a[2], b[2];
    char name[128];
    loongi_processor_size(p->processor, &p->cut, wide[0], wide[1], a);
    loongi_processor_size(p->processor, &p->cut, high[0], high[1], b);
    if (memcmp(a, b, sizeof(a)) != 0) {
        LOONG_CHECK(ctx, !loongi_grids_all_equal(p) || !p->processor->resize,
                    LOONG_ERR_CONFIG,
                    "data '%s': the image processor keeps proportions (size "
                    "has shortest_edge %" PRId64 " and do_center_crop is "
                    "false), the model takes %" PRId64 " x %" PRId64
                    " pixels: do_center_crop leaves square ones as they are",
                    data, p->processor->size.edge, p->image_size,
                    p->image_size);
        return LOONG_OK;
    }
    snprintf(name, sizeof(name), "data '%s': every picture", data);
    return check_size(ctx, p, name, wide);
}

loong_status_t loong_patch_check(loong_context_t *ctx,
                                 const loong_patch_params_t *params,
                                 const char *name)
{
    static const int64_t example[2] = {640, 320};
    char picture[128];
    LOONG_TRY(loongi_processor_check_cut(ctx, params->processor, &params->cut));
    if (!loongi_processor_is_native(params->processor)) {
        return check_all_sizes(ctx, params, name);
    }
    snprintf(picture, sizeof(picture),
             "data '%s': a picture of 640 x 320 pixels", name);
    return check_size(ctx, params, picture, example);
}

static loong_status_t check(loong_context_t *ctx, const void *config,
                            const char *data)
{
    const loong_patch_params_t *p = config;
    LOONG_CHECK(ctx,
                p->pictures >= 1 && p->pictures <= loongi_picture_capacity(p),
                LOONG_ERR_CONFIG,
                "data '%s': %" PRId64 " pictures of a micro-batch, %" PRId64
                " rows hold %" PRId64,
                data, p->pictures, p->rows, loongi_picture_capacity(p));
    LOONG_CHECK(ctx,
                p->merge_frames == 0 || p->video == NULL ||
                    loong_video_processor_multiple(p->video) %
                            p->merge_frames == 0,
                LOONG_ERR_CONFIG,
                "data '%s': merge_frames %" PRId64 " of the projector: the "
                "video processor makes frames a multiple of %" PRId64,
                data, p->merge_frames,
                loong_video_processor_multiple(p->video));
    LOONG_CHECK(ctx,
                !loongi_processor_is_sliced(p->processor) ||
                    (!p->class_token && p->merge_frames == 0 &&
                     p->packed_tiles == 0),
                LOONG_ERR_CONFIG,
                "data '%s': the image processor cuts pictures into slices, "
                "which go to no encoder with class tokens and to no projector "
                "that merges frames or packs tiles",
                data);
    if (loongi_pictures_all_equal(p)) {
        loong_picture_rows_t size = loongi_picture_each(p);
        LOONG_CHECK(ctx,
                    p->mask_ratio == 0.0 || loongi_masked_patches(p, &size) > 0,
                    LOONG_ERR_CONFIG,
                    "data '%s': mask_ratio %g masks none of the %" PRId64
                    " patches of a picture",
                    data, p->mask_ratio, loongi_picture_patches(&size));
    }
    return check_all_sizes(ctx, p, data);
}

static loong_status_t begin(const void *config, loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    items->vocab_size = INT32_MAX; /* of texts that it would refuse */
    items->sizes = !loongi_pictures_all_equal(p);
    return loongi_items_picture(items, p->image_size, p->image_size);
}

/* The one picture with pixels, and its label. */
static loong_status_t find_items(const loong_patch_params_t *p,
                                 const loong_items_t *items,
                                 const loong_item_t **picture_p,
                                 const loong_item_t **label_p)
{
    int pictures = 0;
    *label_p = NULL;
    for (int i = 0; i < items->count; i++) {
        const loong_item_t *item = &items->item[i];
        if (item->type == LOONG_ITEM_IMAGE && item->pixels != NULL) {
            *picture_p = item;
            pictures++;
        } else if (item->type == LOONG_ITEM_LABEL) {
            *label_p = item;
        }
    }
    LOONG_CHECK(items->ctx,
                pictures == 1 && (*label_p != NULL || p->num_classes == 0),
                LOONG_ERR_CONFIG,
                "the model reads pictures with their classes, its data has "
                "something else");
    return LOONG_OK;
}

/* Of the picture among the items, or of padding. */
static loong_picture_rows_t size_of(const loong_patch_params_t *p,
                                    const loong_items_t *items)
{
    loong_picture_rows_t none = {0};
    if (loongi_pictures_all_equal(p)) {
        return loongi_picture_each(p);
    }
    for (int i = 0; items != NULL && i < items->count; i++) {
        const loong_item_t *item = &items->item[i];
        if (item->type == LOONG_ITEM_IMAGE && item->pixels != NULL) {
            return loong_picture_rows(p, item);
        }
    }
    return none;
}

static size_t row_size(const void *config, const loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    loong_picture_rows_t size = size_of(p, items);
    return sizeof(loong_patch_row_t) +
           (size_t)(loongi_picture_patches(&size) * loongi_patch_elements(p)) *
               sizeof(float);
}

static loong_status_t judge(const void *config, const loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    for (int i = 0; i < items->count && p->num_classes > 0; i++) {
        const loong_item_t *label = &items->item[i];
        LOONG_CHECK(items->ctx,
                    label->type != LOONG_ITEM_LABEL ||
                        label->label < p->num_classes,
                    LOONG_ERR_CONFIG,
                    "%s: is of class %" PRId64 ", the model's num_classes "
                    "allows 0 to %" PRId64,
                    items->item[0].name, label->label, p->num_classes - 1);
    }
    return LOONG_OK;
}

static loong_status_t keep(const void *config, int64_t draw,
                           const loong_items_t *items, void *memory,
                           double sums[LOONG_MAX_NORMALISERS])
{
    const loong_patch_params_t *p = config;
    const loong_item_t *picture = NULL;
    const loong_item_t *label = NULL;
    loong_patch_row_t *row = memory;
    if (items == NULL) {
        *row = (loong_patch_row_t){.label = -1, .draw = -1};
        return LOONG_OK;
    }
    LOONG_TRY(find_items(p, items, &picture, &label));
    LOONG_TRY(judge(p, items));
    LOONG_TRY(picture->frames == 0
                  ? check_size(items->ctx, p, picture->name, picture->size)
                  : LOONG_OK);
    loong_image_t image = {.width = picture->size[0],
                           .height = picture->size[1],
                           .pixels = picture->pixels,
                           .several = picture->several};
    memcpy(image.clear, picture->clear, sizeof(image.clear));
    row->label = label != NULL ? label->label : -1;
    row->draw = draw;
    row->size = loong_picture_rows(p, picture);
    sums[PICTURES_SUM] += label != NULL ? 1.0 : 0.0;
    sums[MASKED_SUM] += (double)loongi_masked_patches(p, &row->size);
    loong_status_t status =
        picture->frames > 0
            ? loong_video_process(items->ctx, p->video, picture, &p->cut,
                                  row->patches)
            : loong_image_process(items->ctx, p->processor, &image, &p->cut,
                                  row->patches);
    if (status != LOONG_OK) {
        loongi_error_note(items->ctx, "picture %s", picture->name);
    }
    return status;
}

/* Pixels of a side of a square picture that takes as many rows as each of a
 * full micro-batch may; one pixel is enlarged to the smallest there is. */
static int64_t example_side(const loong_patch_params_t *p)
{
    int64_t most = p->rows / p->pictures;
    int64_t patches = LOONG_MAX(most - (p->class_token ? 1 : 0), 0);
    int64_t side = (int64_t)sqrt((double)patches) / loongi_patch_merge(p) *
                   loongi_patch_merge(p) * p->cut.patch;
    if (loongi_grids_all_equal(p)) {
        return p->image_size;
    }
    const loong_item_t picture = {.type = LOONG_ITEM_IMAGE,
                                  .size = {side, side}};
    return side > 0 && loong_picture_rows(p, &picture).encoder <= most ? side
                                                                       : 1;
}

/* Any picture of any class. */
loong_status_t loongi_patch_example(const void *config, int64_t i,
                                    loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    int64_t side = example_side(p);
    LOONG_TRY(loongi_items_picture(items, side, side));
    loong_item_t *item = items->item;
    for (int64_t k = 0; k < 3 * side * side; k++) {
        item[0].pixels[k] = (uint8_t)((i + k) * 7919 >> 3);
    }
    item[0].name = "a picture of a prediction";
    item[1].label = p->num_classes > 0 ? i % p->num_classes : 0;
    return LOONG_OK;
}

const loong_processor_t loong_patch_processor = {sizeof(loong_patch_processor),
                                                 "picture",
                                                 1u << LOONG_ITEM_IMAGE |
                                                     1u << LOONG_ITEM_LABEL,
                                                 normalisers,
                                                 check,
                                                 begin,
                                                 row_size,
                                                 keep,
                                                 loongi_patch_example,
                                                 loongi_patch_bind,
                                                 loongi_patch_fill,
                                                 judge};
