/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of edges that are under way on a rank. Each segment is a message
 * of its own, from rows of the sender's port to those of the receiver's; on one
 * rank it is a copy. It goes from device to device, or through host memory
 * (edge_links.c): a device's port is mirrored before rows of it are sent, and
 * what arrives does so in host memory, from which it is copied when a program
 * reads it (edge_windows.c). Called by model.c; created by edge_room.c. Read
 * edges.h before. */
#include <stdio.h>
#include <string.h>

#include "edges_impl.h"
#include "lane.h"

/* Beside those of pipelines, which have communicators of their own. */
enum { FIRST_TAG = 1 << 14 };

/* ---- ends ---------------------------------------------------------------- */

loong_status_t loongi_edges_port(const loong_edges_t *edges,
                                 const loong_entry_t *entry, bool send,
                                 const loong_port_t **port_p)
{
    const loong_edges_t *e = edges;
    const loong_message_t *m = loongi_edges_message(e, entry);
    const loong_model_chunk_t *c =
        e->model->chunks[e->variant][loongi_memory_plan_index(
            e->model->memory_plan, entry)];
    char name[256];
    int edge = loongi_cell_edge(e->cell, m->edge);
    snprintf(name, sizeof(name), "%s%s", e->model->edges[edge].name,
             m->backward ? ".grad" : "");
    *port_p = send ? loongi_model_chunk_output(c, name)
                   : loongi_model_chunk_input(c, name);
    LOONG_CHECK(e->ctx, *port_p != NULL, LOONG_ERR_INTERNAL,
                "%s has no port '%s'",
                loongi_model_component(e->model, entry)->params.name, name);
    return LOONG_OK;
}

static size_t row_bytes(const loong_port_t *port)
{
    return loongi_edges_port_bytes(port) / (size_t)port->shape.dim[0];
}

char *loongi_edges_data(const loong_edges_t *edges, const loong_entry_t *entry,
                        const loong_port_t *port)
{
    loong_binding_t run =
        loongi_model_bind(edges->model, edges->variant, entry);
    return run.base[port->operand.base] + port->operand.offset;
}

/* ---- beginning ----------------------------------------------------------- */

loong_status_t loongi_segment_add(loong_context_t *ctx,
                                  loong_segment_list_t *list,
                                  loong_segment_t segment)
{
    LOONG_CHECK(ctx, list->count < list->most, LOONG_ERR_INTERNAL,
                "a message of an edge has room for %lld segments",
                (long long)list->most);
    list->segments[list->count++] = segment;
    return LOONG_OK;
}

static loong_status_t list_segments(loong_edges_t *e, int32_t message,
                                    const loong_port_t *port, bool send)
{
    const loong_edge_rows_t *rows = e->model->rows;
    loong_message_t of = e->cell->params.messages[message];
    loong_edge_state_t *s = &e->states[message];
    of.edge = loongi_cell_edge(e->cell, of.edge);
    s->list.count = 0;
    LOONG_TRY(rows->list(rows->user, &of, &s->list));
    for (int64_t i = 0; i < s->list.count; i++) {
        const loong_segment_t *g = &s->list.segments[i];
        int64_t at = send ? g->from_row : g->to_row;
        LOONG_CHECK(
            e->ctx,
            at >= 0 && g->rows >= 0 && at + g->rows <= port->shape.dim[0],
            LOONG_ERR_INTERNAL, "rows %lld to %lld of '%s', which has %lld",
            (long long)at, (long long)(at + g->rows), port->name,
            (long long)port->shape.dim[0]);
    }
    return LOONG_OK;
}

/* What no message brings is zero. */
static loong_status_t clear(loong_edges_t *e, const loong_binding_t *run,
                            const loong_entry_t *entry, bool backward)
{
    int chunk = loongi_memory_plan_index(e->model->memory_plan, entry);
    bool *cleared = &e->cleared[(2 * chunk + backward) * e->micro_batches +
                                entry->micro_batch];
    loong_base_t base = backward ? LOONG_BASE_EDGE_GRAD : LOONG_BASE_EDGE;
    int64_t bytes = e->model->chunks[e->variant][chunk]->edge_bytes[backward];
    if (*cleared) {
        return LOONG_OK;
    }
    *cleared = true;
    return loong_device_fill(run->device, run->base[base], 0, (size_t)bytes);
}

/* Other messages of the port may be under way: its mirror is that of now. */
static bool is_mirrored(const loong_edges_t *e, const char *data)
{
    for (int64_t k = 0; k < e->num_own; k++) {
        int32_t i = e->own[k];
        if (e->states[i].sent > 0 && e->states[i].from == data &&
            loongi_edges_is_on_host(e, &e->cell->params.messages[i])) {
            return true;
        }
    }
    return false;
}

