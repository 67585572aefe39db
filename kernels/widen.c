/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices from bf16 to fp32 and back, by threads. Called by the oneDNN kernels
 * where a processor has no bf16 product. Read src/base/convert.h for single
 * values. */
#include "widen.h"

#include <string.h>

#include "convert.h"
#include "port.h"

static LOONG_CLONES void widen_row(const uint16_t *src, float *dst,
                                   int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)src[i] << 16;
        memcpy(dst + i, &bits, sizeof(bits));
    }
}

static LOONG_CLONES void narrow_row(const float *src, uint16_t *dst,
                                    int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof(bits));
        uint32_t even = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        dst[i] = (uint16_t)(nan ? bits >> 16 | 0x40u : even);
    }
}

void loongi_widen(const uint16_t *src, int64_t ld, float *dst, int64_t rows,
                  int64_t cols, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t r = 0; r < rows; r++) {
        widen_row(src + r * ld, dst + r * cols, cols);
    }
}

void loongi_narrow(const float *src, uint16_t *dst, int64_t ld, int64_t rows,
                   int64_t cols, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t r = 0; r < rows; r++) {
        narrow_row(src + r * cols, dst + r * ld, cols);
    }
}
