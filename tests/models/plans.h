/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts that one would choose for the large presets: what test_dry_run.c
 * plans and docs/models.md tells. Other presets are planned for one rank. */
#ifndef PLANS_H
#define PLANS_H

#include <stdbool.h>

enum { PLAN_OVERRIDES = 6 };

typedef struct plan {
    const char *model;
    int ranks;
    bool daily; /* the largest of their kinds */
    const char *overrides[PLAN_OVERRIDES];
} plan_t;

/* From so many parameters on a preset has a plan. */
#define PLANNED_FROM 60e9

#define PLAN_TP "parallel.tensor_model_parallel_size="
#define PLAN_SP "parallel.sequence_parallel=true"
#define PLAN_PP "parallel.pipeline_model_parallel_size="
#define PLAN_EP "parallel.expert_model_parallel_size="
#define PLAN_A2A "parallel.moe_token_dispatcher_type=alltoall"
#define PLAN_TWO "model.foundation.num_layers=2"
#define PLAN_LAYOUT "parallel.pipeline_model_parallel_layout="
/* Stages of so many layers, the ends with fewer. */
#define PLAN_61_ON_16 PLAN_LAYOUT "Et*3|(t*4|)*14t*2L"
#define PLAN_62_ON_8 PLAN_LAYOUT "Et*7|(t*8|)*6t*7L"
#define PLAN_94_ON_8 PLAN_LAYOUT "Et*11|(t*12|)*6t*11L"
#define PLAN_70B 64, false, {PLAN_TP "8", PLAN_SP, PLAN_PP "4"}

static const plan_t plans[] = {
    {"llama3.1/llama3.1_70b", 64, true, {PLAN_TP "8", PLAN_SP, PLAN_PP "4"}},
    {"qwen3/qwen3_235b_a22b",
     128,
     true,
     {PLAN_TP "4", PLAN_SP, PLAN_PP "8", PLAN_EP "16", PLAN_94_ON_8,
      PLAN_A2A}},
    {"deepseek_v3/deepseek_v3_671b",
     1024,
     true,
     {PLAN_PP "16", PLAN_EP "64", PLAN_61_ON_16, PLAN_A2A}},
    {"kimi_k2/kimi_k2_1t",
     1024,
     true,
     {PLAN_PP "16", PLAN_EP "64", PLAN_61_ON_16, PLAN_A2A}},
    {"moe/moe_1t_64e",
     768,
     true,
     {PLAN_TP "8", PLAN_SP, PLAN_PP "12", PLAN_EP "64"}},
    {"gpt3/gpt3_175b", 128, true, {PLAN_TP "8", PLAN_SP, PLAN_PP "16"}},
    {"llama2/llama2_70b", PLAN_70B},
    {"llama3/llama3_70b", PLAN_70B},
    {"llama3.1/llama3.1_405b",
     448,
     false,
     {PLAN_TP "8", PLAN_SP, PLAN_PP "14"}},
    {"qwen/qwen_72b", PLAN_70B},
    {"qwen1.5/qwen1.5_72b", PLAN_70B},
    {"qwen1.5/qwen1.5_110b", PLAN_70B},
    {"qwen2/qwen2_72b", PLAN_70B},
    {"qwen2.5/qwen2.5_72b", PLAN_70B},
    {"qwen3/qwen3_coder_480b_a35b",
     256,
     false,
     {PLAN_TP "4", PLAN_SP, PLAN_PP "8", PLAN_EP "16", PLAN_62_ON_8}},
    {"deepseek_v2/deepseek_v2_236b",
     192,
     false,
     {PLAN_PP "12", PLAN_EP "16"}},
    {"minimax_m2/minimax_m2_230b",
     256,
     false,
     {PLAN_TP "8", PLAN_SP, PLAN_PP "8", PLAN_EP "32", PLAN_62_ON_8}},
    {"mixtral/mixtral_8x22b",
     128,
     true,
     {PLAN_TP "8", PLAN_SP, PLAN_PP "4", PLAN_EP "8"}},
};

#endif
