/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared object of the user's: ops, kernels, families, sources, model types
 * of Hugging Face directories (loong/hub.h), keys of its own in recipes. A
 * recipe names it (extensions: [./mine.so]); it is opened by loong_recipe_load
 * before anything else of the recipe is looked at, and exports one function.
 * examples/extension is a whole one.
 */
#ifndef LOONG_EXTENSION_H
#define LOONG_EXTENSION_H

#include "loong/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_extension {
    size_t struct_size; /* of who filled it */
    const char *name;   /* for messages */
    int64_t num_keys;   /* that recipes may have because of it */
    const loong_recipe_key_t *keys;
    /* Registers what it brings, once in each context; the built-in things may
     * be entered before or behind it. */
    loong_status_t (*enter)(loong_context_t *ctx);
} loong_extension_t;

/* Makes an error that says why; returns `status`, for the caller to return. */
LOONG_API loong_status_t loong_extension_fail(loong_context_t *ctx,
                                              loong_status_t status,
                                              const char *text);

/* Of the shared object; what it returns lives as long as the process. */
typedef const loong_extension_t *(*loong_extension_fn)(void);
#define LOONG_EXTENSION_SYMBOL "loong_extension"

#ifdef __cplusplus
}
#endif

#endif
