/* SPDX-License-Identifier: Apache-2.0
 *
 * From the keys of parallel: to a mesh, and the rules that a layout must keep.
 * Called by trainer_create.c, by components and by layout_suggest.c. Read
 * loong/mesh.h before. */
#include "parallel.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "component.h"
#include "fields.h"
#include "schedule.h"

/* The path of a key that components that others read have as well. */
static const char *own_path(const loong_parallel_t *l, const char *key,
                            char path[128])
{
    snprintf(path, 128, "%s%s%sparallel.%s",
             l->component != NULL ? "model." : "",
             l->component != NULL ? l->component : "",
             l->component != NULL ? "." : "", key);
    return path;
}

int loongi_parallel_own(const loong_parallel_t *layout, const char *key)
{
    char all[128];
    snprintf(all, sizeof(all), "parallel.%s", key);
    const char *path =
        loong_recipe_own_path(layout->recipe, layout->component, all);
    return strcmp(path, all) != 0 ? (int)loong_recipe_int(layout->recipe, path)
                                  : 0;
}

/* Ranks of group CP_A2A. */
static int exchanging(const loong_recipe_t *r, int cp)
{
    loong_model_request_t request;
    memset(&request, 0, sizeof(request));
    LOONG_FILL(r, "parallel.", loong_model_request_t, &request);
    return request.cp_comm == LOONG_CP_A2A ? cp
           : request.cp_comm == LOONG_CP_A2A_P2P
               ? (int)loong_recipe_int(
                     r, "parallel.hierarchical_context_parallel_sizes[0]")
               : 1;
}

static int count_ranks(const loong_parallel_t *l)
{
    return l->on != NULL ? l->num_on : l->ranks;
}

static loong_mesh_params_t mesh_params(const loong_parallel_t *l)
{
    char path[128];
    loong_model_facts_t facts = {0};
    loong_mesh_params_t p = {.world = count_ranks(l)};
    l->family->facts(l->config, &facts);
    LOONG_FILL(l->recipe, "parallel.", loong_mesh_params_t, &p);
    if (l->component != NULL) {
        int tp = (int)loong_recipe_int(
            l->recipe, own_path(l, "tensor_model_parallel_size", path));
        p.tp = LOONG_MAX(tp, 1);
        p.pp = LOONG_MAX(loongi_parallel_own(l, "pipeline_model_parallel_size"),
                         1);
        p.cp = LOONG_MAX(loongi_parallel_own(l, "context_parallel_size"), 1);
        p.ep = p.etp = 1;
    }
    p.kv_heads = facts.kv_heads;
    p.cp_a2a = l->component != NULL ? p.cp : exchanging(l->recipe, p.cp);
    return p;
}

loong_status_t loongi_parallel_mesh(const loong_parallel_t *layout, int rank,
                                    loong_mesh_t *mesh_p)
{
    loong_mesh_params_t p = mesh_params(layout);
    loong_status_t status = loong_mesh_create(layout->ctx, &p, rank, mesh_p);
    if (status != LOONG_OK && layout->on != NULL) {
        loongi_error_note(layout->ctx,
                          "wanted of the %d ranks of model.%s.ranks; multiples "
                          "of %d fit",
                          p.world, layout->role, p.tp * p.cp * p.pp);
    } else if (status != LOONG_OK && layout->component != NULL) {
        loongi_error_note(layout->ctx, "wanted by model.%s.parallel",
                          layout->component);
    }
    return status;
}

loong_status_t loongi_parallel_ranks(loong_parallel_t *layout, const char *role)
{
    layout->role = role;
    return loong_recipe_ranks(layout->recipe, role, layout->ranks, &layout->on,
                              &layout->num_on);
}

loong_status_t loongi_parallel_place(const loong_parallel_t *layout,
                                     int job_rank, loong_mesh_t *mesh_p,
                                     bool *absent_p)
{
    int rank = job_rank;
    if (layout->on != NULL) {
        rank = 0;
        while (rank < layout->num_on && layout->on[rank] != job_rank) {
            rank++;
        }
    }
    *absent_p = layout->on != NULL && rank == layout->num_on;
    return loongi_parallel_mesh(layout, *absent_p ? 0 : rank, mesh_p);
}

