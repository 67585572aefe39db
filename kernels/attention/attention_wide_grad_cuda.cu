/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_grad of wide heads (attention_wide.cuh), in two kernels, as in
 * attention_tiles_grad_cuda.cu and for its reasons: one goes through the keys
 * of 32 queries (dq), one through the queries of 32 keys, head by head (dk,
 * dv). Four warps of a block make the scores of a tile, four what its values
 * say (do v); dS is made of both in between, and then each warp sums 16
 * rows of a quarter of the channels. */
#include "attention_wide.cuh"

using namespace loong_cuda;

namespace {

/* Rows of a tile of do v: odd ones lie in other banks. */
enum { DP_COLS = WIDE_TILE + 4 };

/* Shared memory behind the tiles of bf16. */
struct grad_tiles_t {
    half_t *p, *ds;          /* [WIDE_TILE, PROB_COLS] */
    float *dp;               /* [WIDE_TILE, DP_COLS]: do v */
    float *stats;            /* of queries, lse and delta: [2, WIDE_TILE] */
};

/* stages: of tiles whose queries have lse and delta. */
constexpr size_t grad_tiles_bytes(int stages)
{
    return sizeof(half_t) * 2 * WIDE_TILE * PROB_COLS +
           sizeof(float) * (WIDE_TILE * DP_COLS + stages * 2 * WIDE_TILE);
}

__device__ __forceinline__ grad_tiles_t grad_tiles_of(half_t *behind)
{
    grad_tiles_t s;
    s.p = behind;
    s.ds = s.p + WIDE_TILE * PROB_COLS;
    s.dp = reinterpret_cast<float *>(s.ds + WIDE_TILE * PROB_COLS);
    s.stats = s.dp + WIDE_TILE * DP_COLS;
    return s;
}

/* Where a warp is: with 16 by 16 scores or do v, then with 16 rows and a
 * quarter of the channels. */
struct at_t {
    bool scores;
    int row, col;   /* of the 16 by 16 */
    int rows, part;
    int line, two;  /* of the thread in a product */
};

__device__ __forceinline__ at_t at_of(void)
{
    int warp = (int)threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    at_t w = {warp < 4,      warp % 4 / 2 * 16, warp % 2 * 16,
              warp % 2 * 16, warp / 2,          lane / 4,
              lane % 4 * 2};
    return w;
}

/* lse and delta of the queries of a tile. */
__device__ __forceinline__ void read_stats(const attention_t &a, int first,
                                           int count, int head, float *to)
{
    for (int i = (int)threadIdx.x; i < 2 * WIDE_TILE; i += WIDE_THREADS) {
        int t = first + i % WIDE_TILE;
        float x = 0.0f;
        if (t < count) {
            x = i < WIDE_TILE ? row_of<float>(a.lse, t)[head] * LOG2_E
                              : a.delta[(int64_t)t * a.heads + head];
        }
        to[i] = x;
    }
}

/* The 16 by 16 of this warp, scores of tiles 0 and 1 or do v of tiles 2 and 3,
 * which have LEFT and RIGHT columns; those of do v are put down. */
template <int LEFT, int RIGHT>
__device__ __forceinline__ void multiply(const grad_tiles_t &r, const at_t &w,
                                         half_t *const tile[4],
                                         float s[1][2][4])
{
    clear<1, 16>(s);
    if (w.scores) {
        multiply_pair<WIDE, WIDE, WIDE>(s, tile[0] + w.row * WIDE,
                                        tile[1] + w.col * WIDE);
        return;
    }
    multiply_pair<LEFT, RIGHT, WIDE_VALUES>(s, tile[2] + w.row * LEFT,
                                            tile[3] + w.col * RIGHT);
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            r.dp[(w.row + i / 2 * 8 + w.line) * DP_COLS + w.col + n * 8 +
                 w.two + i % 2] = s[0][n][i];
        }
    }
}

/* ---- dq ------------------------------------------------------------------ */

