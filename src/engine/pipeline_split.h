/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a pipeline cuts a model: which layers each stage holds, and which hold
 * the embedding and the head. Pure, not collective.
 */
#ifndef LOONG_PIPELINE_SPLIT_H
#define LOONG_PIPELINE_SPLIT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_stage_split {
    int first_layer;
    int num_layers;
    bool begins; /* with the embedding */
    bool ends;   /* with head and loss */
} loong_stage_split_t;

typedef struct loong_split_params {
    int num_layers; /* of the model */
    int ranks;      /* of the pipeline */
    /* Megatron's num_layers_per_virtual_pipeline_stage; 0: one chunk a rank */
    int layers_per_chunk;
    /* Megatron's pipeline_model_parallel_layout, or NULL: stages are cut by
     * '|', E is the embedding, t a layer, L head and loss; x*3 and (xy)*3
     * repeat, commas mean nothing. */
    const char *layout;
} loong_split_params_t;

/* Cuts of all stages, in the arena; *chunks_p of them for each rank. Without a
 * layout and chunks the first stages have one layer more when they do not
 * divide. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_pipeline_split(
    loong_context_t *ctx, const loong_split_params_t *params,
    loong_arena_t *arena, loong_stage_split_t **cuts_p, int *chunks_p);

#ifdef __cplusplus
}
#endif

#endif
