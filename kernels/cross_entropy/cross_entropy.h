/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of cross_entropy, token_logprob and token_logprob_grad
 * share: the check of labels, and the exchange between ranks that share a
 * vocabulary. */
#ifndef LOONG_CROSS_ENTROPY_H
#define LOONG_CROSS_ENTROPY_H

#include "base.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Logits are the sum of x w' of one pair, or of two. */
enum { LOONG_HEAD_PAIRS = 2 };
typedef struct loong_head_pair {
    int x, w;
    int dx, dw; /* 0: the op has none */
} loong_head_pair_t;

/* What the operands of one of these ops are; 0: it has none. Operand 2 are the
 * labels. The value of token t is W_t times its loss, and gradients are those
 * of the sum of them. */
typedef struct loong_head_roles {
    int weight; /* W_t = sign weight[t]; without an operand W_t = sign */
    int value;
    int lse;
    int num_pairs;
    loong_head_pair_t pair[LOONG_HEAD_PAIRS];
    double sign;
    bool known; /* value and lse are inputs, from which gradients are made */
} loong_head_roles_t;
const loong_head_roles_t *
loongi_cross_entropy_roles(const loong_kernel_query_t *query);

/* Operand `role` is an output that is wanted. */
static inline bool loongi_cross_entropy_makes(const loong_kernel_query_t *query,
                                              int role)
{
    return role >= query->num_in && query->arg[role].rank > 0;
}

/* What gradients are multiplied by. */
LOONG_EVERYWHERE static inline double
loongi_cross_entropy_scale(const loong_cross_entropy_attr_t *attr,
                           const loong_frame_t *frame)
{
    return attr->loss < 0 ? 1.0 : frame->loss_scale[attr->loss];
}

/* Errors: LOONG_ERR_ARG, naming the row and the label. */
LOONG_NODISCARD loong_status_t
loongi_cross_entropy_labels(const loong_kernel_call_t *call);

/* Rows of w with a logit: those of the vocabulary. */
int64_t loongi_cross_entropy_columns(const loong_kernel_query_t *query);

/* Rows whose logits a processor makes at a time; of ranks that share a
 * vocabulary all at most, on whatever devices: what they know of these rows
 * they exchange. */
int64_t loongi_cross_entropy_chunk(const loong_kernel_query_t *query);

/* The tokens whose logits are made, in order: those with labels; where ranks
 * share the vocabulary all of them, as other devices make all. token has room
 * for whole chunks of `rows`, the last of which is filled up with -1. Returns
 * how many there are. */
int64_t loongi_cross_entropy_list(const loong_kernel_call_t *call, int64_t rows,
                                  int32_t *token);

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

/* What a token's log-probability and log-sum-exp tell of its row. */
LOONG_EVERYWHERE static inline loong_softmax_stats_t
loongi_softmax_known(double logp, double lse)
{
    loong_softmax_stats_t stats = {lse, 1.0, lse + logp};
    return stats;
}

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