/* Queries and gradients of outputs; keys and values, or two tiles of keys. */
constexpr size_t QUERY_TILES =
    WIDE_TILE * (WIDE + WIDE_VALUES) + 2 * WIDE_TILE * WIDE;
constexpr size_t QUERY_SHARED =
    sizeof(half_t) * QUERY_TILES + grad_tiles_bytes(1);

/* Scores of a tile of keys become stats, which are put down. */
__device__ __forceinline__ void
put_query_ds(const attention_t &a, const grad_tiles_t &r, const at_t &w,
             const place_t &place, const span_t span[2], float s[1][2][4])
{
    const float one[1][2] = {{1.0f, 1.0f}};
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = w.row + i / 2 * 8 + w.line;
            int col = w.col + n * 8 + w.two + i % 2;
            int key = place.key + col;
            bool seen = place.whole || is_seen(span[i / 2], key);
            float mask = 1.0f;
            if (a.chance.limit > 0 && seen) {
                mask = factor_of(a.chance, place.frame, place.query + row,
                                 place.head, a.keys[key].place);
            }
            stats_t of = {a.scale * LOG2_E, r.stats[row],
                          r.stats[WIDE_TILE + row]};
            float dp = r.dp[row * DP_COLS + col];
            make_ds(of, seen, mask, &s[0][n][i], &dp);
            s[0][n][i] = dp;
        }
    }
    put_rows<PROB_COLS, 1, 16>(r.ds, w.row, w.col / PACK, s, one);
}

template <bool LATENT>
__global__ void __launch_bounds__(WIDE_THREADS)
    query_wide(attention_t a, const loong_frame_t *frame)
{
    enum { TILE = WIDE_TILE * WIDE, VALUES = values_t<LATENT>::COLS };
    LOONG_SHARED_DYNAMIC(half_t, q);
    half_t *grad = q + TILE;
    half_t *stage = grad + WIDE_TILE * WIDE_VALUES;
    grad_tiles_t r = grad_tiles_of(q + QUERY_TILES);
    at_t w = at_of();
    int queries = (int)a.q.rows;
    int keys = (int)a.k.rows;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * WIDE_TILE;
    int head = (int)blockIdx.y;
    int of = head / a.group;
    if (first >= queries) {
        return;
    }
    span_t span[2];
    float dq[1][KEY_PART / 8][4];
    bounds_t bounds = bounds_of(a.queries, first, WIDE_TILE, queries);
    clear<1, KEY_PART>(dq);
    for (int h = 0; h < 2; h++) {
        int t = first + w.row + h * 8 + w.line;
        span_t none = {0, 0, 0};
        span[h] = t < queries ? a.queries[t] : none;
    }
    read_stats(a, first, queries, head, r.stats);
    load_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
        q, head_rows(a.q, first, queries, head, a.d));
    load_tile<WIDE_TILE, WIDE_VALUES, WIDE_THREADS>(
        grad, head_rows(a.grad_o, first, queries, head, a.d_v));
    if (LATENT) {
        load_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
            stage, head_rows(a.k, bounds.begin, keys, of, a.d));
    }
    COPIES_COMMIT();
    int turn = 0;
    for (int at = bounds.begin; at < bounds.end; at += WIDE_TILE) {
        half_t *k = stage + (LATENT ? turn * TILE : 0);
        half_t *v = LATENT ? k : k + TILE;
        int load = LATENT ? at + WIDE_TILE : at;
        turn = 1 - turn;
        if (load < bounds.end) {
            load_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
                LATENT ? stage + turn * TILE : k,
                head_rows(a.k, load, keys, of, a.d));
        }
        if (!LATENT) {
            load_tile<WIDE_TILE, WIDE_VALUES, WIDE_THREADS>(
                v, head_rows(a.v, at, keys, of, a.d_v));
        }
        COPIES_COMMIT();
        COPIES_WAIT(LATENT ? 1 : 0);
        __syncthreads(); /* the tile is there */
        place_t place = {frame,
                         first,
                         at,
                         head,
                         at >= bounds.all_begin &&
                             at + WIDE_TILE <= bounds.all_end,
                         0};
        half_t *const tile[4] = {q, k, grad, v};
        float s[1][2][4];
        multiply<WIDE_VALUES, VALUES>(r, w, tile, s);
        __syncthreads(); /* what values say is there */
        if (w.scores) {
            put_query_ds(a, r, w, place, span, s);
        }
        __syncthreads(); /* dS is there */
        multiply_probs<WIDE, 1, KEY_PART>(dq, r.ds, w.rows, k,
                                          w.part * KEY_PART / PACK);
        __syncthreads(); /* the tile and the dS were used */
    }
    const float scale[1][2] = {{a.scale, a.scale}};
    COPIES_WAIT(0);
    __syncthreads(); /* also where nothing was to be seen */
    put_rows<WIDE, 1, KEY_PART>(q, w.rows, w.part * KEY_PART / PACK, dq,
                                scale);
    __syncthreads();
    store_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
        head_rows(a.dq, first, queries, head, a.d), q, (int)threadIdx.x, 0);
}

