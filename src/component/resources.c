/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens what a rank has of its device for all components: communicator of
 * devices, streams, lane, replay. Created by trainer_create.c, asked by
 * component_comms.c. Read src/run/lane.h and src/run/async_streams.h before. */
#include "resources.h"

#include "comm_run.h"
#include "component_comms.h"
#include "stager.h"

/* ---- the communicators of components ------------------------------------- */

static loong_status_t watch(void *user, bool waits)
{
    const loong_resources_t *r = user;
    (void)loongi_comm_progress(r->world); /* messages of edges go on */
    for (const loong_component_comms_t *c = r->comms; c != NULL; c = c->next) {
        LOONG_TRY(loongi_component_comms_watch(c, waits));
    }
    return loongi_links_watch(r->edges, waits);
}

/* The messages between stages go on beside the computation. */
static bool poll(void *user)
{
    const loong_resources_t *r = user;
    bool more = false;
    for (const loong_component_comms_t *c = r->comms; c != NULL; c = c->next) {
        more = loongi_comm_progress(c->host.comm[LOONG_GROUP_PP]) || more;
    }
    return more;
}

static bool has_failed(const loong_resources_t *r)
{
    bool failed = false;
    for (const loong_component_comms_t *c = r->comms; c != NULL; c = c->next) {
        failed = failed || loongi_component_comms_failed(c);
    }
    return failed;
}

void loongi_resources_add(loong_resources_t *resources,
                          loong_component_comms_t *comms)
{
    loong_resources_t *r = resources;
    comms->next = r->comms;
    r->comms = comms;
    if (r->device_world != NULL) {
        loong_device_set_watch(r->device, watch, r);
    }
    if (r->lane != NULL) {
        loongi_lane_set_poll(r->lane, poll, r);
    }
}

void loongi_resources_remove(loong_resources_t *resources,
                             loong_component_comms_t *comms)
{
    loong_component_comms_t **at = &resources->comms;
    while (*at != comms) {
        at = &(*at)->next;
    }
    *at = comms->next;
}

/* ---- the lane of communication ------------------------------------------- */

/* A thread, where the host makes the calls of collectives. */
static loong_status_t open_lane(loong_resources_t *r)
{
    const loong_comm_t *used =
        r->device_world != NULL ? r->device_world : r->world;
    if (!loong_device_is_host(r->device) && !loongi_comm_is_on_host(used)) {
        return LOONG_OK;
    }
    if (!loongi_comm_is_concurrent(r->world)) {
        if (loong_comm_rank(r->world) == 0) {
            loongi_log(r->ctx, LOONG_LOG_WARN,
                       "comm.overlap: this MPI serves one thread of a process "
                       "alone (no MPI_THREAD_MULTIPLE): collectives run in "
                       "the order of the programs");
        }
        return LOONG_OK;
    }
    return loongi_lane_create(r->ctx, &r->lane);
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t open_comm(loong_resources_t *r, loong_staging_t staging)
{
    const loong_stager_t *stager = NULL;
    if (!staging.on) {
        return loong_device_communicator(r->device, r->world, &r->device_world);
    }
    LOONG_TRY(loongi_stager_find(r->ctx, &stager));
    return stager->create(r->ctx, r->device, r->world,
                          staging.always && !loong_device_is_host(r->device),
                          &r->device_world);
}

static loong_status_t open(loong_resources_t *r,
                           const loong_resources_params_t *params)
{
    bool host = loong_device_is_host(r->device);
    LOONG_TRY(open_comm(r, params->staging));
    if (!host) {
        LOONG_TRY(
            loongi_async_create(r->ctx, r->device, params->lanes, &r->async));
    }
    if (!host && params->graphs) {
        LOONG_TRY(loongi_replay_create(r->ctx, r->device, params->graphs_go_on,
                                       &r->replay));
    }
    return params->lanes ? open_lane(r) : LOONG_OK;
}

loong_status_t loongi_resources_create(loong_context_t *ctx,
                                       loong_device_t *device,
                                       loong_comm_t *world,
                                       const loong_resources_params_t *params,
                                       loong_resources_t **resources_p)
{
    loong_resources_t *r = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*r), "resources of a rank", &r));
    r->ctx = ctx;
    r->device = device;
    r->world = world;
    loong_status_t status = open(r, params);
    if (status != LOONG_OK) {
        loongi_resources_destroy(&r);
        return status;
    }
    *resources_p = r;
    return LOONG_OK;
}

void loongi_resources_disconnect(loong_resources_t *resources)
{
    loong_resources_t *r = resources;
    if (r == NULL || r->device_world == NULL || r->disconnected) {
        return;
    }
    r->disconnected = true;
    loong_status_t status = has_failed(r) ? LOONG_ERR_COMM : watch(r, true);
    if (status == LOONG_OK) {
        status = loong_device_synchronize(r->device, "the end");
    }
    loong_device_set_watch(r->device, NULL, NULL);
    loongi_replay_destroy(&r->replay);
    if (status != LOONG_OK) {
        loong_comm_abort(r->device_world, loong_context_error(r->ctx));
    }
}

void loongi_resources_stop(loong_resources_t *resources)
{
    loong_resources_t *r = resources;
    if (r == NULL) {
        return;
    }
    if (r->lane != NULL) {
        loongi_lane_destroy(&r->lane);
        for (const loong_component_comms_t *c = r->comms; c != NULL;
             c = c->next) {
            loongi_component_comms_set_wait_policy(c, NULL);
        }
    }
    loongi_replay_destroy(&r->replay);
    loongi_async_destroy(&r->async);
}

void loongi_resources_destroy(loong_resources_t **resources_p)
{
    loong_resources_t *r = *resources_p;
    if (r == NULL) {
        return;
    }
    loongi_resources_disconnect(r);
    loongi_resources_stop(r);
    loong_comm_destroy(&r->device_world);
    loongi_free(r->ctx, r);
    *resources_p = NULL;
}

loong_binding_t loongi_resources_run(const loong_resources_t *resources)
{
    const loong_resources_t *r = resources;
    loong_binding_t run = {.ctx = r->ctx,
                           .stream = loong_device_stream(r->device),
                           .device = r->device,
                           .async = r->async,
                           .lane = r->lane,
                           .replay = r->replay};
    return run;
}
