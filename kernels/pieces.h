/* SPDX-License-Identifier: Apache-2.0
 *
 * Workspace in pieces, for kernels that are compiled per level: the function
 * that hands the pieces out is also the one that counts them. */
#ifndef LOONG_PIECES_H
#define LOONG_PIECES_H

#include "tile.h"

enum { PIECE_ALIGN = 64 };

static inline int64_t round_to(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Hands pieces of workspace out; without a base it only counts. */
typedef struct pieces {
    char *base;
    int64_t used;
} pieces_t;

static inline void *take(pieces_t *from, int64_t bytes)
{
    void *p = from->base != NULL ? from->base + from->used : NULL;
    from->used += round_to(bytes, PIECE_ALIGN);
    return p;
}

static inline elem_t *take_elems(pieces_t *from, int64_t count)
{
    return take(from, count * (int64_t)sizeof(elem_t));
}

static inline float *take_floats(pieces_t *from, int64_t count)
{
    return take(from, count * (int64_t)sizeof(float));
}

#endif
