/* SPDX-License-Identifier: Apache-2.0
 *
 * sumsq and sum: the same records as base/exact_sum.c, by vectors. An addend
 * is cut at fixed grids 2^-18, 2^-60, 2^-102, 2^-144 by adding and taking away
 * a constant whose last place is the grid. The pieces of a block add up in
 * fp64 without rounding: a piece is at most 2^42 grid steps, a block has 2^10
 * addends. Blocks with values beyond the first grid's reach, or not finite, go
 * through loongi_exact_add one by one. */
#include "exact_sum.h"
#include "fast.h"

enum { BLOCK = 1024, LANES = 8, GRIDS = 4 };

/* 1.5 * 2^(52 + grid). */
static const double magic[GRIDS] = {0x1.8p34, 0x1.8p-8, 0x1.8p-50,
                                    0x1.8p-92};
/* Addends up to here start at that grid. */
static const double reach[GRIDS] = {0x1p24, 0x1p-18, 0x1p-60, 0x1p-102};

VEC_INLINE double addend(float x, bool squares)
{
    return squares ? (double)x * (double)x : (double)x;
}

/* Bit g: an addend is beyond the reach of grid g, or not a number. Bit GRIDS:
 * an addend has places below the last grid where a tie could occur. */
VEC_INLINE unsigned classify(const float *x, int64_t n, bool squares)
{
    uint32_t beyond[GRIDS] = {0};
    uint32_t fine = 0;
#pragma omp simd reduction(| : beyond, fine)
    for (int64_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        for (int g = 0; g < GRIDS; g++) {
            float limit = (float)(squares ? sqrt(reach[g]) : reach[g]);
            beyond[g] |= !(a <= limit);
        }
        /* Below 2^-120 the last place of a float is below 2^-144. The square
         * of a float never lies half-way: its last place is even. */
        fine |= !squares & (a != 0.0f) & (a < 0x1p-120f);
    }
    unsigned bits = fine << GRIDS;
    for (int g = 0; g < GRIDS; g++) {
        bits |= beyond[g] << g;
    }
    return bits;
}

/* Sums of the pieces at the grids first .. GRIDS - 1; n a multiple of LANES. */
VEC_INLINE void cut(const float *x, int64_t n, bool squares, int first,
                    double sum[GRIDS][LANES])
{
    for (int64_t i = 0; i < n; i += LANES) {
        double rest[LANES];
        for (int l = 0; l < LANES; l++) {
            rest[l] = addend(x[i + l], squares);
        }
        for (int g = first; g < GRIDS; g++) {
            for (int l = 0; l < LANES; l++) {
                double piece = (rest[l] + magic[g]) - magic[g];
                sum[g][l] += piece;
                rest[l] -= piece;
            }
        }
    }
}

VEC_INLINE void add_block(const float *x, int64_t n, bool squares,
                          int64_t *record)
{
    unsigned beyond = classify(x, n, squares);
    if (beyond & (1u | 1u << GRIDS)) {
        for (int64_t i = 0; i < n; i++) {
            loongi_exact_add(record, addend(x[i], squares));
        }
        loongi_exact_carry(record);
        return;
    }
    double sum[GRIDS][LANES] = {{0.0}};
    int64_t whole = n / LANES * LANES;
    float last[LANES] = {0.0f};
    memcpy(last, x + whole, sizeof(float) * (size_t)(n - whole));
    int first = beyond & 2u ? 0 : beyond & 4u ? 1 : 2;
    switch (first) {
    case 0:
        cut(x, whole, squares, 0, sum);
        break;
    case 1:
        cut(x, whole, squares, 1, sum);
        break;
    default:
        cut(x, whole, squares, 2, sum);
    }
    cut(last, LANES, squares, first, sum);
    for (int g = first; g < GRIDS; g++) {
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
    int64_t n = loong_karg_cols(&call->query->arg[0], call->frame);
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
