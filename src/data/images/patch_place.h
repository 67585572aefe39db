/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a picture's patches: windows of w x w blocks of m x m patches go
 * row by row, smaller ones on the right and below, the blocks of a window and
 * those of a picture without windows likewise, and the patches of a block after
 * one another, in blocks of n x n. */
#ifndef LOONG_PATCH_PLACE_H
#define LOONG_PATCH_PLACE_H

#include "base.h"

/* Of a picture of rows x columns patches, multiples of m. */
typedef struct loong_patch_grid {
    int64_t rows, columns;
    int64_t merge;  /* m */
    int64_t window; /* w; 0: none */
    int64_t inner;  /* n; 0: 1 */
} loong_patch_grid_t;

typedef struct loong_patch_place {
    int64_t row, column;
} loong_patch_place_t;

/* The window that holds a block. */
typedef struct loong_patch_window {
    int64_t first; /* of its blocks, in the order */
    loong_patch_place_t at;
    int64_t rows, columns;
} loong_patch_window_t;

/* Blocks of the side of a full window; a picture without any is one. */
static inline int64_t loongi_patch_window_side(const loong_patch_grid_t *g)
{
    return g->window > 0 ? g->window
                         : LOONG_MAX(g->rows, g->columns) / g->merge;
}

/* The one that holds block (row, column). */
static inline loong_patch_window_t
loongi_patch_window(const loong_patch_grid_t *g, int64_t row, int64_t column)
{
    int64_t rows = g->rows / g->merge;
    int64_t columns = g->columns / g->merge;
    int64_t side = loongi_patch_window_side(g);
    loong_patch_place_t at = {row / side * side, column / side * side};
    int64_t high = LOONG_MIN(side, rows - at.row);
    int64_t wide = LOONG_MIN(side, columns - at.column);
    loong_patch_window_t w = {at.row * columns + at.column * high, at, high,
                              wide};
    return w;
}

/* Of patch i in the order. */
static inline loong_patch_place_t
loongi_patch_place(const loong_patch_grid_t *g, int64_t i)
{
    int64_t m = g->merge;
    int64_t n = LOONG_MAX(g->inner, 1);
    int64_t block = i / (m * m);
    int64_t inner = i % (m * m) / (n * n);
    int64_t in_inner = i % (n * n);
    int64_t across = m / n;
    int64_t side = loongi_patch_window_side(g);
    int64_t row = block / (g->columns / m * side) * side;
    loong_patch_window_t w = loongi_patch_window(g, row, 0); /* of its row */
    int64_t column = (block - w.first) / (w.rows * side) * side;
    w = loongi_patch_window(g, row, column);
    block -= w.first;
    return (loong_patch_place_t){
        (w.at.row + block / w.columns) * m + inner / across * n + in_inner / n,
        (w.at.column + block % w.columns) * m + inner % across * n +
            in_inner % n};
}

/* The place in the order of the block that is number i row by row. */
static inline int64_t loongi_patch_block(const loong_patch_grid_t *g, int64_t i)
{
    int64_t columns = g->columns / g->merge;
    int64_t row = i / columns;
    int64_t column = i % columns;
    loong_patch_window_t w = loongi_patch_window(g, row, column);
    return w.first + (row - w.at.row) * w.columns + column - w.at.column;
}

#endif
