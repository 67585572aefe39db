/* SPDX-License-Identifier: Apache-2.0
 *
 * What must hold between the keys of a decoder. */
#ifndef LOONG_DECODER_CHECK_H
#define LOONG_DECODER_CHECK_H

#include "decoder.h"
#include "pairs.h"
#include "problems.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Derives sizes that were not given, and lists what does not fit. */
void loongi_decoder_check(loong_problems_t *problems,
                          loong_decoder_config_t *config,
                          const loong_pairs_t *pairs);
/* Has a scaling this number, a key below rope_scaling? */
bool loongi_decoder_scales_by(loong_rope_scaling_t scaling, const char *key);

#ifdef __cplusplus
}
#endif

#endif
