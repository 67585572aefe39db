/* SPDX-License-Identifier: Apache-2.0
 *
 * Settles by the device what a recipe leaves open. Called before the component
 * is planned. Read choices.h before. */
#include "choices.h"

#include <stdio.h>
#include <string.h>

#include "devices.h"
#include "fields.h"
#include "file.h"
#include "host_kernel.h"
#include "loong/register.h"
#include "predict.h"

/* ---- precision ----------------------------------------------------------- */

bool loongi_fast_bf16(const loong_device_caps_t *caps)
{
    return caps->rate[LOONG_BF16] > LOONG_RATE_SLOW;
}

loong_precision_t loongi_recipe_precision(const loong_recipe_t *recipe,
                                          const char *role,
                                          const loong_device_caps_t *caps)
{
    const char *text = loong_recipe_text(
        recipe, loong_recipe_own_path(recipe, role, "precision.params_dtype"));
    loong_precision_t p = {LOONG_F32, LOONG_F32};
    if (strcmp(text, "fp64") == 0) {
        p.compute = p.wide = LOONG_F64;
    } else if (strcmp(text, "bf16") == 0 ||
               (strcmp(text, "auto") == 0 && loongi_fast_bf16(caps))) {
        p.compute = LOONG_BF16;
    }
    return p;
}

/* ---- products and attention ---------------------------------------------- */

#define ATTENTION_KEY "train.attention_backend"

/* Of a device that is planned predict.device tells. */
static bool prefers_fused(const loong_plan_t *plan)
{
    const char *kind = loong_device_name(plan->device);
    bool first = loong_device_is_planned(plan->device)
                     ? loongi_predict_rates(plan, kind).fused_first
                     : loong_device_has(plan->device,
                                        LOONG_FEATURE_FUSED_FIRST);
    return first &&
           loong_device_has(plan->device, LOONG_FEATURE_FUSED_ATTENTION);
}

static loong_status_t settle_attention(const loong_plan_t *plan,
                                       loong_attention_backend_t *backend_p)
{
    bool has =
        loong_device_has(plan->device, LOONG_FEATURE_FUSED_ATTENTION);
    bool fused = *backend_p == LOONG_ATTENTION_FUSED;
    LOONG_CHECK(plan->ctx, has || !fused || loongi_devices_are_mixed(plan),
                LOONG_ERR_CONFIG,
                ATTENTION_KEY ": fused, but device %s has no library of it; "
                              "auto takes one where it is, local never",
                loong_device_name(plan->device));
    if (*backend_p == LOONG_ATTENTION_AUTO && !prefers_fused(plan)) {
        *backend_p = LOONG_ATTENTION_LOCAL;
    }
    return LOONG_OK;
}

/* A step that a library was asked for first and refuses. */
static bool falls_back(const loong_step_t *step)
{
    const char *op = step->query.op;
    return (strcmp(op, "attention") == 0 ||
            strcmp(op, "attention_grad") == 0) &&
           step->query.policy.attention == LOONG_ATTENTION_AUTO &&
           step->refusals[0] != '\0';
}

/* `seen` has a line for each op and reason. */
static void tell_step(const loong_plan_t *plan, const loong_step_t *step,
                      loong_text_t *seen)
{
    char line[1024];
    snprintf(line, sizeof(line), "%s by %s: %s\n", step->query.op,
             step->kernel->name, step->refusals);
    if (strstr(loongi_text_get(seen), line) == NULL) {
        loongi_text_printf(seen, "%s", line);
        loongi_log(plan->ctx, LOONG_LOG_INFO, ATTENTION_KEY ": auto, %.*s",
                   (int)strcspn(line, "\n"), line);
    }
}

static void tell_chunk(const loong_plan_t *plan,
                       const loong_model_chunk_t *chunk, loong_text_t *seen)
{
    for (int p = 0; chunk != NULL && p < LOONG_PROGRAM_COUNT; p++) {
        const loong_program_t *program = &chunk->programs[p];
        for (int64_t s = 0; s < program->num_steps; s++) {
            if (falls_back(&program->steps[s])) {
                tell_step(plan, &program->steps[s], seen);
            }
        }
    }
}

void loongi_choices_tell_attention(const loong_plan_t *plan)
{
    const loong_component_t *c = plan->component;
    loong_text_t seen = loongi_text_begin(plan->ctx);
    for (int i = 0; i < c->num_stages && loong_comm_rank(plan->comm) == 0;
         i++) {
        for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
            tell_chunk(plan, c->stages[i]->chunk[k], &seen);
        }
    }
    loongi_text_free(&seen);
}

#define FILE_KEY "gemm.algorithms_file"
#define TF32_KEY "precision.tf32"

