/* SPDX-License-Identifier: Apache-2.0
 *
 * The published models of several components. Called by
 * src/checkpoint/huggingface; read hf_composite.h before. */
#include "hf_composite_rows.h"

const loong_hf_composite_t *const loongi_hf_composites[] = {
    &loongi_hf_qwen2_vl, &loongi_hf_qwen2_5_vl, &loongi_hf_qwen3_vl,
    &loongi_hf_qwen3_vl_moe, &loongi_hf_qwen3_5, &loongi_hf_qwen3_5_moe,
    &loongi_hf_minicpmv4_6, &loongi_hf_internvl, &loongi_hf_llavaonevision1_5,
    &loongi_hf_internvl_chat, &loongi_hf_kimi_k25, &loongi_hf_glm4v,
    &loongi_hf_ernie4_5_vl_moe, &loongi_hf_ernie4_5_moe_vl,
    &loongi_hf_paligemma, &loongi_hf_llava_onevision, &loongi_hf_llava, NULL};
