/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates a step with every join. Called by predict.c and predict_rates.c.
 * Read predict_joins.h and src/engine/cell.h before. */
#include "predict_joins.h"

#include <string.h>

#include "edges.h"
#include "upstream.h"

/* A step that is simulated. */
typedef struct variant {
    const loong_plan_t *plan;
    const loong_join_kind_t *join;
    bool alone; /* components that others read are on the first stage alone */
    loong_cell_component_t of[LOONG_MAX_COMPONENTS];
    int32_t *rank; /* room for theirs */
} variant_t;

static const loong_model_t *model_of(const variant_t *v)
{
    return v->plan->component->model;
}

static int last_of(const variant_t *v)
{
    return model_of(v)->num_components - 1;
}

static int ranks_of(const variant_t *v, int component)
{
    return loongi_replica_ranks(&model_of(v)->components[component]->params);
}

/* Those of a replica that share its layers or rows stand or go together. */
static int stage_of(const variant_t *v, int component, int pipeline)
{
    const loong_cell_t *cell = model_of(v)->training;
    int first = pipeline / ranks_of(v, component) * ranks_of(v, component);
    return loongi_cell_pipeline_rank(
        cell, last_of(v), cell->params.components[component].rank[first]);
}

static bool is_kept(const variant_t *v, int component, int32_t rank)
{
    const loong_cell_component_t *of = &v->of[component];
    int i = 0;
    int count = of->replicas * of->params.ranks;
    while (i < count && of->rank[i] != rank) {
        i++;
    }
    return i < count;
}

/* Replicas that compute a micro-batch together. */
static int sharers(const loong_cell_component_t *of)
{
    return of->turn > 0 && of->turn < of->replicas ? of->turn : of->replicas;
}

static void place(variant_t *v)
{
    const loong_model_t *m = model_of(v);
    int32_t *rank = v->rank;
    memcpy(v->of, m->training->params.components,
           (size_t)m->num_components * sizeof(*v->of));
    for (int c = 0; c < last_of(v); c++) {
        loong_cell_component_t *of = &v->of[c];
        const int32_t *all = of->rank;
        int count = 0;
        if (v->join->apart && of->turn == 0) {
            of->turn = (int)loongi_plan_pictures(v->plan, c)->texts *
                       m->ranks.component[last_of(v)].replicas * ranks_of(v, c);
        }
        for (int i = 0; i < of->replicas && v->alone; i++) {
            if (stage_of(v, c, i) == 0) {
                rank[count++] = all[i];
            }
        }
        of->rank = v->alone ? rank : all;
        of->replicas = v->alone ? count : of->replicas;
        rank += count;
    }
}

/* Why there is no step of this kind; empty: there is one. Who is alone on the
 * first stage is there with all its layers. */
static loong_text_t find_reason(const variant_t *v)
{
    const loong_model_t *m = model_of(v);
    loong_context_t *ctx = v->plan->ctx;
    loong_component_params_t params[LOONG_MAX_COMPONENTS];
    loong_text_t reason = loongi_text_begin(ctx);
    for (int c = 0; c < m->num_components; c++) {
        params[c] = m->components[c]->params;
        if (c == last_of(v) || !v->alone || reason.length > 0) {
            continue;
        }
        if (v->of[c].params.ranks > 1) {
            loongi_text_printf(&reason, "%s has %d stages of its own",
                               params[c].name, v->of[c].params.ranks);
        } else if (v->of[c].replicas == 0) {
            loongi_text_printf(&reason, "%s is on other ranks", params[c].name);
        }
    }
    if (v->join->apart &&
        loongi_upstream_apart(v->plan, m->num_components, params, &m->ranks,
                              v->join->name) != LOONG_OK) {
        loongi_text_printf(&reason, "%s", loong_context_error(ctx));
        loong_context_clear_error(ctx);
    }
    return reason;
}

static int64_t keep_messages(const variant_t *v, const loong_cell_edge_t *edges,
                             loong_message_t *messages, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        loong_message_t message = messages[i];
        const loong_cell_edge_t *e = &edges[message.edge];
        int from = message.backward ? e->to : e->from;
        int to = message.backward ? e->from : e->to;
        if ((from == last_of(v) || is_kept(v, from, message.from_rank)) &&
            (to == last_of(v) || is_kept(v, to, message.to_rank))) {
            messages[kept++] = message;
        }
    }
    return kept;
}

