/* SPDX-License-Identifier: Apache-2.0
 *
 * Projectors in Hugging Face files, which have them as a part of a whole model
 * (hf_composite.h) and state no type of their own. */
#ifndef LOONG_HF_PROJECTOR_H
#define LOONG_HF_PROJECTOR_H

#include "hf_kind.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_hf_kind_t loongi_hf_projector;

#ifdef __cplusplus
}
#endif

#endif
