/* SPDX-License-Identifier: Apache-2.0
 *
 * From a recipe to a trainer that can run. Called by loongrun, loong-bench and
 * users' programs. Read loong/trainer.h and trainer_impl.h before. */
#include <stdio.h>
#include <string.h>

#include "choices.h"
#include "complete.h"
#include "component_params.h"
#include "devices.h"
#include "from_hf.h"
#include "hf_config.h"
#include "layout_suggest.h"
#include "loong/ops.h"
#include "memory_check.h"
#include "param_rules.h"
#include "plan_shares.h"
#include "preflight.h"
#include "run_dirs.h"
#include "stage_load.h"
#include "stage_plans.h"
#include "timeline.h"
#include "upstream.h"


/* ---- plan ---------------------------------------------------------------- */

/* The model as it was at the start, for train.kl_loss_coeff: frozen, with
 * weights of its own, on the same mesh. Where adapters alone are trained, it is
 * the model without them, and no component. */
static loong_component_params_t
reference_of(const loong_component_params_t *model)
{
    static const char *const all[] = {"*"};
    loong_component_params_t p = *model;
    p.name = "reference";
    p.request.rules.num_freeze = 1;
    p.request.rules.freeze = all;
    p.request.rules.adapters = NULL;
    p.adapter = NULL;
    p.beside_adapters = false;
    p.train = false;
    p.request.head = LOONG_MODEL_LOGPROB;
    p.request.kl_loss = 0.0;
    p.logits_rows = 0;
    p.layers_per_chunk = 0;
    p.layout = NULL;
    return p;
}

static loong_status_t check_reference(const loong_trainer_t *t,
                                      const loong_component_params_t *p,
                                      bool to_base)
{
    static const char key[] = "train.kl_loss_coeff";
    const char *where = loong_recipe_where(t->recipe, key);
    LOONG_CHECK(t->ctx, to_base || p->mesh.size[LOONG_AXIS_PP] == 1,
                LOONG_ERR_UNSUPPORTED,
                "%s: %s: the reference is a copy of the model in one stage, so "
                "that parallel.pipeline_model_parallel_size %d does not go "
                "with it; where adapters alone are trained it is the model "
                "without them, in any number of stages",
                where, key, p->mesh.size[LOONG_AXIS_PP]);
    LOONG_CHECK(t->ctx, !p->pair, LOONG_ERR_UNSUPPORTED,
                "%s: %s: does not go with "
                "parallel.overlap_moe_expert_parallel_comm",
                where, key);
    for (int i = 0; i < t->keys.count - 1; i++) {
        char freeze[64];
        snprintf(freeze, sizeof(freeze), "model.%s.freeze", t->keys.role[i]);
        LOONG_CHECK(t->ctx,
                    to_base && loong_recipe_bool(t->recipe, freeze),
                    LOONG_ERR_UNSUPPORTED,
                    "%s: %s: where the model sees pictures the reference is "
                    "the language model without adapters that are trained "
                    "alone, and the others are fixed (%s: true)",
                    where, key, freeze);
    }
    return LOONG_OK;
}

/* What samples of conversations are questions of; NULL: it is not open. */
static const loong_blend_t *asked_blend(const loong_trainer_t *t)
{
    return t->data.num_validation > 0 ? t->data.validation[0].blend
                                      : t->data.blend;
}

/* The components, the last one with the loss; the reference stands right before
 * it. */
