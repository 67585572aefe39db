/* SPDX-License-Identifier: Apache-2.0
 *
 * The pointwise part of cross_entropy and token_logprob: one row of logits.
 * Compiled per instruction set level. */
#ifndef LOONG_SOFTMAX_H
#define LOONG_SOFTMAX_H

#include "cross_entropy.h"
#include "isa.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_softmax_row {
    float *logits; /* [columns]; the gradient takes its place, see half */
    int64_t columns;
    int64_t label; /* its column; -1: another rank has it */
    bool skip;     /* no loss */
    float weight;
    float z_loss;
    float scale;   /* of the loss */
    bool gradient; /* wanted */
    bool half;     /* the gradient is bf16, from the same address on */
    bool known;    /* logp and lse are, nothing is measured */
    float logp;
    float lse;
} loong_softmax_row_t;

/* First: the statistics of the row; with a gradient wanted, exponentials take
 * the place of the logits. Exponentials have a relative error below 2^-22. */
typedef loong_softmax_stats_t (*loong_softmax_measure_fn)(
    const loong_softmax_row_t *row);
/* Then: the loss of the token (cross_entropy_ref.c) and the gradient, from the
 * row's own statistics and those of all ranks. */
typedef float (*loong_softmax_finish_fn)(const loong_softmax_row_t *row,
                                         const loong_softmax_stats_t *own,
                                         const loong_softmax_stats_t *all);

typedef struct loong_softmax {
    loong_softmax_measure_fn measure;
    loong_softmax_finish_fn finish;
} loong_softmax_t;

#define LOONG_SOFTMAX_DECLARE(symbol_) extern const loong_softmax_t symbol_;
LOONG_ISA_EACH(LOONG_SOFTMAX_DECLARE, loongi_softmax)
#undef LOONG_SOFTMAX_DECLARE

/* The copy for this processor. */
const loong_softmax_t *loongi_softmax(void);

#ifdef __cplusplus
}
#endif

#endif
