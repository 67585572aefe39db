/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator table of ranks whose memory is of several kinds, and its
 * life cycle. Created through the stager (src/device/stager.h) by
 * src/component/resources.c. Read staged_comm.h and staged_impl.h before. */
#include "staged_impl.h"

#include <stdio.h>
#include <string.h>

#include "waited.h"

#define PIECE_BYTES ((size_t)4 << 20)

static staged_t *impl_of(const loong_comm_t *comm)
{
    return comm->impl;
}

void *loongi_staged_stream(const staged_t *s)
{
    return s->comm->stream != NULL ? s->comm->stream
                                   : loong_device_stream(s->root->device);
}

/* ---- the table ----------------------------------------------------------- */

static loong_status_t run(loong_comm_t *comm, const loong_collective_t *call)
{
    staged_t *s = impl_of(comm);
    LOONG_CHECK(comm->ctx, !loong_device_is_capturing(s->root->device),
                LOONG_ERR_INTERNAL,
                "%s '%s' of %s goes through host memory, which no graph does",
                loong_collective_name(call->kind), call->label, comm->name);
    loongi_comm_set_wait_policy(s->host, comm->wait_policy,
                                comm->wait_policy_user);
    if (call->kind == LOONG_COLLECTIVE_BARRIER) {
        return loongi_staged_barrier(s, call);
    }
    LOONG_CHECK(comm->ctx, call->kind != LOONG_COLLECTIVE_GATHER,
                LOONG_ERR_UNSUPPORTED,
                "gather of %s: not on the memory of a device", comm->name);
    return loongi_staged_run(s, call);
}

/* The host's communicator may be the job's own, which is in the figures, too:
 * what it is used for here counts here alone. */
static loong_status_t staged_run(loong_comm_t *comm,
                                 const loong_collective_t *call)
{
    loong_comm_stats_t *host = &impl_of(comm)->host->stats;
    double counted = host->seconds;
    loong_status_t status = run(comm, call);
    host->seconds = counted;
    return status;
}

static loong_status_t staged_isend(loong_comm_t *comm, const void *data,
                                   loong_comm_request_t *request)
{
    return loongi_staged_isend(impl_of(comm), data, request);
}

static loong_status_t staged_irecv(loong_comm_t *comm,
                                   loong_comm_request_t *request)
{
    return loongi_staged_irecv(impl_of(comm), request);
}

static loong_status_t staged_wait(loong_comm_t *comm,
                                  loong_comm_request_t *request)
{
    loong_comm_stats_t *host = &impl_of(comm)->host->stats;
    double counted = host->seconds;
    loong_status_t status = loongi_staged_wait(impl_of(comm), request);
    host->seconds = counted;
    return status;
}

static bool staged_cancel(loong_comm_t *comm, loong_comm_request_t *request)
{
    return loongi_staged_cancel(impl_of(comm), request);
}

static void staged_abort(loong_comm_t *comm, const char *text)
{
    staged_t *s = impl_of(comm);
    if (s->kin != NULL) {
        loong_comm_abort(s->kin, text);
    }
    loong_comm_abort(s->host, text);
}

/* While the host waits for its device elsewhere. */
static loong_status_t staged_watch(loong_comm_t *comm, bool waits)
{
    staged_t *s = impl_of(comm);
    return waits ? loongi_staged_check(
                       s, NULL, loongi_device_waited(s->root->device))
                 : LOONG_OK;
}

static bool staged_progress(loong_comm_t *comm)
{
    return loongi_comm_progress(impl_of(comm)->host);
}

/* ---- making and ending --------------------------------------------------- */

/* A call that was given up has left copies on its stream. */
static void free_place(staged_root_t *root, int i)
{
    loong_status_t ignored[2] = {
        loong_device_event_await(root->device, root->ring.out[i], "pieces"),
        loong_device_event_await(root->device, root->ring.in[i], "pieces")};
    (void)ignored;
    loong_device_host_free(root->device, root->ring.place[i]);
}

static void destroy_ring(staged_root_t *root)
{
    for (int i = 0; i < STAGED_PLACES; i++) {
        if (root->ring.place[i] != NULL && !loongi_staged_is_lost(root)) {
            free_place(root, i);
        }
        loong_device_event_destroy(root->device, root->ring.out[i]);
        loong_device_event_destroy(root->device, root->ring.in[i]);
    }
}

static void destroy_root(staged_root_t *root)
{
    destroy_ring(root);
    loongi_free(root->ctx, root->kinds);
    loongi_free(root->ctx, root);
}

