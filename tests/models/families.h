/* SPDX-License-Identifier: Apache-2.0
 *
 * One fixture of tests/golden for every type of model, and the layout that it
 * is trained in: what test_families.c does and docs/models.md tells. */
#ifndef FAMILIES_H
#define FAMILIES_H

#include <stdbool.h>

typedef struct family_case {
    const char *model_type;
    const char *fixture;
    int ranks;
    const char *parallel;
    bool daily; /* has what no other test of layouts has */
    const char *model; /* keys besides those of the fixture; NULL: none */
    const char *vision_ids; /* tokens of images; NULL: all are text */
} family_case_t;

#define TP "tensor_model_parallel_size: "
#define SP "sequence_parallel: true"
#define CP "context_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define EP "expert_model_parallel_size: "
#define ETP "expert_tensor_parallel_size: "
#define A2A "moe_token_dispatcher_type: alltoall"
#define BALANCE                                       \
    "moe_aux_loss_coeff: 1e-2, moe_z_loss_coeff: 1e-3, " \
    "moe_router_load_balancing_type: "

static const family_case_t family_cases[] = {
    {"gpt2", "gpt2_tied", 4, "{" TP "2, " SP ", " PP "2}", false, NULL, NULL},
    {"llama", "llama3_gqa_tied", 4, "{" TP "2, " SP ", " CP "2}",
     false, NULL, NULL},
    {"phi3", "phi3_window", 4, "{" TP "2, " SP ", " PP "2}", false, NULL,
     NULL},
    {"qwen", "qwen1_mha", 4, "{" CP "2, " PP "2}", false, NULL, NULL},
    {"qwen2", "qwen2_window", 4,
     "{" TP "2, " PP "2, pipeline_model_parallel_layout: Et|ttL}",
     true, NULL, NULL},
    {"qwen3", "qwen3_gqa_tied", 4, "{" TP "2, " CP "2, cp_comm_type: p2p}",
     false, NULL, NULL},
    {"internlm2", "internlm2_gqa", 4, "{" TP "2, " SP ", " PP "2}",
     false, NULL, NULL},
    {"mimo", "mimo_gqa", 4, "{" TP "2, " CP "2}", false, NULL, NULL},
    {"ernie4_5", "ernie4_5_gqa", 4, "{" CP "2, " PP "2}", true, NULL, NULL},
    {"glm", "glm_gqa", 2, "{" TP "2, " SP "}", false, NULL, NULL},
    {"glm4", "glm4_gqa", 4, "{" TP "2, " SP ", " PP "2}", false, NULL, NULL},
    {"mixtral", "mixtral", 4, "{" PP "2, " EP "2, " A2A "}", true, NULL, NULL},
    {"qwen2_moe", "qwen2_moe_sparse", 4, "{" TP "2, " SP ", " EP "4}",
     false, "{" BALANCE "pooled_aux_loss}", NULL},
    {"qwen3_moe", "qwen3_moe", 4, "{" TP "2, " SP ", " PP "2, " EP "2}",
     false, "{" BALANCE "aux_loss}", NULL},
    {"ernie4_5_moe", "ernie4_5_moe", 4, "{" CP "2, " PP "2, " EP "2}",
     true, NULL, NULL},
    {"ernie4_5_vl_moe", "ernie4_5_vl_moe", 8,
     "{" TP "2, " SP ", " CP "2, " PP "2, " EP "2, " A2A "}", true,
     "{" BALANCE "aux_loss}",
     "[2, 3, 5, 7, 11, 13, 17, 19, 23, 29]"},
    {"minimax_m2", "minimax_m2", 4,
     "{" TP "2, " SP ", " PP "2, " EP "2, " A2A "}", true, NULL, NULL},
    {"deepseek_v2", "deepseek_v2_lite", 4,
     "{" TP "2, " SP ", " PP "2, " EP "2, " A2A "}", true, NULL, NULL},
    {"deepseek_v3", "deepseek_v3_groups", 4,
     "{" CP "2, " PP "2, " EP "2, " ETP "1}", true,
     "{" BALANCE "seq_aux_loss}", NULL},
    {"kimi_k2", "kimi_k2", 4, "{" TP "2, " SP ", " PP "2, " ETP "2}",
     true, NULL, NULL},
};

#endif