/* ---- dk and dv ----------------------------------------------------------- */

/* Keys, and values that are not theirs; STAGES tiles of queries and gradients
 * of outputs. */
template <bool LATENT, int STAGES> struct key_shape_t {
    enum {
        STAGE = WIDE_TILE * (WIDE + WIDE_VALUES),
        KEYS = WIDE_TILE * (LATENT ? WIDE : WIDE + WIDE_VALUES),
        TILES = KEYS + STAGES * STAGE
    };
    static constexpr size_t SHARED =
        sizeof(half_t) * TILES + grad_tiles_bytes(STAGES);
};

/* The same of a tile of queries, keys by queries; P is put down too. */
__device__ __forceinline__ void
put_key_ds(const attention_t &a, const grad_tiles_t &r, const at_t &w,
           const place_t &place, const span_t span[2], float s[1][2][4])
{
    const float one[1][2] = {{1.0f, 1.0f}};
    float dp[1][2][4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = w.row + i / 2 * 8 + w.line;
            int col = w.col + n * 8 + w.two + i % 2;
            int query = place.query + col;
            bool seen = place.whole || is_seen(span[i / 2], query);
            float mask = 1.0f;
            if (a.chance.limit > 0 && seen) {
                mask = factor_of(a.chance, place.frame, query, place.head,
                                 span[i / 2].place);
            }
            stats_t of = {a.scale * LOG2_E, r.stats[col],
                          r.stats[WIDE_TILE + col]};
            dp[0][n][i] = r.dp[row * DP_COLS + col];
            make_ds(of, seen, mask, &s[0][n][i], &dp[0][n][i]);
        }
    }
    put_rows<PROB_COLS, 1, 16>(r.p, w.row, w.col / PACK, s, one);
    put_rows<PROB_COLS, 1, 16>(r.ds, w.row, w.col / PACK, dp, one);
}

/* Queries [begin, end) of the heads of a group, tile by tile, as one row. */
struct walk_t {
    int begin, end;
    int tiles; /* of a head */
    int head;      /* the first */
};

__device__ __forceinline__ void load_queries(const attention_t &a,
                                             const walk_t &walk, int step,
                                             int count, half_t *stage,
                                             float *stats)
{
    int head = walk.head + step / walk.tiles;
    int first = walk.begin + step % walk.tiles * WIDE_TILE;
    load_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
        stage, head_rows(a.q, first, count, head, a.d));
    load_tile<WIDE_TILE, WIDE_VALUES, WIDE_THREADS>(
        stage + WIDE_TILE * WIDE,
        head_rows(a.grad_o, first, count, head, a.d_v));
    read_stats(a, first, count, head, stats);
}

