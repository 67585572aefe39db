/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank holds of a parameter: where it stands in the whole, how it
 * starts. Called by model.c and by what reads checkpoints. Read stage.h
 * before. */
#include <string.h>

#include "initial.h"
#include "rng.h"
#include "stage.h"

/* Elements that a thread draws together, and all at a time. */
enum { INIT_BLOCK = 4096, INIT_ROOM = 2 * 1024 * 1024 };

void loongi_stage_shard_rows(const loong_stage_t *stage,
                             const loong_chunk_param_t *place, int64_t *row_p,
                             int64_t *rows_p)
{
    loong_param_slice_t part = loongi_param_slice_of(place);
    int64_t begin = 0;
    int64_t end = 0;
    loongi_shards_range(stage->shards, place, &begin, &end);
    *row_p = begin / part.cols;
    *rows_p = LOONG_MAX(LOONG_MIN(end / part.cols, part.rows) - *row_p, 0);
}

/* ---- start -------------------------------------------------------------- */

/* Elements [at, at + count) of what the rank has of a parameter. */
static void draw_block(const loong_chunk_param_t *p, uint64_t seed, int64_t at,
                       int64_t count, double *values)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    loong_draw_t draw = {seed, loongi_rng_name(p->name), 0, 0};
    for (int64_t i = 0; i < count; i += draw.count) {
        int64_t rows = part.cols == part.all_cols ? part.rows : 1;
        int64_t row =
            loongi_param_slice_row(&part, (at + i) / part.cols, &rows);
        int64_t col = part.col + (at + i) % part.cols;
        int64_t rest = rows * part.cols - (at + i) % part.cols;
        draw.index = (uint64_t)(row * part.all_cols + col);
        draw.count = LOONG_MIN(rest, count - i);
        loongi_initial(&p->params, &draw, values + i);
    }
}

static loong_status_t initialize_param(loong_stage_t *s,
                                       const loong_chunk_param_t *p,
                                       uint64_t seed, double *values)
{
    int64_t begin = 0;
    int64_t end = 0;
    loongi_shards_range(s->shards, p, &begin, &end);
    for (int64_t first = begin; first < end; first += INIT_ROOM) {
        int64_t last = LOONG_MIN(first + INIT_ROOM, end);
#pragma omp parallel for schedule(static)
        for (int64_t at = first; at < last; at += INIT_BLOCK) {
            draw_block(p, seed, at, LOONG_MIN(last - at, (int64_t)INIT_BLOCK),
                       values + (at - first));
        }
        LOONG_TRY(loongi_stage_set_param(s, p, first, last - first, values));
    }
    return LOONG_OK;
}

loong_status_t loongi_stage_initialize(loong_stage_t *stage, uint64_t seed)
{
    double *values = NULL;
    LOONG_TRY(loongi_alloc(stage->ctx, INIT_ROOM * sizeof(*values),
                           "first values", &values));
    loong_status_t status = loongi_stage_upload(stage);
    for (int64_t i = 0; i < stage->layout->num_params && status == LOONG_OK;
         i++) {
        const loong_chunk_param_t *p = &stage->layout->params[i];
        if (p->params.quant == LOONG_QUANT_NONE) { /* else it is read */
            status = initialize_param(stage, p, seed, values);
        }
    }
    status = loongi_stage_uploaded(stage, status);
    loongi_free(stage->ctx, values);
    return status;
}
