/* SPDX-License-Identifier: Apache-2.0
 *
 * The save directory: names of steps, `latest`, leftovers, retention. */
#ifndef LOONG_NATIVE_DIR_H
#define LOONG_NATIVE_DIR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOONG_STEP_FORMAT "step_%08lld"
#define LOONG_TMP_PREFIX ".tmp_"
#define LOONG_LATEST "latest"
#define LOONG_MANIFEST "checkpoint.json"

/* The step directory that path means: itself, or what its `latest` names.
 * Errors: LOONG_ERR_NOT_FOUND (says what was there instead). */
LOONG_NODISCARD loong_status_t loongi_native_resolve(loong_arena_t *arena,
                                                     loong_context_t *ctx,
                                                     const char *path,
                                                     char **step_dir_p);

/* Removes what an interrupted save left. */
LOONG_NODISCARD loong_status_t loongi_native_clean(loong_context_t *ctx,
                                                   const char *dir);

/* Gives tmp its final name, replacing an older checkpoint of the same step in
 * one move, and points `latest` to it. */
LOONG_NODISCARD loong_status_t loongi_native_publish(loong_context_t *ctx,
                                                     const char *dir,
                                                     const char *tmp_name,
                                                     const char *name);

/* The step counts as completed now: a run goes on from it, so those completed
 * later, damaged or of another course, are removed before it. */
LOONG_NODISCARD loong_status_t loongi_native_renew(loong_context_t *ctx,
                                                   const char *step_dir);

/* Removes all steps but `name` and the keep - 1 that were completed last
 * before it. */
LOONG_NODISCARD loong_status_t loongi_native_retain(loong_context_t *ctx,
                                                    const char *dir,
                                                    const char *name, int keep);

#ifdef __cplusplus
}
#endif

#endif
