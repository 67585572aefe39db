/* SPDX-License-Identifier: Apache-2.0
 *
 * From the order of computations that a generator gives to the whole list:
 * sends and receives, what stands once in a step, slots. Called by cell.c and
 * cell_lists.c. Read schedule.h before. */
#include "schedule.h"

#include <stdio.h>
#include <string.h>

#include "problems.h"
#include "schedule_impl.h"

const loong_schedule_kind_t *const loongi_schedule_kinds[] = {
    &loongi_schedule_one_stage,      &loongi_schedule_1f1b,
    &loongi_schedule_interleaved,    &loongi_schedule_zero_bubble_h1,
    &loongi_schedule_zero_bubble_v,  &loongi_schedule_evaluate,
    &loongi_schedule_gpipe,          NULL};

const char *loongi_entry_name(loong_entry_kind_t kind)
{
    static const char *const names[] = {
#define LOONG_ENTRY_NAME(name_, text_) text_,
        LOONG_ENTRY_LIST(LOONG_ENTRY_NAME)
#undef LOONG_ENTRY_NAME
    };
    return (unsigned)kind < LOONG_ENTRY_COUNT ? names[kind] : "?";
}

/* ---- lists -------------------------------------------------------------- */

static loong_status_t append(loong_context_t *ctx, loong_rank_schedule_t *list,
                             const loong_entry_t *entry)
{
    LOONG_TRY(loongi_grow(ctx, &list->entries, &list->cap_entries,
                          list->num_entries + 1, sizeof(*entry), "schedule"));
    list->entries[list->num_entries++] = *entry;
    return LOONG_OK;
}

loong_status_t loongi_schedule_push(loong_schedule_t *s, int rank,
                                    loong_entry_kind_t kind, int chunk,
                                    int micro_batch)
{
    loong_entry_t entry = loongi_entry(kind, chunk, micro_batch);
    return append(s->ctx, &s->ranks[rank], &entry);
}

static void pair_last(loong_rank_schedule_t *list)
{
    int32_t last = (int32_t)list->num_entries - 1;
    list->entries[last].pair = last - 1;
    list->entries[last - 1].pair = last;
}

void loongi_schedule_pair_last(loong_schedule_t *s, int rank)
{
    pair_last(&s->ranks[rank]);
}

loong_status_t loongi_entry_put(const loong_entry_writer_t *w,
                                loong_entry_t entry)
{
    entry.component = entry.component < 0 ? -1 : w->component;
    return append(w->schedule->ctx, w->list, &entry);
}

/* ---- everything around the computations --------------------------------- */

/* A send or receive of a computation, unless the pipeline ends there. */
static loong_status_t put_transfer(const loong_entry_writer_t *w,
                                   loong_entry_kind_t kind,
                                   const loong_entry_t *work)
{
    bool after = kind == LOONG_ENTRY_SEND_FORWARD ||
                 kind == LOONG_ENTRY_RECV_BACKWARD;
    int stage = loongi_schedule_stage(w->schedule, w->rank, work->chunk) +
                (after ? 1 : -1);
    if (stage < 0 || stage >= loongi_schedule_stages(w->schedule)) {
        return LOONG_OK;
    }
    loong_entry_t entry = loongi_entry(kind, work->chunk, work->micro_batch);
    entry.peer = loongi_schedule_rank(w->schedule, stage);
    return loongi_entry_put(w, entry);
}

loong_status_t loongi_entry_put_receive(const loong_entry_writer_t *w,
                                        const loong_entry_t *work)
{
    return work->kind == LOONG_ENTRY_F || work->kind == LOONG_ENTRY_E
               ? put_transfer(w, LOONG_ENTRY_RECV_FORWARD, work)
               : LOONG_OK;
}

/* The gradient may come as soon as there is a slot for it: the rank that sends
 * it never waits for this one. */
static loong_status_t put_after(const loong_entry_writer_t *w,
                                const loong_entry_t *work)
{
    if (work->kind == LOONG_ENTRY_B) {
        return put_transfer(w, LOONG_ENTRY_SEND_BACKWARD, work);
    }
    if (work->kind == LOONG_ENTRY_W) {
        return LOONG_OK;
    }
    LOONG_TRY(put_transfer(w, LOONG_ENTRY_SEND_FORWARD, work));
    return work->kind == LOONG_ENTRY_E
               ? LOONG_OK
               : put_transfer(w, LOONG_ENTRY_RECV_BACKWARD, work);
}

loong_status_t loongi_entry_put_unit(const loong_entry_writer_t *w, int count,
                                     const loong_entry_t *work, bool received)
{
    for (int i = 0; i < count && !received; i++) {
        LOONG_TRY(loongi_entry_put_receive(w, &work[i]));
    }
    for (int i = 0; i < count; i++) {
        LOONG_TRY(loongi_entry_put(
            w, loongi_entry(work[i].kind, work[i].chunk, work[i].micro_batch)));
    }
    if (count == 2) {
        pair_last(w->list);
    }
    for (int i = 0; i < count; i++) {
        LOONG_TRY(put_after(w, &work[i]));
    }
    return LOONG_OK;
}

loong_status_t loongi_entry_put_reduce(const loong_entry_writer_t *w)
{
    for (int c = 0; c < w->schedule->params.chunks; c++) {
        LOONG_TRY(
            loongi_entry_put(w, loongi_entry(LOONG_ENTRY_REDUCE, c, -1)));
    }
    return LOONG_OK;
}

