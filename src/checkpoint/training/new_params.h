/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters that the files a model starts from lack, or have in another
 * shape, where a rule of init.by_scope says how they start. */
#ifndef LOONG_NEW_PARAMS_H
#define LOONG_NEW_PARAMS_H

#include "component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What parameters are loaded from. */
typedef struct loong_origin {
    const void *file;
    /* The dimensions that it has of a parameter of the component `role`, and
     * their sizes; 0: it has none. */
    int (*find)(const void *file, const char *role, const char *name,
                int64_t shape[2]);
} loong_origin_t;

/* A parameter that starts anew: one that init.by_scope names and the file has
 * not, or not in this shape, or an adapter's that the file has not. there[]:
 * what the file has of it; all 0: nothing. */
bool loongi_param_is_new(const loong_component_params_t *params,
                         const loong_origin_t *from,
                         const loong_whole_param_t *param, int64_t there[2]);

/* The same of what a stage has of a parameter. */
bool loongi_place_is_new(const loong_stage_t *stage, const loong_origin_t *from,
                         const loong_chunk_param_t *place);

/* Every rule has such a parameter. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_new_params_check(
    const loong_component_t *component, const loong_origin_t *from);

/* Before loading: where there are such parameters, all are initialised, and
 * the log names these. */
LOONG_NODISCARD loong_status_t loongi_new_params_initialize(
    loong_component_t *component, const loong_origin_t *from, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
