/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_grad in tiles on tensor cores, in two kernels, so that no sum is
 * shared between blocks and its order is fixed: one goes through the keys of a
 * block of queries (dq), one through the queries of a block of keys, head by
 * head of the group (dk, dv). Both make the scores again: seven products where
 * one kernel with atomic sums would make five. The second has its products
 * transposed, keys by queries: P and dS are left operands of
 * the next products as they stand in registers. */
#include "attention_tiles.cuh"

using namespace loong_cuda;

namespace {

/* ---- dq ------------------------------------------------------------------ */

template <int DK, int DV, int MT, int KEYS_> struct query_shape_t {
    enum { QUERIES = 16 * MT * TILE_WARPS, KEYS = KEYS_ };
    enum { TILES = QUERIES * (DK + DV) + 2 * KEYS * (DK + DV) };
    static constexpr size_t SHARED =
        sizeof(half_t) * TILES + sizeof(float) * 2 * QUERIES;
};

/* The queries of a block: how many there are, and keys; in shared memory their
 * lse, times log2(e), and delta. Spans are read where they are needed, where
 * few tiles come: neither has registers of its own. */
struct queries_t {
    int queries, keys;
    float *lse, *delta;
};

__device__ __forceinline__ void read_queries(const attention_t &a, int first,
                                             int head, int rows,
                                             const queries_t &x)
{
    for (int i = (int)threadIdx.x; i < rows; i += TILE_THREADS) {
        int64_t t = first + i;
        bool there = t < x.queries;
        x.lse[i] = there ? row_of<float>(a.lse, t)[head] * LOG2_E : 0.0f;
        x.delta[i] = there ? a.delta[t * a.heads + head] : 0.0f;
    }
}

/* Scores and do v of a tile of keys become dS. */
template <int MT, int KEYS, bool DROPS>
__device__ __forceinline__ void
query_ds(const attention_t &a, const place_t &place, const queries_t &x,
         float s[MT][KEYS / 8][4], float dp[MT][KEYS / 8][4])
{
    int warp = (int)threadIdx.x / WARP;
    int key = place.key + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = row_in_tile(warp, MT, m, h);
            stats_t of = {a.scale * LOG2_E, x.lse[row], x.delta[row]};
            span_t span = {0, 0, 0};
            if (!place.whole && place.query + row < x.queries) {
                span = a.queries[place.query + row];
            }
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) {
                    bool seen =
                        place.whole || is_seen(span, key + n * 8 + i % 2);
                    float mask = DROPS ? factor_at(a, place,
                                                   (m * KEYS / 8 + n) * 4 + i)
                                       : 1.0f;
                    make_ds(of, seen, mask, &s[m][n][i], &dp[m][n][i]);
                }
            }
        }
    }
}

/* A tile of keys and values, which lies from k on. */
template <int DK, int DV, int MT, int KEYS, bool DROPS>
__device__ __forceinline__ void
add_keys(const attention_t &a, place_t place, const queries_t &x,
         half_t *q, half_t *k, float dq[MT][DK / 8][4])
{
    half_t *grad = q + query_shape_t<DK, DV, MT, KEYS>::QUERIES * DK;
    int row = (int)threadIdx.x / WARP * MT * 16;
    place.kept =
        kept_of<MT, KEYS, false, DROPS>(a, place, x.queries, x.keys);
    float s[MT][KEYS / 8][4];
    float dp[MT][KEYS / 8][4];
    clear<MT, KEYS>(s);
    clear<MT, KEYS>(dp);
    multiply_rows<DK, MT, KEYS>(s, q, row, k);
    multiply_rows<DV, MT, KEYS>(dp, grad, row, k + KEYS * DK);
    query_ds<MT, KEYS, DROPS>(a, place, x, s, dp);
    multiply_on<DK, MT, KEYS, DK>(dq, dp, k, 0);
}

