/* SPDX-License-Identifier: Apache-2.0
 *
 * The roll: when a collective fails, every rank that is in it tells every
 * other, so that who is silent is known by name. Called by message.c. Read
 * inside/message_impl.h before. */
#include <string.h>
#include <time.h>

#include "message_impl.h"

/* An answer takes no longer where there is one. */
static const double ROLL_SECONDS = 1.0;
static const double LAST_SECONDS = 0.5;

void loongi_message_cancel(loong_message_t *message)
{
    for (int i = 0; i < message->active; i++) {
        message->params.cancel(message->params.owner, &message->requests[i]);
    }
    message->active = 0;
}

void loongi_roll_linger(loong_message_t *message)
{
    double end = loongi_now() + LAST_SECONDS;
    struct timespec nap = {0, 1000000};
    size_t other = 0;
    for (int i = 0; i < message->active && message->roll[0] != '\0'; i++) {
        loong_comm_request_t *request = &message->requests[i];
        while (message->params.test(message->params.owner, request, &other) ==
                   LOONG_MESSAGE_PENDING &&
               loongi_now() < end) {
            nanosleep(&nap, NULL);
        }
    }
}

/* Says it to all others; a rank that is lost does not hear it. */
static void tell_all(loong_message_t *message, const char *text)
{
    int me = message->params.rank;
    loong_status_t status = LOONG_OK;
    loongi_message_cancel(message);
    message->told = true;
    memset(message->roll, 0, sizeof(message->roll));
    loongi_board_text(message->roll, sizeof(message->roll), text);
    for (int p = 0; p < message->params.size && status == LOONG_OK; p++) {
        if (p != me) {
            status = loongi_message_post(message, LOONG_COLLECTIVE_SEND,
                                         LOONG_ROLL_TAG, message->roll,
                                         sizeof(message->roll), p);
        }
    }
}

void loongi_message_abort(loong_message_t *message, const char *text)
{
    if (!message->told) {
        tell_all(message, text);
    }
}

/* Who answers until the time is over; the first who gave up, -1: nobody. */
static int hear_all(loong_message_t *message, loong_comm_t *comm, int begin)
{
    const loong_message_params_t *params = &message->params;
    double end = loongi_now() + ROLL_SECONDS;
    size_t other = 0;
    int silent = message->active - begin;
    int gave_up = -1;
    memset(comm->missing, 0, (size_t)comm->size * sizeof(*comm->missing));
    for (int i = begin; i < message->active; i++) {
        comm->missing[message->requests[i].peer] = true;
    }
    while (silent > 0 && gave_up < 0 && loongi_now() < end) {
        for (int i = begin; i < message->active; i++) {
            loong_comm_request_t *request = &message->requests[i];
            const char *text = request->data;
            if (comm->missing[request->peer] &&
                params->test(params->owner, request, &other) ==
                    LOONG_MESSAGE_DONE) {
                comm->missing[request->peer] = false;
                silent--;
                gave_up =
                    text[0] != '\0' && gave_up < 0 ? request->peer : gave_up;
            }
        }
        struct timespec nap = {0, 200000};
        nanosleep(&nap, NULL);
    }
    return gave_up;
}

/* The call has failed: says so, and finds who is to blame. `peer` is who was
 * waited for. */
loong_status_t loongi_roll_call(loong_message_t *message, loong_comm_t *comm,
                                loong_wait_t *wait, int peer)
{
    loong_status_t status = LOONG_OK;
    if (comm->wait_policy != NULL &&
        comm->wait_policy(comm->wait_policy_user) == LOONG_WAIT_OVER) {
        return loongi_wait_failed_on(wait, peer);
    }
    tell_all(message, "");
    int begin = message->active;
    for (int p = 0; p < comm->size && status == LOONG_OK; p++) {
        if (p != comm->rank) {
            status = loongi_message_post(
                message, LOONG_COLLECTIVE_RECV, LOONG_ROLL_TAG,
                message->staging + (size_t)p * sizeof(message->roll),
                sizeof(message->roll), p);
        }
    }
    int gave_up = hear_all(message, comm, begin);
    if (gave_up >= 0) {
        char call[LOONG_BOARD_TEXT];
        loongi_wait_end(wait);
        loongi_call_text(comm, comm->current, call, sizeof(call));
        return LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
                          "%s: given up by rank %d: %.*s", call,
                          comm->world_ranks[gave_up], LOONG_BOARD_TEXT,
                          (const char *)message->staging +
                              (size_t)gave_up * sizeof(message->roll));
    }
    for (int p = 0; p < comm->size; p++) {
        if (comm->missing[p]) {
            return loongi_wait_failed(wait);
        }
    }
    return loongi_wait_failed_on(wait, peer); /* it came after the limit */
}
