/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor of pictures for models that read patches: from a picture and
 * its class to rows of a micro-batch. Called by the loader. Read loong/image.h
 * before. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "field_table.h"
#include "loong/image.h"
#include "patch_place.h"
#include "rng.h"
#include "source_class.h"

enum { PICTURES_SUM, MASKED_SUM };
static const char *const normalisers[] = {
    [PICTURES_SUM] = "pictures", [MASKED_SUM] = "masked_patches", NULL};

/* A picture of a micro-batch. */
typedef struct row {
    int64_t label; /* -1: no picture, or one without a label */
    int64_t draw;  /* -1: no picture */
    loong_picture_rows_t size;
    float patches[]; /* of it, row after row */
} row_t;

static bool all_equal(const loong_patch_params_t *p)
{
    return p->image_size > 0;
}

static int64_t merge_of(const loong_patch_params_t *p)
{
    return LOONG_MAX(p->cut.merge, 1);
}

loong_picture_rows_t loong_picture_rows(const void *params, int64_t width,
                                        int64_t height)
{
    const loong_patch_params_t *p = params;
    loong_picture_rows_t rows = {0};
    int64_t size[2] = {p->image_size, p->image_size};
    if (!all_equal(p)) {
        loong_image_processor_size(p->processor, width, height, &size[0],
                                   &size[1]);
    }
    rows.width = size[0] / p->cut.patch;
    rows.height = size[1] / p->cut.patch;
    int64_t patches = rows.width * rows.height;
    if (patches > 0) {
        rows.encoder = patches + (p->class_token ? 1 : 0);
        rows.sent = p->sends_class_token ? rows.encoder : patches;
        rows.text = rows.sent / (merge_of(p) * merge_of(p));
        rows.columns = rows.width / merge_of(p);
    }
    return rows;
}

/* Where all are equal. */
static loong_picture_rows_t each(const loong_patch_params_t *p)
{
    return loong_picture_rows(p, p->image_size, p->image_size);
}

static int64_t patches_of(const loong_picture_rows_t *size)
{
    return size->width * size->height;
}

/* Of a picture. */
static int64_t masked_patches(const loong_patch_params_t *p,
                              const loong_picture_rows_t *size)
{
    return llround(p->mask_ratio * (double)patches_of(size));
}

static int64_t patch_elements(const loong_patch_params_t *p)
{
    return 3 * LOONG_MAX(p->cut.frames, 1) * p->cut.patch * p->cut.patch;
}

/* Pictures that a micro-batch has room for. */
static int64_t capacity(const loong_patch_params_t *p)
{
    return all_equal(p) ? p->rows / each(p).encoder : p->pictures;
}

/* Rows of padding that see each other. */
static int64_t padding_rows(const loong_patch_params_t *p)
{
    return all_equal(p) ? each(p).encoder : LOONG_PADDING_ROWS;
}

static loong_status_t check_size(loong_context_t *ctx,
                                 const loong_patch_params_t *p,
                                 const char *name, const int64_t from[2])
{
    int64_t size[2];
    loong_image_processor_size(p->processor, from[0], from[1], &size[0],
                               &size[1]);
    LOONG_CHECK(
        ctx, !all_equal(p) || (size[0] == p->image_size && size[1] == size[0]),
        LOONG_ERR_CONFIG,
        "%s: becomes %" PRId64 " x %" PRId64 " pixels, the model takes "
        "%" PRId64 " x %" PRId64,
        name, size[0], size[1], p->image_size, p->image_size);
    LOONG_CHECK(ctx, size[0] > 0, LOONG_ERR_CONFIG,
                "%s: is %" PRId64 " x %" PRId64 " pixels, longer and narrower "
                "than the image processor takes",
                name, from[0], from[1]);
    return LOONG_OK;
}

/* Whatever its own size, where all become the same. */
static loong_status_t check_all_sizes(loong_context_t *ctx,
                                      const loong_patch_params_t *p,
                                      const char *data)
{
    static const int64_t wide[2] = {64, 32}, high[2] = {32, 64};
    int64_t a[2], b[2];
    char name[128];
    loong_image_processor_size(p->processor, wide[0], wide[1], &a[0], &a[1]);
    loong_image_processor_size(p->processor, high[0], high[1], &b[0], &b[1]);
    if (memcmp(a, b, sizeof(a)) != 0) {
        return LOONG_OK; /* that of each picture decides */
    }
    snprintf(name, sizeof(name), "data '%s': every picture", data);
    return check_size(ctx, p, name, wide);
}

