/* SPDX-License-Identifier: Apache-2.0
 *
 * Point-to-point messages between ranks of one process. A send and a receive
 * that match are copied once, straight from buffer to buffer, by whoever
 * comes second; until then the caller's request is a node of a list. */
#ifndef LOONG_COMM_MAILBOX_H
#define LOONG_COMM_MAILBOX_H

#include "message.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_mailbox loong_mailbox_t;

size_t loongi_mailbox_bytes(int size);
/* Zeroed memory of that size becomes the mailboxes of `size` ranks. */
loong_mailbox_t *loongi_mailbox_init(void *memory, int size);
void loongi_mailbox_end(loong_mailbox_t *mailbox);

/* The ops slots isend, irecv and wait. */
void loongi_mailbox_post(loong_mailbox_t *mailbox, int me,
                         loong_comm_request_t *request);
loong_status_t loongi_mailbox_wait(loong_mailbox_t *mailbox, loong_comm_t *comm,
                                   loong_comm_request_t *request);

/* For the collectives of message.h. */
loong_message_state_t loongi_mailbox_test(loong_comm_request_t *request,
                                          size_t *other_bytes_p);
void loongi_mailbox_cancel(loong_mailbox_t *mailbox, int me,
                           loong_comm_request_t *request);
bool loongi_mailbox_probe(loong_mailbox_t *mailbox, int me, int *peer_p,
                          int *tag_p);

#ifdef __cplusplus
}
#endif

#endif
