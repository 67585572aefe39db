/* SPDX-License-Identifier: Apache-2.0
 *
 * rope; the formula stands in rope_ref.c. A thread takes up to eight pairs of
 * a head, or eight channels before or behind the rotated ones: it has read what
 * it writes, so y may be the memory of x. */
#include "map.cuh"

using namespace loong_cuda;

namespace
{

struct rope_t {
    mat_t x, table, y;
    int64_t head;  /* channels */
    int64_t half;  /* pairs */
    int64_t begin; /* the first rotated channel of a head */
    int interleaved;
    float sign; /* of the sine: -1 rotates back */
};

/* Pairs first .. first + n - 1, whose channels begin at column h. */
__device__ __forceinline__ void rotate(const rope_t &a, int64_t row, int64_t h,
                                       int64_t first, int n)
{
    pack_t c = load_at(a.table, row, first, n);
    pack_t s = load_at(a.table, row, a.half + first, n);
    pack_t u;
    pack_t v;
    if (!a.interleaved) {
        u = load_at(a.x, row, h + first, n);
        v = load_at(a.x, row, h + a.half + first, n);
    } else {
        int last = n > PACK / 2 ? 2 * n - PACK : 0;
        pack_t p = load_at(a.x, row, h + 2 * first, least(PACK, 2 * n));
        pack_t q = last > 0 ? load_at(a.x, row, h + 2 * first + PACK, last) : p;
        for (int i = 0; i < PACK / 2; i++) {
            u.v[i] = p.v[2 * i];
            v.v[i] = p.v[2 * i + 1];
            u.v[PACK / 2 + i] = q.v[2 * i];
            v.v[PACK / 2 + i] = q.v[2 * i + 1];
        }
    }
    for (int i = 0; i < PACK; i++) {
        float w = a.sign * s.v[i];
        float first_of_pair = u.v[i] * c.v[i] - v.v[i] * w;
        v.v[i] = v.v[i] * c.v[i] + u.v[i] * w;
        u.v[i] = first_of_pair;
    }
    if (!a.interleaved) {
        store_at(a.y, row, h + first, u, n);
        store_at(a.y, row, h + a.half + first, v, n);
        return;
    }
    for (int part = 0; part < 2; part++) {
        int left = least(PACK, 2 * n - part * PACK);
        pack_t p;
        for (int i = 0; i < PACK / 2; i++) {
            p.v[2 * i] = u.v[part * PACK / 2 + i];
            p.v[2 * i + 1] = v.v[part * PACK / 2 + i];
        }
        if (left > 0) {
            store_at(a.y, row, h + 2 * first + part * PACK, p, left);
        }
    }
}

__global__ void __launch_bounds__(BLOCK)
    rope_kernel(rope_t a, const loong_frame_t *frame)
{
    int64_t turned = (a.half + PACK - 1) / PACK;
    int64_t end = a.begin + 2 * a.half;
    int64_t front = (a.begin + PACK - 1) / PACK;
    /* of a head: those rotated, those before, those behind */
    int64_t packs = turned + front + (a.head - end + PACK - 1) / PACK;
    int64_t heads = a.x.cols / a.head;
    int64_t units = rows_of(a.x, frame) * heads * packs;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < units;
         i += step) {
        int64_t row = i / packs / heads;
        int64_t h = i / packs % heads * a.head;
        int64_t pack = i % packs;
        if (pack < turned) {
            rotate(a, row, h + a.begin, pack * PACK,
                   least(PACK, a.half - pack * PACK));
        } else {
            bool before = pack < turned + front;
            int64_t c = before ? (pack - turned) * PACK
                               : end + (pack - turned - front) * PACK;
            int n = least(PACK, (before ? a.begin : a.head) - c);
            store_at(a.y, row, h + c, load_at(a.x, row, h + c, n), n);
        }
    }
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
    LOONG_LAUNCH((rope_kernel), grid_for(a.x), dim3(BLOCK), 0, stream_of(call),
                 a, call->device_frame);
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1, 0, reason);
}

CUDA_KERNEL(rope, support, NULL, run);
