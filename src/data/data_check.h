/* SPDX-License-Identifier: Apache-2.0
 *
 * Data, judged before a run. */
#ifndef LOONG_DATA_CHECK_H
#define LOONG_DATA_CHECK_H

#include "loong/blend.h"
#include "loong/processor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Token ids that were looked at. */
typedef struct loong_ids {
    int64_t largest;
    int64_t read, there;
} loong_ids_t;

/* Whether a model of so many ids knows those of the data, as far as they are
 * read; a blend may be NULL. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_data_check_ids(
    loong_context_t *ctx, int count, const loong_blend_t *const *blends,
    int64_t vocab, loong_ids_t *found);
/* Whether each type of item that the first samples of the sources have is one
 * of `reads` (loong_processor_t). Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_data_check_items(
    loong_context_t *ctx, const loong_blend_t *blend, uint32_t reads);
/* Whether the processor takes the samples of all sources that can peek: without
 * reading them. Errors: LOONG_ERR_CONFIG, of the first that it refuses. */
LOONG_NODISCARD loong_status_t loongi_data_judge(
    loong_context_t *ctx, const loong_blend_t *blend,
    const loong_processor_t *processor, const void *config);
/* Decodes the pictures of all samples, on so many threads, and tells how many
 * there are; that takes their time, of which a line of the log warns. Errors:
 * LOONG_ERR_FORMAT, with each one that cannot be decoded and who wants it. */
LOONG_NODISCARD loong_status_t loongi_data_decode(loong_context_t *ctx,
                                                  const loong_blend_t *blend,
                                                  int threads);
/* Reads up to the first token of a set that carries loss. Errors:
 * LOONG_ERR_CONFIG where there is none. */
LOONG_NODISCARD loong_status_t loongi_data_check_loss(
    loong_context_t *ctx, const loong_blend_t *blend, const char *name);

#ifdef __cplusplus
}
#endif

#endif