template <int DK, int MT>
__device__ __forceinline__ void
store_queries(const attention_t &a, const place_t &place, int queries,
              float dq[MT][DK / 8][4], half_t *room)
{
    int row = (int)threadIdx.x / WARP * MT * 16;
    float scale[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        scale[m][0] = scale[m][1] = a.scale;
    }
    put_rows<DK, MT, DK>(room, row, 0, dq, scale);
    __syncwarp();
    store_tile<MT * 16, DK, WARP>(
        head_rows(a.dq, place.query, queries, place.head, a.d), room,
        (int)threadIdx.x % WARP, row);
}

template <int DK, int DV, int MT, int KEYS_, bool DROPS>
__global__ void __launch_bounds__(TILE_THREADS)
    query_tiles(attention_t a, const loong_frame_t *frame)
{
    typedef query_shape_t<DK, DV, MT, KEYS_> shape;
    enum { QUERIES = shape::QUERIES, KEYS = shape::KEYS };
    LOONG_SHARED_DYNAMIC(half_t, q);
    half_t *grad = q + QUERIES * DK;
    half_t *stage = grad + QUERIES * DV; /* two of keys and values */
    int queries = (int)a.q.rows;
    int keys = (int)a.k.rows;
    /* Late queries see the most keys: they come first. */
    int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    int head = (int)blockIdx.y;
    int of = head / a.group;
    if (first >= queries) {
        return;
    }
    float *stats = reinterpret_cast<float *>(q + shape::TILES);
    queries_t x = {queries, keys, stats, stats + QUERIES};
    float dq[MT][DK / 8][4];
    bounds_t bounds = bounds_of(a.queries, first, QUERIES, queries);
    clear<MT, DK>(dq);
    read_queries(a, first, head, QUERIES, x);
    load_tile<QUERIES, DK, TILE_THREADS>(
        q, head_rows(a.q, first, queries, head, a.d));
    load_tile<QUERIES, DV, TILE_THREADS>(
        grad, head_rows(a.grad_o, first, queries, head, a.d_v));
    int turn = 0;
    for (int next = bounds.begin; next < bounds.end + KEYS; next += KEYS) {
        half_t *k = stage + turn * KEYS * (DK + DV);
        turn = 1 - turn;
        if (next < bounds.end) { /* on its way during the tile before */
            load_tile<KEYS, DK, TILE_THREADS>(
                k, head_rows(a.k, next, keys, of, a.d));
            load_tile<KEYS, DV, TILE_THREADS>(
                k + KEYS * DK, head_rows(a.v, next, keys, of, a.d_v));
        }
        COPIES_COMMIT();
        if (next == bounds.begin) {
            continue;
        }
        int at = next - KEYS;
        place_t place = {frame,
                         first,
                         at,
                         head,
                         at >= bounds.all_begin && at + KEYS <= bounds.all_end,
                         0};
        COPIES_WAIT(1);
        __syncthreads(); /* the tile is there */
        add_keys<DK, DV, MT, KEYS_, DROPS>(
            a, place, x, q, stage + turn * KEYS * (DK + DV), dq);
        __syncthreads(); /* the tile was used */
    }
    place_t place = {frame, first, 0, head, true, 0};
    COPIES_WAIT(0);
    __syncthreads(); /* also where nothing was to be seen */
    store_queries<DK, MT>(a, place, queries, dq, q);
}

/* ---- dk and dv ----------------------------------------------------------- */

/* SPLIT 2: a second set of warps makes the same scores and sums the other half
 * of the channels, for heads whose sums do not fit into registers. */
template <int DK, int DV, int QUERIES_, int SPLIT> struct key_shape_t {
    enum {
        KEYS = 16 * TILE_WARPS,
        QUERIES = QUERIES_,
        THREADS = SPLIT * TILE_THREADS,
        STAGE = QUERIES * (DK + DV) /* elements of one of two */
    };
    static constexpr size_t SHARED =
        sizeof(half_t) * (KEYS * (DK + DV) + 2 * STAGE) +
        sizeof(float) * 2 * 2 * QUERIES;
};

