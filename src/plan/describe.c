/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan is, as --dry-run and the first lines of a run tell it. Called by
 * trainer_run.c. Read plan.h and stage_plans.h before. */
#include "describe.h"

#include <stdio.h>
#include <string.h>

#include "choices.h"
#include "device_overhead.h"
#include "isa.h"
#include "loong/moe.h"
#include "loong/quantize.h"
#include "memory_check.h"
#include "plan_shares.h"
#include "stage_plans.h"
#include "staging.h"

/* What is not a beginning, and what reads conversations. */
static void describe_phase(loong_plan_t *plan)
{
    const char *phase = loong_recipe_text(plan->recipe, "training_phase");
    const char *load = plan->set->load;
    const char *init = loong_recipe_init_key(plan->recipe, NULL);
    bool loads = load != NULL && strcmp(load, "auto") != 0;
    const char *from = loads          ? load
                       : init != NULL ? loong_recipe_text(plan->recipe, init)
                                      : NULL;
    if (strcmp(phase, "pretrain") != 0) {
        loongi_text_printf(&plan->text, "phase: %s, from %s%s\n", phase,
                           from != NULL ? "the weights of " : "the beginning",
                           from != NULL ? from : "");
    }
}

static void describe_component(loong_plan_t *plan, const loong_component_t *c)
{
    char human[LOONG_HUMAN_SIZE];
    int64_t total = 0;
    int64_t trained = 0;
    for (int64_t i = 0; i < c->num_whole; i++) {
        int64_t elements = c->whole[i].shape[0] * c->whole[i].shape[1];
        total += elements;
        trained += c->whole[i].frozen ? 0 : elements;
    }
    if (c != plan->component) {
        loongi_text_printf(&plan->text, "%s: ", c->params.name);
    }
    loongi_text_printf(
        &plan->text,
        "parameters: %lld (%s), active for a token: %lld, trained: %lld\n",
        (long long)total, loongi_human_count((double)total, human),
        (long long)(total - c->facts.idle_parameters), (long long)trained);
}

static void describe_parameters(loong_plan_t *plan)
{
    const loong_model_t *m = plan->component->model;
    for (int i = m->num_components - 1; i >= 0; i--) {
        describe_component(plan, m->components[i]);
    }
    describe_phase(plan);
}

static int states_in_bf16(const loong_plan_t *plan)
{
    int count = 0;
    for (int i = 0; i < LOONG_STATE_COUNT; i++) {
        count += plan->component->params.optimizer.bf16[i];
    }
    return count;
}

static const char *first_of_group(const loong_component_t *c, int group)
{
    int64_t i = 0;
    while (c->whole[i].group != group || c->whole[i].optimizer == NULL) {
        i++;
    }
    return c->whole[i].name;
}

/* Where a recipe has groups: what each has and does. */
static void describe_groups(loong_plan_t *plan)
{
    const loong_component_t *c = plan->component;
    int items = (int)loong_recipe_count(plan->recipe, "optimizer.groups");
    for (int g = 0; g < c->params.optimizer.num_groups && items > 0; g++) {
        const loong_optimizer_group_t *group = &c->params.optimizer.group[g];
        long long elements = 0;
        long long count = 0;
        for (int64_t i = 0; i < c->num_whole; i++) {
            const loong_whole_param_t *w = &c->whole[i];
            bool member = w->group == g && w->optimizer != NULL;
            count += member;
            elements += member ? w->shape[0] * LOONG_MAX(w->shape[1], 1) : 0;
        }
        if (count > 0) {
            loongi_text_printf(&plan->text,
                               "optimizer group: %s, learning rate %g, weight "
                               "decay %g, %lld parameters in %lld tensors, "
                               "first %s\n",
                               loongi_optimizer_class(group->kind)->name,
                               group->lr * plan->set->lr.lr,
                               group->weight_decay, elements, count,
                               first_of_group(c, g));
        }
    }
}

