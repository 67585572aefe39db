/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the communicators of two ranks that messages between stages on
 * devices go over. Called by component_comms.c, used by transfer.c. Read
 * links.h before: it says why there is no deadlock. */
#include "links.h"

#include <stdio.h>
#include <string.h>

#include "comm_run.h"

enum { DIRECTIONS = 2, FIRST_BYTES = LOONG_LINK_BYTES };

struct loong_links {
    loong_context_t *ctx;
    int count;
    loong_comm_t **comm; /* [count], boundary by boundary; NULL: of others */
};

/* All ranks come for each, in one order. */
static loong_status_t create_one(loong_links_t *links, loong_comm_t *pipeline,
                                 const loong_schedule_t *schedule, int index)
{
    char name[32];
    int lower = index / DIRECTIONS;
    bool back = index % DIRECTIONS == 1;
    int rank = loong_comm_rank(pipeline);
    bool mine = loongi_schedule_rank(schedule, lower) == rank ||
                loongi_schedule_rank(schedule, lower + 1) == rank;
    snprintf(name, sizeof(name), "stage %d to %d", back ? lower + 1 : lower,
             back ? lower : lower + 1);
    return loong_comm_split(pipeline, mine ? 0 : -1, rank, name,
                            &links->comm[index]);
}

/* The first messages of a link: what it sends, what it receives. */
typedef struct first {
    loong_comm_t *link;
    bool sends;
    bool receives;
    bool begun[2];
    loong_comm_request_t request[2];
} first_t;

/* A message as the link will carry them; of a rank to itself both ends. */
static loong_status_t meet(first_t *f, char *memory)
{
    loong_comm_t *link = f->link;
    int peer = loong_comm_size(link) - 1 - loong_comm_rank(link);
    LOONG_TRY(loongi_comm_reserve(link, LOONG_LINK_MESSAGES, FIRST_BYTES));
    if (f->sends) {
        LOONG_TRY(loong_comm_isend(link, memory, FIRST_BYTES, peer, 0,
                                   &f->request[0]));
        f->begun[0] = true;
    }
    if (f->receives) {
        LOONG_TRY(loong_comm_irecv(link, memory + FIRST_BYTES, FIRST_BYTES,
                                   peer, 0, &f->request[1]));
        f->begun[1] = true;
    }
    if (f->sends) {
        LOONG_TRY(loong_comm_wait(link, &f->request[0]));
    }
    return f->receives ? loong_comm_wait(link, &f->request[1]) : LOONG_OK;
}

/* False: one is under way all the same, in its memory. */
static bool give_up(first_t *f)
{
    bool done = true;
    for (int i = 0; i < 2; i++) {
        done = (!f->begun[i] || loong_comm_cancel(f->link, &f->request[i])) &&
               done;
    }
    return done;
}

static loong_status_t meet_all(loong_links_t *links, loong_device_t *device,
                               const loong_schedule_t *schedule, int rank)
{
    first_t first;
    void *memory = NULL;
    loong_status_t status = LOONG_OK;
    memset(&first, 0, sizeof(first));
    LOONG_TRY(loong_device_alloc(device, DIRECTIONS * FIRST_BYTES,
                                 "first messages", &memory));
    for (int i = 0; i < links->count && status == LOONG_OK; i++) {
        int sender = i / DIRECTIONS + i % DIRECTIONS;
        if (links->comm[i] != NULL) {
            memset(&first, 0, sizeof(first));
            first.link = links->comm[i];
            first.sends = loongi_schedule_rank(schedule, sender) == rank;
            first.receives =
                !first.sends || loong_comm_size(first.link) == 1;
            status = meet(&first, memory);
        }
    }
    if (status == LOONG_OK) { /* kernels are loaded next: nothing may wait */
        status = loong_device_synchronize(device, "first messages");
    }
    if (status == LOONG_OK || give_up(&first)) {
        loong_device_free(device, memory, DIRECTIONS * FIRST_BYTES);
    }
    return status;
}

static loong_status_t create_all(loong_links_t *links, loong_comm_t *pipeline,
                                 const loong_schedule_t *schedule)
{
    LOONG_TRY(loongi_calloc(links->ctx, (size_t)links->count,
                            sizeof(*links->comm), "links of a pipeline",
                            &links->comm));
    for (int i = 0; i < links->count; i++) {
        LOONG_TRY(create_one(links, pipeline, schedule, i));
    }
    return LOONG_OK;
}

loong_status_t loongi_links_create(loong_context_t *ctx,
                                   loong_device_t *device,
                                   loong_comm_t *pipeline,
                                   const loong_schedule_t *schedule,
                                   loong_links_t **links_p)
{
    loong_links_t *links = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*links), "links of a pipeline",
                           &links));
    links->ctx = ctx;
    links->count = DIRECTIONS * (loongi_schedule_stages(schedule) - 1);
    loong_status_t status = create_all(links, pipeline, schedule);
    if (status == LOONG_OK) {
        *links_p = links; /* which whoever waits for the device watches */
        status = meet_all(links, device, schedule, loong_comm_rank(pipeline));
    }
    if (status != LOONG_OK) { /* the others are told before it waits for them */
        *links_p = NULL;
        loong_comm_abort(pipeline, loong_context_error(ctx));
        loongi_links_destroy(&links);
    }
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

loong_comm_t *loongi_links_get(const loong_links_t *links, int stage,
                               int direction)
{
    int index = stage * DIRECTIONS + direction;
    return index >= 0 && index < links->count ? links->comm[index] : NULL;
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