/* What comes with a tile of queries: lse and delta of each. */
template <class Shape>
__device__ __forceinline__ void read_stats(const attention_t &a, int first,
                                           int count, int head, float *to)
{
    for (int i = (int)threadIdx.x; i < 2 * Shape::QUERIES;
         i += Shape::THREADS) {
        int t = first + i % Shape::QUERIES;
        bool lse = i < Shape::QUERIES;
        float x = 0.0f;
        if (t < count) {
            x = lse ? row_of<float>(a.lse, t)[head] * LOG2_E
                    : a.delta[(int64_t)t * a.heads + head];
        }
        to[i] = x;
    }
}

/* Queries [begin, end) of the heads of a group, tile by tile, as one row. */
struct walk_t {
    int begin, end;
    int tiles; /* of a head */
    int head;      /* the first */
};

template <int DK, int DV, class Shape>
__device__ __forceinline__ void
load_queries(const attention_t &a, const walk_t &w, int step, int count,
             half_t *stage, float *stats)
{
    int head = w.head + step / w.tiles;
    int first = w.begin + step % w.tiles * Shape::QUERIES;
    load_tile<Shape::QUERIES, DK, Shape::THREADS>(
        stage, head_rows(a.q, first, count, head, a.d));
    load_tile<Shape::QUERIES, DV, Shape::THREADS>(
        stage + Shape::QUERIES * DK,
        head_rows(a.grad_o, first, count, head, a.d_v));
    read_stats<Shape>(a, first, count, head, stats);
}

/* Scores and do v, keys by queries, become dS. */
template <int QUERIES, bool DROPS, class Scores>
__device__ __forceinline__ void
key_ds(const attention_t &a, const place_t &place, const span_t span[2],
       const float *stats, Scores &s, Scores &dp)
{
    int col = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int c = n * 8 + col + i % 2;
            stats_t of = {a.scale * LOG2_E, stats[c], stats[QUERIES + c]};
            bool seen =
                place.whole || is_seen(span[i / 2], place.query + c);
            float mask = DROPS ? factor_at(a, place, n * 4 + i) : 1.0f;
            make_ds(of, seen, mask, &s[0][n][i], &dp[0][n][i]);
        }
    }
}

/* What a thread sums for its two keys: its part of the channels. */
template <int DK, int DV, int SPLIT> struct key_sums_t {
    float dk[1][DK / SPLIT / 8][4];
    float dv[1][DV / SPLIT / 8][4];
    span_t span[2];
    int queries, keys; /* that there are */
};

template <int DK, int DV, int SPLIT>
__device__ __forceinline__ void
begin_keys(const attention_t &a, int first, int keys,
           key_sums_t<DK, DV, SPLIT> &r)
{
    int warp = (int)threadIdx.x / WARP % TILE_WARPS;
    clear<1, DK / SPLIT>(r.dk);
    clear<1, DV / SPLIT>(r.dv);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int key = first + row_in_tile(warp, 1, 0, h);
        span_t none = {0, 0, 0};
        r.span[h] = key < keys ? a.keys[key] : none;
    }
}

/* A tile of queries and gradients of outputs, which lies from q on. */
template <int DK, int DV, int QUERIES, int SPLIT, bool DROPS, class Sums>
__device__ __forceinline__ void add_queries(const attention_t &a, place_t place,
                                            half_t *k, half_t *q,
                                            const float *stats, Sums &r)
{
    half_t *v = k + key_shape_t<DK, DV, QUERIES, SPLIT>::KEYS * DK;
    half_t *grad = q + QUERIES * DK;
    int row = (int)threadIdx.x / WARP % TILE_WARPS * 16;
    int part = (int)threadIdx.x / TILE_THREADS;
    place.kept =
        kept_of<1, QUERIES, true, DROPS>(a, place, r.queries, r.keys);
    float s[1][QUERIES / 8][4];
    float dp[1][QUERIES / 8][4];
    clear<1, QUERIES>(s);
    clear<1, QUERIES>(dp);
    multiply_rows<DK, 1, QUERIES>(s, k, row, q);
    multiply_rows<DV, 1, QUERIES>(dp, v, row, grad);
    key_ds<QUERIES, DROPS>(a, place, r.span, stats, s, dp);
    multiply_on<DV, 1, QUERIES, DV / SPLIT>(r.dv, s, grad,
                                            part * DV / SPLIT / PACK);
    multiply_on<DK, 1, QUERIES, DK / SPLIT>(r.dk, dp, q,
                                            part * DK / SPLIT / PACK);
}

