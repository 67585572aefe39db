/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator table of ranks in one process: all memory is readable, so
 * collectives are direct; messages go through a mailbox. Made by threads_run.c
 * and self.c, called by src/comm/comm.c. Read threads.h before. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mailbox.h"
#include "message.h"
#include "pages.h"
#include "region.h"
#include "shared.h"
#include "threads.h"

/* Pages that a rank gave back while others may still read them. */
typedef struct left {
    struct left *next;
    void *base;
    size_t bytes;
} left_t;

/* Outlives the context of the rank that made it, so it is not of any. */
struct loong_threads_group {
    _Atomic int refs;
    _Atomic(left_t *) left;
    void *control;         /* NULL: ranks pretend to be on several machines */
    loong_mailbox_t *mail; /* of the user */
    loong_mailbox_t *internal; /* of collectives */
};

typedef struct threads {
    const loong_threads_world_t *world;
    loong_threads_group_t *group;
    loong_shared_t *shared; /* one of the two */
    loong_message_t *message;
    loong_regions_t own;
    loong_regions_t *regions; /* of the first communicator */
    int rank;
    void (*end)(loong_context_t *ctx, void *user);
    void *end_user;
} threads_t;

static bool one_node(const loong_threads_world_t *world, const int *world_ranks,
                     int size)
{
    int per_node = world->params.ranks_per_node;
    for (int i = 1; i < size && per_node > 0; i++) {
        if (world_ranks[i] / per_node != world_ranks[0] / per_node) {
            return false;
        }
    }
    return true;
}

static void *zeroed(size_t bytes)
{
    size_t rounded = (size_t)loongi_round_up((int64_t)bytes, 128);
    void *memory = aligned_alloc(128, rounded);
    if (memory != NULL) {
        memset(memory, 0, rounded);
    }
    return memory;
}

static loong_mailbox_t *new_mailbox(int size)
{
    void *memory = zeroed(loongi_mailbox_bytes(size));
    return memory != NULL ? loongi_mailbox_init(memory, size) : NULL;
}

static void end_mailbox(loong_mailbox_t *mailbox)
{
    if (mailbox != NULL) {
        loongi_mailbox_end(mailbox);
        free(mailbox);
    }
}

static void leave(loong_threads_group_t *group, void *base, size_t bytes)
{
    left_t *left = malloc(sizeof(*left));
    if (left != NULL) { /* else they stay */
        left->base = base;
        left->bytes = bytes;
        left->next = atomic_load(&group->left);
        while (!atomic_compare_exchange_weak(&group->left, &left->next,
                                             left)) {
        }
    }
}

static void free_group(loong_threads_group_t *group)
{
    left_t *left = atomic_load(&group->left);
    while (left != NULL) {
        left_t *next = left->next;
        loongi_pages_free(left->base, left->bytes);
        free(left);
        left = next;
    }
    end_mailbox(group->mail);
    end_mailbox(group->internal);
    free(group->control);
    free(group);
}

loong_threads_group_t *loongi_threads_group(const loong_threads_world_t *world,
                                            const int *world_ranks, int size)
{
    loong_threads_group_t *group = zeroed(sizeof(*group));
    if (group == NULL) {
        return NULL;
    }
    bool together = one_node(world, world_ranks, size);
    atomic_store(&group->refs, size);
    group->control = together ? zeroed(loongi_shared_bytes(size, 0)) : NULL;
    group->mail = new_mailbox(size);
    group->internal = new_mailbox(size);
    if ((together && group->control == NULL) || group->mail == NULL ||
        group->internal == NULL) {
        free_group(group);
        return NULL;
    }
    return group;
}

void loongi_threads_drop(loong_threads_group_t *group)
{
    if (atomic_fetch_sub(&group->refs, 1) == 1) {
        free_group(group);
    }
}

/* ---- What the collective engines ask for ----------------------------------
 */

static loong_location_t threads_locate(void *owner, const void *ptr,
                                       size_t bytes)
{
    (void)owner;
    (void)bytes;
    loong_location_t location = {1, (uint64_t)(uintptr_t)ptr};
    return location;
}

static void *threads_resolve(void *owner, int peer,
                             const loong_location_t *location)
{
    (void)owner;
    (void)peer;
    return (void *)(uintptr_t)location->offset;
}

