/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds up the bytes of every base of a rank, and binds and runs entries in
 * them. Created by src/component/model.c, which runs each entry of a list here.
 * Read schedule.h and src/run/executor.h before. */
#include "memory_plan.h"

#include <string.h>

#include "passes.h"

/* ---- memory ------------------------------------------------------------- */

/* Areas of edges, or the windows in which they are read. */
static int64_t edge_bytes(const loong_model_chunk_t *c,
                          const loong_chunk_slots_t *n, const bool on_host[2],
                          int back)
{
    int64_t count = on_host[back] ? LOONG_MIN(n->areas[back],
                                              LOONG_EDGE_WINDOWS)
                                  : n->areas[back];
    return count * c->edge_bytes[back];
}

/* Bytes of one chunk in every base but those that all share, in one use. */
static void chunk_bytes(const loong_model_chunk_t *c,
                        const loong_chunk_slots_t *n, const bool on_host[2],
                        int64_t bytes[LOONG_BASE_COUNT])
{
    const int64_t own[LOONG_BASE_COUNT] = {
        [LOONG_BASE_PARAM] = c->param_bytes,
        [LOONG_BASE_GRAD] = c->grad_bytes,
        [LOONG_BASE_STATE] = c->state_bytes,
        [LOONG_BASE_SLOT] = n->slots * c->slot_bytes,
        [LOONG_BASE_INPUT] = n->slots * c->input_bytes,
        [LOONG_BASE_EDGE] = edge_bytes(c, n, on_host, 0),
        [LOONG_BASE_EDGE_GRAD] = edge_bytes(c, n, on_host, 1),
    };
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        bytes[b] = LOONG_MAX(bytes[b], own[b]);
    }
}

/* Has a chunk that runs the forward of another memory of its own there? */
static bool is_own(int base)
{
    return base == LOONG_BASE_SLOT || base == LOONG_BASE_INPUT ||
           base == LOONG_BASE_EDGE || base == LOONG_BASE_EDGE_GRAD;
}

static void place_chunk(loong_memory_plan_t *r, int component, int number,
                        const bool on_host[2])
{
    int chunk = r->first_chunk[component] + number;
    int of = r->first_chunk[r->forward_of[component]] + number;
    loong_chunk_bases_t *place = &r->places[chunk];
    int64_t bytes[LOONG_BASE_COUNT] = {0};
    int64_t areas[2] = {0, 0};
    for (int u = 0; u < r->num_uses; u++) {
        const loong_model_chunk_t *c = r->use[u].chunks[chunk];
        const loong_chunk_slots_t *n = &r->use[u].list->chunks[chunk];
        if (c != NULL) {
            chunk_bytes(c, n, on_host, bytes);
            for (int d = 0; d < 2; d++) {
                int64_t all = n->areas[d] * c->edge_bytes[d];
                areas[d] = LOONG_MAX(areas[d], on_host[d] ? all : 0);
            }
        }
    }
    for (int d = 0; d < 2; d++) {
        place->on_host[d] = on_host[d];
        place->area[d] = r->host_bytes[d];
        r->host_bytes[d] += areas[d];
    }
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (of != chunk && !is_own(b)) {
            place->begin[b] = r->places[of].begin[b];
            continue;
        }
        place->begin[b] = r->bytes[b];
        r->bytes[b] += bytes[b];
    }
}

const loong_program_t *
loongi_memory_plan_program(const loong_memory_plan_t *plan, int use,
                           const loong_entry_t *entry)
{
    bool other = plan->forward_of[entry->component] != entry->component;
    return &plan->use[use]
                .chunks[loongi_memory_plan_index(plan, entry)]
                ->programs[other ? LOONG_ENTRY_F : entry->kind];
}

/* Of a chunk that the use runs. */
static bool is_program(const loong_memory_plan_t *r, int use,
                       const loong_entry_t *e)
{
    return e->kind < (loong_entry_kind_t)LOONG_PROGRAM_COUNT && e->chunk >= 0 &&
           r->use[use].chunks[loongi_memory_plan_index(r, e)] != NULL;
}

/* Scratch and COMM: the largest program or pair. */
static void size_common(loong_memory_plan_t *r, int use)
{
    const loong_rank_schedule_t *list = r->use[use].list;
    int64_t *scratch = &r->bytes[LOONG_BASE_SCRATCH];
    int64_t *comm = &r->bytes[LOONG_BASE_COMM];
    for (int64_t k = 0; k < list->num_entries; k++) {
        const loong_entry_t *e = &list->entries[k];
        int64_t bytes[2] = {0, 0};
        for (; e != NULL && is_program(r, use, e);
             e = e->pair > k ? &list->entries[e->pair] : NULL) {
            bytes[0] += loongi_memory_plan_program(r, use, e)->scratch_bytes;
            bytes[1] += loongi_memory_plan_program(r, use, e)->comm_bytes;
        }
        *scratch = LOONG_MAX(*scratch, bytes[0]);
        *comm = LOONG_MAX(*comm, bytes[1]);
    }
}

