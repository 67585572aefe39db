/* SPDX-License-Identifier: Apache-2.0
 *
 * The mask of dropout as a function of where the element is. */
#ifndef LOONG_DROPOUT_H
#define LOONG_DROPOUT_H

#include "rng.h"

LOONG_EVERYWHERE static inline uint64_t loongi_dropout_key(uint64_t seed,
                                                           uint64_t stream)
{
    return seed ^ (stream * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u);
}

/* Elements with a 24-bit draw below this are dropped. */
static inline uint32_t loongi_dropout_limit(double p)
{
    return (uint32_t)(p * 16777216.0);
}

LOONG_EVERYWHERE static inline void
loongi_dropout_words(uint64_t key, int64_t step, int64_t row, uint32_t block,
                     uint32_t words[4])
{
    words[0] = (uint32_t)row;
    words[1] = (uint32_t)((uint64_t)row >> 32);
    words[2] = block;
    words[3] = (uint32_t)step;
    loongi_philox(words, key);
}

#endif
