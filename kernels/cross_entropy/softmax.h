/* SPDX-License-Identifier: Apache-2.0
 *
 * The pointwise part of cross_entropy: one row of logits. Compiled per
 * instruction set level. */
#ifndef LOONG_SOFTMAX_H
#define LOONG_SOFTMAX_H

#include "isa.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_softmax_row {
    float *logits; /* [vocab]; the gradient takes its place, see half */
    int64_t vocab;
    int32_t label; /* LOONG_IGNORE_LABEL: none */
    float weight;
    float z_loss;
    float scale;   /* of the loss */
    bool gradient; /* wanted */
    bool half;     /* the gradient is bf16, from the same address on */
} loong_softmax_row_t;

/* Returns the loss of the token (cross_entropy_ref.c). Powers have a relative
 * error below 2^-22. */
typedef float (*loong_softmax_fn)(const loong_softmax_row_t *row);

#define LOONG_SOFTMAX_DECLARE(symbol_) \
    float symbol_(const loong_softmax_row_t *row);
LOONG_ISA_EACH(LOONG_SOFTMAX_DECLARE, loongi_softmax)
#undef LOONG_SOFTMAX_DECLARE

/* The copy for this processor. */
loong_softmax_fn loongi_softmax(void);

#ifdef __cplusplus
}
#endif

#endif
