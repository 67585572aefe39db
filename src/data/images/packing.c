/* SPDX-License-Identifier: Apache-2.0
 *
 * How rows of tiles become those of a text, by the size of the picture alone,
 * and the arrays that a projector packs them by. Called by patch_processor.c
 * and, through loong_packing_processor, by src/run_data. Read
 * loong_picture_packing_t before. */
#include <math.h>
#include <string.h>

#include "field_table.h"
#include "loong/packing.h"
#include "patch_fields.h"

enum { TAPS = 4 };

/* Python's a // b of numbers above 0. */
static int64_t floor_divide(double a, double b)
{
    double quotient = (a - fmod(a, b)) / b;
    return (int64_t)(floor(quotient) +
                     (quotient - floor(quotient) > 0.5 ? 1.0 : 0.0));
}

/* What the margins leave of a sheet, on the axis that has some: a picture's
 * side at the scale of the other one. */
static void take_window(int64_t side, int64_t other, int64_t sheet_other,
                        int64_t sheet, int64_t *from_p, int64_t *window_p)
{
    double scaled = (double)side * ((double)sheet_other / (double)other);
    int64_t fits = (int64_t)(nearbyint(scaled * 1e7) / 1e7);
    *from_p = (sheet - fits) / 2;
    *window_p = sheet - 2 * *from_p;
}

void loongi_picture_pack(const loong_patch_params_t *p,
                         const loong_item_t *picture,
                         const loong_image_tiles_t *tiles,
                         loong_picture_rows_t *rows)
{
    loong_picture_packing_t *k = &rows->pack;
    int64_t width = picture->size[0], height = picture->size[1];
    *k = (loong_picture_packing_t){.packed = true, .size = {1, 0}};
    if (tiles->count > 1) {
        k->tiles[0] = tiles->rows;
        k->tiles[1] = tiles->columns;
        k->window[0] = tiles->rows * rows->height;
        k->window[1] = tiles->columns * rows->width;
        bool wide = (double)width / (double)height >
                    (double)k->window[1] / (double)k->window[0];
        if (wide) {
            take_window(height, width, k->window[1], k->window[0], &k->from[0],
                        &k->window[0]);
        } else {
            take_window(width, height, k->window[0], k->window[1], &k->from[1],
                        &k->window[1]);
        }
        int64_t most = p->packed_tiles * rows->height * rows->height;
        double ratio =
            sqrt((double)(k->window[0] * k->window[1]) / (double)most);
        for (int i = 0; i < 2; i++) {
            k->size[i] = ratio > 1.1 ? floor_divide((double)k->window[i], ratio)
                                     : k->window[i];
        }
    }
    rows->text = rows->width * rows->height + k->size[0] * (k->size[1] + 1);
    rows->columns = rows->text;
}

void loongi_video_pack(loong_picture_rows_t *rows)
{
    int64_t high = (rows->height + 1) / 2, wide = (rows->width + 1) / 2;
    rows->pack = (loong_picture_packing_t){
        .packed = true, .video = true, .size = {high, wide}};
    rows->text = rows->grids * high * wide + 1;
    rows->columns = rows->text;
    rows->moments = 1; /* of a text: all are one line */
}

/* A row of a text: the learned one, or a sum. */
typedef struct packed {
    bool learned;
    int64_t row[TAPS];
    double weight[TAPS];
} packed_t;

/* In the sheet: the grid that has a patch, and its row there. */
static int64_t row_of(const loong_picture_rows_t *of, int64_t y, int64_t x)
{
    int64_t grid = 1 + y / of->height * of->pack.tiles[1] + x / of->width;
    return (grid * of->height + y % of->height) * of->width + x % of->width;
}