/* What a thread sums for its two keys: its part of the channels. */
struct key_sums_t {
    float dk[1][KEY_PART / 8][4];
    float dv[1][VALUE_PART / 8][4];
    span_t span[2];
};

template <bool LATENT>
__device__ __forceinline__ void
add_queries(const attention_t &a, const grad_tiles_t &r, const at_t &w,
            const place_t &place, half_t *const tile[4], key_sums_t &x)
{
    float s[1][2][4];
    multiply<values_t<LATENT>::COLS, WIDE_VALUES>(r, w, tile, s);
    __syncthreads(); /* what values say is there */
    if (w.scores) {
        put_key_ds(a, r, w, place, x.span, s);
    }
    __syncthreads(); /* P and dS is there */
    multiply_probs<WIDE_VALUES, 1, VALUE_PART>(x.dv, r.p, w.rows, tile[3],
                                               w.part * VALUE_PART / PACK);
    multiply_probs<WIDE, 1, KEY_PART>(x.dk, r.ds, w.rows, tile[1],
                                      w.part * KEY_PART / PACK);
}

/* dk and dv through the rooms of the keys and of the queries. */
__device__ __forceinline__ void store_keys(const attention_t &a,
                                           const at_t &w, const place_t &place,
                                           int keys, key_sums_t &x,
                                           half_t *const room[2])
{
    const float one[1][2] = {{1.0f, 1.0f}};
    const float scale[1][2] = {{a.scale, a.scale}};
    put_rows<WIDE, 1, KEY_PART>(room[0], w.rows, w.part * KEY_PART / PACK,
                                x.dk, scale);
    put_rows<WIDE_VALUES, 1, VALUE_PART>(
        room[1], w.rows, w.part * VALUE_PART / PACK, x.dv, one);
    __syncthreads();
    store_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
        head_rows(a.dk, place.key, keys, place.head, a.d), room[0],
        (int)threadIdx.x, 0);
    store_tile<WIDE_TILE, WIDE_VALUES, WIDE_THREADS>(
        head_rows(a.dv, place.key, keys, place.head, a.d_v), room[1],
        (int)threadIdx.x, 0);
}

template <bool LATENT, int STAGES>
__global__ void __launch_bounds__(WIDE_THREADS)
    key_wide(attention_t a, const loong_frame_t *frame)
{
    typedef key_shape_t<LATENT, STAGES> shape;
    LOONG_SHARED_DYNAMIC(half_t, k);
    half_t *v = LATENT ? k : k + WIDE_TILE * WIDE;
    half_t *stage = k + shape::KEYS;
    grad_tiles_t r = grad_tiles_of(k + shape::TILES);
    float *stats = r.stats;
    at_t w = at_of();
    int queries = (int)a.q.rows;
    int keys = (int)a.k.rows;
    int first = (int)blockIdx.x * WIDE_TILE; /* early: most queries */
    int of = (int)blockIdx.y;
    if (first >= keys) {
        return;
    }
    key_sums_t x;
    bounds_t bounds = bounds_of(a.keys, first, WIDE_TILE, keys);
    walk_t walk = {bounds.begin, bounds.end,
                   (bounds.end - bounds.begin + WIDE_TILE - 1) / WIDE_TILE,
                   of * a.group};
    int steps = bounds.end > bounds.begin ? walk.tiles * a.group : 0;
    clear<1, KEY_PART>(x.dk);
    clear<1, VALUE_PART>(x.dv);
    for (int h = 0; h < 2; h++) {
        int key = first + w.row + h * 8 + w.line;
        span_t none = {0, 0, 0};
        x.span[h] = key < keys ? a.keys[key] : none;
    }
    load_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
        k, head_rows(a.k, first, keys, of, a.d));
    if (!LATENT) {
        load_tile<WIDE_TILE, WIDE_VALUES, WIDE_THREADS>(
            v, head_rows(a.v, first, keys, of, a.d_v));
    }
    if (STAGES > 1 && steps > 0) {
        load_queries(a, walk, 0, queries, stage, stats);
    }
    COPIES_COMMIT();
    for (int step = 0; step < steps; step++) {
        int turn = STAGES > 1 ? step % 2 : 0;
        int load = STAGES > 1 ? step + 1 : step;
        int to = STAGES > 1 ? 1 - turn : 0;
        if (load < steps) {
            load_queries(a, walk, load, queries, stage + to * shape::STAGE,
                         stats + to * 2 * WIDE_TILE);
        }
        COPIES_COMMIT();
        COPIES_WAIT(STAGES > 1 ? 1 : 0);
        __syncthreads(); /* the tile is there */
        int at = walk.begin + step % walk.tiles * WIDE_TILE;
        place_t place = {frame,
                         at,
                         first,
                         walk.head + step / walk.tiles,
                         at >= bounds.all_begin &&
                             at + WIDE_TILE <= bounds.all_end,
                         0};
        half_t *q = stage + turn * shape::STAGE;
        half_t *const tile[4] = {k, q, v, q + WIDE_TILE * WIDE};
        r.stats = stats + turn * 2 * WIDE_TILE;
        add_queries<LATENT>(a, r, w, place, tile, x);
        __syncthreads(); /* the tile was used */
    }
    place_t place = {frame, 0, first, of, true, 0};
    half_t *const room[2] = {k, stage};
    COPIES_WAIT(0);
    __syncthreads(); /* keys and values were used */
    store_keys(a, w, place, keys, x, room);
}

