/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the edges of one of a model's lists: the communicator of each message
 * and the room for what will be under way. Called by model.c and the planner.
 * Read edges.h before. */
#include "edges_impl.h"

/* ---- mirrors ------------------------------------------------------------- */

static bool is_local(const loong_edges_t *e, const loong_entry_t *entry)
{
    const loong_message_t *m = loongi_edges_message(e, entry);
    return m->from_rank == m->to_rank;
}

static bool goes_through_mirror(const loong_edges_t *e,
                                const loong_entry_t *entry)
{
    return loongi_entry_sends_edge(entry) && !is_local(e, entry) &&
           loongi_edges_is_on_host(e, loongi_edges_message(e, entry));
}

/* Mirrors of all ports that are sent so, as no step allocates. */
static loong_status_t make_mirrors(const loong_edges_t *e)
{
    loong_device_t *device = e->model->run.device;
    const loong_rank_schedule_t *list =
        loongi_model_entries(e->model, e->variant);
    for (int64_t i = 0; i < list->num_entries; i++) {
        const loong_entry_t *entry = &list->entries[i];
        const loong_port_t *port = NULL;
        if (!goes_through_mirror(e, entry)) {
            continue;
        }
        LOONG_TRY(loongi_edges_port(e, entry, true, &port));
        LOONG_TRY(loong_device_mirror(device, loong_device_stream(device),
                                      loongi_edges_data(e, entry, port),
                                      loongi_edges_port_bytes(port)));
    }
    return LOONG_OK;
}

/* The first entry of a list that sends this port from this slot. */
static bool is_first(const loong_edges_t *edges,
                     const loong_rank_schedule_t *list, int64_t index)
{
    const loong_entry_t *e = &list->entries[index];
    int edge = loongi_edges_message(edges, e)->edge;
    int64_t i = 0;
    while (i < index &&
           (list->entries[i].kind != e->kind ||
            list->entries[i].component != e->component ||
            list->entries[i].chunk != e->chunk ||
            list->entries[i].slot != e->slot ||
            loongi_edges_message(edges, &list->entries[i])->edge != edge)) {
        i++;
    }
    return i == index;
}

