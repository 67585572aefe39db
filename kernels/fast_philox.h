/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox blocks (base/rng.h) side by side, one to a lane of 64 bits: a product
 * of two words is as long, and what stands above a word is not looked at. */
#ifndef LOONG_FAST_PHILOX_H
#define LOONG_FAST_PHILOX_H

#include "fast.h"

typedef uint64_t lane_t __attribute__((may_alias));
typedef uint64_t lanes_t __attribute__((vector_size(VEC_SIZE * 4)));
enum {
    PHILOX_SIDE = FAST_CHUNK / 4,
    PHILOX_LANES = VEC_SIZE / 2,
    /* A round waits for the one before: several vectors at once. */
    PHILOX_ROW = VEC_SIZE == 16 ? 4 : 2,
    PHILOX_STEP = PHILOX_ROW * PHILOX_LANES
};

/* The words of a block in each lane; what stands above a word is anything. */
typedef struct philox_words {
    lanes_t of[4];
} philox_words_t;

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

VEC_INLINE void philox_round(philox_words_t *x, uint64_t key, int round)
{
    uint32_t k0 = (uint32_t)key + (uint32_t)round * 0x9E3779B9u;
    uint32_t k1 = (uint32_t)(key >> 32) + (uint32_t)round * 0xBB67AE85u;
    lanes_t u = philox_product(x->of[0], 0xD2511F53u);
    lanes_t v = philox_product(x->of[2], 0xCD9E8D57u);
    x->of[0] = v >> 32 ^ x->of[1] ^ k0;
    x->of[1] = v;
    x->of[2] = u >> 32 ^ x->of[3] ^ k1;
    x->of[3] = u;
}

/* words[4 * b + k], b < side: word k of the block whose counter is `first` with
 * b added to word `counts`, 0 or 2, alone; side is a multiple of PHILOX_STEP.
 * With the other words the same in all blocks, half of the first two rounds is
 * so too: they stand apart for that to be done once. */
VEC_INLINE void fast_philox(const uint32_t first[4], int counts, uint64_t key,
                            int side, uint32_t words[FAST_CHUNK])
{
    lanes_t lane;
    for (int i = 0; i < PHILOX_LANES; i++) {
        lane[i] = (uint64_t)i;
    }
    for (int b = 0; b < side; b += PHILOX_STEP) {
        philox_words_t x[PHILOX_ROW];
        for (int r = 0; r < PHILOX_ROW; r++) {
            for (int k = 0; k < 4; k++) {
                x[r].of[k] = (lanes_t){0} + first[k];
            }
            x[r].of[counts] += lane + (uint64_t)(b + r * PHILOX_LANES);
            philox_round(&x[r], key, 0);
            philox_round(&x[r], key, 1);
        }
        for (int round = 2; round < 10; round++) {
            for (int r = 0; r < PHILOX_ROW; r++) {
                philox_round(&x[r], key, round);
            }
        }
        for (int r = 0; r < PHILOX_ROW; r++) {
            philox_store((lane_t *)words + 2 * (b + r * PHILOX_LANES),
                         (x[r].of[0] & 0xffffffffu) | x[r].of[1] << 32,
                         (x[r].of[2] & 0xffffffffu) | x[r].of[3] << 32);
        }
    }
}

#endif
