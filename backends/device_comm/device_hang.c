/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that hang. A call can end once the devices of all its ranks have come
 * to it, so when that was long ago, it hangs. A rank that is late, on its host
 * or with what its device computes before, is waited for to the time limit.
 *
 * Each rank says on the board in which call its device stands, and of how many
 * ranks in a row, from itself on, it knows that they stand there. It reads that
 * of the first rank behind those that it knows, so that what is known doubles
 * with each look; on another machine a heartbeat brings it. Called by
 * device_comm.c. Read device_comm.h and board.h before. */
#include "device_comm.h"
#include "loong/exit_code.h"
#include "progress.h"

static uint64_t mix(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

uint64_t loongi_device_comm_group(const loong_comm_t *comm)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = comm->name; *c != '\0'; c++) {
        hash = mix(hash, (unsigned char)*c);
    }
    for (int r = 0; r < comm->size; r++) {
        hash = mix(hash, (uint64_t)comm->world_ranks[r]);
    }
    return hash | 1;
}

/* A message is one of two ranks, which have others of their own. */
static uint64_t group_of(const device_comm_t *n, const loong_collective_t *call)
{
    const loong_comm_t *comm = n->comm;
    if (!device_is_message(call)) {
        return comm->group;
    }
    uint64_t low = (uint64_t)LOONG_MIN(call->root, comm->rank);
    uint64_t high = (uint64_t)LOONG_MAX(call->root, comm->rank);
    return mix(mix(comm->group, low), high) | 1;
}

static int ranks_of(const device_comm_t *n, const loong_collective_t *call)
{
    return device_is_message(call) ? 2 : n->comm->size;
}

loong_status_t loongi_device_comm_excuse(device_comm_t *n,
                                         const device_pending_t *pending)
{
    bool reached = true;
    if (pending->call.kind != LOONG_COLLECTIVE_REPLAY) {
        LOONG_TRY(
            loong_device_event_is_done(n->device, pending->reached, &reached));
    }
    if (reached) {
        loongi_device_waits_for_others(n->device);
    }
    return LOONG_OK;
}

void loongi_device_comm_stand_nowhere(device_comm_t *n)
{
    loong_board_stand_t nowhere = {n->stand.group, 0, 0};
    if (n->stand.sequence != 0 && n->comm->slot != NULL) {
        loongi_slot_set_stand(n->comm->slot, &nowhere);
    }
    n->stand = nowhere;
}

/* How many stand in the call, as far as that is known, and who is next. */
static loong_board_stand_t
ask_around(device_comm_t *n, const loong_collective_t *call, int *next_p)
{
    const loong_comm_t *comm = n->comm;
    loong_board_stand_t theirs = {0, 0, 0};
    int ranks = ranks_of(n, call);
    *next_p = -1;
    while (n->stand.ranks < ranks) {
        int next = device_is_message(call)
                       ? call->root
                       : (comm->rank + n->stand.ranks) % comm->size;
        theirs = loongi_board_stand(comm->board, comm->world_ranks[next],
                                    n->stand.group);
        if (theirs.sequence != n->stand.sequence) {
            *next_p = next;
            break;
        }
        n->stand.ranks += LOONG_MAX(theirs.ranks, 1);
    }
    n->stand.ranks = LOONG_MIN(n->stand.ranks, ranks);
    loongi_slot_set_stand(comm->slot, &n->stand);
    return theirs;
}

loong_status_t loongi_device_comm_stand(device_comm_t *n,
                                        const device_pending_t *pending,
                                        int *next_p, bool *hangs_p)
{
    const loong_comm_t *comm = n->comm;
    double now = loongi_now();
    bool reached = false;
    *hangs_p = false;
    /* What is in a graph stands behind what else is there. */
    if (comm->slot == NULL || pending->call.kind == LOONG_COLLECTIVE_REPLAY) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loong_device_event_is_done(n->device, pending->reached, &reached));
    if (!reached) {
        return LOONG_OK;
    }
    loong_board_stand_t before = n->stand;
    if (n->stand.sequence == 0) {
        loong_board_stand_t first = {group_of(n, &pending->call),
                                     pending->call.sequence, 1};
        n->stand = first;
    }
    loong_board_stand_t theirs = ask_around(n, &pending->call, next_p);
    bool known = *next_p < 0 || theirs.sequence != 0;
    if (!known || before.ranks != n->stand.ranks || n->elsewhere != *next_p ||
        n->elsewhere_in != theirs.sequence) {
        n->since = now;
    }
    n->elsewhere = *next_p;
    n->elsewhere_in = theirs.sequence;
    *hangs_p = now - n->since > loongi_board_heartbeat(comm->board);
    return LOONG_OK;
}

/* The end of the job of this machine; those of others find the same. */
static void judge(const device_comm_t *n, int rank)
{
    loong_board_verdict_t verdict = {LOONG_EXIT_LOST, rank, {0}};
    loongi_board_text(verdict.text, sizeof(verdict.text),
                      loong_context_error(n->ctx));
    loongi_board_judge(n->comm->board, &verdict);
}

loong_status_t loongi_device_comm_hangs(device_comm_t *n,
                                        const loong_collective_t *call)
{
    const loong_comm_t *comm = n->comm;
    char text[LOONG_BOARD_TEXT];
    char other[2 * LOONG_BOARD_TEXT] = "";
    double seconds = loongi_now() - n->since;
    int rank = -1;
    loongi_call_text(comm, call, text, sizeof(text));
    if (n->elsewhere < 0) {
        LOONG_FAIL(n->ctx, LOONG_ERR_COMM,
                   "%s: hangs: the devices of all its %d ranks are in it for "
                   "%.1f s: one of them, or a link between them, does not work",
                   text, ranks_of(n, call), seconds);
    } else {
        bool behind = call->sequence < n->elsewhere_in; /* this rank */
        int mine = comm->world_ranks[comm->rank];
        int theirs = comm->world_ranks[n->elsewhere];
        uint64_t first = behind ? call->sequence : n->elsewhere_in;
        uint64_t last = behind ? n->elsewhere_in : call->sequence;
        rank = behind ? mine : theirs;
        loongi_board_describe(comm->board, rank, loongi_now(), other,
                              sizeof(other));
        LOONG_FAIL(n->ctx, LOONG_ERR_COMM,
                   "%s: hangs: the device of rank %d is still in #%llu of %s, "
                   "that of rank %d is in #%llu, both for %.1f s: %s",
                   text, rank, (unsigned long long)first, comm->name,
                   behind ? theirs : mine, (unsigned long long)last, seconds,
                   other);
    }
    judge(n, rank);
    return LOONG_ERR_COMM;
}
