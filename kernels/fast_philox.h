/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox blocks (base/rng.h) side by side, one to a lane of 64 bits: a product
 * of two words is as long, and what stands above a word is not looked at. */
#ifndef LOONG_FAST_PHILOX_H
#define LOONG_FAST_PHILOX_H

#include "fast.h"

typedef uint64_t lane_t __attribute__((may_alias));
typedef uint64_t lanes_t __attribute__((vector_size(VEC_SIZE * 4)));
typedef uint64_t ulanes_t
    __attribute__((vector_size(VEC_SIZE * 4), aligned(8), may_alias));

enum {
    PHILOX_SIDE = FAST_CHUNK / 4,
    PHILOX_LANES = VEC_SIZE / 2,
    /* A round waits for the one before: several vectors at once. */
    PHILOX_ROW = VEC_SIZE == 16 ? 4 : 2,
    PHILOX_STEP = PHILOX_ROW * PHILOX_LANES
};

/* Counters of blocks: words 0 and 1, words 2 and 3, the first one below. */
typedef struct philox_counters {
    uint64_t low[PHILOX_SIDE];
    uint64_t high[PHILOX_SIDE];
} philox_counters_t;

/* Products of low halves; the compiler has but those of all 64 bits. */
VEC_INLINE lanes_t philox_product(lanes_t a, uint32_t b)
{
#if defined(__AVX512F__)
    return (lanes_t)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
    return (lanes_t)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* low[0], high[0], low[1] .. */
VEC_INLINE void philox_store(lane_t *out, lanes_t low, lanes_t high)
{
#if defined(__AVX512F__)
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(
        out, _mm512_permutex2var_epi64((__m512i)low, first, (__m512i)high));
    _mm512_storeu_si512(
        out + PHILOX_LANES,
        _mm512_permutex2var_epi64((__m512i)low, second, (__m512i)high));
#else
    for (int i = 0; i < PHILOX_LANES; i++) {
        out[2 * i] = low[i];
        out[2 * i + 1] = high[i];
    }
#endif
}

/* words[4 * b + k], b < side: word k of the block whose counter is c->..[b];
 * side is a multiple of PHILOX_STEP. */
VEC_INLINE void fast_philox(const philox_counters_t *c, uint64_t key, int side,
                            uint32_t words[FAST_CHUNK])
{
    for (int b = 0; b < side; b += PHILOX_STEP) {
        lanes_t c0[PHILOX_ROW], c1[PHILOX_ROW], c2[PHILOX_ROW], c3[PHILOX_ROW];
        uint32_t k0 = (uint32_t)key;
        uint32_t k1 = (uint32_t)(key >> 32);
        for (int r = 0; r < PHILOX_ROW; r++) {
            c0[r] = *(const ulanes_t *)(c->low + b + r * PHILOX_LANES);
            c2[r] = *(const ulanes_t *)(c->high + b + r * PHILOX_LANES);
            c1[r] = c0[r] >> 32;
            c3[r] = c2[r] >> 32;
        }
        for (int round = 0; round < 10; round++) {
            for (int r = 0; r < PHILOX_ROW; r++) {
                lanes_t u = philox_product(c0[r], 0xD2511F53u);
                lanes_t v = philox_product(c2[r], 0xCD9E8D57u);
                c0[r] = v >> 32 ^ c1[r] ^ k0;
                c1[r] = v;
                c2[r] = u >> 32 ^ c3[r] ^ k1;
                c3[r] = u;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        for (int r = 0; r < PHILOX_ROW; r++) {
            philox_store((lane_t *)words + 2 * (b + r * PHILOX_LANES),
                         (c0[r] & 0xffffffffu) | c1[r] << 32,
                         (c2[r] & 0xffffffffu) | c3[r] << 32);
        }
    }
}

#endif
