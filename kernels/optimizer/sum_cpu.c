/* SPDX-License-Identifier: Apache-2.0
 *
 * sumsq and sum: the same records as base/exact_sum.c, by vectors. An addend
 * is cut at fixed grids 2^-18, 2^-60, 2^-102, 2^-144 by adding and taking away
 * a constant whose last place is the grid. The pieces of a block add up in
 * fp64 without rounding: a piece is at most 2^42 grid steps, a block has 2^10
 * addends. Blocks with values beyond the first grid's bounds, or not finite, go
 * through loongi_exact_add one by one. Listed in kernels/list.h; read
 * src/base/exact_sum.h before. */
#include "exact_sum.h"
#include "fast.h"

enum { BLOCK = 1024, LANES = 8, GRIDS = 4 };
typedef double lanes_t __attribute__((vector_size(8 * LANES)));
typedef float narrow_t __attribute__((vector_size(4 * LANES)));

/* 1.5 * 2^(52 + grid). */
static const double magic[GRIDS] = {0x1.8p34, 0x1.8p-8, 0x1.8p-50,
                                    0x1.8p-92};
/* An addend up to here starts at that grid: its value, and of a square the
 * root; the last grid is never the first. */
static const float bounds[GRIDS - 1] = {0x1p24f, 0x1p-18f, 0x1p-60f};
static const float bound_roots[GRIDS - 1] = {0x1p12f, 0x1p-9f, 0x1p-30f};

VEC_INLINE double addend(float x, bool squares)
{
    return squares ? (double)x * (double)x : (double)x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* The first grid that all of x needs, or -1: one by one. Magnitudes compare
 * as integers, with infinities and NaN on top. */
VEC_INLINE int first_grid(const float *x, int64_t n, bool squares)
{
    const word_t *bits = (const word_t *)x;
    const float *limit = squares ? bound_roots : bounds;
    uint32_t top = 0;
    uint32_t low = UINT32_MAX; /* of those that are not 0, less 1 */
#pragma omp simd reduction(max : top) reduction(min : low)
    for (int64_t i = 0; i < n; i++) {
        uint32_t a = bits[i] & 0x7fffffffu;
        top = a > top ? a : top;
        low = a - 1u < low ? a - 1u : low;
    }
    /* Below 2^-120 a float has places below 2^-144 and may lie half-way
     * between grid points. A square never does: its last place is even. */
    if (top > bits_of(limit[0]) ||
        (!squares && low < bits_of(0x1p-120f) - 1u)) {
        return -1;
    }
    return top > bits_of(limit[1]) ? 0 : top > bits_of(limit[2]) ? 1 : 2;
}

/* Adds the pieces at the grids first .. GRIDS - 1 of x[n], n a multiple of
 * LANES. */
VEC_INLINE void cut(const float *x, int64_t n, bool squares, int first,
                    lanes_t sum[GRIDS])
{
    lanes_t part[GRIDS] = {{0.0}};
    for (int64_t i = 0; i < n; i += LANES) {
        narrow_t narrow;
        memcpy(&narrow, x + i, sizeof(narrow));
        lanes_t rest = __builtin_convertvector(narrow, lanes_t);
        rest = squares ? rest * rest : rest;
        for (int g = first; g < GRIDS; g++) {
            lanes_t piece = (rest + magic[g]) - magic[g];
            part[g] += piece;
            rest -= piece;
        }
    }
    for (int g = first; g < GRIDS; g++) {
        sum[g] += part[g];
    }
}

VEC_INLINE void add_block(const float *x, int64_t n, bool squares,
                          int64_t *record)
{
    int first = first_grid(x, n, squares);
    lanes_t sum[GRIDS] = {{0.0}};
    int64_t whole = n / LANES * LANES;
    float last[LANES] = {0.0f};
    memcpy(last, x + whole, sizeof(float) * (size_t)(n - whole));
    switch (first) {
    case 0:
        cut(x, whole, squares, 0, sum);
        break;
    case 1:
        cut(x, whole, squares, 1, sum);
        break;
    case 2:
        cut(x, whole, squares, 2, sum);
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            loongi_exact_add(record, addend(x[i], squares));
        }
        loongi_exact_carry(record);
        return;
    }
    cut(last, LANES, squares, 0, sum);
    for (int g = 0; g < GRIDS; g++) {
        for (int l = 0; l < LANES; l++) {
            loongi_exact_add(record, sum[g][l]);
        }
    }
    loongi_exact_carry(record);
}

VEC_INLINE void add_all(const loong_kernel_call_t *call, bool squares)
{
    const float *x = call->ptr[0];
    int64_t *record = call->ptr[1];
    int64_t n = loong_karg_cols(&call->query->arg[0]);
    int64_t blocks = (n + BLOCK - 1) / BLOCK;
    if (!(call->accumulate & 1)) {
        memset(record, 0, sizeof(*record) * LOONG_EXACT_WORDS);
    }
#pragma omp parallel num_threads(call->query->threads)
    {
        int64_t own[LOONG_EXACT_WORDS] = {0};
#pragma omp for schedule(static) nowait
        for (int64_t b = 0; b < blocks; b++) {
            add_block(x + b * BLOCK, LOONG_MIN(n - b * BLOCK, BLOCK), squares,
                      own);
        }
        /* Integers: the order of the threads does not matter. */
#pragma omp critical(loong_exact_sum)
        loongi_exact_merge(record, own);
    }
}

static loong_status_t run_sumsq(const loong_kernel_call_t *call)
{
    add_all(call, true);
    return LOONG_OK;
}

static loong_status_t run_sum(const loong_kernel_call_t *call)
{
    add_all(call, false);
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 0, reason);
}

FAST_KERNEL(sumsq, support, NULL, run_sumsq);
FAST_KERNEL(sum, support, NULL, run_sum);
