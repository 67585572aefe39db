/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as ops: what layers put between ranks of a mesh. */
#ifndef LOONG_COLLECTIVE_H
#define LOONG_COLLECTIVE_H

#include "loong/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Collectives over a group of the graph's mesh, in adjoint pairs; in a group
 * of one rank the builders return x itself.
 *   all_reduce: x -> the sum of the ranks' x, equal on all. Its adjoint passes
 *     the gradient on, as that is equal on all ranks and complete.
 *   replicate: x, equal on all ranks, seen by each for a use of its own; the
 *     adjoint is all_reduce. A view.
 *   all_gather: x [r,C] -> [n r,C], the ranks' rows one below the other.
 *   reduce_scatter: x [n r,C] -> [r,C], this rank's rows of the sum of the
 *     ranks' x. Each is the other's adjoint.
 *   own_rows: x [n r,C], equal on all ranks, -> this rank's rows [r,C]; the
 *     adjoint is all_gather.
 *   all_to_all_rows: x [r,n c] -> [n r,c], this rank's columns of all ranks'
 *     rows, one rank below the other. all_to_all_columns leads back. Each is
 *     the other's adjoint.
 *   ring_shift: x of the rank before this one, of the last for the first; with
 *     `distance` of the rank so many places before. It has no adjoint.
 * bf16 is summed in fp32 and rounded once. flat_all_reduce,
 * flat_reduce_scatter and flat_all_gather work in place on a vector that is
 * cut into pieces of counts[rank] elements; they have no builder. */
typedef struct loong_collective_attr {
    loong_group_t group;
    int size; /* ranks of the group */
    int rank; /* this one among them */
    const int64_t *counts; /* flat pieces; borrowed */
    const char *label; /* in messages of the communicator */
    int distance;      /* of ring_shift, 1 .. size - 1 */
} loong_collective_attr_t;
LOONG_API loong_val_t loong_all_reduce(loong_graph_t *g, loong_val_t x,
                                       loong_group_t group);
LOONG_API loong_val_t loong_replicate(loong_graph_t *g, loong_val_t x,
                                      loong_group_t group);
LOONG_API loong_val_t loong_all_gather(loong_graph_t *g, loong_val_t x,
                                       loong_group_t group);
LOONG_API loong_val_t loong_reduce_scatter(loong_graph_t *g, loong_val_t x,
                                           loong_group_t group);
LOONG_API loong_val_t loong_own_rows(loong_graph_t *g, loong_val_t x,
                                     loong_group_t group);
LOONG_API loong_val_t loong_all_to_all_rows(loong_graph_t *g, loong_val_t x,
                                            loong_group_t group);
LOONG_API loong_val_t loong_all_to_all_columns(loong_graph_t *g,
                                               loong_val_t x,
                                               loong_group_t group);
LOONG_API loong_val_t loong_ring_shift(loong_graph_t *g, loong_val_t x,
                                       loong_group_t group);

/* Before heads are exchanged. repeat_heads: x [T,G*d], d = head_dim ->
 * [T,G*times*d], each group of d channels `times` times; x itself with 1.
 * sum_heads, its adjoint: x [T,G*times*d] -> [T,G*d], the sums of `times`
 * neighbouring groups. */
typedef struct loong_repeat_heads_attr {
    int head_dim;
    int times;
} loong_repeat_heads_attr_t;
LOONG_API loong_val_t loong_repeat_heads(loong_graph_t *g, loong_val_t x,
                                         int head_dim, int times);

/* ring_attention: attention of this rank's queries over the keys of all ranks
 * of a group, whose keys and values go around while each rank merges what it
 * makes of them (Liu et al. 2023). Operands without rows and key_rows; places
 * i32 [ranks * Q], rank after rank: rows of their queries and keys. Without v
 * the values are the first channels of the one key head, and keys alone go
 * around. The op is a view of what was merged and holds the gradient rule, a
 * second ring. */
LOONG_API loong_val_t
loong_ring_attention(loong_graph_t *g,
                     const loong_attention_operands_t *operands,
                     loong_val_t places, loong_group_t group,
                     const loong_attention_attr_t *attr);

#ifdef __cplusplus
}
#endif

#endif
