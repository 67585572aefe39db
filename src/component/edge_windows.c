/* SPDX-License-Identifier: Apache-2.0
 *
 * What waits in host memory for a device to compute with it. Rows arrive there
 * in an area for each micro-batch; a program reads them in one of two windows
 * of the device's memory, that schedule_slots.c chose, while the host has the
 * next program's filled: on a stream of their own, as soon as no program reads
 * the window any more. Called by edge_messages.c and edge_room.c. Read edges.h
 * before. */
#include "edges_impl.h"

enum { DIRECTIONS = 2 };

/* ---- windows ------------------------------------------------------------- */

loong_status_t loongi_windows_create(loong_edges_t *edges)
{
    loong_edges_t *e = edges;
    loong_device_t *device = e->model->run.device;
    int64_t count = e->model->num_chunks * DIRECTIONS * LOONG_EDGE_WINDOWS;
    if (e->model->copies.stream == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(e->ctx, (size_t)count, sizeof(*e->windows),
                            "windows of edges", &e->windows));
    for (; e->num_windows < count; e->num_windows++) {
        loong_edge_window_t *w = &e->windows[e->num_windows];
        w->micro_batch = -1;
        LOONG_TRY(loong_device_event_create(device, &w->free));
    }
    return loong_device_event_create(device, &e->made);
}

void loongi_windows_destroy(loong_edges_t *edges)
{
    loong_edges_t *e = edges;
    loong_device_t *device = e->model->run.device;
    for (int64_t i = 0; i < e->num_windows; i++) {
        loong_device_event_destroy(device, e->windows[i].free);
    }
    if (e->made != NULL) {
        loong_device_event_destroy(device, e->made);
    }
    loongi_free(e->ctx, e->windows);
}

void loongi_windows_forget(const loong_edges_t *edges)
{
    for (int64_t i = 0; i < edges->num_windows; i++) {
        edges->windows[i].micro_batch = -1;
        edges->windows[i].read = false;
    }
}

/* Whatever comes next may be filled into what programs have read so far. */
static loong_status_t release(const loong_edges_t *e)
{
    loong_device_t *device = e->model->run.device;
    for (int64_t i = 0; i < e->num_windows; i++) {
        if (e->windows[i].read) {
            e->windows[i].read = false;
            LOONG_TRY(loong_device_event_record(device, e->windows[i].free,
                                                loong_device_stream(device)));
        }
    }
    return LOONG_OK;
}

/* ---- copies -------------------------------------------------------------- */

/* All that is on their stream. */
static loong_status_t mark_copies(const loong_edges_t *e)
{
    const loong_edge_copies_t *c = &e->model->copies;
    return loong_device_event_record(e->model->run.device, c->done, c->stream);
}

loong_status_t loongi_windows_save(const loong_edges_t *edges, char *to,
                                   const char *from, size_t bytes)
{
    loong_device_t *device = edges->model->run.device;
    void *stream = edges->model->copies.stream;
    LOONG_TRY(loong_device_event_record(device, edges->made,
                                        loong_device_stream(device)));
    LOONG_TRY(loong_device_event_wait(device, edges->made, stream));
    LOONG_TRY(loong_device_stream_copy(device, stream, to, from, bytes));
    return mark_copies(edges);
}

loong_status_t loongi_windows_saved(const loong_edges_t *edges)
{
    loong_device_t *device = edges->model->run.device;
    return loong_device_event_wait(device, edges->model->copies.done,
                                   loong_device_stream(device));
}

/* Does a program of the entry read what arrives there? */
static bool reads(const loong_edges_t *e, const loong_entry_t *entry,
                  loong_base_t base)
{
    const loong_model_t *m = e->model;
    const loong_program_t *p = loongi_memory_plan_program(
        m->memory_plan, m->use[e->variant], entry);
    return (p->bases >> base & 1) != 0;
}

static loong_status_t fill(const loong_edges_t *e, const loong_entry_t *entry,
                           int back, char *window)
{
    const loong_model_t *model = e->model;
    loong_device_t *device = model->run.device;
    void *stream = model->copies.stream;
    int chunk = loongi_memory_plan_index(model->memory_plan, entry);
    const char *area =
        model->areas[back] +
        loongi_memory_plan_area(model->memory_plan, model->use[e->variant],
                                entry, back);
    /* What no message brings is zero. */
    LOONG_TRY(loong_device_stream_fill(
        device, stream, window, 0,
        (size_t)model->chunks[e->variant][chunk]->edge_bytes[back]));
    for (int64_t k = 0; k < e->num_own; k++) {
        const loong_message_t *m = &e->cell->params.messages[e->own[k]];
        const loong_edge_state_t *s = &e->states[e->own[k]];
        if (m->backward != back || m->to_micro_batch != entry->micro_batch ||
            !loongi_edges_is_end(e, entry, m, false)) {
            continue;
        }
        for (int64_t i = 0; i < s->list.count; i++) {
            const loong_segment_t *g = &s->list.segments[i];
            const char *from = s->to + (size_t)g->to_row * s->row;
            LOONG_TRY(loong_device_stream_copy(device, stream,
                                               window + (from - area), from,
                                               (size_t)g->rows * s->row));
        }
    }
    return mark_copies(e);
}

loong_status_t loongi_windows_fill(const loong_edges_t *edges,
                                   const loong_entry_t *entry)
{
    const loong_edges_t *e = edges;
    const loong_model_t *m = e->model;
    loong_device_t *device = m->run.device;
    int chunk = loongi_memory_plan_index(m->memory_plan, entry);
    LOONG_TRY(release(e));
    for (int back = 0; back < DIRECTIONS; back++) {
        if (!m->memory_plan->places[chunk].on_host[back] ||
            entry->area[back] < 0 || !reads(e, entry, LOONG_BASE_EDGE + back)) {
            continue;
        }
        loong_edge_window_t *w =
            &e->windows[(chunk * DIRECTIONS + back) * LOONG_EDGE_WINDOWS +
                        entry->window[back]];
        w->read = true;
        if (w->micro_batch == entry->micro_batch) {
            continue;
        }
        if (w->micro_batch < 0) { /* what is there is not of this list */
            LOONG_TRY(loong_device_event_record(device, w->free,
                                                loong_device_stream(device)));
        }
        w->micro_batch = entry->micro_batch;
        loong_binding_t run = loongi_model_bind(m, e->variant, entry);
        LOONG_TRY(loong_device_event_wait(device, w->free, m->copies.stream));
        LOONG_TRY(fill(e, entry, back, run.base[LOONG_BASE_EDGE + back]));
        LOONG_TRY(loong_device_event_wait(device, m->copies.done,
                                          loong_device_stream(device)));
    }
    return LOONG_OK;
}
