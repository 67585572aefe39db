/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots: which micro-batches of a chunk may use the same memory, one after the
 * other. A micro-batch holds its slot from its first entry to its last; given
 * out in the order of the list, lowest first, the slots of a chunk are exactly
 * as many as micro-batches live at one time. The area where edges arrive for a
 * micro-batch is held from the first receive to the last computation that may
 * read it. Where areas are in host memory a computation reads its own in a
 * window. Called by schedule.c and cell_lists.c. Read schedule_impl.h
 * before. */
#include "schedule_impl.h"

typedef enum colour_class {
    CLASS_SLOT,
    CLASS_FORWARD, /* areas of edges */
    CLASS_BACKWARD
} colour_class_t;

/* Intervals are numbered by micro-batch. */
typedef struct colouring {
    colour_class_t class;
    int component;
    int chunk;
    const bool *hollow; /* per micro-batch, without a slot; NULL: none */
    int64_t num_ids;
    int64_t *last;      /* per interval: position of its last entry */
    int32_t *index;     /* per interval: what it was given, or -1 */
    bool *marked;       /* per micro-batch: has an area */
    bool *busy;         /* per index */
    int32_t used;       /* indices given out at most */
} colouring_t;

/* Does the entry mark its micro-batch? */
static bool marks(const colouring_t *c, const loong_entry_t *e)
{
    return c->class != CLASS_SLOT && e->component == c->component &&
           e->chunk == c->chunk &&
           e->kind == (c->class == CLASS_FORWARD
                           ? LOONG_ENTRY_RECV_EDGE_FORWARD
                           : LOONG_ENTRY_RECV_EDGE_BACKWARD);
}

/* The interval that an entry belongs to, or -1. */
static int64_t interval_of(const colouring_t *c, const loong_entry_t *e)
{
    if (e->component != c->component || e->chunk != c->chunk ||
        e->micro_batch < 0) {
        return -1;
    }
    if (c->class == CLASS_SLOT) {
        bool none = loongi_entry_receives_edge(e) ||
                    (c->hollow != NULL && c->hollow[e->micro_batch]);
        return none ? -1 : e->micro_batch;
    }
    bool reads = loongi_entry_computes(e) &&
                 (c->class == CLASS_FORWARD ||
                  (e->kind != LOONG_ENTRY_F && e->kind != LOONG_ENTRY_E));
    return (reads && c->marked[e->micro_batch]) || marks(c, e) ? e->micro_batch
                                                               : -1;
}

/* The two entries of a pair run at the same time: what ends with either ends
 * with the second. */
static int64_t end_of(const loong_rank_schedule_t *r, int64_t k)
{
    return LOONG_MAX(k, (int64_t)r->entries[k].pair);
}

static void find_ends(const loong_rank_schedule_t *r, colouring_t *c)
{
    for (int64_t k = 0; k < r->num_entries; k++) {
        const loong_entry_t *e = &r->entries[k];
        if (marks(c, e)) {
            c->marked[e->micro_batch] = true;
        }
    }
    for (int64_t k = 0; k < r->num_entries; k++) {
        int64_t id = interval_of(c, &r->entries[k]);
        if (id >= 0) {
            c->last[id] = end_of(r, k);
        }
    }
}

static int32_t take(colouring_t *c)
{
    int32_t i = 0;
    while (c->busy[i]) {
        i++;
    }
    c->busy[i] = true;
    c->used = LOONG_MAX(c->used, i + 1);
    return i;
}

static void release(const loong_rank_schedule_t *r, colouring_t *c, int64_t k,
                    int64_t now)
{
    int64_t id = interval_of(c, &r->entries[k]);
    if (id >= 0 && c->last[id] == now) {
        c->busy[c->index[id]] = false;
    }
}

static int32_t *field_of(const colouring_t *c, loong_entry_t *e)
{
    return c->class == CLASS_SLOT ? &e->slot
                                  : &e->area[c->class - CLASS_FORWARD];
}

static void give_out(loong_rank_schedule_t *r, colouring_t *c)
{
    for (int64_t k = 0; k < r->num_entries; k++) {
        loong_entry_t *e = &r->entries[k];
        int64_t id = interval_of(c, e);
        if (id >= 0) {
            if (c->index[id] < 0) {
                c->index[id] = take(c);
            }
            *field_of(c, e) = c->index[id];
        }
        release(r, c, k, k);
        if (e->pair >= 0 && e->pair < k) {
            release(r, c, e->pair, k);
        }
    }
}

static loong_status_t colour(const loong_entry_writer_t *w, int chunk,
                             colour_class_t class, int32_t *used_p)
{
    const loong_schedule_t *s = w->schedule;
    colouring_t c = {
        .class = class,
        .component = w->component,
        .chunk = chunk,
        .hollow = w->hollow,
        .num_ids = s->params.micro_batches};
    size_t ids = (size_t)c.num_ids;
    LOONG_TRY(loongi_calloc(s->ctx, ids,
                            sizeof(*c.last) + sizeof(*c.index) +
                                sizeof(*c.marked) + sizeof(*c.busy),
                            "slots of a schedule", &c.last));
    c.index = (int32_t *)(c.last + ids);
    c.marked = (bool *)(c.index + ids);
    c.busy = c.marked + ids;
    for (int64_t i = 0; i < c.num_ids; i++) {
        c.index[i] = -1;
    }
    find_ends(w->list, &c);
    give_out(w->list, &c);
    loongi_free(s->ctx, c.last);
    *used_p = c.used;
    return LOONG_OK;
}

/* That of before where it has this micro-batch, else not the last one that was
 * read: it may still be. */
static void give_windows(const loong_entry_writer_t *w, int chunk, int back,
                         int32_t areas)
{
    int32_t has[LOONG_EDGE_WINDOWS];
    int32_t count = LOONG_MIN(areas, LOONG_EDGE_WINDOWS);
    int32_t last = 0;
    for (int i = 0; i < LOONG_EDGE_WINDOWS; i++) {
        has[i] = -1;
    }
    for (int64_t k = 0; k < w->list->num_entries; k++) {
        loong_entry_t *e = &w->list->entries[k];
        int32_t at = 0;
        if (e->component != w->component || e->chunk != chunk ||
            e->area[back] < 0 || !loongi_entry_computes(e)) {
            continue;
        }
        while (at < count && has[at] != e->micro_batch) {
            at++;
        }
        last = at < count ? at : (last + 1) % count;
        has[last] = e->micro_batch;
        e->window[back] = last;
    }
}

loong_status_t loongi_schedule_colour(const loong_entry_writer_t *w,
                                      loong_chunk_slots_t *chunks)
{
    for (int c = 0; c < w->schedule->params.chunks; c++) {
        loong_chunk_slots_t *n = &chunks[c];
        LOONG_TRY(colour(w, c, CLASS_SLOT, &n->slots));
        LOONG_TRY(colour(w, c, CLASS_FORWARD, &n->areas[0]));
        LOONG_TRY(colour(w, c, CLASS_BACKWARD, &n->areas[1]));
        give_windows(w, c, 0, n->areas[0]);
        give_windows(w, c, 1, n->areas[1]);
    }
    return LOONG_OK;
}
