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
#include "plan_shares.h"
#include "schema.h"
#include "shares.h"

#define MESH(member_) FILLS(loong_mesh_params_t, member_)
#define REQUEST(member_) FILLS(loong_model_request_t, member_)
#define POLICY(member_) FILLS(loong_kernel_policy_t, member_)
#define OF(member_) FILLS(loong_component_params_t, member_)

static const loong_recipe_field_t keys[] = {
    INT("parallel.tensor_model_parallel_size", "1", 1, 1024, FREE,
        "ranks that share each layer", MESH(tp)),
    BOOL("parallel.sequence_parallel", "false", FREE,
         "tensor parallel ranks cut the tokens between layers as well"),
    INT("parallel.pipeline_model_parallel_size", "1", 1, 1024, FREE,
        "pipeline stages", MESH(pp)),
    INT("parallel.num_layers_per_virtual_pipeline_stage", "0", 0, 1000000, FREE,
        "layers of each of a rank's chunks; 0: one chunk a rank",
        OF(layers_per_chunk)),
    TEXT("parallel.pipeline_model_parallel_layout", NULL, FREE,
         "stages of the pipeline, as Et*3|(tt|)*4tL: E embedding, t layer, L "
         "head and loss, | next stage; stage s on rank s modulo ranks",
         OF(layout)),
    CHOICE("schedule", "auto",
           "auto one_stage 1f1b interleaved zero_bubble_h1 zero_bubble_v", FREE,
           "order of work in a pipeline; auto: 1f1b, with several chunks a "
           "rank interleaved", OF(schedule)),
    CHOICE("join", "coupled", "coupled phases two_pass bubbles", FREE,
           "where components that others read compute: coupled, each forward "
           "before the first that reads it, each backward behind the last "
           "gradient it reads; phases: all forwards at the start of a step, "
           "all backwards at its end; two_pass: likewise, but nothing is kept "
           "and each forward runs once more right before its backward; "
           "bubbles: in the gaps of the pipeline that reads them, each replica "
           "on its own",
           OF(join)),
    CHOICE("features", "device", "device host", FREE,
           "where rows that one component makes wait for the one that reads "
           "them, and their gradients: host: in its pinned memory, where those "
           "of more than two micro-batches wait; a device then holds those of "
           "two",
           OF(features)),
    INT("parallel.context_parallel_size", "1", 1, 1024, FREE,
        "ranks that share each sequence; twice as many divide seq_length",
        MESH(cp)),
    CHOICE("parallel.cp_comm_type", "all_gather", "all_gather a2a p2p a2a+p2p",
           FREE,
           "how these bring queries and keys together: keys and values of "
           "all to each, all rows of a share of the heads, keys and values "
           "around a ring, or both of these", REQUEST(cp_comm)),
    INTS("parallel.hierarchical_context_parallel_sizes", 1, 1024, FREE,
         "[a2a, p2p] for a2a+p2p: neighbours that exchange heads, and ranks of "
         "a ring"),
    INT("parallel.expert_model_parallel_size", "1", 1, 1024, FREE,
        "ranks that share the experts of a layer", MESH(ep)),
    INT("parallel.expert_tensor_parallel_size", "1", 1, 1024, FREE,
        "ranks that share each expert", MESH(etp)),
    CHOICE("parallel.moe_token_dispatcher_type", "auto",
           "auto allgather alltoall", FREE,
           "how tokens come to experts on other ranks: all tokens to all "
           "ranks, or each to those that have its experts; auto: as fewer "
           "bytes are moved"),
    REAL("parallel.moe_capacity_plan", "1.5", 0, 1e6, FREE,
         "rows of experts that memory is laid out for, times an even share; a "
         "layer with more on a rank runs in rounds; 0: as many as there can "
         "be", REQUEST(capacity_plan)),
    BOOL("parallel.tp_comm_overlap", "false", FREE,
         "with sequence_parallel: products work on the rows of one rank after "
         "the other, while those of the next come or go", OF(compile.overlap)),
    BOOL("parallel.overlap_moe_expert_parallel_comm", "false", FREE,
         "the forward of a micro-batch runs with the backward of another, so "
         "that each computes while collectives of the other are under way",
         OF(pair)),
    CHOICE("parallel.data_parallel_sharding", "optim",
           "none optim optim_grads optim_grads_params", FREE,
           "what data-parallel ranks share out: moments and masters, main "
           "gradients, parameters (ZeRO-1, -2, -3)", OF(shards.sharding)),
    INTS("parallel.data_parallel_shares", 1, LOONG_MAX_WEIGHT, FREE,
         "micro-batches of each data-parallel rank, in proportion, as [3, 1]; "
         "equal ones when not given"),
    TEXT("parallel.data_parallel_speeds", NULL, FREE,
         "a file that loong-bench speeds wrote: shares in proportion to what "
         "it measured of the kinds of devices that ranks have"),
    BOOL("parallel.grad_reduce_in_bf16", "false", FREE,
         "data-parallel ranks send gradients rounded to bf16; sums are made "
         "in fp32 and rounded once", OF(shards.reduce_bf16)),
    BYTES("parallel.bucket_bytes", "32MiB", 4096, BIG, FREE,
          "bytes of gradients reduced at once", OF(shards.bucket_bytes)),

    TEXT("router_replay.record_file", NULL, FREE,
         "file that takes the experts chosen for every token of the training"),
    TEXT("router_replay.replay_file", NULL, FREE,
         "file of experts that are taken in place of the router's choice"),

    CHOICE("precision.params_dtype", "auto", "auto bf16 fp32 fp64", SAME,
           "compute type; auto: bf16 where the processor multiplies it"),
    TEXTS("precision.fp32_scopes", SAME,
          "globs of scopes whose ops work in fp32 where others use bf16; what "
          "stages of a pipeline send each other is then fp32"),
    BOOL("precision.tf32", "false", SAME,
         "products of fp32 round their operands to tf32, which has 10 bits of "
         "mantissa; on devices that multiply it", POLICY(tf32)),
    TEXT("gemm.algorithms_file", NULL, FREE,
         "file of the fastest algorithms of matrix products, by device, "
         "library and size: those that it lacks are measured at the start and "
         "entered; none: the library's first choice", POLICY(algorithms)),
    CHOICE("recompute.granularity", "none", "none full selective", FREE,
           "what the backward computes again: nothing, layers, scopes"),
    TEXTS("recompute.scopes", FREE, "globs of scopes, for selective"),
};

