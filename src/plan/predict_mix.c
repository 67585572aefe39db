/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices of several kinds in a predicted step. Called by predict_rates.c. Read
 * predict_mix.h and stage_plans.h before. */
#include "predict_mix.h"

#include <stdio.h>
#include <string.h>

#include "devices.h"
#include "plan_shares.h"
#include "predict.h"
#include "shares.h"
#include "stage_plans.h"
#include "timeline.h"

/* ---- kinds --------------------------------------------------------------- */

static loong_status_t add_kind(const loong_plan_t *plan,
                               loong_predict_mix_t *mix, const char *name)
{
    int k = 0;
    while (k < mix->count && strcmp(mix->kind[k].name, name) != 0) {
        k++;
    }
    if (k < mix->count) {
        return LOONG_OK;
    }
    LOONG_CHECK(plan->ctx, k < LOONG_PREDICT_KINDS, LOONG_ERR_UNSUPPORTED,
                "a step on more than %d kinds of devices is not predicted",
                LOONG_PREDICT_KINDS);
    loong_device_rates_t rates = loongi_predict_rates(plan, name);
    loong_device_rates_t *b = &mix->between;
    mix->kind[mix->count++] =
        (loong_predict_kind_t){.name = name, .rates = rates};
    b->network = k == 0 ? rates.network : LOONG_MIN(b->network, rates.network);
    b->latency = LOONG_MAX(b->latency, rates.latency);
    b->link = b->network;
    b->machine = 1;
    return LOONG_OK;
}

loong_status_t loongi_predict_mix_begin(const loong_plan_t *plan,
                                        loong_predict_mix_t *mix)
{
    memset(mix, 0, sizeof(*mix));
    for (int i = 0; i < plan->num_stage_plans; i++) {
        LOONG_TRY(add_kind(plan, mix, loongi_stage_plans_kind(plan, i)));
    }
    LOONG_TRY(loongi_calloc(plan->ctx, (size_t)plan->num_pipelines,
                            sizeof(*mix->total), "predicted pipelines",
                            &mix->total));
    return loongi_calloc(plan->ctx, (size_t)plan->num_stage_plans,
                         sizeof(*mix->layers), "predicted stages",
                         &mix->layers);
}

void loongi_predict_mix_end(const loong_plan_t *plan, loong_predict_mix_t *mix)
{
    loongi_free(plan->ctx, mix->total);
    loongi_free(plan->ctx, mix->layers);
}

loong_predict_kind_t *loongi_predict_kind(const loong_plan_t *plan,
                                          loong_predict_mix_t *mix, int index)
{
    const char *name = loongi_stage_plans_kind(plan, index);
    int k = 0;
    while (strcmp(mix->kind[k].name, name) != 0) {
        k++;
    }
    return &mix->kind[k];
}

static void add_crosses(const loong_plan_t *plan, int index,
                        const loong_component_params_t *p, bool *crosses)
{
    const char *own = loongi_stage_plans_kind(plan, index);
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        int size = loong_mesh_group_size(&p->mesh, (loong_group_t)g);
        for (int i = 0; i < size && !crosses[g]; i++) {
            int rank = loongi_job_rank(
                p, loong_mesh_member(&p->mesh, (loong_group_t)g, i));
            crosses[g] = strcmp(loongi_devices_kind(plan, rank), own) != 0;
        }
    }
}

void loongi_predict_crosses(const loong_plan_t *plan, int index,
                            bool crosses[LOONG_GROUP_COUNT])
{
    const loong_model_t *m = plan->stage_plans[index]->model;
    memset(crosses, 0, LOONG_GROUP_COUNT * sizeof(*crosses));
    for (int c = 0; c < m->num_components; c++) {
        if (!m->components[c]->params.absent) {
            add_crosses(plan, index, &m->components[c]->params, crosses);
        }
    }
}

