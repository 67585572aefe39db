/* SPDX-License-Identifier: Apache-2.0
 *
 * Which edges a model has and what they send; the messages under way are in
 * edge_messages.c. Called by model.c. Read edges.h before. */
#include "edges.h"

#include <string.h>

/* ---- who is bound to whom ------------------------------------------------ */

static int stages_of(const loong_component_t *c)
{
    return c->params.mesh.size[LOONG_AXIS_PP] * c->num_chunks;
}

static bool sends(const loong_component_t *c, const char *name)
{
    int i = 0;
    while (i < c->num_ports &&
           (!c->ports[i].send || strcmp(c->ports[i].name, name) != 0)) {
        i++;
    }
    return i < c->num_ports;
}

static loong_status_t bind_ports(loong_model_t *m, int to)
{
    const loong_component_t *c = m->components[to];
    for (int i = 0; i < c->num_ports; i++) {
        const char *name = c->ports[i].name;
        int from = to - 1;
        if (c->ports[i].send) {
            continue;
        }
        while (from >= 0 && !sends(m->components[from], name)) {
            from--;
        }
        LOONG_CHECK(m->ctx, from >= 0, LOONG_ERR_CONFIG,
                    "model: %s reads '%s', which no component before it makes",
                    c->params.name, name);
        LOONG_CHECK(m->ctx, m->num_edges < LOONG_MAX_EDGES,
                    LOONG_ERR_UNSUPPORTED, "more than %d edges",
                    LOONG_MAX_EDGES);
        int stage = c->ports[i].first ? 0 : stages_of(c) - 1;
        LOONG_CHECK(m->ctx,
                    stage == 0 || c->params.mesh.size[LOONG_AXIS_PP] == 1,
                    LOONG_ERR_UNSUPPORTED,
                    "model: %s reads '%s' in the last of %d stages; on the "
                    "first rank of a pipeline is there",
                    c->params.name, name, stages_of(c));
        m->edges[m->num_edges++] =
            (loong_edge_t){from, to, stage, name, false};
    }
    return LOONG_OK;
}

/* ---- who is trained ------------------------------------------------------ */

static bool has_trained(const loong_component_t *c)
{
    int64_t i = 0;
    while (i < c->num_whole && c->whole[i].frozen) {
        i++;
    }
    return i < c->num_whole;
}

/* Upstream something must be trained, downstream there must be a loss. */
static loong_status_t derive(loong_model_t *m)
{
    bool trained[LOONG_MAX_COMPONENTS];
    bool reached[LOONG_MAX_COMPONENTS];
    for (int i = 0; i < m->num_components; i++) {
        const loong_component_t *c = m->components[i];
        reached[i] = c->num_losses > 0;
        trained[i] = c->params.train && has_trained(c);
        for (int e = 0; e < m->num_edges; e++) {
            bool into = m->edges[e].to == i && trained[m->edges[e].from];
            trained[i] = trained[i] || into;
        }
    }
    for (int e = m->num_edges - 1; e >= 0; e--) {
        loong_edge_t *edge = &m->edges[e];
        reached[edge->from] = reached[edge->from] || reached[edge->to];
        edge->gradient = trained[edge->from] && reached[edge->to];
    }
    const loong_component_t *last = m->components[m->num_components - 1];
    for (int i = 0; i < m->num_components; i++) {
        loong_component_t *c = m->components[i];
        LOONG_CHECK(m->ctx, c == last || !trained[i] || c->num_losses == 0,
                    LOONG_ERR_CONFIG,
                    "model: %s declares a loss '%s', which nothing reports: "
                    "losses are those of %s",
                    c->params.name, c->losses[0].name, last->params.name);
        const char *keys = c->params.family->loss_keys;
        LOONG_CHECK(m->ctx, !trained[i] || reached[i], LOONG_ERR_CONFIG,
                    "model: %s is trained, but no loss reads what it makes%s%s",
                    c->params.name,
                    keys != NULL ? ": it needs a component that does, or of "
                                   "its own keys "
                                 : "",
                    keys != NULL ? keys : "");
        c->params.train = c == last ? c->params.train : trained[i];
    }
    return LOONG_OK;
}

/* A port has a gradient when some edge of it has; all others are still. */
static void mark_ports(const loong_model_t *m, int component)
{
    loong_component_t *c = m->components[component];
    c->params.num_still = 0; /* the parameters may be those of a peer's plan */
    for (int i = 0; i < c->num_ports; i++) {
        bool gradient = false;
        for (int e = 0; e < m->num_edges; e++) {
            const loong_edge_t *edge = &m->edges[e];
            int end = c->ports[i].send ? edge->from : edge->to;
            gradient = gradient || (end == component && edge->gradient &&
                                    strcmp(edge->name, c->ports[i].name) == 0);
        }
        if (!gradient) {
            c->params.still[c->params.num_still++] = c->ports[i].name;
        }
    }
}

/* Edges stand in the order of what reads them: one whose reader comes later
 * knows already who reads that. */
