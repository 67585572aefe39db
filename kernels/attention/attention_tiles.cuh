/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tiled attention kernels share, forward and backward. A block has 64
 * queries (or keys) of a head, or 128, sixteen or 32 of them to a warp, and
 * goes through what they see tile by tile. Heads of up to 256 channels in bf16;
 * they are widened with zeros to the next of the sizes that kernels are made
 * for. */
#ifndef LOONG_ATTENTION_TILES_CUH
#define LOONG_ATTENTION_TILES_CUH

#include "attention.cuh"
#include "tensor.cuh"

namespace loong_cuda {

enum { TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * WARP };
enum { NARROW = 256 }; /* channels of a head */
constexpr float LN_2 = 0.69314718055994530942f;

/* Rows of one side that a thread has in products of MT * 16 rows to a warp:
 * number `h` (0, 1) of part m. */
static __device__ __forceinline__ int row_in_tile(int warp, int parts, int m,
                                                  int h)
{
    return (warp * parts + m) * 16 + h * 8 + (int)threadIdx.x % WARP / 4;
}

/* What is seen is in begin .. end - 1. */
static __device__ __forceinline__ bool is_seen(const span_t &span, int i)
{
    return i >= span.begin && i < span.end;
}

/* The sum, or the largest, of the four lanes that have a row. */
static __device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(EACH, x, 1);
    return x + __shfl_xor_sync(EACH, x, 2);
}

static __device__ __forceinline__ float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(EACH, x, 1));
    return fmaxf(x, __shfl_xor_sync(EACH, x, 2));
}

/* The spans of rows first .. first + rows - 1 of one side, all together. */
struct bounds_t {
    int begin, end; /* seen by one of them */
    int all_begin, all_end; /* by each */
};

static __device__ __forceinline__ bounds_t bounds_of(const span_t *span,
                                                     int first, int rows,
                                                     int count)
{
    bool whole = first + rows <= count;
    int last = (whole ? first + rows : count) - 1;
    bounds_t r = {span[first].begin, span[last].end, span[last].begin,
                  whole ? span[first].end : 0};
    return r;
}

/* Rows of one head. */
static __device__ __forceinline__ slice_t
head_rows(const mat_t &m, int64_t first, int64_t end, int head, int d)
{
    slice_t x = {m, first, end, (int64_t)head * d, d};
    return x;
}

/* p = exp(s - lse), ds = scale p (m dp - delta); in s[] and dp[] stand p m and
 * ds / scale afterwards. */
struct stats_t {
    float factor; /* scale * log2(e) */
    float lse;    /* log2(e) times it */
    float delta;
};

static __device__ __forceinline__ void make_ds(const stats_t &of, bool seen,
                                               float mask, float *s, float *dp)
{
    float p = seen ? exp2_of(*s * of.factor - of.lse) : 0.0f;
    *dp = p * (mask * *dp - of.delta);
    *s = p * mask;
}

/* Where a tile of scores stands. */
struct place_t {
    const loong_frame_t *frame;
    int query; /* row of q of its first query */
    int key;   /* row of k of its first key */
    int head;
    bool whole;    /* each query of it sees each key */
    uint32_t kept; /* of the thread's products by dropout, see kept_of */
};

/* Which probabilities of a thread's products, MT * 16 rows and COLS columns to
 * a warp, dropout keeps: bit (m * COLS / 8 + n) * 4 + i for element i of
 * product [m][n]. Rows are queries, or keys with TRANSPOSED. One after the
 * other, before the products are there: many numbers at a time, beside them,
 * would not fit into registers. Lanes part for a number, and the product that
 * comes next takes a whole warp: they meet behind it. */
template <int MT, int COLS, bool TRANSPOSED, bool DROPS>
static __device__ __forceinline__ uint32_t kept_of(const attention_t &a,
                                                   const place_t &place,
                                                   int queries, int keys)
{
    static_assert(!DROPS || MT * COLS <= 64, "a bit for each");
    int warp = (int)threadIdx.x / WARP % TILE_WARPS;
    int col = (int)threadIdx.x % 4 * 2;
    uint32_t kept = 0;
#pragma unroll 1
    for (int e = 0; DROPS && e < MT * COLS / 2; e++) {
        int row = row_in_tile(warp, MT, e / (COLS / 2), e % 4 / 2);
        int column = e / 4 % (COLS / 8) * 8 + col + e % 2;
        int t = place.query + (TRANSPOSED ? column : row);
        int key = place.key + (TRANSPOSED ? row : column);
        if (t < queries && key < keys &&
            factor_of(a.chance, place.frame, t, place.head,
                      a.keys[key].place) > 0.0f) {
            kept |= 1u << e;
        }
    }
    if (DROPS) {
        __syncwarp();
    }
    return kept;
}

static __device__ __forceinline__ float factor_at(const attention_t &a,
                                                  const place_t &place, int e)
{
    return place.kept >> e & 1 ? a.chance.keep : 0.0f;
}

/* ---- host ---------------------------------------------------------------- */

/* Channels that kernels are made for. */
struct tile_sizes_t {
    int keys, values;
};

static inline tile_sizes_t tile_sizes(const loong_attention_attr_t *attr)
{
    int d = attr->head_dim;
    int d_v = loongi_attention_v_dim(attr);
    int most = d > d_v ? d : d_v;
    if (most <= 64) {
        return {64, 64};
    }
    if (most <= 128) {
        return {128, 128};
    }
    if (d <= 192 && d_v <= 128) { /* latent attention */
        return {192, 128};
    }
    return {256, 256};
}

/* What tensor cores take. */
static inline bool tensor_support(const loong_kernel_query_t *query,
                                  char reason[LOONG_REASON_SIZE])
{
    const loong_attention_attr_t *attr =
        static_cast<const loong_attention_attr_t *>(query->attr);
    if (query->arg[0].dtype != LOONG_BF16) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "operands of type %s, tensor cores take bf16",
                 loong_dtype_name(query->arg[0].dtype));
        return false;
    }
    if (!(attr->scale > 0.0)) {
        snprintf(reason, LOONG_REASON_SIZE, "scale %g is not positive",
                 attr->scale);
        return false;
    }
    return true;
}

static inline bool tiles_support(const loong_kernel_query_t *query,
                                 char reason[LOONG_REASON_SIZE])
{
    const loong_attention_attr_t *attr =
        static_cast<const loong_attention_attr_t *>(query->attr);
    int d = LOONG_MAX(attr->head_dim, loongi_attention_v_dim(attr));
    if (d > NARROW) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "heads of %d channels, this kernel takes up to %d", d,
                 (int)NARROW);
        return false;
    }
    return tensor_support(query, reason);
}

} // namespace loong_cuda

#endif
