/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes, in the order in which compile.c runs them. Each takes and leaves
 * a valid graph, and can be left out without changing results. */
#ifndef LOONG_PASSES_H
#define LOONG_PASSES_H

#include "graph_impl.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which part that is run again a scope lies in: a number for each path that a
 * glob matches, 0 when none does. */
uint64_t loongi_scope_instance(int num_globs, const char *const *globs,
                               const char *scope);

/* Scopes whose nodes a fused op may not stand on both sides of. */
typedef struct loong_fuse_scopes {
    int num_wide; /* that work in the wide type */
    const char *const *wide;
    int num_recompute; /* that are run again */
    const char *const *recompute;
} loong_fuse_scopes_t;

/* Forms fused ops (add + norm) in the forward, but none of two types, which
 * would round otherwise than its two ops do, and none that would begin a part
 * that is run again: the part would then keep both terms of the sum, not the
 * sum. */
LOONG_NODISCARD loong_status_t
loongi_pass_fuse(loong_graph_t *g, const loong_fuse_scopes_t *scopes);

/* Nodes in `order` have kernels on the device. Errors: LOONG_ERR_UNSUPPORTED
 * with all ops that have none. */
LOONG_NODISCARD loong_status_t
loongi_check_kernels(const loong_graph_t *g, const int32_t *order,
                     int64_t count, const char *device);

/* The device has products that do more than to multiply. */
bool loongi_fuses_products(const loong_context_t *ctx, const char *device);
/* Lets products apply the GELU behind them, in the forward. */
LOONG_NODISCARD loong_status_t
loongi_pass_fuse_gelu(loong_graph_t *g, const loong_fuse_scopes_t *scopes);
/* And the slope of GELU to what they make of gradients; the gradient of a
 * weight brings along that of its bias. */
LOONG_NODISCARD loong_status_t
loongi_pass_fuse_gradients(loong_graph_t *g,
                           const loong_fuse_scopes_t *scopes);

/* Lets an adapter's product that is one term of a sum in the backward add to
 * the other term. */
LOONG_NODISCARD loong_status_t
loongi_pass_fuse_sums(loong_graph_t *g, const char *device,
                      const loong_fuse_scopes_t *scopes);

/* Lets the gradient of a norm add what else goes into the same gradient, as
 * behind a sum that was fused: rounded once, wherever a pipeline is cut or a
 * part run again begins. */
LOONG_NODISCARD loong_status_t loongi_pass_absorb(loong_graph_t *g);

/* Every glob matches the scope of some node, or with `products` the name of a
 * parameter that some product is of. `what` names the list. Errors:
 * LOONG_ERR_CONFIG, with the glob, the likeliest name and all of them. */
LOONG_NODISCARD loong_status_t
loongi_pass_check_globs(const loong_graph_t *g, const char *what,
                        bool products, int num_globs,
                        const char *const *globs);

/* Leaves out those that match nothing; what is left is in the arena. */
LOONG_NODISCARD loong_status_t
loongi_pass_keep_globs(const loong_graph_t *g, bool products,
                       loong_arena_t *arena, int *num_globs,
                       const char *const **globs);

/* Parameters that a product multiplies with at once; 0: it is no product. The
 * name of one of them, without ".weight". Whether a glob matches any. */
int loongi_product_members(const loong_graph_t *g, const loong_node_t *node);
const char *loongi_product_name(const loong_graph_t *g,
                                const loong_node_t *node, int member,
                                char *name, size_t size);
bool loongi_product_match(const loong_graph_t *g, const char *glob,
                          const loong_node_t *node);

/* Makes the ops of the wide scopes, forward and gradient, work in the wide
 * type, with casts where types meet; with wide_edges ports of edges have it
 * even where no scope has. Declared outputs keep their type. */
LOONG_NODISCARD loong_status_t
loongi_pass_precision(loong_graph_t *g, const loong_compile_params_t *params);

/* Names the outputs of the forward nodes of the scopes that match, as they are
 * built: the first of all passes. */
LOONG_NODISCARD loong_status_t loongi_pass_label(loong_graph_t *g,
                                                 int num_globs,
                                                 const char *const *globs);
/* Watches what has a name, and its gradients; `any`: something may have. The
 * array belongs to the graph's arena. */
LOONG_NODISCARD loong_status_t
loongi_pass_watch(loong_graph_t *g, bool any, int64_t *num_watches_p,
                  loong_watch_t **watches_p);

/* Clones the forward of the scopes that match into the backward. */
LOONG_NODISCARD loong_status_t
loongi_pass_recompute(loong_graph_t *g, int num_globs,
                      const char *const *globs);

/* Takes what no boundary input's gradient needs out of B into W. */
LOONG_NODISCARD loong_status_t loongi_pass_split(loong_graph_t *g);

/* Puts all that accumulates into one gradient into one program. */
LOONG_NODISCARD loong_status_t loongi_pass_gather(loong_graph_t *g);

/* Lets the backward of a part that runs in rounds make again, in each round,
 * what it reads of the same part of an earlier program, where the last round
 * has written over the others: nodes that run only when there is more than one
 * round. Before pass `accumulate`. */
