/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of ranks without common memory, made of messages. Pieces go to
 * their owner in slices, who reduces them in rank order, so the bits are those
 * of shared.h. A message's tag carries the number and kind of its call: what
 * two ranks call differently never matches and is reported.
 */
#ifndef LOONG_COMM_MESSAGE_H
#define LOONG_COMM_MESSAGE_H

#include "comm_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_message loong_message_t;

typedef enum loong_message_state {
    LOONG_MESSAGE_PENDING,
    LOONG_MESSAGE_DONE,
    LOONG_MESSAGE_OTHER_SIZE /* the two sides differ */
} loong_message_state_t;

/* The backend's messages, in a space of tags of their own. */
typedef struct loong_message_params {
    int size;
    void *owner;
    /* kind, peer, tag, data and bytes are set. */
    loong_status_t (*post)(void *owner, loong_comm_request_t *request);
    loong_message_state_t (*test)(void *owner, loong_comm_request_t *request,
                                  size_t *other_bytes_p);
    void (*cancel)(void *owner, loong_comm_request_t *request);
    /* Whether a message of the peer lies here that nobody receives. */
    bool (*probe)(void *owner, int peer, int *tag_p);
} loong_message_params_t;

LOONG_NODISCARD loong_status_t loongi_message_create(
    loong_context_t *ctx, const loong_message_params_t *params,
    loong_message_t **message_p);
/* NULL is accepted. */
void loongi_message_destroy(loong_context_t *ctx, loong_message_t **message_p);

/* The ops slot run. */
LOONG_NODISCARD loong_status_t
loongi_message_run(loong_message_t *message, loong_comm_t *comm,
                   const loong_collective_t *call);

#ifdef __cplusplus
}
#endif

#endif
