/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of tensors in formats that others publish. */
#ifndef LOONG_DRAFT_SCHEMES_H
#define LOONG_DRAFT_SCHEMES_H

#include <stddef.h>

/* What others publish: names below a layer, or outside, in place of the
 * family's; NULL ends. */
typedef struct scheme {
    const char *name;
    const char *family; /* the fixture with tensors of these kinds */
    const char *container;
    const char *const (*names)[2];
} scheme_t;

/* Formats: GGUF's tensor names (llama.cpp, constants.py); Meta's
 * consolidated.00.pth and Mistral's; torchtune's; EasyLM's. */
static const char *const gguf[][2] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.", "attn_q."},
    {"self_attn.k_proj.", "attn_k."},
    {"self_attn.v_proj.", "attn_v."},
    {"self_attn.o_proj.", "attn_output."},
    {"self_attn.q_norm.", "attn_q_norm."},
    {"self_attn.k_norm.", "attn_k_norm."},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.", "ffn_gate."},
    {"mlp.up_proj.", "ffn_up."},
    {"mlp.down_proj.", "ffn_down."},
    {NULL, NULL}};
static const char *const meta[][2] = {
    {"embed_tokens.weight", "tok_embeddings.weight"},
    {"norm.weight", "norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attention_norm.weight"},
    {"self_attn.q_proj.", "attention.wq."},
    {"self_attn.k_proj.", "attention.wk."},
    {"self_attn.v_proj.", "attention.wv."},
    {"self_attn.o_proj.", "attention.wo."},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.", "feed_forward.w1."},
    {"mlp.up_proj.", "feed_forward.w3."},
    {"mlp.down_proj.", "feed_forward.w2."},
    {"block_sparse_moe.gate.", "feed_forward.gate."},
    {"block_sparse_moe.experts.", "feed_forward.experts."},
    {NULL, NULL}};
static const char *const torchtune[][2] = {
    {"embed_tokens.weight", "tok_embeddings.weight"},
    {"norm.weight", "norm.scale"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "sa_norm.scale"},
    {"self_attn.q_proj.", "attn.q_proj."},
    {"self_attn.k_proj.", "attn.k_proj."},
    {"self_attn.v_proj.", "attn.v_proj."},
    {"self_attn.o_proj.", "attn.output_proj."},
    {"self_attn.q_norm.weight", "attn.q_norm.scale"},
    {"self_attn.k_norm.weight", "attn.k_norm.scale"},
    {"post_attention_layernorm.weight", "mlp_norm.scale"},
    {"mlp.gate_proj.", "mlp.w1."},
    {"mlp.up_proj.", "mlp.w3."},
    {"mlp.down_proj.", "mlp.w2."},
    {NULL, NULL}};
static const char *const easylm[][2] = {
    {"embed_tokens.weight", "transformer.wte.embedding"},
    {"norm.weight", "transformer.ln_f.kernel"},
    {"lm_head.weight", "lm_head.kernel"},
    {"input_layernorm.weight", "attention_norm.kernel"},
    {"self_attn.q_proj.weight", "attention.wq.kernel"},
    {"self_attn.k_proj.weight", "attention.wk.kernel"},
    {"self_attn.v_proj.weight", "attention.wv.kernel"},
    {"self_attn.o_proj.weight", "attention.wo.kernel"},
    {"post_attention_layernorm.weight", "ffn_norm.kernel"},
    {"mlp.gate_proj.weight", "feed_forward.w1.kernel"},
    {"mlp.up_proj.weight", "feed_forward.w3.kernel"},
    {"mlp.down_proj.weight", "feed_forward.w2.kernel"},
    {NULL, NULL}};
static const scheme_t schemes[] = {
    {"GGUF", "llama3_gqa_tied", "blk.", gguf},
    {"GGUF", "qwen2_gqa", "blk.", gguf},
    {"GGUF", "qwen3_gqa_tied", "blk.", gguf},
    {"Meta", "llama3_gqa_tied", "layers.", meta},
    {"Mistral", "mixtral", "layers.", meta},
    {"torchtune", "llama3_gqa_tied", "layers.", torchtune},
    {"torchtune", "qwen3_gqa_tied", "layers.", torchtune},
    {"EasyLM", "llama3_gqa_tied", "transformer.h.", easylm},
};

#endif
