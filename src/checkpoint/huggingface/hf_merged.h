/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of low rank in the matrices of an open directory: whoever reads the
 * model finds w + weight scale b a. */
#ifndef LOONG_HF_MERGED_H
#define LOONG_HF_MERGED_H

#include "hf_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds those of a list, as peft_terms.h reads it, in its order. Errors:
 * LOONG_ERR_MISMATCH names what the model has no matrix for, or one of another
 * shape; LOONG_ERR_UNSUPPORTED what has no weight. */
LOONG_NODISCARD loong_status_t loongi_hf_merge(loong_hf_t *hf,
                                               const char *list);

/* A parameter has other values than the files. */
bool loongi_hf_is_merged(const loong_hf_t *hf, const loong_hf_param_t *param);

/* Adds to rows [row, row + rows) of a parameter, [rows, columns] as the files
 * have them, what the adapters make. */
LOONG_NODISCARD loong_status_t
loongi_hf_add_merged(const loong_hf_t *hf, const loong_hf_param_t *param,
                     int64_t row, int64_t rows, double *w);

#ifdef __cplusplus
}
#endif

#endif
