/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a projector with num_latents; a part of projector.c. */
#ifndef LOONG_PERCEIVER_H
#define LOONG_PERCEIVER_H

#include "projector.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The feed-forward of its layers is so many times as wide as the stream. */
enum { LOONG_PERCEIVER_WIDTH = 4 };

/* Rows of pictures [R,input_size] of the stream -> [packed_rows,hidden_size],
 * num_latents of each, by the inputs of loong_packing_processor. */
loong_val_t loongi_perceiver(loong_nn_t *nn, const loong_projector_config_t *c,
                             const loong_model_request_t *request,
                             loong_val_t x);

#ifdef __cplusplus
}
#endif

#endif
