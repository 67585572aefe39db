/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting flat buffers: which part belongs to a rank, and slices of it. */
#ifndef LOONG_COMM_PIECE_H
#define LOONG_COMM_PIECE_H

#include "comm_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In elements. */
typedef struct loong_piece {
    int64_t begin;
    int64_t count;
} loong_piece_t;

/* What lies before a rank's piece when pieces stand one after the other. */
static inline int64_t loongi_piece_begin(const int64_t *counts, int rank)
{
    int64_t sum = 0;
    for (int p = 0; p < rank; p++) {
        sum += counts[p];
    }
    return sum;
}

/* The rank's piece: by counts, or about even and beginning at a cache line
 * when there are none (ALL_REDUCE, BROADCAST). */
static inline loong_piece_t loongi_piece(const loong_collective_t *call,
                                         int size, int rank)
{
    loong_piece_t piece;
    if (call->counts != 0) {
        piece.begin = loongi_piece_begin(call->counts, rank);
        piece.count = call->counts[rank];
        return piece;
    }
    int64_t line = 64 / (int64_t)loong_dtype_size(call->dtype);
    int64_t lines = (call->count + line - 1) / line;
    int64_t end = LOONG_MIN(lines * (rank + 1) / size * line, call->count);
    piece.begin = LOONG_MIN(lines * rank / size * line, call->count);
    piece.count = end - piece.begin;
    return piece;
}

/* The slice number `round` of a piece; empty after its end. */
static inline loong_piece_t loongi_slice(loong_piece_t piece, int64_t slice,
                                         int64_t round)
{
    int64_t skip = LOONG_MIN(round * slice, piece.count);
    loong_piece_t part;
    part.begin = piece.begin + skip;
    part.count = LOONG_MIN(piece.count - skip, slice);
    return part;
}

static inline int64_t loongi_rounds(int64_t longest, int64_t slice)
{
    return (longest + slice - 1) / slice;
}

#ifdef __cplusplus
}
#endif

#endif