static packed_t video_row(const loong_picture_rows_t *of, int64_t i)
{
    const int64_t *size = of->pack.size;
    int64_t each = size[0] * size[1];
    packed_t row = {.learned = i == of->grids * each};
    const loong_position_table_t high = {of->height, LOONG_BILINEAR, false,
                                         false};
    const loong_position_table_t wide = {of->width, LOONG_BILINEAR, false,
                                         false};
    loong_taps_t down = loongi_taps_of(&high, i % each / size[1], size[0]);
    loong_taps_t across = loongi_taps_of(&wide, i % size[1], size[1]);
    for (int t = 0; t < TAPS && !row.learned; t++) {
        row.row[t] =
            (i / each * of->height + down.row[t / 2]) * of->width +
            across.row[t % 2];
        row.weight[t] = down.weight[t / 2] * across.weight[t % 2];
    }
    return row;
}

/* A block of each of the frames that become row i; those of a picture are
 * one. */
static packed_t merged_row(const loong_patch_params_t *p,
                           const loong_picture_rows_t *of, int64_t i)
{
    int64_t merge = loongi_patch_merge(p);
    int64_t each = of->height * of->width / (merge * merge);
    packed_t row = {false, {0}, {0}};
    for (int64_t f = 0; f < p->merge_frames; f++) {
        int64_t grid = i / each * p->merge_frames + f;
        row.row[f] = LOONG_MIN(grid, of->grids - 1) * each + i % each;
        row.weight[f] = 1.0;
    }
    return row;
}

static packed_t packed_row(const loong_patch_params_t *p,
                           const loong_picture_rows_t *of, int64_t i)
{
    const loong_picture_packing_t *k = &of->pack;
    packed_t row = {.row = {i}, .weight = {1.0}};
    if (p->merge_frames > 0) {
        return merged_row(p, of, i);
    }
    int64_t front = of->height * of->width;
    if (k->video) {
        return video_row(of, i);
    }
    if (i < front) {
        return row;
    }
    int64_t y = (i - front) / (k->size[1] + 1);
    int64_t x = (i - front) % (k->size[1] + 1);
    row.learned = x == k->size[1];
    if (row.learned) {
        return row;
    }
    const loong_position_table_t high = {k->window[0], LOONG_BILINEAR, false,
                                         false};
    const loong_position_table_t wide = {k->window[1], LOONG_BILINEAR, false,
                                         false};
    loong_taps_t down = loongi_taps_of(&high, y, k->size[0]);
    loong_taps_t across = loongi_taps_of(&wide, x, k->size[1]);
    for (int t = 0; t < TAPS; t++) {
        row.row[t] = row_of(of, k->from[0] + down.row[t / 2],
                            k->from[1] + across.row[t % 2]);
        row.weight[t] = down.weight[t / 2] * across.weight[t % 2];
    }
    return row;
}

/* ---- the arrays ---------------------------------------------------------- */

typedef struct field_kind {
    loong_field_type_t type;
    int64_t each; /* elements of a row; 0: merge_frames */
    void (*put)(const loong_field_t *field, int64_t at, int64_t each,
                const packed_t *row, int64_t before);
} field_kind_t;

static void put_taps(const loong_field_t *field, int64_t at, int64_t each,
                     const packed_t *row, int64_t before)
{
    for (int64_t t = 0; t < each && !row->learned; t++) {
        ((int32_t *)field->to)[at * each + t] =
            (int32_t)(row->weight[t] != 0.0 ? before + row->row[t] : before);
    }
}

static void put_weights(const loong_field_t *field, int64_t at, int64_t each,
                        const packed_t *row, int64_t before)
{
    (void)before;
    for (int64_t t = 0; t < each && !row->learned; t++) {
        if (field->dtype == LOONG_F64) {
            ((double *)field->to)[at * each + t] = row->weight[t];
        } else {
            ((float *)field->to)[at * each + t] = (float)row->weight[t];
        }
    }
}

static void put_line_end(const loong_field_t *field, int64_t at, int64_t each,
                         const packed_t *row, int64_t before)
{
    (void)before, (void)each;
    ((int32_t *)field->to)[at] = row->learned;
}

