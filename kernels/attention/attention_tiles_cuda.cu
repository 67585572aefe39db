/* SPDX-License-Identifier: Apache-2.0
 *
 * attention in tiles on tensor cores (running maximum and sum as in Dao et al.
 * 2022). Per tile of keys: scores, their probabilities, and these times the
 * values; scores and probabilities never leave registers. While a tile is
 * multiplied the next keys are on their way, during the scores its values. */
#include "attention_tiles.cuh"

using namespace loong_cuda;

namespace {

/* KEYS: of a tile. */
template <int DK, int DV, int MT, int KEYS> struct forward_t {
    enum { QUERIES = 16 * MT * TILE_WARPS };
    static constexpr size_t SHARED =
        sizeof(half_t) * (QUERIES * DK + KEYS * (DK + DV));
};

/* What a thread has of its rows. */
template <int DV, int MT> struct sums_t {
    float o[MT][DV / 8][4];
    float top[MT][2]; /* the largest score so far */
    float sum[MT][2]; /* of probabilities, the thread's own part */
};

template <int DV, int MT>
__device__ __forceinline__ void begin_rows(sums_t<DV, MT> &r)
{
    clear<MT, DV>(r.o);
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            r.top[m][h] = -INFINITY;
            r.sum[m][h] = 0.0f;
        }
    }
}

/* Scores that no probability belongs to become minus infinity. Spans are read
 * here, where few tiles come: they have no registers of their own. */
template <int MT, int KEYS>
__device__ __forceinline__ void mask(const attention_t &a,
                                     const place_t &place, int queries,
                                     float s[MT][KEYS / 8][4])
{
    int warp = (int)threadIdx.x / WARP;
    int first = place.key + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int t = place.query + row_in_tile(warp, MT, m, h);
            span_t none = {0, 0, 0};
            span_t span = t < queries ? a.queries[t] : none;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) {
                    if (!is_seen(span, first + n * 8 + i % 2)) {
                        s[m][n][i] = -INFINITY;
                    }
                }
            }
        }
    }
}

/* Scores of one row become probabilities, sums before are brought to the new
 * maximum. */
template <int DV, int MT, int KEYS>
__device__ __forceinline__ void make_probs(sums_t<DV, MT> &r, int m, int h,
                                           float s[KEYS / 8][4], float factor)
{
    float top = r.top[m][h];
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    }
    top = row_max(top);
    /* No score yet: any finite reference will do. */
    float base = top == -INFINITY ? 0.0f : top * factor;
    float decay = exp2_of(r.top[m][h] * factor - base);
    float sum = r.sum[m][h] * decay;
    r.top[m][h] = top;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; i++) {
            s[n][i] = exp2_of(s[n][i] * factor - base);
            sum += s[n][i];
        }
    }
    r.sum[m][h] = sum;
#pragma unroll
    for (int n = 0; n < DV / 8; n++) {
        r.o[m][n][2 * h] *= decay;
        r.o[m][n][2 * h + 1] *= decay;
    }
}

template <int MT, int KEYS>
__device__ __forceinline__ void drop(const attention_t &a, const place_t &place,
                                     float s[MT][KEYS / 8][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[m][n][i] *=
                    factor_at(a, place, (m * KEYS / 8 + n) * 4 + i);
            }
        }
    }
}

/* Scores of a tile become probabilities; sums so far are brought along. */
template <int DV, int MT, int KEYS, bool DROPS, class Sums>
__device__ __forceinline__ void weigh(const attention_t &a,
                                      const place_t &place, int queries,
                                      Sums &r,
                                      float s[MT][KEYS / 8][4])
{
    float factor = a.scale * LOG2_E;
    if (!place.whole) {
        mask<MT, KEYS>(a, place, queries, s);
    }
#pragma unroll
    for (int m = 0; m < MT; m++) {
        make_probs<DV, MT, KEYS>(r, m, 0, s[m], factor);
        make_probs<DV, MT, KEYS>(r, m, 1, s[m], factor);
    }
    if (DROPS) {
        drop<MT, KEYS>(a, place, s);
    }
}

/* Outputs into the room of the queries, from there to memory. */
template <int DV, int MT>
__device__ __forceinline__ void finish(const attention_t &a,
                                       const place_t &place, int queries,
                                       sums_t<DV, MT> &r, half_t *room)
{
    int first = place.query;
    int head = place.head;
    int warp = (int)threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    float inverse[MT][2];
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = row_sum(r.sum[m][h]);
            int t = first + row_in_tile(warp, MT, m, h);
            inverse[m][h] = sum > 0.0f ? 1.0f / sum : 0.0f;
            if (a.lse.p != NULL && lane % 4 == 0 && t < queries) {
                row_of<float>(a.lse, t)[head] =
                    a.scale * r.top[m][h] + logf(sum);
            }
        }
    }
    put_rows<DV, MT, DV>(room, warp * MT * 16, 0, r.o, inverse);
    __syncwarp();
    store_tile<MT * 16, DV, WARP>(
        head_rows(a.o, first, queries, head, a.d_v), room, lane,
        warp * MT * 16);
}

