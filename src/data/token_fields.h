/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays that a micro-batch of token rows becomes. A program names those
 * that it takes (its DATA ports); one table says how each is made, whatever
 * the rows come from: a data set, a prompt, or made-up ids of a prediction. */
#ifndef LOONG_TOKEN_FIELDS_H
#define LOONG_TOKEN_FIELDS_H

#include "base.h"
#include "loong/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

/* T + 1 ids and what is known of each; T the length of a sample. */
typedef struct loong_token_row {
    int64_t draw;    /* number of the sample; -1: none */
    int64_t count;   /* weights of this rank's tokens */
    int32_t *ids;    /* [T + 1] */
    uint8_t *weight; /* [T + 1]; [t] belongs to the label of position t */
    uint8_t *starts; /* [T + 1] 1: the token is the first of a document */
} loong_token_row_t;

/* The micro-batch, and the part of it that a rank has. */
typedef struct loong_token_layout {
    int64_t seq_length; /* T */
    int64_t rows;       /* of a micro-batch */
    int context_parallel_rank;
    int context_parallel_size;
    int context_parallel_a2a; /* neighbours that exchange heads; 0: 1 */
    bool reset_position_ids;
    bool reset_attention_mask;
    int num_vision_ids;
    const int32_t *vision_ids; /* borrowed */
} loong_token_layout_t;

/* That of a loader; vision_ids are borrowed of params. */
loong_token_layout_t loongi_loader_layout(const loong_loader_params_t *params,
                                          int64_t seq_length);

/* Place in its row of token i, 0 <= i < T / context_parallel_size, of the
 * rank. */
int64_t loongi_token_place(const loong_token_layout_t *layout, int64_t i);

/* 1: the id is one of vision_ids, 0: it is text. */
int32_t loongi_token_type(const loong_token_layout_t *layout, int32_t id);

/* Whether the field can be filled: its name, type and count. `to` is not
 * looked at. Errors: LOONG_ERR_CONFIG, which lists the names there are. */
LOONG_NODISCARD loong_status_t loongi_token_field_check(
    loong_context_t *ctx, const loong_token_layout_t *layout,
    const loong_field_t *field);

/* Fills a field from layout->rows rows. Allocates nothing. Errors: those of
 * the check; LOONG_ERR_ARG when cu_seqlens is too short. */
LOONG_NODISCARD loong_status_t loongi_token_field_fill(
    loong_context_t *ctx, const loong_token_layout_t *layout,
    const loong_token_row_t *rows, const loong_field_t *field);

#ifdef __cplusplus
}
#endif

#endif
