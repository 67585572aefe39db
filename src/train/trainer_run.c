/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop around the step: log, evaluate, save, stop. */
#include <stdio.h>
#include <string.h>

#include "beside.h"
#include "isa.h"
#include "loong/launch.h"
#include "loong/moe.h"
#include "parallel.h"
#include "peers.h"
#include "preflight.h"
#include "staging.h"
#include "timeline.h"
#include "trainer_impl.h"

/* ---- when ---------------------------------------------------------------- */

static bool every(int64_t step, int64_t interval)
{
    return interval > 0 && step % interval == 0;
}

/* This rank's wishes; the step header makes them everybody's. */
unsigned loongi_trainer_requests(const loong_trainer_t *t)
{
    unsigned signals = loong_signals_get();
    double now = loongi_now();
    unsigned flags = 0;
    /* A run does one step at least: one that is queued again gets on. */
    bool late = t->set.max_wall_time > 0.0 &&
                t->state.step > t->told.from_step &&
                now - t->start_time > t->set.max_wall_time;
    bool due = t->set.save_interval_seconds > 0.0 &&
               now - t->last_save_time > t->set.save_interval_seconds;
    if ((signals & LOONG_SIGNAL_STOP) != 0 || late) {
        flags |= LOONG_STEP_STOP;
    }
    if ((signals & LOONG_SIGNAL_SAVE) != 0 || due) {
        flags |= LOONG_STEP_SAVE;
    }
    if (t->save != NULL && !loongi_checkpoint_save_ready(t->save)) {
        flags |= LOONG_STEP_WRITING;
    }
    return flags;
}

static loong_status_t save(loong_trainer_t *t)
{
    LOONG_TRY(loongi_trainer_save(t));
    LOONG_TRY(loongi_report_memory(t));
    t->last_save_time = loongi_now();
    return LOONG_OK;
}

/* What the step header brought, before the step that it opens: a request is
 * about the steps that are done, so that nobody waits for one more. */
static loong_status_t heed_requests(loong_trainer_t *t, bool *stop_p)
{
    *stop_p = (t->flags & LOONG_STEP_STOP) != 0;
    bool wanted = *stop_p || (t->flags & LOONG_STEP_SAVE) != 0;
    bool done = t->state.step > t->told.from_step;
    if (t->save != NULL && (t->flags & LOONG_STEP_WRITING) == 0) {
        LOONG_TRY(loongi_trainer_advance_save(t)); /* ready on every rank */
    }
    if (*stop_p && t->window.steps > 0) {
        LOONG_TRY(loongi_report_interval(t));
    }
    if (!t->set.saves && (t->flags & LOONG_STEP_SAVE) != 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "step %lld: a save was asked for, but checkpoint.save is "
                   "not set",
                   (long long)t->state.step);
    }
    return wanted && done && t->set.saves ? save(t) : LOONG_OK;
}

static loong_status_t export_model(loong_trainer_t *t)
{
    const char *dir = loong_recipe_text(t->recipe, "export.hf");
    if (dir == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_trainer_export(t, dir));
    if (loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "exported as a Hugging Face directory: %s", dir);
    }
    return LOONG_OK;
}

/* What the training leaves is written before the last evaluation, so that one
 * that fails loses nothing. */
static loong_status_t keep_last(loong_trainer_t *t)
{
    if (t->set.saves) {
        LOONG_TRY(save(t));
        LOONG_TRY(loongi_trainer_finish_save(t));
    }
    return export_model(t);
}

