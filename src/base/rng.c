/* SPDX-License-Identifier: Apache-2.0 */
#include "rng.h"

#include <math.h>

uint64_t loongi_rng_name(const char *name)
{
    uint64_t hash = 14695981039346656037u;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    }
    hash ^= hash >> 33; /* finaliser of MurmurHash3 */
    hash *= 0xff51afd7ed558ccdu;
    hash ^= hash >> 33;
    hash *= 0xc4ceb9fe1a85ec53u;
    return hash ^ (hash >> 33);
}

/* Two uniform numbers in (0, 1). */
static void draw(uint64_t seed, uint64_t name, uint64_t index, double u[2])
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)name,
                     (uint32_t)(name >> 32)};
    loongi_philox(c, seed);
    for (int i = 0; i < 2; i++) {
        uint64_t bits = ((uint64_t)c[2 * i] << 32) | c[2 * i + 1];
        u[i] = ((double)(bits >> 11) + 0.5) * 0x1p-53;
    }
}

double loongi_rng_uniform(uint64_t seed, uint64_t name, uint64_t index)
{
    double u[2];
    draw(seed, name, index, u);
    return u[0];
}

double loongi_rng_normal(uint64_t seed, uint64_t name, uint64_t index)
{
    double u[2];
    draw(seed, name, index, u);
    return sqrt(-2.0 * log(u[0])) * cos(6.283185307179586 * u[1]);
}
