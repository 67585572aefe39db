/* SPDX-License-Identifier: Apache-2.0
 *
 * Which elements of a parameter a rank holds. */
#ifndef LOONG_PARAM_SLICE_H
#define LOONG_PARAM_SLICE_H

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a rank holds of a parameter, seen as a matrix: `rows` rows of `cols`
 * elements in storage, which are rows row .. and columns col .. of a tensor
 * [all_rows, all_cols] outside. Padding of the vocabulary is not counted. */
typedef struct loong_param_slice {
    int64_t row, rows, all_rows;
    int64_t col, cols, all_cols;
    /* Rows follow one another outside for so many, which begin so many apart;
     * span 0: all of them do. */
    int64_t span, apart;
} loong_param_slice_t;
loong_param_slice_t loongi_param_slice_of(const loong_chunk_param_t *place);
/* Where row `row` of the part is outside; *n_p, rows that are wanted from there
 * on, becomes how many of them follow one another there. */
int64_t loongi_param_slice_row(const loong_param_slice_t *part, int64_t row,
                               int64_t *n_p);

#ifdef __cplusplus
}
#endif

#endif
