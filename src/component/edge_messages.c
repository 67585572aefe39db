/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of edges that are under way on a rank. Each segment is a message
 * of its own, from rows of the sender's port to those of the receiver's; on one
 * rank it is a copy. Between ranks it goes through host memory: a device's port
 * is mirrored before rows of it are sent, and what arrives does so in an image
 * of the edges' memory (model_memory.c), from which it is copied when a program
 * reads it. Called by model.c. Read edges.h before. */
#include <stdio.h>
#include <string.h>

#include "comm_run.h"
#include "edges.h"
#include "lane.h"
#include "model_memory.h"

/* Beside those of pipelines, which have communicators of their own. */
enum { FIRST_TAG = 1 << 14 };

/* One of the cell's messages, at the ends that this rank has. */
typedef struct state {
    int32_t slot;           /* of the sender; -1: nothing is sent */
    const char *from;       /* the sender's port, where it is on this rank */
    char *to;               /* the receiver's, likewise */
    int64_t sent, received; /* segments under way */
    loong_segment_list_t list;
    loong_comm_request_t *send, *receive; /* of each segment */
} state_t;

struct loong_edges {
    loong_context_t *ctx;
    const loong_model_t *model;
    loong_variant_t variant;
    const loong_cell_t *cell;
    loong_comm_t *comm; /* of the job */
    state_t *states;    /* of the messages */
    loong_segment_t *segments;
    loong_comm_request_t *requests;
    /* Of this rank's chunks, two directions and micro-batches, as many as any
     * component has: the area has been cleared. */
    bool *cleared;
    int micro_batches;
    void *landed; /* event: images have been copied; NULL: a processor */
};

/* ---- ends ---------------------------------------------------------------- */

