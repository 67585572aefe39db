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
#include "loong/dtype.h"
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

/* An array that a program takes, by the name of the graph's input. Of one
 * micro-batch of A = micro_batch_size * T tokens, row after row, of which this
 * rank has R = A / context_parallel_size, there are
 *
 *     tokens          i32 [R] in 0 .. vocab_size-1
 *     labels          i32 [R] the next token, LOONG_IGNORE_LABEL where
 *                     loss_weight is 0
 *     loss_weight     f32 or f64 [R] 1 or 0: by mask column, eod_mask_loss and
 *                     padding. The mask belongs to the label: position t is
 *                     learned if token t + 1 is
 *     token_types     i32 [R] 1: one of vision_ids, 0: text
 *     positions       i32 [R] from 0 in each row, or in each document
 *     token_key       i64 [R] g * T + t: names the token in all layouts
 *     all_token_keys  i64 [R x context_parallel_a2a] of the tokens that this
 *                     rank and such neighbours have
 *     places          i32 [A] neighbours after neighbours: where their tokens
 *                     stand among the A, ascending
 *     cu_seqlens      i32 [count] starts of the segments (rows, or documents in
 *                     rows) among the A tokens, then A in the rest; A + 1
 *                     elements always suffice
 *     row_crc         i32 [micro_batch_size] the bits of the CRC-32 of the T
 *                     ids of each whole row */
typedef struct loong_field {
    const char *name;
    loong_dtype_t dtype;
    int64_t count; /* elements */
    void *to;      /* the caller's memory */
    /* How it is filled, by loong_loader_bind; NULL: looked up by each fill. */
    const struct loong_field_kind *kind;
} loong_field_t;

/* Looks a field up by its name and checks its type. Errors:
 * LOONG_ERR_CONFIG. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_loader_bind(loong_context_t *ctx, loong_field_t *field);

/* Fills fields of micro-batch k, 0 <= k < micro_batches, of the step.
 * Errors: LOONG_ERR_ARG; LOONG_ERR_CONFIG (a field that there is not, of
 * another type or size); LOONG_ERR_FORMAT (id or mask value out of range, with
 * file, document and position). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_loader_fill(loong_loader_t *loader, int64_t consumed, int64_t micro_batch,
                  int num_fields, const loong_field_t *fields);

/* Asks the system to read this rank's share of the step ahead; returns at
 * once. */
LOONG_API void loong_loader_prefetch(const loong_loader_t *loader,
                                     int64_t consumed);

#ifdef __cplusplus
}
#endif

#endif
