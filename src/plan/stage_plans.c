/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans the other ranks of a pipeline, for predictions and the texts of a
 * plan. Called by describe.c, memory_check.c and predict.c. Read stage_plans.h
 * before. */
#include "stage_plans.h"

#include "devices.h"
#include "upstream.h"

#include <stdio.h>

loong_status_t loongi_stage_plans_model(const loong_plan_t *plan, int rank,
                                        loong_model_t **model_p)
{
    const loong_model_t *m = plan->component->model;
    loong_component_params_t params[LOONG_MAX_COMPONENTS];
    for (int i = 0; i < m->num_components; i++) {
        loong_component_params_t *p = &params[i];
        *p = m->components[i]->params;
        LOONG_TRY(loongi_upstream_place(plan, rank, p));
        if (loongi_devices_are_mixed(plan)) {
            p->compile.device = loongi_devices_kind(plan, rank);
            p->shards.device = p->compile.device;
        }
    }
    loong_status_t status = loongi_model_create_rank(m, params, model_p);
    if (status != LOONG_OK) {
        loongi_error_note(plan->ctx, "while planning rank %d", rank);
    }
    return status;
}

static int64_t bytes_of(const loong_component_t *c)
{
    int64_t sum = 0;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        sum += c->model->bytes[b];
    }
    return sum;
}

static void destroy_plan(const loong_plan_t *plan, loong_component_t *c)
{
    if (c != NULL && c != plan->component) {
        loong_model_t *model = c->model;
        loongi_model_destroy(&model);
    }
}

/* Keeps the larger one of what is planned and what a rank of the job holds. */
static loong_status_t try_rank(loong_plan_t *plan, int rank,
                               loong_component_t **largest_p)
{
    loong_model_t *model = plan->component->model;
    if (rank != loongi_model_rank(model)) {
        LOONG_TRY(loongi_stage_plans_model(plan, rank, &model));
    }
    loong_component_t *c = model->components[model->num_components - 1];
    bool larger = *largest_p == NULL || bytes_of(c) > bytes_of(*largest_p);
    destroy_plan(plan, larger ? *largest_p : c);
    *largest_p = larger ? c : *largest_p;
    return LOONG_OK;
}

/* Where components have layouts of their own no rank is known to hold most:
 * some are tried, in all stages together as many as take no time. */
enum { TRIED = 8 };

static loong_status_t plan_stage(loong_plan_t *plan, int rank)
{
    const int *size = plan->mesh.size;
    int of_stage = plan->mesh.world / size[LOONG_AXIS_PP];
    int stage = loong_mesh_member(&plan->mesh, LOONG_GROUP_PP, rank);
    bool alone = plan->pictures.most == 0;
    int first =
        alone ? stage - stage % size[LOONG_AXIS_TP] + size[LOONG_AXIS_TP] - 1
              : stage - stage % of_stage;
    int count =
        alone ? 1
              : LOONG_MIN(of_stage, LOONG_MAX(TRIED / size[LOONG_AXIS_PP], 1));
    for (int r = first; r < first + count; r++) {
        LOONG_TRY(try_rank(plan, loongi_job_rank(&plan->component->params, r),
                           &plan->stage_plans[rank]));
    }
    return LOONG_OK;
}

/* The first component that a rank of the job has, the last one before all. */
static int main_component(const loong_model_t *m, int rank)
{
    int c = m->num_components - 1;
    if (loongi_component_rank(&m->components[c]->params, rank) >= 0) {
        return c;
    }
    c = 0;
    while (loongi_component_rank(&m->components[c]->params, rank) < 0) {
        c++;
    }
    return c;
}

static bool is_planned(const loong_plan_t *plan, int component, int stage)
{
    for (int i = 0; i < plan->num_stage_plans; i++) {
        const loong_component_t *c =
            plan->stage_plans[i]->model->components[component];
        if (c->num_stages > 0 && c->params.mesh.coord[LOONG_AXIS_PP] == stage) {
            return true;
        }
    }
    return false;
}

/* The largest of the ranks without the last component that a component is the
 * first of, on a stage of it; where there is none, and no other plan has this,
 * a rank that has. */
static loong_status_t plan_component(loong_plan_t *plan, int component,
                                     int stage)
{
    const loong_model_t *m = plan->component->model;
    const loong_component_params_t *p = &m->components[component]->params;
    loong_component_t **planned = &plan->stage_plans[plan->num_stage_plans];
    int of_stage = p->mesh.world / p->mesh.size[LOONG_AXIS_PP];
    for (int i = 0, tried = 0; i < of_stage && tried < TRIED; i++) {
        int rank = loongi_job_rank(p, stage * of_stage + i);
        if (main_component(m, rank) == component) {
            LOONG_TRY(try_rank(plan, rank, planned));
            tried++;
        }
    }
    if (*planned == NULL && !is_planned(plan, component, stage)) {
        LOONG_TRY(
            try_rank(plan, loongi_job_rank(p, stage * of_stage), planned));
    }
    plan->num_stage_plans += *planned != NULL;
    return LOONG_OK;
}

