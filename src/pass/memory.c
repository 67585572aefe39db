/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: who lives when, and where. Values that one program alone touches go
 * to scratch, values that a later program of the same micro-batch reads to the
 * slot. Lifetimes are positions in the order F, B, W of one micro-batch;
 * other micro-batches have slots of their own, so that order is all that
 * matters within a slot. Called by compile.c. Read passes.h before. */
#include <string.h>

#include "passes.h"

/* ---- lifetimes of storages --------------------------------------------- */

/* One storage, indexed by its representative value. */
typedef struct storage {
    int32_t begin;
    int32_t end;
    loong_program_kind_t first; /* program of the first and last touch */
    loong_program_kind_t last;
    bool used;
    bool kept; /* a declared output: readable until the slot is reused */
    int32_t seen; /* 1 + where the part run in rounds begins that saw it last */
    bool again;   /* that part makes it again before it reads it */
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

static void collect(const loong_graph_t *g, const loong_layout_params_t *p,
                    storage_t *storages)
{
    for (int64_t k = 0; k < p->num_order; k++) {
        const loong_node_t *node = &g->nodes[p->order[k]];
        if (p->range[k] != 0) {
            touch(&storages[storage_of(g, g->rounds[p->range[k] - 1])],
                  (int32_t)k, node->program);
        }
        for (int i = 0; i < node->num_in + node->num_out; i++) {
            loong_val_t v = storage_of(
                g, i < node->num_in ? node->in[i]
                                    : node->out[i - node->num_in]);
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

/* In rounds what comes in, or leaves, or is of the first round alone lives
 * from the first step of the part to its last. */
static void keep_round(const loong_graph_t *g, const loong_layout_params_t *p,
                       int32_t begin, int32_t end, storage_t *storages)
{
    for (int32_t k = begin; k <= end; k++) {
        const loong_node_t *node = &g->nodes[p->order[k]];
        for (int i = 0; i < node->num_in + node->num_out; i++) {
            loong_val_t v = storage_of(
                g, i < node->num_in ? node->in[i]
                                    : node->out[i - node->num_in]);
            if (v == LOONG_NONE) {
                continue;
            }
            storage_t *s = &storages[v];
            s->again = s->seen == begin + 1
                           ? s->again
                           : node->again && i >= node->num_in;
            s->seen = begin + 1;
            bool crosses = s->begin < begin || s->end > end;
            if ((crosses && !s->again) || node->repeat == 0) {
                s->begin = LOONG_MIN(s->begin, begin);
                s->end = LOONG_MAX(s->end, end);
            }
        }
    }
}

static void keep_rounds(const loong_graph_t *g, const loong_layout_params_t *p,
                        storage_t *storages)
{
    for (int64_t k = 0; k < p->num_order; k++) {
        int64_t begin = k;
        loong_program_kind_t program = g->nodes[p->order[k]].program;
        while (p->range[begin] != 0 && k + 1 < p->num_order &&
               p->range[k + 1] == p->range[begin] &&
               g->nodes[p->order[k + 1]].program == program) {
            k++;
        }
        if (p->range[begin] != 0) {
            keep_round(g, p, (int32_t)begin, (int32_t)k, storages);
        }
    }
}

/* May the output take over the storage of an input, which dies here? */
static bool can_share(const loong_graph_t *g, const loong_node_t *node,
                      int output, int32_t position, storage_t *storages,
                      loong_val_t *in_p, loong_val_t *out_p)
{
    int input = node->op->overwrites;
    if (node->num_in <= input || !(node->op->in_place & (1u << output))) {
        return false;
    }
    loong_val_t in = storage_of(g, node->in[input]);
    loong_val_t out = node->out[output];
    if (in == LOONG_NONE || out == LOONG_NONE || g->values[out].root != out ||
        g->values[out].into >= 0 || in != node->in[input]) {
        return false;
    }
    for (int i = 0; i < node->num_in; i++) {
        if (i != input && storage_of(g, node->in[i]) != LOONG_NONE &&
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

static void share_in_place(const loong_graph_t *g,
                           const loong_layout_params_t *p,
                           storage_t *storages)
{
    for (int64_t k = 0; k < p->num_order; k++) {
        const loong_node_t *node = &g->nodes[p->order[k]];
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

/* What a collective on its lane works on lives until it is awaited. */
static void extend_lives(const loong_graph_t *g,
                         const loong_layout_params_t *p, storage_t *storages)
{
    for (int64_t k = 0; k < p->num_order; k++) {
        const loong_node_t *node = &g->nodes[p->order[k]];
        if (!p->comm[p->order[k]]) {
            continue;
        }
        int32_t last = (int32_t)loongi_first_reader(g, p->num_order, p->order,
                                                    p->comm, k) - 1;
        for (int i = 0; i < node->num_in + node->num_out; i++) {
            loong_val_t v = storage_of(
                g, i < node->num_in ? node->in[i]
                                    : node->out[i - node->num_in]);
            if (v != LOONG_NONE) {
                storage_t *s = &storages[find_rep(storages, v)];
                s->end = LOONG_MAX(s->end, last);
            }
        }
    }
}

/* ---- layout ------------------------------------------------------------- */

typedef struct memory {
    loong_graph_t *g;
    const loong_layout_params_t *params;
    storage_t *storages;
    loong_interval_t *intervals;
    loong_val_t *owner; /* per interval: value, or -1 - node of a workspace */
    loong_layout_t *layout;
    int64_t count; /* of intervals */
    int64_t slot_end;
} memory_t;

static loong_base_t base_of(const storage_t *s)
{
    return s->kept || s->first != s->last ? LOONG_BASE_SLOT
                                          : LOONG_BASE_SCRATCH;
}

static void add(memory_t *m, loong_val_t owner, int64_t bytes, int32_t begin,
                int32_t end)
{
    m->owner[m->count] = owner;
    m->intervals[m->count++] = (loong_interval_t){begin, end, bytes, 0};
}

static void swap(memory_t *m, int64_t i, int64_t j)
{
    loong_interval_t interval = m->intervals[i];
    loong_val_t owner = m->owner[i];
    m->intervals[i] = m->intervals[j];
    m->owner[i] = m->owner[j];
    m->intervals[j] = interval;
    m->owner[j] = owner;
}

static void add_values(memory_t *m, loong_base_t base,
                       loong_program_kind_t program)
{
    for (int64_t v = 0; v < m->g->num_values; v++) {
        const storage_t *s = &m->storages[v];
        if (s->used && s->rep == v && base_of(s) == base &&
            (base == LOONG_BASE_SLOT || s->first == program)) {
            add(m, (loong_val_t)v,
                (int64_t)loongi_value_bytes(m->g, (loong_val_t)v), s->begin,
                s->kept ? INT32_MAX : s->end);
        }
    }
}

static void add_workspaces(memory_t *m, loong_program_kind_t program)
{
    const loong_layout_params_t *p = m->params;
    for (int64_t k = 0; k < p->num_order; k++) {
        int32_t node = p->order[k];
        int64_t bytes = p->workspace_bytes[node];
        if (m->g->nodes[node].program != program || bytes == 0) {
            continue;
        }
        int32_t end = (int32_t)k;
        if (p->comm[node]) {
            end = (int32_t)loongi_first_reader(m->g, p->num_order, p->order,
                                               p->comm, k) - 1;
        }
        add(m, -1 - node, bytes, (int32_t)k, end);
    }
}

static void settle(memory_t *m, int64_t i, loong_base_t base)
{
    loong_operand_t at = {base, m->intervals[i].offset};
    if (m->owner[i] >= 0) {
        m->layout->place[m->owner[i]] = at;
    } else {
        m->layout->workspace[-1 - m->owner[i]] = at;
    }
}

/* A slot lives from the forward to the backward, so that most of it is free at
 * any time between: what a program needs for itself goes there if there is
 * room.
 *
 * Puts the larger of the intervals behind the first `held`, which are of the
 * slot, in front of the others, and into the slot; returns how many are in it
 * then. */
static loong_status_t fill_slot(memory_t *m, int64_t *held_p)
{
    int64_t held = *held_p;
    int64_t room = LOONG_MAX(m->layout->slot_bytes, m->params->slot_room);
    int64_t large = held;
    for (int64_t i = held; i < m->count; i++) {
        if (m->intervals[i].bytes >= m->params->least_in_slot) {
            swap(m, i, large++);
        }
    }
    LOONG_TRY(
        loongi_place_in_gaps(m->g->ctx, held, large, m->intervals, room));
    for (int64_t i = held; i < large; i++) {
        const loong_interval_t *one = &m->intervals[i];
        if (one->offset >= 0) {
            m->slot_end = LOONG_MAX(m->slot_end, one->offset + one->bytes);
            settle(m, i, LOONG_BASE_SLOT);
            swap(m, i, held++);
        }
    }
    *held_p = held;
    return LOONG_OK;
}

/* What is in the slot is in front, at the end of every step. */
static loong_status_t place_all(memory_t *m)
{
    loong_graph_t *g = m->g;
    loong_layout_t *l = m->layout;
    add_values(m, LOONG_BASE_SLOT, LOONG_PROGRAM_F);
    int64_t held = m->count;
    LOONG_TRY(
        loongi_place_intervals(g->ctx, held, m->intervals, &l->slot_bytes));
    m->slot_end = l->slot_bytes;
    for (int64_t i = 0; i < held; i++) {
        settle(m, i, LOONG_BASE_SLOT);
    }
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        m->count = held;
        add_values(m, LOONG_BASE_SCRATCH, (loong_program_kind_t)p);
        add_workspaces(m, (loong_program_kind_t)p);
        LOONG_TRY(fill_slot(m, &held));
        LOONG_TRY(loongi_place_intervals(g->ctx, m->count - held,
                                         m->intervals + held,
                                         &l->scratch_bytes[p]));
        for (int64_t i = held; i < m->count; i++) {
            settle(m, i, LOONG_BASE_SCRATCH);
        }
    }
    l->slot_bytes = loongi_round_up(m->slot_end, LOONG_PLACE_ALIGN);
    for (int64_t v = 0; v < g->num_values; v++) {
        int32_t rep = find_rep(m->storages, (int32_t)v);
        l->place[v] = l->place[rep];
    }
    return LOONG_OK;
}

loong_status_t loongi_pass_memory(loong_graph_t *g,
                                  const loong_layout_params_t *params,
                                  loong_layout_t *layout)
{
    memory_t m = {g, params, NULL, NULL, NULL, layout, 0, 0};
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
    collect(g, params, m.storages);
    keep_rounds(g, params, m.storages);
    if (params->in_place) {
        share_in_place(g, params, m.storages);
    }
    extend_lives(g, params, m.storages);
    return place_all(&m);
}
