/* SPDX-License-Identifier: Apache-2.0
 *
 * How context parallel ranks share a sequence: it is cut into 2 n equal chunks
 * and rank r of n takes chunks r and 2 n - 1 - r, so that under a causal mask
 * all ranks have the same work. */
#ifndef LOONG_ZIGZAG_H
#define LOONG_ZIGZAG_H

#include <stdint.h>

#include "port.h"

/* Place in a sequence of `length` (a multiple of 2 x size, or size 1) of row i
 * of a rank, 0 <= i < length / size. */
LOONG_EVERYWHERE static inline int64_t
loongi_zigzag_place(int rank, int size, int64_t length, int64_t i)
{
    int64_t chunk = length / (2 * (int64_t)size);
    if (size == 1) {
        return i;
    }
    return i < chunk ? rank * chunk + i
                     : (2 * (int64_t)size - 2 - rank) * chunk + i;
}

#endif
