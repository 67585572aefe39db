/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes through host memory: what ranks with devices of several kinds read
 * from each other, and, where the recipe says so, what waits for a reader in
 * more micro-batches than its device has windows for. All else goes from device
 * to device, over a communicator of the ranks of an edge in the cell, and
 * another one for gradients. A rank begins what it sends and receives where its
 * list has it, which is a part of one order of all ranks (cell_lists.c);
 * messages with one maker are a group, and a group stands behind what a rank
 * computes before. So the earliest group that has not ended waits for nothing.
 * Called by model.c. Read edges.h and src/engine/links.h before. */
#include <stdio.h>
#include <string.h>

#include "edges.h"

enum { DIRECTIONS = 2 };

/* ---- who has an end ------------------------------------------------------ */

/* Of one direction of an edge, by ranks of the cell. */
typedef struct ends {
    bool *has;
    bool *sends, *receives; /* this rank, to or from those */
} ends_t;

static void mark(const loong_model_t *m, const loong_cell_t *cell, int link,
                 ends_t *ends)
{
    int own = m->ranks.cell_rank;
    for (int64_t i = 0; cell != NULL && i < cell->params.num_messages; i++) {
        const loong_message_t *g = &cell->params.messages[i];
        int edge = loongi_cell_edge(cell, g->edge);
        if (DIRECTIONS * edge + g->backward != link ||
            g->from_rank == g->to_rank) {
            continue;
        }
        ends->has[g->from_rank] = ends->has[g->to_rank] = true;
        if (g->from_rank == own) {
            ends->sends[g->to_rank] = true;
        } else if (g->to_rank == own) {
            ends->receives[g->from_rank] = true;
        }
    }
}

static void forget_ends(const loong_model_t *m, ends_t *ends)
{
    memset(ends->has, 0, (size_t)m->ranks.count);
    memset(ends->sends, 0, (size_t)m->ranks.count);
    memset(ends->receives, 0, (size_t)m->ranks.count);
}

static void add_ends(const loong_model_t *m, int link, ends_t *ends)
{
    mark(m, m->training, link, ends);
    mark(m, m->evaluation, link, ends);
}

static loong_status_t take_ends(const loong_model_t *m, ends_t *ends)
{
    size_t count = (size_t)m->ranks.count;
    bool *marks = NULL;
    LOONG_TRY(loongi_calloc(m->ctx, 3 * count, sizeof(*marks), "ends of edges",
                            &marks));
    *ends = (ends_t){marks, marks + count, marks + 2 * count};
    return LOONG_OK;
}

/* ---- what goes through host memory --------------------------------------- */

static bool is_one_kind(const loong_model_t *m, const ends_t *ends)
{
    const loong_staging_t *s = &m->components[0]->params.resources.staging;
    const char *kind = NULL;
    for (int r = 0; r < m->ranks.count; r++) {
        const char *own =
            s->kinds != NULL ? s->kinds[loongi_model_job_rank(m, r)] : "";
        if (ends->has[r] && (s->always ||
                             (kind != NULL && strcmp(own, kind) != 0))) {
            return false;
        }
        kind = ends->has[r] ? own : kind;
    }
    return true;
}

/* Wait rows of more micro-batches for a component than a device has windows
 * for? */
static bool accumulates(const loong_model_t *m, const loong_cell_t *cell,
                        int component, int back)
{
    for (int i = 0; cell != NULL && i < cell->params.num_components; i++) {
        if (loongi_model_number(m, i) != component) {
            continue;
        }
        for (int c = cell->first_chunk[i]; c < cell->first_chunk[i + 1]; c++) {
            for (int r = 0; r < cell->params.ranks; r++) {
                if (cell->ranks[r].chunks[c].areas[back] > LOONG_EDGE_WINDOWS) {
                    return true;
                }
            }
        }
    }
    return false;
}