/* *stop_p: the run ends here, as the recipe says. */
static loong_status_t after_step(loong_trainer_t *t, bool *stop_p)
{
    int64_t step = t->state.step;
    bool last = step == t->set.train_iters;
    *stop_p = !last && every(step, t->set.exit_interval);
    if (every(step, t->set.log_interval) || last || *stop_p) {
        LOONG_TRY(loongi_report_interval(t));
    }
    bool due = every(step, t->set.save_interval) || *stop_p;
    if (last) {
        LOONG_TRY(keep_last(t));
    } else if (due && t->set.saves) {
        LOONG_TRY(save(t));
        LOONG_TRY(*stop_p ? loongi_trainer_finish_save(t) : LOONG_OK);
    }
    if (every(step, t->set.eval_interval) || last) {
        LOONG_TRY(loongi_trainer_evaluate(t));
        LOONG_TRY(loongi_report_memory(t));
        loongi_report_reset(t);
    }
    return LOONG_OK;
}

static void tell_progress(loong_trainer_t *t)
{
    loong_trainer_progress_t now = {t->state.step, t->set.train_iters,
                                    t->state.loss,
                                    loongi_report_seconds_left(t)};
    if (t->progress != NULL && loong_comm_rank(t->comm) == 0) {
        t->progress(t->progress_user, &now);
    }
}

loong_status_t loong_trainer_run(loong_trainer_t *trainer)
{
    loong_trainer_t *t = trainer;
    bool stop = false;
    LOONG_CHECK(t->ctx, !t->evaluate_only, LOONG_ERR_ARG,
                "a trainer that was made to evaluate cannot train");
    if (t->state.step >= t->set.train_iters) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "nothing to train: the checkpoint is at step %lld, "
                   "train.train_iters asks for %lld",
                   (long long)t->state.step, (long long)t->set.train_iters);
        return export_model(t);
    }
    loongi_report_reset(t);
    loongi_supervise_begin(t);
    while (t->state.step < t->set.train_iters && !stop) {
        LOONG_TRY(loongi_train_begin(t));
        LOONG_TRY(heed_requests(t, &stop));
        if (stop) {
            break;
        }
        LOONG_TRY(loongi_train_step(t));
        tell_progress(t);
        loongi_supervise_step(t);
        LOONG_TRY(after_step(t, &stop));
    }
    LOONG_TRY(loongi_trainer_finish_save(t));
    if (loong_comm_rank(t->comm) == 0) {
        LOONG_TRY(loongi_beside_tell(t));
    }
    loongi_report_end(t, stop);
    return stop ? LOONG_ERR_INTERRUPTED : LOONG_OK;
}

loong_status_t loong_trainer_evaluate(loong_trainer_t *trainer)
{
    loong_trainer_t *t = trainer;
    bool samples = t->component->params.logits_tokens > 0;
    LOONG_CHECK(t->ctx, t->num_validation > 0 || samples, LOONG_ERR_CONFIG,
                "nothing to evaluate: set data.validation, "
                "data.validation_split or eval.sample.prompts");
    return loongi_trainer_evaluate(t);
}

/* ---- texts --------------------------------------------------------------- */

/* What is not a beginning. */
static void describe_phase(loong_trainer_t *t)
{
    const char *load = loong_recipe_text(t->recipe, "checkpoint.load");
    bool loads = load != NULL && strcmp(load, "auto") != 0;
    if (strcmp(loong_recipe_text(t->recipe, "training_phase"), "midtrain") ==
        0) {
        loongi_text_printf(
            &t->text, "phase: midtrain, from the weights of %s\n",
            loads ? load : loong_recipe_text(t->recipe, "init.from_hf"));
    }
}

static void describe_parameters(loong_trainer_t *t)
{
    const loong_component_t *s = t->component;
    char a[LOONG_HUMAN_SIZE];
    int64_t total = 0;
    int64_t trained = 0;
    for (int64_t i = 0; i < s->num_whole; i++) {
        int64_t elements = s->whole[i].shape[0] * s->whole[i].shape[1];
        total += elements;
        trained += s->whole[i].frozen ? 0 : elements;
    }
    loongi_text_printf(&t->text,
                       "parameters: %lld (%s), active for a token: %lld, "
                       "trained: %lld\n",
                       (long long)total, loongi_human_count((double)total, a),
                       (long long)(total - s->facts.idle_parameters),
                       (long long)trained);
    describe_phase(t);
}