static loong_status_t list_components(
    loong_trainer_t *t, loong_component_params_t *asked, int64_t segments,
    loong_component_params_t params[LOONG_MAX_COMPONENTS], int *count_p)
{
    loong_plan_t *plan = &t->plan;
    loong_arena_t *arena = t->keys.keys[0]->arena;
    int count = t->keys.count;
    loong_component_params_t *last = &asked[count - 1];
    LOONG_TRY(loongi_router_replay_mode(t->recipe, t->ctx, last,
                                        &last->request.routing));
    if (loongi_sample_count(t->recipe) > 0) {
        last->logits_rows = loongi_sample_window(plan, asked_blend(t));
    }
    LOONG_TRY(loongi_component_params(plan, segments, arena, last));
    last->request.kl_loss = loong_recipe_real(t->recipe, "train.kl_loss_coeff");
    LOONG_TRY(loongi_run_data_image_processor(&t->data));
    LOONG_TRY(loongi_run_data_count_moments(&t->data, count, asked));
    LOONG_TRY(loongi_upstream_params(plan, arena, count, asked));
    *count_p = 0;
    for (int i = 0; i < count; i++) {
        if (i == count - 1 && last->request.kl_loss > 0.0) {
            const loong_adapters_t *a = last->request.rules.adapters;
            last->request.kl_to_base = a != NULL && a->alone;
            LOONG_TRY(check_reference(t, last, last->request.kl_to_base));
            if (!last->request.kl_to_base) {
                params[(*count_p)++] = reference_of(last);
            }
        }
        params[(*count_p)++] = asked[i];
    }
    return LOONG_OK;
}

static loong_status_t plan_components(loong_trainer_t *t,
                                      loong_component_params_t *asked,
                                      int64_t segments)
{
    loong_component_params_t params[LOONG_MAX_COMPONENTS];
    loong_plan_t *plan = &t->plan;
    int count = 0;
    LOONG_TRY(list_components(t, asked, segments, params, &count));
    LOONG_TRY(loongi_model_create(t->ctx, count, params, &t->model));
    t->component = t->model->components[count - 1];
    plan->component = t->component;
    LOONG_TRY(loongi_run_data_processors(&t->data));
    LOONG_TRY(loongi_upstream_open(&t->upstream, plan, t->model));
    for (int i = 0; i < count; i++) {
        LOONG_TRY(loongi_inputs_list(&t->inputs, t->model->components[i],
                                     plan->readers[i].processor,
                                     plan->readers[i].config));
    }
    LOONG_TRY(loongi_losses_open(&t->losses, t->component,
                                 loongi_plan_reader(plan)->processor));
    loongi_choices_tell_attention(plan);
    LOONG_TRY(loongi_shares_check(plan));
    LOONG_TRY(loongi_param_rules_check(t->ctx, t->recipe, t->model));
    return loongi_check_export_saved(t->recipe, t->component,
                                     t->keys.keys[t->keys.count - 1]);
}

/* ---- start --------------------------------------------------------------- */

static loong_status_t load_model(loong_trainer_t *t)
{
    const char *load = NULL;
    LOONG_TRY(
        loongi_find_weights(t->ctx, t->recipe, t->plan.evaluate_only, &load));
    LOONG_TRY(loongi_check_unused(t->ctx, t->recipe));
    if (load != NULL) {
        return loongi_trainer_resume(t, load, false);
    }
    for (int i = 0; i < t->model->num_components; i++) {
        LOONG_TRY(
            loongi_component_begin(t->model->components[i], t->set.seed));
    }
    return LOONG_OK;
}

static loong_status_t require_samples(const loong_trainer_t *t)
{
    int64_t steps = t->set.train_iters - t->state.step;
    int64_t end =
        t->set.num_samples > 0
            ? t->set.num_samples
            : t->state.consumed_samples + steps * t->set.global_batch_size;
    return t->data.blend == NULL ? LOONG_OK
                                 : loong_blend_require(t->data.blend, end);
}

/* A length in epochs ends with their last sample: behind a run that ended in
 * the midst of a batch the steps are others. */
static void count_steps(loong_trainer_t *t)
{
    loong_train_settings_t *s = &t->set;
    int64_t steps = t->state.step;
    if (s->num_samples == 0 || t->data.loader == NULL) {
        return;
    }
    for (int64_t c = t->state.consumed_samples; c < s->num_samples; steps++) {
        c += loong_loader_batch(t->data.loader, c);
    }
    s->lr.decay_iters =
        s->lr.decay_iters == s->train_iters ? steps : s->lr.decay_iters;
    s->train_iters = steps;
}

