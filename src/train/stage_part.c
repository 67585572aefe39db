/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank holds of a parameter: where it stands in the whole, how it
 * starts. */
#include <string.h>

#include "initial.h"
#include "rng.h"
#include "stage.h"

enum { INIT_BLOCK = 4096 };

void loongi_stage_kept_rows(const loong_stage_t *stage,
                            const loong_param_place_t *place, int64_t *row_p,
                            int64_t *rows_p)
{
    loong_part_t part = loongi_part_of(place);
    int64_t begin = 0;
    int64_t end = 0;
    loongi_shards_kept(stage->shards, place, &begin, &end);
    *row_p = begin / part.cols;
    *rows_p = LOONG_MAX(LOONG_MIN(end / part.cols, part.rows) - *row_p, 0);
}

/* ---- start -------------------------------------------------------------- */

static loong_status_t initialize_block(loong_stage_t *s,
                                       const loong_param_place_t *p,
                                       uint64_t seed, int64_t at, int64_t end)
{
    double values[INIT_BLOCK];
    int64_t count = LOONG_MIN(end - at, (int64_t)INIT_BLOCK);
    loong_part_t part = loongi_part_of(p);
    loong_draw_t draw = {seed, loongi_rng_name(p->name), 0, 0};
    for (int64_t i = 0; i < count; i += draw.count) {
        int64_t rows = part.cols == part.all_cols ? part.rows : 1;
        int64_t row = loongi_part_row(&part, (at + i) / part.cols, &rows);
        int64_t col = part.col + (at + i) % part.cols;
        int64_t rest = rows * part.cols - (at + i) % part.cols;
        draw.index = (uint64_t)(row * part.all_cols + col);
        draw.count = LOONG_MIN(rest, count - i);
        loongi_initial(&p->params, &draw, values + i);
    }
    return loongi_stage_set_param(s, p, at, count, values);
}

loong_status_t loongi_stage_initialize(loong_stage_t *stage, uint64_t seed)
{
    loong_status_t failed = LOONG_OK;
    for (int64_t i = 0; i < stage->layout->num_params; i++) {
        const loong_param_place_t *p = &stage->layout->params[i];
        int64_t begin = 0;
        int64_t end = 0;
        loongi_shards_kept(stage->shards, p, &begin, &end);
#pragma omp parallel for schedule(static) reduction(max : failed)
        for (int64_t at = begin; at < end; at += INIT_BLOCK) {
            loong_status_t status =
                initialize_block(stage, p, seed, at, end);
            failed = LOONG_MAX(failed, status);
        }
        LOONG_TRY(failed);
    }
    return LOONG_OK;
}
