/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives in two tiers. What a leader passes on is complete for its
 * machine; sums of floats and exchanges, where every pair has something of its
 * own to say or the order counts, stay pairwise. Created by mpi_world.c and
 * threads_run.c, called by comm.c. Read inside/tiers.h before. */
#include <string.h>

#include "message.h"
#include "piece.h"
#include "tiers.h"

/* Seconds that leaders wait longer for each other than the ranks of a machine
 * do, so that where one is missing, its machine names it first; and that the
 * ranks of a machine wait longer still for what their leader brings. */
static const double LONGER = 2.0;

typedef struct loong_tiers {
    loong_comm_t *node;    /* the ranks of this machine */
    loong_comm_t *leaders; /* NULL on the others */
    int machines;
    int mine;        /* this machine's number */
    int *first;      /* [machines + 1]: its lowest rank in the group */
    int64_t *counts; /* [size]: of pieces, or of each machine's pieces */
    int64_t *zeros;  /* [size] */
} loong_tiers_t;

/* The number of machines; first_p[] (optional) gets the lowest rank of each.
 * 0: the ranks of one do not stand together. */
static int find_machines(const loong_comm_t *comm, int *first_p)
{
    int machines = 0;
    for (int r = 0; r < comm->size; r++) {
        int machine = comm->ops->machine(comm, r);
        if (r > 0 && machine == comm->ops->machine(comm, r - 1)) {
            continue;
        }
        /* Numbers of machines that stand together go up. */
        if (r > 0 && machine < comm->ops->machine(comm, r - 1)) {
            return 0;
        }
        if (first_p != NULL) {
            first_p[machines] = r;
        }
        machines++;
    }
    return machines;
}

static loong_status_t make_tiers(loong_comm_t *comm, int machines,
                                 loong_tiers_t *tiers)
{
    const char *name = comm->name;
    loong_context_t *ctx = comm->ctx;
    LOONG_TRY(loongi_calloc(ctx, (size_t)machines + 1, sizeof(int), "machines",
                            &tiers->first));
    LOONG_TRY(loongi_calloc(ctx, 2 * (size_t)comm->size, sizeof(int64_t),
                            "pieces", &tiers->counts));
    tiers->zeros = tiers->counts + comm->size;
    tiers->machines = find_machines(comm, tiers->first);
    tiers->first[machines] = comm->size;
    while (tiers->first[tiers->mine + 1] <= comm->rank) {
        tiers->mine++;
    }
    bool leads = tiers->first[tiers->mine] == comm->rank;
    LOONG_TRY(
        comm->ops->split(comm, tiers->mine, comm->rank, name, &tiers->node));
    LOONG_TRY(comm->ops->split(comm, leads ? 0 : -1, comm->rank, name,
                               &tiers->leaders));
    return LOONG_OK;
}

loong_status_t loongi_tiers_create(loong_comm_t **comm_p)
{
    loong_comm_t *comm = *comm_p;
    int machines = comm->ops->machine != NULL ? find_machines(comm, NULL) : 1;
    if (machines <= 1 || machines == comm->size) {
        return LOONG_OK;
    }
    loong_tiers_t *tiers = NULL;
    loong_status_t status = loongi_alloc(comm->ctx, sizeof(*tiers),
                                         "tiers of a communicator", &tiers);
    if (status == LOONG_OK) {
        status = make_tiers(comm, machines, tiers);
    }
    comm->tiers = tiers; /* not before: splits are collectives of comm */
    if (status != LOONG_OK) {
        comm->failed = true; /* the others may still be at it */
        loong_comm_destroy(comm_p);
    }
    return status;
}

void loongi_tiers_destroy(loong_comm_t *comm)
{
    loong_tiers_t *tiers = comm->tiers;
    if (tiers == NULL) {
        return;
    }
    loong_comm_t *both[] = {tiers->node, tiers->leaders};
    for (int i = 0; i < 2; i++) {
        if (both[i] != NULL) {
            both[i]->failed = both[i]->failed || comm->failed;
            loong_comm_destroy(&both[i]);
        }
    }
    loongi_free(comm->ctx, tiers->first);
    loongi_free(comm->ctx, tiers->counts);
    loongi_free(comm->ctx, tiers);
    comm->tiers = NULL;
}

void loongi_tiers_abort(loong_comm_t *comm, const char *text)
{
    if (comm->tiers != NULL) {
        loong_comm_t *both[] = {comm->tiers->node, comm->tiers->leaders};
        for (int i = 0; i < 2; i++) {
            if (both[i] != NULL) {
                both[i]->failed = true;
                both[i]->ops->abort(both[i], text);
            }
        }
    }
}

void loongi_tiers_set_wait_policy(loong_comm_t *comm)
{
    if (comm->tiers != NULL) {
        loongi_comm_set_wait_policy(comm->tiers->node, comm->wait_policy,
                                    comm->wait_policy_user);
        if (comm->tiers->leaders != NULL) {
            loongi_comm_set_wait_policy(comm->tiers->leaders, comm->wait_policy,
                                        comm->wait_policy_user);
        }
    }
}

void loongi_tiers_add_stats(const loong_comm_t *comm, loong_comm_stats_t *stats)
{
    if (comm->tiers == NULL) {
        return;
    }
    const loong_comm_t *both[] = {comm->tiers->node, comm->tiers->leaders};
    for (int i = 0; i < 2; i++) {
        if (both[i] != NULL) {
            stats->wait += both[i]->stats.wait;
            stats->messages += both[i]->stats.messages;
            stats->message_bytes += both[i]->stats.message_bytes;
        }
    }
}