double loongi_predict_message(const loong_plan_t *plan,
                              const loong_predict_mix_t *mix, int from, int to,
                              double bytes)
{
    const char *kind = loongi_stage_plans_kind(plan, from);
    bool crosses = strcmp(kind, loongi_stage_plans_kind(plan, to)) != 0;
    int k = 0;
    while (strcmp(mix->kind[k].name, kind) != 0) {
        k++;
    }
    return loongi_rates_message(
        crosses ? &mix->between : &mix->kind[k].rates,
        loongi_model_rank(plan->stage_plans[from]->model),
        loongi_model_rank(plan->stage_plans[to]->model), bytes);
}

/* ---- shares of data-parallel ranks --------------------------------------- */

/* The planned pipeline that stands for a data-parallel rank. */
static int pipeline_of(const loong_plan_t *plan, int replica)
{
    int i = 0;
    while (!loongi_stage_plans_alike(plan, replica,
                                     loongi_stage_plans_replica(plan, i))) {
        i++;
    }
    return i;
}

static int64_t share_of(const loong_plan_t *plan, int replica)
{
    return loongi_shares_of_rank(plan, plan->set->global_batch_size, replica);
}

/* Seconds of a micro-batch, what a step has once among them. */
static double micro_batch(const loong_plan_t *plan,
                          const loong_predict_mix_t *mix, int index)
{
    return mix->total[index].seconds /
           (double)share_of(plan, loongi_stage_plans_replica(plan, index));
}

static int count_alike(const loong_plan_t *plan, int index)
{
    int count = 0;
    for (int r = 0; r < plan->mesh.size[LOONG_AXIS_DP]; r++) {
        count += pipeline_of(plan, r) == index;
    }
    return count;
}

void loongi_predict_tell_pipeline(const loong_plan_t *plan,
                                  const loong_predict_mix_t *mix, int index,
                                  loong_text_t *text)
{
    int replica = loongi_stage_plans_replica(plan, index);
    int stages = plan->mesh.size[LOONG_AXIS_PP];
    loongi_text_printf(text, "%s  %d data-parallel rank%s as %d (%s",
                       index == 0 ? "\n" : "", count_alike(plan, index),
                       count_alike(plan, index) > 1 ? "s" : "", replica,
                       loongi_stage_plans_kind(plan, index * stages));
    for (int s = 1; s < stages; s++) {
        const char *kind = loongi_stage_plans_kind(plan, index * stages + s);
        if (strcmp(kind, loongi_stage_plans_kind(plan, index * stages + s -
                                                           1)) != 0) {
            loongi_text_printf(text, ", %s", kind);
        }
    }
    loongi_text_printf(text, "), of %lld micro-batches: %.1f ms",
                       (long long)share_of(plan, replica),
                       1e3 * mix->total[index].seconds);
    if (stages > 1) {
        loongi_text_printf(text, ", idle %.1f %%",
                           100.0 * mix->total[index].bubble);
    }
}

static void tell_against(loong_text_t *text, const char *who, double alone,
                         double seconds)
{
    loongi_text_printf(text, "; %s alone %.1f ms, %.2f x", who, 1e3 * alone,
                       alone / seconds);
}

/* of, weights: room for each of the data-parallel ranks. */
static void suggest_shares(loong_plan_t *plan, const loong_predict_mix_t *mix,
                           double before, int64_t *of, int64_t *weights)
{
    int replicas = plan->mesh.size[LOONG_AXIS_DP];
    int64_t count = plan->set->global_batch_size / plan->set->micro_batch_size;
    double fastest = micro_batch(plan, mix, 0);
    double step = 0.0;
    for (int i = 1; i < plan->num_pipelines; i++) {
        fastest = LOONG_MIN(fastest, micro_batch(plan, mix, i));
    }
    for (int r = 0; r < replicas; r++) {
        double own = micro_batch(plan, mix, pipeline_of(plan, r));
        weights[r] = LOONG_MAX((int64_t)(LOONG_MAX_WEIGHT * fastest / own), 1);
    }
    loongi_shares(replicas, weights, count, of);
    for (int r = 0; r < replicas; r++) {
        double own = micro_batch(plan, mix, pipeline_of(plan, r));
        step = LOONG_MAX(step, own * (double)of[r]);
        if (of[r] == 0) {
            return; /* it would be refused */
        }
    }
    loongi_text_printf(&plan->text,
                       "  shares by rate: parallel.data_parallel_shares=[");
    for (int r = 0; r < replicas; r++) {
        loongi_text_printf(&plan->text, "%s%lld", r > 0 ? "," : "",
                           (long long)of[r]);
    }
    loongi_text_printf(&plan->text, "] takes about %.1f ms, %.2f x as fast",
                       1e3 * step, before / step);
    for (int i = 0; i < plan->num_pipelines; i++) {
        char who[48];
        int64_t ranks = count_alike(plan, i);
        snprintf(who, sizeof(who), "ranks as %d",
                 loongi_stage_plans_replica(plan, i));
        tell_against(&plan->text, who,
                     micro_batch(plan, mix, i) *
                         (double)((count + ranks - 1) / ranks),
                     step);
    }
    loongi_text_printf(&plan->text, "\n");
}

