/* SPDX-License-Identifier: Apache-2.0
 *
 * The mesh: which ranks share what. A rank has one coordinate on each axis;
 * the members of a group differ in the group's axes only.
 *
 * Numbering is Megatron's (order tp-cp-ep-dp-pp): the attention side of a
 * layer sees rank = tp + TP (cp + CP (dp + DP pp)), its experts see the same
 * ranks as rank = etp + ETP (ep + EP (edp + EDP pp)). A mesh is a plain value:
 * pure, not collective, the same for a rank of any cluster on one core.
 */
#ifndef LOONG_MESH_H
#define LOONG_MESH_H

#include <stdbool.h>

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text) */
#define LOONG_AXIS_LIST(X)                                                    \
    X(TP, "tp")   /* tensor (and sequence) parallel */                        \
    X(CP, "cp")   /* context parallel */                                      \
    X(DP, "dp")   /* data parallel */                                         \
    X(PP, "pp")   /* pipeline */                                              \
    X(ETP, "etp") /* tensor parallel inside an expert */                      \
    X(EP, "ep")   /* experts */                                               \
    X(EDP, "edp") /* data parallel among the holders of the same experts */

typedef enum loong_axis {
#define LOONG_AXIS_ENUM(name_, text_) LOONG_AXIS_##name_,
    LOONG_AXIS_LIST(LOONG_AXIS_ENUM)
#undef LOONG_AXIS_ENUM
        LOONG_AXIS_COUNT
} loong_axis_t;

/* X(name, text): groups that have a communicator. */
#define LOONG_GROUP_LIST(X)                                                   \
    X(WORLD, "world")                                                         \
    X(TP, "tp")                                                               \
    X(CP, "cp")                                                               \
    X(DP, "dp")                                                               \
    X(DP_CP, "dp-cp") /* who sums the gradients of one parameter */           \
    X(PP, "pp")                                                               \
    X(ETP_EP, "etp-ep") /* who hold a layer's experts together */             \
    X(EDP, "edp") /* who hold the same ones */                                \
    X(ETP, "etp") /* who hold parts of the same experts */                    \
    X(CP_A2A, "cp-a2a") /* neighbours in CP that exchange heads */            \
    X(CP_P2P, "cp-p2p") /* one of each of these: a ring */                    \
    X(KV, "kv") /* neighbours in TP that hold the same key / value head */    \
    /* who hold what is one on several stages: loong_mesh_t.ties */           \
    X(TIE, "tie")                                                             \
    X(TIE_2, "tie-2")                                                         \
    X(TIE_3, "tie-3")                                                         \
    X(TIE_4, "tie-4")

typedef enum loong_group {
#define LOONG_GROUP_ENUM(name_, text_) LOONG_GROUP_##name_,
    LOONG_GROUP_LIST(LOONG_GROUP_ENUM)
#undef LOONG_GROUP_ENUM
        LOONG_GROUP_COUNT
} loong_group_t;

enum { LOONG_MAX_TIES = LOONG_GROUP_COUNT - LOONG_GROUP_TIE };

/* Those of a group TIE + k, by their coordinates on the axis PP, ascending;
 * borrowed. */
typedef struct loong_tie_ranks {
    int count;
    const int *coord;
} loong_tie_ranks_t;

/* What a user chooses; the data-parallel sizes are what remains. */
typedef struct loong_mesh_params {
    int world; /* ranks */
    int tp;
    int cp;
    int pp;
    int ep;
    int etp;
    int kv_heads; /* fewer than tp: several ranks hold the same; 0: enough */
    int cp_a2a;   /* ranks of group CP_A2A; 0: 1 */
} loong_mesh_params_t;

typedef struct loong_mesh {
    int world;
    int rank;
    int kv_ranks; /* of group KV */
    int cp_a2a;   /* of group CP_A2A */
    int num_ties; /* set by who lays out stages */
    loong_tie_ranks_t ties[LOONG_MAX_TIES];
    int size[LOONG_AXIS_COUNT];
    int coord[LOONG_AXIS_COUNT];
} loong_mesh_t;

LOONG_API const char *loong_axis_name(loong_axis_t axis);
LOONG_API const char *loong_group_name(loong_group_t group);

/* The mesh as seen by one rank. LOONG_ERR_CONFIG when the sizes do not divide
 * the world, with every rule that is broken. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_mesh_create(loong_context_t *ctx, const loong_mesh_params_t *params,
                  int rank, loong_mesh_t *mesh_p);

/* One rank alone. */
LOONG_API loong_mesh_t loong_mesh_single(void);

/* Ranks of a group, this rank's place among them, and the world rank of
 * member `index`. A rank outside of a tie is alone in it. */
LOONG_API int loong_mesh_group_size(const loong_mesh_t *mesh,
                                    loong_group_t group);
LOONG_API int loong_mesh_group_rank(const loong_mesh_t *mesh,
                                    loong_group_t group);
LOONG_API int loong_mesh_member(const loong_mesh_t *mesh, loong_group_t group,
                                int index);

#ifdef __cplusplus
}
#endif

#endif