static void describe_optimizer(loong_plan_t *plan)
{
    const loong_recipe_t *r = plan->recipe;
    const loong_optimizer_params_t *p = &plan->component->params.optimizer;
    loongi_text_printf(&plan->text, "optimizer: %s, learning rate %g, %s",
                       loong_recipe_text(r, "optimizer.name"), plan->set->lr.lr,
                       loong_recipe_text(r, "optimizer.lr_decay_style"));
    const char *between = ", moments: ";
    for (int i = 0; i < LOONG_STATE_COUNT; i++) {
        if (p->bf16[i]) {
            loongi_text_printf(&plan->text, "%s%s", between,
                               loongi_state_name(i));
            between = " and ";
        }
    }
    if (states_in_bf16(plan) > 0) {
        loongi_text_printf(&plan->text, " in bf16, rounded %s",
                           p->stochastic_rounding ? "stochastically"
                                                  : "to nearest");
    }
    loongi_text_printf(&plan->text, "\n");
    describe_groups(plan);
}

/* The compute type and why; what works in a wider or slower one than it. */
static void describe_precision(loong_plan_t *plan)
{
    const char *asked =
        loong_recipe_text(plan->recipe, "precision.params_dtype");
    int64_t wider = loong_recipe_count(plan->recipe, "precision.fp32_scopes");
    loong_dtype_t compute = plan->component->params.precision.compute;
    bool fast = loongi_fast_bf16(loong_device_caps(plan->device));
    const char *what =
        loong_device_is_host(plan->device) ? "processor" : "device";
    loongi_text_printf(&plan->text, "precision: %s (",
                       loong_dtype_name(compute));
    if (strcmp(asked, "auto") == 0) {
        loongi_text_printf(&plan->text, "auto: this %s %s bf16)", what,
                           fast ? "multiplies" : "does not multiply");
    } else if (compute == LOONG_BF16 && !fast) {
        loongi_text_printf(&plan->text,
                           "as the recipe says, but this %s does not multiply "
                           "it: slower than fp32)",
                           what);
    } else {
        loongi_text_printf(&plan->text, "as the recipe says)");
    }
    if (compute == LOONG_BF16) {
        loongi_text_printf(&plan->text,
                           "; fp32 in the sums of every op, "
                           "gradients%s",
                           states_in_bf16(plan) > 0 ? " and masters"
                                                    : ", masters and moments");
    }
    for (int64_t i = 0; i < wider; i++) {
        char path[64];
        snprintf(path, sizeof(path), "precision.fp32_scopes[%lld]",
                 (long long)i);
        loongi_text_printf(&plan->text, "%s %s", i == 0 ? "; fp32 scopes" : ",",
                           loong_recipe_text(plan->recipe, path));
    }
    const loong_kernel_policy_t *policy =
        &plan->component->params.compile.policy;
    if (policy->tf32) {
        loongi_text_printf(&plan->text, "; operands of products in tf32");
    }
    if (policy->algorithms != NULL &&
        loong_device_has(plan->device, LOONG_FEATURE_ALGORITHMS)) {
        loongi_text_printf(&plan->text,
                           "; algorithms of products as %s has them",
                           policy->algorithms);
    }
    loongi_text_printf(&plan->text, "\n");
    const char *limit = NULL;
    if (!loongi_isa_limit(&limit)) {
        loongi_log(plan->ctx, LOONG_LOG_WARN,
                   "ONEDNN_MAX_CPU_ISA is %s: not a level that oneDNN knows "
                   "(SSE41, AVX2, AVX512_CORE, AVX512_CORE_BF16, ...), so it "
                   "limits nothing",
                   limit);
    }
}

/* Of a product of experts the part of its rows that even routing fills; 0: the
 * step is another one. */
static double even_share(const loong_step_t *step)
{
    const loong_kernel_query_t *q = &step->query;
    if (strcmp(q->op, "grouped_linear") == 0) {
        return ((const loong_grouped_linear_attr_t *)q->attr)->share;
    }
    return strcmp(q->op, "linear_quantized") == 0 && q->arg[1].rank > 2
               ? ((const loong_linear_quantized_attr_t *)q->attr)->share
               : 0.0;
}

