/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices between bf16 and fp32, in parallel: for kernels that compute in
 * fp32 where a processor cannot multiply bf16. */
#ifndef LOONG_WIDEN_H
#define LOONG_WIDEN_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* src [rows, cols] with rows ld apart -> dense dst. */
void loongi_widen(const uint16_t *src, int64_t ld, float *dst, int64_t rows,
                  int64_t cols, int threads);

/* Dense src -> dst [rows, cols] with rows ld apart, to nearest even. */
void loongi_narrow(const float *src, uint16_t *dst, int64_t ld, int64_t rows,
                   int64_t cols, int threads);

#ifdef __cplusplus
}
#endif

#endif
