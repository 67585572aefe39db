/* SPDX-License-Identifier: Apache-2.0
 *
 * The losses of a step: what they are divided by, which the step header makes
 * known before the first forward, and what their rows add up to. */
#ifndef LOONG_LOSSES_H
#define LOONG_LOSSES_H

#include "loader_sums.h"
#include "step_header.h"
#include "step_metrics.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_losses {
    const loong_component_t *component; /* borrowed: its list of losses */
    int num_normalisers;
    const char *normaliser[LOONG_MAX_LOSSES];
    int kind[LOONG_MAX_LOSSES]; /* of each, among the processor's */
    int normaliser_of[LOONG_MAX_LOSSES];
    double scale; /* of all losses; NAN: a fault on request */
    /* Of the step. */
    double sum[LOONG_MAX_LOSSES]; /* of each normaliser, all ranks */
    /* Of each loss, then of the squares of gradients: all that ranks add. */
    int64_t record[LOONG_MAX_LOSSES + 1][LOONG_EXACT_WORDS];
    double value[LOONG_MAX_LOSSES];
    bool own_finite; /* of the rows that this rank counts */
} loong_losses_t;

/* Errors: LOONG_ERR_CONFIG for a model without a loss, or one with a
 * normaliser that the processor does not sum. */
LOONG_NODISCARD loong_status_t
loongi_losses_open(loong_losses_t *losses, const loong_component_t *component,
                   const loong_processor_t *processor);

/* What this rank adds to the normalisers of a step, given the processor's sums
 * over its share. Of ranks that hold the same rows of data the first adds. */
void loongi_losses_count(const loong_losses_t *losses,
                         const loong_loader_sums_t *own,
                         int64_t sums[LOONG_STEP_SUMS][LOONG_EXACT_WORDS]);
/* Takes what all ranks have added. */
void loongi_losses_normalise(loong_losses_t *losses,
                             int64_t sums[LOONG_STEP_SUMS][LOONG_EXACT_WORDS]);
/* Begins to add up: the records are 0. */
void loongi_losses_begin(loong_losses_t *losses);

/* The step has rows of losses of items. */
bool loongi_losses_any(const loong_losses_t *losses);

/* Weights over normalisers, in the order of a chunk's losses. */
void loongi_losses_scale(const loong_losses_t *losses,
                         const loong_model_chunk_t *chunk,
                         loong_frame_t *frame);

/* Adds the rows of a chunk behind its forward, where this rank counts them. */
LOONG_NODISCARD loong_status_t loongi_losses_keep(
    loong_losses_t *losses, loong_step_metrics_t *metrics,
    const loong_binding_t *run, const loong_model_chunk_t *chunk);

/* The record of the squares of gradients. */
int64_t *loongi_losses_norm(loong_losses_t *losses);

/* Adds the records of all ranks, and makes the values. Collective. */
LOONG_NODISCARD loong_status_t loongi_losses_end(loong_losses_t *losses,
                                                 loong_comm_t *comm,
                                                 const char *what);

#ifdef __cplusplus
}
#endif

#endif
