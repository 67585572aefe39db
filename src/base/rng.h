/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., Parallel random
 * numbers: as easy as 1, 2, 3; 2011). A number is a function of its key and
 * counter alone, so every layout draws the same. */
#ifndef LOONG_RNG_H
#define LOONG_RNG_H

#include <stdint.h>

#include "port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Four words from a 128-bit counter and a 64-bit key. Inline: dropout kernels
 * vectorise it. */
LOONG_EVERYWHERE static inline void loongi_philox(uint32_t counter[4],
                                                  uint64_t key)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * counter[0];
        uint64_t b = (uint64_t)0xCD9E8D57u * counter[2];
        uint32_t c1 = counter[1];
        uint32_t c3 = counter[3];
        counter[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
        counter[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* A 64-bit hash of a name (FNV-1a, then mixed). */
uint64_t loongi_rng_name(const char *name);

/* Uniform in (0, 1), 53 bits, and standard normal (Box and Muller), for
 * number `index` of the stream (seed, name). */
double loongi_rng_uniform(uint64_t seed, uint64_t name, uint64_t index);
double loongi_rng_normal(uint64_t seed, uint64_t name, uint64_t index);
/* Normal numbers index .. index + count - 1: the same bits, much faster. */
void loongi_rng_normals(uint64_t seed, uint64_t name, uint64_t index,
                        int64_t count, double *values);

#ifdef __cplusplus
}
#endif

#endif