static const field_kind_t fields[] = {
    {{"pack_taps", LOONG_I32, LOONG_I32}, TAPS, put_taps},
    {{"pack_weights", LOONG_F32, LOONG_F64}, TAPS, put_weights},
    {{"is_line_end", LOONG_I32, LOONG_I32}, 1, put_line_end},
    {{"tap_order", LOONG_I32, LOONG_I32}, TAPS, NULL},
    {{"frame_rows", LOONG_I32, LOONG_I32}, 0, put_taps},
};

static const loong_field_table_t table = {
    "packed picture", fields, sizeof(fields[0]), LOONG_COUNT_OF(fields)};

static int64_t each_of(const loong_patch_params_t *p, const field_kind_t *kind)
{
    return kind->each > 0 ? kind->each : p->merge_frames;
}

static loong_status_t bind(loong_context_t *ctx, const void *config,
                           loong_field_t *field)
{
    const loong_patch_params_t *p = config;
    if (p->latents > 0) {
        return loongi_latents_bind(ctx, p, field);
    }
    LOONG_TRY(loongi_field_find(ctx, &table, field));
    const field_kind_t *kind = field->kind;
    int64_t count = p->packed_rows * each_of(p, kind);
    return loongi_field_check_count(ctx, field, count,
                                    kind->put == NULL ? field->count <= count
                                                      : field->count == count);
}

/* Made-up pictures of predictions may be more than there is room for. */
static loong_status_t fill(loong_context_t *ctx, const void *config,
                           void *const *rows, const loong_field_t *field)
{
    const loong_patch_params_t *p = config;
    loong_field_t bound = *field;
    LOONG_TRY(bind(ctx, config, &bound));
    if (p->latents > 0) {
        loongi_latents_fill(p, rows, &bound);
        return LOONG_OK;
    }
    const field_kind_t *kind = bound.kind;
    int64_t at = 0, before = 0;
    int64_t merge = loongi_patch_merge(p) / LOONG_MAX(p->cut.inner, 1);
    for (int64_t i = 0; i < bound.count && kind->put == NULL; i++) {
        ((int32_t *)bound.to)[i] = (int32_t)i;
    }
    if (kind->put == NULL) {
        return LOONG_OK;
    }
    memset(bound.to, 0, (size_t)bound.count * loong_dtype_size(bound.dtype));
    for (int64_t k = 0; k < p->pictures && rows[k] != NULL; k++) {
        const loong_picture_rows_t *of = rows[k];
        for (int64_t i = 0; at + of->text <= p->packed_rows && i < of->text;
             i++) {
            packed_t row = packed_row(p, of, i);
            kind->put(&bound, at + i, each_of(p, kind), &row, before);
        }
        at += of->text;
        before += of->sent / (merge * merge);
    }
    return LOONG_OK;
}

/* ---- what is kept of a picture ------------------------------------------- */

static const char *const normalisers[] = {NULL};

static loong_status_t check(loong_context_t *ctx, const void *config,
                            const char *data)
{
    (void)ctx, (void)config, (void)data;
    return LOONG_OK;
}

static loong_status_t begin(const void *config, loong_items_t *items)
{
    (void)config;
    items->vocab_size = INT32_MAX;
    items->sizes = true;
    return LOONG_OK;
}

static size_t row_size(const void *config, const loong_items_t *items)
{
    (void)config, (void)items;
    return sizeof(loong_picture_rows_t);
}

static loong_status_t keep(const void *config, int64_t draw,
                           const loong_items_t *items, void *row,
                           double sums[LOONG_MAX_NORMALISERS])
{
    (void)draw, (void)sums;
    memset(row, 0, sizeof(loong_picture_rows_t));
    for (int i = 0; items != NULL && i < items->count; i++) {
        if (items->item[i].type == LOONG_ITEM_IMAGE) {
            *(loong_picture_rows_t *)row =
                loong_picture_rows(config, &items->item[i]);
        }
    }
    return LOONG_OK;
}

const loong_processor_t loong_packing_processor = {
    sizeof(loong_packing_processor),
    "packed picture",
    1u << LOONG_ITEM_IMAGE,
    normalisers,
    check,
    begin,
    row_size,
    keep,
    loongi_patch_example,
    bind,
    fill,
    NULL};
