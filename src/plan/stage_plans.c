/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans the other ranks of a pipeline, for predictions and the texts of a
 * plan. */
#include "stage_plans.h"

#include "devices.h"
#include "upstream.h"

#include <stdio.h>

static loong_status_t plan_peer(loong_plan_t *plan, int rank)
{
    const loong_model_t *m = plan->component->model;
    loong_component_params_t params[LOONG_MAX_COMPONENTS];
    loong_mesh_t mesh;
    loong_model_t *model = NULL;
    int stage = loong_mesh_member(&plan->mesh, LOONG_GROUP_PP, rank);
    LOONG_TRY(loongi_parallel_mesh(&plan->parallel, stage, &mesh));
    int largest =
        loong_mesh_member(&mesh, LOONG_GROUP_TP, mesh.size[LOONG_AXIS_TP] - 1);
    if (largest == plan->mesh.rank) {
        plan->stage_plans[rank] = plan->component;
        return LOONG_OK;
    }
    for (int i = 0; i < m->num_components; i++) {
        loong_component_params_t *p = &params[i];
        *p = m->components[i]->params;
        LOONG_TRY(loongi_upstream_mesh(plan, p, largest, &p->mesh));
        if (loongi_devices_are_mixed(plan)) {
            p->compile.device = loongi_devices_kind(plan->recipe, largest);
            p->shards.device = p->compile.device;
        }
    }
    loong_status_t status =
        loongi_model_create(plan->ctx, m->num_components, params, &model);
    if (status == LOONG_OK) {
        plan->stage_plans[rank] = model->components[m->num_components - 1];
    } else {
        loongi_error_note(plan->ctx, "while planning rank %d", largest);
    }
    return status;
}

/* Of ranks that are only pretended the largest decides what is enough. */
static void count_memory(loong_plan_t *plan)
{
    if (loong_comm_size(plan->comm) == plan->mesh.world ||
        loongi_devices_are_mixed(plan)) {
        return;
    }
    for (int r = 0; r < plan->mesh.size[LOONG_AXIS_PP]; r++) {
        int64_t bytes = 0;
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            bytes += plan->stage_plans[r]->model->bytes[b];
        }
        int64_t more = LOONG_MAX(bytes - plan->memory.rank, 0);
        plan->memory.rank += more;
        plan->memory.machine += more;
    }
}

loong_status_t loongi_stage_plans_create(loong_plan_t *plan)
{
    int ranks = plan->mesh.size[LOONG_AXIS_PP];
    if (plan->stage_plans != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)ranks,
                            sizeof(*plan->stage_plans), "ranks of the pipeline",
                            &plan->stage_plans));
    for (int r = 0; r < ranks; r++) {
        LOONG_TRY(plan_peer(plan, r));
    }
    count_memory(plan);
    return LOONG_OK;
}

void loongi_stage_plans_destroy(loong_plan_t *plan)
{
    for (int r = 0;
         plan->stage_plans != NULL && r < plan->mesh.size[LOONG_AXIS_PP]; r++) {
        if (plan->stage_plans[r] != NULL &&
            plan->stage_plans[r] != plan->component) {
            loong_model_t *model = plan->stage_plans[r]->model;
            loongi_model_destroy(&model);
        }
    }
    loongi_free(plan->ctx, plan->stage_plans);
    plan->stage_plans = NULL;
}

/* "0-3, 8-11" */
static void print_layers(const loong_component_t *c, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
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
    int ranks = plan->mesh.size[LOONG_AXIS_PP];
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
        int64_t sum = 0;
        print_layers(c, layers, sizeof(layers));
        loongi_text_printf(text, "  %5d  %-12s", c->params.mesh.rank, layers);
        for (int b = 0; b < LOONG_BASE_COUNT; b++) {
            sum += c->model->bytes[b];
            if (used[b] > 0) {
                loongi_text_printf(
                    text, "  %11s",
                    loongi_human_bytes((double)c->model->bytes[b], human));
            }
        }
        loongi_text_printf(text, "  %11s\n",
                           loongi_human_bytes((double)sum, human));
    }
}
