/* SPDX-License-Identifier: Apache-2.0
 *
 * rope; the formula stands in rope_ref.c. A thread takes up to eight pairs of
 * two heads, or eight channels before or behind the rotated ones of one: it has
 * read what it writes, so y may be the memory of x.
 *
 * Bytes an element of bf16: 4, and 4 of the table for each two heads, which
 * stand in the caches; 3 FLOP: bound by memory. A thread has 128 bytes under
 * way, of which half are the table's. */
#include "map.cuh"

using namespace loong_cuda;

namespace
{

enum { HEADS = 2 }; /* of a thread */

struct rope_t {
    mat_t x, table, y;
    int64_t head;  /* channels */
    int64_t half;  /* pairs */
    int64_t begin; /* the first rotated channel of a head */
    int interleaved;
    int packed; /* all of them, and heads and their parts */
    float sign; /* of the sine: -1 rotates back */
};

/* Pairs as they stand in memory, p[0] before p[1] <-> first ones in p[0]. */
__device__ __forceinline__ void part(pack_t p[2])
{
    pack_t q[2] = {p[0], p[1]};
    for (int i = 0; i < PACK; i++) {
        p[0].v[i] = q[i / 4].v[i % 4 * 2];
        p[1].v[i] = q[i / 4].v[i % 4 * 2 + 1];
    }
}

__device__ __forceinline__ void join(pack_t p[2])
{
    pack_t q[2] = {p[0], p[1]};
    for (int i = 0; i < PACK; i++) {
        p[i / 4].v[i % 4 * 2] = q[0].v[i];
        p[i / 4].v[i % 4 * 2 + 1] = q[1].v[i];
    }
}

/* Pairs first .. first + n - 1 of heads h .. h + heads - 1 of a row. */
template <class T>
__device__ __forceinline__ void rotate(const rope_t &a, int64_t row, int64_t h,
                                       int heads, int64_t first)
{
    int n = least(PACK, a.half - first);
    bool whole = a.packed && n == PACK;
    const float *by = row_of<float>(a.table, row) + first;
    int64_t from = a.begin + (a.interleaved ? 2 * first : first);
    int64_t gap = a.interleaved ? (int64_t)PACK : a.half;
    int left[2] = {a.interleaved ? least(PACK, 2 * n) : n,
                   a.interleaved ? 2 * n - PACK : n};
    raw_t<float> turn[2];
    raw_t<T> of[HEADS][2];
    int64_t at[HEADS];
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        at[k] = (h + (k < heads ? k : 0)) * a.head + from;
    }
    const T *x = row_of<T>(a.x, row);
    if (whole) {
        turn[0] = fetch(by);
        turn[1] = fetch(by + a.half);
#pragma unroll
        for (int k = 0; k < HEADS; k++) {
            of[k][0] = fetch(x + at[k]);
            of[k][1] = fetch(x + at[k] + gap);
        }
    } else {
        turn[0] = gather(by, n);
        turn[1] = gather(by + a.half, n);
#pragma unroll
        for (int k = 0; k < HEADS; k++) {
            of[k][0] = gather(x + at[k], left[0]);
            of[k][1] = gather(x + at[k] + gap, left[1]);
        }
    }
    pack_t c = unpack(turn[0]);
    pack_t s = unpack(turn[1]);
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        pack_t p[2] = {unpack(of[k][0]), unpack(of[k][1])};
        T *y = row_of<T>(a.y, row) + at[k];
        if (a.interleaved) {
            part(p);
        }
        for (int i = 0; i < PACK; i++) {
            float w = a.sign * s.v[i];
            float u = p[0].v[i];
            p[0].v[i] = u * c.v[i] - p[1].v[i] * w;
            p[1].v[i] = p[1].v[i] * c.v[i] + u * w;
        }
        if (a.interleaved) {
            join(p);
        }
        if (k < heads) {
            store(y, p[0], left[0], whole);
            store(y + gap, p[1], left[1], whole);
        }
    }
}

/* Units of a row: packs of pairs of each two heads, then packs of channels
 * before and behind, head by head. */
template <class T>
__global__ void __launch_bounds__(BLOCK)
    rope_kernel(rope_t a)
{
    int64_t rotated = (a.half + PACK - 1) / PACK;
    int64_t end = a.begin + 2 * a.half;
    int64_t front = (a.begin + PACK - 1) / PACK;
    int64_t others = front + (a.head - end + PACK - 1) / PACK;
    int64_t heads = a.x.cols / a.head;
    int64_t twos = (heads + HEADS - 1) / HEADS * rotated;
    int64_t rows = a.x.rows;
    walk_t w = walk_of((int64_t)blockIdx.x * BLOCK + threadIdx.x,
                       (int64_t)gridDim.x * BLOCK, twos + heads * others);
    for (; w.row < rows; advance(&w)) {
        int at = (int)w.col; /* of one row: divisions of 32 bits */
        if (at < twos) {
            int h = at / (int)rotated * HEADS;
            rotate<T>(a, w.row, h, least(HEADS, heads - h),
                      at % (int)rotated * PACK);
            continue;
        }
        at -= (int)twos;
        int pack = at % (int)others;
        int64_t h = at / (int)others * a.head;
        bool before = pack < front;
        int64_t c = before ? pack * PACK : end + (pack - front) * PACK;
        int n = least(PACK, (before ? a.begin : a.head) - c);
        store(row_of<T>(a.y, w.row) + h + c,
              load(row_of<T>(a.x, w.row) + h + c, n, a.packed), n, a.packed);
    }
}

template <class T>
loong_status_t rope_as(const loong_kernel_call_t *call, const rope_t &a)
{
    LOONG_LAUNCH((rope_kernel<T>), grid_for(call, a.x), dim3(BLOCK), 0,
                 stream_of(call), a);
    return launched(call);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_rope_attr_t *attr =
        static_cast<const loong_rope_attr_t *>(call->query->attr);
    rope_t a;
    a.x = mat_arg(call, 0);
    a.table = mat_arg(call, 1);
    a.y = mat_out(call, 0);
    a.head = attr->head_dim;
    a.half = a.table.cols / 2;
    a.begin = attr->begin;
    a.interleaved = attr->interleaved;
    a.sign = attr->inverse ? -1.0f : 1.0f;
    a.packed = a.x.packed && a.y.packed && a.table.packed &&
               a.head % PACK == 0 && a.half % PACK == 0 && a.begin % PACK == 0;
    return a.x.half ? rope_as<half_t>(call, a) : rope_as<float>(call, a);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1, 0, reason) &&
           cuda_support_same(query, 1u << 1, reason);
}

CUDA_KERNEL(rope, support, NULL, run);
