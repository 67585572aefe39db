/* SPDX-License-Identifier: Apache-2.0
 *
 * What all attention kernels share: which keys a query sees, which of them
 * dropout keeps, and where the queries stand in their segments. */
#ifndef LOONG_ATTENTION_H
#define LOONG_ATTENTION_H

#include <stdio.h>

#include "base.h"
#include "dropout/dropout.h"
#include "loong/kernel.h"
#include "loong/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queries that follow one another in a segment: rows row .. row + count - 1 of
 * q are rows begin .. of the segment. */
typedef struct loong_attention_run {
    int64_t row;
    int64_t count;
    int64_t segment;
    int64_t begin;
} loong_attention_run_t;

/* The sequence of a launch. Operands: 2 has a row for each key, cu is
 * cu_seqlens, cu + 1 token_key, cu + 2 rows, cu + 3 key_rows, cu + 4
 * key_ends. */
typedef struct loong_attention_sequence {
    const int32_t *cu_seqlens;
    const int64_t *token_key; /* NULL without dropout */
    const int32_t *key_ends;  /* NULL: a causal query is its own last key */
    int64_t keys;             /* rows of k */
    int64_t segments;         /* up to the last one that is not empty */
    int32_t *first_key; /* row of k where each segment begins, and the end */
    int32_t *key_place; /* of each row of k in its segment */
    int64_t num_runs;
    loong_attention_run_t *runs; /* ascending */
} loong_attention_sequence_t;

/* Runs there may be. */
int64_t loongi_attention_max_runs(const loong_kernel_query_t *query);

/* Checks cu_seqlens, rows and key_rows and finds the places of queries and
 * keys, in `memory` of as many bytes as the first function says. */
size_t loongi_attention_sequence_bytes(const loong_kernel_query_t *query,
                                       int cu);
LOONG_NODISCARD loong_status_t loongi_attention_sequence(
    const loong_kernel_call_t *call, int cu, void *memory,
    loong_attention_sequence_t *sequence_p);

/* Of the keys of a segment, how many stand before this place. */
int64_t
loongi_attention_keys_before(const loong_attention_sequence_t *sequence,
                             int64_t segment, int64_t place);

/* The first run of this segment or one behind it. */
int64_t
loongi_attention_first_run(const loong_attention_sequence_t *sequence,
                           int64_t segment);

/* The library's own kernels may take it. */
static inline bool loongi_attention_local(const loong_kernel_query_t *query,
                                          char reason[LOONG_REASON_SIZE])
{
    if (query->policy.attention == LOONG_ATTENTION_FUSED) {
        snprintf(reason, LOONG_REASON_SIZE, "train.attention_backend is fused");
        return false;
    }
    return true;
}

/* Channels of a head of values and outputs. */
static inline int loongi_attention_v_dim(const loong_attention_attr_t *attr)
{
    return attr->v_head_dim > 0 ? attr->v_head_dim : attr->head_dim;
}

/* Rows [*begin, *end) of the segment are the keys that its row q sees; an end
 * that is none of the segment's stands for all. */
static inline void
loongi_attention_keys(const loong_attention_attr_t *attr,
                      const loong_attention_sequence_t *sequence,
                      int64_t segment, int64_t q, int64_t *begin, int64_t *end)
{
    const int32_t *ends = sequence->key_ends;
    int64_t first = sequence->cu_seqlens[segment];
    *end = !attr->causal   ? INT64_MAX
           : ends != NULL ? ends[first + q] - first
                           : q + 1;
    *begin =
        attr->window > 0 && q + 1 > attr->window ? q + 1 - attr->window : 0;
}

/* Dropout of one attention site in one step: a probability is dropped when
 * the top 24 bits of its number are below `limit`. */
typedef struct loong_attention_dropout {
    uint64_t key;
    int64_t step;
    int first_head;
    uint32_t limit;    /* 0: keep all */
    double keep_scale; /* 1 / (1 - p) */
} loong_attention_dropout_t;

static inline loong_attention_dropout_t
loongi_attention_dropout(const loong_attention_attr_t *attr,
                         const loong_frame_t *frame)
{
    loong_attention_dropout_t d = {0, 0, attr->first_head, 0, 1.0};
    if (attr->dropout > 0.0) {
        d.key = loongi_dropout_key(frame->seed, attr->stream);
        d.step = frame->step;
        d.limit = loongi_dropout_limit(attr->dropout);
        d.keep_scale = 1.0 / (1.0 - attr->dropout);
    }
    return d;
}

/* The numbers of keys 4 * block ... 4 * block + 3 (of the segment) for one
 * query (by its global number) and head. */
LOONG_EVERYWHERE static inline void
loongi_attention_random(const loong_attention_dropout_t *dropout,
                        int64_t token_key, int head, int64_t block,
                        uint32_t number[4])
{
    uint64_t global = (uint64_t)(dropout->first_head + head);
    uint64_t key = loongi_dropout_key(dropout->key, global + 1);
    loongi_dropout_words(key, dropout->step, token_key, (uint32_t)block,
                         number);
}

#ifdef __cplusplus
}
#endif

#endif
