/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts of components that others read. Called while a model is planned.
 * Read parallel.h and src/component/model.h before. */
#include "upstream.h"

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
static loong_parallel_t layout_of(const loong_plan_t *plan,
                                  const loong_component_params_t *p,
                                  int64_t samples)
{
    loong_parallel_t layout = plan->parallel;
    layout.component = p->name;
    layout.family = p->family;
    layout.config = p->config;
    layout.samples = samples;
    layout.rows = reads_pictures(p) ? plan->pictures.rows : plan->pictures.sent;
    return layout;
}

loong_status_t loongi_upstream_mesh(const loong_plan_t *plan,
                                    const loong_component_params_t *params,
                                    int rank, loong_mesh_t *mesh_p)
{
    if (!is_upstream(plan, params)) {
        return loongi_parallel_mesh(&plan->parallel, rank, mesh_p);
    }
    loong_parallel_t layout = layout_of(plan, params, 1);
    return loongi_parallel_mesh(&layout, rank, mesh_p);
}

int loongi_upstream_replicas(const loong_plan_t *plan,
                             const loong_component_params_t *params)
{
    const int *size = params->mesh.size;
    return plan->pictures.block * plan->pictures.depth /
           (size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP] * size[LOONG_AXIS_PP]);
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
    plan->pictures.most =
        loong_recipe_is_set(plan->recipe, "data.max_images")
            ? loong_recipe_int(plan->recipe, "data.max_images")
            : plan->set->micro_batch_size;
}

/* The ranks of a cell: whole replicas of every component. */
static loong_status_t find_cell(loong_plan_t *plan, int count,
                                const loong_component_params_t *params)
{
    const loong_component_params_t *last = &params[count - 1];
    int block = 1;
    for (int i = 0; i < count; i++) {
        const int *size = params[i].mesh.size;
        block = LOONG_MAX(block, size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP]);
    }
    for (int i = 0; i < count; i++) {
        int tp = params[i].mesh.size[LOONG_AXIS_TP];
        LOONG_CHECK(plan->ctx, block % tp == 0, LOONG_ERR_CONFIG,
                    "model.%s.parallel.tensor_model_parallel_size %d does not "
                    "divide the %d ranks that another component has for a "
                    "replica",
                    params[i].name, tp, block);
    }
    int of_stage = last->mesh.world / last->mesh.size[LOONG_AXIS_PP];
    LOONG_CHECK(plan->ctx, of_stage % block == 0, LOONG_ERR_CONFIG,
                "a stage of the pipeline has %d ranks, no multiple of the %d "
                "that a replica of a component stands on",
                of_stage, block);
    plan->pictures.block = block;
    plan->pictures.depth = last->mesh.size[LOONG_AXIS_PP];
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

static loong_status_t complete(const loong_plan_t *plan, loong_arena_t *arena,
                               const loong_component_params_t *last,
                               loong_component_params_t *p)
{
    int64_t of_cell =
        plan->pictures.most * loongi_upstream_replicas(plan, last);
    int replicas = loongi_upstream_replicas(plan, p);
    loong_parallel_t layout =
        layout_of(plan, p, (of_cell + replicas - 1) / replicas);
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
        LOONG_TRY(loongi_upstream_mesh(plan, &params[i], plan->mesh.rank,
                                       &params[i].mesh));
    }
    LOONG_TRY(find_cell(plan, count, params));
    for (int i = 0; i < count - 1; i++) {
        LOONG_TRY(complete(plan, arena, last, &params[i]));
    }
    return match_types(plan, count, params);
}