static loong_status_t check(loong_context_t *ctx, const void *config,
                            const char *data)
{
    const loong_patch_params_t *p = config;
    LOONG_CHECK(ctx, p->pictures >= 1 && p->pictures <= capacity(p),
                LOONG_ERR_CONFIG,
                "data '%s': %" PRId64 " pictures of a micro-batch, %" PRId64
                " rows hold %" PRId64,
                data, p->pictures, p->rows, capacity(p));
    if (all_equal(p)) {
        loong_picture_rows_t size = each(p);
        LOONG_CHECK(ctx, p->mask_ratio == 0.0 || masked_patches(p, &size) > 0,
                    LOONG_ERR_CONFIG,
                    "data '%s': mask_ratio %g masks none of the %" PRId64
                    " patches of a picture",
                    data, p->mask_ratio, patches_of(&size));
    }
    return check_all_sizes(ctx, p, data);
}

static loong_status_t begin(const void *config, loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    items->vocab_size = INT32_MAX; /* of texts that it would refuse */
    items->sizes = !all_equal(p);
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
    if (all_equal(p)) {
        return each(p);
    }
    for (int i = 0; items != NULL && i < items->count; i++) {
        const loong_item_t *item = &items->item[i];
        if (item->type == LOONG_ITEM_IMAGE && item->pixels != NULL) {
            return loong_picture_rows(p, item->size[0], item->size[1]);
        }
    }
    return none;
}

static size_t row_size(const void *config, const loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    loong_picture_rows_t size = size_of(p, items);
    return sizeof(row_t) +
           (size_t)(patches_of(&size) * patch_elements(p)) * sizeof(float);
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
    row_t *row = memory;
    if (items == NULL) {
        *row = (row_t){.label = -1, .draw = -1};
        return LOONG_OK;
    }
    LOONG_TRY(find_items(p, items, &picture, &label));
    LOONG_TRY(judge(p, items));
    LOONG_TRY(check_size(items->ctx, p, picture->name, picture->size));
    const loong_image_t image = {picture->size[0], picture->size[1],
                                 picture->pixels};
    row->label = label != NULL ? label->label : -1;
    row->draw = draw;
    row->size = loong_picture_rows(p, image.width, image.height);
    sums[PICTURES_SUM] += label != NULL ? 1.0 : 0.0;
    sums[MASKED_SUM] += (double)masked_patches(p, &row->size);
    loong_status_t status = loong_image_process(items->ctx, p->processor,
                                                &image, &p->cut, row->patches);
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
    int64_t side =
        (int64_t)sqrt((double)most) / merge_of(p) * merge_of(p) * p->cut.patch;
    if (all_equal(p)) {
        return p->image_size;
    }
    return side > 0 && loong_picture_rows(p, side, side).encoder <= most ? side
                                                                         : 1;
}

