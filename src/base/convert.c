/* SPDX-License-Identifier: Apache-2.0
 *
 * Element type conversion, scalar and by row. Called by checkpoints, reductions
 * and reference kernels. Read convert.h before. */
#include <math.h>
#include <string.h>

#include "convert.h"

bool loongi_dtype_is_float(loong_dtype_t dtype)
{
    return dtype == LOONG_F64 || dtype == LOONG_F32 || dtype == LOONG_BF16 ||
           dtype == LOONG_F16 || loongi_dtype_is_fp8(dtype);
}

bool loongi_dtype_is_fp8(loong_dtype_t dtype)
{
    return dtype == LOONG_F8_E4M3 || dtype == LOONG_F8_E5M2;
}

uint16_t loongi_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u); /* quiet NaN */
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Rounds the f64 to `mantissa` bits after the point, with exponents from
 * min_exponent (that of the smallest normal) to max_exponent, and returns the
 * packed sign | exponent | mantissa of a 16-bit format. */
static uint16_t narrow(double value, int mantissa, int min_exponent,
                       int max_exponent)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 63 << 15);
    uint16_t infinity =
        (uint16_t)((max_exponent - min_exponent + 2) << mantissa);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent == 1024) {
        uint16_t quiet = (uint16_t)(1u << (mantissa - 1));
        return (uint16_t)(sign | infinity | (fraction != 0 ? quiet : 0));
    }
    if (exponent > max_exponent) {
        return (uint16_t)(sign | infinity);
    }
    /* Below the normal range one more bit goes per power of two. */
    int shift = 52 - mantissa;
    uint64_t whole = fraction | UINT64_C(1) << 52;
    uint64_t base = 0;
    if (exponent < min_exponent) {
        shift += min_exponent - exponent;
        if (shift > 54) {
            return sign;
        }
    } else {
        base = (uint64_t)(exponent - min_exponent) << mantissa;
    }
    uint64_t kept = whole >> shift;
    uint64_t rest = whole & ((UINT64_C(1) << shift) - 1);
    uint64_t half = UINT64_C(1) << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1) != 0);
    /* The implicit one carries into the exponent field. */
    return (uint16_t)(sign | (uint16_t)(base + kept));
}

uint16_t loongi_f64_to_bf16(double value)
{
    return narrow(value, 7, -126, 127);
}

uint16_t loongi_f64_to_f16(double value)
{
    return narrow(value, 10, -14, 15);
}

uint16_t loongi_f32_to_f16(float value)
{
    return narrow((double)value, 10, -14, 15);
}

float loongi_bf16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float loongi_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    uint32_t bits;
    float value;
    if (exponent == 0) { /* zero or subnormal: a multiple of 2^-24 */
        value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    if (exponent == 31) {
        bits = sign | 0x7f800000u | fraction << 13;
    } else {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The largest exponent counts as any other but for its last value, NaN. */
float loongi_e4m3_to_f32(uint8_t bits)
{
    int exponent = bits >> 3 & 15;
    int fraction = bits & 7;
    float value = exponent == 0 ? (float)fraction * 0x1p-9f
                                : ldexpf((float)(8 + fraction), exponent - 10);
    if ((bits & 0x7f) == 0x7f) {
        value = NAN;
    }
    return (bits & 0x80) != 0 ? -value : value;
}

float loongi_e5m2_to_f32(uint8_t bits)
{
    return loongi_f16_to_f32((uint16_t)(bits << 8));
}

#define SPAN 512 /* elements per pass through the wide buffer */

static void widen(loong_dtype_t from, const char *src, double *wide, int n)
{
    for (int i = 0; i < n; i++) {
        uint16_t half;
        float single;
        switch (from) {
        case LOONG_F64:
            memcpy(wide + i, src + 8 * i, 8);
            break;
        case LOONG_F32:
            memcpy(&single, src + 4 * i, 4);
            wide[i] = single;
            break;
        case LOONG_F8_E4M3:
            wide[i] = loongi_e4m3_to_f32((uint8_t)src[i]);
            break;
        case LOONG_F8_E5M2:
            wide[i] = loongi_e5m2_to_f32((uint8_t)src[i]);
            break;
        default:
            memcpy(&half, src + 2 * i, 2);
            wide[i] = from == LOONG_BF16 ? loongi_bf16_to_f32(half)
                                         : loongi_f16_to_f32(half);
        }
    }
}

static void store(loong_dtype_t to, const double *wide, char *dst, int n)
{
    for (int i = 0; i < n; i++) {
        uint16_t half;
        float single;
        switch (to) {
        case LOONG_F64:
            memcpy(dst + 8 * i, wide + i, 8);
            break;
        case LOONG_F32:
            single = (float)wide[i];
            memcpy(dst + 4 * i, &single, 4);
            break;
        default:
            half = to == LOONG_BF16 ? loongi_f64_to_bf16(wide[i])
                                    : loongi_f64_to_f16(wide[i]);
            memcpy(dst + 2 * i, &half, 2);
        }
    }
}

/* The pair that checkpoints convert by the gigabyte. */
static void f32_row_to_bf16(const char *src, char *dst, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float single;
        memcpy(&single, src + 4 * i, 4);
        uint16_t half = loongi_f32_to_bf16(single);
        memcpy(dst + 2 * i, &half, 2);
    }
}

static void bf16_row_to_f32(const char *src, char *dst, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, src + 2 * i, 2);
        float single = loongi_bf16_to_f32(half);
        memcpy(dst + 4 * i, &single, 4);
    }
}

loong_status_t loongi_convert(loong_context_t *ctx, loong_dtype_t from,
                              const void *src, loong_dtype_t to, void *dst,
                              int64_t count)
{
    size_t from_size = loong_dtype_size(from);
    size_t to_size = loong_dtype_size(to);
    if (from == to) {
        memcpy(dst, src, (size_t)count * from_size);
        return LOONG_OK;
    }
    LOONG_CHECK(ctx,
                loongi_dtype_is_float(from) && loongi_dtype_is_float(to) &&
                    !loongi_dtype_is_fp8(to),
                LOONG_ERR_UNSUPPORTED, "no conversion from %s to %s",
                loong_dtype_name(from), loong_dtype_name(to));
    if (from == LOONG_F32 && to == LOONG_BF16) {
        f32_row_to_bf16(src, dst, count);
        return LOONG_OK;
    }
    if (from == LOONG_BF16 && to == LOONG_F32) {
        bf16_row_to_f32(src, dst, count);
        return LOONG_OK;
    }
    for (int64_t i = 0; i < count; i += SPAN) {
        double wide[SPAN];
        int n = (int)LOONG_MIN(count - i, (int64_t)SPAN);
        widen(from, (const char *)src + (size_t)i * from_size, wide, n);
        store(to, wide, (char *)dst + (size_t)i * to_size, n);
    }
    return LOONG_OK;
}
