/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays that a micro-batch of token rows becomes. A program names those
 * that it takes (its DATA ports); one table says how each is made, whatever
 * the rows come from: a data set, a prompt, or made-up ids of a prediction. */
#ifndef LOONG_TOKEN_FIELDS_H
#define LOONG_TOKEN_FIELDS_H

#include "base.h"
#include "loong/processor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row of a picture, the first of it or of a part of it, and of which encoder:
 * its number from this bit on. */
enum { LOONG_FEATURE = 1, LOONG_FEATURE_FIRST = 2, LOONG_FEATURE_ENCODER = 2 };

/* T + 1 ids and what is known of each; T the length of a sample. */
typedef struct loong_token_row {
    int64_t draw;    /* number of the sample; -1: none */
    int32_t *ids;    /* [T + 1] */
    uint8_t *weight; /* [T + 1]; [t] belongs to the label of position t */
    uint8_t *starts; /* [T + 1] LOONG_START_*; NULL: one text */
    uint8_t *feature; /* [T + 1] LOONG_FEATURE*: a row of a picture; NULL: there
                         are none */
    int32_t (*place)[3]; /* [T + 1] of these: time, row and column */
} loong_token_row_t;

/* Place in its row of token i, 0 <= i < T / context_parallel_size, of the
 * rank. */
int64_t loongi_token_place(const loong_token_params_t *params, int64_t i);

/* 1: the id is one of vision_ids, 0: it is text. */
int32_t loongi_token_type(const loong_token_params_t *params, int32_t id);

/* The place behind the sample that has place t of a row as its first, and the
 * learned labels of it. */
int64_t loongi_token_sample(const loong_token_params_t *params,
                            const loong_token_row_t *row, int64_t t,
                            int64_t *learned_p);

/* What each of so many learned labels of a sample weighs. */
double loongi_token_weight(const loong_token_params_t *params, int64_t learned);

/* Slots of loong_token_processor, see there; rows of loong_token_row_t. */
LOONG_NODISCARD loong_status_t loongi_token_bind(loong_context_t *ctx,
                                                 const void *config,
                                                 loong_field_t *field);
LOONG_NODISCARD loong_status_t loongi_token_fill(loong_context_t *ctx,
                                                 const void *config,
                                                 void *const *rows,
                                                 const loong_field_t *field);

#ifdef __cplusplus
}
#endif

#endif
