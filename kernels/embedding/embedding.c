/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of ids, and embedding by copies of rows: any type. The check is
 * called by embedding_ref.c and embedding_cpu.c, the kernel is listed in
 * kernels/list.h. Read embedding.h before. */
#include "embedding.h"

#include <string.h>

#include "base.h"
#include "list.h"

loong_status_t loongi_embedding_check(const loong_kernel_call_t *call,
                                      const int32_t *ids, int64_t count)
{
    const loong_embedding_attr_t *attr = call->query->attr;
    int64_t vocab = attr->vocab > 0 ? attr->vocab : attr->rows;
    for (int64_t t = 0; t < count; t++) {
        LOONG_CHECK(call->ctx, ids[t] >= 0 && ids[t] < vocab, LOONG_ERR_ARG,
                    "%s: id %d at row %lld, allowed 0 to %lld", call->query->op,
                    ids[t], (long long)t, (long long)(vocab - 1));
    }
    return LOONG_OK;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_embedding_attr_t *attr = call->query->attr;
    const int32_t *ids = call->ptr[0];
    const loong_karg_t *table = &call->query->arg[1];
    const loong_karg_t *y = &call->query->arg[2];
    int64_t rows = loong_karg_rows(y);
    size_t size = loong_dtype_size(table->dtype);
    size_t row = (size_t)loong_karg_cols(y) * size;
    const char *from = call->ptr[1];
    char *to = call->ptr[2];
    LOONG_TRY(loongi_embedding_check(call, ids, rows));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < rows; t++) {
        int64_t at = loongi_embedding_row(attr, ids[t]);
        if (at < 0) {
            memset(to + (size_t)(t * y->ld) * size, 0, row);
            continue;
        }
        memcpy(to + (size_t)(t * y->ld) * size,
               from + (size_t)(at * table->ld) * size, row);
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_embedding_rows = {.name = "embedding_rows",
                                              .op = "embedding",
                                              .device = "cpu",
                                              .run = run};
