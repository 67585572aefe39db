/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of low rank by name: the engine's, "MODULE.lora_A.weight" and
 * "MODULE.lora_B.weight", and those of peft's files, "base_model.model." and
 * the tensor of the module's matrix. */
#ifndef LOONG_HF_ADAPTERS_H
#define LOONG_HF_ADAPTERS_H

#include "hf_weights.h"
#include "peft.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_HF_MODULE = 320 }; /* of a name, with its end */

typedef enum loong_lora_matrix {
    LOONG_LORA_NONE,
    LOONG_LORA_A,
    LOONG_LORA_B,
    LOONG_LORA_MAGNITUDE /* a vector (DoRA) */
} loong_lora_matrix_t;

/* Which matrix a parameter is, and its module. */
loong_lora_matrix_t loongi_lora_matrix(const char *name,
                                       char module[LOONG_HF_MODULE]);

/* The module whose matrix A the adapter of a module has: its own, or the fused
 * one that it is a part of ("self_attn.qkv_proj" of "self_attn.q_proj");
 * there: tells which parameters there are. NULL: none. */
typedef bool (*loong_lora_find_fn)(const void *user, const char *name);
bool loongi_lora_module_of_a(const char *module, loong_lora_find_fn there,
                             const void *user, char found[LOONG_HF_MODULE]);

/* "qkv_proj" of "q_proj", by the last part of a path; NULL: of none. */
const char *loongi_lora_fused(const char *module);

/* Gives a path the last part of the fused one; false: of none. */
bool loongi_lora_fuse(char module[LOONG_HF_MODULE]);

/* The parameter that a module's adapter is beside, of a fused one the first.
 * NULL: the model has none. */
const loong_hf_param_t *loongi_lora_base(const loong_hf_map_t *map,
                                         const char *module);

/* The module of the embedding: its b has a row for each id. */
#define LOONG_LORA_EMBEDDING "embed_tokens"
/* That of the head. */
#define LOONG_LORA_HEAD "lm_head"

/* The engine's module of a matrix: "layers.0.self_attn.q_proj". */
void loongi_lora_module(const loong_hf_param_t *base,
                        char module[LOONG_HF_MODULE]);

/* A matrix of all experts, "layers.0.mlp.experts.down_proj". */
static inline bool loongi_lora_of_experts(const loong_hf_param_t *base)
{
    return base->piece_names != NULL;
}

/* The module of a matrix in files: "model.layers.0.self_attn.q_proj"; of
 * experts the parameter that transformers has since version 5. */
void loongi_lora_hf_module(const loong_hf_map_t *map,
                           const loong_hf_param_t *base,
                           char module[LOONG_HF_MODULE]);
/* That of one matrix of an expert, as it was before and as files have it:
 * "model.layers.0.mlp.experts.0.gate_proj". */
void loongi_lora_hf_piece(const loong_hf_map_t *map,
                          const loong_hf_param_t *base, int64_t piece,
                          char module[LOONG_HF_MODULE]);

/* The parameter that a tensor beside adapters is, or the first of its parts, by
 * its name there; NULL: it is none of this component, or files have it in
 * another form. */
const loong_hf_param_t *loongi_lora_saved(const loong_hf_map_t *map,
                                          const char *name);
/* Whether the tensor of a parameter, trained as it is, can stand beside
 * adapters. Errors: LOONG_ERR_UNSUPPORTED. */
LOONG_NODISCARD loong_status_t loongi_lora_check_saved(
    loong_context_t *ctx, const loong_hf_map_t *map, const loong_hf_param_t *p);
/* What is beside adapters under that name is of this component. */
bool loongi_lora_owns(const loong_hf_map_t *map, const char *name);

/* Fits what was read to the model beside it: modules are called as transformers
 * has called them since 4.52, and tables that are the model's own are left to
 * it. Errors: LOONG_ERR_MISMATCH where such a table has other values. */
LOONG_NODISCARD loong_status_t loongi_lora_fit(loong_peft_t *peft,
                                               const loong_hf_t *hf);

#ifdef __cplusplus
}
#endif

#endif
