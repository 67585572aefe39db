/* SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include "passes.h"

/* ---- memory ------------------------------------------------------------- */

/* Bytes of one chunk in every base but those that all share. */
static void chunk_bytes(const loong_chunk_t *c, const loong_chunk_slots_t *n,
                        int64_t bytes[LOONG_BASE_COUNT])
{
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        bytes[b] = 0;
    }
    bytes[LOONG_BASE_PARAM] = c->param_bytes;
    bytes[LOONG_BASE_GRAD] = c->grad_bytes;
    bytes[LOONG_BASE_STATE] = c->state_bytes;
    bytes[LOONG_BASE_SLOT] = n->slots * c->slot_bytes;
    bytes[LOONG_BASE_INPUT] = n->slots * c->input_bytes;
    bytes[LOONG_BASE_AWAY] = n->away * c->away_bytes;
}

static void place_chunks(loong_rank_t *r)
{
    int64_t bytes[LOONG_BASE_COUNT];
    for (int c = 0; c < r->schedule->params.chunks; c++) {
        const loong_chunk_slots_t *n =
            &r->schedule->ranks[r->rank].chunks[c];
        chunk_bytes(r->chunks[c], n, bytes);
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            r->places[c].begin[b] = r->bytes[b];
            r->bytes[b] += bytes[b];
        }
        r->places[c].host = r->host_bytes;
        r->host_bytes += n->host * r->chunks[c]->away_bytes;
    }
}

static const loong_program_t *program_of(const loong_rank_t *r,
                                         const loong_entry_t *e)
{
    return &r->chunks[e->chunk]->programs[e->kind];
}

static bool is_program(const loong_entry_t *e)
{
    return e->kind < (loong_entry_kind_t)LOONG_PROGRAM_COUNT && e->chunk >= 0;
}

/* Scratch and COMM: the largest program or pair. */
static void size_common(loong_rank_t *r)
{
    const loong_rank_schedule_t *list = &r->schedule->ranks[r->rank];
    int64_t *scratch = &r->bytes[LOONG_BASE_SCRATCH];
    int64_t *comm = &r->bytes[LOONG_BASE_COMM];
    for (int64_t k = 0; k < list->num_entries; k++) {
        const loong_entry_t *e = &list->entries[k];
        int64_t bytes[2] = {0, 0};
        for (; e != NULL && is_program(e);
             e = e->pair > k ? &list->entries[e->pair] : NULL) {
            bytes[0] += program_of(r, e)->scratch_bytes;
            bytes[1] += program_of(r, e)->comm_bytes;
        }
        *scratch = LOONG_MAX(*scratch, bytes[0]);
        *comm = LOONG_MAX(*comm, bytes[1]);
    }
}

/* ---- pairs -------------------------------------------------------------- */

static loong_status_t order_pairs(loong_rank_t *r)
{
    int chunks = r->schedule->params.chunks;
    int64_t room = 0;
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)(chunks * chunks),
                            sizeof(*r->order_at), "pairs", &r->order_at));
    for (int i = 0; i < chunks * chunks; i++) {
        r->order_at[i] = room;
        room += r->chunks[i / chunks]->programs[LOONG_PROGRAM_F].num_steps +
                r->chunks[i % chunks]->programs[LOONG_PROGRAM_B].num_steps;
    }
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)room, sizeof(*r->orders),
                            "orders of pairs", &r->orders));
    for (int i = 0; i < chunks * chunks; i++) {
        loongi_pass_interleave(
            &r->chunks[i / chunks]->programs[LOONG_PROGRAM_F],
            &r->chunks[i % chunks]->programs[LOONG_PROGRAM_B],
            r->orders + r->order_at[i]);
    }
    return LOONG_OK;
}