static loong_status_t start(loong_trainer_t *t)
{
    if (loong_comm_rank(t->comm) == 0 && !t->plan.evaluate_only) {
        LOONG_TRY(loongi_run_dirs_open(t->ctx, t->recipe, t->saving.locks));
    }
    LOONG_TRY(loongi_supervise_open(&t->plan, &t->supervision));
    LOONG_TRY(loongi_step_exchange_create(
        t->ctx, t->comm, t->losses.num_normalisers, &t->exchange));
    LOONG_TRY(loongi_resources_create(t->ctx, t->plan.device, t->comm,
                                      &t->component->params.resources,
                                      &t->resources));
    LOONG_TRY(loongi_model_allocate(t->model, t->resources));
    LOONG_TRY(loongi_inputs_open(&t->inputs, t->model, t->plan.device));
    LOONG_TRY(loongi_step_metrics_open(&t->metrics, t->model, t->plan.device));
    LOONG_TRY(loong_device_stream_create(t->plan.device, &t->saving.stream));
    LOONG_TRY(load_model(t));
    count_steps(t);
    LOONG_TRY(require_samples(t));
    LOONG_TRY(loongi_router_replay_open(
        &t->plan, t->data.loader, t->state.step, t->state.consumed_samples,
        &t->router_replay));
    LOONG_TRY(loongi_report_open(&t->report, t->resources));
    t->sampling.asked = asked_blend(t);
    LOONG_TRY(loongi_sample_open(&t->sampling));
    return loong_comm_barrier(t->comm, "start");
}

/* A sample of a model that reads pictures is as long as one has rows. */
static loong_status_t set_picture_rows(loong_trainer_t *t)
{
    static const char key[] = "data.seq_length";
    loong_model_facts_t facts = {0};
    char text[24];
    t->plan.parallel.family->facts(t->plan.parallel.config, &facts);
    if (facts.patch_size == 0) {
        return LOONG_OK;
    }
    LOONG_CHECK(t->ctx, facts.image_size > 0, LOONG_ERR_UNSUPPORTED,
                "model: family %s: pictures keep sizes of their own, which "
                "goes with a foundation that reads them",
                t->plan.parallel.family->name);
    int64_t side = facts.image_size / facts.patch_size;
    int64_t rows = side * side + (facts.class_token ? 1 : 0);
    snprintf(text, sizeof(text), "%lld", (long long)rows);
    LOONG_CHECK(t->ctx,
                !loong_recipe_is_set(t->recipe, key) ||
                    loong_recipe_int(t->recipe, key) == rows,
                LOONG_ERR_CONFIG,
                "%s: %s: found %lld, a picture of %lld pixels a side has %s "
                "rows; it need not be set",
                loong_recipe_where(t->recipe, key), key,
                (long long)loong_recipe_int(t->recipe, key),
                (long long)facts.image_size, text);
    return loong_recipe_is_set(t->recipe, key)
               ? LOONG_OK
               : loong_recipe_set(t->recipe, key, text, "the model's pictures");
}

/* What is asked of losses and texts goes to a model with a vocabulary. */
static loong_status_t check_vocabulary(const loong_trainer_t *t)
{
    static const char *const keys[] = {
        "train.z_loss_coeff", "train.kl_loss_coeff", "eval.sample.prompts",
        "train.loss_normalization", "eval.sample.conversations"};
    loong_model_facts_t facts = {0};
    t->plan.parallel.family->facts(t->plan.parallel.config, &facts);
    for (int i = 0; i < LOONG_COUNT_OF(keys) && facts.vocab_size == 0; i++) {
        bool asked = i < 2   ? loong_recipe_real(t->recipe, keys[i]) > 0.0
                     : i < 3 ? loong_recipe_count(t->recipe, keys[i]) > 0
                             : loong_recipe_is_set(t->recipe, keys[i]);
        LOONG_CHECK(t->ctx, !asked, LOONG_ERR_CONFIG,
                    "%s: %s: family %s has no vocabulary",
                    loong_recipe_where(t->recipe, keys[i]), keys[i],
                    t->plan.parallel.family->name);
    }
    return LOONG_OK;
}