/* The first product of a layer's experts here; NULL: none. */
static const loong_step_t *expert_product(const loong_component_t *s)
{
    for (int i = 0; i < s->num_stages * LOONG_VARIANT_COUNT; i++) {
        const loong_model_chunk_t *c =
            s->stages[i / LOONG_VARIANT_COUNT]->chunk[i % LOONG_VARIANT_COUNT];
        for (int p = 0; c != NULL && p < LOONG_PROGRAM_COUNT; p++) {
            for (int64_t k = 0; k < c->programs[p].num_steps; k++) {
                const loong_step_t *step = &c->programs[p].steps[k];
                if (even_share(step) > 0.0) {
                    return step;
                }
            }
        }
    }
    return NULL;
}

/* How tokens come to other ranks, and why so. */
static void describe_dispatch(loong_plan_t *plan)
{
    const loong_component_t *c = plan->component;
    loong_dispatch_rows_t rows = loongi_dispatch_rows(&plan->mesh, &c->facts);
    const char *asked =
        loong_recipe_text(plan->recipe, "parallel.moe_token_dispatcher_type");
    bool exchanged = c->params.request.dispatcher == LOONG_DISPATCH_ALL_TO_ALL;
    loongi_text_printf(&plan->text, "; tokens come by %s",
                       exchanged ? "alltoall" : "allgather");
    if (strcmp(asked, "auto") == 0) {
        loongi_text_printf(&plan->text,
                           " (auto: %.1f rows moved for a token, by %s %.1f)",
                           exchanged ? rows.exchanged : rows.gathered,
                           exchanged ? "allgather" : "alltoall",
                           exchanged ? rows.gathered : rows.exchanged);
    }
}

/* Memory is laid out for more rows than an even share, or for whatever routers
 * choose. Of the first stage that has experts, among those that are planned. */
static void describe_experts(loong_plan_t *plan)
{
    const loong_step_t *step = expert_product(plan->component);
    for (int r = 0; step == NULL && plan->stage_plans != NULL &&
                    r < plan->mesh.size[LOONG_AXIS_PP];
         r++) {
        step = expert_product(plan->stage_plans[r]);
    }
    if (step == NULL) {
        return;
    }
    double rows = (double)step->query.arg[0].dim[0];
    loongi_text_printf(&plan->text,
                       "experts: room for %.0f rows of a layer%s; %.0f with "
                       "even routing",
                       rows,
                       step->repeat != 0 ? ", more run in rounds"
                                         : ", the most there can be",
                       rows * even_share(step));
    if (loong_mesh_group_size(&plan->mesh, LOONG_GROUP_ETP_EP) > 1) {
        describe_dispatch(plan);
    }
    loongi_text_printf(&plan->text, "\n");
}

static void describe_memory(loong_plan_t *plan)
{
    char a[LOONG_HUMAN_SIZE];
    const int64_t *bytes = plan->component->model->bytes;
    loongi_text_printf(&plan->text, "memory of this rank:\n");
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (bytes[b] > 0) {
            loongi_text_printf(&plan->text, "  %-14s %s\n",
                               loongi_base_name((loong_base_t)b),
                               loongi_human_bytes((double)bytes[b], a));
        }
    }
    loongi_text_printf(&plan->text, "  %-14s %s\n", "together",
                       loongi_human_bytes((double)plan->memory.rank, a));
}

static void describe_lack(loong_plan_t *plan)
{
    if (!loongi_memory_suffices(plan)) {
        loongi_text_printf(&plan->text, "too little memory: ");
        loongi_memory_explain(plan, &plan->text);
        loongi_text_printf(&plan->text, "\n");
    } else if (loongi_memory_doubt(plan, &plan->text)) {
        loongi_text_printf(&plan->text, "\n");
    }
}

static loong_status_t take_text(loong_plan_t *plan, const char **text_p)
{
    *text_p = loongi_text_get(&plan->text);
    return plan->text.status;
}

static void describe_ranks(loong_plan_t *plan,
                           const loong_component_params_t *p)
{
    char path[64];
    snprintf(path, sizeof(path), "model.%s.ranks", p->name);
    if (p->ranks != NULL) {
        loongi_text_printf(&plan->text, ", on ranks %s",
                           loong_recipe_text(plan->recipe, path));
    }
}

