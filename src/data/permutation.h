/* SPDX-License-Identifier: Apache-2.0
 *
 * A keyed bijection of 0 .. n-1 in O(1) memory. */
#ifndef LOONG_PERMUTATION_H
#define LOONG_PERMUTATION_H

#include <stdint.h>

/* Mixes a word into a key: for deriving (seed, source, epoch) keys. */
uint64_t loongi_permutation_key(uint64_t key, uint64_t word);

/* Image of index, 0 <= index < n, under the permutation of this key. */
int64_t loongi_permutation_get(uint64_t key, int64_t n, int64_t index);

#endif
