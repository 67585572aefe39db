/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans the other ranks of a pipeline, for predictions and the texts of a
 * plan. Called by describe.c, memory_check.c and predict.c. Read stage_plans.h
 * before. */
#include "stage_plans.h"

#include <stdio.h>
#include <string.h>

#include "devices.h"
#include "plan_shares.h"
#include "planned.h"
#include "predict.h"
#include "upstream.h"

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
            LOONG_TRY(
                loongi_device_check_planned(plan->ctx, p->compile.device));
            p->shards.device = p->compile.device;
        }
    }
    if (plan->shares.weights != NULL) {
        loong_component_params_t *last = &params[m->num_components - 1];
        LOONG_TRY(loongi_to_int(
            plan->ctx,
            loongi_shares_of_rank(plan, plan->set->global_batch_size,
                                  last->mesh.coord[LOONG_AXIS_DP]),
            "micro-batches of a step", &last->micro_batches));
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

/* ---- pipelines ----------------------------------------------------------- */

/* The rank of the component that has a stage of a data-parallel rank, where
 * tensor and context parallel ones are those of this rank. */
static int rank_of_stage(const loong_plan_t *plan, int replica, int stage)
{
    const int *size = plan->mesh.size;
    int apart = size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP];
    return loong_mesh_member(&plan->mesh, LOONG_GROUP_PP, stage) +
           (replica - plan->mesh.coord[LOONG_AXIS_DP]) * apart;
}

bool loongi_stage_plans_alike(const loong_plan_t *plan, int a, int b)
{
    const loong_component_params_t *p = &plan->component->params;
    int64_t samples = plan->set->global_batch_size;
    bool alike = loongi_shares_of_rank(plan, samples, a) ==
                 loongi_shares_of_rank(plan, samples, b);
    for (int s = 0; s < plan->mesh.size[LOONG_AXIS_PP] && alike; s++) {
        int of[2] = {loongi_job_rank(p, rank_of_stage(plan, a, s)),
                     loongi_job_rank(p, rank_of_stage(plan, b, s))};
        alike = strcmp(loongi_devices_kind(plan, of[0]),
                       loongi_devices_kind(plan, of[1])) == 0;
    }
    return alike;
}

int loongi_stage_plans_replica(const loong_plan_t *plan, int index)
{
    int own = plan->mesh.coord[LOONG_AXIS_DP];
    for (int r = 0; r < plan->mesh.size[LOONG_AXIS_DP] && index > 0; r++) {
        bool known = loongi_stage_plans_alike(plan, r, own);
        for (int q = 0; q < r && !known; q++) {
            known = loongi_stage_plans_alike(plan, r, q);
        }
        index -= !known;
        if (index == 0) {
            return r;
        }
    }
    return own;
}

/* A cell of several components has all of its replicas. */
static int count_pipelines(const loong_plan_t *plan)
{
    int own = plan->mesh.coord[LOONG_AXIS_DP];
    int count = 1;
    while (plan->component->index == 0 &&
           count < plan->mesh.size[LOONG_AXIS_DP] &&
           loongi_stage_plans_replica(plan, count) != own) {
        count++;
    }
    return count;
}

int loongi_stage_plans_own(const loong_plan_t *plan)
{
    return plan->num_stage_plans -
           (plan->num_pipelines - 1) * plan->mesh.size[LOONG_AXIS_PP];
}

int64_t loongi_stage_plans_bytes(const loong_plan_t *plan, int index)
{
    return bytes_of(plan->stage_plans[index]);
}

const char *loongi_stage_plans_kind(const loong_plan_t *plan, int index)
{
    return loongi_devices_kind(
        plan, loongi_model_rank(plan->stage_plans[index]->model));
}

/* ---- ranks --------------------------------------------------------------- */

/* Where components have layouts of their own no rank is known to hold most:
 * some are tried, in all stages together as many as take no time. */
enum { TRIED = 8 };