/* `f` is the forward, `b` the backward. */
static loong_status_t run_pair(const loong_rank_t *r, const loong_run_t *run,
                               const loong_entry_t *f, const loong_entry_t *b,
                               const loong_frame_t *const frame[2])
{
    loong_run_t bound[2] = {loongi_rank_bind(r, run, f),
                            loongi_rank_bind(r, run, b)};
    loong_program_pair_t pair = {{program_of(r, f), program_of(r, b)}, 0, NULL};
    pair.num_order = pair.program[0]->num_steps + pair.program[1]->num_steps;
    pair.order =
        r->orders +
        r->order_at[f->chunk * r->schedule->params.chunks + b->chunk];
    bound[1].base[LOONG_BASE_SCRATCH] += pair.program[0]->scratch_bytes;
    if (bound[1].base[LOONG_BASE_COMM] != NULL) {
        bound[1].base[LOONG_BASE_COMM] += pair.program[0]->comm_bytes;
    }
    return loongi_pair_run(bound, &pair, frame);
}

/* ---- the whole ---------------------------------------------------------- */

loong_status_t loongi_rank_create(const loong_schedule_t *schedule, int rank,
                                  loong_chunk_t *const *chunks,
                                  loong_rank_t **rank_p)
{
    loong_context_t *ctx = schedule->ctx;
    loong_rank_t *r = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*r), "rank", &r));
    r->ctx = ctx;
    r->schedule = schedule;
    r->rank = rank;
    r->chunks = chunks;
    loong_status_t status =
        loongi_calloc(ctx, (size_t)schedule->params.chunks, sizeof(*r->places),
                      "places of chunks", &r->places);
    if (status == LOONG_OK && schedule->params.pair) {
        status = order_pairs(r);
    }
    if (status != LOONG_OK) {
        loongi_rank_destroy(&r);
        return status;
    }
    place_chunks(r);
    size_common(r);
    *rank_p = r;
    return LOONG_OK;
}

void loongi_rank_destroy(loong_rank_t **rank_p)
{
    loong_rank_t *r = *rank_p;
    if (r == NULL) {
        return;
    }
    loongi_free(r->ctx, r->places);
    loongi_free(r->ctx, r->orders);
    loongi_free(r->ctx, r->order_at);
    loongi_free(r->ctx, r);
    *rank_p = NULL;
}

loong_run_t loongi_rank_bind(const loong_rank_t *rank, const loong_run_t *run,
                             const loong_entry_t *entry)
{
    loong_run_t bound = *run;
    const loong_chunk_t *c = rank->chunks[entry->chunk];
    const loong_chunk_place_t *place = &rank->places[entry->chunk];
    int64_t within[LOONG_BASE_COUNT] = {0};
    within[LOONG_BASE_SLOT] = LOONG_MAX(entry->slot, 0) * c->slot_bytes;
    within[LOONG_BASE_INPUT] = LOONG_MAX(entry->slot, 0) * c->input_bytes;
    within[LOONG_BASE_AWAY] = LOONG_MAX(entry->away, 0) * c->away_bytes;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (bound.base[b] != NULL) {
            bound.base[b] += place->begin[b] + within[b];
        }
    }
    return bound;
}

loong_status_t loongi_rank_run(const loong_rank_t *rank,
                               const loong_run_t *run, int64_t index,
                               const loong_frame_t *frame,
                               const loong_frame_t *pair_frame)
{
    const loong_entry_t *list = rank->schedule->ranks[rank->rank].entries;
    const loong_entry_t *e = &list[index];
    LOONG_TRY(loongi_frame_check(rank->chunks[e->chunk], frame));
    if (e->pair < 0) {
        loong_run_t bound = loongi_rank_bind(rank, run, e);
        return loongi_program_run(&bound, program_of(rank, e), frame);
    }
    if (e->pair < index) {
        return LOONG_OK;
    }
    const loong_entry_t *other = &list[e->pair];
    LOONG_TRY(loongi_frame_check(rank->chunks[other->chunk], pair_frame));
    bool forward = e->kind == LOONG_ENTRY_F;
    const loong_frame_t *frames[2] = {forward ? frame : pair_frame,
                                      forward ? pair_frame : frame};
    return forward ? run_pair(rank, run, e, other, frames)
                   : run_pair(rank, run, other, e, frames);
}