LOONG_NODISCARD loong_status_t loongi_pass_repeat(loong_graph_t *g);
/* Per value: made in a part run in rounds, and read outside of it. */
LOONG_NODISCARD loong_status_t loongi_repeat_leaves(const loong_graph_t *g,
                                                    bool **leaves_p);
/* Per position of the order: the part run in rounds that it lies in, from its
 * first node to its last; 0: none. Those between that are not of it run in the
 * first round alone. Errors: LOONG_ERR_UNSUPPORTED where parts overlap, or
 * something between reads what only the last round completes. */
LOONG_NODISCARD loong_status_t
loongi_repeat_ranges(const loong_graph_t *g, int64_t num_order,
                     const int32_t *order, int32_t *range);

/* Turns `accumulate` into writes to main gradients and states; with `direct`
 * producers add into them themselves where they can. Says for each writer of
 * a gradient whether it begins the step. */
LOONG_NODISCARD loong_status_t loongi_pass_accumulate(loong_graph_t *g,
                                                      bool direct);

/* Lets producers write into the tensors that `concat` would assemble. */
LOONG_NODISCARD loong_status_t loongi_pass_assemble(loong_graph_t *g);

/* Copies strided operands for ops whose kernels want dense ones. */
LOONG_NODISCARD loong_status_t loongi_pass_dense(loong_graph_t *g);

/* Makes products rank by rank, beside the collectives of what they read and
 * of what they make: the last of the passes on the graph. A rank's own rows are
 * made where they are gathered. */
LOONG_NODISCARD loong_status_t loongi_pass_overlap(loong_graph_t *g);

/* Storage of every value with storage of its own. */
typedef struct loong_layout {
    loong_operand_t *place;     /* per value, valid where root == itself */
    loong_operand_t *workspace; /* per node */
    int64_t slot_bytes;
    int64_t scratch_bytes[LOONG_PROGRAM_COUNT];
} loong_layout_t;

/* What is laid out. */
typedef struct loong_layout_params {
    int64_t num_order;    /* the live nodes in the order of the programs */
    const int32_t *order; /* of one micro-batch */
    const int64_t *workspace_bytes; /* per node */
    bool in_place;    /* outputs may take the storage of dying inputs */
    const bool *comm; /* per node: runs until its outputs are read */
    const int32_t *range; /* per position: see loongi_repeat_ranges */
    int64_t slot_room;    /* bytes of a slot that are there anyhow */
    int64_t least_in_slot; /* bytes of what one program alone has there */
} loong_layout_params_t;

/* Moves collectives up the order, to right behind what they read, but not
 * above the first reader of the collective before, nor into or out of a part
 * run in rounds. `comm` says which nodes are collectives; `steps` stand in the
 * same order and move along. */
void loongi_pass_hoist(const loong_graph_t *g, int64_t num_order,
                       int32_t *order, loong_step_t *steps, const bool *comm,
                       const int32_t *range);

/* The position of the first node behind `at` that reads what the collective
 * there makes; that behind the program when none does. */
int64_t loongi_first_reader(const loong_graph_t *g, int64_t num_order,
                            const int32_t *order, const bool *comm,
                            int64_t at);

/* Puts the collectives of a program on their lane: says for every other step
 * which of them must be complete, from what they read and write. Those are
 * worth another thread that have work beside them which touches so many
 * bytes at least. */
void loongi_pass_lanes(loong_program_t *program, int64_t least_work);

/* Lays out memory. The arrays of the layout belong to the graph's arena. */
LOONG_NODISCARD loong_status_t
loongi_pass_memory(loong_graph_t *g, const loong_layout_params_t *params,
                   loong_layout_t *layout);

/* The order of the steps of two programs that run together: each goes on to
 * its next collective inside a layer while that of the other is under way, or
 * to its next one at all where neither has such; with none both advance by
 * equal parts of their costs. order[] has room for the steps of both; 0 stands
 * for a, 1 for b. */
void loongi_pass_interleave(const loong_program_t *a, const loong_program_t *b,
                            uint8_t *order);

/* An interval of time that needs bytes; lay out many so that those that
 * overlap in time do not overlap in space. */
typedef struct loong_interval {
    int32_t begin; /* first position, inclusive */
    int32_t end;   /* last position, inclusive */
    int64_t bytes;
    int64_t offset; /* result, a multiple of LOONG_PLACE_ALIGN */
} loong_interval_t;

/* What libraries of devices ask of a workspace. */
enum { LOONG_PLACE_ALIGN = 256 };

/* Greedy by size, best gap. *peak_p receives the bytes needed in all, a
 * multiple of LOONG_PLACE_ALIGN. */
LOONG_NODISCARD loong_status_t
loongi_place_intervals(loong_context_t *ctx, int64_t count,
                       loong_interval_t *intervals, int64_t *peak_p);
/* The first num_placed of `count` have their places; the others get one between
 * them, below `limit`, or the offset -1 where there is no room. */
LOONG_NODISCARD loong_status_t
loongi_place_in_gaps(loong_context_t *ctx, int64_t num_placed, int64_t count,
                     loong_interval_t *intervals, int64_t limit);

#ifdef __cplusplus
}
#endif

#endif
