/* SPDX-License-Identifier: Apache-2.0
 *
 * rope_table; the formula stands in rope_ref.c. Frequencies come from the host
 * with the launch; angles are made in double, as positions are large. */
#include "map.cuh"
#include "rope/rope.h"

using namespace loong_cuda;

namespace {

enum { MOST = 256 }; /* pairs */

struct table_t {
    const int32_t *positions;
    mat_t y;
    int half;
    double factor;
    double theta[MOST];
    int8_t axis[MOST];
};

/* A thread makes cosine and sine of one pair. */
__global__ void __launch_bounds__(BLOCK)
    make_table(table_t a)
{
    int64_t units = a.y.rows * a.half;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += step) {
        int64_t row = u / a.half;
        int i = (int)(u % a.half);
        double angle =
            (double)a.positions[a.axis[i] * a.y.rows + row] * a.theta[i];
        float c = (float)(a.factor * cos(angle));
        float s = (float)(a.factor * sin(angle));
        if (a.y.half) {
            narrow(c, row_of<half_t>(a.y, row) + i);
            narrow(s, row_of<half_t>(a.y, row) + a.half + i);
        } else {
            row_of<float>(a.y, row)[i] = c;
            row_of<float>(a.y, row)[a.half + i] = s;
        }
    }
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_rope_table_attr_t *attr =
        static_cast<const loong_rope_table_attr_t *>(call->query->attr);
    table_t a;
    a.positions = static_cast<const int32_t *>(call->ptr[0]);
    a.y = mat_out(call, 0);
    a.half = attr->rotary_dim / 2;
    a.factor = loongi_rope_factor(attr);
    for (int i = 0; i < a.half; i++) {
        a.theta[i] = loongi_rope_frequency(attr, i);
        a.axis[i] = (int8_t)loongi_rope_axis(attr, i);
    }
    dim3 grid = grid_of(call, (a.y.rows * a.half + BLOCK - 1) / BLOCK);
    LOONG_LAUNCH((make_table), grid, dim3(BLOCK), 0, stream_of(call), a);
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    const loong_rope_table_attr_t *attr =
        static_cast<const loong_rope_table_attr_t *>(query->attr);
    if (attr->rotary_dim > 2 * MOST) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%d rotated channels, this kernel takes up to %d",
                 attr->rotary_dim, 2 * (int)MOST);
        return false;
    }
    return cuda_support(query, 0, 1u << 0, reason);
}

CUDA_KERNEL(rope_table, support, NULL, run);
