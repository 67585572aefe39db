/* SPDX-License-Identifier: Apache-2.0
 *
 * segment_sum and segment_repeat; the formulas stand in segment_ref.c. A block
 * sums a segment, in an order that its length alone decides. */
#include "map.cuh"

using namespace loong_cuda;

namespace
{

struct segments_t {
    const int32_t *offset; /* [count + 1] */
    int64_t count;
    int64_t rows;
    loong_device_error_t *error;
};

/* Tells of a wrong offset; by the threads of block 0. */
__device__ void check_offsets(const segments_t &g)
{
    if (blockIdx.x > 0) {
        return;
    }
    for (int64_t s = threadIdx.x; s <= g.count; s += BLOCK) {
        int64_t before = s > 0 ? g.offset[s - 1] : 0;
        int64_t value = g.offset[s];
        if ((value < before || value > g.rows) &&
            atomicCAS(&g.error->kind, 0, (int)LOONG_DEVICE_ERROR_OFFSET) == 0) {
            g.error->operand = 1;
            g.error->value = value;
            g.error->place = s;
            g.error->before = before;
            g.error->end = g.rows;
        }
    }
}

/* Within the rows, also where the offset is wrong. */
__device__ __forceinline__ int64_t row_of_offset(const segments_t &g, int64_t s)
{
    int64_t row = g.offset[s];
    return row < 0 ? 0 : row > g.rows ? g.rows : row;
}

__global__ void __launch_bounds__(BLOCK)
    sum_segments(segments_t g, const float *x, float *y)
{
    LOONG_SHARED(float, room, WARPS);
    check_offsets(g);
    for (int64_t s = blockIdx.x; s < g.count; s += gridDim.x) {
        int64_t end = row_of_offset(g, s + 1);
        float sum = 0.0f;
        for (int64_t t = row_of_offset(g, s) + threadIdx.x; t < end;
             t += BLOCK) {
            sum += x[t];
        }
        sum = block_sum(sum, room);
        if (threadIdx.x == 0) {
            y[s] = sum;
        }
    }
}

/* Each row looks for the last offset that is not behind it. */
__global__ void __launch_bounds__(BLOCK)
    repeat_segments(segments_t g, const float *x, float *y)
{
    check_offsets(g);
    for (int64_t t = (int64_t)blockIdx.x * BLOCK + threadIdx.x; t < g.rows;
         t += (int64_t)gridDim.x * BLOCK) {
        int64_t low = 0; /* so many offsets are not behind t */
        int64_t high = g.count + 1;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (g.offset[middle] <= t) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        y[t] = low > 0 && low <= g.count ? x[low - 1] : 0.0f;
    }
}

segments_t segments_of(const loong_kernel_call_t *call)
{
    const loong_segment_attr_t *a =
        static_cast<const loong_segment_attr_t *>(call->query->attr);
    segments_t g = {static_cast<const int32_t *>(call->ptr[1]),
                    loong_karg_cols(&call->query->arg[1]) - 1, a->rows,
                    call->error};
    return g;
}

} // namespace

static loong_status_t run_sum(const loong_kernel_call_t *call)
{
    segments_t g = segments_of(call);
    LOONG_LAUNCH((sum_segments), grid_of(call, g.count), dim3(BLOCK), 0,
                 stream_of(call), g, static_cast<const float *>(call->ptr[0]),
                 static_cast<float *>(call->ptr[2]));
    return launched(call);
}

static loong_status_t run_repeat(const loong_kernel_call_t *call)
{
    segments_t g = segments_of(call);
    LOONG_LAUNCH((repeat_segments), grid_of(call, (g.rows + BLOCK - 1) / BLOCK),
                 dim3(BLOCK), 0, stream_of(call), g,
                 static_cast<const float *>(call->ptr[0]),
                 static_cast<float *>(call->ptr[2]));
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, ~0u, 1u << 1, reason);
}

CUDA_KERNEL(segment_sum, support, NULL, run_sum);
CUDA_KERNEL(segment_repeat, support, NULL, run_repeat);
