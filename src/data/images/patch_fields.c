/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of the processor of pictures, from its rows. Called through
 * patch_processor.c. Read the table of fields in loong/image.h before. */
#include "patch_fields.h"

#include <string.h>

#include "field_table.h"
#include "patch_place.h"
#include "rng.h"

/* Rows of padding that see each other. */
static int64_t padding_rows(const loong_patch_params_t *p)
{
    return loongi_grids_all_equal(p) ? loongi_picture_each(p).encoder
                                     : LOONG_PADDING_ROWS;
}

static void put_real(const loong_field_t *field, int64_t i, double value)
{
    if (field->dtype == LOONG_F64) {
        ((double *)field->to)[i] = value;
    } else {
        ((float *)field->to)[i] = (float)value;
    }
}

/* A grid of a picture. */
typedef struct slot {
    const loong_patch_row_t *row;
    int64_t taken; /* pictures up to it */
    int64_t grid;
    int64_t begin, patches; /* its first row, and that of its patches */
    int64_t height, width, plane; /* patches of a frame */
    int64_t from; /* those of the grids in front of it */
    int64_t end;
} slot_t;

static loong_patch_grid_t grid_of(const loong_patch_params_t *p,
                                  const slot_t *s)
{
    return (loong_patch_grid_t){s->height, s->width, loongi_patch_merge(p),
                                p->cut.window, p->cut.inner};
}

/* The slot behind that one; all zero is in front of the first. Made-up pictures
 * of predictions may be more than there is room for, planned ones are not. */
static bool next_slot(const loong_patch_params_t *p, void *const *rows,
                      slot_t *s)
{
    s->grid++;
    s->from += s->end - s->patches;
    while (s->row == NULL || s->grid >= s->row->size.grids) {
        if (s->taken == p->pictures) {
            return false;
        }
        s->row = rows[s->taken++];
        s->grid = 0;
        s->from = 0;
    }
    s->begin = s->end;
    s->patches = s->begin + (p->class_token ? 1 : 0);
    bool whole = loong_picture_is_whole(&s->row->size, s->grid);
    s->height = whole ? s->row->size.whole.height : s->row->size.height;
    s->width = whole ? s->row->size.whole.width : s->row->size.width;
    s->plane = s->width * s->height;
    s->end = s->patches +
             s->plane * loongi_picture_frames(&s->row->size, s->grid);
    if (s->end > p->rows) {
        s->end = s->begin;
        return false;
    }
    return true;
}

static void copy_patches(const float *patches, int64_t count,
                         loong_dtype_t dtype, char *to)
{
    if (dtype == LOONG_F32) {
        memcpy(to, patches, (size_t)count * sizeof(*patches));
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        ((double *)(void *)to)[k] = (double)patches[k];
    }
}

/* Rows whose pixels are wanted. */
static int64_t own_rows(const loong_patch_params_t *p)
{
    return p->count > 0 ? p->count : p->rows;
}

static void fill_patches(const loong_patch_params_t *p, void *const *rows,
                         const loong_field_t *field)
{
    int64_t each = loongi_patch_elements(p); /* of a row */
    size_t size = (size_t)each * loong_dtype_size(field->dtype);
    int64_t limit = p->begin + own_rows(p);
    slot_t s = {0};
    memset(field->to, 0, (size_t)own_rows(p) * size);
    while (next_slot(p, rows, &s)) {
        int64_t first = LOONG_MAX(s.patches, p->begin);
        int64_t end = LOONG_MIN(s.end, limit);
        if (first < end) {
            int64_t from = s.from + first - s.patches;
            copy_patches(s.row->patches + from * each, (end - first) * each,
                         field->dtype,
                         (char *)field->to + (size_t)(first - p->begin) * size);
        }
    }
}

static void fill_positions(const loong_patch_params_t *p, void *const *rows,
                           const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    while (next_slot(p, rows, &s)) {
        loong_patch_grid_t grid = grid_of(p, &s);
        int64_t before = s.patches - s.begin;
        for (int64_t i = s.begin; i < s.patches; i++) {
            to[i] = (int32_t)(i - s.begin);
        }
        for (int64_t i = s.patches; i < s.end; i++) {
            loong_patch_place_t at = loongi_patch_place(&grid, i - s.patches);
            to[i] = (int32_t)(before + at.row * grid.columns + at.column);
        }
    }
    for (int64_t i = s.end; i < p->rows; i++) {
        to[i] = (int32_t)((i - s.end) % padding_rows(p));
    }
}

