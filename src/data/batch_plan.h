/* SPDX-License-Identifier: Apache-2.0
 *
 * The batch plan of a model that reads texts with pictures: which pictures the
 * texts of a step have, where their rows stand there, which replica of the
 * image encoder reads which, and where. A pure function of (samples consumed,
 * sizes of items, layout): every rank of a cell makes the same one. */
#ifndef LOONG_BATCH_PLAN_H
#define LOONG_BATCH_PLAN_H

#include "loong/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_batch_plan loong_batch_plan_t;

enum { LOONG_MAX_PICTURE_READERS = 7 };

/* Of a component that has rows of pictures alone, the encoder or what reads it:
 * its replicas in the cell, to which the pictures of a micro-batch are dealt in
 * their order, and what each has room for. All have about as many rows; or,
 * `whole`, all pictures of a micro-batch of a replica of the texts go to one,
 * and those of the next micro-batch that has some to others, as long as there
 * are some. */
typedef struct loong_picture_room {
    int replicas; /* 0: it reads no pictures of the plan's encoder */
    bool whole;
    /* Likewise, but of each micro-batch the first replica that reads it is said
     * here; NULL: they take turns. Borrowed. */
    const int32_t *first;
    int64_t images, rows; /* rows: of the encoder */
} loong_picture_room_t;

typedef struct loong_batch_plan_params {
    loong_loader_t *loader; /* of the texts, on any rank; borrowed */
    loong_loader_params_t texts;  /* its parameters */
    /* Replicas of the texts in the cell, and their data-parallel ranks;
     * borrowed. */
    int replicas;
    const int32_t *replica;
    int64_t seq_length; /* rows of a text in a micro-batch */
    /* Samples of a micro-batch of the readers: a multiple of those of one of
     * texts, or a part. */
    int64_t samples;
    int64_t max_images; /* of a micro-batch of one replica */
    int64_t max_rows;   /* of the encoder, of a grid of a picture; 0: any */
    loong_picture_reader_t pictures;
    int encoder; /* of several the one whose pictures these are */
    const char *images_key, *patches_key; /* that say what there is room for */
    int num_readers;
    loong_picture_room_t reader[LOONG_MAX_PICTURE_READERS];
} loong_batch_plan_params_t;

/* A picture of a micro-batch of the cell; they are ordered by their texts,
 * those of a replica behind one another in the smaller micro-batch of texts and
 * readers. */
typedef struct loong_planned_image {
    int64_t draw; /* of its text */
    int number;   /* in it, from 1 on */
    loong_picture_rows_t rows;
    int64_t micro_batch; /* of the texts */
    int replica;         /* likewise, from 0 on */
    int64_t row; /* its first one among those of that micro-batch */
    const int32_t *part_at; /* as loong_item_t has it; borrowed */
    /* Of each reader: the replica that has it, its first row there of those
     * that the encoder makes, and the first of those that it sends and of those
     * of texts, behind those of the pictures before it. */
    struct {
        int replica;
        int64_t row, sent_row, text_row;
    } at[LOONG_MAX_PICTURE_READERS];
} loong_planned_image_t;

/* Not collective. The blend's sources must be able to peek; else
 * LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_batch_plan_create(
    loong_context_t *ctx, const loong_batch_plan_params_t *params,
    loong_batch_plan_t **plan_p);
void loongi_batch_plan_destroy(loong_batch_plan_t **plan_p);

/* The pictures of a micro-batch of the step that begins at `consumed`, of the
 * readers or of the texts, borrowed; steps are kept until the next but one is
 * asked for. Errors: LOONG_ERR_CONFIG for more pictures or patches than there
 * is room for. */
LOONG_NODISCARD loong_status_t loongi_batch_plan_images(
    loong_batch_plan_t *plan, int64_t consumed, bool of_readers,
    int64_t micro_batch, const loong_planned_image_t **images_p,
    int64_t *count_p);

/* The first of `count` pictures that a replica of a reader has, or the first
 * one of those behind it. */
static inline int64_t loongi_planned_first(const loong_planned_image_t *images,
                                           int64_t count, int reader,
                                           int replica)
{
    int64_t first = 0;
    while (first < count) { /* replicas ascend */
        int64_t middle = first + (count - first) / 2;
        bool before = images[middle].at[reader].replica < replica;
        count = before ? count : middle;
        first = before ? middle + 1 : first;
    }
    return first;
}

/* The most that a micro-batch of one replica has among the draws [0, samples),
 * in any layout, of each encoder: most [LOONG_MAX_ENCODERS]. */
typedef struct loong_batch_most {
    int64_t images, patches; /* patches: rows of the encoder */
    int64_t longest;         /* likewise, of a grid of a picture */
} loong_batch_most_t;
LOONG_NODISCARD loong_status_t loongi_batch_plan_most(
    loong_context_t *ctx, const loong_blend_t *blend, int64_t micro_batch_size,
    int64_t samples, const loong_picture_reader_t *pictures,
    loong_batch_most_t *most);

#ifdef __cplusplus
}
#endif

#endif
