/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of one chunk: what its boundary inputs and outputs, and their
 * gradients, receive from and send to other stages, by slot. Receives and
 * sends only begin; a program waits for the receive that it reads, a slot is
 * given to another micro-batch when its sends are complete.
 */
#ifndef LOONG_TRANSFER_H
#define LOONG_TRANSFER_H

#include "executor.h"
#include "links.h"
#include "loong/comm.h"
#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_transfer loong_transfer_t;

typedef struct loong_transfer_params {
    const loong_model_chunk_t *chunk; /* borrowed */
    loong_comm_t *comm;         /* the ranks of the pipeline; borrowed */
    /* NULL: messages of host memory go over comm, by their tags; borrowed */
    const loong_links_t *links;
    int stage;                  /* of the pipeline */
    int stages_before; /* of other pipelines whose messages comm may carry */
    int64_t num_slots;
} loong_transfer_params_t;

/* Not collective. */
LOONG_NODISCARD loong_status_t
loongi_transfer_create(const loong_transfer_params_t *params,
                       loong_transfer_t **transfer_p);
void loongi_transfer_destroy(loong_transfer_t **transfer_p);

/* Begins a send or receive entry; run is bound to its slot. */
LOONG_NODISCARD loong_status_t
loongi_transfer_begin(loong_transfer_t *transfer, const loong_binding_t *run,
                      const loong_entry_t *entry);
/* Waits for what a program reads: F and E the forward, B the backward. */
LOONG_NODISCARD loong_status_t
loongi_transfer_need(loong_transfer_t *transfer, const loong_entry_t *entry);
/* Of all sends and receives since creation. Messages are under way until they
 * are waited for. */
typedef struct loong_transfer_stats {
    int64_t count;
    double bytes;
    double seconds; /* under way */
    double blocked; /* waited for */
} loong_transfer_stats_t;
loong_transfer_stats_t loongi_transfer_stats(const loong_transfer_t *transfer,
                                             bool received);

/* What a stage has under way over one boundary in one direction, at most. */
typedef struct loong_transfer_room {
    int messages;
    size_t bytes; /* of the largest */
} loong_transfer_room_t;
/* Forward (0) or gradients (1), sent or received. */
LOONG_NODISCARD loong_status_t
loongi_transfer_room(const loong_model_chunk_t *chunk, int64_t num_slots,
                     bool send, int direction, loong_transfer_room_t *room_p);

/* Gives up what nobody waits for any more, before its communicators and its
 * memory go. False: some is under way all the same (loong_comm_cancel), so that
 * the memory must stay. NULL is accepted. */
bool loongi_transfer_cancel(loong_transfer_t *transfer);

/* Waits for all sends. */
LOONG_NODISCARD loong_status_t
loongi_transfer_finish(loong_transfer_t *transfer);

#ifdef __cplusplus
}
#endif

#endif
