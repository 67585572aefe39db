/* SPDX-License-Identifier: Apache-2.0
 *
 * How long messages are under way, and how long of that a device has nothing
 * to do. A message is under way since its data was ready on the sender's
 * device, which the sender tells behind it by the clock of rank 0, until it is
 * in the receiver's host memory. Who sends counts its copies to the host, which
 * its stream makes in place of work. Who receives counts what passes while it
 * waits and its stream is idle. One that came before is not seen to arrive: it
 * took no longer than the fastest one of the link, byte by byte. Called by
 * staged_comm.c and staged_message.c. Read staged_impl.h before. */
#include "staged_impl.h"

#include <float.h>

enum { ROUNDS = 6 };

/* What a rank gathers of rank 0 was noted before it has it: that bounds the
 * distance of the two clocks from both sides. */
loong_status_t loongi_staged_compare_clocks(staged_root_t *root,
                                            loong_comm_t *host)
{
    size_t size = (size_t)host->size;
    double low = -DBL_MAX;
    double high = DBL_MAX;
    double after = 0.0;
    double (*noted)[2] = NULL; /* before a round, and after the last one */
    int64_t *counts = NULL;
    loong_status_t status =
        loongi_calloc(root->ctx, size, sizeof(*noted), "clocks", &noted);
    if (status == LOONG_OK) {
        status =
            loongi_calloc(root->ctx, size, sizeof(*counts), "clocks", &counts);
    }
    for (size_t r = 0; r < size && status == LOONG_OK; r++) {
        counts[r] = LOONG_COUNT_OF(*noted);
    }
    double last = 0.0;
    for (int round = 0; round < ROUNDS && status == LOONG_OK; round++) {
        double before = loongi_now();
        noted[host->rank][0] = before;
        noted[host->rank][1] = after;
        status = loong_comm_all_gather(host, noted, counts, LOONG_F64,
                                       "clocks");
        after = loongi_now();
        low = LOONG_MAX(low, noted[0][0] - after);
        high = round > 0 ? LOONG_MIN(high, noted[0][1] - last) : high;
        last = before;
    }
    bool other = host->rank != 0 && status == LOONG_OK;
    root->ahead = other ? 0.5 * (low + high) : 0.0;
    root->unsure = other ? 0.5 * (high - low) : 0.0;
    loongi_free(root->ctx, counts);
    loongi_free(root->ctx, noted);
    return status;
}

/* ---- sent ---------------------------------------------------------------- */

double loongi_staged_ready(const staged_t *s, staged_message_t *m)
{
    double now = loongi_now();
    m->stamp = now + s->root->ahead;
    return now;
}

void loongi_staged_copied(staged_t *s, double since)
{
    double seconds = loongi_now() - since;
    s->comm->message_times[0] += seconds;
    s->comm->message_times[1] += seconds;
}

/* ---- received ------------------------------------------------------------ */

static loong_wait_policy_t own_policy(const loong_comm_t *comm)
{
    return comm->wait_policy != NULL ? comm->wait_policy(comm->wait_policy_user)
                                     : LOONG_WAIT_EAGER;
}

/* Asked again and again while the host waits. */
static loong_wait_policy_t look(void *user)
{
    staged_t *s = user;
    bool done = false;
    if (s->idle.since == 0.0 &&
        (s->idle.event == NULL ||
         (loong_device_event_is_done(s->root->device, s->idle.event, &done) ==
              LOONG_OK &&
          done))) {
        s->idle.since = loongi_now();
    }
    return own_policy(s->comm);
}

loong_status_t loongi_staged_begin_wait(staged_t *s, const staged_message_t *m,
                                        bool comes)
{
    s->idle = (staged_idle_t){NULL, loongi_now(), 0.0};
    if (comes && m->free != NULL) {
        LOONG_TRY(loong_device_event_record(s->root->device, m->free,
                                            loongi_staged_stream(s)));
        s->idle.event = m->free;
    }
    loongi_comm_set_wait_policy(s->host, look, s);
    return LOONG_OK;
}

void loongi_staged_end_wait(staged_t *s)
{
    (void)look(s);
    loongi_comm_set_wait_policy(s->host, s->comm->wait_policy,
                                s->comm->wait_policy_user);
}

void loongi_staged_arrived(staged_t *s, const staged_message_t *m, size_t bytes)
{
    double now = loongi_now();
    /* Clocks drift apart; what came was ready before. */
    s->root->ahead = LOONG_MAX(s->root->ahead, m->stamp - now);
    double sent = m->stamp - s->root->ahead;
    double whole = now - sent;
    double idle = s->idle.since > 0.0 ? s->idle.since : now;
    double begin = LOONG_MAX(LOONG_MAX(sent, s->idle.begin), idle);
    double exposed = LOONG_MAX(now - begin, 0.0);
    if (whole > s->root->unsure &&
        (s->pace == 0.0 || whole < s->pace * (double)bytes)) {
        s->pace = whole / (double)LOONG_MAX(bytes, 1);
    }
    double took = LOONG_MIN(whole, s->pace * (double)bytes);
    s->comm->message_times[0] += LOONG_MAX(took, exposed);
    s->comm->message_times[1] += exposed;
}