loong_status_t loongi_edges_find(loong_model_t *model)
{
    loong_model_t *m = model;
    for (int i = 0; i < m->num_components; i++) {
        LOONG_TRY(bind_ports(m, i));
    }
    LOONG_TRY(derive(m));
    for (int i = 0; i < m->num_components; i++) {
        mark_ports(m, i);
    }
    return LOONG_OK;
}

/* ---- the messages of a cell ---------------------------------------------- */

typedef struct lister {
    loong_context_t *ctx;
    loong_message_t *messages;
    int64_t count, cap;
} lister_t;

/* The ranks of the cell that have a stage of a component: the first `tp` are
 * those of one replica, or of its first share of rows (CP), and so on. */
typedef struct end {
    int count;
    const int32_t *rank; /* every `stride`-th */
    int stride;
    int tp;
    bool split; /* each rank has a part of the rows */
} end_t;

static end_t end_of(const loong_model_t *m, int component, int stage)
{
    const loong_component_t *c = m->components[component];
    const loong_component_place_t *place = &m->ranks.component[component];
    int tp = c->params.mesh.size[LOONG_AXIS_TP];
    int ranks = c->params.mesh.size[LOONG_AXIS_PP];
    end_t end = {place->pipelines, place->rank + stage % ranks, ranks, tp,
                 tp > 1 && c->params.request.sequence_parallel};
    return end;
}

static int rank_at(const end_t *end, int i)
{
    return end->rank[i * end->stride];
}

static loong_status_t add(lister_t *l, loong_message_t message)
{
    LOONG_TRY(loongi_grow(l->ctx, &l->messages, &l->cap, l->count + 1,
                          sizeof(*l->messages), "messages of edges"));
    l->messages[l->count++] = message;
    return LOONG_OK;
}

/* Ranks of one replica, or share, have equal rows, unless these are split: one
 * of them sends, itself where it is the one that receives. */
static loong_status_t add_replica(lister_t *l, const end_t *from, int replica,
                                  int number, loong_message_t message)
{
    int first = replica * from->tp;
    int chosen = number % from->tp;
    for (int i = 0; i < from->tp; i++) {
        chosen = rank_at(from, first + i) == message.to_rank ? i : chosen;
    }
    for (int i = 0; i < from->tp; i++) {
        if (from->split || i == chosen) {
            message.from_rank = rank_at(from, first + i);
            LOONG_TRY(add(l, message));
        }
    }
    return LOONG_OK;
}

static loong_status_t add_edge(lister_t *l, const end_t *from, const end_t *to,
                               loong_message_t message)
{
    for (int r = 0; r < to->count; r++) {
        message.to_rank = rank_at(to, r);
        for (int replica = 0; replica < from->count / from->tp; replica++) {
            LOONG_TRY(add_replica(l, from, replica, r, message));
        }
    }
    return LOONG_OK;
}

/* The micro-batches at the source of an edge that share samples with one at its
 * other end. */
typedef struct span {
    int begin, end;
} span_t;

static span_t made_of(const loong_model_t *m, const loong_edge_t *edge,
                      int micro_batch, int made)
{
    int64_t from =
        LOONG_MAX(m->components[edge->from]->params.micro_batch_size, 1);
    int64_t to = LOONG_MAX(m->components[edge->to]->params.micro_batch_size, 1);
    int64_t begin = micro_batch * to;
    int64_t end = LOONG_MIN((begin + to + from - 1) / from, made);
    return (span_t){(int)(begin / from), (int)end};
}

loong_status_t loongi_edges_messages(const loong_model_t *model,
                                     int micro_batches, bool train,
                                     loong_cell_edge_t *edges,
                                     loong_message_t **messages_p,
                                     int64_t *count_p)
{
    const loong_model_t *m = model;
    lister_t l = {.ctx = m->ctx};
    loong_status_t status = LOONG_OK;
    for (int e = 0; e < m->num_edges; e++) {
        const loong_edge_t *edge = &m->edges[e];
        bool back = train && edge->gradient;
        int from_stage = stages_of(m->components[edge->from]) - 1;
        end_t ends[] = {end_of(m, edge->from, from_stage),
                        end_of(m, edge->to, edge->to_stage)};
        edges[e] = (loong_cell_edge_t){edge->from, edge->to, from_stage,
                                       edge->to_stage, back};
        int count = loongi_model_micro_batches(m, edge->from, micro_batches);
        int read = loongi_model_micro_batches(m, edge->to, micro_batches);
        for (int b = 0; b < read && status == LOONG_OK; b++) {
            span_t made = made_of(m, edge, b, count);
            for (int a = made.begin; a < made.end && status == LOONG_OK; a++) {
                loong_message_t message = {e, false, 0, a, 0, b};
                status = add_edge(&l, &ends[0], &ends[1], message);
                message = (loong_message_t){e, true, 0, b, 0, a};
                if (status == LOONG_OK && back) {
                    status = add_edge(&l, &ends[1], &ends[0], message);
                }
            }
        }
    }
    *messages_p = l.messages;
    *count_p = l.count;
    return status;
}