static loong_status_t add_mirrors(const loong_edges_t *e, int64_t *bytes)
{
    const loong_rank_schedule_t *list =
        loongi_model_entries(e->model, e->variant);
    for (int64_t i = 0; i < list->num_entries; i++) {
        const loong_entry_t *entry = &list->entries[i];
        const loong_port_t *port = NULL;
        if (goes_through_mirror(e, entry) && is_first(e, list, i)) {
            LOONG_TRY(loongi_edges_port(e, entry, true, &port));
            *bytes += (int64_t)loongi_edges_port_bytes(port);
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_edges_pinned(const loong_model_t *model, int64_t *bytes_p)
{
    int64_t most = 0;
    for (int k = 0; k < LOONG_VARIANT_COUNT && model->num_edges > 0; k++) {
        const loong_edges_t e = {.ctx = model->ctx,
                                 .model = model,
                                 .variant = (loong_variant_t)k,
                                 .cell = k == LOONG_VARIANT_TRAIN
                                             ? model->training
                                             : model->evaluation};
        int64_t bytes = 0;
        if (e.cell != NULL && model->use[k] >= 0) {
            LOONG_TRY(add_mirrors(&e, &bytes));
        }
        most = LOONG_MAX(most, bytes);
    }
    *bytes_p = most + model->area_bytes[0] + model->area_bytes[1];
    return LOONG_OK;
}

/* ---- room ---------------------------------------------------------------- */

/* Segments of a message of which this rank has an end. */
static int64_t room_of(const loong_edges_t *e, const loong_message_t *m)
{
    const loong_edge_rows_t *rows = e->model->rows;
    int rank = e->model->ranks.cell_rank;
    return m->from_rank == rank || m->to_rank == rank
               ? rows->most(rows->user, loongi_cell_edge(e->cell, m->edge))
               : 0;
}

static int rank_in(const loong_edges_t *e, const loong_comm_t *comm,
                   int cell_rank)
{
    int rank = 0;
    while (loong_comm_world_rank(comm, rank) !=
           loongi_model_job_rank(e->model, cell_rank)) {
        rank++;
    }
    return rank;
}

/* The messages that this rank has ends of, and their communicators. */
static void find_ways(loong_edges_t *e)
{
    const loong_resources_t *r = e->model->resources;
    int rank = e->model->ranks.cell_rank;
    for (int64_t i = 0; i < e->cell->params.num_messages; i++) {
        const loong_message_t *m = &e->cell->params.messages[i];
        loong_edge_state_t *s = &e->states[i];
        if (m->from_rank != rank && m->to_rank != rank) {
            continue;
        }
        e->own[e->num_own++] = (int32_t)i;
        s->comm = loongi_links_get(r->edges, loongi_cell_edge(e->cell, m->edge),
                                   m->backward);
        s->comm = s->comm != NULL ? s->comm : r->world;
        s->from_rank = rank_in(e, s->comm, m->from_rank);
        s->to_rank = rank_in(e, s->comm, m->to_rank);
    }
}

/* Each communicator for the segments of its largest group, and once more. */
static loong_status_t reserve(loong_edges_t *e)
{
    const loong_rank_schedule_t *list =
        loongi_model_entries(e->model, e->variant);
    int64_t count = 0;
    for (int64_t i = 0; i < list->num_entries; i++) {
        const loong_entry_t *entry = &list->entries[i];
        if (entry->message < 0) {
            continue;
        }
        const loong_edge_state_t *s = &e->states[entry->message];
        int most = 0;
        count += is_local(e, entry) ? 0 : s->list.most;
        if (!loongi_edges_goes_on(e, entry)) {
            LOONG_TRY(
                loongi_to_int(e->ctx, 2 * count, "messages of a group", &most));
            LOONG_TRY(loongi_comm_reserve(s->comm, most, 0));
            count = 0;
        }
    }
    return LOONG_OK;
}

static loong_status_t take_room(loong_edges_t *e)
{
    int64_t messages = e->cell->params.num_messages;
    int64_t all = 0;
    LOONG_TRY(loongi_calloc(e->ctx, (size_t)messages, sizeof(*e->states),
                            "messages of edges", &e->states));
    LOONG_TRY(loongi_calloc(e->ctx, (size_t)messages, sizeof(*e->own),
                            "messages of this rank", &e->own));
    for (int64_t i = 0; i < messages; i++) {
        e->states[i].slot = -1;
        e->states[i].list.most = room_of(e, &e->cell->params.messages[i]);
        all += e->states[i].list.most;
    }
    LOONG_TRY(loongi_calloc(e->ctx, (size_t)all, sizeof(*e->segments),
                            "segments of edges", &e->segments));
    LOONG_TRY(loongi_calloc(e->ctx, 2 * (size_t)all, sizeof(*e->requests),
                            "requests of edges", &e->requests));
    LOONG_TRY(loongi_calloc(
        e->ctx, (size_t)(2 * e->model->num_chunks * e->micro_batches),
        sizeof(*e->cleared), "areas of edges", &e->cleared));
    for (int64_t i = messages - 1; i >= 0; i--) {
        loong_edge_state_t *s = &e->states[i];
        all -= s->list.most;
        s->list.segments = &e->segments[all];
        s->send = &e->requests[2 * all];
        s->receive = s->send + s->list.most;
    }
    find_ways(e);
    if (loong_device_is_host(e->model->run.device)) {
        return LOONG_OK;
    }
    LOONG_TRY(reserve(e));
    LOONG_TRY(loongi_windows_create(e));
    return make_mirrors(e);
}

/* ---- the whole ----------------------------------------------------------- */

loong_status_t loongi_edges_create(const loong_model_t *model,
                                   loong_variant_t variant,
                                   loong_edges_t **edges_p)
{
    loong_edges_t *e = NULL;
    if (model->num_edges == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(model->ctx, 1, sizeof(*e), "edges", &e));
    e->ctx = model->ctx;
    e->model = model;
    e->variant = variant;
    e->cell =
        variant == LOONG_VARIANT_TRAIN ? model->training : model->evaluation;
    for (int i = 0; i < e->cell->params.num_components; i++) {
        int own = e->cell->params.components[i].params.micro_batches;
        e->micro_batches = LOONG_MAX(e->micro_batches, own);
    }
    loong_status_t status = take_room(e);
    if (status != LOONG_OK) {
        loongi_edges_destroy(&e);
        return status;
    }
    *edges_p = e;
    return LOONG_OK;
}

void loongi_edges_destroy(loong_edges_t **edges_p)
{
    loong_edges_t *e = *edges_p;
    if (e == NULL) {
        return;
    }
    loongi_windows_destroy(e);
    loongi_free(e->ctx, e->requests);
    loongi_free(e->ctx, e->cleared);
    loongi_free(e->ctx, e->segments);
    loongi_free(e->ctx, e->states);
    loongi_free(e->ctx, e->own);
    loongi_free(e->ctx, e);
    *edges_p = NULL;
}
