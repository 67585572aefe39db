/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between threads. Called by threads_comm.c. Read inside/mailbox.h
 * before. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "mailbox.h"

/* What a request's backend words hold. */
typedef struct letter {
    loong_comm_request_t *next;
    int from;
    _Atomic int state;
    size_t other_bytes; /* of the other side */
} letter_t;

_Static_assert(sizeof(letter_t) <= sizeof(((loong_comm_request_t *)0)->backend),
               "a letter fits into a request");

/* Per receiving rank: the sends and the receives that nobody matched yet. */
typedef struct box {
    loong_comm_request_t *sends;
    loong_comm_request_t *receives;
} box_t;

struct loong_mailbox {
    pthread_mutex_t lock;
    int size;
    box_t box[];
};

static letter_t *letter(loong_comm_request_t *request)
{
    return (letter_t *)(void *)request->backend;
}

size_t loongi_mailbox_bytes(int size)
{
    return sizeof(loong_mailbox_t) + (size_t)size * sizeof(box_t);
}

loong_mailbox_t *loongi_mailbox_init(void *memory, int size)
{
    loong_mailbox_t *mailbox = memory;
    pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->size = size;
    return mailbox;
}

void loongi_mailbox_end(loong_mailbox_t *mailbox)
{
    pthread_mutex_destroy(&mailbox->lock);
}

static void append(loong_comm_request_t **list, loong_comm_request_t *request)
{
    while (*list != NULL) {
        list = &letter(*list)->next;
    }
    *list = request;
}

static void unlink_request(loong_comm_request_t **list,
                           const loong_comm_request_t *request)
{
    while (*list != NULL && *list != request) {
        list = &letter(*list)->next;
    }
    if (*list != NULL) {
        *list = letter(*list)->next;
    }
}

static loong_comm_request_t *find(loong_comm_request_t *list, int from, int tag)
{
    while (list != NULL && (letter(list)->from != from || list->tag != tag)) {
        list = letter(list)->next;
    }
    return list;
}

static void deliver(loong_comm_request_t *send, loong_comm_request_t *receive)
{
    bool same = send->bytes == receive->bytes;
    int state = same ? LOONG_MESSAGE_DONE : LOONG_MESSAGE_OTHER_SIZE;
    if (same && send->bytes > 0) {
        memcpy(receive->data, send->data, send->bytes);
    }
    letter(send)->other_bytes = receive->bytes;
    letter(receive)->other_bytes = send->bytes;
    atomic_store_explicit(&letter(receive)->state, state, memory_order_release);
    /* The last touch of the sender's request: it may vanish after this. */
    atomic_store_explicit(&letter(send)->state, state, memory_order_release);
}

void loongi_mailbox_post(loong_mailbox_t *mailbox, int me,
                         loong_comm_request_t *request)
{
    bool sending = request->kind == LOONG_COLLECTIVE_SEND;
    int from = sending ? me : request->peer;
    box_t *box = &mailbox->box[sending ? request->peer : me];
    letter(request)->from = from;
    pthread_mutex_lock(&mailbox->lock);
    loong_comm_request_t **others = sending ? &box->receives : &box->sends;
    loong_comm_request_t *match = find(*others, from, request->tag);
    if (match == NULL) {
        append(sending ? &box->sends : &box->receives, request);
    } else {
        unlink_request(others, match);
        deliver(sending ? request : match, sending ? match : request);
    }
    pthread_mutex_unlock(&mailbox->lock);
}

loong_message_state_t loongi_mailbox_test(loong_comm_request_t *request,
                                          size_t *other_bytes_p)
{
    letter_t *l = letter(request);
    int state = atomic_load_explicit(&l->state, memory_order_acquire);
    if (state != LOONG_MESSAGE_PENDING) {
        *other_bytes_p = l->other_bytes;
    }
    return (loong_message_state_t)state;
}

/* Nobody may find the request after its owner gave up. */
void loongi_mailbox_cancel(loong_mailbox_t *mailbox, int me,
                           loong_comm_request_t *request)
{
    bool sending = request->kind == LOONG_COLLECTIVE_SEND;
    box_t *box = &mailbox->box[sending ? request->peer : me];
    pthread_mutex_lock(&mailbox->lock);
    unlink_request(sending ? &box->sends : &box->receives, request);
    pthread_mutex_unlock(&mailbox->lock);
}

bool loongi_mailbox_probe(loong_mailbox_t *mailbox, int me, int *peer_p,
                          int *tag_p)
{
    pthread_mutex_lock(&mailbox->lock);
    loong_comm_request_t *send = mailbox->box[me].sends;
    while (send != NULL &&
           ((*peer_p >= 0 && letter(send)->from != *peer_p) ||
            (*tag_p >= 0 && send->tag != *tag_p))) {
        send = letter(send)->next;
    }
    if (send != NULL) {
        *peer_p = letter(send)->from;
        *tag_p = send->tag;
    }
    pthread_mutex_unlock(&mailbox->lock);
    return send != NULL;
}

loong_status_t loongi_mailbox_wait(loong_mailbox_t *mailbox, loong_comm_t *comm,
                                   loong_comm_request_t *request)
{
    size_t other = 0;
    loong_message_state_t state;
    loong_wait_t wait = loongi_wait_begin(comm);
    while ((state = loongi_mailbox_test(request, &other)) ==
           LOONG_MESSAGE_PENDING) {
        if (!loongi_wait_step(&wait, request->peer)) {
            loongi_mailbox_cancel(mailbox, comm->rank, request);
            return loongi_wait_failed_on(&wait, request->peer);
        }
    }
    loongi_wait_end(&wait);
    bool sending = request->kind == LOONG_COLLECTIVE_SEND;
    LOONG_CHECK(comm->ctx, state == LOONG_MESSAGE_DONE, LOONG_ERR_COMM,
                "message with tag %d of %s: rank %d %s %zu bytes, rank %d %s "
                "%zu",
                request->tag, comm->name, comm->rank,
                sending ? "sends" : "expects", request->bytes, request->peer,
                sending ? "expects" : "sends", other);
    return LOONG_OK;
}