/* ---- launches ------------------------------------------------------------ */

template <bool LATENT>
loong_status_t launch_queries(const loong_kernel_call_t *call,
                              const attention_t &a)
{
    int64_t tiles = (a.q.rows + WIDE_TILE - 1) / WIDE_TILE;
    if (tiles == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(allow_shared(call, query_wide<LATENT>, QUERY_SHARED));
    LOONG_LAUNCH((query_wide<LATENT>),
                 dim3((unsigned)tiles, (unsigned)a.heads), dim3(WIDE_THREADS),
                 QUERY_SHARED, stream_of(call), a, call->device_frame);
    return launched(call);
}

template <bool LATENT, int STAGES>
loong_status_t launch_keys(const loong_kernel_call_t *call,
                           const attention_t &a)
{
    typedef key_shape_t<LATENT, STAGES> shape;
    int64_t tiles = (a.k.rows + WIDE_TILE - 1) / WIDE_TILE;
    if (tiles == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(allow_shared(call, key_wide<LATENT, STAGES>, shape::SHARED));
    LOONG_LAUNCH((key_wide<LATENT, STAGES>),
                 dim3((unsigned)tiles, (unsigned)(a.heads / a.group)),
                 dim3(WIDE_THREADS), shape::SHARED, stream_of(call), a,
                 call->device_frame);
    return launched(call);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    attention_t a = gradient_of(call);
    if (shared_limit(call) <
        LOONG_MAX(QUERY_SHARED, (key_shape_t<false, 1>::SHARED))) {
        return loongi_attention_grad_cuda.run(call);
    }
    LOONG_TRY(make_spans(call, a, 6));
    LOONG_TRY(make_delta(call, a));
    if (!is_latent(a)) {
        LOONG_TRY(launch_queries<false>(call, a));
        return launch_keys<false, 1>(call, a);
    }
    LOONG_TRY(launch_queries<true>(call, a));
    return shared_limit(call) >= key_shape_t<true, 2>::SHARED
               ? launch_keys<true, 2>(call, a)
               : launch_keys<true, 1>(call, a);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    uint32_t integers = (1u << query->num_in) - (1u << 6);
    return loongi_attention_local(query, reason) &&
           wide_support(query, reason) &&
           cuda_support(query, 1u << 5, integers, reason);
}

CUDA_KERNEL_NAMED(attention_grad, wide, support, attention_workspace, run);