/* What a component has otherwise than the one with the loss. */
static void describe_own(loong_plan_t *plan, const loong_component_params_t *p)
{
    static const char *const keys[] = {
        "train.micro_batch_size", "precision.params_dtype",
        "recompute.granularity",  "optimizer.lr",
        "optimizer.weight_decay", "init.from_hf"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        const char *path =
            loong_recipe_own_path(plan->recipe, p->name, keys[i]);
        if (strcmp(path, keys[i]) != 0) {
            loongi_text_printf(&plan->text, ", %s %s", keys[i],
                               loong_recipe_text(plan->recipe, path));
        }
    }
}

/* For how many micro-batches of a step there is memory: activations, and beside
 * them the features of forwards that run ahead of others. */
static void describe_kept(loong_plan_t *plan, const loong_component_t *c)
{
    const loong_cell_t *cell = c->model->training;
    const loong_chunk_slots_t *chunks =
        cell != NULL ? cell->ranks[c->model->ranks.cell_rank].chunks : NULL;
    if (cell == NULL || c->params.absent) {
        return;
    }
    loongi_text_printf(&plan->text, ", %d of %d in memory",
                       chunks[cell->first_chunk[c->index]].slots,
                       c->schedule->params.micro_batches);
    for (int i = cell->num_own; i < cell->params.num_components; i++) {
        if (cell->forward_of[i] == c->index) {
            loongi_text_printf(&plan->text, " and %d ahead",
                               chunks[cell->first_chunk[i]].slots);
        }
    }
}

/* The layers of each stage of a pipeline of a component's own. */
static void describe_stages(loong_plan_t *plan, const loong_component_t *c)
{
    int ranks = c->params.mesh.size[LOONG_AXIS_PP];
    for (int s = 0; ranks > 1 && s < ranks * c->num_chunks; s++) {
        const loong_stage_split_t *cut = &c->cuts[s];
        if (s == 0) {
            loongi_text_printf(&plan->text, " x pipeline %d (layers ", ranks);
        }
        loongi_text_printf(&plan->text, "%s%d-%d", s > 0 ? " | " : "",
                           cut->first_layer,
                           cut->first_layer + cut->num_layers - 1);
    }
    loongi_text_printf(&plan->text, "%s", ranks > 1 ? ")" : "");
}

/* Layouts of the components that others read. */
static void describe_upstream(loong_plan_t *plan)
{
    const loong_model_t *m = plan->component->model;
    if (plan->num_encoders > 0) {
        loongi_text_printf(&plan->text, "  join: %s\n",
                           plan->component->params.join);
    }
    for (int i = 0; i < 2 * plan->num_encoders; i++) {
        const loong_component_params_t *p = &m->components[i]->params;
        const loong_picture_plan_t *of = loongi_plan_pictures(plan, i);
        loongi_text_printf(&plan->text, "  %s: tensor %d%s", p->name,
                           p->mesh.size[LOONG_AXIS_TP],
                           p->request.sequence_parallel ? " (sequence)" : "");
        if (p->mesh.size[LOONG_AXIS_CP] > 1) {
            loongi_text_printf(&plan->text, " x context %d",
                               p->mesh.size[LOONG_AXIS_CP]);
        }
        loongi_text_printf(&plan->text, " x data %d",
                           p->mesh.size[LOONG_AXIS_DP]);
        describe_stages(plan, m->components[i]);
        int64_t pictures = of->native
                               ? of->encoder
                               : loongi_component_rows(m->components[i]) /
                                     p->request.seq_length;
        loongi_text_printf(
            &plan->text, ", %lld picture%s of a micro-batch%s%s",
            (long long)pictures, pictures == 1 ? "" : "s",
            of->native ? " and their size" : "",
            p->train ? "" : ", frozen");
        describe_ranks(plan, p);
        describe_kept(plan, m->components[i]);
        describe_own(plan, p);
        loongi_text_printf(&plan->text, "\n");
    }
}

