/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts of components that others read. Called while a model is planned.
 * Read parallel.h and src/component/model.h before. */
#include "upstream.h"

#include <stdio.h>
#include <string.h>

#include "component_params.h"

static bool is_upstream(const loong_plan_t *plan,
                        const loong_component_params_t *p)
{
    return p->family != plan->parallel.family;
}

static bool reads_pictures(const loong_component_params_t *p)
{
    loong_model_facts_t facts = {0};
    p->family->facts(p->config, &facts);
    return facts.patch_size > 0;
}

/* samples: pictures of a micro-batch. */
static loong_status_t layout_of(const loong_plan_t *plan,
                                const loong_component_params_t *p,
                                int64_t samples, loong_parallel_t *layout_p)
{
    loong_parallel_t layout = plan->parallel;
    layout.component = p->name;
    layout.family = p->family;
    layout.config = p->config;
    layout.samples = samples;
    layout.rows = reads_pictures(p) ? plan->pictures.rows : plan->pictures.sent;
    *layout_p = layout;
    return loongi_parallel_ranks(layout_p, p->name);
}

loong_status_t loongi_upstream_place(const loong_plan_t *plan, int job_rank,
                                     loong_component_params_t *params)
{
    loong_parallel_t layout = plan->parallel;
    if (is_upstream(plan, params)) {
        LOONG_TRY(layout_of(plan, params, 1, &layout));
    }
    params->ranks = layout.on;
    return loongi_parallel_place(&layout, job_rank, &params->mesh,
                                 &params->absent);
}

/* Where the rows of a picture are, and how many there can be. */
static void read_pictures(loong_plan_t *plan,
                          const loong_component_params_t *encoder)
{
    loong_model_facts_t facts = {0};
    encoder->family->facts(encoder->config, &facts);
    int64_t side = facts.image_size / facts.patch_size;
    plan->pictures.rows = side * side + (facts.class_token ? 1 : 0);
    plan->pictures.skip = facts.class_token && !facts.sends_class_token ? 1 : 0;
    plan->pictures.sent = plan->pictures.rows - plan->pictures.skip;
    plan->pictures.most = plan->set->max_images > 0
                              ? plan->set->max_images
                              : plan->set->micro_batch_size;
}

/* Edges have no messages between devices. */
static loong_status_t check_devices(const loong_plan_t *plan, int count,
                                    const loong_component_params_t *params)
{
    for (int i = 0; i < count; i++) {
        char key[64];
        snprintf(key, sizeof(key), "model.%s.ranks", params[i].name);
        LOONG_CHECK(plan->ctx,
                    params[i].ranks == NULL ||
                        loong_device_is_host(plan->device),
                    LOONG_ERR_UNSUPPORTED,
                    "%s: %s: components on ranks of their own send rows from "
                    "one device to another, which is not there; all "
                    "components on all ranks are",
                    loong_recipe_where(plan->recipe, key), key);
    }
    return LOONG_OK;
}

/* As the component with the loss has it, but the layout. */
static void copy_settings(loong_component_params_t *p,
                          const loong_component_params_t *last)
{
    loong_component_params_t own = *p;
    *p = *last;
    p->name = own.name;
    p->init = own.init;
    p->family = own.family;
    p->config = own.config;
    p->mesh = own.mesh;
    p->ranks = own.ranks;
    p->absent = own.absent;
    memset(&p->request, 0, sizeof(p->request));
    p->request.rules = own.request.rules;
    p->logits_rows = 0;
    p->layers_per_chunk = 0;
    p->layout = NULL;
    p->schedule = "auto";
    p->pair = false;
    p->shared_globs[LOONG_GLOBS_WATCH] = true;
}

/* Where components compute in different types, their edges carry the wide
 * one, which all have. */
static loong_status_t match_types(const loong_plan_t *plan, int count,
                                  loong_component_params_t *params)
{
    const loong_component_params_t *last = &params[count - 1];
    bool wide = false;
    for (int i = 0; i < count; i++) {
        const loong_precision_t *own = &params[i].precision;
        LOONG_CHECK(plan->ctx, own->wide == last->precision.wide,
                    LOONG_ERR_CONFIG,
                    "model.%s.precision.params_dtype: found %s, %s has %s; "
                    "fp64 goes with fp64 alone",
                    params[i].name, loong_dtype_name(own->compute), last->name,
                    loong_dtype_name(last->precision.compute));
        wide = wide || own->compute != last->precision.compute ||
               params[i].compile.num_wide > 0;
    }
    for (int i = 0; i < count; i++) {
        params[i].compile.wide_edges = wide;
    }
    return LOONG_OK;
}

/* pictures: of a micro-batch of a replica. */
static loong_status_t complete(const loong_plan_t *plan, loong_arena_t *arena,
                               const loong_component_params_t *last,
                               int64_t pictures, loong_component_params_t *p)
{
    loong_parallel_t layout;
    LOONG_TRY(layout_of(plan, p, pictures, &layout));
    copy_settings(p, last);
    LOONG_TRY(loongi_component_own(plan, arena, p));
    loongi_parallel_request(&layout, &p->mesh, &p->request);
    loong_status_t status = loongi_parallel_accepts(&layout);
    if (status != LOONG_OK) {
        loongi_error_note(plan->ctx, "wanted by model.%s.parallel", p->name);
    }
    return status;
}

loong_status_t loongi_upstream_params(loong_plan_t *plan, loong_arena_t *arena,
                                      int count,
                                      loong_component_params_t *params)
{
    const loong_component_params_t *last = &params[count - 1];
    loong_cell_ranks_t place;
    if (count == 1) {
        return LOONG_OK;
    }
    LOONG_CHECK(plan->ctx, last->mesh.size[LOONG_AXIS_CP] == 1,
                LOONG_ERR_UNSUPPORTED,
                "parallel.context_parallel_size %d: a model with %s has whole "
                "texts on each rank",
                last->mesh.size[LOONG_AXIS_CP], params[0].name);
    for (int i = 0; i < count - 1; i++) {
        if (reads_pictures(&params[i])) {
            read_pictures(plan, &params[i]);
        }
    }
    for (int i = 0; i < count - 1; i++) {
        LOONG_TRY(loongi_upstream_place(plan, loong_comm_rank(plan->comm),
                                        &params[i]));
    }
    LOONG_TRY(check_devices(plan, count, params));
    LOONG_TRY(loongi_cell_ranks_find(plan->ctx, arena, count, params, &place));
    int64_t of_cell = plan->pictures.most * place.component[count - 1].replicas;
    for (int i = 0; i < count - 1; i++) {
        int replicas = place.component[i].replicas;
        LOONG_TRY(complete(plan, arena, last,
                           (of_cell + replicas - 1) / replicas, &params[i]));
    }
    return match_types(plan, count, params);
}