/* Ranks of the pipelines of all components. */
static int most_plans(const loong_plan_t *plan)
{
    const loong_model_t *m = plan->component->model;
    int most = 0;
    for (int i = 0; i < m->num_components; i++) {
        most += m->components[i]->params.mesh.size[LOONG_AXIS_PP];
    }
    return most;
}

/* Of ranks that are only pretended the largest decides what is enough. */
static void count_memory(loong_plan_t *plan)
{
    if (loong_comm_size(plan->comm) == plan->parallel.ranks ||
        loongi_devices_are_mixed(plan)) {
        return;
    }
    for (int r = 0; r < plan->num_stage_plans; r++) {
        int64_t more =
            LOONG_MAX(bytes_of(plan->stage_plans[r]) - plan->memory.rank, 0);
        plan->memory.rank += more;
        plan->memory.machine += more;
    }
}

loong_status_t loongi_stage_plans_create(loong_plan_t *plan)
{
    int ranks = plan->mesh.size[LOONG_AXIS_PP];
    int others = plan->component->index;
    const loong_model_t *m = plan->component->model;
    if (plan->stage_plans != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)most_plans(plan),
                            sizeof(*plan->stage_plans), "plans of ranks",
                            &plan->stage_plans));
    for (int r = 0; r < ranks; r++) {
        LOONG_TRY(plan_stage(plan, r));
        plan->num_stage_plans++;
    }
    for (int c = 0; c < others; c++) {
        int stages = m->components[c]->params.mesh.size[LOONG_AXIS_PP];
        for (int s = 0; s < stages; s++) {
            LOONG_TRY(plan_component(plan, c, s));
        }
    }
    count_memory(plan);
    return LOONG_OK;
}

void loongi_stage_plans_destroy(loong_plan_t *plan)
{
    for (int r = 0; plan->stage_plans != NULL && r < most_plans(plan); r++) {
        destroy_plan(plan, plan->stage_plans[r]);
    }
    loongi_free(plan->ctx, plan->stage_plans);
    plan->stage_plans = NULL;
    plan->num_stage_plans = 0;
}

/* "0-3, 8-11"; of a rank without these the first component that it has. */
static void print_layers(const loong_component_t *c, char *text, size_t size)
{
    const loong_model_t *m = c->model;
    size_t length = 0;
    text[0] = '\0';
    if (c->params.absent) {
        int other = main_component(m, loongi_model_rank(m));
        snprintf(text, size, "%s", m->components[other]->params.name);
    }
    for (int i = 0; i < c->num_stages && length < size; i++) {
        const loong_stage_split_t *cut = &c->stages[i]->cut;
        const char *comma = length > 0 ? ", " : "";
        if (cut->num_layers > 0) {
            length += (size_t)snprintf(text + length, size - length, "%s%d-%d",
                                       comma, cut->first_layer,
                                       cut->first_layer + cut->num_layers - 1);
        }
    }
}

void loongi_stage_plans_describe(const loong_plan_t *plan, loong_text_t *text)
{
    int ranks = plan->num_stage_plans;
    int64_t used[LOONG_BASE_COUNT] = {0};
    char human[LOONG_HUMAN_SIZE];
    char layers[64];
    loongi_text_printf(text,
                       "memory by stage, of its largest rank:\n"
                       "  %5s  %-12s",
                       "rank", "layers");
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        for (int r = 0; r < ranks; r++) {
            used[b] += plan->stage_plans[r]->model->bytes[b];
        }
        if (used[b] > 0) {
            loongi_text_printf(text, "  %11s",
                               loongi_base_name((loong_base_t)b));
        }
    }
    loongi_text_printf(text, "  %11s\n", "together");
    for (int r = 0; r < ranks; r++) {
        const loong_component_t *c = plan->stage_plans[r];
        print_layers(c, layers, sizeof(layers));
        loongi_text_printf(text, "  %5d  %-12s", loongi_model_rank(c->model),
                           layers);
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            if (used[b] > 0) {
                loongi_text_printf(
                    text, "  %11s",
                    loongi_human_bytes((double)c->model->bytes[b], human));
            }
        }
        loongi_text_printf(text, "  %11s\n",
                           loongi_human_bytes((double)bytes_of(c), human));
    }
}
