/* SPDX-License-Identifier: Apache-2.0
 *
 * Which meshes a decoder can be laid out on. Called through loong_family_t by
 * src/plan/parallel.c. Read decoder.h before. */
#include <string.h>

#include "decoder.h"
#include "problems.h"

static void want_share(loong_problems_t *problems, const char *what,
                       int64_t size, int tp)
{
    if (size < tp) {
        loongi_problems_add(problems,
                            "tensor_model_parallel_size %d: %s is %lld, each "
                            "rank needs one", tp, what, (long long)size);
    }
}

/* Context parallel ranks exchange whole query heads of a tensor parallel rank;
 * key heads are repeated as they need. */
static void want_heads(loong_problems_t *problems,
                       const loong_decoder_config_t *c,
                       const loong_mesh_t *mesh)
{
    loong_mesh_t on = *mesh;
    for (int r = 0; r < mesh->size[LOONG_AXIS_TP]; r++) {
        on.coord[LOONG_AXIS_TP] = r;
        int64_t heads = loong_nn_heads(&on, c->num_attention_heads,
                                       c->num_query_groups).q.count;
        if (heads % mesh->cp_a2a != 0) {
            loongi_problems_add(problems,
                                "cp_comm_type: %lld query heads of tensor "
                                "parallel rank %d are no multiple of the %d "
                                "ranks that exchange heads; all_gather and "
                                "p2p exchange none",
                                (long long)heads, r, mesh->cp_a2a);
            return;
        }
    }
}

static void check_experts(loong_problems_t *problems,
                          const loong_decoder_config_t *c,
                          const loong_model_request_t *request,
                          const loong_mesh_t *mesh)
{
    int ep = mesh->size[LOONG_AXIS_EP];
    int etp = mesh->size[LOONG_AXIS_ETP];
    int tp = mesh->size[LOONG_AXIS_TP];
    if (c->num_experts == 0 && ep * etp > 1) {
        loongi_problems_add(problems,
                            "expert_%s_parallel_size %d: the model has no "
                            "experts (num_experts is not set)",
                            ep > 1 ? "model" : "tensor", ep > 1 ? ep : etp);
    }
    if (c->num_experts > 0 && c->moe_ffn_hidden_size < etp) {
        loongi_problems_add(problems,
                            "expert_tensor_parallel_size %d: "
                            "moe_ffn_hidden_size is %lld, each rank needs one",
                            etp, (long long)c->moe_ffn_hidden_size);
    }
    if (c->vision_ffn > 0 && c->vision_ffn < etp) {
        loongi_problems_add(problems,
                            "expert_tensor_parallel_size %d: "
                            "moe_vision_ffn_hidden_size is %lld, each rank "
                            "needs one", etp, (long long)c->vision_ffn);
    }
    if (c->num_experts > 0 && c->num_experts % ep != 0) {
        loongi_problems_add(problems,
                            "expert_model_parallel_size %d does not divide "
                            "num_experts %d", ep, c->num_experts);
    }
    if (c->num_experts > 0 && tp > 1 && !request->sequence_parallel) {
        loongi_problems_add(problems,
                            "tensor_model_parallel_size %d with num_experts "
                            "%d takes sequence_parallel: true, so that each "
                            "rank routes tokens of its own", tp,
                            c->num_experts);
    }
    if (c->balance == LOONG_BALANCE_POOLED && c->aux_loss_coeff > 0.0 &&
        !request->ends) {
        loongi_problems_add(problems,
                            "moe_router_load_balancing_type: pooled_aux_loss "
                            "counts the choices of all layers, so the model "
                            "is not cut: neither by "
                            "pipeline_model_parallel_size (%d) nor by "
                            "pipeline_model_parallel_layout or "
                            "num_layers_per_virtual_pipeline_stage",
                            mesh->size[LOONG_AXIS_PP]);
    }
}

loong_status_t loongi_decoder_check_mesh(loong_context_t *ctx,
                                         const void *config,
                                         const loong_model_request_t *request,
                                         const loong_mesh_t *mesh)
{
    const loong_decoder_config_t *c = config;
    int tp = mesh->size[LOONG_AXIS_TP];
    loong_problems_t problems = loongi_problems_begin(ctx);
    want_share(&problems, "num_attention_heads", c->num_attention_heads,
               tp);
    if (c->num_experts == 0 ||
        memchr(c->kinds.of, 0, (size_t)c->num_layers) != NULL) {
        want_share(&problems, "ffn_hidden_size", c->ffn_hidden_size, tp);
    }
    if (c->shared_expert_ffn > 0) {
        want_share(&problems, "moe_shared_expert_intermediate_size",
                   c->shared_expert_ffn, tp);
    }
    check_experts(&problems, c, request, mesh);
    want_share(&problems, "vocab_size", c->vocab_size, tp);
    if (request->sequence_parallel && request->rows % tp != 0) {
        loongi_problems_add(&problems,
                            "sequence_parallel: %lld tokens of a micro-batch "
                            "are no multiple of tensor_model_parallel_size %d",
                            (long long)request->rows, tp);
    }
    want_heads(&problems, c, mesh);
    if (c->bidirectional_prefix && mesh->size[LOONG_AXIS_CP] > 1) {
        loongi_problems_add(&problems,
                            "context_parallel_size %d: with "
                            "bidirectional_prefix each rank has whole texts",
                            mesh->size[LOONG_AXIS_CP]);
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "parallel");
}
