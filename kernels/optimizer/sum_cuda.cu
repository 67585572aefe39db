/* SPDX-License-Identifier: Apache-2.0
 *
 * sumsq and sum: the same records as base/exact_sum.c, whatever the order of
 * threads, since integers are added. As in sum_cpu.c an addend is cut at fixed
 * grids and its pieces add up in fp64 without rounding, up to 2^10 of them, and
 * those of a warp as integers: 64-bit additions to shared memory take turns.
 * Values that the grids cannot hold go into the record one by one. */
#include "exact_sum.h"
#include "map.cuh"

using namespace loong_cuda;

namespace {

enum { GRIDS = 4, SOME = 1024 };
/* Of the simulated device one, so that a thread gets more than SOME. */
#ifdef CUDASIM
enum { SUM_BLOCKS = 1 };
#else
enum { SUM_BLOCKS = 1024 };
#endif

typedef unsigned long long word_t;

/* mantissa * 2^(shift - LOONG_EXACT_SHIFT), to a record that threads share. */
__device__ void add_bits(word_t *record, word_t mantissa, int shift,
                         bool negative)
{
    int digit = shift / 32;
    word_t low = mantissa << shift % 32;
    word_t high = shift % 32 == 0 ? 0 : mantissa >> (64 - shift % 32);
    const word_t part[3] = {low & 0xffffffffu, low >> 32, high};
    for (int i = 0; i < 3; i++) {
        if (part[i] != 0) { /* negative numbers wrap, as they should */
            atomicAdd(&record[digit + i], negative ? 0 - part[i] : part[i]);
        }
    }
}

/* loongi_exact_add, likewise. */
__device__ void add_to_record(word_t *record, double value)
{
    word_t bits = (word_t)__double_as_longlong(value);
    int exponent = (int)(bits >> 52 & 0x7ff);
    word_t mantissa = bits & 0xfffffffffffffu;
    if (exponent == 0) {
        return; /* below the grid */
    }
    mantissa |= (word_t)1 << 52;
    int shift = exponent - 1075 + LOONG_EXACT_SHIFT; /* of bit 0 */
    if (shift < -54) {
        return;
    }
    if (shift < 0) {
        mantissa = (mantissa + ((word_t)1 << (-shift - 1))) >> -shift;
        shift = 0;
    }
    if (exponent == 0x7ff || shift / 32 + 2 >= LOONG_EXACT_DIGITS) {
        atomicAdd(&record[LOONG_EXACT_DIGITS], (word_t)1);
        return;
    }
    add_bits(record, mantissa, shift, bits >> 63 != 0);
}

__device__ void carry(word_t *record)
{
    for (int i = 0; i + 1 < LOONG_EXACT_DIGITS; i++) {
        long long over = (long long)record[i] >> 32; /* floor */
        record[i] -= (word_t)over << 32;
        record[i + 1] += (word_t)over;
    }
}

/* True when the four grids hold the addend of x exactly. */
template <bool SQUARES> __device__ __forceinline__ bool fits(float x)
{
    float a = fabsf(x);
    return SQUARES ? a <= 0x1p12f : a <= 0x1p24f && (a >= 0x1p-120f || a == 0);
}

struct parts_t {
    double v[GRIDS];
};

/* The grids are 2^(42 g - LOONG_EXACT_SHIFT), g from 3 down to 0. */
constexpr int APART = 42;

__device__ __forceinline__ void cut(double rest, parts_t *sum)
{
    /* 1.5 * 2^(52 + grid): its last place is the grid. */
    const double magic[GRIDS] = {0x1.8p34, 0x1.8p-8, 0x1.8p-50, 0x1.8p-92};
    for (int g = 0; g < GRIDS; g++) {
        double piece = __dsub_rn(__dadd_rn(rest, magic[g]), magic[g]);
        sum->v[g] = __dadd_rn(sum->v[g], piece);
        rest = __dsub_rn(rest, piece);
    }
}

__device__ void flush(parts_t *sum, word_t *record)
{
    for (int g = 0; g < GRIDS; g++) {
        add_to_record(record, sum->v[g]);
        sum->v[g] = 0.0;
    }
}

/* Those of a warp, each of less than 2^53 units of its grid. */
__device__ void flush_warp(const parts_t &sum, word_t *record)
{
    const double units[GRIDS] = {0x1p18, 0x1p60, 0x1p102, 0x1p144};
    for (int g = 0; g < GRIDS; g++) {
        long long all = (long long)(sum.v[g] * units[g]);
        for (int lane = WARP / 2; lane > 0; lane /= 2) {
            all += __shfl_xor_sync(EACH, all, lane);
        }
        if (threadIdx.x % WARP == 0) {
            bool negative = all < 0;
            add_bits(record, (word_t)(negative ? -all : all),
                     (GRIDS - 1 - g) * APART, negative);
        }
    }
}

template <bool SQUARES>
__global__ void __launch_bounds__(BLOCK)
    sum_kernel(mat_t x, word_t *records)
{
    LOONG_SHARED(word_t, record, LOONG_EXACT_WORDS);
    int64_t cols = x.cols;
    int64_t step = (int64_t)gridDim.x * BLOCK * PACK;
    parts_t sum = {{0.0, 0.0, 0.0, 0.0}};
    int held = 0;
    if (threadIdx.x < LOONG_EXACT_WORDS) {
        record[threadIdx.x] = 0;
    }
    __syncthreads();
    for (int64_t c = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * PACK;
         c < cols; c += step) {
        int n = least(PACK, cols - c);
        pack_t p = load_at(x, 0, c, n);
#pragma unroll
        for (int i = 0; i < PACK && i < n; i++) {
            double v = (double)p.v[i];
            v = SQUARES ? __dmul_rn(v, v) : v;
            if (fits<SQUARES>(p.v[i])) {
                cut(v, &sum);
            } else {
                add_to_record(record, v);
            }
        }
        held += PACK;
        if (held == SOME) {
            flush(&sum, record);
            held = 0;
        }
    }
    flush_warp(sum, record);
    __syncthreads();
    if (threadIdx.x == 0) {
        carry(record);
        for (int i = 0; i < LOONG_EXACT_WORDS; i++) {
            records[(int64_t)blockIdx.x * LOONG_EXACT_WORDS + i] = record[i];
        }
    }
}

/* out (+)= the records of the blocks. */
__global__ void __launch_bounds__(BLOCK)
    add_records(const word_t *records, int count, word_t *out, bool add)
{
    constexpr int EVERY = BLOCK / LOONG_EXACT_WORDS;
    LOONG_SHARED(word_t, record, LOONG_EXACT_WORDS);
    int word = threadIdx.x % LOONG_EXACT_WORDS;
    int first = threadIdx.x / LOONG_EXACT_WORDS;
    if (first == 0) {
        record[word] = add ? out[word] : 0;
    }
    __syncthreads();
    word_t sum = 0;
    for (int b = first; b < count && first < EVERY; b += EVERY) {
        sum += records[(int64_t)b * LOONG_EXACT_WORDS + word];
    }
    if (sum != 0) {
        atomicAdd(&record[word], sum);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        carry(record);
        for (int i = 0; i < LOONG_EXACT_WORDS; i++) {
            out[i] = record[i];
        }
    }
}

/* So few that a thread's additions to a record cannot overflow a digit. */
int64_t blocks_of(int64_t cols)
{
    int64_t blocks = (cols + BLOCK * PACK - 1) / (BLOCK * PACK);
    return LOONG_MAX(LOONG_MIN(blocks, (int64_t)SUM_BLOCKS), 1);
}

} // namespace

template <bool SQUARES>
static loong_status_t run(const loong_kernel_call_t *call)
{
    mat_t x = mat_arg(call, 0);
    word_t *records = static_cast<word_t *>(call->workspace);
    int64_t blocks = blocks_of(x.cols);
    LOONG_LAUNCH((sum_kernel<SQUARES>), dim3((unsigned)blocks), dim3(BLOCK),
                 0, stream_of(call), x, records);
    LOONG_LAUNCH((add_records), dim3(1), dim3(BLOCK), 0, stream_of(call),
                 records, (int)blocks, static_cast<word_t *>(call->ptr[1]),
                 (call->accumulate & 1u) != 0);
    return launched(call);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return sizeof(word_t) * LOONG_EXACT_WORDS *
           (size_t)blocks_of(loong_karg_cols(&query->arg[0]));
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 0, 1u << 1, reason);
}

CUDA_KERNEL(sumsq, support, workspace, run<true>);
CUDA_KERNEL(sum, support, workspace, run<false>);
