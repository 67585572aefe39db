/* SPDX-License-Identifier: Apache-2.0
 *
 * dropout; the mask stands in dropout_ref.c. The Philox blocks of a chunk run
 * side by side, one per lane. */
#include "dropout.h"
#include "fast.h"

enum { SIDE = FAST_CHUNK / 4 };

typedef struct job {
    fast_mat_t x, y;
    uint64_t key;
    int64_t step;
    uint32_t limit;
    float factor;
} job_t;

/* words[4 * b + k]: word k of block first + b, b < SIDE. */
static void draw(const job_t *j, int64_t token, int64_t first,
                 uint32_t words[FAST_CHUNK])
{
    uint32_t c[4][SIDE] __attribute__((aligned(64)));
    uint32_t k0 = (uint32_t)j->key;
    uint32_t k1 = (uint32_t)(j->key >> 32);
    for (int b = 0; b < SIDE; b++) {
        c[0][b] = (uint32_t)token;
        c[1][b] = (uint32_t)((uint64_t)token >> 32);
        c[2][b] = (uint32_t)first + (uint32_t)b;
        c[3][b] = (uint32_t)j->step;
    }
    for (int round = 0; round < 10; round++) {
#pragma omp simd
        for (int b = 0; b < SIDE; b++) {
            uint64_t u = (uint64_t)0xD2511F53u * c[0][b];
            uint64_t v = (uint64_t)0xCD9E8D57u * c[2][b];
            c[0][b] = (uint32_t)(v >> 32) ^ c[1][b] ^ k0;
            c[1][b] = (uint32_t)v;
            c[2][b] = (uint32_t)(u >> 32) ^ c[3][b] ^ k1;
            c[3][b] = (uint32_t)u;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int b = 0; b < SIDE; b++) {
        for (int k = 0; k < 4; k++) {
            words[4 * b + k] = c[k][b];
        }
    }
}

static void drop_row(const job_t *j, int64_t t, int64_t token)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    uint32_t words[FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = 0; c < j->x.cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(j->x.cols - c, FAST_CHUNK);
        const float *x = fast_get(&j->x, t, c, n, buf[0]);
        float *y = fast_place(&j->y, t, c, buf[1]);
        draw(j, token, c / 4, words);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float kept = x[i] * j->factor;
            y[i] = words[i] >> 8 >= j->limit ? kept : 0.0f;
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
