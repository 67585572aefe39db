/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of logits in fp32: its value, and in place its gradient, by a block. */
#ifndef LOONG_SOFTMAX_CUH
#define LOONG_SOFTMAX_CUH

#include "cross_entropy.h"
#include "map.cuh"

namespace loong_cuda {

struct softmax_t {
    float *logits; /* [rows of the chunk, ld] */
    int64_t ld, columns;
    int64_t first, end; /* rows of the chunk among all, at most */
    mat_t x;            /* for the number of rows */
    const float *weight; /* NULL: ones */
    float *value, *lse;  /* read when they are known; lse may be NULL */
    float sign;
    int known;
    const int32_t *labels;
    loong_cross_entropy_attr_t attr;
    int gradient, half;
    loong_device_error_t *error;
    /* [ranks, rows of the chunk], of a shared vocabulary; or NULL */
    loong_softmax_stats_t *shared;
    int64_t rows; /* of the chunk */
};

/* The label of a token; one that is none is told and carries no loss. */
static __device__ int32_t label_of(const softmax_t &a, int64_t token)
{
    int32_t label = a.labels[token];
    if (label == LOONG_IGNORE_LABEL ||
        (label >= 0 && label < a.attr.vocab)) {
        return label;
    }
    if (threadIdx.x == 0 &&
        atomicCAS(&a.error->kind, 0, (int)LOONG_DEVICE_ERROR_LABEL) == 0) {
        a.error->value = label;
        a.error->place = token;
        a.error->end = a.attr.vocab;
    }
    return LOONG_IGNORE_LABEL;
}

/* Sum of exp(logit - top), and top: each thread keeps its own largest, and the
 * sum without its 1: p - 1 of a label that is nearly certain is what the others
 * are, which rounding beside the 1 would take from it. */
static __device__ double measure(const softmax_t &a, const float *row,
                                 float *room, float *top_p)
{
    float top = -INFINITY;
    float rest = 0.0f;
    for (int64_t c = (int64_t)threadIdx.x * PACK; c < a.columns;
         c += BLOCK * PACK) {
        int n = least(PACK, a.columns - c);
        pack_t p = load(row + c, n, true);
        float more = top;
#pragma unroll
        for (int i = 0; i < PACK && i < n; i++) {
            more = fmaxf(more, p.v[i]);
        }
        bool is_new = top < more;
        rest = is_new && top > -INFINITY ? (rest + 1.0f) * expf(top - more)
                                         : rest;
        top = more;
#pragma unroll
        for (int i = 0; i < PACK && i < n; i++) {
            bool is_top = is_new && p.v[i] == top;
            is_new = is_new && !is_top;
            rest += is_top ? 0.0f : expf(p.v[i] - top);
        }
    }
    float all = block_max(top, room);
    bool has_top = top == all && top > -INFINITY;
    if (!has_top && top > -INFINITY) {
        rest = (rest + 1.0f) * expf(top - all);
    }
    *top_p = all;
    double ones = (double)block_sum(has_top ? 1.0f : 0.0f, room);
    return ones + (double)block_sum(rest, room);
}

/* The gradient, in place: a step's writes end before the next one's reads
 * begin, and lie where all has been read. */
static __device__ void turn(const softmax_t &a, float *row, float scale,
                            float lse)
{
    half_t *narrow_row = reinterpret_cast<half_t *>(row);
    for (int64_t from = 0; from < a.columns; from += BLOCK * PACK) {
        int64_t c = from + (int64_t)threadIdx.x * PACK;
        int n = least(PACK, a.columns - c);
        pack_t p;
        if (n > 0) {
            p = load(row + c, n, true);
        }
        __syncthreads();
        for (int i = 0; i < PACK && n > 0; i++) {
            p.v[i] = scale == 0.0f ? 0.0f : scale * expf(p.v[i] - lse);
        }
        if (n > 0 && a.half) {
            store(narrow_row + c, p, n, true);
        } else if (n > 0) {
            store(row + c, p, n, true);
        }
    }
}

/* What this rank knows of a row. */
static __device__ loong_softmax_stats_t
own_stats(const softmax_t &a, const float *row, int64_t column, float *room)
{
    float top = 0.0f;
    double sum = measure(a, row, room, &top);
    loong_softmax_stats_t s = {(double)top, sum,
                               column >= 0 ? (double)row[column] : 0.0};
    return s;
}

/* And all of them, in rank order. */
static __device__ loong_softmax_stats_t all_stats(const softmax_t &a,
                                                  int64_t row)
{
    loong_softmax_stats_t all = {-INFINITY, 0.0, 0.0};
    for (int r = 0; r < a.attr.size; r++) {
        all.top = fmax(all.top, a.shared[r * a.rows + row].top);
    }
    for (int r = 0; r < a.attr.size; r++) {
        const loong_softmax_stats_t &one = a.shared[r * a.rows + row];
        all.sum += one.sum * exp(one.top - all.top);
        all.logit += one.logit;
    }
    return all;
}

/* A block takes a row of the chunk. */
static __global__ void __launch_bounds__(BLOCK)
    stats_kernel(softmax_t a)
{
    LOONG_SHARED(float, room, WARPS);
    int64_t token = a.first + blockIdx.x;
    if (token >= a.end || token >= a.x.rows) {
        return;
    }
    const float *row = a.logits + (int64_t)blockIdx.x * a.ld;
    int64_t column =
        loongi_cross_entropy_column(&a.attr, a.columns, a.labels[token]);
    loong_softmax_stats_t own = own_stats(a, row, column, room);
    if (threadIdx.x == 0) {
        a.shared[a.attr.rank * a.rows + blockIdx.x] = own;
    }
}

/* What is not known already. */
static __device__ void tell(const softmax_t &a, int64_t token, double value,
                            double lse)
{
    if (a.known) {
        return;
    }
    a.value[token] = (float)value;
    if (a.lse != NULL) {
        a.lse[token] = (float)lse;
    }
}

static __global__ void __launch_bounds__(BLOCK)
    softmax_kernel(softmax_t a, const loong_frame_t *frame)
{
    LOONG_SHARED(float, room, WARPS);
    int64_t token = a.first + blockIdx.x;
    if (token >= a.end || token >= a.x.rows) {
        return;
    }
    float *row = a.logits + (int64_t)blockIdx.x * a.ld;
    int32_t label = label_of(a, token);
    if (label == LOONG_IGNORE_LABEL) {
        if (threadIdx.x == 0) {
            tell(a, token, 0.0, 0.0);
        }
        if (a.gradient) {
            turn(a, row, 0.0f, 0.0f);
        }
        return;
    }
    int64_t column = loongi_cross_entropy_column(&a.attr, a.columns, label);
    loong_softmax_stats_t s =
        a.known
            ? loongi_softmax_known((double)a.value[token], (double)a.lse[token])
        : a.shared != NULL ? all_stats(a, blockIdx.x)
                           : own_stats(a, row, column, room);
    double log_sum = log(s.sum);
    double lse = s.top + log_sum;
    double z = a.attr.z_loss;
    double weight = (double)a.sign;
    weight *= a.weight != NULL ? (double)a.weight[token] : 1.0;
    double scale = loongi_cross_entropy_scale(&a.attr, frame) * weight;
    double slope = 1.0 + 2.0 * z * lse;
    if (threadIdx.x == 0) {
        tell(a, token, weight * (s.top - s.logit + log_sum + z * lse * lse),
             lse);
    }
    if (!a.gradient) {
        return;
    }
    __syncthreads(); /* the logit of the label was read */
    turn(a, row, (float)(scale * slope), (float)lse);
    __syncthreads();
    if (threadIdx.x == 0 && column >= 0) {
        /* p - 1 from the logit itself: rounded values do not cancel. */
        float g = (float)(scale * (slope * exp(s.logit - lse) - 1.0));
        if (a.half) {
            narrow(g, reinterpret_cast<half_t *>(row) + column);
        } else {
            row[column] = g;
        }
    }
}

} // namespace loong_cuda

#endif
