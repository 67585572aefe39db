/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a matrix by their numbers, gathered by threads. Called by the oneDNN
 * kernels of the fused loss. Read widen.h before. */
#include "gather_rows.h"

#include <string.h>

#include "port.h"
#include "widen.h"

static size_t copy_bytes(const loong_row_list_t *list)
{
    loong_dtype_t dtype = list->wide ? LOONG_F32 : list->matrix->dtype;
    return (size_t)loong_karg_cols(list->matrix) * loong_dtype_size(dtype);
}

static char *row_at(const loong_row_list_t *list, int32_t row)
{
    return (char *)list->ptr + (size_t)(row * list->matrix->ld) *
                                   loong_dtype_size(list->matrix->dtype);
}

void loongi_gather_rows(const loong_row_list_t *list, void *copy)
{
    size_t bytes = copy_bytes(list);
#pragma omp parallel for schedule(static) num_threads(list->threads)
    for (int64_t r = 0; r < list->count; r++) {
        void *to = (char *)copy + (size_t)r * bytes;
        if (list->row[r] < 0) {
            memset(to, 0, bytes);
        } else if (list->wide) {
            const void *from = row_at(list, list->row[r]);
            loongi_widen(from, 0, to, 1, loong_karg_cols(list->matrix), 1);
        } else {
            memcpy(to, row_at(list, list->row[r]), bytes);
        }
    }
}

void loongi_scatter_rows(const loong_row_list_t *list, const void *copy)
{
    size_t bytes = copy_bytes(list);
#pragma omp parallel for schedule(static) num_threads(list->threads)
    for (int64_t r = 0; r < list->count; r++) {
        const void *from = (const char *)copy + (size_t)r * bytes;
        if (list->row[r] >= 0 && list->wide) {
            void *to = row_at(list, list->row[r]);
            loongi_narrow(from, to, 0, 1, loong_karg_cols(list->matrix), 1);
        } else if (list->row[r] >= 0) {
            memcpy(row_at(list, list->row[r]), from, bytes);
        }
    }
}