static loong_status_t make(const variant_t *v, loong_cell_t **cell_p)
{
    const loong_model_t *m = model_of(v);
    loong_cell_edge_t edges[LOONG_MAX_EDGES];
    loong_message_t *messages = NULL;
    int64_t count = 0;
    loong_status_t status = loongi_edges_messages(
        m, m->training->params.components[last_of(v)].params.micro_batches,
        true, edges, &messages, &count);
    const loong_cell_params_t params = {
        .join = v->join->name,
        .ranks = m->ranks.count,
        .num_components = m->num_components,
        .components = v->of,
        .num_edges = m->num_edges,
        .edges = edges,
        .num_messages = keep_messages(v, edges, messages, count),
        .messages = messages};
    if (status == LOONG_OK) {
        status = loongi_cell_create(m->ctx, &params, cell_p);
    }
    loongi_free(m->ctx, messages);
    return status;
}

/* Programs cost what they do in the plan; where fewer replicas share what there
 * is to compute, each takes longer. */
static void fill_costs(const variant_t *v, const loong_cell_t *cell,
                       loong_stage_cost_t *costs)
{
    const loong_cell_t *planned = model_of(v)->training;
    for (int c = 0; c < cell->params.num_components; c++) {
        int own = cell->forward_of[c];
        double times = (double)sharers(&planned->params.components[own]) /
                       (double)sharers(&v->of[own]);
        int stages = loongi_schedule_stages(cell->schedules[c]);
        for (int i = 0; i < stages; i++) {
            double *to = costs[loongi_cell_stage(cell, c, i)].seconds;
            memcpy(to,
                   v->plan->timeline.costs[loongi_cell_stage(planned, own, i)]
                       .seconds,
                   sizeof(costs->seconds));
            for (int k = 0; k < LOONG_ENTRY_COUNT; k++) {
                loong_entry_t e = loongi_entry((loong_entry_kind_t)k, 0, 0);
                to[k] *= loongi_entry_computes(&e) ? times : 1.0;
            }
            to[LOONG_ENTRY_E] =
                c != own ? to[LOONG_ENTRY_F] : to[LOONG_ENTRY_E];
        }
    }
}

static loong_status_t simulate(const variant_t *v, double *seconds_p)
{
    loong_context_t *ctx = model_of(v)->ctx;
    loong_cell_t *cell = NULL;
    loong_stage_cost_t *costs = NULL;
    loong_simulation_t total = {0};
    LOONG_TRY(make(v, &cell));
    size_t stages =
        (size_t)loongi_cell_stage(cell, cell->params.num_components, 0);
    loong_status_t status =
        loongi_calloc(ctx, stages, sizeof(*costs), "costs of stages", &costs);
    if (status == LOONG_OK) {
        fill_costs(v, cell, costs);
        status = loongi_cell_simulate(cell, costs, NULL, &total);
    }
    *seconds_p = total.seconds;
    loongi_free(ctx, costs);
    loongi_cell_destroy(&cell);
    return status;
}

/* ---- what is told -------------------------------------------------------- */

static loong_status_t tell(loong_plan_t *plan, variant_t *v, double *first)
{
    const char *last = model_of(v)->components[last_of(v)]->params.name;
    double seconds = 0.0;
    place(v);
    loong_text_t reason = find_reason(v);
    loong_status_t status = reason.status;
    loongi_text_printf(&plan->text, "    %-9s ", v->join->name);
    if (status == LOONG_OK && reason.length > 0) {
        loongi_text_printf(&plan->text, "is not there");
    } else if (status == LOONG_OK) {
        status = simulate(v, &seconds);
        *first = *first > 0.0 ? *first : seconds;
        loongi_text_printf(&plan->text, "%10.1f ms, %5.2f times as fast",
                           1e3 * seconds, *first / seconds);
    }
    if (v->alone) {
        loongi_text_printf(&plan->text,
                           " (components before %s on its first stage alone)",
                           last);
    }
    loongi_text_printf(&plan->text, "%s%s\n", reason.length > 0 ? ": " : "",
                       loongi_text_get(&reason));
    loongi_text_free(&reason);
    return status;
}

loong_status_t loongi_predict_joins(loong_plan_t *plan)
{
    const loong_model_t *m = plan->component->model;
    variant_t v = {.plan = plan, .join = loongi_join_kinds[0], .alone = true};
    double first = 0.0;
    if (m->num_components == 1 || plan->num_encoders == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(plan->ctx,
                            (size_t)(m->ranks.count * m->num_components),
                            sizeof(*v.rank), "ranks of joins", &v.rank));
    loongi_text_printf(&plan->text,
                       "  joins, with the same programs, compared to the "
                       "first that is there:\n");
    loong_status_t status =
        plan->mesh.size[LOONG_AXIS_PP] > 1 ? tell(plan, &v, &first) : LOONG_OK;
    v.alone = false;
    for (int i = 0; loongi_join_kinds[i] != NULL && status == LOONG_OK; i++) {
        v.join = loongi_join_kinds[i];
        status = tell(plan, &v, &first);
    }
    loongi_free(plan->ctx, v.rank);
    LOONG_TRY(status);
    return plan->text.status;
}