static int states_in_bf16(const loong_trainer_t *t)
{
    int count = 0;
    for (int i = 0; i < LOONG_STATE_COUNT; i++) {
        count += t->component->params.optimizer.bf16[i];
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
static void describe_groups(loong_trainer_t *t)
{
    const loong_component_t *c = t->component;
    int items = (int)loong_recipe_count(t->recipe, "optimizer.groups");
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
            loongi_text_printf(&t->text,
                               "optimizer group: %s, learning rate %g, weight "
                               "decay %g, %lld parameters in %lld tensors, "
                               "first %s\n",
                               loongi_optimizer_class(group->kind)->name,
                               group->lr * t->set.lr.lr, group->weight_decay,
                               elements, count, first_of_group(c, g));
        }
    }
}

static void describe_optimizer(loong_trainer_t *t)
{
    const loong_recipe_t *r = t->recipe;
    const loong_optimizer_params_t *p = &t->component->params.optimizer;
    loongi_text_printf(&t->text, "optimizer: %s, learning rate %g, %s",
                       loong_recipe_text(r, "optimizer.name"), t->set.lr.lr,
                       loong_recipe_text(r, "optimizer.lr_decay_style"));
    const char *between = ", moments: ";
    for (int i = 0; i < LOONG_STATE_COUNT; i++) {
        if (p->bf16[i]) {
            loongi_text_printf(&t->text, "%s%s", between, loongi_state_name(i));
            between = " and ";
        }
    }
    if (states_in_bf16(t) > 0) {
        loongi_text_printf(&t->text, " in bf16, rounded %s",
                           p->stochastic_rounding ? "stochastically"
                                                  : "to nearest");
    }
    loongi_text_printf(&t->text, "\n");
    describe_groups(t);
}

/* The compute type and why; what works in a wider or slower one than it. */
static void describe_precision(loong_trainer_t *t)
{
    const char *asked = loong_recipe_text(t->recipe, "precision.params_dtype");
    int64_t wider = loong_recipe_count(t->recipe, "precision.fp32_scopes");
    loong_dtype_t compute = t->component->params.precision.compute;
    bool fast = loongi_fast_bf16(t->device);
    const char *what =
        loong_device_is_host(t->device) ? "processor" : "device";
    loongi_text_printf(&t->text, "precision: %s (",
                       loong_dtype_name(compute));
    if (strcmp(asked, "auto") == 0) {
        loongi_text_printf(&t->text, "auto: this %s %s bf16)", what,
                           fast ? "multiplies" : "does not multiply");
    } else if (compute == LOONG_BF16 && !fast) {
        loongi_text_printf(&t->text,
                           "as the recipe says, but this %s does not multiply "
                           "it: slower than fp32)", what);
    } else {
        loongi_text_printf(&t->text, "as the recipe says)");
    }
    if (compute == LOONG_BF16) {
        loongi_text_printf(&t->text,
                           "; fp32 in the sums of every op, "
                           "gradients%s",
                           states_in_bf16(t) > 0 ? " and masters"
                                                 : ", masters and moments");
    }
    for (int64_t i = 0; i < wider; i++) {
        char path[64];
        snprintf(path, sizeof(path), "precision.fp32_scopes[%lld]",
                 (long long)i);
        loongi_text_printf(&t->text, "%s %s", i == 0 ? "; fp32 scopes" : ",",
                           loong_recipe_text(t->recipe, path));
    }
    const loong_kernel_policy_t *policy = &t->component->params.compile.policy;
    if (policy->tf32) {
        loongi_text_printf(&t->text, "; operands of products in tf32");
    }
    if (policy->algorithms != NULL && loong_device_has_algorithms(t->device)) {
        loongi_text_printf(&t->text, "; algorithms of products as %s has them",
                           policy->algorithms);
    }
    loongi_text_printf(&t->text, "\n");
    const char *limit = NULL;
    if (!loongi_isa_limit(&limit)) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "ONEDNN_MAX_CPU_ISA is %s: not a level that oneDNN knows "
                   "(SSE41, AVX2, AVX512_CORE, AVX512_CORE_BF16, ...), so it "
                   "limits nothing", limit);
    }
}

