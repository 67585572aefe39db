/* SPDX-License-Identifier: Apache-2.0
 *
 * What config.json says of models that this engine does not compute. */
#ifndef LOONG_HF_FOREIGN_H
#define LOONG_HF_FOREIGN_H

#include "json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a model type has that the engine has not; NULL: nothing is known. */
const char *loongi_hf_foreign_type(const char *model_type);

/* Refuses a type of the kind above, and fields of any type that change what
 * a model computes in ways the engine has not: all of them are told. `path`
 * names the file. Errors: LOONG_ERR_UNSUPPORTED. */
LOONG_NODISCARD loong_status_t
loongi_hf_check_foreign(loong_context_t *ctx, const char *path,
                        const loong_json_t *config);

/* The same of DIR/config.json, when there is one. */
LOONG_NODISCARD loong_status_t
loongi_hf_check_foreign_dir(loong_context_t *ctx, const char *dir);

#ifdef __cplusplus
}
#endif

#endif
