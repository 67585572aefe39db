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

#ifdef __cplusplus
}
#endif

#endif