/* dk and dv through the room of the keys and values, which is free. */
template <int DK, int DV, int SPLIT, class Sums>
__device__ __forceinline__ void
store_keys(const attention_t &a, const place_t &place, int keys, Sums &r,
           half_t *k)
{
    enum { KEYS = 16 * TILE_WARPS, THREADS = SPLIT * TILE_THREADS };
    half_t *v = k + KEYS * DK;
    int row = (int)threadIdx.x / WARP % TILE_WARPS * 16;
    int part = (int)threadIdx.x / TILE_THREADS;
    float one[1][2] = {{1.0f, 1.0f}};
    float scale[1][2] = {{a.scale, a.scale}};
    put_rows<DK, 1, DK / SPLIT>(k, row, part * DK / SPLIT / PACK, r.dk,
                                scale);
    put_rows<DV, 1, DV / SPLIT>(v, row, part * DV / SPLIT / PACK, r.dv, one);
    __syncthreads();
    store_tile<KEYS, DK, THREADS>(
        head_rows(a.dk, place.key, keys, place.head, a.d), k,
        (int)threadIdx.x, 0);
    store_tile<KEYS, DV, THREADS>(
        head_rows(a.dv, place.key, keys, place.head, a.d_v), v,
        (int)threadIdx.x, 0);
}

template <int DK, int DV, int QUERIES_, int SPLIT, bool DROPS>
__global__ void __launch_bounds__(SPLIT * TILE_THREADS)
    key_tiles(attention_t a, const loong_frame_t *frame)
{
    typedef key_shape_t<DK, DV, QUERIES_, SPLIT> shape;
    enum { KEYS = shape::KEYS, QUERIES = shape::QUERIES };
    LOONG_SHARED_DYNAMIC(half_t, k);
    half_t *v = k + KEYS * DK;
    half_t *stage = v + KEYS * DV;
    float *stats = reinterpret_cast<float *>(stage + 2 * shape::STAGE);
    int queries = (int)a.q.rows;
    int keys = (int)a.k.rows;
    int first = (int)blockIdx.x * KEYS; /* early: the most queries */
    int of = (int)blockIdx.y;
    if (first >= keys) {
        return;
    }
    key_sums_t<DK, DV, SPLIT> r;
    r.queries = queries;
    r.keys = keys;
    bounds_t bounds = bounds_of(a.keys, first, KEYS, keys);
    walk_t walk = {bounds.begin, bounds.end,
                   (bounds.end - bounds.begin + QUERIES - 1) / QUERIES,
                   of * a.group};
    int steps = bounds.end > bounds.begin ? walk.tiles * a.group : 0;
    begin_keys<DK, DV, SPLIT>(a, first, keys, r);
    load_tile<KEYS, DK, shape::THREADS>(
        k, head_rows(a.k, first, keys, of, a.d));
    load_tile<KEYS, DV, shape::THREADS>(
        v, head_rows(a.v, first, keys, of, a.d_v));
    if (steps > 0) {
        load_queries<DK, DV, shape>(a, walk, 0, queries, stage, stats);
    }
    COPIES_COMMIT();
    for (int step = 0; step < steps; step++) {
        int turn = step % 2;
        if (step + 1 < steps) { /* on its way during this one */
            load_queries<DK, DV, shape>(a, walk, step + 1, queries,
                                        stage + (1 - turn) * shape::STAGE,
                                        stats + (1 - turn) * 2 * QUERIES);
        }
        COPIES_COMMIT();
        COPIES_WAIT(1);
        __syncthreads(); /* the tile is there */
        int at = walk.begin + step % walk.tiles * QUERIES;
        place_t place = {frame,
                         at,
                         first,
                         walk.head + step / walk.tiles,
                         at >= bounds.all_begin &&
                             at + QUERIES <= bounds.all_end,
                         0};
        add_queries<DK, DV, QUERIES_, SPLIT, DROPS>(
            a, place, k, stage + turn * shape::STAGE,
            stats + turn * 2 * QUERIES, r);
        __syncthreads(); /* the tile was used */
    }
    place_t place = {frame, 0, first, of, true, 0};
    COPIES_WAIT(0);
    __syncthreads(); /* keys and values were used */
    store_keys<DK, DV, SPLIT>(a, place, keys, r, k);
}

