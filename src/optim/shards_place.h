/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that put collectives into programs share. */
#ifndef LOONG_SHARDS_PLACE_H
#define LOONG_SHARDS_PLACE_H

#include "steps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operand that lies in a bucket. */
typedef struct touch {
    int program;
    int64_t step;
    int arg;
    bool grad;
    int64_t first; /* steps between which it stays: in rounds all of them */
    int64_t last;
    int64_t at; /* of the last, in time */
    int64_t bucket;
    int64_t begin; /* elements of the flat buffer */
    int64_t end;
    int64_t span; /* where in COMM; -1: not there */
} touch_t;

/* Something of a bucket that is in COMM for a time. */
typedef struct span {
    int64_t bucket;
    bool grad;
    bool half;   /* of gradients: rounded to bf16, while they are summed */
    int program; /* of the last use */
    int64_t first;  /* step of the first use, in its program */
    int64_t last;   /* of the last use */
    int64_t begin;  /* in time: filled from here on */
    int64_t end;    /* last use */
    int64_t before; /* of parameters: the step behind their gather */
    int64_t offset; /* in COMM */
} span_t;

typedef struct placer {
    const loong_shards_t *s;
    loong_model_chunk_t *c;
    int64_t start[LOONG_PROGRAM_COUNT + 1]; /* in time */
    int64_t num_touches, cap_touches;
    touch_t *touches;
    int64_t num_spans, cap_spans;
    span_t *spans;
    int64_t *open; /* per bucket: its last span of parameters, or -1 */
    /* What is put in: steps, and twice the step it stands before, or that
     * plus 1 behind it. */
    loong_program_t added[LOONG_PROGRAM_COUNT];
    int64_t cap_keys[LOONG_PROGRAM_COUNT];
    int64_t *keys[LOONG_PROGRAM_COUNT];
} placer_t;

loong_dtype_t loongi_span_dtype(const placer_t *k, const span_t *span);
int64_t loongi_span_bytes(const placer_t *k, const span_t *span);
/* Where an element is while its span lasts. */
loong_operand_t loongi_in_comm(const placer_t *k, const span_t *span,
                               int64_t element);

/* A new span, from before a step to an operand. */
LOONG_NODISCARD loong_status_t loongi_add_span(placer_t *k, const touch_t *t,
                                               int64_t before);
/* A step that is put in at a key. */
LOONG_NODISCARD loong_status_t loongi_put_step(placer_t *k, int program,
                                               int64_t key,
                                               const loong_step_t *step);

/* ---- shards_sum.c: sums of gradients ---- */
/* How long what is summed stays in COMM. */
LOONG_NODISCARD loong_status_t loongi_span_sum(placer_t *k, int64_t bucket);
LOONG_NODISCARD loong_status_t loongi_put_sums(placer_t *k);

#ifdef __cplusplus
}
#endif

#endif