static loong_status_t post_message(void *owner, loong_comm_request_t *request)
{
    threads_t *threads = owner;
    loongi_mailbox_post(threads->group->internal, threads->rank, request);
    return LOONG_OK;
}

static loong_message_state_t
test_message(void *owner, loong_comm_request_t *request, size_t *other_bytes_p)
{
    (void)owner;
    return loongi_mailbox_test(request, other_bytes_p);
}

static void cancel_message(void *owner, loong_comm_request_t *request)
{
    threads_t *threads = owner;
    loongi_mailbox_cancel(threads->group->internal, threads->rank, request);
}

static bool probe_message(void *owner, int *peer_p, int *tag_p)
{
    threads_t *threads = owner;
    return loongi_mailbox_probe(threads->group->internal, threads->rank, peer_p,
                                tag_p);
}

/* ---- The table ------------------------------------------------------------
 */

static int threads_machine(const loong_comm_t *comm, int rank)
{
    const threads_t *threads = comm->impl;
    int per_node = threads->world->params.ranks_per_node;
    return per_node > 0 ? comm->world_ranks[rank] / per_node : 0;
}

static loong_status_t threads_run(loong_comm_t *comm,
                                  const loong_collective_t *call)
{
    threads_t *threads = comm->impl;
    return threads->shared != NULL
               ? loongi_shared_run(threads->shared, comm, call)
               : loongi_message_run(threads->message, comm, call);
}

static loong_status_t threads_isend(loong_comm_t *comm, const void *data,
                                    loong_comm_request_t *request)
{
    threads_t *threads = comm->impl;
    request->data = (void *)(uintptr_t)data;
    loongi_mailbox_post(threads->group->mail, comm->rank, request);
    return LOONG_OK;
}

static loong_status_t threads_irecv(loong_comm_t *comm,
                                    loong_comm_request_t *request)
{
    threads_t *threads = comm->impl;
    loongi_mailbox_post(threads->group->mail, comm->rank, request);
    return LOONG_OK;
}

static loong_status_t threads_wait(loong_comm_t *comm,
                                   loong_comm_request_t *request)
{
    threads_t *threads = comm->impl;
    return loongi_mailbox_wait(threads->group->mail, comm, request);
}

static bool threads_cancel(loong_comm_t *comm, loong_comm_request_t *request)
{
    threads_t *threads = comm->impl;
    loongi_mailbox_cancel(threads->group->mail, comm->rank, request);
    return true;
}

/* Exchanges one record of `bytes` per rank; all[size] is this call's. */
static loong_status_t exchange(loong_comm_t *comm, const void *mine,
                               size_t bytes, const char *label, void **all_p)
{
    int64_t *counts = NULL;
    char *all = NULL;
    size_t size = (size_t)comm->size;
    LOONG_TRY(loongi_alloc(comm->ctx, size * bytes, label, &all));
    loong_status_t status =
        loongi_calloc(comm->ctx, size, sizeof(*counts), label, &counts);
    for (int i = 0; i < comm->size && status == LOONG_OK; i++) {
        counts[i] = (int64_t)bytes;
    }
    memcpy(all + (size_t)comm->rank * bytes, mine, bytes);
    if (status == LOONG_OK) {
        status = loong_comm_all_gather(comm, all, counts, LOONG_U8, label);
    }
    loongi_free(comm->ctx, counts);
    if (status != LOONG_OK) {
        loongi_free(comm->ctx, all);
        return status;
    }
    *all_p = all;
    return LOONG_OK;
}