static loong_status_t find_port(const loong_edges_t *e,
                                const loong_entry_t *entry, bool send,
                                const loong_port_t **port_p)
{
    const loong_message_t *m = &e->cell->params.messages[entry->message];
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

static size_t port_bytes(const loong_port_t *port)
{
    return (size_t)loongi_shape_elements(&port->shape) *
           loong_dtype_size(port->dtype);
}

static size_t row_bytes(const loong_port_t *port)
{
    return port_bytes(port) / (size_t)port->shape.dim[0];
}

static bool is_local(const loong_edges_t *e, const loong_entry_t *entry)
{
    const loong_message_t *m = &e->cell->params.messages[entry->message];
    return m->from_rank == m->to_rank;
}

static char *data_of(const loong_edges_t *e, const loong_entry_t *entry,
                     const loong_port_t *port)
{
    loong_binding_t run = loongi_model_bind(e->model, e->variant, entry);
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
    state_t *s = &e->states[message];
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

/* Of what lies in the edges' memory of a device. */
static char *image_of(const loong_edges_t *e, const loong_message_t *m,
                      const char *data)
{
    return e->model->images[m->backward] +
           (data - e->model->run.base[LOONG_BASE_EDGE + m->backward]);
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
    for (int64_t i = 0; i < e->cell->params.num_messages; i++) {
        if (e->states[i].sent > 0 && e->states[i].from == data) {
            return true;
        }
    }
    return false;
}

/* Where the host reads a port. */
static loong_status_t find_source(const loong_edges_t *e,
                                  const loong_port_t *port, const char *data,
                                  const void **host_p)
{
    loong_device_t *device = e->model->run.device;
    *host_p = data;
    if (loong_device_is_host(device)) {
        return LOONG_OK;
    }
    if (!is_mirrored(e, data)) {
        LOONG_TRY(loong_device_mirror(device, loong_device_stream(device), data,
                                      port_bytes(port)));
    }
    return loong_device_mirrored(device, data, port_bytes(port), port->name,
                                 host_p);
}

static loong_status_t begin_send(loong_edges_t *e, const loong_entry_t *entry,
                                 const loong_port_t *port, const char *data)
{
    const loong_message_t *m = &e->cell->params.messages[entry->message];
    state_t *s = &e->states[entry->message];
    const void *host = NULL;
    s->slot = entry->slot;
    s->from = data;
    if (is_local(e, entry)) {
        return LOONG_OK;
    }
    LOONG_TRY(list_segments(e, entry->message, port, true));
    if (s->list.count > 0) {
        LOONG_TRY(find_source(e, port, data, &host));
    }
    for (int64_t i = 0; i < s->list.count; i++) {
        const loong_segment_t *g = &s->list.segments[i];
        LOONG_TRY(loong_comm_isend(
            e->comm, (const char *)host + (size_t)g->from_row * row_bytes(port),
            (size_t)g->rows * row_bytes(port),
            loongi_model_job_rank(e->model, m->to_rank),
            FIRST_TAG + 2 * m->edge + m->backward, &s->send[i]));
        s->sent++;
    }
    return LOONG_OK;
}

static loong_status_t begin_receive(loong_edges_t *e,
                                    const loong_binding_t *run,
                                    const loong_entry_t *entry,
                                    const loong_port_t *port, char *data)
{
    const loong_message_t *m = &e->cell->params.messages[entry->message];
    state_t *s = &e->states[entry->message];
    bool here = is_local(e, entry);
    char *image = data;
    LOONG_TRY(clear(e, run, entry, m->backward));
    LOONG_TRY(list_segments(e, entry->message, port, false));
    s->to = data;
    if (s->list.count > 0 && !here && e->landed != NULL) {
        LOONG_TRY(loong_device_event_await(run->device, e->landed, port->name));
        image = image_of(e, m, data);
    }
    for (int64_t i = 0; i < s->list.count; i++) {
        const loong_segment_t *g = &s->list.segments[i];
        size_t at = (size_t)g->to_row * row_bytes(port);
        size_t bytes = (size_t)g->rows * row_bytes(port);
        if (here) {
            LOONG_TRY(loong_device_copy(
                run->device, data + at,
                s->from + (size_t)g->from_row * row_bytes(port), bytes));
            continue;
        }
        LOONG_TRY(loong_comm_irecv(
            e->comm, image + at, bytes,
            loongi_model_job_rank(e->model, m->from_rank),
            FIRST_TAG + 2 * m->edge + m->backward, &s->receive[i]));
        s->received++;
    }
    return LOONG_OK;
}

loong_status_t loongi_edges_begin(loong_edges_t *edges,
                                  const loong_entry_t *entry)
{
    loong_edges_t *e = edges;
    bool send = loongi_entry_sends_edge(entry);
    loong_binding_t run = loongi_model_bind(e->model, e->variant, entry);
    const loong_port_t *port = NULL;
    LOONG_TRY(find_port(e, entry, send, &port));
    char *data = data_of(e, entry, port);
    LOONG_TRY(send ? begin_send(e, entry, port, data)
                   : begin_receive(e, &run, entry, port, data));
    loongi_lane_wake(run.lane);
    return LOONG_OK;
}

/* ---- waiting ------------------------------------------------------------- */

static loong_status_t wait_for(loong_edges_t *e, loong_comm_request_t *requests,
                               int64_t *count)
{
    for (int64_t i = 0; i < *count; i++) {
        LOONG_TRY(loong_comm_wait(e->comm, &requests[i]));
    }
    *count = 0;
    return LOONG_OK;
}

/* What has arrived in an image goes to the device, in the order of what it
 * computes. */
static loong_status_t receive(loong_edges_t *e, const loong_message_t *m,
                              state_t *s)
{
    loong_device_t *device = e->model->run.device;
    int64_t count = s->received;
    LOONG_TRY(wait_for(e, s->receive, &s->received));
    for (int64_t i = 0; e->landed != NULL && i < count; i++) {
        char *image = s->receive[i].data;
        char *to = s->to + (image - image_of(e, m, s->to));
        LOONG_TRY(
            loong_device_copy(device, to, image, s->receive[i].bytes));
    }
    return e->landed != NULL
               ? loong_device_event_record(device, e->landed,
                                           loong_device_stream(device))
               : LOONG_OK;
}

/* Is one end of a message a chunk's entry? */
static bool is_end(const loong_edges_t *e, const loong_entry_t *entry,
                   const loong_message_t *m, bool sender)
{
    const loong_cell_edge_t *edge = &e->cell->params.edges[m->edge];
    int component = sender != m->backward ? edge->from : edge->to;
    return component == entry->component &&
           (sender ? m->from_rank : m->to_rank) == e->model->ranks.cell_rank;
}

loong_status_t loongi_edges_need(loong_edges_t *edges,
                                 const loong_entry_t *entry)
{
    loong_edges_t *e = edges;
    for (int64_t i = 0; e != NULL && i < e->cell->params.num_messages; i++) {
        const loong_message_t *m = &e->cell->params.messages[i];
        state_t *s = &e->states[i];
        bool forward =
            entry->kind == LOONG_ENTRY_F || entry->kind == LOONG_ENTRY_E;
        if (s->received > 0 && is_end(e, entry, m, false) &&
            m->to_micro_batch == entry->micro_batch &&
            m->backward == !forward) {
            LOONG_TRY(receive(e, m, s));
        }
        if (s->sent > 0 && forward && is_end(e, entry, m, true) &&
            s->slot == entry->slot &&
            m->from_micro_batch != entry->micro_batch) {
            LOONG_TRY(wait_for(e, s->send, &s->sent));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_edges_finish(loong_edges_t *edges)
{
    loong_edges_t *e = edges;
    for (int64_t i = 0; e != NULL && i < e->cell->params.num_messages; i++) {
        LOONG_TRY(wait_for(e, e->states[i].send, &e->states[i].sent));
    }
    if (e != NULL) {
        memset(e->cleared, 0,
               (size_t)(2 * e->model->num_chunks * e->micro_batches));
    }
    return LOONG_OK;
}

static bool cancel(loong_edges_t *e, loong_comm_request_t *requests,
                   int64_t *count)
{
    bool done = true;
    for (int64_t i = 0; i < *count; i++) {
        done = loong_comm_cancel(e->comm, &requests[i]) && done;
    }
    *count = done ? 0 : *count;
    return done;
}

bool loongi_edges_cancel(loong_edges_t *edges)
{
    loong_edges_t *e = edges;
    bool done = true;
    for (int64_t i = 0; e != NULL && i < e->cell->params.num_messages; i++) {
        state_t *s = &e->states[i];
        done = cancel(e, s->send, &s->sent) && done;
        done = cancel(e, s->receive, &s->received) && done;
    }
    if (!done) {
        e->requests = NULL; /* they stay: they are under way */
    }
    return done;
}

/* ---- the whole ----------------------------------------------------------- */

/* Mirrors of all ports that are sent, as no step allocates. */
static loong_status_t make_mirrors(const loong_edges_t *e)
{
    loong_device_t *device = e->model->run.device;
    const loong_rank_schedule_t *list =
        loongi_model_entries(e->model, e->variant);
    for (int64_t i = 0; i < list->num_entries; i++) {
        const loong_entry_t *entry = &list->entries[i];
        const loong_port_t *port = NULL;
        if (!loongi_entry_sends_edge(entry) || is_local(e, entry)) {
            continue;
        }
        LOONG_TRY(find_port(e, entry, true, &port));
        LOONG_TRY(loong_device_mirror(device, loong_device_stream(device),
                                      data_of(e, entry, port),
                                      port_bytes(port)));
    }
    return LOONG_OK;
}

/* The first entry of a list that sends this port from this slot. */
static bool is_first(const loong_rank_schedule_t *list, int64_t index)
{
    const loong_entry_t *e = &list->entries[index];
    int64_t i = 0;
    while (i < index && (list->entries[i].kind != e->kind ||
                         list->entries[i].component != e->component ||
                         list->entries[i].chunk != e->chunk ||
                         list->entries[i].slot != e->slot)) {
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
        if (loongi_entry_sends_edge(entry) && !is_local(e, entry) &&
            is_first(list, i)) {
            LOONG_TRY(find_port(e, entry, true, &port));
            *bytes += (int64_t)port_bytes(port);
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_edges_pinned(const loong_model_t *model,
                                   int64_t *bytes_p)
{
    int64_t most = 0;
    for (int k = 0; k < LOONG_VARIANT_COUNT && model->num_edges > 0; k++) {
        const loong_edges_t e = {
            .ctx = model->ctx,
            .model = model,
            .variant = (loong_variant_t)k,
            .cell = k == LOONG_VARIANT_TRAIN ? model->training
                                             : model->evaluation};
        int64_t bytes = 0;
        if (e.cell != NULL && model->use[k] >= 0) {
            LOONG_TRY(add_mirrors(&e, &bytes));
        }
        most = LOONG_MAX(most, bytes);
    }
    *bytes_p = most + loongi_model_image_bytes(model, false) +
               loongi_model_image_bytes(model, true);
    return LOONG_OK;
}

/* Segments of a message of which this rank has an end. */
static int64_t room_of(const loong_edges_t *e, const loong_message_t *m)
{
    const loong_edge_rows_t *rows = e->model->rows;
    int rank = e->model->ranks.cell_rank;
    return m->from_rank == rank || m->to_rank == rank
               ? rows->most(rows->user, loongi_cell_edge(e->cell, m->edge))
               : 0;
}

static loong_status_t take_room(loong_edges_t *e)
{
    int64_t messages = e->cell->params.num_messages;
    int64_t all = 0;
    LOONG_TRY(loongi_calloc(e->ctx, (size_t)messages, sizeof(*e->states),
                            "messages of edges", &e->states));
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
        state_t *s = &e->states[i];
        all -= s->list.most;
        s->list.segments = &e->segments[all];
        s->send = &e->requests[2 * all];
        s->receive = s->send + s->list.most;
    }
    if (loong_device_is_host(e->model->run.device)) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_event_create(e->model->run.device, &e->landed));
    return make_mirrors(e);
}

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
    e->comm = model->resources->world;
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
    if (e->landed != NULL) {
        loong_device_event_destroy(e->model->run.device, e->landed);
    }
    loongi_free(e->ctx, e->requests);
    loongi_free(e->ctx, e->cleared);
    loongi_free(e->ctx, e->segments);
    loongi_free(e->ctx, e->states);
    loongi_free(e->ctx, e);
    *edges_p = NULL;
}