/* ---- pairs -------------------------------------------------------------- */

static bool has_pairs(const loong_rank_schedule_t *list)
{
    int64_t k = 0;
    while (k < list->num_entries && list->entries[k].pair < 0) {
        k++;
    }
    return k < list->num_entries;
}

static loong_status_t order_pairs(loong_memory_plan_t *r)
{
    loong_model_chunk_t *const *all = r->use[0].chunks;
    int chunks = r->chunks;
    int64_t room = 0;
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)(chunks * chunks),
                            sizeof(*r->order_at), "pairs", &r->order_at));
    for (int i = 0; i < chunks * chunks; i++) {
        r->order_at[i] = room;
        room += all[i / chunks]->programs[LOONG_PROGRAM_F].num_steps +
                all[i % chunks]->programs[LOONG_PROGRAM_B].num_steps;
    }
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)room, sizeof(*r->orders),
                            "orders of pairs", &r->orders));
    for (int i = 0; i < chunks * chunks; i++) {
        loongi_pass_interleave(&all[i / chunks]->programs[LOONG_PROGRAM_F],
                               &all[i % chunks]->programs[LOONG_PROGRAM_B],
                               r->orders + r->order_at[i]);
    }
    return LOONG_OK;
}

/* Of a pair the backward's memory lies behind the forward's. */
static void put_behind(loong_binding_t *bound, const loong_program_t *forward)
{
    bound->base[LOONG_BASE_SCRATCH] += forward->scratch_bytes;
    if (bound->base[LOONG_BASE_COMM] != NULL) {
        bound->base[LOONG_BASE_COMM] += forward->comm_bytes;
    }
}

/* `f` is the forward, `b` the backward. */
static loong_status_t run_pair(const loong_memory_plan_t *r,
                               const loong_binding_t *run,
                               const loong_entry_t *f, const loong_entry_t *b,
                               const loong_frame_t *const frame[2])
{
    loong_binding_t bound[2] = {loongi_memory_plan_bind(r, 0, run, f),
                                loongi_memory_plan_bind(r, 0, run, b)};
    loong_program_pair_t pair = {
        {loongi_memory_plan_program(r, 0, f),
         loongi_memory_plan_program(r, 0, b)},
        0,
        NULL};
    pair.num_order = pair.program[0]->num_steps + pair.program[1]->num_steps;
    pair.order =
        r->orders + r->order_at[loongi_memory_plan_index(r, f) * r->chunks +
                                loongi_memory_plan_index(r, b)];
    put_behind(&bound[1], pair.program[0]);
    return loongi_pair_run(bound, &pair, frame);
}

/* ---- the whole ---------------------------------------------------------- */

static loong_status_t plan(loong_memory_plan_t *r, int components,
                           const bool (*on_host)[2])
{
    static const bool none[2];
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)r->chunks, sizeof(*r->places),
                            "places of chunks", &r->places));
    for (int c = 0; c < components; c++) {
        int count = r->first_chunk[c + 1] - r->first_chunk[c];
        for (int k = 0; k < count; k++) {
            place_chunk(r, c, k, on_host != NULL ? on_host[c] : none);
        }
    }
    for (int u = 0; u < r->num_uses; u++) {
        size_common(r, u);
    }
    return has_pairs(r->use[0].list) ? order_pairs(r) : LOONG_OK;
}

loong_status_t
loongi_memory_plan_create(loong_context_t *ctx,
                          const loong_memory_plan_params_t *params,
                          loong_memory_plan_t **plan_p)
{
    loong_memory_plan_t *r = NULL;
    size_t firsts = (size_t)params->num_components + 1;
    LOONG_TRY(loongi_alloc(ctx,
                           sizeof(*r) + 2 * firsts * sizeof(*r->first_chunk),
                           "rank", &r));
    r->ctx = ctx;
    r->first_chunk = (int32_t *)(r + 1);
    r->forward_of = r->first_chunk + firsts;
    memcpy(r->first_chunk, params->first_chunk,
           firsts * sizeof(*r->first_chunk));
    memcpy(r->forward_of, params->forward_of,
           (firsts - 1) * sizeof(*r->forward_of));
    r->chunks = params->first_chunk[params->num_components];
    r->num_uses = params->num_uses;
    for (int u = 0; u < params->num_uses; u++) {
        r->use[u] = params->uses[u];
    }
    loong_status_t status = plan(r, params->num_components, params->on_host);
    if (status != LOONG_OK) {
        loongi_memory_plan_destroy(&r);
        return status;
    }
    *plan_p = r;
    return LOONG_OK;
}

