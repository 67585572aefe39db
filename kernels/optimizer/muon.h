/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a rank's part of a matrix stands; the contract is in loong/update.h. */
#ifndef LOONG_MUON_H
#define LOONG_MUON_H

#include "loong/update.h"
#include "rng.h"

/* The row of the whole matrix that is row k of the part. */
LOONG_EVERYWHERE static inline int64_t
loongi_muon_whole_row(const loong_muon_attr_t *a, int64_t k)
{
    return a->span > 0 ? a->row + k / a->span * a->apart + k % a->span
                       : a->row + k;
}

/* The row of the part, of `rows` rows, that is row i of the whole; -1: none. */
LOONG_EVERYWHERE static inline int64_t
loongi_muon_part_row(const loong_muon_attr_t *a, int64_t rows, int64_t i)
{
    int64_t k = i - a->row;
    if (k >= 0 && a->span > 0) {
        k = k % a->apart < a->span ? k / a->apart * a->span + k % a->apart : -1;
    }
    return k < rows ? (k < 0 ? -1 : k) : -1;
}

#endif
