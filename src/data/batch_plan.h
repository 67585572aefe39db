/* SPDX-License-Identifier: Apache-2.0
 *
 * The batch plan of a model that reads texts with pictures: which pictures the
 * texts of a step have, where their rows stand, and which replica of the image
 * encoder reads which. A pure function of (samples consumed, sizes of items,
 * layout): every rank of a cell makes the same one. */
#ifndef LOONG_BATCH_PLAN_H
#define LOONG_BATCH_PLAN_H

#include "loong/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_batch_plan loong_batch_plan_t;

typedef struct loong_batch_plan_params {
    const loong_loader_t *loader; /* of the texts, on any rank; borrowed */
    loong_loader_params_t texts;  /* its parameters */
    /* Replicas of the texts in the cell, and their data-parallel ranks;
     * borrowed. */
    int replicas;
    const int32_t *replica;
    int64_t seq_length; /* rows of a text in a micro-batch */
    int64_t image_rows; /* of a picture in a text */
    int64_t max_images; /* of a micro-batch of one replica */
} loong_batch_plan_params_t;

/* A picture of a micro-batch of the cell; they are ordered by their texts. */
typedef struct loong_planned_image {
    int64_t draw; /* of its text */
    int number;   /* in it, from 1 on */
    int replica;  /* of the texts, from 0 on */
    int64_t row;  /* its first one among those of the micro-batch */
} loong_planned_image_t;

/* Not collective. The blend's sources must be able to peek; else
 * LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_batch_plan_create(
    loong_context_t *ctx, const loong_batch_plan_params_t *params,
    loong_batch_plan_t **plan_p);
void loongi_batch_plan_destroy(loong_batch_plan_t **plan_p);

/* The pictures of a micro-batch of the step that begins at `consumed`,
 * borrowed; steps are kept until the next but one is asked for. Errors:
 * LOONG_ERR_CONFIG for more than max_images. */
LOONG_NODISCARD loong_status_t loongi_batch_plan_images(
    loong_batch_plan_t *plan, int64_t consumed, int64_t micro_batch,
    const loong_planned_image_t **images_p, int64_t *count_p);

/* The first of `count` pictures that is dealt to a replica of `replicas`. */
static inline int64_t loongi_dealt(int64_t count, int replica, int replicas)
{
    return count * replica / replicas;
}

/* The most pictures that a micro-batch of one replica has among the draws
 * [0, samples), in any layout. */
LOONG_NODISCARD loong_status_t loongi_batch_plan_most(
    loong_context_t *ctx, const loong_blend_t *blend, int64_t micro_batch_size,
    int64_t samples, int64_t *most_p);

#ifdef __cplusplus
}
#endif

#endif
