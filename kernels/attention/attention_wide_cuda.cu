/* SPDX-License-Identifier: Apache-2.0
 *
 * attention of wide heads (attention_wide.cuh). A block has 64 queries of a
 * head. Per tile of keys: scores, 16 queries by 16 keys to a warp, whose
 * largest both warps of a row tell each other; their probabilities, by way of
 * shared memory, times the values, 32 queries by a quarter of the channels to a
 * warp.
 */
#include "attention_wide.cuh"

using namespace loong_cuda;

namespace {

enum { QUERIES = 64 };

/* Shared memory: queries, keys and values or two tiles of keys, P. */
struct room_t {
    half_t *q, *stage, *probs;
    float *top;   /* [2, QUERIES]: of each half of a tile's keys */
    float *sum;   /* [2, QUERIES] */
    float *decay; /* [QUERIES] */
};

constexpr size_t SHARED =
    sizeof(half_t) *
        (QUERIES * WIDE + 2 * WIDE_TILE * WIDE + QUERIES * PROB_COLS) +
    sizeof(float) * 5 * QUERIES;

__device__ __forceinline__ room_t room_of(half_t *shared)
{
    room_t r;
    r.q = shared;
    r.stage = r.q + QUERIES * WIDE;
    r.probs = r.stage + 2 * WIDE_TILE * WIDE;
    r.top = reinterpret_cast<float *>(r.probs + QUERIES * PROB_COLS);
    r.sum = r.top + 2 * QUERIES;
    r.decay = r.sum + 2 * QUERIES;
    return r;
}

/* Where a warp is: with 16 queries and half of a tile's keys, then with 32
 * queries and a quarter of the channels. */
struct at_t {
    int row, half;
    int rows, part;
    int line, col; /* of the thread in a product */
};

__device__ __forceinline__ at_t at_of(void)
{
    int warp = (int)threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    at_t at = {warp % 4 * 16, warp / 4, warp % 2 * 32, warp / 2,
               lane / 4,      lane % 4 * 2};
    return at;
}

/* What a thread has of its two rows of scores. */
struct sums_t {
    span_t span[2];
    float top[2];
    float sum[2]; /* the thread's own part */
};

__device__ __forceinline__ void begin_rows(const attention_t &a, const at_t &w,
                                           int first, int queries,
                                           sums_t &x)
{
    for (int h = 0; h < 2; h++) {
        int t = first + w.row + h * 8 + w.line;
        span_t none = {0, 0, 0};
        x.span[h] = t < queries ? a.queries[t] : none;
        x.top[h] = -INFINITY;
        x.sum[h] = 0.0f;
    }
}

/* Scores that no probability belongs to become minus infinity; the largest of
 * each row is told. */
__device__ __forceinline__ void tell_top(const room_t &r, const at_t &w,
                                         const sums_t &x, const place_t &place,
                                         float s[1][2][4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY;
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                int key = place.key + n * 8 + w.col + i % 2;
                if (!place.whole && !is_seen(x.span[h], key)) {
                    s[0][n][i] = -INFINITY;
                }
                top = fmaxf(top, s[0][n][i]);
            }
        }
        top = row_max(top);
        if (w.col == 0) {
            r.top[w.half * QUERIES + w.row + h * 8 + w.line] = top;
        }
    }
}

/* Scores become probabilities, which are put down. */
__device__ __forceinline__ void put_probs(const attention_t &a, const room_t &r,
                                          const at_t &w, const place_t &place,
                                          sums_t &x, float s[1][2][4])
{
    const float one[1][2] = {{1.0f, 1.0f}};
    float factor = a.scale * LOG2_E;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = w.row + h * 8 + w.line;
        float top = fmaxf(x.top[h],
                          fmaxf(r.top[row], r.top[QUERIES + row]));
        /* No score yet: any finite reference will do. */
        float base = top == -INFINITY ? 0.0f : top * factor;
        float decay = exp2_of(x.top[h] * factor - base);
        float sum = x.sum[h] * decay;
        x.top[h] = top;
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                int key = place.key + n * 8 + w.col + i % 2;
                float p = exp2_of(s[0][n][i] * factor - base);
                sum += p;
                if (a.chance.limit > 0 && is_seen(x.span[h], key)) {
                    p *= factor_of(a.chance, place.frame, place.query + row,
                                   place.head, a.keys[key].place);
                }
                s[0][n][i] = p;
            }
        }
        x.sum[h] = sum;
        if (w.half == 0 && w.col == 0) {
            r.decay[row] = decay;
        }
    }
    put_rows<PROB_COLS, 1, 16>(r.probs, w.row, w.half * 2, s, one);
}

template <bool LATENT>
__device__ __forceinline__ void add_values(const room_t &r, const at_t &w,
                                           half_t *v,
                                           float o[2][VALUE_PART / 8][4])
{
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float decay = r.decay[w.rows + m * 16 + h * 8 + w.line];
#pragma unroll
            for (int n = 0; n < VALUE_PART / 8; n++) {
                o[m][n][2 * h] *= decay;
                o[m][n][2 * h + 1] *= decay;
            }
        }
    }
    multiply_probs<values_t<LATENT>::COLS, 2, VALUE_PART>(
        o, r.probs, w.rows, v, w.part * VALUE_PART / PACK);
}