loong_status_t loongi_edges_settle(loong_model_t *model)
{
    loong_model_t *m = model;
    const char *asked = m->components[m->num_components - 1]->params.features;
    bool host = asked != NULL && strcmp(asked, "host") == 0;
    ends_t ends;
    LOONG_TRY(take_ends(m, &ends));
    for (int i = 0; i < DIRECTIONS * m->num_components; i++) {
        int reader = i / DIRECTIONS;
        int back = i % DIRECTIONS;
        forget_ends(m, &ends);
        for (int e = 0; e < m->num_edges; e++) {
            if (loongi_edge_reader(&m->edges[e], back) == reader) {
                add_ends(m, DIRECTIONS * e + back, &ends);
            }
        }
        m->on_host[reader][back] =
            !is_one_kind(m, &ends) ||
            (host && accumulates(m, m->training, reader, back));
    }
    loongi_free(m->ctx, ends.has);
    return LOONG_OK;
}

static bool has_end(const loong_model_t *m, const loong_cell_t *cell, int link)
{
    int own = m->ranks.cell_rank;
    for (int64_t i = 0; cell != NULL && i < cell->params.num_messages; i++) {
        const loong_message_t *g = &cell->params.messages[i];
        int edge = loongi_cell_edge(cell, g->edge);
        if (DIRECTIONS * edge + g->backward == link &&
            g->from_rank != g->to_rank &&
            (g->from_rank == own || g->to_rank == own)) {
            return true;
        }
    }
    return false;
}

bool loongi_edges_has_link(const loong_model_t *model, int edge, bool backward)
{
    int link = DIRECTIONS * edge + backward;
    int reader = loongi_edge_reader(&model->edges[edge], backward);
    return !model->on_host[reader][backward] &&
           (has_end(model, model->training, link) ||
            has_end(model, model->evaluation, link));
}

/* ---- opening ------------------------------------------------------------- */

/* In one order of all ranks: by who sends, then by who receives. */
static void list_messages(const loong_model_t *m, const ends_t *ends,
                          loong_link_params_t *p,
                          loong_link_message_t *messages)
{
    int own = m->ranks.cell_rank;
    int peer = 0;
    p->messages = messages;
    for (int from = 0; from < m->ranks.count; from++) {
        for (int to = 0, at = 0; to < m->ranks.count && from == own; to++) {
            if (ends->sends[to]) {
                messages[p->count++] = (loong_link_message_t){at, true};
            }
            at += ends->has[to];
        }
        if (ends->receives[from]) {
            messages[p->count++] = (loong_link_message_t){peer, false};
        }
        peer += ends->has[from];
    }
}

static loong_status_t open_links(loong_model_t *m, ends_t *ends,
                                 loong_link_params_t *params,
                                 loong_link_message_t *messages)
{
    loong_resources_t *r = m->resources;
    int count = DIRECTIONS * m->num_edges;
    for (int i = 0; i < count; i++) {
        const loong_edge_t *edge = &m->edges[i / DIRECTIONS];
        bool back = i % DIRECTIONS == 1;
        loong_link_params_t *p = &params[i];
        forget_ends(m, ends);
        add_ends(m, i, ends);
        bool mine = !m->on_host[loongi_edge_reader(edge, back)][back] &&
                    ends->has[m->ranks.cell_rank];
        snprintf(p->name, sizeof(p->name), "%s%s", edge->name,
                 back ? ".grad" : "");
        p->color = mine ? loongi_model_job_rank(m, 0) : -1;
        p->key = m->ranks.cell_rank;
        if (mine) {
            list_messages(m, ends, p,
                          &messages[(size_t)i * 2 * (size_t)m->ranks.count]);
        }
    }
    return loongi_links_open(r->ctx, r->device, r->device_world, count, params,
                             &r->edges);
}

loong_status_t loongi_edges_open(loong_model_t *model)
{
    loong_model_t *m = model;
    ends_t ends;
    loong_link_params_t *params = NULL;
    loong_link_message_t *messages = NULL;
    size_t count = DIRECTIONS * (size_t)m->num_edges;
    if (m->resources->device_world == NULL || m->num_edges == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(take_ends(m, &ends));
    loong_status_t status = loongi_calloc(m->ctx, count, sizeof(*params),
                                          "links of edges", &params);
    if (status == LOONG_OK) {
        status = loongi_calloc(m->ctx, count * 2 * (size_t)m->ranks.count,
                               sizeof(*messages), "links of edges", &messages);
    }
    if (status == LOONG_OK) {
        status = open_links(m, &ends, params, messages);
    }
    loongi_free(m->ctx, messages);
    loongi_free(m->ctx, params);
    loongi_free(m->ctx, ends.has);
    return status;
}
