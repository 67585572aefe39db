/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: who lives when, and where. Values that one program alone touches go
 * to scratch, values that a later program of the same micro-batch reads to the
 * slot. Lifetimes are positions in the order P, F, B, W of one micro-batch;
 * other micro-batches have slots of their own, so that order is all that
 * matters within a slot. */
#include <stdlib.h>
#include <string.h>

#include "passes.h"

enum { PLACE_ALIGN = 64 };

/* ---- intervals -------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const loong_interval_t *x = *(const loong_interval_t *const *)a;
    const loong_interval_t *y = *(const loong_interval_t *const *)b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

/* Inserts into `placed`, which is sorted by offset. */
static void insert_by_offset(loong_interval_t **placed, int64_t count,
                             loong_interval_t *interval)
{
    int64_t at = count;
    while (at > 0 && placed[at - 1]->offset > interval->offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = interval;
}

/* The smallest gap between intervals that live at the same time, else the
 * end. */
static int64_t best_gap(loong_interval_t *const *placed, int64_t count,
                        const loong_interval_t *interval)
{
    int64_t best = -1;
    int64_t best_room = INT64_MAX;
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++) {
        const loong_interval_t *other = placed[i];
        if (other->end < interval->begin || other->begin > interval->end) {
            continue;
        }
        int64_t room = other->offset - end;
        if (room >= interval->bytes && room < best_room) {
            best = end;
            best_room = room;
        }
        end = LOONG_MAX(end, loongi_round_up(other->offset + other->bytes,
                                             PLACE_ALIGN));
    }
    return best >= 0 ? best : end;
}

loong_status_t loongi_place_intervals(loong_context_t *ctx, int64_t count,
                                      loong_interval_t *intervals,
                                      int64_t *peak_p)
{
    loong_interval_t **sorted = NULL;
    loong_interval_t **placed = NULL;
    LOONG_TRY(loongi_calloc(ctx, (size_t)LOONG_MAX(count, 1) * 2,
                            sizeof(*sorted), "intervals", &sorted));
    placed = sorted + count;
    for (int64_t i = 0; i < count; i++) {
        sorted[i] = &intervals[i];
    }
    qsort(sorted, (size_t)count, sizeof(*sorted), by_size);
    int64_t peak = 0;
    for (int64_t i = 0; i < count; i++) {
        sorted[i]->offset = best_gap(placed, i, sorted[i]);
        insert_by_offset(placed, i, sorted[i]);
        peak = LOONG_MAX(peak, sorted[i]->offset + sorted[i]->bytes);
    }
    loongi_free(ctx, sorted);
    *peak_p = loongi_round_up(peak, PLACE_ALIGN);
    return LOONG_OK;
}

/* ---- lifetimes of storages --------------------------------------------- */

/* One storage, indexed by its representative value. */
typedef struct storage {
    int32_t begin;
    int32_t end;
    loong_program_kind_t first; /* program of the first and last touch */
    loong_program_kind_t last;
    bool used;
    bool kept; /* a declared output: readable until the slot is reused */
    int32_t rep; /* storage that this one was merged into, or itself */
} storage_t;

static int32_t find_rep(storage_t *s, int32_t v)
{
    while (s[v].rep != v) {
        s[v].rep = s[s[v].rep].rep;
        v = s[v].rep;
    }
    return v;
}

static void touch(storage_t *s, int32_t position, loong_program_kind_t program)
{
    if (!s->used) {
        s->used = true;
        s->begin = position;
        s->first = program;
    }
    s->end = position;
    s->last = program;
}

/* The value whose storage an operand of kind NODE uses, or LOONG_NONE. */
static loong_val_t storage_of(const loong_graph_t *g, loong_val_t v)
{
    if (v == LOONG_NONE) {
        return LOONG_NONE;
    }
    loong_val_t root = g->values[v].root;
    const loong_value_t *value = &g->values[root];
    return value->kind == LOONG_VALUE_NODE && value->into < 0 ? root
                                                              : LOONG_NONE;
}

static void collect(const loong_graph_t *g, int64_t num_order,
                    const int32_t *order, storage_t *storages)
{
    for (int64_t k = 0; k < num_order; k++) {
        const loong_node_t *node = &g->nodes[order[k]];
        for (int i = 0; i < node->num_in + node->num_out; i++) {
            loong_val_t v = storage_of(
                g, i < node->num_in ? node->in[i] : node->out[i - node->num_in]);
            if (v != LOONG_NONE) {
                touch(&storages[v], (int32_t)k, node->program);
            }
        }
    }
    for (int i = 0; i < g->num_outputs + g->num_losses; i++) {
        loong_val_t v = storage_of(
            g, i < g->num_outputs ? g->outputs[i].value
                                  : g->losses[i - g->num_outputs].value);
        if (v != LOONG_NONE) {
            storages[v].kept = true;
        }
    }
}

