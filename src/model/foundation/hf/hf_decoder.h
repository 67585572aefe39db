/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders in Hugging Face files. */
#ifndef LOONG_HF_DECODER_H
#define LOONG_HF_DECODER_H

#include "hf_kind.h"

extern const loong_hf_kind_t loongi_hf_decoder;

#endif