static loong_status_t threads_alloc_shared(loong_comm_t *comm, size_t bytes,
                                           const char *what, void **ptr_p)
{
    threads_t *threads = comm->impl;
    loong_region_slice_t mine = {NULL, bytes};
    loong_region_slice_t *all = NULL;
    loong_region_t *region = NULL;
    void *exchanged = NULL;
    loong_status_t status =
        loongi_pages_alloc(comm->ctx, bytes, what, &mine.base);
    /* A rank without memory takes part too, so that all hear of it. */
    LOONG_TRY(exchange(comm, &mine, sizeof(mine), what, &exchanged));
    all = exchanged;
    for (int i = 0; i < comm->size && status == LOONG_OK; i++) {
        if (all[i].base == NULL) {
            status = LOONG_FAIL(comm->ctx, LOONG_ERR_MEMORY,
                                "rank %d of %s has no memory for %s", i,
                                comm->name, what);
        }
    }
    if (status == LOONG_OK) {
        int self = comm->world_ranks[comm->rank];
        status = loongi_region_add(comm->ctx, threads->regions,
                                   (uint64_t)(uintptr_t)mine.base, self,
                                   threads->world->size, &region);
    }
    for (int i = 0; i < comm->size && status == LOONG_OK; i++) {
        region->part[comm->world_ranks[i]] = all[i];
    }
    loongi_free(comm->ctx, all);
    if (status != LOONG_OK) {
        loongi_pages_free(mine.base, bytes);
        return status;
    }
    *ptr_p = mine.base;
    return LOONG_OK;
}

static void threads_free_shared(loong_comm_t *comm, void *ptr)
{
    threads_t *threads = comm->impl;
    loong_region_t *region = loongi_region_find(threads->regions, ptr, 0);
    if (region != NULL) {
        loong_region_slice_t own = region->part[region->self];
        loongi_region_remove(comm->ctx, threads->regions, region);
        if (comm->failed) { /* nobody was asked */
            leave(threads->group, own.base, own.bytes);
        } else {
            loongi_pages_free(own.base, own.bytes);
        }
    }
}

static void *threads_peer_pointer(loong_comm_t *comm, const void *ptr, int peer)
{
    threads_t *threads = comm->impl;
    int pair[2] = {comm->world_ranks[comm->rank], comm->world_ranks[peer]};
    return one_node(threads->world, pair, 2)
               ? loongi_region_peer(threads->regions, ptr, pair[1])
               : NULL;
}

static void threads_abort(loong_comm_t *comm, const char *text)
{
    threads_t *threads = comm->impl;
    if (threads->shared != NULL) {
        loongi_shared_abort(threads->shared, text);
    } else {
        loongi_message_abort(threads->message, text);
    }
}

static void threads_destroy(loong_comm_t *comm, bool failed)
{
    (void)failed;
    threads_t *threads = comm->impl;
    loongi_shared_destroy(comm->ctx, &threads->shared);
    loongi_message_destroy(comm->ctx, &threads->message);
    loongi_threads_drop(threads->group);
    if (threads->end != NULL) {
        threads->end(comm->ctx, threads->end_user);
    }
    loongi_free(comm->ctx, threads);
}

void loongi_threads_at_end(loong_comm_t *comm,
                           void (*end)(loong_context_t *ctx, void *user),
                           void *user)
{
    threads_t *threads = comm->impl;
    threads->end = end;
    threads->end_user = user;
}

typedef struct choice {
    int color;
    int key;
    int rank;
} choice_t;

