/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits the world into the communicators of a mesh's groups. Called by
 * src/component/component_comms.c. Read loong/mesh.h before. */
#include "groups.h"

#include <string.h>

#include "base.h"
#include "comm_run.h"

/* Nobody has company in it, on any rank. */
static bool trivial(const loong_mesh_t *mesh, loong_group_t group)
{
    int tie = (int)group - (int)LOONG_GROUP_TIE;
    return tie < 0 ? loong_mesh_group_size(mesh, group) == 1
                   : tie >= mesh->num_ties || mesh->ties[tie].count == 1;
}

/* All of CP: its communicator serves. */
static bool is_cp(const loong_mesh_t *mesh, loong_group_t group)
{
    return (group == LOONG_GROUP_CP_A2A || group == LOONG_GROUP_CP_P2P) &&
           loong_mesh_group_size(mesh, group) == mesh->size[LOONG_AXIS_CP];
}

static loong_status_t create_one(loong_context_t *ctx,
                                 const loong_groups_t *groups,
                                 const loong_mesh_t *mesh, loong_group_t group,
                                 loong_comm_t **comm_p)
{
    loong_comm_t *world = groups->comm[LOONG_GROUP_WORLD];
    if (is_cp(mesh, group)) {
        *comm_p = groups->comm[LOONG_GROUP_CP];
        return LOONG_OK;
    }
    if (group == LOONG_GROUP_WORLD ||
        loong_mesh_group_size(mesh, group) == mesh->world) {
        *comm_p = world;
        return LOONG_OK;
    }
    if (trivial(mesh, group)) {
        return loong_comm_create_self(ctx, NULL, comm_p);
    }
    return loong_comm_split(world, loong_mesh_member(mesh, group, 0),
                            loong_mesh_group_rank(mesh, group),
                            loong_group_name(group), comm_p);
}

loong_status_t loongi_groups_create(loong_context_t *ctx, loong_comm_t *world,
                                    const loong_mesh_t *mesh,
                                    loong_groups_t *groups_p)
{
    loong_groups_t groups;
    memset(&groups, 0, sizeof(groups));
    groups.comm[LOONG_GROUP_WORLD] = world;
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        loong_status_t status = create_one(ctx, &groups, mesh, (loong_group_t)g,
                                           &groups.comm[g]);
        if (status != LOONG_OK) {
            loongi_groups_destroy(&groups);
            return status;
        }
    }
    *groups_p = groups;
    return LOONG_OK;
}

static bool is_alias(const loong_groups_t *groups, int group)
{
    return group != LOONG_GROUP_CP &&
           groups->comm[group] == groups->comm[LOONG_GROUP_CP];
}

static double seconds_of(const loong_comm_t *comm, bool waiting)
{
    loong_comm_stats_t stats = loong_comm_stats(comm);
    return waiting ? stats.wait : stats.seconds;
}

bool loongi_groups_failed(const loong_groups_t *groups)
{
    bool failed = false;
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        const loong_comm_t *comm = groups->comm[g];
        failed = failed || (comm != NULL && loongi_comm_has_failed(comm));
    }
    return failed;
}

double loongi_groups_seconds(const loong_groups_t *groups, bool waiting)
{
    loong_comm_t *world = groups->comm[LOONG_GROUP_WORLD];
    double seconds = world != NULL ? seconds_of(world, waiting) : 0.0;
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        if (groups->comm[g] != world && !is_alias(groups, g)) {
            seconds += seconds_of(groups->comm[g], waiting);
        }
    }
    return seconds;
}

void loongi_groups_destroy(loong_groups_t *groups)
{
    loong_comm_t *world = groups->comm[LOONG_GROUP_WORLD];
    for (int g = LOONG_GROUP_COUNT - 1; g >= 0; g--) {
        if (groups->comm[g] != world && !is_alias(groups, g)) {
            loong_comm_destroy(&groups->comm[g]);
        }
        groups->comm[g] = NULL;
    }
}
