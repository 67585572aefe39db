/* SPDX-License-Identifier: Apache-2.0
 *
 * How parameters start. */
#ifndef LOONG_INITIAL_H
#define LOONG_INITIAL_H

#include "loong/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of a parameter: where they begin in the whole tensor, and the stream
 * (seed, key) that they are drawn from. */
typedef struct loong_draw {
    uint64_t seed;
    uint64_t key;
    uint64_t index;
    int64_t count;
} loong_draw_t;

/* What they start as. */
void loongi_initial(const loong_param_params_t *param,
                    const loong_draw_t *draw, double *values);

#ifdef __cplusplus
}
#endif

#endif