/* Row and column of each patch. */
static void fill_patch_positions(const loong_patch_params_t *p,
                                 void *const *rows, const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    memset(to, 0, (size_t)field->count * sizeof(*to));
    while (next_slot(p, rows, &s)) {
        loong_patch_grid_t grid = grid_of(p, &s);
        for (int64_t i = s.patches; i < s.end; i++) {
            loong_patch_place_t at =
                loongi_patch_place(&grid, (i - s.patches) % s.plane);
            to[i] = (int32_t)at.row;
            to[p->rows + i] = (int32_t)at.column;
        }
    }
}

/* Of patch i, all of the table. */
static void put_shares(const loong_patch_params_t *p,
                       const loong_patch_grid_t *grid, loong_patch_place_t at,
                       const loong_field_t *field, int64_t i)
{
    double down[LOONG_MOST_SIDE], across[LOONG_MOST_SIDE];
    int64_t side = p->positions.side;
    loongi_antialias_taps(&p->positions, at.row, grid->rows, down);
    loongi_antialias_taps(&p->positions, at.column, grid->columns, across);
    for (int64_t k = 0; k < side * side; k++) {
        put_real(field, i * side * side + k,
                 down[k / side] * across[k % side]);
    }
}

/* Rows of the table, or their weights. */
static void fill_taps(const loong_patch_params_t *p, void *const *rows,
                      const loong_field_t *field, bool weights)
{
    int each = loong_position_side_taps(&p->positions);
    slot_t s = {0};
    memset(field->to, 0,
           (size_t)field->count * loong_dtype_size(field->dtype));
    while (next_slot(p, rows, &s)) {
        loong_patch_grid_t grid = grid_of(p, &s);
        for (int64_t i = s.patches; i < s.end; i++) {
            loong_patch_place_t at =
                loongi_patch_place(&grid, (i - s.patches) % s.plane);
            if (p->positions.antialias) { /* whose taps nobody wants */
                put_shares(p, &grid, at, field, i);
                continue;
            }
            loong_taps_t y = loongi_taps_of(&p->positions, at.row, grid.rows);
            loong_taps_t x =
                loongi_taps_of(&p->positions, at.column, grid.columns);
            for (int k = 0; k < each * each; k++) {
                int64_t to = i * each * each + k;
                if (weights) {
                    put_real(field, to,
                             y.weight[k / each] * x.weight[k % each]);
                    continue;
                }
                ((int32_t *)field->to)[to] =
                    (int32_t)(y.row[k / each] * p->positions.side +
                              x.row[k % each]);
            }
        }
    }
}

static void fill_position_taps(const loong_patch_params_t *p, void *const *rows,
                               const loong_field_t *field)
{
    fill_taps(p, rows, field, false);
}

static void fill_position_weights(const loong_patch_params_t *p,
                                  void *const *rows, const loong_field_t *field)
{
    fill_taps(p, rows, field, true);
}

/* Which frame of its chunk a patch is of, or whether that has several. */
static void fill_frames(const loong_patch_params_t *p, void *const *rows,
                        const loong_field_t *field, bool numbers)
{
    int32_t *to = field->to;
    slot_t s = {0};
    memset(to, 0, (size_t)field->count * sizeof(*to));
    while (next_slot(p, rows, &s)) {
        for (int64_t i = s.patches; i < s.end; i++) {
            to[i] = numbers ? (int32_t)((i - s.patches) / s.plane)
                            : s.end - s.patches > s.plane;
        }
    }
}

static void fill_frame_numbers(const loong_patch_params_t *p, void *const *rows,
                               const loong_field_t *field)
{
    fill_frames(p, rows, field, true);
}

static void fill_is_moving(const loong_patch_params_t *p, void *const *rows,
                           const loong_field_t *field)
{
    fill_frames(p, rows, field, false);
}

/* Of the mean over the frames of a chunk, in the rows of its first one. */
static void fill_means(const loong_patch_params_t *p, void *const *rows,
                       const loong_field_t *field, bool weights)
{
    int64_t chunk = loongi_patch_chunk(p);
    slot_t s = {0};
    memset(field->to, 0,
           (size_t)field->count * loong_dtype_size(field->dtype));
    while (next_slot(p, rows, &s)) {
        int64_t frames = (s.end - s.patches) / s.plane;
        for (int64_t k = 0; k < s.plane * frames; k++) {
            int64_t row = s.patches + k % s.plane;
            int64_t to = row * chunk + k / s.plane;
            if (weights) {
                put_real(field, to, 1.0 / (double)frames);
            } else {
                ((int32_t *)field->to)[to] = (int32_t)(s.patches + k);
            }
        }
    }
}

