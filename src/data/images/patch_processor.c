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
#include "rng.h"
#include "source_class.h"

enum { PICTURES_SUM, MASKED_SUM };
static const char *const normalisers[] = {
    [PICTURES_SUM] = "pictures", [MASKED_SUM] = "masked_patches", NULL};

/* A picture of a micro-batch. */
typedef struct row {
    int64_t label;   /* -1: no picture, or one without a label */
    int64_t draw;    /* -1: no picture */
    float patches[]; /* of it, row after row */
} row_t;

static int64_t patches_of(const loong_patch_params_t *p)
{
    int64_t side = p->image_size / p->patch_size;
    return side * side;
}

/* Of a picture. */
static int64_t masked_patches(const loong_patch_params_t *p)
{
    return llround(p->mask_ratio * (double)patches_of(p));
}

static int64_t patch_elements(const loong_patch_params_t *p)
{
    return 3 * p->patch_size * p->patch_size;
}

/* Rows of a picture. */
static int64_t picture_rows(const loong_patch_params_t *p)
{
    return patches_of(p) + (p->class_token ? 1 : 0);
}

static int64_t capacity(const loong_patch_params_t *p)
{
    return p->rows / picture_rows(p);
}

static loong_status_t check_size(loong_context_t *ctx,
                                 const loong_patch_params_t *p,
                                 const char *name, const int64_t from[2])
{
    int64_t size[2];
    loong_image_processor_size(p->processor, from[0], from[1], &size[0],
                               &size[1]);
    LOONG_CHECK(ctx, size[0] == p->image_size && size[1] == size[0],
                LOONG_ERR_CONFIG,
                "%s: becomes %" PRId64 " x %" PRId64 " pixels, the model takes "
                "%" PRId64 " x %" PRId64,
                name, size[0], size[1], p->image_size, p->image_size);
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
    LOONG_CHECK(ctx, p->mask_ratio == 0.0 || masked_patches(p) > 0,
                LOONG_ERR_CONFIG,
                "data '%s': mask_ratio %g masks none of the %" PRId64
                " patches of a picture",
                data, p->mask_ratio, patches_of(p));
    return check_all_sizes(ctx, p, data);
}

static loong_status_t begin(const void *config, loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    items->vocab_size = INT32_MAX; /* of texts that it would refuse */
    return loongi_items_picture(items, p->image_size, p->image_size);
}

static size_t row_size(const void *config)
{
    const loong_patch_params_t *p = config;
    return sizeof(row_t) +
           (size_t)(patches_of(p) * patch_elements(p)) * sizeof(float);
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
        memset(memory, 0, row_size(config));
        row->label = row->draw = -1;
        return LOONG_OK;
    }
    LOONG_TRY(find_items(p, items, &picture, &label));
    LOONG_TRY(judge(p, items));
    LOONG_TRY(check_size(items->ctx, p, picture->name, picture->size));
    const loong_image_t image = {picture->size[0], picture->size[1],
                                 picture->pixels};
    row->label = label != NULL ? label->label : -1;
    row->draw = draw;
    sums[PICTURES_SUM] += label != NULL ? 1.0 : 0.0;
    sums[MASKED_SUM] += (double)masked_patches(p);
    loong_status_t status = loong_image_process(
        items->ctx, p->processor, &image, p->patch_size, row->patches);
    if (status != LOONG_OK) {
        loongi_error_note(items->ctx, "picture %s", picture->name);
    }
    return status;
}

