/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe asks of a component, read before it is created. Called by
 * trainer_create.c and upstream.c. Read parallel.h and choices.h before. */
#include "component_params.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "choices.h"
#include "devices.h"
#include "optimizer_settings.h"
#include "param_rules.h"

/* What a key says of a component, and whether it says that of others too. */
static const char *own(const loong_plan_t *plan,
                       const loong_component_params_t *p, const char *key,
                       bool *shared_p)
{
    const char *path = loong_recipe_own_path(plan->recipe, p->name, key);
    *shared_p = strcmp(path, key) == 0;
    return path;
}

static loong_status_t read_recompute(const loong_plan_t *plan,
                                     loong_arena_t *arena,
                                     loong_component_params_t *p)
{
    static const char *const layers[] = {"layers.*"};
    bool *shared = &p->shared_globs[LOONG_GLOBS_RECOMPUTE];
    loong_compile_params_t *c = &p->compile;
    const char *text = loong_recipe_text(
        plan->recipe, own(plan, p, "recompute.granularity", shared));
    c->num_recompute = 0;
    if (strcmp(text, "full") == 0) {
        c->num_recompute = 1;
        c->recompute = layers;
    } else if (strcmp(text, "selective") == 0) {
        return loongi_read_globs(plan->recipe,
                                 own(plan, p, "recompute.scopes", shared),
                                 arena, &c->num_recompute, &c->recompute);
    }
    return LOONG_OK;
}

loong_status_t loongi_component_own(const loong_plan_t *plan,
                                    loong_arena_t *arena,
                                    loong_component_params_t *p)
{
    bool *shared = &p->shared_globs[LOONG_GLOBS_WIDE];
    p->precision =
        loongi_recipe_precision(plan->recipe, p->name, plan->device);
    LOONG_TRY(read_recompute(plan, arena, p));
    return loongi_read_globs(plan->recipe,
                             own(plan, p, "precision.fp32_scopes", shared),
                             arena, &p->compile.num_wide, &p->compile.wide);
}

static int parallel_size(const loong_plan_t *plan, const char *key)
{
    char path[128];
    snprintf(path, sizeof(path), "parallel.%s", key);
    return (int)loong_recipe_int(plan->recipe, path);
}

static loong_status_t read_pipeline(const loong_plan_t *plan,
                                    loong_component_params_t *p)
{
    static const char pair_key[] = "parallel.overlap_moe_expert_parallel_comm";
    const loong_train_settings_t *s = plan->set;
    p->schedule = loong_recipe_text(plan->recipe, "schedule");
    p->join = loong_recipe_text(plan->recipe, "join");
    p->pair = loong_recipe_bool(plan->recipe, pair_key);
    LOONG_CHECK(plan->ctx,
                !p->pair || loong_recipe_component(plan->recipe, 1) == NULL,
                LOONG_ERR_CONFIG,
                "%s: %s: does not go with a model of several components",
                loong_recipe_where(plan->recipe, pair_key), pair_key);
    p->layers_per_chunk =
        parallel_size(plan, "num_layers_per_virtual_pipeline_stage");
    p->layout = loong_recipe_text(plan->recipe,
                                  "parallel.pipeline_model_parallel_layout");
    return loongi_to_int(
        plan->ctx,
        s->global_batch_size /
            (s->micro_batch_size * plan->mesh.size[LOONG_AXIS_DP]),
        "micro-batches of a step", &p->micro_batches);
}

#define BF16_KEY "parallel.grad_reduce_in_bf16"

static loong_sharding_t read_sharding(const loong_recipe_t *r)
{
    const char *text = loong_recipe_text(r, "parallel.data_parallel_sharding");
    int level = 0;
    while (level + 1 < LOONG_SHARDING_COUNT &&
           strcmp(text, loongi_sharding_name((loong_sharding_t)level)) != 0) {
        level++;
    }
    return (loong_sharding_t)level;
}

/* What the recipe says of compiling, on the device of this rank. */
static loong_status_t read_compile(const loong_plan_t *plan,
                                   loong_arena_t *arena,
                                   loong_component_params_t *p)
{
    const loong_recipe_t *r = plan->recipe;
    p->compile.device = loong_device_name(plan->device);
    p->resources.staging = loongi_devices_staging(plan);
    p->compile.threads = omp_get_max_threads();
    p->compile.fuse = p->compile.in_place = true;
    p->compile.lanes =
        loong_recipe_bool(r, "comm.overlap") && plan->parallel.ranks > 1;
    p->compile.overlap = loong_recipe_bool(r, "parallel.tp_comm_overlap");
    p->compile.lane_work = loong_recipe_int(r, "comm.overlap_work");
    LOONG_TRY(loongi_choices_policy(plan, &p->compile.policy));
    LOONG_TRY(loongi_choices_graphs(plan, p));
    LOONG_TRY(loongi_component_own(plan, arena, p));
    return loongi_read_globs(r, "log.tensors", arena, &p->compile.num_watch,
                             &p->compile.watch);
}

loong_status_t loongi_component_params(const loong_plan_t *plan,
                                       int64_t segments, loong_arena_t *arena,
                                       loong_component_params_t *p)
{
    const loong_recipe_t *r = plan->recipe;
    loongi_parallel_request(&plan->parallel, &plan->mesh, &p->request);
    p->request.max_segments *= segments;
    LOONG_TRY(read_compile(plan, arena, p));
    loongi_optimizer_settings(r, &p->optimizer);
    for (int i = 0; i < p->optimizer.num_groups; i++) {
        p->shards.matrix[i] =
            loongi_optimizer_class(p->optimizer.group[i].kind)->matrix;
    }
    p->shards.device = p->compile.device;
    p->shards.threads = p->compile.threads;
    p->shards.policy = p->compile.policy;
    p->shards.bucket_bytes = loong_recipe_int(r, "parallel.bucket_bytes");
    p->shards.sharding = read_sharding(r);
    p->shards.reduce_bf16 = loong_recipe_bool(r, BF16_KEY);
    p->shards.lanes = p->resources.lanes = p->compile.lanes;
    p->train = !plan->evaluate_only;
    p->mesh = plan->mesh;
    p->ranks = plan->parallel.on;
    p->absent = plan->absent;
    memset(p->shared_globs, 0, sizeof(p->shared_globs));
    return read_pipeline(plan, p);
}

loong_status_t loongi_plan_check_rampup(const loong_plan_t *plan)
{
    loong_rampup_t ramp = loongi_recipe_rampup(plan->recipe);
    int64_t unit = plan->set->micro_batch_size * plan->mesh.size[LOONG_AXIS_DP];
    for (int64_t batch = ramp.start;
         batch > 0 && batch < plan->set->global_batch_size &&
         !plan->evaluate_only;
         batch += ramp.increment) {
        int count = 0;
        LOONG_TRY(loongi_to_int(plan->ctx, batch / unit,
                                "micro-batches of a step", &count));
        loong_status_t status =
            loongi_model_accepts(plan->component->model, count);
        if (status != LOONG_OK) {
            loongi_error_note(plan->ctx,
                              "wanted for train.rampup_batch_size, steps of "
                              "%lld samples",
                              (long long)batch);
            return status;
        }
    }
    return LOONG_OK;
}
