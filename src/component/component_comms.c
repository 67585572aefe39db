/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes the communicators of a component, and says how its ranks
 * wait. Called by model.c and resources.c. Read src/mesh/groups.h and
 * src/engine/links.h before. */
#include "component_comms.h"

#include "comm_run.h"
#include "lane.h"

/* *all_p: of the component's ranks; *own_p: the same where it had to be made.
 * Both are NULL on other ranks. Collective on: world. */
static loong_status_t find_ranks(loong_comm_t *world,
                                 const loong_component_params_t *p,
                                 loong_comm_t **own_p, loong_comm_t **all_p)
{
    *all_p = world;
    if (p->mesh.world == loong_comm_size(world)) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_comm_split(world, p->absent ? -1 : 0, p->mesh.rank, p->name,
                               own_p));
    *all_p = *own_p;
    return LOONG_OK;
}

static loong_status_t open_device(loong_component_comms_t *c,
                                  const loong_component_params_t *p,
                                  loong_comm_t *all,
                                  const loong_schedule_t *evaluation)
{
    const loong_resources_t *r = c->resources;
    LOONG_TRY(loongi_groups_create(r->ctx, all, &p->mesh, &c->device));
    loong_comm_t *pipeline = c->device.comm[LOONG_GROUP_PP];
    if (loong_comm_size(pipeline) == 1 && pipeline != all) {
        /* What is alone in its group has the host's. */
        LOONG_TRY(loong_device_communicator(r->device, pipeline, &c->self));
        pipeline = c->self != NULL ? c->self : pipeline;
    }
    return loongi_links_create(r->ctx, r->device, pipeline, evaluation,
                               &c->links);
}

loong_status_t loongi_component_comms_open(
    loong_component_comms_t *comms, loong_resources_t *resources,
    const loong_component_params_t *params, const loong_schedule_t *evaluation)
{
    loong_component_comms_t *c = comms;
    const loong_component_params_t *p = params;
    loong_comm_t *all[2] = {NULL, NULL};
    LOONG_TRY(find_ranks(resources->world, p, &c->ranks[0], &all[0]));
    if (resources->device_world != NULL) {
        LOONG_TRY(
            find_ranks(resources->device_world, p, &c->ranks[1], &all[1]));
    }
    if (p->absent) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loongi_groups_create(resources->ctx, all[0], &p->mesh, &c->host));
    c->resources = resources;
    loongi_resources_add(resources, c);
    if (resources->device_world != NULL) {
        LOONG_TRY(open_device(c, p, all[1], evaluation));
    }
    loongi_component_comms_set_wait_policy(c, resources->lane);
    return LOONG_OK;
}

void loongi_component_comms_disconnect(loong_component_comms_t *comms)
{
    loongi_links_destroy(&comms->links);
    loong_comm_destroy(&comms->self);
    loongi_groups_destroy(&comms->device);
    loong_comm_destroy(&comms->ranks[1]);
}

void loongi_component_comms_close(loong_component_comms_t *comms)
{
    loong_component_comms_t *c = comms;
    if (c->resources != NULL) {
        loongi_component_comms_disconnect(c);
        loongi_resources_remove(c->resources, c);
        loongi_groups_destroy(&c->host);
    }
    loong_comm_destroy(&c->ranks[0]);
    c->resources = NULL;
}

loong_comm_t *const *
loongi_component_comms_groups(const loong_component_comms_t *comms)
{
    return comms->device.comm[LOONG_GROUP_WORLD] != NULL ? comms->device.comm
                                                         : comms->host.comm;
}

/* ---- the lane ------------------------------------------------------------ */

static loong_wait_policy_t policy_of_lane(void *user)
{
    const loong_lane_t *lane = user;
    return loongi_lane_is_over(lane)     ? LOONG_WAIT_OVER
           : loongi_lane_is_beside(lane) ? LOONG_WAIT_BESIDE
                                         : LOONG_WAIT_EAGER;
}

/* Stages send messages themselves. */
void loongi_component_comms_set_wait_policy(
    const loong_component_comms_t *comms, loong_lane_t *lane)
{
    loong_comm_t *const *group = lane == NULL
                                     ? comms->host.comm
                                     : loongi_component_comms_groups(comms);
    bool all = lane == NULL || loong_device_is_host(comms->resources->device);
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        if (g != LOONG_GROUP_WORLD && g != LOONG_GROUP_PP &&
            (all || loongi_comm_is_on_host(group[g]))) {
            loongi_comm_set_wait_policy(
                group[g], lane != NULL ? policy_of_lane : NULL, lane);
        }
    }
}

/* ---- while the host waits ------------------------------------------------ */

loong_status_t
loongi_component_comms_watch(const loong_component_comms_t *comms, bool waits)
{
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        if (comms->device.comm[g] != NULL) {
            LOONG_TRY(loongi_comm_watch(comms->device.comm[g], waits));
        }
    }
    return loongi_links_watch(comms->links, waits);
}

bool loongi_component_comms_failed(const loong_component_comms_t *comms)
{
    return loongi_groups_failed(&comms->host) ||
           loongi_groups_failed(&comms->device);
}
