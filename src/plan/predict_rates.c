/* SPDX-License-Identifier: Apache-2.0
 *
 * The step time that --dry-run tells of a device that is not there. Called by
 * predict.c, memory_check.c and choices.c. Read predict.h and rates.h
 * before. */
#include <ctype.h>
#include <string.h>

#include "devices.h"
#include "loong/register.h"
#include "predict.h"
#include "predict_joins.h"
#include "predict_mix.h"
#include "stage_plans.h"
#include "timeline.h"

#define CARD_KEY "predict.device"

/* Of whatever kind of device; NULL: none is of that name. */
static const loong_device_rates_t *
find_card(const loong_context_t *ctx, const char *name, const char **kind_p)
{
    const loong_device_rates_t *rates = NULL;
    for (int i = 0;
         rates == NULL && (*kind_p = loong_device_kind(ctx, i)) != NULL; i++) {
        rates = loongi_rates_find(ctx, *kind_p, name);
    }
    return rates;
}

bool loongi_predict_names_card(const loong_plan_t *plan)
{
    return strcmp(loong_recipe_text(plan->recipe, CARD_KEY), "auto") != 0;
}

/* Where ranks have several kinds of devices a rate is of the card that is
 * named, of one of these kinds. */
static loong_status_t check_mixed(const loong_plan_t *plan)
{
    static const char *const keys[] = {
        CARD_KEY,       "predict.tflops",  "predict.products", "predict.copy",
        "predict.link", "predict.network", "predict.machine"};
    const char *card = loong_recipe_text(plan->recipe, CARD_KEY);
    const char *of = NULL;
    bool known = find_card(plan->ctx, card, &of) != NULL;
    for (int r = 0; r < plan->parallel.ranks && known; r++) {
        if (strcmp(loongi_devices_kind(plan, r), of) == 0) {
            return LOONG_OK;
        }
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        LOONG_CHECK(plan->ctx,
                    !loong_recipe_is_set(plan->recipe, keys[i]) ||
                        (i == 0 && !known),
                    LOONG_ERR_CONFIG,
                    "%s: %s (%s): devices are of several kinds, " CARD_KEY
                    " names the card that rates are of, one of these kinds",
                    keys[i], loong_recipe_text(plan->recipe, keys[i]),
                    loong_recipe_where(plan->recipe, keys[i]));
    }
    return LOONG_OK;
}

loong_status_t loongi_predict_check(const loong_plan_t *plan)
{
    const char *name = loong_recipe_text(plan->recipe, CARD_KEY);
    const char *kind = NULL;
    loong_text_t known = loongi_text_begin(plan->ctx);
    loong_status_t status = LOONG_OK;
    for (int i = 0; (kind = loong_device_kind(plan->ctx, i)) != NULL; i++) {
        const loong_device_rates_t *r =
            loongi_rates_find(plan->ctx, kind, NULL);
        for (; r != NULL && r->name != NULL; r++) {
            loongi_text_printf(&known, " %s", r->name);
        }
    }
    if (loongi_predict_names_card(plan) &&
        find_card(plan->ctx, name, &kind) == NULL) {
        status = LOONG_FAIL(plan->ctx, LOONG_ERR_CONFIG,
                            CARD_KEY ": found %s, allowed: auto%s (%s)", name,
                            loongi_text_get(&known),
                            loong_recipe_where(plan->recipe, CARD_KEY));
    }
    loongi_text_free(&known);
    return status == LOONG_OK && loongi_devices_are_mixed(plan)
               ? check_mixed(plan)
               : status;
}

loong_status_t loongi_predict_check_device(const loong_plan_t *plan)
{
    bool named = plan->plan_only && !plan->judge &&
                 loongi_predict_names_card(plan);
    LOONG_CHECK(plan->ctx,
                !named || loongi_devices_are_mixed(plan) ||
                    !loong_device_is_host(plan->device),
                LOONG_ERR_CONFIG,
                CARD_KEY ": %s (%s), but this run is on the processor: set "
                         "device, or leave the key out and launches are timed "
                         "here",
                loong_recipe_text(plan->recipe, CARD_KEY),
                loong_recipe_where(plan->recipe, CARD_KEY));
    return LOONG_OK;
}