void loongi_describe_layout(loong_plan_t *plan)
{
    const loong_component_t *s = plan->component;
    const loong_schedule_t *schedule =
        s->schedule != NULL ? s->schedule : s->evaluation;
    char context[64] = "";
    char experts[96] = "";
    int ring = loong_mesh_group_size(&plan->mesh, LOONG_GROUP_CP_P2P);
    if (s->params.request.cp_comm == LOONG_CP_A2A_P2P) {
        snprintf(context, sizeof(context), " (a2a %d x p2p %d)",
                 plan->mesh.cp_a2a, ring);
    } else if (plan->mesh.size[LOONG_AXIS_CP] > 1) {
        snprintf(context, sizeof(context), " (%s)",
                 loong_recipe_text(plan->recipe, "parallel.cp_comm_type"));
    }
    if (plan->mesh.size[LOONG_AXIS_EP] * plan->mesh.size[LOONG_AXIS_ETP] > 1) {
        snprintf(experts, sizeof(experts),
                 " (for experts: expert %d x tensor %d x data %d)",
                 plan->mesh.size[LOONG_AXIS_EP],
                 plan->mesh.size[LOONG_AXIS_ETP],
                 plan->mesh.size[LOONG_AXIS_EDP]);
    }
    describe_parameters(plan);
    loongi_text_printf(
        &plan->text, "tokens per step: %lld (%lld sample%s of %lld)\n",
        (long long)(plan->set->global_batch_size * plan->set->seq_length),
        (long long)plan->set->global_batch_size,
        plan->set->global_batch_size == 1 ? "" : "s",
        (long long)plan->set->seq_length);
    loongi_text_printf(
        &plan->text,
        "ranks: %d = tensor %d%s x context %d%s x data %d "
        "(sharing %s) x pipeline %d (%s%s)%s, %d threads each",
        plan->mesh.world, plan->mesh.size[LOONG_AXIS_TP],
        s->params.request.sequence_parallel ? " (sequence)" : "",
        plan->mesh.size[LOONG_AXIS_CP], context, plan->mesh.size[LOONG_AXIS_DP],
        loongi_sharding_name(s->params.shards.sharding),
        plan->mesh.size[LOONG_AXIS_PP], schedule->kind->name,
        schedule->params.pair ? ", in pairs" : "", experts,
        s->params.compile.threads);
    describe_ranks(plan, &s->params);
    loongi_text_printf(&plan->text, "\n");
    loongi_shares_describe(plan);
    describe_upstream(plan);
}

loong_status_t loongi_describe_memory(loong_plan_t *plan, const char **text_p)
{
    if (plan->plan_only && plan->parallel.ranks > 1) {
        LOONG_TRY(loongi_stage_plans_create(plan));
    }
    describe_experts(plan);
    describe_precision(plan);
    describe_optimizer(plan);
    if (plan->stage_plans != NULL) {
        loongi_stage_plans_describe(plan, &plan->text);
    } else {
        describe_memory(plan);
    }
    LOONG_TRY(loongi_staging_describe(plan, &plan->text));
    LOONG_TRY(loongi_overhead_describe(plan, &plan->text));
    describe_lack(plan);
    return take_text(plan, text_p);
}

static void explain_stage(const loong_stage_t *s, loong_text_t *text)
{
    for (int i = 0; i < LOONG_VARIANT_COUNT; i++) {
        if (s->chunk[i] != NULL) {
            loongi_model_chunk_explain(s->chunk[i], text);
        }
    }
    const loong_optimizer_t *o = s->optimizer;
    if (o != NULL) {
        loongi_program_explain(&o->norm, text);
        loongi_program_explain(&o->update, text);
    }
}

loong_status_t loongi_describe_programs(loong_plan_t *plan, const char **text_p)
{
    loongi_text_free(&plan->text);
    plan->text = loongi_text_begin(plan->ctx);
    for (int i = 0; i < plan->component->model->num_stages; i++) {
        explain_stage(plan->component->model->stages[i], &plan->text);
    }
    return take_text(plan, text_p);
}