/* ---- layers of stages ---------------------------------------------------- */

/* A stage's micro-batch: so many layers, and the embedding, the head. */
typedef struct stage {
    int kind;
    int layers, better;
    double layer, rest; /* seconds */
} stage_t;

static const loong_entry_kind_t computes[] = {LOONG_ENTRY_F, LOONG_ENTRY_B,
                                              LOONG_ENTRY_W};

static double *costs_of(const loong_plan_t *plan, int rank)
{
    int at = loongi_timeline_stage(plan, plan->stage_plans[rank], 0);
    return plan->timeline.costs[at].seconds;
}

/* False: no layers could be moved. */
static bool find_stages(const loong_plan_t *plan,
                        const loong_predict_mix_t *mix, stage_t *stages)
{
    int count = plan->mesh.size[LOONG_AXIS_PP];
    double seconds[LOONG_PREDICT_KINDS] = {0.0};
    double layers[LOONG_PREDICT_KINDS] = {0.0};
    for (int s = 0; s < count; s++) {
        const loong_component_t *c = plan->stage_plans[s];
        if (c->num_stages != 1) {
            return false;
        }
        stage_t *at = &stages[s];
        double own = mix->layers[s] / c->schedule->params.micro_batches;
        const char *kind = loongi_stage_plans_kind(plan, s);
        while (strcmp(mix->kind[at->kind].name, kind) != 0) {
            at->kind++;
        }
        at->layers = c->stages[0]->cut.num_layers;
        at->rest = -own;
        for (int64_t i = 0; i < LOONG_COUNT_OF(computes); i++) {
            at->rest += costs_of(plan, s)[computes[i]];
        }
        seconds[at->kind] += own;
        layers[at->kind] += at->layers;
    }
    for (int s = 0; s < count; s++) {
        stages[s].layer =
            seconds[stages[s].kind] / LOONG_MAX(layers[stages[s].kind], 1.0);
        if (layers[stages[s].kind] == 0.0) {
            return false;
        }
    }
    return true;
}

/* The longest stage is as short as whole layers allow. */
static bool move_layers(int count, stage_t *stages)
{
    int left = -count;
    for (int s = 0; s < count; s++) {
        left += stages[s].layers;
        stages[s].better = 1;
    }
    for (; left > 0; left--) {
        stage_t *shortest = &stages[0];
        for (int s = 1; s < count; s++) {
            const stage_t *a = shortest;
            stage_t *b = &stages[s];
            if (b->rest + (b->better + 1) * b->layer <
                a->rest + (a->better + 1) * a->layer) {
                shortest = b;
            }
        }
        shortest->better++;
    }
    return left == 0;
}

static loong_status_t simulate(const loong_plan_t *plan, int count,
                               const stage_t *stages, double *seconds_p)
{
    const loong_cell_t *cell = plan->stage_plans[0]->model->training;
    loong_simulation_t total;
    for (int s = 0; s < count; s++) {
        const stage_t *at = &stages[s];
        double better = (at->rest + at->better * at->layer) /
                        (at->rest + at->layers * at->layer);
        for (int64_t i = 0; i < LOONG_COUNT_OF(computes); i++) {
            costs_of(plan, s)[computes[i]] *= better;
        }
    }
    LOONG_TRY(loongi_cell_simulate(cell, plan->timeline.costs, NULL, &total));
    *seconds_p = total.seconds;
    return LOONG_OK;
}