/* Any picture of any class. */
static loong_status_t example(const void *config, int64_t i,
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

/* ---- arrays -------------------------------------------------------------- */

static void put_real(const loong_field_t *field, int64_t i, double value)
{
    if (field->dtype == LOONG_F64) {
        ((double *)field->to)[i] = value;
    } else {
        ((float *)field->to)[i] = (float)value;
    }
}

/* A slot for one picture, which may be empty. */
typedef struct slot {
    const row_t *row;
    int64_t begin, patches; /* its first row, and that of its patches */
    int64_t end;
} slot_t;

/* The slot behind that one, the first one behind an empty one. */
static slot_t next_slot(const loong_patch_params_t *p, void *const *rows,
                        int64_t j, const slot_t *before)
{
    const row_t *row = rows[j];
    slot_t slot = {row, before->end, before->end, before->end};
    slot.end += row->size.encoder;
    slot.patches += row->size.encoder > 0 && p->class_token ? 1 : 0;
    return slot;
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

static void fill_patches(const loong_patch_params_t *p, void *const *rows,
                         const loong_field_t *field)
{
    size_t size =
        (size_t)patch_elements(p) * loong_dtype_size(field->dtype); /* a row */
    char *to = field->to;
    slot_t s = {0};
    for (int64_t j = 0; j < p->pictures; j++) {
        s = next_slot(p, rows, j, &s);
        memset(to + (size_t)s.begin * size, 0,
               (size_t)(s.patches - s.begin) * size);
        copy_patches(s.row->patches, (s.end - s.patches) * patch_elements(p),
                     field->dtype, to + (size_t)s.patches * size);
    }
    memset(to + (size_t)s.end * size, 0, (size_t)(p->rows - s.end) * size);
}

static void fill_positions(const loong_patch_params_t *p, void *const *rows,
                           const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    for (int64_t j = 0; j < p->pictures; j++) {
        s = next_slot(p, rows, j, &s);
        for (int64_t i = s.begin; i < s.end; i++) {
            to[i] = (int32_t)(i - s.begin);
        }
    }
    for (int64_t i = s.end; i < p->rows; i++) {
        to[i] = (int32_t)((i - s.end) % padding_rows(p));
    }
}

/* Row and column of patch i, which stand in blocks of m x m. */
static void fill_patch_positions(const loong_patch_params_t *p,
                                 void *const *rows, const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    memset(to, 0, (size_t)field->count * sizeof(*to));
    for (int64_t j = 0; j < p->pictures; j++) {
        s = next_slot(p, rows, j, &s);
        for (int64_t i = s.patches; i < s.end; i++) {
            loong_patch_place_t at = loongi_patch_place(
                s.row->size.width, merge_of(p), i - s.patches);
            to[i] = (int32_t)at.row;
            to[p->rows + i] = (int32_t)at.column;
        }
    }
}

static void fill_is_class(const loong_patch_params_t *p, void *const *rows,
                          const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    memset(to, 0, (size_t)field->count * sizeof(*to));
    for (int64_t j = 0; j < p->pictures; j++) {
        s = next_slot(p, rows, j, &s);
        if (s.patches > s.begin) {
            to[s.begin] = 1;
        }
    }
}

/* Marks of the patches of a draw. */
static void mask_patches(const loong_patch_params_t *p, const row_t *row,
                         int32_t *is_masked)
{
    int64_t patches = patches_of(&row->size);
    int64_t wanted = masked_patches(p, &row->size);
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
    for (int64_t j = 0; j < p->pictures; j++) {
        s = next_slot(p, rows, j, &s);
        if (s.end > s.begin) {
            mask_patches(p, s.row, to + s.patches);
        }
    }
}

static void fill_cu_seqlens(const loong_patch_params_t *p, void *const *rows,
                            const loong_field_t *field)
{
    int32_t *to = field->to;
    int64_t count = 0;
    slot_t s = {0};
    for (int64_t j = 0; j < p->pictures; j++) {
        s = next_slot(p, rows, j, &s);
        if (s.end > s.begin) {
            to[count++] = (int32_t)s.begin;
        }
    }
    for (int64_t i = s.end; i < p->rows; i += padding_rows(p)) {
        to[count++] = (int32_t)i;
    }
    for (; count < field->count; count++) {
        to[count] = (int32_t)p->rows;
    }
}

static void fill_pooled_picture(const loong_patch_params_t *p,
                                void *const *rows, const loong_field_t *field)
{
    int32_t *to = field->to;
    slot_t s = {0};
    for (int64_t i = 0; i < p->rows; i++) {
        to[i] = (int32_t)capacity(p);
    }
    for (int64_t j = 0; j < p->pictures; j++) {
        s = next_slot(p, rows, j, &s);
        bool token = p->class_token && p->pool_class_token;
        int64_t first = token ? s.begin : s.patches;
        int64_t end = token ? s.patches : s.end;
        for (int64_t i = first; i < end; i++) {
            to[i] = (int32_t)j;
        }
    }
}

static int64_t label_of(const loong_patch_params_t *p, void *const *rows,
                        int64_t i)
{
    return i < p->pictures ? ((const row_t *)rows[i])->label : -1;
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
    PICTURES,
    BOUNDS /* at least so many */
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
    {{"is_class", LOONG_I32, LOONG_I32}, ROWS, fill_is_class},
    {{"is_masked", LOONG_I32, LOONG_I32}, ROWS, fill_is_masked},
    {{"cu_seqlens", LOONG_I32, LOONG_I32}, BOUNDS, fill_cu_seqlens},
    {{"pooled_picture", LOONG_I32, LOONG_I32}, ROWS, fill_pooled_picture},
    {{"labels", LOONG_I32, LOONG_I32}, PICTURES, fill_labels},
    {{"loss_weight", LOONG_F32, LOONG_F64}, PICTURES, fill_loss_weight},
};

static const loong_field_table_t table = {"picture", fields, sizeof(fields[0]),
                                          LOONG_COUNT_OF(fields)};

static int64_t elements_of(const loong_patch_params_t *p, extent_t extent)
{
    switch (extent) {
    case PATCHES:
        return p->rows * patch_elements(p);
    case ROWS:
        return p->rows;
    case ROW_PAIRS:
        return 2 * p->rows;
    case BOUNDS:
        return capacity(p) + 2 +
               (all_equal(p) ? 0 : p->rows / LOONG_PADDING_ROWS);
    default:
        return capacity(p);
    }
}

static loong_status_t bind(loong_context_t *ctx, const void *config,
                           loong_field_t *field)
{
    const loong_patch_params_t *p = config;
    LOONG_TRY(loongi_field_find(ctx, &table, field));
    const field_kind_t *kind = field->kind;
    int64_t count = elements_of(p, kind->extent);
    return loongi_field_check_count(
        ctx, field, count,
        kind->extent == BOUNDS ? field->count >= count : field->count == count);
}

static loong_status_t fill(loong_context_t *ctx, const void *config,
                           void *const *rows, const loong_field_t *field)
{
    loong_field_t bound = *field;
    LOONG_TRY(bind(ctx, config, &bound));
    const field_kind_t *kind = bound.kind;
    kind->fill(config, rows, &bound);
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
                                                 example,
                                                 bind,
                                                 fill,
                                                 judge};
