/* SPDX-License-Identifier: Apache-2.0
 *
 * dropout; the mask stands in dropout_ref.c. Listed in kernels/list.h; read
 * fast.h and dropout.h before. */
#include "dropout.h"
#include "fast_philox.h"

typedef struct job {
    fast_mat_t x, y;
    uint64_t key;
    int64_t step;
    int64_t channel; /* of column 0 */
    uint32_t limit;
    float factor;
} job_t;

/* words[4 * b + k]: word k of block first + b. */
static void draw(const job_t *j, int64_t row, int64_t first,
                 uint32_t words[FAST_CHUNK])
{
    uint32_t counter[4] = {(uint32_t)row, (uint32_t)((uint64_t)row >> 32),
                           (uint32_t)first, (uint32_t)j->step};
    fast_philox(counter, 2, j->key, PHILOX_SIDE, words);
}

static void drop_row(const job_t *j, int64_t t, int64_t row)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    uint32_t words[FAST_CHUNK] __attribute__((aligned(64)));
    int64_t n = 0;
    for (int64_t c = 0; c < j->x.cols; c += n) {
        const uint32_t *own = words + (j->channel + c) % 4;
        n = LOONG_MIN(j->x.cols - c, words + FAST_CHUNK - own);
        const float *x = fast_get(&j->x, t, c, n, buf[0]);
        float *y = fast_place(&j->y, t, c, buf[1]);
        draw(j, row, (j->channel + c) / 4, words);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float kept = x[i] * j->factor;
            y[i] = own[i] >> 8 >= j->limit ? kept : 0.0f;
        }
        fast_put(&j->y, t, c, n, y);
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_dropout_attr_t *a = call->query->attr;
    const int64_t *keys = call->ptr[1];
    job_t j = {fast_arg(call, 0),
               fast_out(call, 0),
               loongi_dropout_key(call->frame->seed, a->stream),
               call->frame->step,
               a->first,
               loongi_dropout_limit(a->p),
               (float)(1.0 / (1.0 - a->p))};
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < j.x.rows; t++) {
        drop_row(&j, t, keys[t]);
    }
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 0, reason);
}

FAST_KERNEL(dropout, support, NULL, run);
