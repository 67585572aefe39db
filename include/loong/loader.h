/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader: this rank's share of a step's samples, as the arrays that a
 * program takes. It has no state but `consumed`, the number of samples that
 * all earlier steps took together, kept by the caller (and its checkpoint):
 * every call is a pure function of its arguments, so a resumed run, also on
 * another number of ranks, goes on with the very next sample.
 *
 * The step that starts at `consumed` takes draws g = consumed .. consumed +
 * batch - 1 of the blend. Row j of micro-batch k of data-parallel rank r is
 *
 *     g = consumed + (k * data_parallel_size + r) * micro_batch_size + j.
 *
 * With weights rank r has of[r] micro-batches of the step (loongi_shares), and
 * micro-batch k of it is number
 *
 *     sum over all ranks q of min(of[q], k + (1 if q < r, else 0))
 *
 * in place of k * data_parallel_size + r, which that is for equal weights.
 *
 * With costs of samples the micro-batches of a step are dealt to the ranks by
 * them: micro-batch k of rank r is then number
 * order(k, r) of the step's instead of k * data_parallel_size + r, order a pure
 * function of the costs, and has the same rows.
 *
 * What a sample becomes is its processor's (loong/processor.h). A loader of
 * samples of a known size allocates nothing once it is created.
 */
#ifndef LOONG_LOADER_H
#define LOONG_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/blend.h"
#include "loong/processor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_loader loong_loader_t;

/* Batch ramp-up, as Megatron's rampup_batch_size: the global batch begins at
 * `start` and grows by `increment` at equal numbers of consumed samples, to
 * reach global_batch_size after `samples`:
 *
 *     steps = (global_batch_size - start) / increment
 *     batch = start + increment * floor(consumed * steps / samples). */
typedef struct loong_rampup {
    int64_t start; /* 0: no ramp-up */
    int64_t increment;
    int64_t samples;
} loong_rampup_t;

/* Rows of a micro-batch that are not its samples one after the other. */
typedef struct loong_row_plan {
    int64_t samples; /* of a micro-batch, of which the last may have fewer */
    int64_t rows;    /* of a micro-batch */
    void *user;
    /* The draw that a row is of, -1 for padding, and what of its sample is
     * wanted (loong_items_t.picture). Not on several threads. */
    loong_status_t (*locate)(void *user, int64_t consumed, int64_t micro_batch,
                             int64_t row, int64_t *draw_p, int *picture_p);
} loong_row_plan_t;

/* The parts of what samples cost, in thousands of operations. */
enum {
    LOONG_COST_ROWS,    /* of a row of texts, whatever is in it */
    LOONG_COST_TEXT,    /* attention in texts */
    LOONG_COST_ENCODER, /* of a micro-batch that has pictures */
    LOONG_COST_PICTURES /* attention in pictures */
};
enum { LOONG_COST_PARTS = 4 };

typedef struct loong_sample_costs {
    int64_t row;
    const int64_t *text; /* [seq_length + 2] of one of so many ids in a row */
    struct {
        int64_t micro_batch; /* that has pictures of it */
        const int64_t *picture; /* [rows + 1] of one with so many of its rows */
        int64_t rows;
    } encoder[LOONG_MAX_ENCODERS];
    loong_picture_reader_t pictures; /* rows NULL: there are none */
    double rate[LOONG_COST_PARTS]; /* by which parts are added up */
} loong_sample_costs_t;

typedef struct loong_loader_params {
    const loong_blend_t *blend; /* borrowed, outlives the loader */
    const loong_processor_t *processor; /* borrowed, as its config is */
    const void *config;
    int64_t micro_batch_size;
    int64_t global_batch_size;
    loong_rampup_t rampup_batch_size;
    int data_parallel_rank;
    int data_parallel_size;
    /* [data_parallel_size] 1 to 1e9 each, borrowed; NULL: equal ones. Not with
     * costs. */
    const int64_t *weights;
    /* 0: no end. Rows at or past it are padding, of weight 0. For evaluating a
     * whole set. */
    int64_t num_samples;
    const loong_row_plan_t *row_plan; /* borrowed; NULL: as above */
    /* Borrowed; NULL: micro-batches are not dealt by them. */
    const loong_sample_costs_t *costs;
    /* Threads that read the samples of a step while the one before runs, of
     * sources that several may read; 0: none. */
    int num_workers;
} loong_loader_params_t;

/* Checks sizes against each other and against the blend. Not collective.
 * Errors: LOONG_ERR_CONFIG, LOONG_ERR_MEMORY. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_loader_create(loong_context_t *ctx, const loong_loader_params_t *params,
                    loong_loader_t **loader_p);

LOONG_API void loong_loader_destroy(loong_loader_t **loader);

/* Global batch of the step that starts at `consumed`; the next step starts at
 * consumed + this. */
LOONG_API int64_t loong_loader_batch(const loong_loader_t *loader,
                                     int64_t consumed);

/* Micro-batches of this rank in that step. Not on several threads. */
LOONG_API int64_t loong_loader_micro_batches(const loong_loader_t *loader,
                                             int64_t consumed);

/* The draw of the first sample of a micro-batch of a data-parallel rank; no row
 * plan. Not on several threads. Errors: those of blend and sources. */
LOONG_API LOONG_NODISCARD loong_status_t loong_loader_get_draw(
    loong_loader_t *loader, int64_t consumed, int64_t micro_batch,
    int data_parallel_rank, int64_t *draw_p);

/* Reads and checks this rank's whole share of the step, and adds up the
 * normalisers of its parts (processor->normalisers): so a bad sample is known,
 * and what losses are divided by too, before the first forward. Errors: those
 * of the processor and of the sources. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_loader_check_step(loong_loader_t *loader, int64_t consumed,
                        double sums[LOONG_MAX_NORMALISERS]);

/* Fills fields of micro-batch k, 0 <= k < micro_batches, of the step.
 * Errors: LOONG_ERR_ARG; those of the processor and of the sources. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_loader_fill(loong_loader_t *loader, int64_t consumed, int64_t micro_batch,
                  int num_fields, const loong_field_t *fields);

/* What the rank with most to do has in a step, over the mean of all, by the
 * costs: as micro-batches are dealt, and as they were drawn; both 1 without
 * costs. Errors: those of the blend. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_loader_get_balance(loong_loader_t *loader, int64_t consumed,
                         double *dealt_p, double *drawn_p);

/* Begins to read this rank's share of the step ahead, by the workers, or asks
 * the system to; returns at once. */
LOONG_API void loong_loader_prefetch(loong_loader_t *loader, int64_t consumed);

#ifdef __cplusplus
}
#endif

#endif
