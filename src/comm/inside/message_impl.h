/* SPDX-License-Identifier: Apache-2.0
 *
 * Between message.c (the collectives) and roll.c (who is missing). */
#ifndef LOONG_COMM_MESSAGE_IMPL_H
#define LOONG_COMM_MESSAGE_IMPL_H

#include "message.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tag of no collective: "I am in one", or why this rank gives up. */
enum { LOONG_ROLL_TAG = LOONG_COLLECTIVE_SEND };

struct loong_message {
    loong_message_params_t params;
    unsigned char *staging;
    int64_t slice; /* bytes of one peer in the staging buffer */
    const void **sources;
    loong_comm_request_t *requests; /* [2 * size] */
    int active;
    loong_comm_stats_t *stats; /* of the communicator in its call */
    bool told; /* the others know that this rank goes on no more */
    char roll[LOONG_BOARD_TEXT]; /* what it told them; "": it is here */
};

/* Begins one more message. */
LOONG_NODISCARD loong_status_t loongi_message_post(loong_message_t *message,
                                                   loong_collective_kind_t kind,
                                                   int tag, void *data,
                                                   size_t bytes, int peer);
/* Gives up all that are under way. */
void loongi_message_cancel(loong_message_t *message);

/* The call has failed while it waited for `peer`: tells all others, finds who
 * is to blame, and says so. LOONG_ERR_COMM. */
LOONG_NODISCARD loong_status_t loongi_roll_call(loong_message_t *message,
                                                loong_comm_t *comm,
                                                loong_wait_t *wait, int peer);
/* Why this rank gave up should be heard before it ends. */
void loongi_roll_linger(loong_message_t *message);

#ifdef __cplusplus
}
#endif

#endif
