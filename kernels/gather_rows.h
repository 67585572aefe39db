/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a matrix by a list of their numbers, to a dense copy and back: for
 * kernels whose products leave rows out. */
#ifndef LOONG_GATHER_ROWS_H
#define LOONG_GATHER_ROWS_H

#include "base.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The list of `count` numbers of rows of `matrix`, whose elements are at ptr;
 * a negative one is none. The copy is fp32 where it is `wide` (of bf16), else
 * of the matrix' type. */
typedef struct loong_row_list {
    const loong_karg_t *matrix;
    void *ptr;
    const int32_t *row;
    int64_t count;
    bool wide;
    int threads;
} loong_row_list_t;

/* Where there is no row the copy gets zeros. */
void loongi_gather_rows(const loong_row_list_t *list, void *copy);

/* Where there is no row nothing is written; to nearest even. */
void loongi_scatter_rows(const loong_row_list_t *list, const void *copy);

#ifdef __cplusplus
}
#endif

#endif