static void free_staged(staged_t *s)
{
    loong_context_t *ctx = s->root->ctx;
    loongi_staged_release(s);
    for (int i = 0; i < STAGED_PARTS; i++) {
        loong_device_event_destroy(s->root->device, s->copied[i]);
    }
    loongi_free(ctx, s->counts);
    loong_comm_destroy(&s->kin);
    if (s->first) {
        loong_comm_destroy(&s->root->kin_host);
        destroy_root(s->root);
    } else {
        loong_comm_destroy(&s->host);
    }
    loongi_free(ctx, s);
}

/* What is under way on streams has the memory that is freed here. */
static void staged_destroy(loong_comm_t *comm, bool failed)
{
    staged_t *s = impl_of(comm);
    loong_status_t ignored =
        loongi_staged_is_lost(s->root)
            ? LOONG_OK
            : loong_device_synchronize(s->root->device,
                                       "the end of messages");
    (void)ignored;
    (void)failed; /* nobody is waited for */
    free_staged(s);
}

static loong_status_t staged_reserve(loong_comm_t *comm, int count,
                                     size_t bytes)
{
    return loongi_staged_reserve(impl_of(comm), count, bytes);
}

static loong_status_t staged_split(loong_comm_t *comm, int color, int key,
                                   const char *name, loong_comm_t **group_p);

static const loong_comm_ops_t staged_ops = {
    .name = "staged",
    .run = staged_run,
    .split = staged_split,
    .isend = staged_isend,
    .irecv = staged_irecv,
    .wait = staged_wait,
    .cancel = staged_cancel,
    .abort = staged_abort,
    .destroy = staged_destroy,
};

static loong_status_t fill(staged_t *s, loong_comm_t **comm_p)
{
    loong_comm_t *host = s->host;
    loong_comm_description_t description = {
        .name = host->name,
        .rank = host->rank,
        .size = host->size,
        .world_ranks = host->world_ranks,
        .timeout = host->timeout,
        .ops = &staged_ops,
        .impl = s,
    };
    LOONG_TRY(loongi_calloc(s->root->ctx, 2 * (size_t)host->size,
                            sizeof(*s->counts), "pieces of a collective",
                            &s->counts));
    for (int i = 0; i < STAGED_PARTS; i++) {
        LOONG_TRY(loong_device_event_create(s->root->device, &s->copied[i]));
    }
    LOONG_TRY(loong_comm_create(s->root->ctx, &description, comm_p));
    s->comm = *comm_p;
    s->comm->watch = staged_watch;
    s->comm->progress = staged_progress;
    s->comm->reserve = staged_reserve;
    s->comm->on_host = true;
    s->comm->lonely = host->lonely;
    return LOONG_OK;
}

static bool is_one_kind(const staged_root_t *root, const loong_comm_t *group)
{
    for (int r = 1; r < group->size; r++) {
        if (strcmp(root->kinds[group->world_ranks[r]],
                   root->kinds[group->world_ranks[0]]) != 0) {
            return false;
        }
    }
    return true;
}

/* The calls stand on the board as those of the host's communicator. host and
 * kin: owned on success. */
static loong_status_t wrap(staged_root_t *root, loong_comm_t *host,
                           loong_comm_t *kin, loong_comm_t **comm_p)
{
    staged_t *s = NULL;
    LOONG_TRY(loongi_alloc(root->ctx, sizeof(*s), "staged communicator", &s));
    s->root = root;
    s->host = host;
    loong_status_t status = fill(s, comm_p);
    if (status != LOONG_OK) {
        s->host = NULL;
        free_staged(s);
        return status;
    }
    s->kin = kin;
    s->comm->host = is_one_kind(root, host) ? host : NULL;
    return LOONG_OK;
}

/* ---- groups -------------------------------------------------------------- */

/* All ranks of the group choose the same. */
static loong_status_t choose(staged_root_t *root, loong_comm_t **host_p,
                             loong_comm_t **kin_p, loong_comm_t **group_p)
{
    bool staged = *kin_p == NULL || !is_one_kind(root, *host_p) ||
                  (root->always && (*host_p)->size > 1);
    if (staged) {
        LOONG_TRY(wrap(root, *host_p, *kin_p, group_p));
        *host_p = NULL;
    } else {
        *group_p = *kin_p;
    }
    *kin_p = NULL;
    return LOONG_OK;
}

