/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts the rows of a picture to those that two ranks have. Called by
 * upstream_step.c for each message. Read picture_rows.h before. */
#include "picture_rows.h"

#include "zigzag.h"

/* Rows that lie one behind another on a rank: of all those of the micro-batch
 * from the first, on the rank from `at` on. */
typedef struct run {
    int64_t first, at, rows;
} run_t;

static int runs_of(const loong_picture_end_t *e)
{
    return e->length > 0 ? 2 : 1;
}

/* One of those in the text that a row is of. */
static run_t run_of(const loong_picture_end_t *e, int64_t row, int number)
{
    run_t run = {e->rows * e->cp_rank, 0, e->rows};
    if (e->length > 0) {
        int64_t own = e->length / e->cp_size;
        int64_t in = own / 2 * number;
        run.first = row / e->length * e->length +
                    loongi_zigzag_place(e->cp_rank, e->cp_size, e->length, in);
        run.at = row / e->length * own + in;
        run.rows = own / 2;
    }
    int64_t first = LOONG_MAX(run.at, e->begin);
    int64_t last = LOONG_MIN(run.at + run.rows, e->limit);
    return (run_t){run.first + first - run.at, first - e->begin, last - first};
}

/* Parts of a picture whose rows lie together at both ends: all of it, or each
 * of its grids, where the encoder has rows in front of those, or the text other
 * tokens between them. */
static int64_t parts_of(const loong_planned_image_t *image, bool dense)
{
    bool whole = image->rows.sent == image->rows.made ||
                 (!dense && image->rows.pack.packed);
    return whole && image->part_at == NULL ? 1 : image->rows.grids;
}

/* The row where a part of a picture begins; -1: it is not there. */
static int64_t first_row(const loong_picture_end_t *e,
                         const loong_planned_image_t *image, int64_t part,
                         int64_t parts)
{
    const loong_picture_rows_t *rows = &image->rows;
    int64_t text[2], sent[2];
    loong_picture_part(rows, true, parts, part, text);
    loong_picture_part(rows, false, parts, part, sent);
    if (e->place == LOONG_IN_TEXTS) {
        int64_t between =
            image->part_at != NULL ? image->part_at[part] - part : 0;
        return image->replica == e->replica
                   ? image->row + text[0] + between
                   : -1;
    }
    if (image->at[e->component].replica != e->replica) {
        return -1;
    }
    switch (e->place) {
    case LOONG_IN_ENCODER:
        return image->at[e->component].row + rows->lead +
               (rows->tiles > 1 ? sent[0] : part * rows->stride);
    case LOONG_IN_FRONT:
        return image->at[e->component].sent_row + sent[0];
    default:
        return image->at[e->component].text_row + text[0];
    }
}

/* The rows of a part of a picture that two runs have. */
static loong_segment_t cut(run_t from, int64_t from_row, run_t to,
                           int64_t to_row, int64_t rows)
{
    int64_t from_first = from.first - from_row;
    int64_t to_first = to.first - to_row;
    int64_t first = LOONG_MAX(LOONG_MAX(from_first, to_first), 0);
    int64_t last = LOONG_MIN(from_first + from.rows, to_first + to.rows);
    return (loong_segment_t){from.at + first - from_first,
                             to.at + first - to_first,
                             LOONG_MIN(last, rows) - first};
}

loong_status_t loongi_picture_segments(loong_context_t *ctx,
                                       const loong_planned_image_t *image,
                                       const loong_picture_end_t *from,
                                       const loong_picture_end_t *to,
                                       loong_segment_list_t *list)
{
    bool dense = from->place != LOONG_IN_TEXTS && to->place != LOONG_IN_TEXTS;
    int64_t parts = parts_of(image, dense);
    int runs = runs_of(from) * runs_of(to);
    for (int64_t i = 0; i < parts * runs; i++) {
        int64_t from_row = first_row(from, image, i / runs, parts);
        int64_t to_row = first_row(to, image, i / runs, parts);
        if (from_row < 0 || to_row < 0) {
            continue;
        }
        int number = (int)(i % runs);
        int64_t part[2];
        loong_picture_part(&image->rows, !dense, parts, i / runs, part);
        loong_segment_t g =
            cut(run_of(from, from_row, number / runs_of(to)), from_row,
                run_of(to, to_row, number % runs_of(to)), to_row, part[1]);
        LOONG_TRY(g.rows > 0 ? loongi_segment_add(ctx, list, g) : LOONG_OK);
    }
    return LOONG_OK;
}
