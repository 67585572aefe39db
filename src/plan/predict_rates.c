/* SPDX-License-Identifier: Apache-2.0
 *
 * The step time that --dry-run tells of a device that is not there. Called by
 * predict.c, memory_check.c and choices.c. Read predict.h and rates.h
 * before. */
#include <ctype.h>
#include <string.h>

#include "loong/register.h"
#include "predict.h"
#include "predict_joins.h"
#include "stage_plans.h"
#include "timeline.h"

#define CARD_KEY "predict.device"

/* Of whatever kind of device; NULL: none is of that name. */
static const loong_device_rates_t *find_card(const loong_context_t *ctx,
                                             const char *name)
{
    const loong_device_rates_t *rates = NULL;
    const char *kind = NULL;
    for (int i = 0;
         rates == NULL && (kind = loong_device_kind(ctx, i)) != NULL; i++) {
        rates = loongi_rates_find(ctx, kind, name);
    }
    return rates;
}

bool loongi_predict_names_card(const loong_plan_t *plan)
{
    return strcmp(loong_recipe_text(plan->recipe, CARD_KEY), "auto") != 0;
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
        find_card(plan->ctx, name) == NULL) {
        status = LOONG_FAIL(plan->ctx, LOONG_ERR_CONFIG,
                            CARD_KEY ": found %s, allowed: auto%s (%s)", name,
                            loongi_text_get(&known),
                            loong_recipe_where(plan->recipe, CARD_KEY));
    }
    loongi_text_free(&known);
    return status;
}

loong_device_rates_t loongi_predict_rates(const loong_plan_t *plan)
{
    static const loong_device_rates_t none = {.name = NULL};
    const loong_recipe_t *r = plan->recipe;
    const loong_device_rates_t *card =
        loongi_predict_names_card(plan)
            ? find_card(plan->ctx, loong_recipe_text(r, CARD_KEY))
            : loongi_rates_find(plan->ctx, loong_device_name(plan->device),
                                NULL);
    loong_device_rates_t rates = card != NULL ? *card : none;
    loong_device_rates_t asked = {0}; /* in the recipe's units; 0: nothing */
    LOONG_FILL(r, "predict.", loong_device_rates_t, &asked);
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

/* From a rank of the pipeline to that of the stages before and behind. */
static void add_messages(loong_plan_t *plan, const loong_device_rates_t *rates,
                         int rank)
{
    const loong_schedule_t *s = plan->component->schedule;
    const loong_component_t *c = plan->stage_plans[rank];
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
                peer == rank
                    ? 0.0
                    : loongi_rates_message(
                          rates, loongi_model_rank(c->model),
                          loongi_model_rank(plan->stage_plans[peer]->model),
                          bytes);
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
        "TFLOP/s, attention %.3g and back %.3g, a library's %.3g and %.3g, "
        "passes %.3g of %.3g TB/s, %.1f us from kernel to kernel",
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
    loongi_text_printf(&plan->text, "\n");
}

static void tell_sum(loong_plan_t *plan, const loong_rates_sum_t *sum,
                     double seconds, const loong_device_rates_t *r)
{
    int ranks = plan->num_stage_plans;
    double rate = sum->flops / ranks / seconds;
    loongi_text_printf(&plan->text,
                       "  of a rank: products %.1f ms, attention %.1f, passes "
                       "over memory %.1f, between kernels %.2f (%.2f %% of "
                       "the step)",
                       1e3 * sum->products / ranks,
                       1e3 * sum->attention / ranks, 1e3 * sum->passes / ranks,
                       1e3 * sum->gaps / ranks,
                       100.0 * sum->gaps / ranks / seconds);
    if (plan->parallel.ranks > 1) {
        loongi_text_printf(&plan->text,
                           ", collectives %.1f, of these %.1f not beside "
                           "others",
                           1e3 * sum->collectives / ranks,
                           1e3 * sum->exposed / ranks);
    }
    loongi_text_printf(&plan->text,
                       "\n  %.4g TFLOP/s of a device, %.1f %% of its "
                       "datasheet\n",
                       1e-12 * rate, 100.0 * rate / r->bf16);
}

/* ---- the whole ----------------------------------------------------------- */

loong_status_t loongi_predict_by_rates(loong_plan_t *plan)
{
    loong_device_rates_t rates = loongi_predict_rates(plan);
    loong_rates_sum_t sum;
    loong_predict_source_t source;
    loong_simulation_t total;
    LOONG_CHECK(plan->ctx, !loong_device_is_host(plan->device),
                LOONG_ERR_CONFIG,
                CARD_KEY ": %s, but this run is on the processor: set device, "
                         "or leave the key out and launches are timed here",
                loong_recipe_text(plan->recipe, CARD_KEY));
    memset(&sum, 0, sizeof(sum));
    memset(&source, 0, sizeof(source));
    source.rates.ctx = plan->ctx;
    source.rates.sum = &sum;
    source.rates.rates = &rates;
    source.rates.graphs = plan->component->params.resources.graphs;
    source.rates.tf32 = plan->component->params.compile.policy.tf32;
    LOONG_TRY(loongi_timeline_costs(plan));
    for (int r = 0; r < plan->num_stage_plans; r++) {
        source.rates.mesh = &plan->stage_plans[r]->params.mesh;
        LOONG_TRY(loongi_predict_rank(plan, &source, r));
        if (r < plan->mesh.size[LOONG_AXIS_PP]) {
            add_messages(plan, &rates, r);
        }
    }
    LOONG_TRY(loongi_cell_simulate(plan->component->model->training,
                                   plan->timeline.costs, NULL, &total));
    loongi_predict_tell(plan, total);
    tell_sum(plan, &sum, total.seconds, &rates);
    tell_rates(plan, &rates);
    return loongi_predict_joins(plan);
}
