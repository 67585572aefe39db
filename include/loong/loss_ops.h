/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that losses are made of; the words are those of ops.h, which includes
 * this. */
#ifndef LOONG_LOSS_OPS_H
#define LOONG_LOSS_OPS_H

#include <string.h>

#include "loong/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cross_entropy (fused linear + loss): x [T,H], w [V,H], labels i32 [T],
 * loss_weight wide [T] -> token_loss wide [T] (weighted:
 * w_t * (l_t + z * lse^2)), and, when the gradient is wanted, dx [T,H] and
 * dw [V,H] wide, both already times frame.loss_scale[loss]. Never holds T x V
 * logits. A token whose label is LOONG_IGNORE_LABEL has loss 0; another label
 * outside 0..vocab-1 is LOONG_ERR_ARG. Rows of w at and after `vocab` (padding)
 * take no part. Output 0 is declared as the loss of the params, whose `same`
 * the builder sets: the ranks of the group have the same rows.
 * With a second pair h [T,K] and u [V,K] of the same type the logits are
 * x w' + h u', and dh and du are made as dx and dw are.
 * With size > 1 the ranks of a group share the vocabulary, each with rows of
 * its own in w: maxima, sums and the label's logit are exchanged, token_loss
 * is complete and equal on all, dx is the rank's own part of a sum. */
typedef struct loong_cross_entropy_attr {
    int loss;      /* index of frame.loss_scale; set by the builder; -1: none */
    int64_t vocab; /* of all ranks together */
    double z_loss; /* coefficient of lse^2 */
    int64_t begin; /* label of row 0 of w */
    loong_group_t group;
    int size; /* of the group; up to 1: w holds everything */
    int rank;
} loong_cross_entropy_attr_t;

/* Whether a kernel of this op calls the other ranks in between, as its
 * vocabulary is in parts on them. `attr` is the op's own. */
static inline bool loong_loss_is_shared(const char *op, const void *attr)
{
    const loong_cross_entropy_attr_t *a =
        (const loong_cross_entropy_attr_t *)attr;
    return (strcmp(op, "cross_entropy") == 0 ||
            strncmp(op, "token_logprob", 13) == 0) &&
           a->size > 1;
}
typedef struct loong_cross_entropy_params {
    int64_t vocab;
    double z_loss;
    loong_loss_params_t loss;
    int64_t begin;       /* label of row 0 of w */
    bool shared;         /* over the ranks of group */
    loong_group_t group;
    const loong_val_t *second; /* h and u; NULL: there is one pair */
} loong_cross_entropy_params_t;
LOONG_API loong_val_t loong_cross_entropy(
    loong_graph_t *g, loong_val_t x, loong_val_t w, loong_val_t labels,
    loong_val_t loss_weight, const loong_cross_entropy_params_t *params);

/* softmax_cross_entropy: logits x [N,C], labels i32 [N], loss_weight wide [N]
 * -> loss wide [N] = loss_weight (lse - x[label]), lse wide [N]. A row whose
 * label is LOONG_IGNORE_LABEL has loss 0; another label outside 0..C-1 is
 * LOONG_ERR_ARG. softmax_cross_entropy_grad: x, labels, loss_weight, lse, dloss
 * wide [N] -> dx [N,C]. No attributes. */
LOONG_API loong_val_t loong_softmax_cross_entropy(loong_graph_t *g,
                                                  loong_val_t x,
                                                  loong_val_t labels,
                                                  loong_val_t loss_weight);

/* loss: x wide [T] -> x, where ordinary nodes end in a declared loss.
 * loss_scale: x -> frame.loss_scale[loss] in the shape of x, its gradient. */
typedef struct loong_loss_attr {
    int loss; /* index of frame.loss_scale; set by the builder */
} loong_loss_attr_t;
LOONG_API loong_val_t loong_loss(loong_graph_t *g, loong_val_t x,
                                 const loong_loss_params_t *params);

/* token_logprob: x [T,H], w [V,H], labels i32 [T] -> logp wide [T], the log of
 * the probability that softmax(w x_t) gives label t; saved beside it lse wide
 * [T], the logits' log-sum-exp. A token whose label is LOONG_IGNORE_LABEL has
 * logp 0 and no gradient. Labels, padding and a shared vocabulary as
 * cross_entropy's; never holds T x V logits.
 * token_logprob_grad: x, w, labels, logp, lse, dlogp wide [T] -> dx [T,H] and
 * dw [V,H] wide, each where it is wanted; the logits are made again. A second
 * pair, behind these operands, is as cross_entropy's, and so are its
 * gradients. */
typedef struct loong_token_logprob_params {
    int64_t vocab; /* of all ranks together */
    int64_t begin; /* label of row 0 of w */
    bool shared;   /* over the ranks of group */
    loong_group_t group;
    const loong_val_t *second; /* h and u; NULL: there is one pair */
} loong_token_logprob_params_t;
LOONG_API loong_val_t loong_token_logprob(
    loong_graph_t *g, loong_val_t x, loong_val_t w, loong_val_t labels,
    const loong_token_logprob_params_t *params);

/* kl_estimate: policy, reference wide [T], log-probabilities of tokens that the
 * policy drew -> wide [T], exp(d) - 1 - d with d = reference - policy: what a
 * token adds to an estimate of KL(policy || reference), 0 where both are equal.
 * kl_estimate_grad: dy, policy, reference -> dpolicy. No attributes. */
LOONG_API loong_val_t loong_kl_estimate(loong_graph_t *g, loong_val_t policy,
                                        loong_val_t reference);

/* x [T,H], target [T,H] -> wide [T], the mean over the channels of
 * (x - target)^2, by other ops in the wide type. Rows are weighted or left out
 * by loong_multiply or loong_select_rows. */
LOONG_API loong_val_t loong_squared_error(loong_graph_t *g, loong_val_t x,
                                          loong_val_t target);

#ifdef __cplusplus
}
#endif

#endif