/* The first grouped product of a layer's experts here; NULL: none. */
static const loong_step_t *expert_product(const loong_component_t *s)
{
    for (int i = 0; i < s->num_stages * LOONG_STAGE_CHUNKS; i++) {
        const loong_chunk_t *c =
            s->stages[i / LOONG_STAGE_CHUNKS]->chunk[i % LOONG_STAGE_CHUNKS];
        for (int p = 0; c != NULL && p < LOONG_PROGRAM_COUNT; p++) {
            for (int64_t k = 0; k < c->programs[p].num_steps; k++) {
                const loong_step_t *step = &c->programs[p].steps[k];
                if (strcmp(step->query.op, "grouped_linear") == 0) {
                    return step;
                }
            }
        }
    }
    return NULL;
}

/* How tokens come to other ranks, and why so. */
static void describe_dispatch(loong_trainer_t *t)
{
    const loong_component_t *c = t->component;
    loong_dispatch_rows_t rows = loongi_dispatch_rows(&t->mesh, &c->facts);
    const char *asked =
        loong_recipe_text(t->recipe, "parallel.moe_token_dispatcher_type");
    bool exchanged =
        c->params.request.dispatcher == LOONG_DISPATCH_ALL_TO_ALL;
    loongi_text_printf(&t->text, "; tokens come by %s",
                       exchanged ? "alltoall" : "allgather");
    if (strcmp(asked, "auto") == 0) {
        loongi_text_printf(&t->text,
                           " (auto: %.1f rows moved for a token, by %s %.1f)",
                           exchanged ? rows.exchanged : rows.gathered,
                           exchanged ? "allgather" : "alltoall",
                           exchanged ? rows.gathered : rows.exchanged);
    }
}

/* Memory is laid out for more rows than an even share, or for whatever routers
 * choose. Of the first stage that has experts, among those that are planned. */
static void describe_experts(loong_trainer_t *t)
{
    const loong_step_t *step = expert_product(t->component);
    for (int r = 0; step == NULL && t->peers != NULL &&
                    r < t->mesh.size[LOONG_AXIS_PP]; r++) {
        step = expert_product(t->peers[r]);
    }
    if (step == NULL) {
        return;
    }
    const loong_grouped_linear_attr_t *attr = step->query.attr;
    double rows = (double)step->query.arg[0].dim[0];
    loongi_text_printf(&t->text,
                       "experts: room for %.0f rows of a layer%s; %.0f with "
                       "even routing",
                       rows,
                       step->repeat != 0 ? ", more run in rounds"
                                         : ", the most there can be",
                       rows * attr->share);
    if (loong_mesh_group_size(&t->mesh, LOONG_GROUP_ETP_EP) > 1) {
        describe_dispatch(t);
    }
    loongi_text_printf(&t->text, "\n");
}

static void describe_memory(loong_trainer_t *t)
{
    char a[LOONG_HUMAN_SIZE];
    const int64_t *bytes = t->component->bytes;
    loongi_text_printf(&t->text, "memory of this rank:\n");
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (bytes[b] > 0) {
            loongi_text_printf(&t->text, "  %-14s %s\n",
                               loongi_base_name((loong_base_t)b),
                               loongi_human_bytes((double)bytes[b], a));
        }
    }
    loongi_text_printf(&t->text, "  %-14s %s\n", "together",
                       loongi_human_bytes((double)t->memory.rank, a));
}

static void describe_lack(loong_trainer_t *t)
{
    if (!loongi_room_suffices(t)) {
        loongi_text_printf(&t->text, "too little memory: ");
        loongi_room_tell(t, &t->text);
        loongi_text_printf(&t->text, "\n");
    }
}

static loong_status_t take_text(loong_trainer_t *t, const char **text_p)
{
    *text_p = loongi_text_get(&t->text);
    return t->text.status;
}