const loong_recipe_table_t loongi_layout_keys = LOONG_KEYS(keys);

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
        loongi_recipe_precision(plan->recipe, p->name,
                                loong_device_caps(plan->device));
    LOONG_TRY(read_recompute(plan, arena, p));
    return loongi_read_globs(plan->recipe,
                             own(plan, p, "precision.fp32_scopes", shared),
                             arena, &p->compile.num_wide, &p->compile.wide);
}

/* What the recipe says of compiling, on the device of this rank. */
static loong_status_t read_compile(const loong_plan_t *plan,
                                   loong_arena_t *arena,
                                   loong_component_params_t *p)
{
    p->compile.device = loong_device_name(plan->device);
    LOONG_TRY(loongi_devices_staging(plan, arena, &p->resources.staging));
    p->compile.threads = omp_get_max_threads();
    p->compile.fuse = p->compile.in_place = true;
    /* What fits into a cache had better be in scratch, which is warm. */
    p->compile.least_in_slot = (int64_t)4 << 20;
    p->compile.lanes = p->compile.lanes && plan->parallel.ranks > 1;
    LOONG_TRY(loongi_choices_policy(plan, &p->compile.policy));
    LOONG_TRY(loongi_choices_graphs(plan, p));
    LOONG_TRY(loongi_component_own(plan, arena, p));
    return loongi_read_globs(plan->recipe, "log.tensors", arena,
                             &p->compile.num_watch, &p->compile.watch);
}

static loong_status_t check_features(const loong_plan_t *plan,
                                     const loong_component_params_t *p)
{
    LOONG_CHECK(plan->ctx,
                strcmp(p->features, "host") != 0 ||
                    !loong_device_is_host(plan->device) ||
                    loongi_devices_are_mixed(plan),
                LOONG_ERR_CONFIG,
                "%s: features: host: all ranks run on the processor, whose "
                "memory is the host's",
                loong_recipe_where(plan->recipe, "features"));
    return LOONG_OK;
}

loong_status_t loongi_component_params(const loong_plan_t *plan,
                                       int64_t segments, loong_arena_t *arena,
                                       loong_component_params_t *p)
{
    static const char pair_key[] = "parallel.overlap_moe_expert_parallel_comm";
    const loong_train_settings_t *s = plan->set;
    LOONG_FILL(plan->recipe, "", loong_component_params_t, p);
    LOONG_CHECK(plan->ctx,
                !p->pair || loong_recipe_component(plan->recipe, 1) == NULL,
                LOONG_ERR_CONFIG,
                "%s: %s: does not go with a model of several components",
                loong_recipe_where(plan->recipe, pair_key), pair_key);
    loongi_parallel_request(&plan->parallel, &plan->mesh, &p->request);
    p->request.max_segments *= segments;
    LOONG_TRY(check_features(plan, p));
    LOONG_TRY(read_compile(plan, arena, p));
    loongi_optimizer_settings(plan->recipe, &p->optimizer);
    for (int i = 0; i < p->optimizer.num_groups; i++) {
        p->shards.matrix[i] =
            loongi_optimizer_class(p->optimizer.group[i].kind)->matrix;
    }
    p->shards.device = p->compile.device;
    p->shards.threads = p->compile.threads;
    p->shards.policy = p->compile.policy;
    p->shards.lanes = p->resources.lanes = p->compile.lanes;
    p->train = !plan->evaluate_only;
    p->mesh = plan->mesh;
    p->ranks = plan->parallel.on;
    p->absent = plan->absent;
    memset(p->shared_globs, 0, sizeof(p->shared_globs));
    p->micro_batch_size = s->micro_batch_size;
    return loongi_to_int(
        plan->ctx,
        loongi_shares_of_rank(plan, s->global_batch_size,
                              plan->mesh.coord[LOONG_AXIS_DP]),
        "micro-batches of a step", &p->micro_batches);
}