/* The model and the layout that are asked for. */
static loong_status_t check_recipe(loong_trainer_t *t,
                                   const loong_component_params_t *asked)
{
    t->plan.parallel.family = asked[t->keys.count - 1].family;
    t->plan.parallel.config = asked[t->keys.count - 1].config;
    LOONG_TRY(check_vocabulary(t));
    LOONG_TRY(set_picture_rows(t));
    LOONG_TRY(loongi_parallel_ranks(&t->plan.parallel,
                                    asked[t->keys.count - 1].name));
    LOONG_TRY(loongi_parallel_check(&t->plan.parallel));
    return loongi_parallel_place(&t->plan.parallel, loong_comm_rank(t->comm),
                                 &t->plan.mesh, &t->plan.absent);
}

/* *all_p: no rank has failed. Collective. */
static loong_status_t on_all(loong_trainer_t *t, loong_status_t mine,
                             bool *all_p)
{
    int64_t good = mine == LOONG_OK;
    LOONG_TRY(loong_comm_all_reduce(t->comm, &good, 1, LOONG_I64,
                                    LOONG_REDUCE_MIN, "plan"));
    *all_p = good == 1;
    return LOONG_OK;
}

/* The model, and what the recipe leaves open. Collective. */
static loong_status_t complete(loong_trainer_t *t,
                               loong_component_params_t *asked)
{
    bool filled = false;
    loong_status_t status = loong_trainer_fill_recipe(
        t->ctx, t->recipe, loong_comm_rank(t->comm) == 0);
    t->plan.unknown_model = status != LOONG_OK;
    /* What is opened before all is checked asks for settings. */
    LOONG_FILL(t->recipe, "", loong_train_settings_t, &t->set);
    if (status == LOONG_OK && t->plan.evaluate_only) {
        status = loongi_complete_evaluation(&t->plan);
    } else if (status == LOONG_OK && !t->plan.reads_data) {
        status = loongi_complete_model(&t->plan,
                                       loongi_run_data_longest(&t->data));
    }
    LOONG_TRY(on_all(t, status, &filled));
    if (!filled) {
        return status;
    }
    LOONG_TRY(loongi_trainer_keep_keys(t));
    LOONG_TRY(loongi_run_data_complete_date(&t->data));
    LOONG_FILL(t->recipe, "", loong_train_settings_t, &t->set);
    status = loongi_trainer_model(t, asked);
    bool known = status == LOONG_OK;
    return loongi_first_of(
        status, loongi_run_data_complete_rows(
                    &t->data, known ? t->keys.count : 0, asked));
}

/* What is asked for, which needs no other rank. */
static loong_status_t check(loong_trainer_t *t,
                            const loong_component_params_t *asked)
{
    loong_status_t status = check_recipe(t, asked);
    LOONG_TRY(loongi_first_of(status, loongi_devices_check(&t->plan)));
    loongi_settings_read(t->recipe, t->plan.evaluate_only, &t->set);
    return LOONG_OK;
}

/* Collective, as the devices of a machine are shared out. */
static loong_status_t plan(loong_trainer_t *t, loong_component_params_t *asked)
{
    int64_t segments = 0;
    LOONG_TRY(loongi_run_data_pack_pictures(&t->data, t->keys.count, asked,
                                            t->keys.keys[0]->arena));
    LOONG_TRY(loongi_run_data_count_segments(&t->data, &segments));
    LOONG_TRY(loongi_run_data_set_length(&t->data, &t->set));
    loong_status_t status = loongi_devices_settle(&t->plan);
    if (status == LOONG_OK) {
        status = loongi_shares_open(&t->plan, t->keys.keys[0]->arena);
    }
    if (status == LOONG_OK) {
        status = loongi_devices_open(&t->plan);
    }
    if (status == LOONG_OK) {
        status = loongi_choices_host_ops(&t->plan);
    }
    if (status == LOONG_OK) {
        status = plan_components(t, asked, segments);
    }
    /* What this device lacks the recipe should not have asked for. */
    LOONG_TRY(status == LOONG_ERR_UNSUPPORTED ? LOONG_ERR_CONFIG : status);
    return loong_recipe_hash(t->recipe, &t->recipe_hash);
}