/* Where the communicator of a message reads a port. */
static loong_status_t find_source(const loong_edges_t *e,
                                  const loong_message_t *m,
                                  const loong_port_t *port, const char *data,
                                  const void **from_p)
{
    loong_device_t *device = e->model->run.device;
    *from_p = data;
    if (loong_device_is_host(device) || !loongi_edges_is_on_host(e, m)) {
        return LOONG_OK;
    }
    if (!is_mirrored(e, data)) {
        LOONG_TRY(loong_device_mirror(device, loong_device_stream(device), data,
                                      loongi_edges_port_bytes(port)));
    }
    return loong_device_mirrored(device, data, loongi_edges_port_bytes(port),
                                 port->name, from_p);
}

static loong_status_t begin_send(loong_edges_t *e, const loong_entry_t *entry,
                                 const loong_port_t *port)
{
    const loong_message_t *m = loongi_edges_message(e, entry);
    const char *data = loongi_edges_data(e, entry, port);
    loong_edge_state_t *s = &e->states[entry->message];
    const void *from = NULL;
    s->slot = entry->slot;
    s->from = data;
    if (m->from_rank == m->to_rank) {
        return LOONG_OK;
    }
    LOONG_TRY(list_segments(e, entry->message, port, true));
    if (s->list.count > 0) {
        LOONG_TRY(find_source(e, m, port, data, &from));
    }
    for (int64_t i = 0; i < s->list.count; i++) {
        const loong_segment_t *g = &s->list.segments[i];
        LOONG_TRY(loong_comm_isend(
            s->comm, (const char *)from + (size_t)g->from_row * row_bytes(port),
            (size_t)g->rows * row_bytes(port), s->to_rank,
            FIRST_TAG + 2 * m->edge + m->backward, &s->send[i]));
        s->sent++;
    }
    return LOONG_OK;
}

/* Where a message arrives, which may be what was read before: in host memory,
 * from which that has been copied then. */
static loong_status_t find_target(loong_edges_t *e,
                                  const loong_binding_t *run,
                                  const loong_entry_t *entry,
                                  const loong_port_t *port)
{
    const loong_message_t *m = loongi_edges_message(e, entry);
    const loong_model_t *model = e->model;
    loong_edge_state_t *s = &e->states[entry->message];
    if (!loongi_edges_waits(e, m)) {
        s->to = loongi_edges_data(e, entry, port);
        return clear(e, run, entry, m->backward);
    }
    s->to = model->areas[m->backward] + port->operand.offset +
            loongi_memory_plan_area(model->memory_plan,
                                    model->use[e->variant], entry,
                                    m->backward);
    return s->list.count > 0 && m->from_rank != m->to_rank
               ? loong_device_event_await(run->device, model->copies.done,
                                          port->name)
               : LOONG_OK;
}

/* Within this rank. */
static loong_status_t copy_segment(const loong_edges_t *e,
                                   const loong_message_t *m,
                                   loong_edge_state_t *s,
                                   const loong_segment_t *g)
{
    char *to = s->to + (size_t)g->to_row * s->row;
    const char *from = s->from + (size_t)g->from_row * s->row;
    size_t bytes = (size_t)g->rows * s->row;
    s->copied = loongi_edges_waits(e, m);
    return s->copied ? loongi_windows_save(e, to, from, bytes)
                     : loong_device_copy(e->model->run.device, to, from, bytes);
}

static loong_status_t begin_receive(loong_edges_t *e,
                                    const loong_binding_t *run,
                                    const loong_entry_t *entry,
                                    const loong_port_t *port)
{
    const loong_message_t *m = loongi_edges_message(e, entry);
    loong_edge_state_t *s = &e->states[entry->message];
    s->row = row_bytes(port);
    LOONG_TRY(list_segments(e, entry->message, port, false));
    LOONG_TRY(find_target(e, run, entry, port));
    for (int64_t i = 0; i < s->list.count; i++) {
        const loong_segment_t *g = &s->list.segments[i];
        if (m->from_rank == m->to_rank) {
            LOONG_TRY(copy_segment(e, m, s, g));
            continue;
        }
        LOONG_TRY(loong_comm_irecv(s->comm, s->to + (size_t)g->to_row * s->row,
                                   (size_t)g->rows * s->row, s->from_rank,
                                   FIRST_TAG + 2 * m->edge + m->backward,
                                   &s->receive[i]));
        s->received++;
    }
    return LOONG_OK;
}

bool loongi_edges_goes_on(const loong_edges_t *edges,
                          const loong_entry_t *entry)
{
    const loong_edges_t *e = edges;
    const loong_rank_schedule_t *list =
        loongi_model_entries(e->model, e->variant);
    const loong_entry_t *next = entry + 1;
    if (next == list->entries + list->num_entries || next->message < 0) {
        return false;
    }
    const loong_message_t *a = loongi_edges_message(e, entry);
    const loong_message_t *b = loongi_edges_message(e, next);
    return a->edge == b->edge && a->backward == b->backward &&
           a->from_micro_batch == b->from_micro_batch;
}

