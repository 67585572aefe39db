/* SPDX-License-Identifier: Apache-2.0
 *
 * What the cross_entropy kernels share: the check of labels, and the exchange
 * between ranks that share a vocabulary. */
#ifndef LOONG_CROSS_ENTROPY_H
#define LOONG_CROSS_ENTROPY_H

#include "base.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors: LOONG_ERR_ARG, naming the row and the label. */
LOONG_NODISCARD loong_status_t
loongi_cross_entropy_labels(const loong_kernel_call_t *call);

/* Rows of w with a logit: those of the vocabulary. */
int64_t loongi_cross_entropy_columns(const loong_kernel_query_t *query);

/* Rows whose logits a processor makes at a time; of ranks that share a
 * vocabulary all at most, on whatever devices: what they know of these rows
 * they exchange. */
int64_t loongi_cross_entropy_chunk(const loong_kernel_query_t *query);

/* The column of a label, or -1: another rank has it, or there is none. */
LOONG_EVERYWHERE static inline int64_t
loongi_cross_entropy_column(const loong_cross_entropy_attr_t *attr,
                            int64_t columns, int32_t label)
{
    int64_t column = label - attr->begin;
    return label != LOONG_IGNORE_LABEL && column >= 0 && column < columns
               ? column
               : -1;
}

/* What is known of one row of logits. */
typedef struct loong_softmax_stats {
    double top;   /* the largest */
    double sum;   /* of exp(logit - top) */
    double logit; /* of the label; 0: not here */
} loong_softmax_stats_t;

/* Room for the statistics of `rows` rows: those of all ranks, and the sums. */
size_t loongi_cross_entropy_room(const loong_kernel_query_t *query,
                                 int64_t rows);

/* Where this rank writes its own within that room, and where the sums are once
 * they are exchanged (the same place on one rank). */
loong_softmax_stats_t *
loongi_cross_entropy_own(const loong_kernel_query_t *query, void *room,
                         int64_t rows);
const loong_softmax_stats_t *
loongi_cross_entropy_all(const loong_kernel_query_t *query, void *room,
                         int64_t rows);

/* Combines the ranks' statistics in rank order. Collective on the group. */
LOONG_NODISCARD loong_status_t
loongi_cross_entropy_exchange(const loong_kernel_call_t *call, void *room,
                              int64_t rows);

#ifdef __cplusplus
}
#endif

#endif
