/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank has of its device, whatever its components: a communicator of
 * the devices of all ranks, streams that are run ahead of, the lane of
 * communication, graphs to replay, and who is asked while the host waits.
 */
#ifndef LOONG_RESOURCES_H
#define LOONG_RESOURCES_H

#include "executor.h"
#include "loong/comm.h"
#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Collectives and messages of a device's memory go through the host's, see
 * stager.h. */
typedef struct loong_staging {
    bool on;         /* where ranks have devices of several kinds */
    bool always;     /* where they have one kind, too */
    bool processors; /* some rank of the job has the processor */
    /* Of devices, by rank of the job; NULL: one for all; borrowed. */
    const char *const *kinds;
} loong_staging_t;

typedef struct loong_resources_params {
    loong_staging_t staging;
    bool lanes;        /* collectives run beside the computation */
    bool graphs;       /* programs are replayed as the device's graphs */
    bool graphs_go_on; /* or step by step, where that fails */
} loong_resources_params_t;

struct loong_component_comms;

typedef struct loong_resources {
    loong_context_t *ctx;
    loong_device_t *device; /* borrowed */
    loong_comm_t *world;    /* of the host; borrowed */
    /* Of a device whose memory the host's communicators cannot take. */
    loong_comm_t *device_world;          /* NULL: the host's serve */
    struct loong_links *edges; /* those of the model; NULL: on the host */
    loong_lane_t *lane;                  /* NULL: none */
    loong_async_t *async;                /* NULL on a processor */
    loong_replay_t *replay;              /* NULL: programs run step by step */
    struct loong_component_comms *comms; /* of all components; borrowed */
    bool disconnected;
} loong_resources_t;

/* Collective on: world. */
LOONG_NODISCARD loong_status_t loongi_resources_create(
    loong_context_t *ctx, loong_device_t *device, loong_comm_t *world,
    const loong_resources_params_t *params, loong_resources_t **resources_p);
/* What runs on the device ends, or is given up when ranks have lost each
 * other, with the graphs that know its communicators; nothing the second time,
 * on the processor, or for NULL. */
void loongi_resources_disconnect(loong_resources_t *resources);
/* The lane, streams and graphs, behind it: before the memory that they use is
 * given back. Nothing the second time, or for NULL. */
void loongi_resources_stop(loong_resources_t *resources);
/* Behind the components. Collective on: world. NULL is accepted. */
void loongi_resources_destroy(loong_resources_t **resources_p);

/* A component's communicators are watched and polled from now on, and until
 * they are taken out. */
void loongi_resources_add(loong_resources_t *resources,
                          struct loong_component_comms *comms);
void loongi_resources_remove(loong_resources_t *resources,
                             struct loong_component_comms *comms);

/* Everything but bases and groups. */
loong_binding_t loongi_resources_run(const loong_resources_t *resources);

#ifdef __cplusplus
}
#endif

#endif