static int compare_choices(const void *a, const void *b)
{
    const choice_t *x = a;
    const choice_t *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Puts the members of the color in front, in order, and counts them. */
static int select_members(choice_t *choices, int size, int color)
{
    int count = 0;
    for (int i = 0; i < size; i++) {
        if (choices[i].color == color) {
            choices[count++] = choices[i];
        }
    }
    qsort(choices, (size_t)count, sizeof(*choices), compare_choices);
    return count;
}

/* The first member makes the group and tells the others. */
static loong_status_t share_group(loong_comm_t *comm, const int *world_ranks,
                                  int size, int leader,
                                  loong_threads_group_t **group_p)
{
    threads_t *threads = comm->impl;
    void *exchanged = NULL;
    loong_threads_group_t *group = NULL;
    if (leader == comm->rank) {
        group = loongi_threads_group(threads->world, world_ranks, size);
    }
    loong_status_t status =
        exchange(comm, &group, sizeof(group), "split", &exchanged);
    if (status != LOONG_OK) {
        if (group != NULL) {
            free_group(group);
        }
        return status;
    }
    loong_threads_group_t **all = exchanged;
    group = leader >= 0 ? all[leader] : NULL;
    loongi_free(comm->ctx, all);
    LOONG_CHECK(comm->ctx, leader < 0 || group != NULL, LOONG_ERR_MEMORY,
                "rank %d of %s has no memory for a group", leader, comm->name);
    *group_p = group;
    return LOONG_OK;
}

static loong_status_t threads_split(loong_comm_t *comm, int color, int key,
                                    const char *name, loong_comm_t **group_p)
{
    threads_t *threads = comm->impl;
    choice_t mine = {color, key, comm->rank};
    void *exchanged = NULL;
    loong_threads_group_t *group = NULL;
    int *world_ranks = NULL;
    LOONG_TRY(exchange(comm, &mine, sizeof(mine), name, &exchanged));
    choice_t *choices = exchanged;
    int count = color < 0 ? 0 : select_members(choices, comm->size, color);
    loong_comm_description_t description = {
        .name = name,
        .size = count,
        .timeout = comm->timeout,
        .ops = comm->ops,
    };
    loong_status_t status =
        loongi_calloc(comm->ctx, (size_t)comm->size, sizeof(*world_ranks),
                      "ranks of a group", &world_ranks);
    for (int i = 0; i < count && status == LOONG_OK; i++) {
        world_ranks[i] = comm->world_ranks[choices[i].rank];
        if (choices[i].rank == comm->rank) {
            description.rank = i;
        }
    }
    description.world_ranks = world_ranks;
    if (status == LOONG_OK) {
        status = share_group(comm, world_ranks, count,
                             count > 0 ? choices[0].rank : -1, &group);
    }
    if (status == LOONG_OK && group != NULL) {
        status = loongi_threads_join(comm->ctx, threads->world, group, comm,
                                     &description, group_p);
    }
    loongi_free(comm->ctx, world_ranks);
    loongi_free(comm->ctx, choices);
    return status;
}

const loong_comm_ops_t *loongi_threads_ops(void)
{
    static const loong_comm_ops_t ops = {
        .name = "threads",
        .run = threads_run,
        .split = threads_split,
        .machine = threads_machine,
        .isend = threads_isend,
        .irecv = threads_irecv,
        .wait = threads_wait,
        .cancel = threads_cancel,
        .alloc_shared = threads_alloc_shared,
        .free_shared = threads_free_shared,
        .peer_pointer = threads_peer_pointer,
        .abort = threads_abort,
        .destroy = threads_destroy,
    };
    return &ops;
}

static loong_status_t make_engine(loong_context_t *ctx, threads_t *threads,
                                  int size)
{
    if (threads->group->control != NULL) {
        loong_shared_params_t params = {
            .rank = threads->rank,
            .size = size,
            .memory = threads->group->control,
            .owner = threads,
            .locate = threads_locate,
            .resolve = threads_resolve,
        };
        return loongi_shared_create(ctx, &params, &threads->shared);
    }
    loong_message_params_t params = {
        .rank = threads->rank,
        .size = size,
        .owner = threads,
        .post = post_message,
        .test = test_message,
        .cancel = cancel_message,
        .probe = probe_message,
    };
    return loongi_message_create(ctx, &params, &threads->message);
}

loong_status_t loongi_threads_join(loong_context_t *ctx,
                                   const loong_threads_world_t *world,
                                   loong_threads_group_t *group,
                                   loong_comm_t *parent,
                                   const loong_comm_description_t *description,
                                   loong_comm_t **comm_p)
{
    threads_t *threads = NULL;
    loong_comm_t *comm = NULL;
    loong_comm_description_t filled = *description;
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*threads), "threads communicator", &threads);
    if (status != LOONG_OK) {
        loongi_threads_drop(group);
        return status;
    }
    threads->world = world;
    threads->group = group;
    threads->rank = description->rank;
    threads->regions =
        parent != NULL ? ((threads_t *)parent->impl)->regions : &threads->own;
    filled.impl = threads;
    LOONG_TRY_GOTO(make_engine(ctx, threads, filled.size), status, err_engine);
    LOONG_TRY_GOTO(loong_comm_create(ctx, &filled, &comm), status, err_comm);
    loongi_comm_set_board(comm, world->board);
    *comm_p = comm;
    return LOONG_OK;

err_comm:
    loongi_shared_destroy(ctx, &threads->shared);
    loongi_message_destroy(ctx, &threads->message);
err_engine:
    loongi_threads_drop(group);
    loongi_free(ctx, threads);
    return status;
}