static void fill_frame_taps(const loong_patch_params_t *p, void *const *rows,
                            const loong_field_t *field)
{
    fill_means(p, rows, field, false);
}

static void fill_frame_weights(const loong_patch_params_t *p, void *const *rows,
                               const loong_field_t *field)
{
    fill_means(p, rows, field, true);
}

static void fill_tap_order(const loong_patch_params_t *p, void *const *rows,
                           const loong_field_t *field)
{
    (void)p;
    (void)rows;
    for (int64_t i = 0; i < field->count; i++) {
        ((int32_t *)field->to)[i] = (int32_t)i;
    }
}

static void fill_ones(const loong_patch_params_t *p, void *const *rows,
                      const loong_field_t *field)
{
    (void)p;
    (void)rows;
    for (int64_t i = 0; i < field->count; i++) {
        put_real(field, i, 1.0);
    }
}

static void fill_is_class(const loong_patch_params_t *p, void *const *rows,
                          const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    memset(to, 0, (size_t)field->count * sizeof(*to));
    while (next_slot(p, rows, &s)) {
        to[s.begin] = p->class_token;
    }
}

/* Marks of the patches of a draw. */
static void mask_patches(const loong_patch_params_t *p,
                         const loong_patch_row_t *row, int32_t *is_masked)
{
    int64_t patches = loongi_picture_patches(&row->size);
    int64_t wanted = loongi_masked_patches(p, &row->size);
    uint64_t name = loongi_rng_name("masked patches");
    for (int64_t i = 0; i < patches; i++) {
        double u = loongi_rng_uniform(p->mask_seed, name,
                                      (uint64_t)(row->draw * patches + i));
        is_masked[i] = u * (double)(patches - i) <= (double)wanted;
        wanted -= is_masked[i];
    }
}

static void fill_is_masked(const loong_patch_params_t *p, void *const *rows,
                           const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    memset(to, 0, (size_t)field->count * sizeof(*to));
    while (next_slot(p, rows, &s)) {
        mask_patches(p, s.row, to + s.patches);
    }
}

/* Of rows of which so many become one. */
static void fill_starts(const loong_patch_params_t *p, void *const *rows,
                        const loong_field_t *field, int64_t block)
{
    int32_t *to = field->to;
    int64_t count = 0;
    slot_t s = {0};
    while (next_slot(p, rows, &s)) {
        to[count++] = (int32_t)(s.begin / block);
    }
    for (int64_t i = s.end; i < p->rows; i += padding_rows(p)) {
        to[count++] = (int32_t)(i / block);
    }
    for (; count < field->count; count++) {
        to[count] = (int32_t)(p->rows / block);
    }
}

static void fill_cu_seqlens(const loong_patch_params_t *p, void *const *rows,
                            const loong_field_t *field)
{
    fill_starts(p, rows, field, 1);
}

static void fill_cu_merged_seqlens(const loong_patch_params_t *p,
                                   void *const *rows,
                                   const loong_field_t *field)
{
    fill_starts(p, rows, field, loongi_patch_block_rows(p));
}

static void fill_cu_block_seqlens(const loong_patch_params_t *p,
                                  void *const *rows, const loong_field_t *field)
{
    (void)rows;
    for (int64_t i = 0; i < field->count; i++) {
        ((int32_t *)field->to)[i] = (int32_t)(i * loongi_patch_block_rows(p));
    }
}

/* Patches of the side of a window. */
static int64_t window_side(const loong_patch_params_t *p)
{
    return p->cut.window * loongi_patch_merge(p);
}

/* Rows of padding that see each other in windows. */
static int64_t window_padding(const loong_patch_params_t *p)
{
    int64_t side = window_side(p);
    return LOONG_MAX(LOONG_MIN(side * side, LOONG_PADDING_ROWS), 1);
}

