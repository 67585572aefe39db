/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout that a recipe asks for: its mesh and the rules that it must keep.
 * Pure, not collective. */
#ifndef LOONG_PARALLEL_H
#define LOONG_PARALLEL_H

#include "loong/family.h"
#include "loong/mesh.h"
#include "loong/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a micro-batch has, at most. */
typedef struct loong_extent {
    int64_t rows;
    int64_t longest;  /* rows that see each other */
    int64_t segments; /* of such */
} loong_extent_t;

typedef struct loong_parallel {
    loong_context_t *ctx;
    const loong_recipe_t *recipe;
    int ranks; /* of the job */
    /* Those of them that the component stands on; NULL: all. */
    int num_on;
    const int32_t *on;
    const char *role; /* of it, where these are not NULL */
    const loong_family_t *family;
    const void *config; /* of the family */
    /* Of a component that others read: its role, which has keys of its own, and
     * what a micro-batch has. NULL and 0: that with the loss. */
    const char *component;
    loong_extent_t extent;
} loong_parallel_t;

/* Reads what ranks a component of a role stands on. */
LOONG_NODISCARD loong_status_t loongi_parallel_ranks(loong_parallel_t *layout,
                                                     const char *role);

/* The mesh as seen by a rank of it; by a rank of the job, of which the first
 * one's is for those that are *absent_p. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_parallel_mesh(
    const loong_parallel_t *layout, int rank, loong_mesh_t *mesh_p);
LOONG_NODISCARD loong_status_t
loongi_parallel_place(const loong_parallel_t *layout, int job_rank,
                      loong_mesh_t *mesh_p, bool *absent_p);

/* What the layout says of a training micro-batch. */
void loongi_parallel_request(const loong_parallel_t *layout,
                             const loong_mesh_t *mesh,
                             loong_model_request_t *request);

/* A number of parallel: that the layout's component says for itself; 0: it says
 * none. */
int loongi_parallel_own(const loong_parallel_t *layout, const char *key);

/* Rows of the stream that dispatch to the n ranks of a group of experts moves
 * for a token of a layer, there and back: those that come from other ranks, and
 * those that are written or read for it alone. With even routing a token has to
 * do with a share q of the ranks, and
 *
 *   all-gather     2 (n - 1) + n: sums of all tokens are written
 *   all-to-all   2 q (n - 1) + 4 q n + 1: rows are gathered and summed up on
 *                both sides
 */
typedef struct loong_dispatch_rows {
    double gathered;
    double exchanged;
} loong_dispatch_rows_t;
loong_dispatch_rows_t loongi_dispatch_rows(const loong_mesh_t *mesh,
                                           const loong_model_facts_t *facts);

/* Of a component that others read: whether its family can be laid out so.
 * Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_parallel_accepts(const loong_parallel_t *layout);

/* What keys of the recipe must be together, and every rule of mesh, model and
 * schedule; all that is broken is told. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_parallel_rules(const loong_parallel_t *layout);

#ifdef __cplusplus
}
#endif

#endif