/* One part of comm's call; messages speak of the whole. */
static loong_status_t run_part(loong_comm_t *comm, loong_comm_t *part,
                               loong_collective_t call, double longer)
{
    call.sequence = ++part->sequence;
    part->current = comm->current;
    part->timeout = comm->timeout + longer;
    loong_status_t status = part->ops->run(part, &call);
    part->current = NULL;
    return status;
}

static loong_status_t run_node(loong_comm_t *comm, loong_collective_t call)
{
    return run_part(comm, comm->tiers->node, call, 0.0);
}

/* Nothing on a rank that leads no machine. */
static loong_status_t run_leaders(loong_comm_t *comm, loong_collective_t call)
{
    loong_comm_t *leaders = comm->tiers->leaders;
    return leaders != NULL ? run_part(comm, leaders, call, LONGER) : LOONG_OK;
}

/* From the leader to the ranks of its machine. */
static loong_status_t spread(loong_comm_t *comm, loong_collective_t call)
{
    call.kind = call.kind == LOONG_COLLECTIVE_BARRIER
                    ? LOONG_COLLECTIVE_BARRIER
                    : LOONG_COLLECTIVE_BROADCAST;
    call.root = 0;
    call.counts = NULL;
    return run_part(comm, comm->tiers->node, call, 2.0 * LONGER);
}

static loong_status_t barrier(loong_comm_t *comm,
                              const loong_collective_t *call)
{
    LOONG_TRY(run_node(comm, *call));
    LOONG_TRY(run_leaders(comm, *call));
    return spread(comm, *call);
}

static loong_status_t broadcast(loong_comm_t *comm,
                                const loong_collective_t *call)
{
    const loong_tiers_t *tiers = comm->tiers;
    loong_collective_t between = *call;
    int from = 0;
    while (tiers->first[from + 1] <= call->root) {
        from++;
    }
    between.root = from;
    if (from == tiers->mine) {
        loong_collective_t within = *call;
        within.root = call->root - tiers->first[from];
        LOONG_TRY(run_node(comm, within));
        return run_leaders(comm, between);
    }
    LOONG_TRY(run_leaders(comm, between));
    return spread(comm, *call);
}

static loong_status_t all_gather(loong_comm_t *comm,
                                 const loong_collective_t *call)
{
    loong_tiers_t *tiers = comm->tiers;
    size_t size = loong_dtype_size(call->dtype);
    int first = tiers->first[tiers->mine];
    loong_collective_t within = *call;
    loong_collective_t between = *call;
    size_t begin = (size_t)loongi_piece_begin(call->counts, first) * size;
    within.data = (char *)call->data + begin;
    within.counts = call->counts + first;
    within.count = 0;
    for (int r = first; r < tiers->first[tiers->mine + 1]; r++) {
        within.count += call->counts[r];
    }
    LOONG_TRY(run_node(comm, within));
    for (int m = 0; m < tiers->machines; m++) {
        int64_t sum = 0;
        for (int r = tiers->first[m]; r < tiers->first[m + 1]; r++) {
            sum += call->counts[r];
        }
        tiers->counts[m] = sum; /* m <= first[m]: read before, if the same */
    }
    between.counts = tiers->counts;
    LOONG_TRY(run_leaders(comm, between));
    return spread(comm, *call);
}

/* All ranks with each other, once those of this machine have found that they
 * call the same. */
static loong_status_t pairwise(loong_comm_t *comm,
                               const loong_collective_t *call)
{
    loong_collective_t empty = *call;
    empty.count = 0;
    empty.root = 0;
    empty.counts = call->counts != NULL ? comm->tiers->zeros : NULL;
    empty.receive_counts = comm->tiers->zeros;
    LOONG_TRY(run_node(comm, empty));
    return comm->ops->run(comm, call);
}

static loong_status_t all_reduce(loong_comm_t *comm,
                                 const loong_collective_t *call)
{
    loong_tiers_t *tiers = comm->tiers;
    if (!loongi_needs_order(call)) {
        LOONG_TRY(run_node(comm, *call));
        LOONG_TRY(run_leaders(comm, *call));
        return spread(comm, *call);
    }
    loong_collective_t part = *call;
    for (int r = 0; r < comm->size; r++) {
        tiers->counts[r] = loongi_piece(call, comm->size, r).count;
    }
    part.counts = tiers->counts;
    part.kind = LOONG_COLLECTIVE_REDUCE_SCATTER;
    LOONG_TRY(pairwise(comm, &part));
    part.kind = LOONG_COLLECTIVE_ALL_GATHER;
    return all_gather(comm, &part);
}

static loong_status_t run(loong_comm_t *comm, const loong_collective_t *call)
{
    switch (call->kind) {
    case LOONG_COLLECTIVE_BARRIER:
        return barrier(comm, call);
    case LOONG_COLLECTIVE_BROADCAST:
        return broadcast(comm, call);
    case LOONG_COLLECTIVE_ALL_REDUCE:
        return all_reduce(comm, call);
    case LOONG_COLLECTIVE_ALL_GATHER:
        return all_gather(comm, call);
    default:
        return pairwise(comm, call);
    }
}

loong_status_t loongi_tiers_run(loong_comm_t *comm,
                                const loong_collective_t *call)
{
    static const char given_up[] = ": given up by ";
    loong_status_t status = run(comm, call);
    if (status != LOONG_OK) { /* the cause alone goes on */
        const char *text = loong_context_error(comm->ctx);
        const char *by = strstr(text, given_up);
        const char *cause = by != NULL ? strstr(by + 2, ": ") : NULL;
        text = cause != NULL ? cause + 2 : text;
        loongi_tiers_abort(comm, text);
        comm->ops->abort(comm, text);
    }
    return status;
}