static loong_status_t staged_split(loong_comm_t *comm, int color, int key,
                                   const char *name, loong_comm_t **group_p)
{
    staged_t *s = impl_of(comm);
    loong_comm_t *host = NULL;
    loong_comm_t *kin = NULL;
    LOONG_TRY(loong_comm_split(s->host, color, key, name, &host));
    loong_status_t status =
        s->kin != NULL ? loong_comm_split(s->kin, color, key, name, &kin)
                       : LOONG_OK;
    if (status == LOONG_OK && host != NULL) {
        status = choose(s->root, &host, &kin, group_p);
    } else if (status == LOONG_OK) {
        *group_p = NULL;
    }
    loong_comm_destroy(&kin);
    loong_comm_destroy(&host);
    return status;
}

/* ---- all ranks ----------------------------------------------------------- */

static loong_status_t create_ring(staged_root_t *root)
{
    for (int i = 0; i < STAGED_PLACES; i++) {
        void *memory = NULL;
        LOONG_TRY(loong_device_event_create(root->device, &root->ring.out[i]));
        LOONG_TRY(loong_device_event_create(root->device, &root->ring.in[i]));
        LOONG_TRY(loong_device_host_alloc(root->device, root->piece,
                                          "staged pieces", &memory));
        root->ring.place[i] = memory;
        root->held += loong_device_is_host(root->device) ? 0 : root->piece;
    }
    return LOONG_OK;
}

/* Which kind every rank has. */
static loong_status_t tell_kinds(staged_root_t *root, loong_comm_t *host)
{
    size_t size = (size_t)host->size;
    int64_t *counts = NULL;
    LOONG_TRY(loongi_calloc(root->ctx, size, sizeof(*root->kinds),
                            "kinds of devices", &root->kinds));
    LOONG_TRY(loongi_calloc(root->ctx, size, sizeof(*counts),
                            "kinds of devices", &counts));
    for (int r = 0; r < host->size; r++) {
        counts[r] = (int64_t)sizeof(*root->kinds);
    }
    snprintf(root->kinds[host->rank], sizeof(*root->kinds), "%s",
             loong_device_name(root->device));
    loong_status_t status = loong_comm_all_gather(
        host, root->kinds, counts, LOONG_U8, "kinds of devices");
    loongi_free(root->ctx, counts);
    return status;
}

/* What serves the ranks of this one's kind. */
static loong_status_t find_kin(staged_root_t *root, loong_comm_t *host,
                               loong_comm_t **kin_p)
{
    int first = 0;
    while (strcmp(root->kinds[first], root->kinds[host->rank]) != 0) {
        first++;
    }
    LOONG_TRY(loong_comm_split(host, first, host->rank,
                               root->kinds[host->rank], kin_p));
    if (loong_device_is_host(root->device)) {
        return LOONG_OK;
    }
    root->kin_host = *kin_p;
    *kin_p = NULL;
    return loong_device_communicator(root->device, root->kin_host, kin_p);
}

loong_status_t loongi_staged_create(loong_context_t *ctx,
                                    loong_device_t *device,
                                    loong_comm_t *host,
                                    const loong_staged_params_t *params,
                                    loong_comm_t **comm_p)
{
    staged_root_t *root = NULL;
    loong_comm_t *kin = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*root), "staged communicators", &root));
    root->ctx = ctx;
    root->device = device;
    root->always = params->always;
    root->piece = params->piece_bytes > 0 ? params->piece_bytes : PIECE_BYTES;
    loong_status_t status = tell_kinds(root, host);
    if (status == LOONG_OK) {
        status = loongi_staged_compare_clocks(root, host);
    }
    if (status == LOONG_OK) {
        status = create_ring(root);
    }
    if (status == LOONG_OK) {
        status = find_kin(root, host, &kin);
    }
    if (status == LOONG_OK) {
        status = wrap(root, host, kin, comm_p);
    }
    if (status != LOONG_OK) {
        loong_comm_destroy(&kin);
        loong_comm_destroy(&root->kin_host);
        destroy_root(root);
        return status;
    }
    ((staged_t *)(*comm_p)->impl)->first = true;
    return LOONG_OK;
}

static loong_status_t create(loong_context_t *ctx, loong_device_t *device,
                             loong_comm_t *host, bool always,
                             loong_comm_t **comm_p)
{
    const loong_staged_params_t params = {always, 0};
    return loongi_staged_create(ctx, device, host, &params, comm_p);
}

static size_t bytes_of_ring(void)
{
    return STAGED_PLACES * PIECE_BYTES;
}

const loong_stager_t loongi_staged_stager = {create, bytes_of_ring};

size_t loongi_staged_held(const loong_comm_t *comm)
{
    return impl_of(comm)->root->held;
}