/* By one rank, once. */
static void tell_file(const loong_plan_t *plan, const loong_kernel_policy_t *p)
{
    bool chooses = loong_device_has(plan->device, LOONG_FEATURE_ALGORITHMS);
    if (p->algorithms == NULL || loong_comm_rank(plan->comm) != 0) {
        return;
    }
    if (!chooses && !loongi_devices_are_mixed(plan)) {
        loongi_log(plan->ctx, LOONG_LOG_WARN,
                   FILE_KEY " has no effect: device %s has no algorithms to "
                            "choose from",
                   loong_device_name(plan->device));
    }
    if (chooses && p->fixed && !plan->plan_only) {
        loongi_log(plan->ctx, LOONG_LOG_WARN,
                   FILE_KEY
                   ": '%s' may not be written: no product is "
                   "measured, one that it lacks is made by the library's "
                   "first algorithm",
                   p->algorithms);
    }
}

loong_status_t loongi_choices_policy(const loong_plan_t *plan,
                                     loong_kernel_policy_t *policy)
{
    loong_kernel_policy_t p = {0};
    LOONG_FILL(plan->recipe, "", loong_kernel_policy_t, &p);
    bool has = loong_device_has(plan->device, LOONG_FEATURE_TF32);
    p.tf32 = p.tf32 && (has || !loongi_devices_are_mixed(plan));
    LOONG_TRY(settle_attention(plan, &p.attention));
    LOONG_CHECK(plan->ctx, !p.tf32 || has, LOONG_ERR_CONFIG,
                TF32_KEY ": device %s does not multiply tf32; leave the key "
                         "out, or choose a device that does",
                loong_device_name(plan->device));
    p.fixed = p.algorithms != NULL && loongi_file_is_fixed(p.algorithms);
    tell_file(plan, &p);
    *policy = p;
    return LOONG_OK;
}

/* ---- the processor in place of the device -------------------------------- */

#define HOST_KEY "train.host_ops"

/* Its kernel calls the tensor-parallel ranks, on memory of the host: all of
 * them or none. */
static loong_status_t check_shared(const loong_plan_t *plan, const char *path,
                                   const char *op)
{
    int tp = (int)loong_recipe_int(plan->recipe,
                                   "parallel.tensor_model_parallel_size");
    bool joins = loong_find_kernel(plan->ctx, op, "cpu", 0)->joins;
    for (int r = 0; joins && tp > 1 && r < plan->parallel.ranks; r++) {
        LOONG_CHECK(plan->ctx,
                    strcmp(loongi_devices_kind(plan, r),
                           loongi_devices_kind(plan, r - r % tp)) == 0,
                    LOONG_ERR_CONFIG,
                    "%s: %s (%s) needs tensor-parallel ranks on devices of one "
                    "kind, but ranks %d and %d have %s and %s",
                    path, op, loong_recipe_where(plan->recipe, path),
                    r - r % tp, r, loongi_devices_kind(plan, r - r % tp),
                    loongi_devices_kind(plan, r));
    }
    return LOONG_OK;
}

loong_status_t loongi_choices_host_ops(const loong_plan_t *plan)
{
    int64_t count = loong_recipe_count(plan->recipe, HOST_KEY);
    const char *device = loong_device_name(plan->device);
    for (int64_t i = 0; i < count; i++) {
        char path[64];
        snprintf(path, sizeof(path), HOST_KEY "[%lld]", (long long)i);
        const char *op = loong_recipe_text(plan->recipe, path);
        LOONG_CHECK(plan->ctx,
                    loong_find_kernel(plan->ctx, op, "cpu", 0) != NULL,
                    LOONG_ERR_CONFIG, "%s: '%s' (%s) is no op", path, op,
                    loong_recipe_where(plan->recipe, path));
        LOONG_TRY(check_shared(plan, path, op));
        bool has = loong_find_kernel(plan->ctx, op, device, 0) != NULL;
        if (loong_device_is_host(plan->device)) {
            continue;
        }
        LOONG_TRY(loongi_host_kernel_register(plan->ctx, device, op));
        if (loong_comm_rank(plan->comm) == 0) {
            loongi_log(plan->ctx, has ? LOONG_LOG_INFO : LOONG_LOG_WARN,
                       has ? HOST_KEY ": device %s has a kernel for %s, the "
                                      "processor does what that refuses"
                           : HOST_KEY ": device %s has none for %s: the "
                                      "processor does it, with copies there "
                                      "and back in every launch",
                       device, op);
        }
    }
    return LOONG_OK;
}

/* ---- graphs -------------------------------------------------------------- */

#define GRAPHS_KEY "train.cuda_graph_impl"

loong_status_t loongi_choices_graphs(const loong_plan_t *plan,
                                     loong_component_params_t *p)
{
    const char *impl = loong_recipe_text(plan->recipe, GRAPHS_KEY);
    bool has = loong_device_has(plan->device, LOONG_FEATURE_GRAPHS);
    LOONG_CHECK(plan->ctx,
                has || strcmp(impl, "local") != 0 || p->resources.staging.on,
                LOONG_ERR_CONFIG,
                GRAPHS_KEY ": local, but device %s has no graphs; auto takes "
                           "them where there are, none never",
                loong_device_name(plan->device));
    p->resources.graphs_go_on = strcmp(impl, "auto") == 0;
    p->resources.graphs = has && strcmp(impl, "none") != 0;
    return LOONG_OK;
}
