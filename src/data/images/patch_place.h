/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a picture's patches: blocks of m x m go row by row, and those of
 * a block after one another. */
#ifndef LOONG_PATCH_PLACE_H
#define LOONG_PATCH_PLACE_H

#include <stdint.h>

typedef struct loong_patch_place {
    int64_t row, column;
} loong_patch_place_t;

/* Of patch i of a picture that is `columns` patches wide, a multiple of m. */
static inline loong_patch_place_t loongi_patch_place(int64_t columns, int64_t m,
                                                     int64_t i)
{
    int64_t block = i / (m * m);
    int64_t in_block = i % (m * m);
    int64_t blocks = columns / m; /* in a row */
    return (loong_patch_place_t){block / blocks * m + in_block / m,
                                 block % blocks * m + in_block % m};
}

#endif
