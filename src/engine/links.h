/* SPDX-License-Identifier: Apache-2.0
 *
 * What messages of devices go over. Between stages of a pipeline it is a
 * communicator of two ranks for each boundary and each direction. Those of one
 * link are in the order of micro-batches at both ends, and no link waits for
 * another: so a schedule that has no deadlock has none on streams either,
 * whatever the order in which a rank begins its sends and receives. Between
 * components it is one of all ranks of an edge for each direction, see
 * src/component/edge_links.c.
 */
#ifndef LOONG_LINKS_H
#define LOONG_LINKS_H

#include "loong/comm.h"
#include "loong/device.h"
#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_links loong_links_t;

/* Every link has room for so many messages of so many bytes, where messages
 * need room (loongi_comm_reserve). */
enum { LOONG_LINK_MESSAGES = 2, LOONG_LINK_BYTES = 256 };

/* A message that this rank will have, sent or received. */
typedef struct loong_link_message {
    int peer; /* rank of the link */
    bool send;
} loong_link_message_t;

typedef struct loong_link_params {
    char name[48];
    int color, key; /* as loong_comm_split's */
    /* One with each peer and direction, which come in one order of all ranks of
     * the link; borrowed. */
    int count;
    const loong_link_message_t *messages;
} loong_link_params_t;

/* Two for each boundary of stages or edge, forward and backward, of the ranks
 * of `all`, which has the device's. Every link has carried its messages on
 * return: two ranks that meet for the first time wait for each other on the
 * host, which no schedule allows for. Collective on: all. */
LOONG_NODISCARD loong_status_t loongi_links_open(
    loong_context_t *ctx, loong_device_t *device, loong_comm_t *all, int count,
    const loong_link_params_t *params, loong_links_t **links_p);

/* For the stages of a schedule (borrowed, for the call); `pipeline` is the
 * communicator of the device's ranks of it. Collective on: pipeline. */
LOONG_NODISCARD loong_status_t
loongi_links_create(loong_context_t *ctx, loong_device_t *device,
                    loong_comm_t *pipeline, const loong_schedule_t *schedule,
                    loong_links_t **links_p);
/* NULL is accepted. Collective on: pipeline. */
void loongi_links_destroy(loong_links_t **links_p);

/* Of an edge, or between a stage and the next one, forward (0) or backward (1).
 * NULL: this rank has no end of it. links may be NULL. */
loong_comm_t *loongi_links_get(const loong_links_t *links, int number,
                               int direction);

/* As loongi_groups_seconds. links may be NULL. */
double loongi_links_seconds(const loong_links_t *links, bool waiting);
/* As loongi_comm_add_message_times, of all. links may be NULL. */
void loongi_links_add_times(const loong_links_t *links, double times[2]);
/* As loongi_comm_watch, of all. links may be NULL. */
LOONG_NODISCARD loong_status_t loongi_links_watch(const loong_links_t *links,
                                                  bool waits);

#ifdef __cplusplus
}
#endif

#endif