/* Outputs into the room of the queries, from there to memory. */
__device__ __forceinline__ void finish(const attention_t &a, const room_t &r,
                                       const place_t &place, int queries,
                                       const sums_t &x,
                                       float o[2][VALUE_PART / 8][4])
{
    at_t w = at_of();
    float inverse[2][2];
    for (int h = 0; h < 2; h++) {
        float sum = row_sum(x.sum[h]);
        if (w.col == 0) {
            r.sum[w.half * QUERIES + w.row + h * 8 + w.line] = sum;
        }
    }
    __syncthreads();
    for (int h = 0; h < 2; h++) {
        int row = w.row + h * 8 + w.line;
        int t = place.query + row;
        if (a.lse.p != NULL && w.half == 0 && w.col == 0 && t < queries) {
            row_of<float>(a.lse, t)[place.head] =
                a.scale * x.top[h] + logf(r.sum[row] + r.sum[QUERIES + row]);
        }
    }
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = w.rows + m * 16 + h * 8 + w.line;
            float sum = r.sum[row] + r.sum[QUERIES + row];
            inverse[m][h] = sum > 0.0f ? 1.0f / sum : 0.0f;
        }
    }
    put_rows<WIDE_VALUES, 2, VALUE_PART>(
        r.q, w.rows, w.part * VALUE_PART / PACK, o, inverse);
    __syncthreads();
    store_tile<QUERIES, WIDE_VALUES, WIDE_THREADS>(
        head_rows(a.o, place.query, queries, place.head, a.d_v), r.q,
        (int)threadIdx.x, 0);
}

/* LATENT: a tile of keys has the values, and the next one is on its way while
 * it is used. */
template <bool LATENT>
__global__ void __launch_bounds__(WIDE_THREADS)
    forward_wide(attention_t a, const loong_frame_t *frame)
{
    enum { TILE = WIDE_TILE * WIDE };
    LOONG_SHARED_DYNAMIC(half_t, shared);
    room_t r = room_of(shared);
    at_t w = at_of();
    int queries = (int)a.q.rows;
    int keys = (int)a.k.rows;
    /* Late queries see the most keys: they come first. */
    int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    int head = (int)blockIdx.y;
    int of = head / a.group;
    if (first >= queries) {
        return;
    }
    sums_t x;
    float o[2][VALUE_PART / 8][4];
    bounds_t bounds = bounds_of(a.queries, first, QUERIES, queries);
    clear<2, VALUE_PART>(o);
    begin_rows(a, w, first, queries, x);
    load_tile<QUERIES, WIDE, WIDE_THREADS>(
        r.q, head_rows(a.q, first, queries, head, a.d));
    if (LATENT) {
        load_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
            r.stage, head_rows(a.k, bounds.begin, keys, of, a.d));
    }
    COPIES_COMMIT();
    int turn = 0;
    for (int at = bounds.begin; at < bounds.end; at += WIDE_TILE) {
        half_t *k = r.stage + (LATENT ? turn * TILE : 0);
        half_t *v = LATENT ? k : k + TILE;
        int load = LATENT ? at + WIDE_TILE : at;
        turn = 1 - turn;
        if (load < bounds.end) {
            load_tile<WIDE_TILE, WIDE, WIDE_THREADS>(
                LATENT ? r.stage + turn * TILE : k,
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
                         at + w.half * 16,
                         head,
                         at >= bounds.all_begin &&
                             at + WIDE_TILE <= bounds.all_end,
                         0};
        float s[1][2][4];
        clear<1, 16>(s);
        multiply_pair<WIDE, WIDE, WIDE>(s, r.q + w.row * WIDE,
                                        k + w.half * 16 * WIDE);
        tell_top(r, w, x, place, s);
        __syncthreads(); /* both halves have told */
        put_probs(a, r, w, place, x, s);
        __syncthreads(); /* P is there */
        add_values<LATENT>(r, w, v, o);
        __syncthreads(); /* the tile and P were used */
    }
    place_t place = {frame, first, 0, head, true, 0};
    COPIES_WAIT(0);
    __syncthreads(); /* the queries were used, or nothing was to be seen */
    finish(a, r, place, queries, x, o);
}

template <bool LATENT>
loong_status_t launch(const loong_kernel_call_t *call, const attention_t &a)
{
    dim3 grid((unsigned)((a.q.rows + QUERIES - 1) / QUERIES),
              (unsigned)a.heads);
    LOONG_TRY(allow_shared(call, forward_wide<LATENT>, SHARED));
    LOONG_LAUNCH((forward_wide<LATENT>), grid, dim3(WIDE_THREADS), SHARED,
                 stream_of(call), a, call->device_frame);
    return launched(call);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    attention_t a = forward_of(call);
    if (shared_limit(call) < SHARED) {
        return loongi_attention_cuda.run(call);
    }
    if (a.q.rows == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(make_spans(call, a, 3));
    return is_latent(a) ? launch<true>(call, a) : launch<false>(call, a);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    uint32_t lse = 1u << (query->num_in + 1);
    uint32_t integers = (1u << query->num_in) - (1u << 3);
    return loongi_attention_local(query, reason) &&
           wide_support(query, reason) &&
           cuda_support(query, lse, integers, reason);
}

CUDA_KERNEL_NAMED(attention, wide, support, attention_workspace, run);
