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
 * Context parallel ranks read the same rows and give each its own two parts of
 * every row (chunks r and 2 n - 1 - r of 2 n); labels, positions and bounds are
 * made from the whole row before. Nothing is allocated after
 * loong_loader_create.
 */
#ifndef LOONG_LOADER_H
#define LOONG_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/blend.h"
#include "loong/context.h"
#include "loong/status.h"

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

enum { LOONG_MAX_VISION_IDS = 16 };

typedef struct loong_loader_params {
    const loong_blend_t *blend; /* borrowed, outlives the loader */
    int64_t vocab_size;         /* ids must be below */
    int64_t micro_batch_size;
    int64_t global_batch_size;
    loong_rampup_t rampup_batch_size;
    int data_parallel_rank;
    int data_parallel_size;
    int context_parallel_rank;
    int context_parallel_size; /* T is a multiple of twice this, when above 1 */
    int context_parallel_a2a; /* neighbours that exchange heads; 0: 1 */
    /* 0: no end. Rows at or past it are padding: token 0, no label, weight 0.
     * For evaluating a whole set. */
    int64_t num_samples;
    /* Positions restart at each document. */
    bool reset_position_ids;
    /* Documents do not see each other. */
    bool reset_attention_mask;
    /* No loss where the label is the first token of another document. */
    bool eod_mask_loss;
    /* Ids that stand for parts of images; all others are text. */
    int num_vision_ids;
    int32_t vision_ids[LOONG_MAX_VISION_IDS];
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

/* Micro-batches of every rank in that step. */
LOONG_API int64_t loong_loader_micro_batches(const loong_loader_t *loader,
                                             int64_t consumed);

/* Reads and checks this rank's whole share of the step, and counts the labels
 * of its parts that carry loss: so a bad sample is known, and the normaliser of
 * the loss too, before the first forward.
 * Errors: those of loong_loader_fill. */
LOONG_API LOONG_NODISCARD loong_status_t loong_loader_check_step(
    loong_loader_t *loader, int64_t consumed, int64_t *loss_tokens_p);

/* Arrays of one micro-batch, caller's memory; A = micro_batch_size * T tokens,
 * row after row, of which this rank has R = A / context_parallel_size. A NULL
 * array is not wanted. */
typedef struct loong_batch {
    int32_t *tokens;         /* [R] in 0 .. vocab_size-1 */
    int32_t *labels;         /* [R] the next token, LOONG_IGNORE_LABEL where
                                loss_weight is 0 */
    float *loss_weight;      /* [R] 1 or 0: by mask column, eod_mask_loss and
                                padding. The mask belongs to the label: position
                                t is learned if token t + 1 is */
    int32_t *token_types;    /* [R] 1: one of vision_ids, 0: text */
    int32_t *position_ids;   /* [R] from 0 in each row, or in each document */
    int64_t *token_key;      /* [R] g * T + t: names the token in all layouts */
    uint32_t *row_crc;       /* [micro_batch_size] CRC-32 of the T ids of each
                                whole row, i32 */
    int64_t *all_token_keys; /* [R x context_parallel_a2a] of the tokens that
                                this rank and such neighbours have */
    int32_t *places;         /* [A] neighbours after neighbours: where their
                                tokens stand among the A, ascending */
    int32_t *cu_seqlens;     /* [cu_seqlens_size] starts of the segments (rows,
                                or documents in rows) among the A tokens, then
                                A in the rest */
    int64_t cu_seqlens_size; /* A + 1 always suffices */
    int64_t num_segments;    /* out, when cu_seqlens is wanted */
    int64_t max_seqlen;      /* out: longest segment, likewise */
    int64_t loss_tokens;     /* out: number of weights that are 1 */
} loong_batch_t;

/* Fills micro-batch k, 0 <= k < micro_batches, of the step.
 * Errors: LOONG_ERR_ARG, LOONG_ERR_FORMAT (id or mask value out of range, with
 * file, document and position). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_loader_fill(loong_loader_t *loader, int64_t consumed, int64_t micro_batch,
                  loong_batch_t *batch);

/* Asks the system to read this rank's share of the step ahead; returns at
 * once. */
LOONG_API void loong_loader_prefetch(const loong_loader_t *loader,
                                     int64_t consumed);

#ifdef __cplusplus
}
#endif

#endif
