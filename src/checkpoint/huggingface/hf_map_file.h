/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of tensors as a YAML file, in place of those of a family:
 *
 *   tensors:
 *     wte: embed_tokens.weight
 *     blocks.#.qkv.weight:
 *       holds: [layers.#.self_attn.q_proj.weight, ...]
 *       transposed: true
 *   ignore: [blocks.#.mask]
 *
 * docs/convert-your-model.md describes it. */
#ifndef LOONG_HF_MAP_FILE_H
#define LOONG_HF_MAP_FILE_H

#include "hf_names.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_map_file {
    const loong_hf_names_t *names;
    int64_t ignored_count;
    const char *const *ignored;
} loong_hf_map_file_t;

/* Parameters that the file does not name keep the family's names. All memory
 * comes from the arena. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_CONFIG (all
 * problems together, each with its line). */
LOONG_NODISCARD loong_status_t loongi_hf_map_file_read(
    loong_context_t *ctx, loong_arena_t *arena, const char *path,
    const loong_hf_names_t *family, loong_hf_map_file_t *file_p);

/* The map as the text of such a file, shapes behind. */
void loongi_hf_map_print(const loong_hf_map_t *map, loong_text_t *text);

/* '#', '@' and '@+' stand for a number. */
bool loongi_hf_pattern_matches(const char *pattern, const char *name);

/* The matrices of an expert by the names they have in most files: the row of
 * "layers.#.mlp.experts.gate_up_proj" is also "...experts.@.gate_proj.weight"
 * and "...experts.@.up_proj.weight", its units. */
enum { LOONG_HF_UNITS = 2 };
/* NULL when the row has no such unit. */
const char *loongi_hf_unit_name(const loong_hf_row_t *row, int unit,
                                char name[128]);
/* A name as a key or value of YAML, quoted when that is needed. */
void loongi_hf_yaml_name(loong_text_t *text, const char *name);

#ifdef __cplusplus
}
#endif

#endif