/* Equal stages on the ranks of one kind. */
static double alone(const loong_plan_t *plan, int count, const stage_t *stages,
                    int kind)
{
    int micro_batches = plan->component->schedule->params.micro_batches;
    double layer = 0.0;
    double whole = 0.0; /* in layers of its rate */
    int ranks = 0;
    for (int s = 0; s < count; s++) {
        whole += stages[s].layers + stages[s].rest / stages[s].layer;
        ranks += stages[s].kind == kind;
        layer = stages[s].kind == kind ? stages[s].layer : layer;
    }
    return (micro_batches + ranks - 1) * whole * layer / ranks;
}

static void tell_layers(loong_plan_t *plan, const loong_predict_mix_t *mix,
                        int count, const stage_t *stages, double before,
                        double seconds)
{
    loong_text_t *text = &plan->text;
    loongi_text_printf(
        text, "  layers by rate: parallel.pipeline_model_parallel_layout=E");
    for (int s = 0; s < count; s++) {
        loongi_text_printf(text, "%st*%d", s > 0 ? "|" : "", stages[s].better);
    }
    loongi_text_printf(text, "L takes %.1f ms, %.2f x as fast", 1e3 * seconds,
                       before / seconds);
    for (int k = 0; k < mix->count; k++) {
        char who[48];
        snprintf(who, sizeof(who), "ranks on %s", mix->kind[k].name);
        tell_against(text, who, alone(plan, count, stages, k), seconds);
    }
    loongi_text_printf(text, "\n    assumed: a kind alone has equal stages and "
                             "no messages\n");
}

/* The costs that are drawn stay as they are. */
static loong_status_t suggest_layers(loong_plan_t *plan,
                                     const loong_predict_mix_t *mix,
                                     double before, stage_t *stages)
{
    int count = plan->mesh.size[LOONG_AXIS_PP];
    const loong_cell_t *cell = plan->stage_plans[0]->model->training;
    size_t bytes =
        sizeof(loong_stage_cost_t) *
        (size_t)loongi_cell_stage(cell, cell->params.num_components, 0);
    loong_stage_cost_t *kept = NULL;
    double seconds = 0.0;
    if (!find_stages(plan, mix, stages) || !move_layers(count, stages)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_alloc(plan->ctx, bytes, "costs of stages", &kept));
    memcpy(kept, plan->timeline.costs, bytes);
    loong_status_t status = simulate(plan, count, stages, &seconds);
    memcpy(plan->timeline.costs, kept, bytes);
    loongi_free(plan->ctx, kept);
    LOONG_TRY(status);
    tell_layers(plan, mix, count, stages, before, seconds);
    return LOONG_OK;
}

/* ---- the whole ----------------------------------------------------------- */

loong_status_t loongi_predict_suggest(loong_plan_t *plan,
                                      const loong_predict_mix_t *mix,
                                      double seconds)
{
    size_t replicas = (size_t)plan->mesh.size[LOONG_AXIS_DP];
    size_t stages = (size_t)plan->mesh.size[LOONG_AXIS_PP];
    void *room = NULL;
    loong_status_t status = LOONG_OK;
    if (mix->count < 2) {
        return LOONG_OK;
    }
    loongi_text_printf(&plan->text,
                       "  between kinds %.4g GB/s are assumed, the slower "
                       "network\n",
                       1e-9 * mix->between.network);
    if (plan->num_pipelines > 1) {
        int64_t *of = NULL;
        LOONG_TRY(
            loongi_calloc(plan->ctx, 2 * replicas, sizeof(*of), "shares", &of));
        suggest_shares(plan, mix, seconds, of, of + replicas);
        room = of;
    } else if (stages > 1 && plan->component->index == 0) {
        stage_t *of = NULL;
        LOONG_TRY(loongi_calloc(plan->ctx, stages, sizeof(*of), "stages", &of));
        status = suggest_layers(plan, mix, seconds, of);
        room = of;
    }
    loongi_free(plan->ctx, room);
    return status;
}
