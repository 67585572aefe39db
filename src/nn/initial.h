/* SPDX-License-Identifier: Apache-2.0
 *
 * How parameters start. */
#ifndef LOONG_INITIAL_H
#define LOONG_INITIAL_H

#include "loong/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element `index` (of the whole tensor) of a parameter at the start, from the
 * stream (seed, key). */
double loongi_initial(const loong_param_params_t *param, uint64_t seed,
                      uint64_t key, uint64_t index);

#ifdef __cplusplus
}
#endif

#endif