static loong_status_t put_all(const loong_entry_writer_t *w, int64_t count,
                              const loong_entry_t *work)
{
    for (int64_t k = 0; k < count;) {
        int n = work[k].pair >= 0 ? 2 : 1;
        LOONG_TRY(loongi_entry_put_unit(w, n, &work[k], false));
        k += n;
    }
    if (!w->schedule->kind->evaluate) {
        LOONG_TRY(loongi_entry_put_reduce(w));
        LOONG_TRY(loongi_entry_put(w, loongi_entry(LOONG_ENTRY_U, -1, -1)));
    }
    return LOONG_OK;
}

static loong_status_t surround(const loong_entry_writer_t *w)
{
    loong_rank_schedule_t *r = w->list;
    loong_entry_t *work = r->entries;
    int64_t count = r->num_entries;
    r->entries = NULL;
    r->num_entries = r->cap_entries = 0;
    loong_status_t status = put_all(w, count, work);
    loongi_free(w->schedule->ctx, work);
    return status;
}

/* ---- the whole ---------------------------------------------------------- */

static const loong_schedule_kind_t *find_kind(const char *name)
{
    for (int i = 0; loongi_schedule_kinds[i] != NULL; i++) {
        if (strcmp(loongi_schedule_kinds[i]->name, name) == 0) {
            return loongi_schedule_kinds[i];
        }
    }
    return NULL;
}

bool loongi_schedule_folded(const char *name,
                            const loong_schedule_params_t *params)
{
    const loong_schedule_kind_t *kind = find_kind(name);
    return params->folded || (kind != NULL && kind->folded);
}

const char *loongi_schedule_resolve(const char *name, int ranks, int chunks)
{
    if (strcmp(name, "auto") != 0) {
        return name;
    }
    return ranks == 1 ? "one_stage" : chunks > 1 ? "interleaved" : "1f1b";
}

loong_status_t loongi_schedule_accept(loong_context_t *ctx, const char *name,
                                      const loong_schedule_params_t *params)
{
    const loong_schedule_params_t *p = params;
    const loong_schedule_kind_t *kind = find_kind(name);
    char reason[LOONG_REASON_SIZE] = "";
    loong_text_t names = loongi_text_begin(ctx);
    for (int i = 0; kind == NULL && loongi_schedule_kinds[i] != NULL; i++) {
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "",
                           loongi_schedule_kinds[i]->name);
    }
    loong_status_t status = LOONG_OK;
    if (kind == NULL) {
        status = LOONG_FAIL(ctx, LOONG_ERR_ARG,
                            "there is no schedule %s; there are %s", name,
                            loongi_text_get(&names));
    }
    loongi_text_free(&names);
    LOONG_TRY(status);
    loong_problems_t problems = loongi_problems_begin(ctx);
    if (kind->accepts != NULL && !kind->accepts(p, reason)) {
        loongi_problems_add(&problems, "%s", reason);
    }
    if (p->pair && !kind->pairs) {
        loongi_problems_add(&problems, "it has no pairs of forward and "
                                       "backward");
    }
    snprintf(reason, sizeof(reason), "schedule %s", name);
    return loongi_problems_end(&problems, LOONG_ERR_ARG, reason);
}

static loong_status_t fill(loong_schedule_t *s)
{
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)s->params.ranks,
                            sizeof(*s->ranks), "schedule", &s->ranks));
    for (int r = 0; r < s->params.ranks; r++) {
        LOONG_TRY(loongi_calloc(s->ctx, (size_t)s->params.chunks,
                                sizeof(*s->ranks[r].chunks),
                                "slots of a schedule", &s->ranks[r].chunks));
        loong_entry_writer_t w = {s, r, 0, &s->ranks[r], NULL};
        LOONG_TRY(s->kind->order(s, r));
        LOONG_TRY(surround(&w));
        LOONG_TRY(loongi_schedule_colour(&w, s->ranks[r].chunks));
    }
    return LOONG_OK;
}

loong_status_t loongi_schedule_create(loong_context_t *ctx, const char *name,
                                      const loong_schedule_params_t *params,
                                      loong_schedule_t **schedule_p)
{
    loong_schedule_t *s = NULL;
    LOONG_CHECK(ctx, params->ranks >= 1 && params->chunks >= 1 &&
                         params->micro_batches >= 1, LOONG_ERR_ARG,
                "schedule %s: %d ranks, %d chunks, %d micro-batches; at least "
                "1 of each is wanted", name, params->ranks, params->chunks,
                params->micro_batches);
    LOONG_TRY(loongi_schedule_accept(ctx, name, params));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "schedule", &s));
    s->ctx = ctx;
    s->kind = find_kind(name);
    s->params = *params;
    s->params.folded = loongi_schedule_folded(name, params);
    loong_status_t status = fill(s);
    if (status != LOONG_OK) {
        loongi_schedule_destroy(&s);
        return status;
    }
    *schedule_p = s;
    return LOONG_OK;
}

void loongi_schedule_destroy(loong_schedule_t **schedule_p)
{
    loong_schedule_t *s = *schedule_p;
    if (s == NULL) {
        return;
    }
    for (int r = 0; r < s->params.ranks && s->ranks != NULL; r++) {
        loongi_free(s->ctx, s->ranks[r].entries);
        loongi_free(s->ctx, s->ranks[r].chunks);
    }
    loongi_free(s->ctx, s->ranks);
    loongi_free(s->ctx, s);
    *schedule_p = NULL;
}
