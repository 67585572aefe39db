/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding_grad: each thread sums its own columns of all tokens, in the order
 * of the tokens. Listed in kernels/list.h; read fast.h and embedding.h
 * before. */
#include <omp.h>

#include "embedding.h"
#include "fast.h"

static void add_columns(const loong_kernel_call_t *call, const fast_mat_t *dy,
                        const fast_mat_t *dtable, int64_t begin, int64_t end)
{
    const int32_t *ids = call->ptr[0];
    float buf[FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = begin; c < end; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(end - c, FAST_CHUNK);
        for (int64_t t = 0; t < dy->rows; t++) {
            int64_t row = loongi_embedding_row(call->query->attr, ids[t]);
            if (row < 0) {
                continue;
            }
            const float *g = fast_get(dy, t, c, n, buf);
            float *sum = (float *)(void *)fast_at(dtable, row, c);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                sum[i] += g[i];
            }
        }
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const int32_t *ids = call->ptr[0];
    fast_mat_t dy = fast_arg(call, 1);
    fast_mat_t dtable = fast_out(call, 0);
    LOONG_TRY(loongi_embedding_check(call, ids, dy.rows));
    bool zero = !(call->accumulate & 1);
#pragma omp parallel num_threads(call->query->threads)
    {
#pragma omp for schedule(static)
        for (int64_t v = 0; v < (zero ? dtable.rows : 0); v++) {
            memset(fast_at(&dtable, v, 0), 0,
                   sizeof(float) * (size_t)dtable.cols);
        }
        /* Whole cache lines each. */
        int64_t lines = (dtable.cols + 15) / 16;
        int64_t own = omp_get_thread_num();
        int64_t team = omp_get_num_threads();
        add_columns(call, &dy, &dtable, lines * own / team * 16,
                    LOONG_MIN(lines * (own + 1) / team * 16, dtable.cols));
    }
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 2, reason);
}

FAST_KERNEL(embedding_grad, support, NULL, run);