loong_device_rates_t loongi_predict_rates(const loong_plan_t *plan,
                                          const char *kind)
{
    static const loong_device_rates_t none = {.name = NULL};
    const loong_recipe_t *r = plan->recipe;
    const char *of = NULL;
    bool mixed = loongi_devices_are_mixed(plan);
    const loong_device_rates_t *named =
        find_card(plan->ctx, loong_recipe_text(r, CARD_KEY), &of);
    bool meant = named != NULL && (!mixed || strcmp(of, kind) == 0);
    const loong_device_rates_t *card =
        meant ? named : loongi_rates_find(plan->ctx, kind, NULL);
    loong_device_rates_t rates = card != NULL ? *card : none;
    loong_device_rates_t asked = {0}; /* in the recipe's units; 0: nothing */
    LOONG_FILL(r, "predict.", loong_device_rates_t, &asked);
    if (mixed && !meant) {
        return rates;
    }
    double tflops = 1e12 * asked.bf16;
    struct {
        double *rate;
        double asked;
    } keys[] = {{&rates.products, asked.products},
                {&rates.copy, 1e9 * asked.copy},
                {&rates.link, 1e9 * asked.link},
                {&rates.network, 1e9 * asked.network}};
    if (tflops > 0.0 && card != NULL) { /* others keep their proportion */
        rates.tf32 *= tflops / rates.bf16;
        rates.fp32 *= tflops / rates.bf16;
        rates.bf16 = tflops;
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        *keys[i].rate = keys[i].asked > 0.0 ? keys[i].asked : *keys[i].rate;
    }
    rates.machine = asked.machine > 0 ? asked.machine : rates.machine;
    return rates;
}

/* ---- messages of a pipeline ---------------------------------------------- */

/* Of what a chunk makes for the stage behind it, or for the one before: there
 * gradients of what came. */
static double boundary_bytes(const loong_model_chunk_t *chunk, bool back)
{
    double bytes = 0.0;
    for (int i = 0; i < chunk->num_outputs; i++) {
        const loong_port_t *p = &chunk->outputs[i];
        if (!p->edge && (back ? p->gradient : p->boundary)) {
            bytes += (double)loongi_shape_elements(&p->shape) *
                     (double)loong_dtype_size(p->dtype);
        }
    }
    return bytes;
}

/* From a rank of a pipeline, whose first one is `first` of those planned, to
 * that of the stages before and behind. */
static void add_messages(loong_plan_t *plan, const loong_predict_mix_t *mix,
                         int first, int rank)
{
    const loong_schedule_t *s = plan->component->schedule;
    const loong_component_t *c = plan->stage_plans[first + rank];
    for (int i = 0; i < c->num_stages; i++) {
        const loong_model_chunk_t *chunk =
            c->stages[i]->chunk[LOONG_VARIANT_TRAIN];
        int stage = loongi_schedule_stage(s, rank, i);
        int cost = loongi_timeline_stage(plan, c, i);
        double *seconds = plan->timeline.costs[cost].seconds;
        for (int back = 0; back < 2; back++) {
            int to = stage + (back ? -1 : 1);
            if (to < 0 || to >= loongi_schedule_stages(s)) {
                continue;
            }
            int peer = loongi_schedule_rank(s, to);
            double bytes = boundary_bytes(chunk, back != 0);
            seconds[back ? LOONG_ENTRY_SEND_BACKWARD
                         : LOONG_ENTRY_SEND_FORWARD] =
                peer == rank ? 0.0
                             : loongi_predict_message(plan, mix, first + rank,
                                                      first + peer, bytes);
        }
    }
}

/* ---- what is told -------------------------------------------------------- */

static void tell_rates(loong_plan_t *plan, const loong_device_rates_t *r)
{
    char name[16] = "";
    for (size_t i = 0; r->name[i] != '\0' && i + 1 < sizeof(name); i++) {
        name[i] = (char)toupper((unsigned char)r->name[i]);
    }
    loongi_text_printf(
        &plan->text,
        "  predicted, not measured, by rates of an %s: products %.4g of %.4g "
        "TFLOP/s, attention %.3g and back %.3g, a library's %.3g and "
        "%.3g, passes %.3g of %.3g TB/s, %.1f us from kernel to kernel",
        name, 1e-12 * r->bf16 * r->products, 1e-12 * r->bf16,
        1e-12 * r->bf16 * r->attention, 1e-12 * r->bf16 * r->attention_grad,
        1e-12 * r->bf16 * r->fused, 1e-12 * r->bf16 * r->fused_grad,
        1e-12 * r->copy * r->passes, 1e-12 * r->copy,
        1e6 * (plan->component->params.resources.graphs ? r->gap : r->launch));
    if (plan->parallel.ranks > 1) {
        loongi_text_printf(&plan->text,
                           ", links %.4g GB/s, networks %.4g, %d devices "
                           "a machine",
                           1e-9 * r->link, 1e-9 * r->network, r->machine);
    }
    loongi_text_printf(&plan->text, " (%s)\n", r->source);
}