static loong_status_t plan_stage(loong_plan_t *plan, int replica, int rank)
{
    const int *size = plan->mesh.size;
    int of_stage = plan->mesh.world / size[LOONG_AXIS_PP];
    int stage = rank_of_stage(plan, replica, rank);
    bool alone = plan->num_encoders == 0;
    int first =
        alone ? stage - stage % size[LOONG_AXIS_TP] + size[LOONG_AXIS_TP] - 1
              : stage - stage % of_stage;
    int count =
        alone ? 1
              : LOONG_MIN(of_stage, LOONG_MAX(TRIED / size[LOONG_AXIS_PP], 1));
    for (int r = first; r < first + count; r++) {
        LOONG_TRY(try_rank(plan, loongi_job_rank(&plan->component->params, r),
                           &plan->stage_plans[plan->num_stage_plans]));
    }
    plan->num_stage_plans++;
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

/* Is a rank on a device of the same kind planned, that is of the same stage of
 * a component, its first one? */
static bool is_kind_planned(const loong_plan_t *plan, int component, int stage,
                            const char *kind)
{
    for (int i = 0; i < plan->num_stage_plans; i++) {
        const loong_model_t *m = plan->stage_plans[i]->model;
        if (main_component(m, loongi_model_rank(m)) == component &&
            m->components[component]->params.mesh.coord[LOONG_AXIS_PP] ==
                stage &&
            strcmp(loongi_stage_plans_kind(plan, i), kind) == 0) {
            return true;
        }
    }
    return false;
}

/* One for each kind of device that holds a stage of a component and is not
 * planned yet. */
static loong_status_t plan_kinds(loong_plan_t *plan, int component, int stage)
{
    const loong_model_t *m = plan->component->model;
    const loong_component_params_t *p = &m->components[component]->params;
    int of_stage = p->mesh.world / p->mesh.size[LOONG_AXIS_PP];
    for (int i = 0; i < of_stage; i++) {
        int rank = loongi_job_rank(p, stage * of_stage + i);
        if (main_component(m, rank) == component &&
            !is_kind_planned(plan, component, stage,
                             loongi_devices_kind(plan, rank))) {
            LOONG_TRY(try_rank(plan, rank,
                               &plan->stage_plans[plan->num_stage_plans]));
            plan->num_stage_plans++;
        }
    }
    return LOONG_OK;
}

/* Ranks of the pipelines of all components, on each of the kinds of devices. */
static int most_plans(const loong_plan_t *plan)
{
    const loong_model_t *m = plan->component->model;
    int64_t kinds = loong_recipe_count(plan->recipe, "devices");
    int most = (plan->num_pipelines - 1) * plan->mesh.size[LOONG_AXIS_PP];
    for (int i = 0; i < m->num_components; i++) {
        most += (1 + (int)kinds) *
                m->components[i]->params.mesh.size[LOONG_AXIS_PP];
    }
    return most;
}

/* Of ranks that are only pretended the largest decides what is enough. */
static void count_memory(loong_plan_t *plan)
{
    const char *own = loong_device_name(plan->device);
    if (loong_comm_size(plan->comm) == plan->parallel.ranks) {
        return;
    }
    for (int r = 0; r < plan->num_stage_plans; r++) {
        bool other = loongi_devices_are_mixed(plan) &&
                     strcmp(loongi_stage_plans_kind(plan, r), own) != 0;
        int64_t bytes = other ? 0 : bytes_of(plan->stage_plans[r]);
        int64_t more = LOONG_MAX(bytes - plan->memory.rank, 0);
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
    plan->num_pipelines = count_pipelines(plan);
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)most_plans(plan),
                            sizeof(*plan->stage_plans), "plans of ranks",
                            &plan->stage_plans));
    for (int i = 0; i < ranks * plan->num_pipelines; i++) {
        LOONG_TRY(plan_stage(plan, loongi_stage_plans_replica(plan, i / ranks),
                             i % ranks));
    }
    for (int c = 0; c < others; c++) {
        int stages = m->components[c]->params.mesh.size[LOONG_AXIS_PP];
        for (int s = 0; s < stages; s++) {
            LOONG_TRY(plan_component(plan, c, s));
        }
    }
    bool mixed = others > 0 && loongi_devices_are_mixed(plan);
    for (int c = 0; c <= others && mixed; c++) {
        int stages = m->components[c]->params.mesh.size[LOONG_AXIS_PP];
        for (int s = 0; s < stages; s++) {
            LOONG_TRY(plan_kinds(plan, c, s));
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
    plan->num_pipelines = plan->num_stage_plans = 0;
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

/* "  of 96.0 GiB, xpu:p800_press (press figures)" */
static void print_device(const loong_plan_t *plan, int index,
                         loong_text_t *text)
{
    char human[LOONG_HUMAN_SIZE];
    const char *kind = loongi_stage_plans_kind(plan, index);
    loong_device_rates_t rates = loongi_predict_rates(plan, kind);
    if (rates.name != NULL) {
        loongi_text_printf(text, "  of %s, %s:%s (%s)",
                           loongi_human_bytes(rates.memory, human), kind,
                           rates.name, rates.source);
    } else {
        loongi_text_printf(text, "  %s", kind);
    }
}

void loongi_stage_plans_describe(const loong_plan_t *plan, loong_text_t *text)
{
    int ranks = plan->num_stage_plans;
    bool mixed = loongi_devices_are_mixed(plan);
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
        loongi_text_printf(text, "  %11s",
                           loongi_human_bytes((double)bytes_of(c), human));
        if (mixed) {
            print_device(plan, r, text);
        }
        loongi_text_printf(text, "\n");
    }
}