static void fill_cu_window_seqlens(const loong_patch_params_t *p,
                                   void *const *rows,
                                   const loong_field_t *field)
{
    int32_t *to = field->to;
    int64_t count = 0;
    int64_t patches =
        loongi_patch_merge(p) * loongi_patch_merge(p); /* of a block */
    slot_t s = {0};
    while (next_slot(p, rows, &s)) {
        loong_patch_grid_t grid = grid_of(p, &s);
        for (int64_t i = s.patches; i < s.end;) {
            loong_patch_place_t at = loongi_patch_place(&grid, i - s.patches);
            loong_patch_window_t w = loongi_patch_window(
                &grid, at.row / grid.merge, at.column / grid.merge);
            to[count++] = (int32_t)i;
            i += w.rows * w.columns * patches;
        }
    }
    for (int64_t i = s.end; i < p->rows; i += window_padding(p)) {
        to[count++] = (int32_t)i;
    }
    for (; count < field->count; count++) {
        to[count] = (int32_t)p->rows;
    }
}

static void fill_raster_index(const loong_patch_params_t *p, void *const *rows,
                              const loong_field_t *field)
{
    int32_t *to = field->to;
    int64_t patches =
        loongi_patch_merge(p) * loongi_patch_merge(p); /* of a block */
    slot_t s = {0};
    for (int64_t i = 0; i < p->rows; i++) {
        to[i] = (int32_t)i;
    }
    while (next_slot(p, rows, &s)) {
        loong_patch_grid_t grid = grid_of(p, &s);
        for (int64_t i = s.patches; i < s.end; i++) {
            int64_t block = (i - s.patches) / patches;
            int64_t from = loongi_patch_block(&grid, block);
            to[i] = (int32_t)(i + (from - block) * patches);
        }
    }
}

static void fill_pooled_picture(const loong_patch_params_t *p,
                                void *const *rows, const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    for (int64_t i = 0; i < p->rows; i++) {
        to[i] = (int32_t)loongi_picture_capacity(p);
    }
    while (next_slot(p, rows, &s)) {
        bool token = p->class_token && p->pool_class_token;
        int64_t first = token ? s.begin : s.patches;
        int64_t end = token ? s.patches : s.end;
        for (int64_t i = first; i < end; i++) {
            to[i] = (int32_t)(s.taken - 1);
        }
    }
}

static int64_t label_of(const loong_patch_params_t *p, void *const *rows,
                        int64_t i)
{
    return i < p->pictures ? ((const loong_patch_row_t *)rows[i])->label : -1;
}

static void fill_labels(const loong_patch_params_t *p, void *const *rows,
                        const loong_field_t *field)
{
    for (int64_t i = 0; i < field->count; i++) {
        int64_t label = label_of(p, rows, i);
        ((int32_t *)field->to)[i] =
            label >= 0 ? (int32_t)label : LOONG_IGNORE_LABEL;
    }
}

static void fill_loss_weight(const loong_patch_params_t *p, void *const *rows,
                             const loong_field_t *field)
{
    for (int64_t i = 0; i < field->count; i++) {
        put_real(field, i, label_of(p, rows, i) >= 0 ? 1.0 : 0.0);
    }
}

/* ---- the table ----------------------------------------------------------- */

typedef enum extent {
    PATCHES,
    ROWS,
    ROW_PAIRS,
    TAPS,
    FRAMES,
    SOME_FRAMES, /* at most so many */
    SOME_TAPS,
    SOME_ROWS,
    PICTURES,
    BLOCKS,
    BOUNDS, /* at least so many */
    WINDOW_BOUNDS
} extent_t;

typedef struct field_kind {
    loong_field_type_t type;
    extent_t extent;
    void (*fill)(const loong_patch_params_t *p, void *const *rows,
                 const loong_field_t *field);
} field_kind_t;

