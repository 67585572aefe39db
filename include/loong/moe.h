/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops of mixtures of experts (Shazeer et al. 2017; Fedus et al. 2021). T
 * tokens, E experts of the layer, k experts a token, R rows: one for each
 * token and expert that are together on this rank, those of one expert behind
 * one another, in the order of the tokens. R is a bound that no routing
 * exceeds; how many rows there are, and of whom, is known to the kernels alone
 * (`offsets`), so no token is ever dropped. Rows behind the last are neither
 * written nor read, whatever is there.
 *
 * The formulas and derivatives stand in kernels/moe/.
 */
#ifndef LOONG_MOE_H
#define LOONG_MOE_H

#include "loong/collective.h"
#include "loong/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What logits become, Megatron's moe_router_score_function. */
typedef enum loong_score_function {
    LOONG_SCORE_SOFTMAX,
    LOONG_SCORE_SIGMOID,
    LOONG_SCORE_SQRTSOFTPLUS
} loong_score_function_t;

/* Whether sigmoid's and sqrtsoftplus' chosen scores are divided by their sum:
 * with k > 1 (Megatron), always (then a single weight is 1), never. */
typedef enum loong_router_weights {
    LOONG_WEIGHTS_AUTO,
    LOONG_WEIGHTS_DIVIDED,
    LOONG_WEIGHTS_PLAIN
} loong_router_weights_t;

/* topk_router: logits wide [T,E], bias wide [E] or none, replayed i32 [T,k] or
 * none, token types i32 [T] or none -> weights wide [T,k], indices i32 [T,k],
 * by falling score, the lower index first where scores are equal; `replayed`
 * are taken as they are, and weights and gradients are those of the scores all
 * the same. With `sets` of experts, E / sets each, there are token types: a
 * token of type s, 0 .. sets - 1, knows the experts of set s alone, s E / sets
 * .. (s + 1) E / sets - 1: what follows holds within a set. softmax: with
 * pre_softmax the scores are the softmax of all logits and the weights are
 * scores; without it the weights are the softmax of the k chosen logits, which
 * is the same divided by the sum of the chosen. sigmoid, sqrtsoftplus: weights
 * are the chosen scores, divided by their sum as `weights` says. The bias is
 * added to the scores (of softmax: over all logits) for the choice alone. With
 * num_groups > 0 the experts are that many groups of equal size; only those of
 * the group_topk groups with the largest sums of their group_scores best scores
 * can be chosen. In the end the weights are multiplied by scaling_factor. With
 * `forced` the scores choose nothing: token t of the micro-batch (row 0 is
 * token `begin`) gets experts t k, t k + 1, ... modulo E, for measurements with
 * even loads.
 * The bias has a gradient of its own (Wang et al. 2024), of no loss: how far
 * each expert is above an even share of the choices (expert_excess); a
 * parameter with a sign_rate follows it down.
 * topk_router_grad: dweights, logits, indices -> dlogits. */
typedef struct loong_router_attr {
    int topk;
    loong_score_function_t score;
    bool pre_softmax;
    int num_groups; /* 0: no groups */
    int group_topk;
    int group_scores; /* 0: topk / group_topk */
    double scaling_factor;
    bool forced;
    int64_t begin;
    int sets; /* 0: one, no token types */
    loong_router_weights_t weights;
} loong_router_attr_t;
/* Besides the logits; LOONG_NONE: none. */
typedef struct loong_router_inputs {
    loong_val_t bias;
    loong_val_t replayed;
    loong_val_t types;
} loong_router_inputs_t;
LOONG_API loong_val_t loong_topk_router(loong_graph_t *g, loong_val_t logits,
                                        const loong_router_inputs_t *inputs,
                                        const loong_router_attr_t *attr,
                                        loong_val_t *indices_p);

/* expert_capacity: indices i32 [T,k], weights wide [T,k] -> indices i32 [T,k],
 * with -1 where an expert has more than `capacity` of these tokens: it keeps
 * the first ones (by_position) or those of the largest weights, the lower token
 * where they are equal in fp32. Megatron's drop policies. No gradient. */
typedef struct loong_expert_capacity_attr {
    int experts;
    int64_t capacity;
    bool by_position;
} loong_expert_capacity_attr_t;
LOONG_API loong_val_t loong_expert_capacity(
    loong_graph_t *g, loong_val_t indices, loong_val_t weights,
    const loong_expert_capacity_attr_t *attr);