loong_dispatch_rows_t loongi_dispatch_rows(const loong_mesh_t *mesh,
                                           const loong_model_facts_t *facts)
{
    double n = loong_mesh_group_size(mesh, LOONG_GROUP_ETP_EP);
    int experts = facts->num_experts;
    int elsewhere = experts - experts / mesh->size[LOONG_AXIS_EP];
    double none = 1.0; /* of a token's choices are on a given rank */
    for (int j = 0; j < facts->router_topk; j++) {
        none *= (double)LOONG_MAX(elsewhere - j, 0) / LOONG_MAX(experts - j, 1);
    }
    double q = 1.0 - none;
    loong_dispatch_rows_t rows = {3.0 * n - 2.0, q * (6.0 * n - 2.0) + 1.0};
    return rows;
}

static loong_dispatcher_t dispatcher_of(const loong_parallel_t *layout,
                                        const loong_mesh_t *mesh)
{
    const char *text =
        loong_recipe_text(layout->recipe, "parallel.moe_token_dispatcher_type");
    loong_model_facts_t facts = {0};
    layout->family->facts(layout->config, &facts);
    loong_dispatch_rows_t rows = loongi_dispatch_rows(mesh, &facts);
    bool fewer = strcmp(text, "auto") == 0 && rows.exchanged < rows.gathered;
    return fewer || strcmp(text, "alltoall") == 0 ? LOONG_DISPATCH_ALL_TO_ALL
                                                  : LOONG_DISPATCH_ALL_GATHER;
}

static bool layout_reads_pictures(const loong_parallel_t *layout)
{
    loong_model_facts_t facts = {0};
    layout->family->facts(layout->config, &facts);
    return facts.patch_size > 0;
}

/* Rows of which a component makes one. */
static int64_t merged_rows(const loong_parallel_t *layout)
{
    loong_model_facts_t facts = {0};
    layout->family->facts(layout->config, &facts);
    return LOONG_MAX(facts.merge_size * facts.merge_size, 1);
}

void loongi_parallel_request(const loong_parallel_t *layout,
                             const loong_mesh_t *mesh,
                             loong_model_request_t *request)
{
    const loong_recipe_t *r = layout->recipe;
    loong_model_request_t *p = request;
    char path[128];
    LOONG_FILL(r, "", loong_model_request_t, p);
    p->sequence_parallel =
        loong_recipe_bool(r, own_path(layout, "sequence_parallel", path));
    loong_extent_t extent = layout->extent;
    if (extent.rows == 0) {
        extent.longest = loong_recipe_int(r, "data.seq_length");
        extent.segments = loong_recipe_int(r, "train.micro_batch_size");
        extent.rows = extent.segments * extent.longest;
    }
    p->seq_length = p->max_seqlen = extent.longest;
    p->max_segments = extent.segments;
    int cp = mesh->size[LOONG_AXIS_CP];
    p->rows = (extent.rows + cp - 1) / cp;
    if (layout->component != NULL) {
        p->cp_comm = LOONG_CP_A2A; /* pictures and windows stay whole */
    }
    if (layout->component != NULL || layout_reads_pictures(layout)) {
        /* blocks are whole on each rank, padding has a segment of its own */
        p->rows = loongi_round_up(p->rows, mesh->size[LOONG_AXIS_TP] *
                                               merged_rows(layout));
        p->max_segments++;
    }
    p->dispatcher = dispatcher_of(layout, mesh);
}

/* ---- rules --------------------------------------------------------------- */

/* A mesh of the sizes asked for, on as many ranks as they need when they do
 * not fit the ranks there are; false when there is none. */
static bool sized_mesh(const loong_parallel_t *l, loong_mesh_t *mesh_p)
{
    loong_mesh_params_t p = mesh_params(l);
    int64_t world = (int64_t)p.tp * p.cp * p.pp;
    if (world * p.ep * p.etp > INT_MAX) {
        return false;
    }
    p.world = (int)(world * p.ep * p.etp);
    p.kv_heads = 0;
    return loong_mesh_create(l->ctx, &p, 0, mesh_p) == LOONG_OK;
}

