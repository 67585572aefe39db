/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the communicators that messages between stages and components on
 * devices go over. Called by component_comms.c and edge_links.c, used by
 * transfer.c and edge_messages.c. Read links.h before: it says why there is no
 * deadlock. */
#include "links.h"

#include <stdio.h>

#include "comm_run.h"

enum { DIRECTIONS = 2, FIRST_BYTES = LOONG_LINK_BYTES };

struct loong_links {
    loong_context_t *ctx;
    int count;
    loong_comm_t **comm; /* [count]; NULL: of others */
};

/* ---- the first messages -------------------------------------------------- */

/* Of one link. */
typedef struct first {
    loong_comm_t *link;
    int begun;
    loong_comm_request_t *request;
} first_t;

/* What is sent has a place, and what each message receives. */
static loong_status_t begin(first_t *f, const loong_link_params_t *p,
                            char *memory)
{
    for (int i = 0; i < p->count; i++) {
        const loong_link_message_t *m = &p->messages[i];
        loong_comm_request_t *r = &f->request[i];
        LOONG_TRY(
            m->send
                ? loong_comm_isend(f->link, memory, FIRST_BYTES, m->peer, 0, r)
                : loong_comm_irecv(f->link, memory + (i + 1) * FIRST_BYTES,
                                   FIRST_BYTES, m->peer, 0, r));
        f->begun++;
    }
    return LOONG_OK;
}

/* Messages as the link will carry them; of a rank to itself both ends. */
static loong_status_t meet(first_t *f, const loong_link_params_t *p,
                           char *memory)
{
    LOONG_TRY(loongi_comm_reserve(
        f->link, LOONG_MAX(LOONG_LINK_MESSAGES, p->count), FIRST_BYTES));
    LOONG_TRY(loongi_comm_group_messages(f->link, true));
    loong_status_t status = begin(f, p, memory);
    loong_status_t ended = loongi_comm_group_messages(f->link, false);
    LOONG_TRY(status == LOONG_OK ? ended : status);
    for (int i = 0; i < p->count; i++) {
        LOONG_TRY(loong_comm_wait(f->link, &f->request[i]));
    }
    return LOONG_OK;
}

/* False: one is under way all the same, in its memory. */
static bool give_up(first_t *f)
{
    bool done = true;
    for (int i = 0; i < f->begun; i++) {
        done = loong_comm_cancel(f->link, &f->request[i]) && done;
    }
    return done;
}

static loong_status_t meet_all(loong_links_t *links, loong_device_t *device,
                               const loong_link_params_t *params)
{
    first_t first = {NULL, 0, NULL};
    void *memory = NULL;
    int most = 1;
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < links->count; i++) {
        most = LOONG_MAX(most, params[i].count);
    }
    size_t bytes = (size_t)(most + 1) * FIRST_BYTES;
    LOONG_TRY(loongi_calloc(links->ctx, (size_t)most, sizeof(*first.request),
                            "first messages", &first.request));
    status = loong_device_alloc(device, bytes, "first messages", &memory);
    for (int i = 0; i < links->count && status == LOONG_OK; i++) {
        if (links->comm[i] != NULL) {
            first.link = links->comm[i];
            first.begun = 0;
            status = meet(&first, &params[i], memory);
        }
    }
    if (status == LOONG_OK) { /* kernels are loaded next: nothing may wait */
        status = loong_device_synchronize(device, "first messages");
    }
    if (status == LOONG_OK || give_up(&first)) {
        loong_device_free(device, memory, bytes);
        loongi_free(links->ctx, first.request);
    }
    return status;
}

/* ---- the communicators --------------------------------------------------- */

/* All ranks come for each, in one order. */
static loong_status_t create_all(loong_links_t *links, loong_comm_t *all,
                                 const loong_link_params_t *params)
{
    LOONG_TRY(loongi_calloc(links->ctx, (size_t)links->count,
                            sizeof(*links->comm), "links of devices",
                            &links->comm));
    for (int i = 0; i < links->count; i++) {
        const loong_link_params_t *p = &params[i];
        LOONG_TRY(
            loong_comm_split(all, p->color, p->key, p->name, &links->comm[i]));
    }
    return LOONG_OK;
}

