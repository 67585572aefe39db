/* SPDX-License-Identifier: Apache-2.0
 *
 * What the vector kernels share (kernels/<op>/<op>_cpu.c, compiled per level,
 * see isa.h). Storage is fp32 or bf16, arithmetic fp32: rows are worked on in
 * chunks that lie in the first-level cache, widened when they are bf16, so
 * that every formula is written once, as a loop over floats. Sums are blocked
 * by the shape alone: the number of threads does not change a bit.
 */
#ifndef LOONG_KERNELS_FAST_H
#define LOONG_KERNELS_FAST_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "isa.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "vec.h"

enum {
    FAST_CHUNK = 512, /* elements of one chunk */
    FAST_PIECE = 4096 /* elements that one thread takes at a time */
};

/* An operand as a matrix. */
typedef struct fast_mat {
    char *p; /* NULL: absent */
    int64_t rows;
    int64_t cols;
    int64_t ld;
    bool half; /* bf16 */
} fast_mat_t;

static inline bool fast_present(const loong_kernel_call_t *call, int a)
{
    return a < call->query->num_in + call->query->num_out &&
           call->ptr[a] != NULL;
}

static inline fast_mat_t fast_arg(const loong_kernel_call_t *call, int a)
{
    fast_mat_t m = {NULL, 0, 0, 0, false};
    if (fast_present(call, a)) {
        const loong_karg_t *arg = &call->query->arg[a];
        m.p = call->ptr[a];
        m.rows = loong_karg_rows(arg);
        m.cols = loong_karg_cols(arg);
        m.ld = arg->ld;
        m.half = arg->dtype == LOONG_BF16;
    }
    return m;
}

static inline fast_mat_t fast_out(const loong_kernel_call_t *call, int o)
{
    return fast_arg(call, call->query->num_in + o);
}

/* Columns begin .. begin + cols - 1. */
static inline fast_mat_t fast_columns(fast_mat_t m, int64_t begin,
                                      int64_t cols)
{
    m.p += begin * (m.half ? 2 : 4);
    m.cols = cols;
    return m;
}

static inline char *fast_at(const fast_mat_t *m, int64_t row, int64_t col)
{
    return m->p + (row * m->ld + col) * (m->half ? 2 : 4);
}

static inline void fast_widen(const uint16_t *src, float *dst, int64_t n)
{
    word_t *bits = (word_t *)dst;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        bits[i] = (uint32_t)src[i] << 16;
    }
}

/* To nearest even; subnormals are kept, NaN stays NaN. */
static inline void fast_narrow(const float *src, uint16_t *dst, int64_t n)
{
    const word_t *bits = (const word_t *)src;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t w = bits[i];
        uint32_t even = (w + 0x7fffu + (w >> 16 & 1u)) >> 16;
        uint32_t nan = w >> 16 | 0x40u;
        dst[i] = (uint16_t)((w & 0x7fffffffu) > 0x7f800000u ? nan : even);
    }
}

/* n <= FAST_CHUNK elements as floats: in place, or widened into buf. */
static inline const float *fast_get(const fast_mat_t *m, int64_t row,
                                    int64_t col, int64_t n, float *buf)
{
    const void *at = fast_at(m, row, col);
    if (!m->half) {
        return at;
    }
    fast_widen(at, buf, n);
    return buf;
}

/* Where to write n elements before fast_put. */
static inline float *fast_place(const fast_mat_t *m, int64_t row, int64_t col,
                                float *buf)
{
    void *at = fast_at(m, row, col);
    return m->half ? buf : at;
}

static inline void fast_put(const fast_mat_t *m, int64_t row, int64_t col,
                            int64_t n, const float *buf)
{
    void *at = fast_at(m, row, col);
    if (m->half) {
        fast_narrow(buf, at, n);
    }
}

/* Sum of a[i] b[i] over n <= FAST_CHUNK elements, in a fixed order. */
static inline float fast_dot(const float *a, const float *b, int64_t n)
{
    vec_t sum[4] = {vec_set(0.0f), vec_set(0.0f), vec_set(0.0f),
                    vec_set(0.0f)};
    int64_t i = 0;
    for (; i + 4 * VEC_SIZE <= n; i += 4 * VEC_SIZE) {
        for (int u = 0; u < 4; u++) {
            const int64_t k = i + u * VEC_SIZE;
            sum[u] += vec_load(a + k) * vec_load(b + k);
        }
    }
    for (; i + VEC_SIZE <= n; i += VEC_SIZE) {
        sum[0] += vec_load(a + i) * vec_load(b + i);
    }
    float total = vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i++) {
        total += a[i] * b[i];
    }
    return total;
}

/* The calculation of one chunk: in[k][i], i < n, -> out[k][i]; an output may
 * be the same memory as an input. */
typedef void (*fast_chunk_fn)(const void *how, const float *const *in,
                              float *const *out, int64_t n);

