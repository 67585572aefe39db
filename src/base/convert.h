/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion between element types. Narrowing rounds to nearest, ties to
 * even, in one step from the source type; too large becomes infinity, NaN
 * stays NaN; subnormals are kept.
 */
#ifndef LOONG_CONVERT_H
#define LOONG_CONVERT_H

#include "base.h"
#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

uint16_t loongi_f32_to_bf16(float value);
uint16_t loongi_f64_to_bf16(double value);
uint16_t loongi_f32_to_f16(float value);
uint16_t loongi_f64_to_f16(double value);
float loongi_bf16_to_f32(uint16_t bits);
float loongi_f16_to_f32(uint16_t bits);
float loongi_e4m3_to_f32(uint8_t bits);
float loongi_e5m2_to_f32(uint8_t bits);

/* Converts count elements; pointers need no alignment and may not overlap.
 * Equal types are copied; otherwise both must be floating point, and the
 * second of 16 bits or more, else LOONG_ERR_UNSUPPORTED. */
LOONG_NODISCARD loong_status_t loongi_convert(loong_context_t *ctx,
                                              loong_dtype_t from,
                                              const void *src, loong_dtype_t to,
                                              void *dst, int64_t count);

bool loongi_dtype_is_float(loong_dtype_t dtype);
/* One of 8 bits: those are read, and written by the op quantize alone. */
bool loongi_dtype_is_fp8(loong_dtype_t dtype);

#ifdef __cplusplus
}
#endif

#endif
