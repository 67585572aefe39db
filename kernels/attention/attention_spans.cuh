/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys a query sees, for the attention kernels of CUDA. They follow one
 * another in k, and rows of queries and of keys both ascend: so a first kernel
 * finds for each query its first and last key, and for each key its first and
 * last query, whatever segments, windows and missing rows there are. */
#ifndef LOONG_ATTENTION_SPANS_CUH
#define LOONG_ATTENTION_SPANS_CUH

#include "attention.h"
#include "map.cuh"

namespace loong_cuda {

/* Of a query: the keys that it sees, by their rows of k. Of a key: the queries
 * that see it, by their rows of q. */
struct span_t {
    int32_t begin, end;
    int32_t place; /* in its segment */
};

/* What spans are made of. */
struct sequence_t {
    const int32_t *cu_seqlens;
    int entries;
    const int32_t *rows[2]; /* of queries, of keys; NULL: all */
    const int32_t *ends; /* of each row, behind its last key; NULL: itself */
    mat_t side[2];          /* q and k: how many there are */
    loong_attention_attr_t attr;
    span_t *span[2];
    loong_device_error_t *error;
};

/* ---- spans --------------------------------------------------------------- */

static __device__ void report_error(loong_device_error_t *error,
                                    loong_device_error_kind_t kind,
                                    int64_t place, int64_t value,
                                    int64_t before, int64_t end)
{
    if (atomicCAS(&error->kind, 0, (int)kind) == 0) {
        error->value = value;
        error->place = place;
        error->before = before;
        error->end = end;
    }
}

/* By one block; the first wrong entry is told. */
static __device__ void check_segments(const sequence_t &s, int64_t keys,
                                      int *worst)
{
    if (threadIdx.x == 0) {
        *worst = s.entries;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < s.entries; i += BLOCK) {
        int64_t before = i > 0 ? s.cu_seqlens[i - 1] : s.cu_seqlens[0];
        int64_t length = s.cu_seqlens[i] - before;
        if (length < 0 || length > s.attr.max_seqlen ||
            (i == 0 && s.cu_seqlens[0] != 0)) {
            atomicMin(worst, i);
        }
    }
    __syncthreads();
    int i = *worst;
    int32_t last = s.cu_seqlens[s.entries - 1];
    if (threadIdx.x > 0) {
        return;
    }
    if (i < s.entries) {
        report_error(s.error, LOONG_DEVICE_ERROR_SEGMENT, i, s.cu_seqlens[i],
                     i > 0 ? s.cu_seqlens[i - 1] : 0, s.attr.max_seqlen);
    } else if (s.rows[1] == NULL && last != keys) {
        report_error(s.error, LOONG_DEVICE_ERROR_SEGMENT_END, i, last, 0, keys);
    }
}

/* Rows that stand before `row`, which need not be there. */
static __device__ int64_t rows_before(const int32_t *rows, int64_t count,
                                      int64_t row)
{
    int64_t low = 0;
    int64_t high = count;
    if (rows == NULL) {
        return row < 0 ? 0 : row < count ? row : count;
    }
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (rows[middle] < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The last segment that begins at this row or before it. */
static __device__ int segment_of(const sequence_t &s, int64_t row)
{
    int low = 0;
    int high = s.entries - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (s.cu_seqlens[middle] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Behind the last key of a row, whatever stands in ends. */
static __device__ int64_t end_of(const sequence_t &s, int64_t row, int64_t last)
{
    bool there = s.ends != NULL && row >= 0 && row < s.side[1].rows;
    int64_t end = there ? s.ends[row] : row + 1;
    return end <= row ? row + 1 : end < last ? end : last;
}

/* The first row of a segment that sees this one. */
static __device__ int64_t first_of(const sequence_t &s, int64_t row,
                                   int64_t first, int64_t last)
{
    int64_t low = first;
    int64_t high = row;
    while (s.ends != NULL && low < high) {
        int64_t middle = (low + high) / 2;
        if (end_of(s, middle, last) <= row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return high;
}

/* An end of row t that does not ascend, or is not in its segment. */
static __device__ void check_end(const sequence_t &s, int64_t t, int64_t last)
{
    int32_t before = t > 0 ? s.ends[t - 1] : 0;
    int32_t end = s.ends[t];
    if (end <= t || end < before || end > last) {
        report_error(s.error, LOONG_DEVICE_ERROR_KEY_END, t, end, before, last);
    }
}

/* side 0: what query t sees; 1: what sees key t. `others`: of the other
 * side. */
static __device__ void find_span(const sequence_t &s, int side, int64_t t,
                                 int64_t others)
{
    const int32_t *rows = s.rows[side];
    int64_t row = rows != NULL ? rows[t] : t;
    int64_t before = rows != NULL && t > 0 ? rows[t - 1] : t - 1;
    int32_t end = s.cu_seqlens[s.entries - 1];
    if (rows != NULL && (row <= before || row >= end)) {
        report_error(s.error,
                     side == 0 ? LOONG_DEVICE_ERROR_ROW
                               : LOONG_DEVICE_ERROR_KEY_ROW,
                     t, row, before, end);
    }
    int i = segment_of(s, row);
    int64_t first = s.cu_seqlens[i];
    int64_t last = s.cu_seqlens[i + 1];
    int64_t window = s.attr.window;
    span_t span;
    /* Never below 0, also of rows that were told to be wrong: it numbers words
     * of random bits. */
    span.place = row > first ? (int32_t)(row - first) : 0;
    if (side == 1 && s.ends != NULL) {
        check_end(s, t, last);
    }
    if (side == 0) {
        last = s.attr.causal ? end_of(s, row, last) : last;
        first = window > 0 && row + 1 - window > first ? row + 1 - window
                                                       : first;
    } else {
        first = s.attr.causal ? first_of(s, row, first, last) : first;
        last = window > 0 && row + window < last ? row + window : last;
    }
    span.begin = (int32_t)rows_before(s.rows[1 - side], others, first);
    span.end = (int32_t)rows_before(s.rows[1 - side], others, last);
    s.span[side][t] = span;
}

static __global__ void __launch_bounds__(BLOCK)
    find_spans(sequence_t s)
{
    LOONG_SHARED(int, worst, 1);
    int64_t queries = s.side[0].rows;
    int64_t keys = s.side[1].rows;
    if (blockIdx.x == 0) {
        check_segments(s, keys, worst);
    }
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
         u < queries + keys; u += step) {
        if (u < queries) {
            find_span(s, 0, u, keys);
        } else {
            find_span(s, 1, u - queries, queries);
        }
    }
}

} // namespace loong_cuda

#endif