/* May the output take over the storage of input 0, which dies here? */
static bool can_share(const loong_graph_t *g, const loong_node_t *node,
                      int output, int32_t position, storage_t *storages,
                      loong_val_t *in_p, loong_val_t *out_p)
{
    if (node->num_in == 0 || !(node->op->in_place & (1u << output))) {
        return false;
    }
    loong_val_t in = storage_of(g, node->in[0]);
    loong_val_t out = node->out[output];
    if (in == LOONG_NONE || out == LOONG_NONE || g->values[out].root != out ||
        g->values[out].into >= 0 || in != node->in[0]) {
        return false;
    }
    for (int i = 1; i < node->num_in; i++) {
        if (storage_of(g, node->in[i]) != LOONG_NONE &&
            find_rep(storages, storage_of(g, node->in[i])) ==
                find_rep(storages, in)) {
            return false;
        }
    }
    int32_t rep = find_rep(storages, in);
    *in_p = rep;
    *out_p = out;
    return storages[rep].end == position && !storages[rep].kept &&
           storages[out].begin == position &&
           loongi_value_bytes(g, in) == loongi_value_bytes(g, out) &&
           loongi_value_bytes(g, rep) == loongi_value_bytes(g, out);
}

static void share_in_place(const loong_graph_t *g, int64_t num_order,
                           const int32_t *order, storage_t *storages)
{
    for (int64_t k = 0; k < num_order; k++) {
        const loong_node_t *node = &g->nodes[order[k]];
        for (int o = 0; o < node->num_out; o++) {
            loong_val_t in = LOONG_NONE;
            loong_val_t out = LOONG_NONE;
            if (can_share(g, node, o, (int32_t)k, storages, &in, &out)) {
                storages[out].rep = in;
                storages[in].end = storages[out].end;
                storages[in].last = storages[out].last;
                storages[in].kept = storages[out].kept;
                break;
            }
        }
    }
}

/* ---- layout -------------------------------------------------------------- */

typedef struct memory {
    loong_graph_t *g;
    storage_t *storages;
    loong_interval_t *intervals;
    loong_val_t *owner; /* per interval: value, or -1 - node of a workspace */
    int64_t num_order;
    const int32_t *order;
    const int64_t *workspace_bytes;
    loong_layout_t *layout;
} memory_t;

static bool in_slot(const storage_t *s)
{
    return s->kept || s->first != s->last;
}

/* Lays out either the slot or the scratch of one program. */
static loong_status_t place_class(memory_t *m, bool slot,
                                  loong_program_kind_t program,
                                  int64_t *bytes_p)
{
    loong_graph_t *g = m->g;
    int64_t n = 0;
    for (int64_t v = 0; v < g->num_values; v++) {
        const storage_t *s = &m->storages[v];
        if (!s->used || s->rep != v || in_slot(s) != slot ||
            (!slot && s->first != program)) {
            continue;
        }
        m->owner[n] = (loong_val_t)v;
        m->intervals[n].begin = s->begin;
        m->intervals[n].end = s->kept ? INT32_MAX : s->end;
        m->intervals[n++].bytes = (int64_t)loongi_value_bytes(g, (loong_val_t)v);
    }
    for (int64_t k = 0; k < m->num_order && !slot; k++) {
        int32_t node = m->order[k];
        if (g->nodes[node].program == program && m->workspace_bytes[node] > 0) {
            m->owner[n] = -1 - node;
            m->intervals[n].begin = m->intervals[n].end = (int32_t)k;
            m->intervals[n++].bytes = m->workspace_bytes[node];
        }
    }
    LOONG_TRY(loongi_place_intervals(g->ctx, n, m->intervals, bytes_p));
    for (int64_t i = 0; i < n; i++) {
        loong_operand_t at = {slot ? LOONG_BASE_SLOT : LOONG_BASE_SCRATCH,
                              m->intervals[i].offset};
        if (m->owner[i] >= 0) {
            m->layout->place[m->owner[i]] = at;
        } else {
            m->layout->workspace[-1 - m->owner[i]] = at;
        }
    }
    return LOONG_OK;
}

static loong_status_t place_all(memory_t *m)
{
    loong_graph_t *g = m->g;
    LOONG_TRY(place_class(m, true, LOONG_PROGRAM_F, &m->layout->slot_bytes));
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        LOONG_TRY(place_class(m, false, (loong_program_kind_t)p,
                              &m->layout->scratch_bytes[p]));
    }
    for (int64_t v = 0; v < g->num_values; v++) {
        int32_t rep = find_rep(m->storages, (int32_t)v);
        m->layout->place[v] = m->layout->place[rep];
    }
    return LOONG_OK;
}

loong_status_t loongi_pass_memory(loong_graph_t *g, int64_t num_order,
                                  const int32_t *order,
                                  const int64_t *workspace_bytes,
                                  bool in_place, loong_layout_t *layout)
{
    memory_t m = {g, NULL, NULL, NULL, num_order, order, workspace_bytes,
                  layout};
    size_t values = (size_t)g->num_values;
    size_t most = values + (size_t)g->num_nodes;
    LOONG_TRY(loongi_arena_alloc(g->arena, values * sizeof(*layout->place),
                                 &layout->place));
    LOONG_TRY(loongi_arena_alloc(g->arena,
                                 (size_t)g->num_nodes *
                                     sizeof(*layout->workspace),
                                 &layout->workspace));
    LOONG_TRY(loongi_arena_alloc(g->arena, values * sizeof(*m.storages),
                                 &m.storages));
    LOONG_TRY(loongi_arena_alloc(g->arena, most * sizeof(*m.intervals),
                                 &m.intervals));
    LOONG_TRY(loongi_arena_alloc(g->arena, most * sizeof(*m.owner), &m.owner));
    for (int64_t v = 0; v < g->num_values; v++) {
        m.storages[v].rep = (int32_t)v;
    }
    collect(g, num_order, order, m.storages);
    if (in_place) {
        share_in_place(g, num_order, order, m.storages);
    }
    return place_all(&m);
}