/* An elementwise op: operands of one shape. */
typedef struct fast_map {
    fast_chunk_fn fn;
    const void *how; /* for fn */
    int threads;
    int num_in;
    int num_out;
    fast_mat_t arg[6];
} fast_map_t;

static inline void fast_map_piece(const fast_map_t *m, int64_t row,
                                  int64_t begin, int64_t end)
{
    float buf[6][FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = begin; c < end; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(end - c, FAST_CHUNK);
        const float *in[6];
        float *out[6];
        for (int i = 0; i < m->num_in; i++) {
            in[i] = fast_get(&m->arg[i], row, c, n, buf[i]);
        }
        for (int o = 0; o < m->num_out; o++) {
            int a = m->num_in + o;
            out[o] = fast_place(&m->arg[a], row, c, buf[a]);
        }
        m->fn(m->how, in, out, n);
        for (int o = 0; o < m->num_out; o++) {
            fast_put(&m->arg[m->num_in + o], row, c, n, out[o]);
        }
    }
}

static inline void fast_map(fast_map_t *m)
{
    int num = m->num_in + m->num_out;
    bool dense = true;
    for (int i = 0; i < num; i++) {
        dense = dense && m->arg[i].ld == m->arg[i].cols;
    }
    for (int i = 0; i < num && dense; i++) {
        m->arg[i].cols *= m->arg[i].rows;
        m->arg[i].rows = 1;
    }
    int64_t cols = m->arg[0].cols;
    int64_t pieces = (cols + FAST_PIECE - 1) / FAST_PIECE;
    int64_t units = m->arg[0].rows * pieces;
#pragma omp parallel for schedule(static) num_threads(m->threads)            \
    if (m->arg[0].rows * cols > 2 * FAST_PIECE)
    for (int64_t u = 0; u < units; u++) {
        int64_t begin = u % pieces * FAST_PIECE;
        fast_map_piece(m, u / pieces, begin,
                       LOONG_MIN(begin + FAST_PIECE, cols));
    }
}

/* Sums over rows (gradients of weights): the rows are cut into blocks, each
 * block sums into a row of its own, and the blocks are added in order. */
enum { FAST_BLOCKS = 64 };

typedef struct fast_blocks {
    int64_t count;
    int64_t rows; /* of one block */
} fast_blocks_t;

static inline fast_blocks_t fast_blocks(int64_t rows)
{
    fast_blocks_t b;
    b.rows = LOONG_MAX((rows + FAST_BLOCKS - 1) / FAST_BLOCKS, 1);
    b.count = (rows + b.rows - 1) / b.rows;
    return b;
}

/* out[c] (+)= sum over blocks of partial[block * ld + c]. */
static inline void fast_fold(const loong_kernel_call_t *call, int o,
                             const float *partial, int64_t ld, int64_t blocks)
{
    fast_mat_t out = fast_out(call, o);
    if (out.p == NULL) {
        return;
    }
    bool add = call->accumulate & 1u << o;
    float buf[FAST_CHUNK];
    for (int64_t c = 0; c < out.cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(out.cols - c, FAST_CHUNK);
        float *y = fast_place(&out, 0, c, buf);
        float sum[FAST_CHUNK] = {0.0f};
        for (int64_t b = 0; b < blocks; b++) {
            const float *p = partial + b * ld + c;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                sum[i] += p[i];
            }
        }
        const float *old = add ? fast_get(&out, 0, c, n, buf) : NULL;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = add ? old[i] + sum[i] : sum[i];
        }
        fast_put(&out, 0, c, n, y);
    }
}

/* True when the processor has this copy's level, all floating operands are
 * fp32 or bf16, and those in the bits of `wide` are fp32. */
static inline bool fast_support(const loong_kernel_query_t *query,
                                uint32_t wide, char reason[LOONG_REASON_SIZE])
{
    for (int i = 0; i < query->num_in + query->num_out; i++) {
        const loong_karg_t *arg = &query->arg[i];
        bool narrow = arg->dtype == LOONG_BF16 && !(wide & 1u << i);
        bool other = arg->dtype != LOONG_F64 && arg->dtype != LOONG_F16 &&
                     arg->dtype != LOONG_BF16;
        if (arg->rank > 0 && !narrow && !other) {
            snprintf(reason, LOONG_REASON_SIZE,
                     "operand %d is %s, this kernel takes %s", i,
                     loong_dtype_name(arg->dtype),
                     wide & 1u << i ? "fp32" : "fp32 and bf16");
            return false;
        }
    }
    return loongi_isa_support(LOONG_ISA_LEVEL, reason);
}

/* Defines the copy of one kernel; `workspace_` may be NULL. */
#define FAST_KERNEL(op_, support_, workspace_, run_)                          \
    const loong_kernel_t LOONG_ISA_NAME(loongi_##op_) = {                     \
        .name = LOONG_ISA_STRING(#op_),                                       \
        .op = #op_,                                                           \
        .device = "cpu",                                                      \
        .support = support_,                                                  \
        .workspace = workspace_,                                              \
        .run = run_,                                                          \
    }

#endif