/* All ranks go on, or none, for the reason of the first that cannot: a wrong
 * recipe is not a device that fails. Collective. */
static loong_status_t agree(loong_trainer_t *t, loong_status_t status)
{
    enum { STATUSES = 256 };
    int size = loong_comm_size(t->comm);
    int rank = status != LOONG_OK ? loong_comm_rank(t->comm) : size;
    int64_t first = (int64_t)rank * STATUSES + (int)status;
    loong_status_t agreed = loong_comm_all_reduce(
        t->comm, &first, 1, LOONG_I64, LOONG_REDUCE_MIN, "start");
    LOONG_TRY(status);
    LOONG_TRY(agreed);
    LOONG_CHECK(t->ctx, first / STATUSES == size,
                (loong_status_t)(first % STATUSES), "rank %lld cannot start",
                (long long)(first / STATUSES));
    return LOONG_OK;
}

/* Everything that is wrong, told together. Collective. */
static loong_status_t judge(loong_trainer_t *t)
{
    loong_component_params_t asked[LOONG_MODEL_ROLES];
    bool planned = false;
    memset(asked, 0, sizeof(asked));
    loong_status_t status = complete(t, asked);
    status = status == LOONG_OK
                 ? check(t, asked)
                 : loongi_first_of(status, /* what else is wrong is told too */
                                   loong_recipe_check(t->recipe,
                                                      t->plan.parallel.ranks));
    LOONG_TRY(on_all(t, status, &planned));
    if (planned) {
        status = plan(t, asked);
        LOONG_TRY(on_all(t, status, &planned));
    }
    if (planned) {
        status = loongi_memory_measure(&t->plan);
    }
    if (t->plan.plan_only && !t->plan.judge) {
        return status;
    }
    loong_status_t room = planned ? loong_trainer_check_memory(t) : LOONG_OK;
    loong_status_t needs = loongi_preflight(t);
    if (t->plan.plan_only && status == LOONG_OK && needs == LOONG_OK) {
        loong_context_clear_error(t->ctx); /* too large, but a plan */
        return LOONG_OK;
    }
    return loongi_first_of(loongi_first_of(status, room), needs);
}

/* What is wrong is known to all while the communicator is intact; what fails
 * later ends the waiting of others. */
static loong_status_t create(loong_trainer_t *t)
{
    LOONG_TRY(agree(t, judge(t)));
    loong_status_t status = t->plan.plan_only ? LOONG_OK : start(t);
    if (status == LOONG_OK) {
        status = loong_recipe_status(t->recipe);
    }
    if (status != LOONG_OK) {
        loong_comm_abort(t->comm, loong_context_error(t->ctx));
    }
    return status;
}

