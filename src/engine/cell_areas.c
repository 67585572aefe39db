/* SPDX-License-Identifier: Apache-2.0
 *
 * Areas of EDGE: where rows of an edge arrive for one micro-batch of who reads
 * them, from the first message of it to the last computation of that
 * micro-batch. Given out in the order of the list, lowest first. */
#include "cell_impl.h"

typedef struct areas {
    const loong_cell_t *cell;
    loong_rank_schedule_t *list;
    int64_t *last;  /* per micro-batch: its last computation, -1: none */
    int32_t *index; /* per micro-batch: its area, -1: none */
    bool *busy;     /* per area */
    int32_t used;
} areas_t;

static int32_t take(areas_t *a)
{
    int32_t i = 0;
    while (a->busy[i]) {
        i++;
    }
    a->busy[i] = true;
    a->used = LOONG_MAX(a->used, i + 1);
    return i;
}

static bool arrives(const areas_t *a, const loong_entry_t *e, int edge,
                    bool backward)
{
    const loong_message_t *m =
        e->message >= 0 && e->kind != LOONG_ENTRY_SEND_EDGE
            ? &a->cell->params.messages[e->message]
            : NULL;
    return m != NULL && m->edge == edge && m->backward == backward;
}

/* The areas of one edge and direction; `end` is who reads them. */
static void colour(areas_t *a, int edge, bool backward,
                   const loong_message_end_t *end)
{
    loong_rank_schedule_t *r = a->list;
    int total = a->cell->params.components[end->component].params.micro_batches;
    a->used = 0;
    for (int m = 0; m < total; m++) {
        a->last[m] = -1;
        a->index[m] = -1;
        a->busy[m] = false;
    }
    for (int64_t k = 0; k < r->num_entries; k++) {
        const loong_entry_t *e = &r->entries[k];
        if (e->component == end->component && e->chunk == end->chunk &&
            loongi_is_computation(e->kind)) {
            a->last[e->micro_batch] = k;
        }
    }
    for (int64_t k = 0; k < r->num_entries; k++) {
        loong_entry_t *e = &r->entries[k];
        if (arrives(a, e, edge, backward)) {
            int32_t m = a->cell->params.messages[e->message].to_micro_batch;
            a->index[m] = a->index[m] < 0 ? take(a) : a->index[m];
            e->area = a->index[m];
        } else if (e->component == end->component && e->chunk == end->chunk &&
                   e->micro_batch >= 0 && a->last[e->micro_batch] == k &&
                   a->index[e->micro_batch] >= 0) {
            a->busy[a->index[e->micro_batch]] = false;
        }
    }
}

loong_status_t loongi_cell_colour(loong_cell_t *cell, int rank)
{
    const loong_cell_params_t *p = &cell->params;
    areas_t a = {cell, &cell->ranks[rank].list, NULL, NULL, NULL, 0};
    size_t most = 1;
    for (int c = 0; c < p->num_components; c++) {
        most = LOONG_MAX(most, (size_t)p->components[c].params.micro_batches);
    }
    LOONG_TRY(loongi_calloc(
        cell->ctx, most, sizeof(*a.last) + sizeof(*a.index) + sizeof(*a.busy),
        "areas of a cell", &a.last));
    a.index = (int32_t *)(a.last + most);
    a.busy = (bool *)(a.index + most);
    for (int i = 0; i < 2 * p->num_edges; i++) {
        loong_message_t m = {i / 2, i % 2 == 1, rank, 0, rank, 0};
        loong_message_end_t end = loongi_message_to(cell, &m);
        if (end.chunk >= 0) {
            colour(&a, i / 2, i % 2 == 1, &end);
            cell->ranks[rank].areas[i] = a.used;
        }
    }
    loongi_free(cell->ctx, a.last);
    return LOONG_OK;
}
