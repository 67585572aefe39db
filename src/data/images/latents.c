/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of a projector that makes as many rows of each picture. A part of
 * packing.c; read the table of fields in loong/image.h before. */
#include <string.h>

#include "field_table.h"
#include "patch_fields.h"

/* A grid of a picture: its rows that are read, and behind them its own. */
typedef struct place {
    int64_t context, own, end; /* the first ones, and behind both, of all K */
    int64_t read, made;        /* the first ones among those of their kind */
} place_t;

/* Numbers of array `field` of the rows of a grid. */
typedef void (*put_t)(const loong_patch_params_t *p, const place_t *at,
                      int32_t *to);

static void put_contexts(const loong_patch_params_t *p, const place_t *at,
                         int32_t *to)
{
    (void)p;
    for (int64_t i = at->context; i < at->own; i++) {
        to[i] = (int32_t)(at->read + i - at->context);
    }
}

static void put_own(const loong_patch_params_t *p, const place_t *at,
                    int32_t *to)
{
    (void)p;
    for (int64_t i = at->own; i < at->end; i++) {
        to[i] = (int32_t)(at->made + i - at->own);
    }
}

static void put_marks(const loong_patch_params_t *p, const place_t *at,
                      int32_t *to)
{
    (void)p;
    for (int64_t i = at->own; i < at->end; i++) {
        to[i] = 1;
    }
}

static void put_numbers(const loong_patch_params_t *p, const place_t *at,
                        int32_t *to)
{
    for (int64_t i = at->own; i < at->end; i++) {
        to[at->made + i - at->own] = (int32_t)((i - at->own) % p->latents);
    }
}

static void put_places(const loong_patch_params_t *p, const place_t *at,
                       int32_t *to)
{
    (void)p;
    for (int64_t i = at->own; i < at->end; i++) {
        to[at->made + i - at->own] = (int32_t)i;
    }
}

/* ---- the table ----------------------------------------------------------- */

typedef enum extent { BOTH, OWN, BOUNDS } extent_t;

typedef struct field_kind {
    loong_field_type_t type;
    extent_t extent;
    put_t put; /* NULL: where grids begin */
} field_kind_t;

static const field_kind_t fields[] = {
    {{"context_rows", LOONG_I32, LOONG_I32}, BOTH, put_contexts},
    {{"latent_rows", LOONG_I32, LOONG_I32}, BOTH, put_own},
    {{"is_latent", LOONG_I32, LOONG_I32}, BOTH, put_marks},
    {{"latent_numbers", LOONG_I32, LOONG_I32}, OWN, put_numbers},
    {{"latent_places", LOONG_I32, LOONG_I32}, OWN, put_places},
    {{"cu_latent_seqlens", LOONG_I32, LOONG_I32}, BOUNDS, NULL},
};

static const loong_field_table_t table = {
    "resampled picture", fields, sizeof(fields[0]), LOONG_COUNT_OF(fields)};

loong_status_t loongi_latents_bind(loong_context_t *ctx,
                                   const loong_patch_params_t *p,
                                   loong_field_t *field)
{
    LOONG_TRY(loongi_field_find(ctx, &table, field));
    const field_kind_t *kind = field->kind;
    int64_t count = kind->extent == BOTH  ? p->rows + p->packed_rows
                    : kind->extent == OWN ? p->packed_rows
                                          : p->packed_rows / p->latents +
                                                p->rows / LOONG_PADDING_ROWS +
                                                3;
    return loongi_field_check_count(ctx, field, count,
                                    kind->extent == BOUNDS
                                        ? field->count >= count
                                        : field->count == count);
}

/* ---- filling ------------------------------------------------------------- */

typedef struct filling {
    const loong_patch_params_t *p;
    const loong_field_t *field;
    place_t at;
    int64_t segments;
} filling_t;

static void add_segment(filling_t *f, int64_t read, int64_t made)
{
    const field_kind_t *kind = f->field->kind;
    place_t *at = &f->at;
    int32_t *to = f->field->to;
    at->context = at->end;
    at->own = at->context + read;
    at->end = at->own + made;
    if (kind->put != NULL) {
        kind->put(f->p, at, to);
    } else {
        to[f->segments] = (int32_t)at->context;
    }
    f->segments++;
    at->read += read;
    at->made += made;
}

/* Made-up pictures of predictions may be more than there is room for. What is
 * left over stands in segments of its own, rows that are made before those that
 * nobody reads. */
void loongi_latents_fill(const loong_patch_params_t *p, void *const *rows,
                         const loong_field_t *field)
{
    filling_t f = {.p = p, .field = field};
    int32_t *to = field->to;
    memset(to, 0, (size_t)field->count * sizeof(*to));
    for (int64_t k = 0; k < p->pictures && rows[k] != NULL; k++) {
        const loong_picture_rows_t *of = rows[k];
        for (int64_t g = 0; g < of->grids; g++) {
            int64_t part[2];
            loong_picture_part(of, false, of->grids, g, part);
            if (f.at.read + part[1] <= p->rows &&
                f.at.made + p->latents <= p->packed_rows) {
                add_segment(&f, part[1], p->latents);
            }
        }
    }
    while (f.at.made < p->packed_rows) {
        add_segment(&f, 0, LOONG_MIN(p->latents, p->packed_rows - f.at.made));
    }
    while (f.at.read < p->rows) {
        add_segment(&f, LOONG_MIN(LOONG_PADDING_ROWS, p->rows - f.at.read), 0);
    }
    const field_kind_t *kind = field->kind;
    for (int64_t i = f.segments; kind->put == NULL && i < field->count; i++) {
        to[i] = (int32_t)f.at.end;
    }
}