/* first: chunk of the model; NULL: it cannot be cut so. */
static loong_status_t check_family(const loong_parallel_t *l,
                                   const loong_mesh_t *mesh,
                                   const loong_stage_split_t *first)
{
    const loong_family_t *family = l->family;
    const int *size = mesh->size;
    loong_model_request_t request;
    memset(&request, 0, sizeof(request));
    loongi_parallel_request(l, mesh, &request);
    request.begins = true;
    request.ends = first == NULL || first->ends;
    if (family->check_mesh != NULL) {
        return family->check_mesh(l->ctx, l->config, &request, mesh);
    }
    LOONG_CHECK(l->ctx, size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP] == 1,
                LOONG_ERR_CONFIG,
                "parallel.tensor_model_parallel_size %d, "
                "context_parallel_size %d: family %s knows no such layout",
                size[LOONG_AXIS_TP], size[LOONG_AXIS_CP], family->name);
    return LOONG_OK;
}

loong_status_t loongi_parallel_accepts(const loong_parallel_t *layout)
{
    loong_mesh_t mesh;
    LOONG_TRY(loongi_parallel_mesh(layout, 0, &mesh));
    return check_family(layout, &mesh, NULL);
}

/* The first failure is the one that is returned. */
static loong_status_t first_of(loong_status_t a, loong_status_t b)
{
    return a != LOONG_OK ? a : b;
}

/* The cut of the model, and the schedule of so many stages. *cuts_p: NULL when
 * it cannot be cut. */
static loong_status_t check_pipeline(const loong_parallel_t *l,
                                     const loong_mesh_t *mesh,
                                     loong_arena_t *arena, bool whole_mesh,
                                     loong_stage_split_t **cuts_p)
{
    loong_model_facts_t facts = {0};
    loong_component_params_t asked;
    memset(&asked, 0, sizeof(asked));
    LOONG_FILL(l->recipe, "", loong_component_params_t, &asked);
    loong_schedule_params_t p = {.ranks = mesh->size[LOONG_AXIS_PP],
                                 .pair = asked.pair};
    l->family->facts(l->config, &facts);
    loong_split_params_t cut = {facts.num_layers, p.ranks,
                                asked.layers_per_chunk, asked.layout};
    loong_status_t status =
        loongi_pipeline_split(l->ctx, &cut, arena, cuts_p, &p.chunks);
    *cuts_p = status == LOONG_OK ? *cuts_p : NULL;
    int64_t samples = loong_recipe_int(l->recipe, "train.micro_batch_size") *
                      mesh->size[LOONG_AXIS_DP];
    int64_t batch = loong_recipe_int(l->recipe, "train.global_batch_size");
    bool equal =
        !loong_recipe_is_set(l->recipe, "parallel.data_parallel_shares") &&
        !loong_recipe_is_set(l->recipe, "parallel.data_parallel_speeds");
    if (whole_mesh && equal && batch % samples == 0) { /* else told already,
                                                          or by plan_shares.c */
        LOONG_TRY(loongi_to_int(l->ctx, batch / samples,
                                "micro-batches of a step", &p.micro_batches));
    }
    const char *name =
        loongi_schedule_resolve(asked.schedule, p.ranks, p.chunks);
    return loongi_schedule_accept(l->ctx, name, &p) == LOONG_OK
               ? status
               : first_of(status, LOONG_ERR_CONFIG);
}

loong_status_t loongi_parallel_rules(const loong_parallel_t *layout)
{
    const loong_parallel_t *l = layout;
    loong_mesh_t mesh;
    loong_arena_t *arena = NULL;
    loong_stage_split_t *cuts = NULL;
    loong_status_t status = loong_recipe_check(l->recipe, l->ranks);
    bool whole = loongi_parallel_mesh(l, 0, &mesh) == LOONG_OK;
    status = first_of(status, whole ? LOONG_OK : LOONG_ERR_CONFIG);
    if (!whole && !sized_mesh(l, &mesh)) {
        return status;
    }
    LOONG_TRY(loongi_arena_create(l->ctx, "layout", &arena));
    status = first_of(status, check_pipeline(l, &mesh, arena, whole, &cuts));
    status = first_of(status, check_family(l, &mesh, cuts));
    loongi_arena_destroy(&arena);
    return status;
}
