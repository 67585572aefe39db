/* SPDX-License-Identifier: Apache-2.0
 *
 * latent_keys and its gradient; the formulas stand in latent_ref.c. All but the
 * sum over heads are copies. Listed in kernels/list.h; read fast.h and
 * loong/latent.h before. */
#include "fast.h"
#include "loong/latent.h"

static void move(const fast_mat_t *from, int64_t at, const fast_mat_t *to,
                 int64_t place, int64_t row, int64_t n)
{
    memcpy(fast_at(to, row, place), fast_at(from, row, at),
           (size_t)n * (from->half ? 2 : 4));
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_latent_attr_t *a = call->query->attr;
    fast_mat_t kv = fast_arg(call, 0);
    fast_mat_t shared = fast_arg(call, 1);
    fast_mat_t k = fast_out(call, 0);
    fast_mat_t v = fast_out(call, 1);
    int64_t n = a->nope;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < kv.rows; t++) {
        for (int64_t h = 0; h < a->heads; h++) {
            int64_t from = h * (n + a->v);
            int64_t to = h * (n + a->rope);
            move(&kv, from, &k, to, t, n);
            move(&shared, 0, &k, to + n, t, a->rope);
            move(&kv, from + n, &v, h * a->v, t, a->v);
        }
    }
    return LOONG_OK;
}

/* The shared channels of row t, summed over the heads. */
static void sum_heads(const loong_latent_attr_t *a, const fast_mat_t *k,
                      const fast_mat_t *shared, int64_t t)
{
    float buf[FAST_CHUNK];
    float sum[FAST_CHUNK];
    for (int64_t c = 0; c < a->rope; c += FAST_CHUNK) {
        int64_t count = LOONG_MIN(a->rope - c, FAST_CHUNK);
        memset(sum, 0, sizeof(float) * (size_t)count);
        for (int64_t h = 0; h < a->heads; h++) {
            int64_t at = h * (a->nope + a->rope) + a->nope + c;
            const float *x = fast_get(k, t, at, count, buf);
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                sum[i] += x[i];
            }
        }
        memcpy(fast_place(shared, t, c, sum), sum,
               shared->half ? 0 : sizeof(float) * (size_t)count);
        fast_put(shared, t, c, count, sum);
    }
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    const loong_latent_attr_t *a = call->query->attr;
    fast_mat_t k = fast_arg(call, 0);
    fast_mat_t v = fast_arg(call, 1);
    fast_mat_t kv = fast_out(call, 0);
    fast_mat_t shared = fast_out(call, 1);
    int64_t n = a->nope;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < k.rows; t++) {
        for (int64_t h = 0; h < a->heads; h++) {
            int64_t to = h * (n + a->v);
            move(&k, h * (n + a->rope), &kv, to, t, n);
            move(&v, h * a->v, &kv, to + n, t, a->v);
        }
        sum_heads(a, &k, &shared, t);
    }
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 0, reason);
}

FAST_KERNEL(latent_keys, support, NULL, run);
FAST_KERNEL(latent_keys_grad, support, NULL, run_grad);
