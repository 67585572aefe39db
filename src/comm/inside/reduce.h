/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduction of equally long arrays in the order they are listed. */
#ifndef LOONG_COMM_REDUCE_H
#define LOONG_COMM_REDUCE_H

#include "base.h"
#include "loong/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_reduction {
    loong_dtype_t dtype;
    loong_reduce_t reduce;
    const void *const *sources; /* [source_count], in the order to reduce */
    int source_count;
    void *const *targets; /* [target_count]; may be sources as well */
    int target_count;
    int64_t count;
} loong_reduction_t;

/* Every target becomes ((s0 + s1) + s2) + ..., block by block: a block is read
 * from all sources before it is written. */
void loongi_reduce(const loong_reduction_t *reduction);

#ifdef __cplusplus
}
#endif

#endif
