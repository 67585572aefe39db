/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_stats; the formula stands in tensor_stats_ref.c. So many blocks as
 * sums over rows have (fold.cuh) keep theirs in the workspace; a warp adds them
 * up. */
#include "fold.cuh"

using namespace loong_cuda;

namespace {

struct stats_t {
    double squares, largest, wrong;
};

__device__ __forceinline__ void take(stats_t *s, const stats_t &more)
{
    s->squares += more.squares;
    s->largest = fmax(s->largest, more.largest);
    s->wrong += more.wrong;
}

/* Of all lanes, in all of them. */
__device__ __forceinline__ stats_t warp_stats(stats_t s)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        stats_t other = {__shfl_xor_sync(EACH, s.squares, lane),
                         __shfl_xor_sync(EACH, s.largest, lane),
                         __shfl_xor_sync(EACH, s.wrong, lane)};
        take(&s, other);
    }
    return s;
}

__global__ void __launch_bounds__(BLOCK)
    part_stats(mat_t x, const int32_t *counted, stats_t *part)
{
    LOONG_SHARED(stats_t, room, WARPS);
    int64_t cols = x.cols;
    int64_t packs = (cols + PACK - 1) / PACK;
    int64_t rows = x.rows;
    int64_t units = (counted != NULL ? least(*counted, rows) : rows) * packs;
    stats_t s = {0.0, 0.0, 0.0};
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += FOLD_PARTS * BLOCK) {
        int64_t col = u % packs * PACK;
        int n = least(PACK, cols - col);
        pack_t p = load_at(x, u / packs, col, n);
#pragma unroll
        for (int i = 0; i < PACK && i < n; i++) {
            double v = (double)p.v[i];
            bool good = fabsf(p.v[i]) < INFINITY;
            stats_t one = {good ? v * v : 0.0, good ? fabs(v) : 0.0,
                           good ? 0.0 : 1.0};
            take(&s, one);
        }
    }
    s = warp_stats(s);
    if (threadIdx.x % WARP == 0) {
        room[threadIdx.x / WARP] = s;
    }
    __syncthreads();
    for (int w = 1; w < WARPS && threadIdx.x == 0; w++) {
        take(&s, room[w]);
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s;
    }
}

__global__ void __launch_bounds__(WARP)
    all_stats(const stats_t *part, stats_t *y, bool add)
{
    stats_t s = {0.0, 0.0, 0.0};
    for (int p = (int)threadIdx.x; p < FOLD_PARTS; p += WARP) {
        take(&s, part[p]);
    }
    s = warp_stats(s);
    if (threadIdx.x == 0) {
        if (add) {
            take(&s, *y);
        }
        *y = s;
    }
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    stats_t *part = static_cast<stats_t *>(call->workspace);
    LOONG_LAUNCH((part_stats), dim3(FOLD_PARTS), dim3(BLOCK), 0,
                 stream_of(call), mat_arg(call, 0), rows_by(call, 1), part);
    LOONG_LAUNCH((all_stats), dim3(1), dim3(WARP), 0, stream_of(call), part,
                 static_cast<stats_t *>(call->ptr[call->query->num_in]),
                 (call->accumulate & 1u) != 0);
    return launched(call);
}

static size_t workspace(const loong_kernel_query_t *)
{
    return FOLD_PARTS * sizeof(stats_t);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 1u << 1 | 1u << query->num_in, reason);
}

CUDA_KERNEL(tensor_stats, support, workspace, run);