void loongi_memory_plan_destroy(loong_memory_plan_t **plan_p)
{
    loong_memory_plan_t *r = *plan_p;
    if (r == NULL) {
        return;
    }
    loongi_free(r->ctx, r->places);
    loongi_free(r->ctx, r->orders);
    loongi_free(r->ctx, r->order_at);
    loongi_free(r->ctx, r);
    *plan_p = NULL;
}

loong_binding_t loongi_memory_plan_chunk(const loong_memory_plan_t *plan,
                                         const loong_binding_t *run, int chunk)
{
    loong_binding_t bound = *run;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (bound.base[b] != NULL) {
            bound.base[b] += plan->places[chunk].begin[b];
        }
    }
    return bound;
}

loong_binding_t loongi_memory_plan_bind(const loong_memory_plan_t *plan,
                                        int use, const loong_binding_t *run,
                                        const loong_entry_t *entry)
{
    int index = loongi_memory_plan_index(plan, entry);
    loong_binding_t bound = loongi_memory_plan_chunk(plan, run, index);
    const loong_model_chunk_t *c = plan->use[use].chunks[index];
    const bool *on_host = plan->places[index].on_host;
    int32_t edge[2];
    for (int d = 0; d < 2; d++) {
        edge[d] = on_host[d] ? entry->window[d] : entry->area[d];
    }
    const int64_t within[LOONG_BASE_COUNT] = {
        [LOONG_BASE_SLOT] = LOONG_MAX(entry->slot, 0) * c->slot_bytes,
        [LOONG_BASE_INPUT] = LOONG_MAX(entry->slot, 0) * c->input_bytes,
        [LOONG_BASE_EDGE] = LOONG_MAX(edge[0], 0) * c->edge_bytes[0],
        [LOONG_BASE_EDGE_GRAD] = LOONG_MAX(edge[1], 0) * c->edge_bytes[1],
    };
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (bound.base[b] != NULL) {
            bound.base[b] += within[b];
        }
    }
    return bound;
}

int64_t loongi_memory_plan_area(const loong_memory_plan_t *plan, int use,
                                const loong_entry_t *entry, bool backward)
{
    int index = loongi_memory_plan_index(plan, entry);
    const loong_model_chunk_t *c = plan->use[use].chunks[index];
    return plan->places[index].area[backward] +
           LOONG_MAX(entry->area[backward], 0) * c->edge_bytes[backward];
}

static bool came_before(const loong_entry_t *list, int64_t index)
{
    int64_t i = 0;
    while (i < index && (list[i].kind != list[index].kind ||
                         list[i].component != list[index].component ||
                         list[i].chunk != list[index].chunk)) {
        i++;
    }
    return i < index;
}

loong_status_t loongi_memory_plan_load(const loong_memory_plan_t *plan,
                                       const loong_binding_t *const *runs,
                                       bool again)
{
    for (int u = 0; u < plan->num_uses; u++) {
        const loong_rank_schedule_t *s = plan->use[u].list;
        for (int64_t k = 0; k < s->num_entries; k++) {
            const loong_entry_t *e = &s->entries[k];
            if (!is_program(plan, u, e)) {
                continue;
            }
            const loong_program_t *program =
                loongi_memory_plan_program(plan, u, e);
            loong_binding_t bound = loongi_memory_plan_bind(
                plan, u, runs[plan->forward_of[e->component]], e);
            if (e->pair >= 0 && e->kind == LOONG_ENTRY_B) {
                put_behind(&bound, loongi_memory_plan_program(
                                       plan, u, &s->entries[e->pair]));
            }
            LOONG_TRY(loongi_program_load(&bound, program,
                                          again || came_before(s->entries, k)));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_memory_plan_run(const loong_memory_plan_t *plan, int use,
                                      const loong_binding_t *run, int64_t index,
                                      const loong_frame_t *const frame[2])
{
    const loong_entry_t *list = plan->use[use].list->entries;
    const loong_entry_t *e = &list[index];
    if (e->pair < 0) {
        loong_binding_t bound = loongi_memory_plan_bind(plan, use, run, e);
        return loongi_program_run(
            &bound, loongi_memory_plan_program(plan, use, e), frame[0]);
    }
    if (e->pair < index) {
        return LOONG_OK;
    }
    const loong_entry_t *other = &list[e->pair];
    bool forward = e->kind == LOONG_ENTRY_F;
    const loong_frame_t *frames[2] = {frame[!forward], frame[forward]};
    return forward ? run_pair(plan, run, e, other, frames)
                   : run_pair(plan, run, other, e, frames);
}
