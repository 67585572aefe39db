/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLUSTERSIM_XTDK_BF16_H
#define CLUSTERSIM_XTDK_BF16_H

#include <cstdint>
#include <cstring>

struct bfloat16_t {
    uint16_t bits;
};

inline float __bfloat162float(bfloat16_t x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To the nearest, ties to even; NaN stays one. */
inline bfloat16_t __float2bfloat16_rn(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return {(uint16_t)(bits >> 16 | 0x40u)};
    }
    return {(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

#endif
