/* SPDX-License-Identifier: Apache-2.0
 *
 * Feistel network with cycle walking. The smallest power of two that holds n
 * is cut into a high and a low part of (nearly) equal bits; each half-round
 * adds a keyed function of one part to the other, which is invertible
 * whatever the function is. Values at or above n are fed in again: the domain
 * is less than 2n, so that takes fewer than one extra turn on average. Called
 * by blend.c and dataset_merge.c. Read permutation.h before. */
#include "permutation.h"

enum { HALF_ROUNDS = 8 };

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of
 * 64-bit words in which every input bit flips about half of the output. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t loongi_permutation_key(uint64_t key, uint64_t word)
{
    return mix(mix(key + 0x9e3779b97f4a7c15u) + word);
}

static uint64_t turn(uint64_t key, int low_bits, int high_bits, uint64_t x)
{
    uint64_t low_mask = ((uint64_t)1 << low_bits) - 1;
    uint64_t high_mask = ((uint64_t)1 << high_bits) - 1;
    uint64_t low = x & low_mask;
    uint64_t high = x >> low_bits;
    for (uint64_t r = 0; r < HALF_ROUNDS; r += 2) {
        low ^= loongi_permutation_key(key + r, high) & low_mask;
        high ^= loongi_permutation_key(key + r + 1, low) & high_mask;
    }
    return high << low_bits | low;
}

int64_t loongi_permutation_get(uint64_t key, int64_t n, int64_t index)
{
    int bits = 0;
    while (bits < 62 && (int64_t)1 << bits < n) {
        bits++;
    }
    uint64_t x = (uint64_t)index;
    do {
        x = turn(key, bits / 2, bits - bits / 2, x);
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