loong_status_t loongi_links_open(loong_context_t *ctx, loong_device_t *device,
                                 loong_comm_t *all, int count,
                                 const loong_link_params_t *params,
                                 loong_links_t **links_p)
{
    loong_links_t *links = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*links), "links of devices", &links));
    links->ctx = ctx;
    links->count = count;
    loong_status_t status = create_all(links, all, params);
    if (status == LOONG_OK) {
        *links_p = links; /* which whoever waits for the device watches */
        status = meet_all(links, device, params);
    }
    if (status != LOONG_OK) { /* the others are told before it waits for them */
        *links_p = NULL;
        loong_comm_abort(all, loong_context_error(ctx));
        loongi_links_destroy(&links);
    }
    return status;
}

/* ---- of a pipeline ------------------------------------------------------- */

/* One message, or both ends of one to itself. */
static void describe(const loong_schedule_t *schedule, int rank, int index,
                     loong_link_params_t *p, loong_link_message_t *messages)
{
    int lower = index / DIRECTIONS;
    bool back = index % DIRECTIONS == 1;
    int from = loongi_schedule_rank(schedule, lower + back);
    int to = loongi_schedule_rank(schedule, lower + !back);
    snprintf(p->name, sizeof(p->name), "stage %d to %d", lower + back,
             lower + !back);
    p->color = from == rank || to == rank ? 0 : -1;
    p->key = rank;
    p->messages = messages;
    if (from == rank) {
        messages[p->count++] = (loong_link_message_t){to > from, true};
    }
    if (to == rank) {
        messages[p->count++] = (loong_link_message_t){from > to, false};
    }
}

loong_status_t loongi_links_create(loong_context_t *ctx, loong_device_t *device,
                                   loong_comm_t *pipeline,
                                   const loong_schedule_t *schedule,
                                   loong_links_t **links_p)
{
    int count = DIRECTIONS * (loongi_schedule_stages(schedule) - 1);
    loong_link_params_t *params = NULL;
    loong_link_message_t *messages = NULL;
    LOONG_TRY(loongi_calloc(ctx, (size_t)count + 1, sizeof(*params),
                            "links of a pipeline", &params));
    loong_status_t status =
        loongi_calloc(ctx, 2 * (size_t)count + 1, sizeof(*messages),
                      "links of a pipeline", &messages);
    for (int i = 0; i < count && status == LOONG_OK; i++) {
        describe(schedule, loong_comm_rank(pipeline), i, &params[i],
                 &messages[(size_t)2 * (size_t)i]);
    }
    if (status == LOONG_OK) {
        status =
            loongi_links_open(ctx, device, pipeline, count, params, links_p);
    }
    loongi_free(ctx, messages);
    loongi_free(ctx, params);
    return status;
}

void loongi_links_destroy(loong_links_t **links_p)
{
    loong_links_t *links = *links_p;
    if (links == NULL) {
        return;
    }
    for (int i = 0; i < links->count && links->comm != NULL; i++) {
        loong_comm_destroy(&links->comm[i]);
    }
    loongi_free(links->ctx, links->comm);
    loongi_free(links->ctx, links);
    *links_p = NULL;
}

loong_comm_t *loongi_links_get(const loong_links_t *links, int number,
                               int direction)
{
    int index = number * DIRECTIONS + direction;
    return links != NULL && index >= 0 && index < links->count
               ? links->comm[index]
               : NULL;
}

loong_status_t loongi_links_watch(const loong_links_t *links, bool waits)
{
    for (int i = 0; links != NULL && i < links->count; i++) {
        if (links->comm[i] != NULL) {
            LOONG_TRY(loongi_comm_watch(links->comm[i], waits));
        }
    }
    return LOONG_OK;
}

double loongi_links_seconds(const loong_links_t *links, bool waiting)
{
    double seconds = 0.0;
    for (int i = 0; links != NULL && i < links->count; i++) {
        if (links->comm[i] != NULL) {
            loong_comm_stats_t stats = loong_comm_stats(links->comm[i]);
            seconds += waiting ? stats.wait : stats.seconds;
        }
    }
    return seconds;
}

void loongi_links_add_times(const loong_links_t *links, double times[2])
{
    for (int i = 0; links != NULL && i < links->count; i++) {
        if (links->comm[i] != NULL) {
            loongi_comm_add_message_times(links->comm[i], times);
        }
    }
}