static const field_kind_t fields[] = {
    {{"patches", LOONG_F32, LOONG_F64}, PATCHES, fill_patches},
    {{"positions", LOONG_I32, LOONG_I32}, ROWS, fill_positions},
    {{"patch_positions", LOONG_I32, LOONG_I32},
     ROW_PAIRS,
     fill_patch_positions},
    {{"position_taps", LOONG_I32, LOONG_I32}, TAPS, fill_position_taps},
    {{"position_weights", LOONG_F32, LOONG_F64}, TAPS, fill_position_weights},
    {{"tap_order", LOONG_I32, LOONG_I32}, SOME_TAPS, fill_tap_order},
    {{"frame_numbers", LOONG_I32, LOONG_I32}, ROWS, fill_frame_numbers},
    {{"is_moving", LOONG_I32, LOONG_I32}, ROWS, fill_is_moving},
    {{"frame_taps", LOONG_I32, LOONG_I32}, FRAMES, fill_frame_taps},
    {{"frame_weights", LOONG_F32, LOONG_F64}, FRAMES, fill_frame_weights},
    {{"frame_order", LOONG_I32, LOONG_I32}, SOME_FRAMES, fill_tap_order},
    {{"ones", LOONG_F32, LOONG_F64}, SOME_ROWS, fill_ones},
    {{"is_class", LOONG_I32, LOONG_I32}, ROWS, fill_is_class},
    {{"is_masked", LOONG_I32, LOONG_I32}, ROWS, fill_is_masked},
    {{"cu_seqlens", LOONG_I32, LOONG_I32}, BOUNDS, fill_cu_seqlens},
    {{"cu_merged_seqlens", LOONG_I32, LOONG_I32},
     BOUNDS,
     fill_cu_merged_seqlens},
    {{"cu_block_seqlens", LOONG_I32, LOONG_I32}, BLOCKS, fill_cu_block_seqlens},
    {{"cu_window_seqlens", LOONG_I32, LOONG_I32},
     WINDOW_BOUNDS,
     fill_cu_window_seqlens},
    {{"raster_index", LOONG_I32, LOONG_I32}, ROWS, fill_raster_index},
    {{"pooled_picture", LOONG_I32, LOONG_I32}, ROWS, fill_pooled_picture},
    {{"labels", LOONG_I32, LOONG_I32}, PICTURES, fill_labels},
    {{"loss_weight", LOONG_F32, LOONG_F64}, PICTURES, fill_loss_weight},
};

static const loong_field_table_t table = {"picture", fields, sizeof(fields[0]),
                                          LOONG_COUNT_OF(fields)};

/* Of all pictures of a micro-batch, at most. */
static int64_t grids_of(const loong_patch_params_t *p)
{
    return loongi_picture_capacity(p) * LOONG_MAX(p->max_tiles, 1);
}

static int64_t elements_of(const loong_patch_params_t *p, extent_t extent)
{
    switch (extent) {
    case PATCHES:
        return own_rows(p) * loongi_patch_elements(p);
    case ROWS:
    case SOME_ROWS:
        return p->rows;
    case ROW_PAIRS:
        return 2 * p->rows;
    case TAPS:
    case SOME_TAPS:
        return loong_position_taps(&p->positions) * p->rows;
    case FRAMES:
    case SOME_FRAMES:
        return loongi_patch_chunk(p) * p->rows;
    case BLOCKS:
        return p->rows / loongi_patch_block_rows(p) + 1;
    case BOUNDS:
        return loongi_grids_all_equal(p)
                   ? p->rows / loongi_picture_each(p).encoder + 2
                   : grids_of(p) + 2 + p->rows / LOONG_PADDING_ROWS;
    case WINDOW_BOUNDS: /* one more a grid than its rows / (m w) */
        return grids_of(p) + 2 +
               p->rows /
                   LOONG_MAX(LOONG_MIN(window_side(p), LOONG_PADDING_ROWS), 1);
    default:
        return loongi_picture_capacity(p);
    }
}

loong_status_t loongi_patch_bind(loong_context_t *ctx, const void *config,
                                 loong_field_t *field)
{
    const loong_patch_params_t *p = config;
    LOONG_TRY(loongi_field_find(ctx, &table, field));
    const field_kind_t *kind = field->kind;
    int64_t count = elements_of(p, kind->extent);
    bool least = kind->extent == BOUNDS || kind->extent == WINDOW_BOUNDS;
    bool most = kind->extent == SOME_TAPS || kind->extent == SOME_FRAMES ||
                kind->extent == SOME_ROWS;
    return loongi_field_check_count(ctx, field, count,
                                    least  ? field->count >= count
                                    : most ? field->count <= count
                                           : field->count == count);
}

loong_status_t loongi_patch_fill(loong_context_t *ctx, const void *config,
                                 void *const *rows, const loong_field_t *field)
{
    loong_field_t bound = *field;
    LOONG_TRY(loongi_patch_bind(ctx, config, &bound));
    const field_kind_t *kind = bound.kind;
    kind->fill(config, rows, &bound);
    return LOONG_OK;
}
