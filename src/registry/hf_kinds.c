/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of models that Hugging Face files have. Called by
 * src/checkpoint/huggingface; read hf_kind.h before. */
#include "hf_decoder.h"
#include "hf_projector.h"
#include "hf_vision.h"

const loong_hf_kind_t *const loongi_hf_kinds[] = {
    &loongi_hf_decoder, &loongi_hf_vision, &loongi_hf_projector, NULL};