/* expert_order: indices i32 [T,k] -> offsets i32 [count+1], source i32 [R],
 * dest i32 [T,k]: row r belongs to the (source[r] % k)-th expert of token
 * source[r] / k, and dest is the inverse; -1 where there is no row. Of the
 * experts begin .. begin + count - 1, which are on this rank; expert e has rows
 * offsets[e - begin] .. offsets[e - begin + 1] - 1. R = T * min(k, count), or
 * `most` when that is less and not 0; more rows are LOONG_ERR_ARG. No
 * gradient. An index of -1 is no choice; one of LOONG_NO_TOKEN says that there
 * is no token, and dest says so too; another outside of 0 .. experts - 1, or
 * one twice in a token, is LOONG_ERR_ARG. */
enum { LOONG_NO_TOKEN = -2 };
typedef struct loong_expert_order_attr {
    int experts;
    int begin;
    int count;
    int64_t most;
} loong_expert_order_attr_t;
typedef struct loong_expert_rows {
    loong_val_t offsets;
    loong_val_t source;
    loong_val_t dest;
    double share; /* of R that costs are told for, 1 if nobody says */
} loong_expert_rows_t;
LOONG_API loong_expert_rows_t
loong_expert_order(loong_graph_t *g, loong_val_t indices,
                   const loong_expert_order_attr_t *attr);

/* A layer's experts run in rounds where a rank of the group has more rows than
 * are laid out. Expert e of a set is on rank e ranks / E of the `ranks` that
 * hold different experts, E those of a set. The tokens of the whole group come
 * to a rank in their order; that one whose first row there is row p of the rank
 * has its rows in round p / slots, all of them. So a round has at most slots +
 * k - 1 rows, and not more than k of a token.
 * expert_rounds: indices i32 [T,k] of the group -> i32 [1], the rounds of the
 * rank that has most, 1 at least; wide [1], those beyond the first (more_p may
 * be NULL).
 * expert_window: indices i32 [T,k] -> i32 [T,k], with -1 for what is not of the
 * kernel call's round. No gradients. */
typedef struct loong_expert_window_attr {
    int experts; /* of all sets together */
    int sets;    /* 0: one */
    int ranks;
    int64_t slots;
} loong_expert_window_attr_t;
LOONG_API loong_val_t loong_expert_rounds(
    loong_graph_t *g, loong_val_t indices,
    const loong_expert_window_attr_t *attr, loong_val_t *more_p);
LOONG_API loong_val_t loong_expert_window(
    loong_graph_t *g, loong_val_t indices,
    const loong_expert_window_attr_t *attr);

/* Dispatch by all-to-all over the n ranks of a group, which hold all experts
 * together: rank r those of number r / copies of every set, experts x copies /
 * n each, so that `copies` ranks hold a part of the same. Each token goes once
 * to every rank that has to do with it.
 * expert_routes: indices i32 [n T,k], gathered -> source i32 [S], dest i32
 * [T,n] (row source[s] / n of this rank's goes to rank source[s] % n as row s,
 * in the order of ranks, then tokens; -1 where there is none), counts i32 [2,n]
 * (rows that go to each rank, and that come from it), arrived i32 [A,k]
 * (indices of the rows that come, in the order of ranks; behind the last
 * LOONG_NO_TOKEN, or with several sets -1, since what the sets make of a token
 * is added up). S = T * min(n, k x copies). A = n T, or `rows` when that is
 * less and not 0; more rows are LOONG_ERR_ARG. No gradient.
 * exchange_rows: x [S,C], counts -> [A,C], the rows that come; `back`: x
 * [A,C] -> [S,C], the way back. Each is the other's adjoint. Rows behind the
 * last are neither read nor written. */
typedef struct loong_expert_routes_attr {
    int size; /* of the group */
    int rank;
    int experts; /* of all sets together */
    int copies;
    int sets; /* 0: one */
    int64_t rows;
} loong_expert_routes_attr_t;
typedef struct loong_exchange_rows_attr {
    loong_collective_attr_t at;
    int64_t rows; /* of the result */
    int64_t back_rows; /* of the result of the way back */
    bool back;
} loong_exchange_rows_attr_t;
typedef struct loong_expert_routes {
    loong_val_t arrived;
    loong_expert_rows_t sent; /* for permute and unpermute; no offsets */
    loong_val_t counts;
    loong_group_t group;
} loong_expert_routes_t;
/* size and rank of the attributes are those of the group. */
LOONG_API loong_expert_routes_t
loong_expert_routes(loong_graph_t *g, loong_val_t indices, loong_group_t group,
                    const loong_expert_routes_attr_t *attr);

/* x [T,C] -> [A,C], the rows of all tokens that come; and [A,C] -> [T,C],
 * the sum over the ranks that a token went to, in their order: permute and
 * exchange_rows, and back. Each is the other's adjoint. */