/* Messages of one maker begin together. */
loong_status_t loongi_edges_begin(loong_edges_t *edges,
                                  const loong_entry_t *entry)
{
    loong_edges_t *e = edges;
    bool send = loongi_entry_sends_edge(entry);
    loong_binding_t run = loongi_model_bind(e->model, e->variant, entry);
    loong_comm_t *comm = e->states[entry->message].comm;
    const loong_port_t *port = NULL;
    LOONG_TRY(loongi_edges_port(e, entry, send, &port));
    if (!e->grouping) {
        LOONG_TRY(loongi_comm_group_messages(comm, true));
        e->grouping = true;
    }
    LOONG_TRY(send ? begin_send(e, entry, port)
                   : begin_receive(e, &run, entry, port));
    if (!loongi_edges_goes_on(e, entry)) {
        e->grouping = false;
        LOONG_TRY(loongi_comm_group_messages(comm, false));
    }
    loongi_lane_wake(run.lane);
    return LOONG_OK;
}

/* ---- waiting ------------------------------------------------------------- */

static loong_status_t wait_for(const loong_edge_state_t *s,
                               loong_comm_request_t *requests, int64_t *count)
{
    for (int64_t i = 0; i < *count; i++) {
        LOONG_TRY(loong_comm_wait(s->comm, &requests[i]));
    }
    *count = 0;
    return LOONG_OK;
}

bool loongi_edges_is_end(const loong_edges_t *edges, const loong_entry_t *entry,
                         const loong_message_t *message, bool sender)
{
    const loong_message_t *m = message;
    const loong_cell_edge_t *edge = &edges->cell->params.edges[m->edge];
    int component = sender != m->backward ? edge->from : edge->to;
    return component == entry->component &&
           (sender ? m->from_rank : m->to_rank) ==
               edges->model->ranks.cell_rank;
}

/* What was sent from the slot of a forward has gone. */
static loong_status_t leave(loong_edges_t *e, loong_edge_state_t *s)
{
    if (s->copied) {
        s->copied = false;
        return loongi_windows_saved(e);
    }
    return wait_for(s, s->send, &s->sent);
}

loong_status_t loongi_edges_need(loong_edges_t *edges,
                                 const loong_entry_t *entry)
{
    loong_edges_t *e = edges;
    for (int64_t k = 0; e != NULL && k < e->num_own; k++) {
        int32_t i = e->own[k];
        const loong_message_t *m = &e->cell->params.messages[i];
        loong_edge_state_t *s = &e->states[i];
        bool forward =
            entry->kind == LOONG_ENTRY_F || entry->kind == LOONG_ENTRY_E;
        if (s->received > 0 && loongi_edges_is_end(e, entry, m, false) &&
            m->to_micro_batch == entry->micro_batch &&
            m->backward == !forward) {
            LOONG_TRY(wait_for(s, s->receive, &s->received));
        }
        if ((s->sent > 0 || s->copied) && forward &&
            loongi_edges_is_end(e, entry, m, true) && s->slot == entry->slot &&
            m->from_micro_batch != entry->micro_batch) {
            LOONG_TRY(leave(e, s));
        }
    }
    return e != NULL && e->made != NULL ? loongi_windows_fill(e, entry)
                                        : LOONG_OK;
}

loong_status_t loongi_edges_finish(loong_edges_t *edges)
{
    loong_edges_t *e = edges;
    for (int64_t k = 0; e != NULL && k < e->num_own; k++) {
        LOONG_TRY(leave(e, &e->states[e->own[k]]));
    }
    if (e != NULL) {
        loongi_windows_forget(e);
        memset(e->cleared, 0,
               (size_t)(2 * e->model->num_chunks * e->micro_batches));
    }
    return LOONG_OK;
}

static bool cancel(const loong_edge_state_t *s, loong_comm_request_t *requests,
                   int64_t *count)
{
    bool done = true;
    for (int64_t i = 0; i < *count; i++) {
        done = loong_comm_cancel(s->comm, &requests[i]) && done;
    }
    *count = done ? 0 : *count;
    return done;
}

bool loongi_edges_cancel(loong_edges_t *edges)
{
    loong_edges_t *e = edges;
    bool done = true;
    for (int64_t k = 0; e != NULL && k < e->num_own; k++) {
        loong_edge_state_t *s = &e->states[e->own[k]];
        done = cancel(s, s->send, &s->sent) && done;
        done = cancel(s, s->receive, &s->received) && done;
    }
    if (!done) {
        e->requests = NULL; /* they stay: they are under way */
    }
    return done;
}
