/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONGI_SET_ASIDE_H
#define LOONGI_SET_ASIDE_H

#include "base.h"

/* Moves metrics.jsonl, recipe.yaml and event files of an earlier run to a new
 * folder of dir, earlier_1 or the next number, and says so; TensorBoard shows
 * it as a run of its own. Does nothing when metrics.jsonl is empty or missing.
 * Not collective. Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_set_aside(loong_context_t *ctx,
                                                const char *dir);

#endif
