/* SPDX-License-Identifier: Apache-2.0
 *
 * Stochastic rounding to bf16 as a function of where the element is; the
 * contract stands in loong/update.h. */
#ifndef LOONG_STOCHASTIC_H
#define LOONG_STOCHASTIC_H

#include "loong/update.h"
#include "rng.h"

/* The piece of element i of the operands, which is the one of number `from` or
 * behind it. */
LOONG_EVERYWHERE static inline int
loongi_moments_piece(const loong_update_piece_t *pieces, int count, int from,
                     int64_t i)
{
    while (from + 1 < count && pieces[from + 1].at <= i) {
        from++;
    }
    return from;
}

LOONG_EVERYWHERE static inline uint64_t
loongi_moments_key(const loong_update_piece_t *piece, uint64_t seed)
{
    return seed ^ (piece->stream * 0x9E3779B97F4A7C15u + 0x3C6EF372FE94F82Bu);
}

/* The number in the whole parameter of element i of the operands, and how many
 * follow it there as they do in the operands, as far as the piece goes. */
LOONG_EVERYWHERE static inline int64_t
loongi_moments_element(const loong_update_piece_t *piece, int64_t i)
{
    int64_t p = piece->begin + i - piece->at;
    return piece->first + p / piece->run * piece->stride + p % piece->run;
}

LOONG_EVERYWHERE static inline int64_t
loongi_moments_together(const loong_update_piece_t *piece, int64_t i)
{
    return piece->run - (piece->begin + i - piece->at) % piece->run;
}

/* The counter of the block of elements 4 * block .. 4 * block + 3. */
LOONG_EVERYWHERE static inline void
loongi_moments_counter(int64_t step, int64_t block, uint32_t counter[4])
{
    counter[0] = (uint32_t)block;
    counter[1] = (uint32_t)((uint64_t)block >> 32);
    counter[2] = (uint32_t)step;
    counter[3] = (uint32_t)((uint64_t)step >> 32);
}

/* The bits of an fp32 number to bf16, with 16 random bits; NaN stays NaN. */
LOONG_EVERYWHERE static inline uint16_t
loongi_round_by_chance(uint32_t bits, uint32_t chance)
{
    uint32_t nan = bits | 0x400000u;
    uint32_t sum = bits + (chance & 0xffffu);
    return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u ? nan : sum) >> 16);
}

#endif