static void tell_sum(loong_plan_t *plan, const loong_predict_kind_t *k,
                     double seconds, bool mixed)
{
    const loong_rates_sum_t *sum = &k->sum;
    int ranks = k->ranks;
    double rate = sum->flops / ranks / seconds;
    loongi_text_printf(
        &plan->text,
        "  of a rank%s%s: products %.1f ms, attention %.1f, "
        "passes over memory %.1f, between kernels %.2f (%.2f "
        "%% of the step)",
        mixed ? " on " : "", mixed ? k->name : "", 1e3 * sum->products / ranks,
        1e3 * sum->attention / ranks, 1e3 * sum->passes / ranks,
        1e3 * sum->gaps / ranks, 100.0 * sum->gaps / ranks / seconds);
    if (plan->parallel.ranks > 1) {
        loongi_text_printf(&plan->text,
                           ", collectives %.1f, of these %.1f not beside "
                           "others",
                           1e3 * sum->collectives / ranks,
                           1e3 * sum->exposed / ranks);
    }
    loongi_text_printf(
        &plan->text, "\n  %.4g TFLOP/s of a device, %.1f %% of its %s\n",
        1e-12 * rate, 100.0 * rate / k->rates.bf16, k->rates.source);
}

/* ---- pipelines ----------------------------------------------------------- */

/* Sets the costs of one of the planned pipelines, and tells its ranks. */
static loong_status_t predict_pipeline(loong_plan_t *plan,
                                       loong_predict_mix_t *mix, int index,
                                       loong_text_t *text)
{
    loong_predict_source_t source;
    int stages = plan->mesh.size[LOONG_AXIS_PP];
    int first = index * stages;
    int end = plan->num_pipelines > 1 ? first + stages : plan->num_stage_plans;
    memset(&source, 0, sizeof(source));
    source.rates.ctx = plan->ctx;
    source.rates.graphs = plan->component->params.resources.graphs;
    source.rates.tf32 = plan->component->params.compile.policy.tf32;
    LOONG_TRY(loongi_timeline_costs(plan));
    for (int i = first; i < end; i++) {
        loong_predict_kind_t *kind = loongi_predict_kind(plan, mix, i);
        loong_rates_sum_t before = kind->sum;
        source.rates.sum = &kind->sum;
        source.rates.rates = &kind->rates;
        source.rates.between = &mix->between;
        source.rates.mesh = &plan->stage_plans[i]->params.mesh;
        loongi_predict_crosses(plan, i, source.rates.crosses);
        LOONG_TRY(loongi_predict_rank(plan, &source, i));
        kind->ranks++;
        if (i < first + stages) {
            add_messages(plan, mix, first, i - first);
            mix->layers[i] = kind->sum.layers - before.layers;
        }
    }
    LOONG_TRY(loongi_cell_simulate(plan->stage_plans[first]->model->training,
                                   plan->timeline.costs, NULL,
                                   &mix->total[index]));
    if (plan->num_pipelines > 1) {
        loongi_predict_tell_pipeline(plan, mix, index, text);
    } else if (end > 1) {
        loongi_text_printf(text, ", idle %.1f %%",
                           100.0 * mix->total[0].bubble);
    }
    loongi_predict_tell_ranks(plan, first, end, text);
    return LOONG_OK;
}

/* What is drawn later are the costs of the first one. */
static loong_status_t predict_pipelines(loong_plan_t *plan,
                                        loong_predict_mix_t *mix,
                                        loong_text_t *text)
{
    loong_status_t status = LOONG_OK;
    loong_stage_cost_t *costs = NULL;
    for (int i = 0; i < plan->num_pipelines && status == LOONG_OK; i++) {
        status = predict_pipeline(plan, mix, i, text);
        if (i == 0) {
            costs = plan->timeline.costs;
            plan->timeline.costs = NULL;
        }
    }
    loongi_free(plan->ctx, plan->timeline.costs);
    plan->timeline.costs = costs;
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t predict_mix(loong_plan_t *plan, loong_predict_mix_t *mix,
                                  loong_text_t *ranks)
{
    loong_simulation_t slowest = {0.0, 0.0, 0.0};
    LOONG_TRY(predict_pipelines(plan, mix, ranks));
    for (int i = 0; i < plan->num_pipelines; i++) {
        slowest =
            mix->total[i].seconds > slowest.seconds ? mix->total[i] : slowest;
    }
    loongi_predict_tell(plan, slowest);
    loongi_text_printf(&plan->text, "%s", loongi_text_get(ranks));
    LOONG_TRY(loongi_predict_suggest(plan, mix, slowest.seconds));
    for (int k = 0; k < mix->count; k++) {
        tell_sum(plan, &mix->kind[k], slowest.seconds, mix->count > 1);
        tell_rates(plan, &mix->kind[k].rates);
    }
    return ranks->status;
}

loong_status_t loongi_predict_by_rates(loong_plan_t *plan)
{
    loong_predict_mix_t mix;
    loong_text_t ranks = loongi_text_begin(plan->ctx);
    loong_status_t status = loongi_predict_mix_begin(plan, &mix);
    if (status == LOONG_OK) {
        status = predict_mix(plan, &mix, &ranks);
    }
    loongi_predict_mix_end(plan, &mix);
    loongi_text_free(&ranks);
    LOONG_TRY(status);
    return loongi_predict_joins(plan);
}
