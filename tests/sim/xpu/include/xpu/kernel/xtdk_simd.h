/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of 512 bits by the names of the vendor's guide, sections 5.2 and 5.4:
 * what kernels here use of them. Bit i of a mask is lane i; _mz: lanes that are
 * out are 0, or not touched in memory that is read; _mh: they keep what there
 * was. Addresses are multiples of 64. */
#ifndef CLUSTERSIM_XTDK_SIMD_H
#define CLUSTERSIM_XTDK_SIMD_H

#include "xpu/kernel/xtdk.h"

typedef float float32x16_t __attribute__((vector_size(64)));
typedef int32_t int32x16_t __attribute__((vector_size(64)));
typedef uint32_t uint32x16_t __attribute__((vector_size(64)));

extern "C" {
/* Lanes of 4 bytes. */
void clustersim_vload(clustersim_place place, void *to, const void *from,
                      int mask, int memory);
void clustersim_vstore(clustersim_place place, void *to, const void *from,
                       int mask, int memory);
}

template <class V>
inline V clustersim_load(clustersim_place place, const void *from, V hold,
                         int mask, int memory)
{
    clustersim_vload(place, &hold, from, mask, memory);
    return hold;
}

template <class V>
inline void clustersim_store(clustersim_place place, void *to, V v, int mask,
                             int memory)
{
    clustersim_vstore(place, to, &v, mask, memory);
}

#define vload_lm_float32x16(from_) \
    clustersim_load(CLUSTERSIM_HERE, from_, float32x16_t{}, -1, CLUSTERSIM_LM)
#define vload_lm_float32x16_mz(from_, mask_)                       \
    clustersim_load(CLUSTERSIM_HERE, from_, float32x16_t{}, mask_, \
                    CLUSTERSIM_LM)
#define vload_lm_uint32x16(from_) \
    clustersim_load(CLUSTERSIM_HERE, from_, uint32x16_t{}, -1, CLUSTERSIM_LM)
#define vload_sm_float32x16(from_) \
    clustersim_load(CLUSTERSIM_HERE, from_, float32x16_t{}, -1, CLUSTERSIM_SM)
#define vstore_lm_float32x16(to_, v_) \
    clustersim_store<float32x16_t>(CLUSTERSIM_HERE, to_, v_, -1, CLUSTERSIM_LM)
#define vstore_lm_float32x16_mh(to_, v_, mask_)                     \
    clustersim_store<float32x16_t>(CLUSTERSIM_HERE, to_, v_, mask_, \
                                   CLUSTERSIM_LM)
#define vstore_sm_float32x16(to_, v_) \
    clustersim_store<float32x16_t>(CLUSTERSIM_HERE, to_, v_, -1, CLUSTERSIM_SM)

#define CLUSTERSIM_LANES(name_, type_, scalar_, expression_) \
    inline type_ vv##name_(type_ a, type_ b)                 \
    {                                                        \
        return expression_;                                  \
    }                                                        \
    inline type_ sv##name_(scalar_ s, type_ b)               \
    {                                                        \
        type_ a = type_{} + s;                               \
        return expression_;                                  \
    }
CLUSTERSIM_LANES(add_float32x16, float32x16_t, float, a + b)
CLUSTERSIM_LANES(sub_float32x16, float32x16_t, float, a - b)
CLUSTERSIM_LANES(mul_float32x16, float32x16_t, float, a *b)
CLUSTERSIM_LANES(max_float32x16, float32x16_t, float, a > b ? a : b)
CLUSTERSIM_LANES(add_uint32x16, uint32x16_t, uint32_t, a + b)
CLUSTERSIM_LANES(and_uint32x16, uint32x16_t, uint32_t, a &b)
CLUSTERSIM_LANES(or_uint32x16, uint32x16_t, uint32_t, a | b)

/* The scalar is how far. */
inline uint32x16_t svsll_uint32x16(uint32_t s, uint32x16_t v)
{
    return v << s;
}
inline uint32x16_t svsrl_uint32x16(uint32_t s, uint32x16_t v)
{
    return v >> s;
}

/* Lanes of the lower, and of the upper halves, one of a and one of b in turn.
 */
inline float32x16_t vvmerge_l_float32x16(float32x16_t a, float32x16_t b)
{
    float32x16_t y;
    for (int i = 0; i < 8; i++) {
        y[2 * i] = a[i];
        y[2 * i + 1] = b[i];
    }
    return y;
}
inline float32x16_t vvmerge_h_float32x16(float32x16_t a, float32x16_t b)
{
    float32x16_t y;
    for (int i = 0; i < 8; i++) {
        y[2 * i] = a[8 + i];
        y[2 * i + 1] = b[8 + i];
    }
    return y;
}

#endif
