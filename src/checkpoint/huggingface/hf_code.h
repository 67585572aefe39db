/* SPDX-License-Identifier: Apache-2.0
 *
 * Model types that transformers has no class for. A directory then brings
 * Python files beside config.json, whose field auto_map names them; they are
 * kept with a checkpoint and go into its exports. Where a class of another
 * type computes the same, an export can be of that type. */
#ifndef LOONG_HF_CODE_H
#define LOONG_HF_CODE_H

#include "pairs.h"

struct loong_hf_composite;

#ifdef __cplusplus
extern "C" {
#endif

/* As metadata of a native checkpoint: the field as JSON text. */
#define LOONG_HF_AUTO_MAP "auto_map"

/* When the model of DIR/config.json is of this family, adds the field, if all
 * files that it names are in DIR and an export would be of that model type,
 * and those of hf_extra.h. Errors: those of reading config.json. */
LOONG_NODISCARD loong_status_t loongi_hf_code_read(loong_context_t *ctx,
                                                   const char *dir,
                                                   const char *family,
                                                   loong_pairs_t *pairs);

/* What is kept of a directory has a model whose Python files go along. */
bool loongi_hf_has_code(const loong_pairs_t *kept);

/* DIR/tokenizer_config.json names code as well. */
bool loongi_hf_code_tokenizes(loong_context_t *ctx, const char *dir);

/* The type whose class computes what a family does; NULL: it has one itself. */
const char *loongi_hf_like(const loong_context_t *ctx, const char *family);

/* The keys of a model as an export of model type `as` has them; NULL: of its
 * own type, which is refused when transformers has no class for it and
 * has_code is false. Whether the type has all that the keys say is for
 * loongi_hf_config_check. Errors: LOONG_ERR_ARG, LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_hf_model_as(loong_context_t *ctx, const loong_pairs_t *model,
                   const char *as, bool has_code, loong_pairs_t **model_p);

/* The same of a component of a whole model, `as` being the type of the whole:
 * in one that transformers has a class for it is of a type that has one. */
LOONG_NODISCARD loong_status_t loongi_hf_part_as(
    loong_context_t *ctx, const struct loong_hf_composite *composite,
    const loong_pairs_t *model, const char *as, loong_pairs_t **model_p);

#ifdef __cplusplus
}
#endif

#endif