/* ---- launches ------------------------------------------------------------ */

template <int DK, int DV, int MT, int KEYS, bool DROPS>
loong_status_t launch_queries(const loong_kernel_call_t *call,
                              const attention_t &a)
{
    typedef query_shape_t<DK, DV, MT, KEYS> shape;
    int64_t tiles = (a.q.rows + shape::QUERIES - 1) / shape::QUERIES;
    if (tiles == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(allow_shared(call, query_tiles<DK, DV, MT, KEYS, DROPS>,
                           shape::SHARED));
    LOONG_LAUNCH((query_tiles<DK, DV, MT, KEYS, DROPS>),
                 dim3((unsigned)tiles, (unsigned)a.heads), dim3(TILE_THREADS),
                 shape::SHARED, stream_of(call), a, call->device_frame);
    return launched(call);
}

template <int DK, int DV, int QUERIES, int SPLIT, bool DROPS>
loong_status_t launch_keys(const loong_kernel_call_t *call,
                           const attention_t &a)
{
    typedef key_shape_t<DK, DV, QUERIES, SPLIT> shape;
    int64_t tiles = (a.k.rows + shape::KEYS - 1) / shape::KEYS;
    if (tiles == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(allow_shared(call, key_tiles<DK, DV, QUERIES, SPLIT, DROPS>,
                           shape::SHARED));
    LOONG_LAUNCH((key_tiles<DK, DV, QUERIES, SPLIT, DROPS>),
                 dim3((unsigned)tiles, (unsigned)(a.heads / a.group)),
                 dim3(shape::THREADS), shape::SHARED, stream_of(call), a,
                 call->device_frame);
    return launched(call);
}

/* KEYS, QUERIES: of the tiles that blocks of the other go through. */
template <int DK, int DV, int MT, int KEYS, int QUERIES, int SPLIT>
loong_status_t launch(const loong_kernel_call_t *call, const attention_t &a)
{
    if (a.chance.limit > 0) {
        LOONG_TRY((launch_queries<DK, DV, MT, KEYS, true>(call, a)));
        return launch_keys<DK, DV, QUERIES, SPLIT, true>(call, a);
    }
    LOONG_TRY((launch_queries<DK, DV, MT, KEYS, false>(call, a)));
    return launch_keys<DK, DV, QUERIES, SPLIT, false>(call, a);
}

/* Tiles of 32 want 129 KiB of shared memory, those of 16 have 97. */
loong_status_t launch_widest(const loong_kernel_call_t *call,
                             const attention_t &a)
{
    return shared_limit(call) >= key_shape_t<256, 256, 32, 2>::SHARED
               ? launch<256, 256, 1, 32, 32, 2>(call, a)
               : launch<256, 256, 1, 16, 16, 2>(call, a);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    attention_t a = gradient_of(call);
    tile_sizes_t size = tile_sizes(
        static_cast<const loong_attention_attr_t *>(call->query->attr));
    LOONG_TRY(make_spans(call, a, 6));
    LOONG_TRY(make_delta(call, a));
    switch (size.keys) {
    case 64:
        return launch<64, 64, 2, 32, 64, 1>(call, a);
    case 128:
        return launch<128, 128, 2, 32, 32, 1>(call, a);
    case 192:
        return launch<192, 128, 1, 32, 32, 1>(call, a);
    default:
        return launch_widest(call, a);
    }
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    uint32_t integers = (1u << query->num_in) - (1u << 6);
    return loongi_attention_local(query, reason) &&
           tiles_support(query, reason) &&
           cuda_support(query, 1u << 5, integers, reason);
}

CUDA_KERNEL_NAMED(attention_grad, tiles, support, attention_workspace, run);