LOONG_API loong_val_t loong_expert_dispatch(
    loong_graph_t *g, loong_val_t x, const loong_expert_routes_t *routes);
LOONG_API loong_val_t loong_expert_combine(
    loong_graph_t *g, loong_val_t y, const loong_expert_routes_t *routes);

/* permute: x [T,H], source, dest, weights wide [T,k] or none, offsets or none
 * -> rows [R,H]: row r is x of its token (times its weight). A row without a
 * source is not written.
 * unpermute: rows [R,H], source, dest, weights or none, offsets or none -> y
 * [T,H]: the sum over a token's rows (times their weights), in the order of
 * dest; not written where there is no token. Each is the other's adjoint.
 * unpermute_dw: dy [T,H], rows [R,H], dest -> dweights wide [T,k]; 0 where
 * there is no row, not written where there is no token. */
LOONG_API loong_val_t loong_permute(loong_graph_t *g, loong_val_t x,
                                    const loong_expert_rows_t *rows,
                                    loong_val_t weights);
LOONG_API loong_val_t loong_unpermute(loong_graph_t *g, loong_val_t x,
                                      const loong_expert_rows_t *rows,
                                      loong_val_t weights);

/* grouped_linear: x [R,K], w [n,N,K] (or [n,K,N] with `transposed`), offsets
 * i32 [n+1] -> y [R,N]: rows of expert e are x w[e]'. Rows behind the last are
 * not written.
 * grouped_linear_dw: dy [R,N], x [R,K], offsets -> [n,N,K] wide. Only w
 * [n,N,K] has a gradient. */
typedef struct loong_grouped_linear_attr {
    bool transposed;
    double share; /* of R that costs are told for */
} loong_grouped_linear_attr_t;
LOONG_API loong_val_t
loong_grouped_linear(loong_graph_t *g, loong_val_t x, loong_val_t w,
                     const loong_expert_rows_t *rows);

/* expert_counts: indices i32 [T,k] -> wide [spans,E]: how many tokens of span s
 * chose e; -1 is no choice. The tokens are begin .. begin + T - 1 of a
 * micro-batch, a span is `span` of them. No gradient. */
typedef struct loong_expert_counts_attr {
    int experts;
    int spans;
    int64_t span;
    int64_t begin;
} loong_expert_counts_attr_t;
LOONG_API loong_val_t loong_expert_counts(
    loong_graph_t *g, loong_val_t indices,
    const loong_expert_counts_attr_t *attr);

/* expert_excess: indices i32 [T,k] -> wide [E]: E / sets times the tokens that
 * chose e, less the choices of all experts of its set. Whole numbers, whose
 * sums are exact below 2^24 in fp32. No gradient. */
typedef struct loong_expert_excess_attr {
    int experts;
    int sets; /* 0: one */
} loong_expert_excess_attr_t;

/* sign_step, a step of the update program for such biases: grad wide [n] ->
 * param wide [n], in place: p -= rate where the gradient is above 0, p += rate
 * where it is below. */
typedef struct loong_sign_step_attr {
    double rate;
} loong_sign_step_attr_t;

/* router_loss: logits wide [T,E], counts wide [spans,E] of all ranks (none: aux
 * is 0), token types i32 [T] or none -> wide [T]: aux * sum over e of
 * counts[s,e] p_e + z * lse^2, with p the softmax of the logits (sigmoid,
 * sqrtsoftplus: the scores divided by their sum), s the token's span, lse the
 * natural log of the sum of exponentials. With sets of experts all that is of
 * the token's set, and each set is balanced by itself, as if its tokens were
 * all: where n of a span's `choices` are of the set, aux is (choices / n)^2
 * times as large. z is the same for every token.
 * router_loss_grad: dloss wide [T], logits, counts, types -> dlogits. */
typedef struct loong_router_loss_attr {
    loong_score_function_t score;
    double aux;
    double z;
    int64_t span;
    int64_t begin; /* number of row 0 in the micro-batch */
    int sets;        /* 0: one, no token types */
    int64_t choices; /* of a span's tokens, with sets */
} loong_router_loss_attr_t;
LOONG_API loong_val_t loong_router_loss(loong_graph_t *g, loong_val_t logits,
                                        loong_val_t counts, loong_val_t types,
                                        const loong_router_loss_attr_t *attr);

/* sigmoid_gate: x [T,H], gate [T,1] -> sigmoid(gate) * x.
 * sigmoid_gate_grad: dy, x, gate -> dx, dgate. No attributes. */
LOONG_API loong_val_t loong_sigmoid_gate(loong_graph_t *g, loong_val_t x,
                                         loong_val_t gate);

#ifdef __cplusplus
}
#endif

#endif
