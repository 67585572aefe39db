/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicators of a component: the groups of its mesh, of the host and,
 * where they cannot take the device's memory, of the devices, and those of the
 * messages between its stages.
 */
#ifndef LOONG_COMPONENT_COMMS_H
#define LOONG_COMPONENT_COMMS_H

#include "groups.h"
#include "links.h"
#include "resources.h"
#include "stage.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_component_comms {
    struct loong_component_comms *next; /* of another component */
    loong_resources_t *resources;       /* borrowed; NULL: not opened */
    /* Of the ranks of the component, of the host and of devices; NULL: of all
     * ranks of the job. */
    loong_comm_t *ranks[2];
    loong_groups_t host;
    loong_groups_t device; /* of NULL: the host's serve */
    loong_comm_t *self;    /* NULL: the pipeline is a group of the device */
    loong_links_t *links;  /* NULL: messages go over the pipeline's group */
} loong_component_comms_t;

/* evaluation: whose stages the messages are between; borrowed for the call. A
 * rank without the component has none. Collective on: world. */
LOONG_NODISCARD loong_status_t loongi_component_comms_open(
    loong_component_comms_t *comms, loong_resources_t *resources,
    const loong_component_params_t *params, const loong_schedule_t *evaluation);
/* Those of the devices, behind loongi_resources_disconnect; nothing the second
 * time. Collective on: world. */
void loongi_component_comms_disconnect(loong_component_comms_t *comms);
/* Disconnects. Collective on: world. */
void loongi_component_comms_close(loong_component_comms_t *comms);

/* By loong_group_t, for the memory of the device. */
loong_comm_t *const *
loongi_component_comms_groups(const loong_component_comms_t *comms);

/* How collectives wait that run on the lane. NULL, once the device's are gone:
 * as all others. */
void loongi_component_comms_set_wait_policy(
    const loong_component_comms_t *comms, loong_lane_t *lane);
/* As loongi_comm_watch, of those of the devices. */
LOONG_NODISCARD loong_status_t
loongi_component_comms_watch(const loong_component_comms_t *comms, bool waits);
/* A call has failed on this rank. */
bool loongi_component_comms_failed(const loong_component_comms_t *comms);

#ifdef __cplusplus
}
#endif

#endif