template <int DK, int DV, int MT, int KEYS, bool DROPS>
__global__ void __launch_bounds__(TILE_THREADS)
    forward_tiles(attention_t a, const loong_frame_t *frame)
{
    enum { QUERIES = forward_t<DK, DV, MT, KEYS>::QUERIES };
    LOONG_SHARED_DYNAMIC(half_t, q);
    half_t *k = q + QUERIES * DK;
    half_t *v = k + KEYS * DK;
    int queries = (int)a.q.rows;
    int keys = (int)a.k.rows;
    /* Late queries see the most keys: they come first. */
    int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    int head = (int)blockIdx.y;
    int of = head / a.group;
    int warp = (int)threadIdx.x / WARP;
    if (first >= queries) {
        return;
    }
    sums_t<DV, MT> r;
    bounds_t bounds = bounds_of(a.queries, first, QUERIES, queries);
    begin_rows<DV, MT>(r);
    load_tile<QUERIES, DK, TILE_THREADS>(
        q, head_rows(a.q, first, queries, head, a.d));
    load_tile<KEYS, DK, TILE_THREADS>(
        k, head_rows(a.k, bounds.begin, keys, of, a.d));
    COPIES_COMMIT();
    for (int at = bounds.begin; at < bounds.end; at += KEYS) {
        float s[MT][KEYS / 8][4];
        COPIES_WAIT(0);
        __syncthreads(); /* keys are there, values were used */
        load_tile<KEYS, DV, TILE_THREADS>(
            v, head_rows(a.v, at, keys, of, a.d_v));
        COPIES_COMMIT();
        place_t place = {frame,
                         first,
                         at,
                         head,
                         at >= bounds.all_begin && at + KEYS <= bounds.all_end,
                         0};
        place.kept =
            kept_of<MT, KEYS, false, DROPS>(a, place, queries, keys);
        clear<MT, KEYS>(s);
        multiply_rows<DK, MT, KEYS>(s, q, warp * MT * 16, k);
        weigh<DV, MT, KEYS, DROPS>(a, place, queries, r, s);
        COPIES_WAIT(0);
        __syncthreads(); /* values are there, keys were used */
        if (at + KEYS < bounds.end) {
            load_tile<KEYS, DK, TILE_THREADS>(
                k, head_rows(a.k, at + KEYS, keys, of, a.d));
            COPIES_COMMIT();
        }
        multiply_on<DV, MT, KEYS, DV>(r.o, s, v, 0);
    }
    COPIES_WAIT(0);
    __syncthreads(); /* the queries were used, or nothing was to be seen */
    place_t place = {frame, first, 0, head, true, 0};
    finish<DV, MT>(a, place, queries, r, q);
}

template <int DK, int DV, int MT, int KEYS, bool DROPS>
loong_status_t launch(const loong_kernel_call_t *call, const attention_t &a)
{
    typedef forward_t<DK, DV, MT, KEYS> shape;
    int64_t tiles = (a.q.rows + shape::QUERIES - 1) / shape::QUERIES;
    LOONG_TRY(allow_shared(call, forward_tiles<DK, DV, MT, KEYS, DROPS>,
                           shape::SHARED));
    LOONG_LAUNCH((forward_tiles<DK, DV, MT, KEYS, DROPS>),
                 dim3((unsigned)tiles, (unsigned)a.heads), dim3(TILE_THREADS),
                 shape::SHARED, stream_of(call), a, call->device_frame);
    return launched(call);
}

/* With dropout no tile has more keys than a word of bits for both rows. */
template <int DK, int DV, int MT, int KEYS>
loong_status_t launch_tiles(const loong_kernel_call_t *call,
                            const attention_t &a)
{
    return a.chance.limit > 0 ? launch<DK, DV, MT, 32, true>(call, a)
                              : launch<DK, DV, MT, KEYS, false>(call, a);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    attention_t a = forward_of(call);
    tile_sizes_t size = tile_sizes(
        static_cast<const loong_attention_attr_t *>(call->query->attr));
    if (a.q.rows == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(make_spans(call, a, 3));
    switch (size.keys) {
    case 64:
        return launch_tiles<64, 64, 2, 64>(call, a);
    case 128:
        return launch_tiles<128, 128, 2, 32>(call, a);
    case 192:
        return launch_tiles<192, 128, 2, 32>(call, a);
    default:
        return launch_tiles<256, 256, 1, 32>(call, a);
    }
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    uint32_t lse = 1u << (query->num_in + 1);
    uint32_t integers = (1u << query->num_in) - (1u << 3);
    return loongi_attention_local(query, reason) &&
           tiles_support(query, reason) &&
           cuda_support(query, lse, integers, reason);
}

CUDA_KERNEL_NAMED(attention, tiles, support, attention_workspace, run);
