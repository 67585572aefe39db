/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicators of a mesh. */
#ifndef LOONG_GROUPS_H
#define LOONG_GROUPS_H

#include "loong/comm.h"
#include "loong/mesh.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One communicator per group; WORLD is borrowed, a group of all ranks is WORLD
 * itself, and a part of CP that is all of it is CP. */
typedef struct loong_groups {
    loong_comm_t *comm[LOONG_GROUP_COUNT];
} loong_groups_t;

/* Collective on: world. */
LOONG_NODISCARD loong_status_t
loongi_groups_create(loong_context_t *ctx, loong_comm_t *world,
                     const loong_mesh_t *mesh, loong_groups_t *groups_p);
/* A call of one of them has failed on this rank; the world's need not have. */
bool loongi_groups_failed(const loong_groups_t *groups);
/* Seconds inside the calls of all of them, or waiting for other ranks; 0 where
 * there are none. Not collective. */
double loongi_groups_seconds(const loong_groups_t *groups, bool waiting);
/* All but WORLD. Collective on: world. */
void loongi_groups_destroy(loong_groups_t *groups);

#ifdef __cplusplus
}
#endif

#endif
