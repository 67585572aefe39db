/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of pictures that a message of an edge carries, by the layouts of its
 * two ends alone. */
#ifndef LOONG_PICTURE_ROWS_H
#define LOONG_PICTURE_ROWS_H

#include "batch_plan.h"
#include "edges.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where rows of pictures are at one end of a message. */
typedef enum loong_picture_place {
    LOONG_IN_TEXTS,   /* pictures stand in texts */
    LOONG_IN_ENCODER, /* they are dealt, behind their rows that nobody reads */
    LOONG_IN_FRONT,   /* likewise, without those: what a projector reads */
    LOONG_BEHIND      /* what it makes */
} loong_picture_place_t;

/* A rank that sends or receives. */
typedef struct loong_picture_end {
    loong_picture_place_t place;
    int component, replica;
    int cp_size, cp_rank;
    int64_t rows;         /* of a share (CP) of the micro-batch */
    int64_t begin, limit; /* of those, the rank's */
    /* Of a text, of which each share has two chunks (zigzag.h); 0: shares lie
     * one behind another. */
    int64_t length;
} loong_picture_end_t;

/* Adds the rows of a picture that both ends have, in the same order at each. */
LOONG_NODISCARD loong_status_t loongi_picture_segments(
    loong_context_t *ctx, const loong_planned_image_t *image,
    const loong_picture_end_t *from, const loong_picture_end_t *to,
    loong_segment_list_t *list);

#ifdef __cplusplus
}
#endif

#endif