loong_status_t loong_trainer_create(loong_context_t *ctx,
                                    const loong_trainer_params_t *params,
                                    loong_trainer_t **trainer_p)
{
    loong_trainer_t *t = NULL;
    int ranks = loong_comm_size(params->comm);
    LOONG_CHECK(ctx, params->plan_ranks == 0 ||
                         (params->plan_only && params->plan_ranks >= ranks),
                LOONG_ERR_ARG,
                "a plan for %d ranks on %d: only a plan can have more ranks "
                "than there are, and none fewer", params->plan_ranks, ranks);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*t), "trainer", &t));
    t->ctx = ctx;
    t->comm = params->comm;
    t->recipe = params->recipe;
    t->plan.ctx = ctx;
    t->plan.comm = params->comm;
    t->plan.recipe = params->recipe;
    t->plan.set = &t->set;
    t->data.plan = &t->plan;
    t->plan.evaluate_only = params->evaluate_only;
    t->plan.plan_only = params->plan_only;
    t->plan.judge = params->judge;
    t->plan.reads_data =
        !params->plan_only || params->judge || params->reads_data;
    t->plan.decode = params->decode;
    t->plan.parallel.ctx = ctx;
    t->plan.parallel.recipe = params->recipe;
    t->plan.parallel.ranks = LOONG_MAX(params->plan_ranks, ranks);
    t->progress.call = params->progress;
    t->progress.user = params->progress_user;
    t->plan.text = loongi_text_begin(ctx);
    t->sampling.plan = &t->plan;
    t->sampling.inputs = &t->inputs;
    t->report.ctx = ctx;
    t->report.plan = &t->plan;
    t->report.state = &t->state;
    t->report.frame = &t->frame;
    t->report.loss = t->losses.value;
    t->report.start_time = t->saving.last_time = loongi_now();
    t->saving.saved_step = t->saving.locks[0] = t->saving.locks[1] = -1;
    loong_status_t status = create(t);
    if (status != LOONG_OK) {
        loong_trainer_destroy(&t);
        return status;
    }
    *trainer_p = t;
    return LOONG_OK;
}

void loong_trainer_destroy(loong_trainer_t **trainer_p)
{
    loong_trainer_t *t = *trainer_p;
    if (t == NULL) {
        return;
    }
    loongi_model_disconnect(t->model);
    loongi_checkpoint_save_destroy(&t->saving.save);
    loongi_pairs_destroy(&t->saving.metadata);
    loongi_report_close(&t->report);
    loongi_supervise_close(&t->supervision);
    loong_tokenizer_destroy(&t->sampling.tokenizer);
    loongi_router_replay_close(&t->router_replay);
    loongi_run_data_close(&t->data);
    for (int i = 0; i < LOONG_MAX_ENCODERS; i++) {
        loong_image_processor_destroy(&t->data.image_processor[i]);
    }
    loong_image_processor_destroy(&t->data.video_processor);
    loongi_inputs_close(&t->inputs);
    loongi_step_metrics_close(&t->metrics);
    if (t->saving.stream != NULL) {
        loong_device_stream_destroy(t->plan.device, t->saving.stream);
    }
    loongi_timeline_destroy(&t->plan);
    loongi_stage_plans_destroy(&t->plan);
    loongi_model_destroy(&t->model);
    loongi_resources_destroy(&t->resources);
    loongi_step_exchange_destroy(&t->exchange);
    loong_device_destroy(&t->plan.device);
    loongi_run_dirs_close(t->saving.locks);
    for (int i = 0; i < t->keys.count; i++) {
        loongi_pairs_destroy(&t->keys.keys[i]);
    }
    loongi_artifacts_clear(&t->saving.artifacts);
    loongi_text_free(&t->plan.text);
    loongi_free(t->ctx, t);
    *trainer_p = NULL;
}

int loong_trainer_num_losses(const loong_trainer_t *trainer)
{
    return trainer->component->num_losses;
}

double loong_trainer_get_loss(const loong_trainer_t *trainer, int i,
                              const char **name_p)
{
    *name_p = trainer->component->losses[i].name;
    return trainer->losses.value[i];
}

loong_status_t loong_trainer_fill_recipe(loong_context_t *ctx,
                                         loong_recipe_t *recipe, bool tells)
{
    LOONG_TRY(loongi_recipe_fill_loss(ctx, recipe));
    LOONG_TRY(loongi_complete_phase(recipe));
    LOONG_TRY(loongi_recipe_fill(ctx, recipe, tells));
    return loongi_complete_finetuning(recipe);
}

loong_trainer_state_t loong_trainer_get_state(const loong_trainer_t *trainer)
{
    const loong_run_state_t *s = &trainer->state;
    loong_trainer_state_t state = {s->step, s->consumed_samples, s->updates,
                                   s->loss, s->grad_norm};
    return state;
}