loong_status_t loong_trainer_describe(loong_trainer_t *trainer,
                                      const char **text_p)
{
    loong_trainer_t *t = trainer;
    const loong_component_t *s = t->component;
    const loong_schedule_t *schedule =
        s->schedule != NULL ? s->schedule : s->evaluation;
    char context[64] = "";
    char experts[96] = "";
    int ring = loong_mesh_group_size(&t->mesh, LOONG_GROUP_CP_P2P);
    if (s->params.request.cp_comm == LOONG_CP_A2A_P2P) {
        snprintf(context, sizeof(context), " (a2a %d x p2p %d)",
                 t->mesh.cp_a2a, ring);
    } else if (t->mesh.size[LOONG_AXIS_CP] > 1) {
        snprintf(context, sizeof(context), " (%s)",
                 loong_recipe_text(t->recipe, "parallel.cp_comm_type"));
    }
    if (t->mesh.size[LOONG_AXIS_EP] * t->mesh.size[LOONG_AXIS_ETP] > 1) {
        snprintf(experts, sizeof(experts),
                 " (for experts: expert %d x tensor %d x data %d)",
                 t->mesh.size[LOONG_AXIS_EP], t->mesh.size[LOONG_AXIS_ETP],
                 t->mesh.size[LOONG_AXIS_EDP]);
    }
    loongi_text_free(&t->text);
    t->text = loongi_text_begin(t->ctx);
    describe_parameters(t);
    loongi_text_printf(
        &t->text, "tokens per step: %lld (%lld samples of %lld)\n",
        (long long)(t->set.global_batch_size * t->set.seq_length),
        (long long)t->set.global_batch_size, (long long)t->set.seq_length);
    loongi_text_printf(&t->text,
                       "ranks: %d = tensor %d%s x context %d%s x data %d "
                       "(sharing %s) x pipeline %d (%s%s)%s, %d threads each\n",
                       t->mesh.world, t->mesh.size[LOONG_AXIS_TP],
                       s->params.request.sequence_parallel ? " (sequence)" : "",
                       t->mesh.size[LOONG_AXIS_CP], context,
                       t->mesh.size[LOONG_AXIS_DP],
                       loongi_sharding_name(
                           s->stages[0]->shards->params.sharding),
                       t->mesh.size[LOONG_AXIS_PP],
                       schedule->kind->name,
                       schedule->params.pair ? ", in pairs" : "", experts,
                       s->params.compile.threads);
    loongi_trainer_describe_data(t, &t->text);
    if (t->plan_only && t->mesh.world > 1) {
        LOONG_TRY(loongi_peers_plan(t));
    }
    describe_experts(t);
    describe_precision(t);
    describe_optimizer(t);
    if (t->peers != NULL) {
        loongi_peers_describe(t, &t->text);
    } else {
        describe_memory(t);
    }
    LOONG_TRY(loongi_staging_describe(t, &t->text));
    LOONG_TRY(loongi_beside_describe(t, &t->text));
    describe_lack(t);
    return take_text(t, text_p);
}

static void explain_stage(const loong_stage_t *s, loong_text_t *text)
{
    for (int i = 0; i < LOONG_STAGE_CHUNKS; i++) {
        if (s->chunk[i] != NULL) {
            loongi_chunk_explain(s->chunk[i], text);
        }
    }
    const loong_optimizer_t *o = s->optimizer;
    if (o != NULL) {
        loongi_program_explain(&o->norm, text);
        loongi_program_explain(&o->update, text);
    }
}

loong_status_t loong_trainer_explain(loong_trainer_t *trainer,
                                     const char **text_p)
{
    loong_trainer_t *t = trainer;
    loongi_text_free(&t->text);
    t->text = loongi_text_begin(t->ctx);
    for (int i = 0; i < t->component->num_stages; i++) {
        explain_stage(t->component->stages[i], &t->text);
    }
    return take_text(t, text_p);
}
