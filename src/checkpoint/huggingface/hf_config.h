/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of a Hugging Face model directory <-> the model keys of the
 * recipe (relative to the component: "num_layers", "rope_scaling.type").
 *
 * Model types: those of loongi_hf_type_list (mistral is family llama), in the
 * field names of transformers 4 (rope_theta, rope_scaling) and 5
 * (rope_parameters).
 *
 * Rule for fields: one that the library implements is mapped; one that does
 * not change what the model computes is ignored; one that is known to change
 * it must have its neutral value; one that is not known at all must be null,
 * false or empty. Everything else is refused, all fields in one report.
 */
#ifndef LOONG_HF_CONFIG_H
#define LOONG_HF_CONFIG_H

#include "hf_family.h"
#include "json.h"
#include "loong/dtype.h"
#include "pairs.h"
#include "problems.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads DIR/config.json. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT,
 * LOONG_ERR_UNSUPPORTED (the offending fields are named). */
LOONG_NODISCARD loong_status_t loongi_hf_config_read(loong_context_t *ctx,
                                                     const char *dir,
                                                     loong_pairs_t **pairs_p);
/* The same of a component of a model of several (hf_composite.h; role NULL:
 * the one with the loss). Each key gets "DIR/config.json: field" in origins
 * (NULL: not wanted), the field that says it ("model_type" when none does). */
LOONG_NODISCARD loong_status_t
loongi_hf_config_trace(loong_context_t *ctx, const char *dir, const char *role,
                       loong_pairs_t *origins, loong_pairs_t **pairs_p);

/* Of what such a file would have; path names it in errors. */
LOONG_NODISCARD loong_status_t loongi_hf_config_read_json(
    loong_context_t *ctx, const char *path, const loong_json_t *json,
    const char *role, loong_pairs_t **pairs_p);

/* Of a type that is not known: adds to model, which has the sizes, what fields
 * that known types share say of positions, windows and training. Fields that
 * may say more and are neither of these nor in `used` (ends with a NULL name)
 * become problems. */
LOONG_NODISCARD loong_status_t loongi_hf_config_guess(
    loong_context_t *ctx, const loong_json_t *config,
    const loong_hf_field_t *used, loong_pairs_t *model,
    loong_problems_t *unused);

typedef struct loong_hf_config_params {
    const char *dir;
    const loong_pairs_t *model;
    loong_dtype_t dtype; /* of the weights beside it */
    /* As in hf_tokens.h, used when DIR has no generation_config.json yet,
     * LOONG_HF_AUTO_MAP, and what hf_extra.h keeps. NULL: none. */
    const loong_pairs_t *tokens;
    /* In place of model: one of several components (hf_composite.h), and the
     * keys of each of them; NULL: of one. */
    const struct loong_hf_composite *composite;
    const loong_pairs_t *const *parts;
} loong_hf_config_params_t;

/* Whether the keys can be said in a config.json; writes nothing. Errors: those
 * of the write. */
LOONG_NODISCARD loong_status_t
loongi_hf_config_check(loong_context_t *ctx, const loong_pairs_t *model);

/* The same of all that the parameters say. */
LOONG_NODISCARD loong_status_t loongi_hf_config_check_as(
    loong_context_t *ctx, const loong_hf_config_params_t *params);

/* Writes DIR/config.json, and DIR/generation_config.json unless there is one
 * (its token ids are then taken over). Errors: LOONG_ERR_UNSUPPORTED when no
 * supported model type computes what the keys say (all are named),
 * LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_hf_config_write(
    loong_context_t *ctx, const loong_hf_config_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
