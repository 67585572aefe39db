/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of ranks without common memory, made of messages. What is short
 * and needs no order of sums goes up and down a binomial tree: a rank sends at
 * most 1 + log2(size) messages. Of the rest, pieces go to their owner in
 * slices, who reduces them in rank order, so the bits are those of shared.h. A
 * message's tag carries the number and kind of its call: what two ranks call
 * differently never matches and is reported.
 *
 * In a tree a rank waits for one that may wait itself. So whoever reaches the
 * time limit calls the roll: every rank that is in a collective tells every
 * other, and who is silent is named.
 */
#ifndef LOONG_COMM_MESSAGE_H
#define LOONG_COMM_MESSAGE_H

#include "comm_impl.h"
#include "convert.h"

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
    int rank;
    int size;
    void *owner;
    /* kind, peer, tag, data and bytes are set. */
    loong_status_t (*post)(void *owner, loong_comm_request_t *request);
    loong_message_state_t (*test)(void *owner, loong_comm_request_t *request,
                                  size_t *other_bytes_p);
    void (*cancel)(void *owner, loong_comm_request_t *request);
    /* Whether a message of the peer with that tag lies here that nobody
     * receives, and which one; -1: of any peer, with any tag. */
    bool (*probe)(void *owner, int *peer_p, int *tag_p);
} loong_message_params_t;

LOONG_NODISCARD loong_status_t loongi_message_create(
    loong_context_t *ctx, const loong_message_params_t *params,
    loong_message_t **message_p);
/* NULL is accepted. */
void loongi_message_destroy(loong_context_t *ctx, loong_message_t **message_p);

/* The ops slots run and abort. */
LOONG_NODISCARD loong_status_t
loongi_message_run(loong_message_t *message, loong_comm_t *comm,
                   const loong_collective_t *call);
void loongi_message_abort(loong_message_t *message, const char *text);

/* Of a sum of floats, the result depends on the order. */
static inline bool loongi_needs_order(const loong_collective_t *call)
{
    return call->reduce == LOONG_REDUCE_SUM &&
           loongi_dtype_is_float(call->dtype);
}

#ifdef __cplusplus
}
#endif

#endif
