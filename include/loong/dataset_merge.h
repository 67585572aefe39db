/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets out of data sets: several as one, their documents in a random
 * order, a part of them.
 */
#ifndef LOONG_DATASET_MERGE_H
#define LOONG_DATASET_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The documents of all sources, one behind the other, put into an order that
 * depends on the seed alone; of these the part [begin, end), from
 * floor(begin * documents) to floor(end * documents). */
typedef struct loong_dataset_merge_params {
    const char *const *prefixes; /* borrowed */
    int64_t num_prefixes;
    const char *output; /* PREFIX.bin, PREFIX.idx */
    bool shuffle;
    uint64_t seed;
    double begin; /* 0 <= begin < end <= 1 */
    double end;
} loong_dataset_merge_params_t;

/* Writes the part as a data set, each document as one sequence, with a mask
 * when the sources have one; *documents_p and *tokens_p tell how much. On
 * failure nothing is left of it. Not collective.
 * Errors: those of loong_dataset_create; LOONG_ERR_MISMATCH (other types, or a
 * mask beside none); LOONG_ERR_ARG (an empty part, an output that is a source);
 * LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_dataset_merge(
    loong_context_t *ctx, const loong_dataset_merge_params_t *params,
    int64_t *documents_p, int64_t *tokens_p);

#ifdef __cplusplus
}
#endif

#endif