/* Any picture of any class. */
static loong_status_t example(const void *config, int64_t i,
                              loong_items_t *items)
{
    const loong_patch_params_t *p = config;
    LOONG_TRY(loongi_items_picture(items, p->image_size, p->image_size));
    loong_item_t *item = items->item;
    for (int64_t k = 0; k < 3 * p->image_size * p->image_size; k++) {
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

static void fill_patches(const loong_patch_params_t *p, void *const *rows,
                         const loong_field_t *field)
{
    int64_t of_picture = patches_of(p) * patch_elements(p);
    int64_t stride = picture_rows(p) * patch_elements(p);
    size_t size = loong_dtype_size(field->dtype);
    size_t front = (size_t)(stride - of_picture) * size;
    char *to = field->to;
    for (int64_t j = 0; j < p->pictures; j++, to += (size_t)stride * size) {
        const row_t *row = rows[j];
        memset(to, 0, front);
        if (field->dtype == LOONG_F32) {
            memcpy(to + front, row->patches, (size_t)of_picture * size);
            continue;
        }
        for (int64_t k = 0; k < of_picture; k++) {
            ((double *)(void *)(to + front))[k] = (double)row->patches[k];
        }
    }
    memset(to, 0, (size_t)(field->count - p->pictures * stride) * size);
}

static void fill_positions(const loong_patch_params_t *p, void *const *rows,
                           const loong_field_t *field)
{
    for (int64_t i = 0; i < p->rows; i++) {
        ((int32_t *)field->to)[i] = (int32_t)(i % picture_rows(p));
    }
    (void)rows;
}

static void fill_is_class(const loong_patch_params_t *p, void *const *rows,
                          const loong_field_t *field)
{
    int64_t end = capacity(p) * picture_rows(p);
    for (int64_t i = 0; i < p->rows; i++) {
        ((int32_t *)field->to)[i] =
            p->class_token && i < end && i % picture_rows(p) == 0;
    }
    (void)rows;
}

/* Marks of the patches of a draw. */
static void mask_patches(const loong_patch_params_t *p, int64_t draw,
                         int32_t *is_masked)
{
    int64_t patches = patches_of(p);
    int64_t wanted = masked_patches(p);
    uint64_t name = loongi_rng_name("masked patches");
    for (int64_t i = 0; i < patches; i++) {
        double u = loongi_rng_uniform(p->mask_seed, name,
                                      (uint64_t)(draw * patches + i));
        is_masked[i] = u * (double)(patches - i) <= (double)wanted;
        wanted -= is_masked[i];
    }
}

static void fill_is_masked(const loong_patch_params_t *p, void *const *rows,
                           const loong_field_t *field)
{
    int32_t *to = field->to;
    memset(to, 0, (size_t)field->count * sizeof(*to));
    for (int64_t j = 0; j < p->pictures; j++) {
        const row_t *row = rows[j];
        to += picture_rows(p) - patches_of(p);
        if (row->draw >= 0) {
            mask_patches(p, row->draw, to);
        }
        to += patches_of(p);
    }
}

static void fill_cu_seqlens(const loong_patch_params_t *p, void *const *rows,
                            const loong_field_t *field)
{
    for (int64_t i = 0; i < field->count; i++) {
        ((int32_t *)field->to)[i] =
            (int32_t)LOONG_MIN(i * picture_rows(p), p->rows);
    }
    (void)rows;
}

static void fill_pooled_picture(const loong_patch_params_t *p,
                                void *const *rows, const loong_field_t *field)
{
    for (int64_t i = 0; i < p->rows; i++) {
        int64_t picture = i / picture_rows(p);
        bool class_token = p->class_token && i % picture_rows(p) == 0;
        bool pooled = picture < capacity(p) &&
                      class_token == (p->class_token && p->pool_class_token);
        ((int32_t *)field->to)[i] = (int32_t)(pooled ? picture : capacity(p));
    }
    (void)rows;
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

typedef enum extent { PATCHES, ROWS, PICTURES, BOUNDS } extent_t;

typedef struct field_kind {
    loong_field_type_t type;
    extent_t extent;
    void (*fill)(const loong_patch_params_t *p, void *const *rows,
                 const loong_field_t *field);
} field_kind_t;

static const field_kind_t fields[] = {
    {{"patches", LOONG_F32, LOONG_F64}, PATCHES, fill_patches},
    {{"positions", LOONG_I32, LOONG_I32}, ROWS, fill_positions},
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
    bool bounds = kind->extent == BOUNDS;
    int64_t count = bounds ? capacity(p) + 2 : elements_of(p, kind->extent);
    return loongi_field_check_count(ctx, field, count,
                                    bounds ? field->count >= count
                                           : field->count == count);
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
