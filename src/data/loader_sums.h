/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank's samples of a step add to the normalisers of losses, exactly:
 * so it does not matter how a step is shared out. */
#ifndef LOONG_LOADER_SUMS_H
#define LOONG_LOADER_SUMS_H

#include "exact_sum.h"
#include "loong/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_loader_sums {
    int64_t of[LOONG_MAX_NORMALISERS][LOONG_EXACT_WORDS];
} loong_loader_sums_t;

/* Of the step that was checked last; borrowed, until the next one is. */
const loong_loader_sums_t *loongi_loader_sums(const loong_loader_t *loader);

#ifdef __cplusplus
}
#endif

#endif
