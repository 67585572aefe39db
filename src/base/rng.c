/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers that are functions of seed, name and index: uniform and
 * normal. Called for initial parameters, masked pictures, sampled text. Read
 * rng.h before, which has Philox itself. */
#include "rng.h"

#include <math.h>
#include <string.h>

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

/* ---- normal numbers ----------------------------------------------------- */

/* Plain operations without branch or call, each rounded by itself
 * (-ffp-contract=off): the same bits in every vector width. */

/* log of 0 < x < 1: with x = 2^k m, sqrt(1/2) <= m < sqrt(2) and
 * s = (m - 1) / (m + 1), log m = 2 (s + s^3 / 3 + ...); what is cut off is
 * below 2^-55 of it. */
static inline double log_of(double x)
{
    const uint64_t root = 0x3fe6a09e667f3bcdu; /* sqrt(1/2) */
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    /* k = -100 .. 0: the bias keeps it positive */
    uint64_t biased = (bits - root + ((uint64_t)1023 << 52)) >> 52;
    bits -= (biased - 1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof(m));
    double s = (m - 1.0) / (m + 1.0);
    double t = s * s;
    double p = 1.0 / 21.0;
    p = p * t + 1.0 / 19.0;
    p = p * t + 1.0 / 17.0;
    p = p * t + 1.0 / 15.0;
    p = p * t + 1.0 / 13.0;
    p = p * t + 1.0 / 11.0;
    p = p * t + 1.0 / 9.0;
    p = p * t + 1.0 / 7.0;
    p = p * t + 1.0 / 5.0;
    p = p * t + 1.0 / 3.0;
    double k = (double)((int32_t)(uint32_t)biased - 1023);
    return k * 0.6931471805599453 + (2.0 * s + 2.0 * s * t * p);
}

/* cos(2 pi u), 0 < u < 1, as -sin of the angle from the nearest zero; what is
 * cut off is below 2^-60. */
static inline double cos_turn(double u)
{
    double x = 6.283185307179586 * (0.25 - fabs(u - 0.5));
    double t = x * x;
    double p = -1.0 / 25852016738884976640000.0; /* 23! */
    p = p * t + 1.0 / 51090942171709440000.0;
    p = p * t - 1.0 / 121645100408832000.0;
    p = p * t + 1.0 / 355687428096000.0;
    p = p * t - 1.0 / 1307674368000.0;
    p = p * t + 1.0 / 6227020800.0;
    p = p * t - 1.0 / 39916800.0;
    p = p * t + 1.0 / 362880.0;
    p = p * t - 1.0 / 5040.0;
    p = p * t + 1.0 / 120.0;
    p = p * t - 1.0 / 6.0;
    return -(x + x * t * p);
}

/* As draw() makes them, of two words. */
static inline double uniform_of(uint32_t high, uint32_t low)
{
    double upper = (double)(int32_t)(high ^ 0x80000000u) + 2147483648.0;
    double lower = (double)(int32_t)(low >> 11);
    return (upper * 2097152.0 + lower + 0.5) * 0x1p-53;
}

enum { BLOCK = 128 };

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3")))
#endif
static void normal_block(uint64_t seed, uint64_t name, uint64_t index,
                         double values[BLOCK])
{
    uint32_t words[4][BLOCK];
    double u[2][BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        uint64_t at = index + (uint64_t)i;
        uint32_t c[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)name,
                         (uint32_t)(name >> 32)};
        loongi_philox(c, seed);
        words[0][i] = c[0];
        words[1][i] = c[1];
        words[2][i] = c[2];
        words[3][i] = c[3];
    }
    for (int i = 0; i < BLOCK; i++) {
        u[0][i] = uniform_of(words[0][i], words[1][i]);
        u[1][i] = uniform_of(words[2][i], words[3][i]);
    }
    for (int i = 0; i < BLOCK; i++) {
        values[i] = sqrt(-2.0 * log_of(u[0][i])) * cos_turn(u[1][i]);
    }
}

void loongi_rng_normals(uint64_t seed, uint64_t name, uint64_t index,
                        int64_t count, double *values)
{
    double block[BLOCK];
    while (count >= BLOCK) {
        normal_block(seed, name, index, values);
        values += BLOCK;
        index += BLOCK;
        count -= BLOCK;
    }
    if (count > BLOCK / 4) {
        normal_block(seed, name, index, block);
        memcpy(values, block, (size_t)count * sizeof(*values));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = loongi_rng_normal(seed, name, index + (uint64_t)i);
    }
}

double loongi_rng_normal(uint64_t seed, uint64_t name, uint64_t index)
{
    double u[2];
    draw(seed, name, index, u);
    return sqrt(-2.0 * log_of(u[0])) * cos_turn(u[1]);
}
