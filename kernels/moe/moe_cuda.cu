/* SPDX-License-Identifier: Apache-2.0
 *
 * permute, unpermute and its weights, sigmoid_gate, loss_scale; the formulas
 * stand in moe_ref.c. */
#include "moe/moe.cuh"

using namespace loong_cuda;

namespace {

/* The weight of a slot, 1 without weights. */
__device__ __forceinline__ float weight_of(const mat_t &w, int64_t slot)
{
    return w.p != NULL ? static_cast<const float *>(w.p)[slot] : 1.0f;
}

/* Packs of rows; those that fn has nothing for are left alone. */
template <class Fn>
__global__ void __launch_bounds__(BLOCK) move_kernel(Fn fn, mat_t y)
{
    int64_t packs = (y.cols + PACK - 1) / PACK;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
         u < y.rows * packs; u += step) {
        int64_t col = u % packs * PACK;
        int n = least(PACK, y.cols - col);
        pack_t p = {{0}};
        if (fn(u / packs, col, n, &p)) {
            store_at(y, u / packs, col, p, n);
        }
    }
}

template <class Fn>
loong_status_t move_rows(const loong_kernel_call_t *call, Fn fn, mat_t y)
{
    LOONG_LAUNCH((move_kernel<Fn>), grid_for(call, y), dim3(BLOCK), 0,
                 stream_of(call), fn, y);
    return launched(call);
}

struct permute_fn {
    mat_t x, w;
    indices_t source;
    int64_t k;
    __device__ bool operator()(int64_t row, int64_t col, int n,
                               pack_t *y) const
    {
        int64_t slot = index_at(source, row);
        if (slot < 0) {
            return false;
        }
        *y = load_at(x, slot / k, col, n);
        float w1 = weight_of(w, slot);
        for (int i = 0; i < PACK; i++) {
            y->v[i] *= w1;
        }
        return true;
    }
};

struct unpermute_fn {
    mat_t x, w;
    mat_t sum; /* that is added to, or none */
    indices_t dest;
    int64_t k;
    __device__ bool operator()(int64_t row, int64_t col, int n,
                               pack_t *y) const
    {
        if (dest.p[row * k] == LOONG_NO_TOKEN) {
            return false;
        }
        if (sum.p != NULL) {
            *y = load_at(sum, row, col, n);
        }
        for (int64_t slot = row * k; slot < (row + 1) * k; slot++) {
            int64_t from = index_at(dest, slot);
            if (from < 0) {
                continue;
            }
            pack_t p = load_at(x, from, col, n);
            float w1 = weight_of(w, slot);
            for (int i = 0; i < PACK; i++) {
                y->v[i] += w1 * p.v[i];
            }
        }
        return true;
    }
};

struct dw_t {
    mat_t dy, x;
    indices_t dest;
    float *dw;
    int64_t slots, k;
    bool add;
};

/* The sum over channels of two rows, in all lanes of a warp. */
__device__ __forceinline__ float dot_rows(const mat_t &a, int64_t i,
                                          const mat_t &b, int64_t j)
{
    float sum = 0.0f;
    for (int64_t c = (int)threadIdx.x % WARP * PACK; c < a.cols;
         c += WARP * PACK) {
        int n = least(PACK, a.cols - c);
        pack_t x = load_at(a, i, c, n);
        pack_t y = load_at(b, j, c, n);
        for (int l = 0; l < PACK; l++) {
            sum += x.v[l] * y.v[l];
        }
    }
    return warp_sum(sum);
}

/* A warp takes a slot. */
__global__ void __launch_bounds__(BLOCK) weigh_slots(dw_t a)
{
    for (int64_t s = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         s < a.slots; s += (int64_t)gridDim.x * WARPS) {
        int64_t row = index_at(a.dest, s);
        float sum = row >= 0 ? dot_rows(a.dy, s / a.k, a.x, row) : 0.0f;
        if (threadIdx.x % WARP == 0 && row != LOONG_NO_TOKEN) {
            a.dw[s] = a.add ? a.dw[s] + sum : sum;
        }
    }
}

/* ---- sigmoid_gate -------------------------------------------------------- */

__device__ __forceinline__ float gate_of(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <class T> struct gate_fn {
    mat_t x, gate;
    bool aligned() const
    {
        return x.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        pack_t y = load_as<T, WHOLE>(x, row, col, n);
        float s = gate_of(widen(*row_of<T>(gate, row)));
        for (int i = 0; i < PACK; i++) {
            y.v[i] *= s;
        }
        return y;
    }
};

/* dg of a row: a warp. */
__global__ void __launch_bounds__(BLOCK)
    gate_gradients(mat_t dy, mat_t x, mat_t gate, mat_t dgate)
{
    int64_t rows = dy.rows;
    for (int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         t < rows; t += (int64_t)gridDim.x * WARPS) {
        float s = gate_of(load_one(gate, t, 0));
        pack_t slope = {{0}};
        slope.v[0] = s * (1.0f - s) * dot_rows(dy, t, x, t);
        if (threadIdx.x % WARP == 0) {
            store_at(dgate, t, 0, slope, 1);
        }
    }
}

template <class T> struct loss_scale_fn {
    int loss;
    bool aligned() const
    {
        return true;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t, int64_t, int,
                         const loong_frame_t *frame) const
    {
        pack_t y;
        for (int i = 0; i < PACK; i++) {
            y.v[i] = (float)frame->loss_scale[loss];
        }
        return y;
    }
};

mat_t weights_of(const loong_kernel_call_t *call)
{
    return call->query->num_in > 3 ? mat_arg(call, 3) : mat_none();
}

dim3 grid_of_warps(const loong_kernel_call_t *call, int64_t units)
{
    return grid_of(call, (units + WARPS - 1) / WARPS);
}

} // namespace

static loong_status_t run_permute(const loong_kernel_call_t *call)
{
    const loong_karg_t *dest = &call->query->arg[2];
    permute_fn fn = {mat_arg(call, 0), weights_of(call),
                     indices_of(call, 1, -1, dest->dim[0] * dest->dim[1]),
                     dest->dim[1]};
    return move_rows(call, fn, mat_out(call, 0));
}

static loong_status_t run_unpermute(const loong_kernel_call_t *call)
{
    mat_t x = mat_arg(call, 0);
    unpermute_fn fn = {x, weights_of(call),
                       call->accumulate & 1u ? mat_out(call, 0) : mat_none(),
                       indices_of(call, 2, LOONG_NO_TOKEN, x.rows),
                       call->query->arg[2].dim[1]};
    return move_rows(call, fn, mat_out(call, 0));
}

static loong_status_t run_unpermute_dw(const loong_kernel_call_t *call)
{
    const loong_karg_t *dest = &call->query->arg[2];
    mat_t x = mat_arg(call, 1);
    dw_t a = {mat_arg(call, 0),
              x,
              indices_of(call, 2, LOONG_NO_TOKEN, x.rows),
              static_cast<float *>(call->ptr[3]),
              dest->dim[0] * dest->dim[1],
              dest->dim[1],
              (call->accumulate & 1u) != 0};
    LOONG_LAUNCH((weigh_slots), grid_of_warps(call, a.slots), dim3(BLOCK), 0,
                 stream_of(call), a);
    return launched(call);
}

static loong_status_t run_gate(const loong_kernel_call_t *call)
{
    return generate<gate_fn>(call, mat_out(call, 0), mat_arg(call, 0),
                             mat_arg(call, 1));
}

static loong_status_t run_gate_grad(const loong_kernel_call_t *call)
{
    mat_t dy = mat_arg(call, 0);
    mat_t gate = mat_arg(call, 2);
    LOONG_LAUNCH((gate_gradients), grid_of_warps(call, dy.rows), dim3(BLOCK), 0,
                 stream_of(call), dy, mat_arg(call, 1), gate, mat_out(call, 1));
    return generate<gate_fn>(call, mat_out(call, 0), dy, gate);
}

static loong_status_t run_loss_scale(const loong_kernel_call_t *call)
{
    return generate<loss_scale_fn>(
        call, mat_out(call, 0),
        static_cast<const loong_loss_attr_t *>(call->query->attr)->loss);
}

/* Weights are wide, source and dest integers. */
static bool support_move(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, query->num_in > 3 ? 1u << 3 : 0,
                        1u << 1 | 1u << 2 |
                            (query->num_in > 4 ? 1u << 4 : 0),
                        reason);
}

static bool support_dw(const loong_kernel_query_t *query,
                       char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 3, 1u << 2, reason);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason) &&
           cuda_support_same(query, 0, reason);
}

CUDA_KERNEL(permute, support_move, NULL, run_permute);
CUDA_KERNEL(unpermute, support_move, NULL, run_unpermute);
CUDA_KERNEL(unpermute_dw, support_dw, NULL, run_unpermute_dw);
CUDA_KERNEL(sigmoid_gate, support, NULL, run_gate);
CUDA_KERNEL(sigmoid_gate_grad, support, NULL, run_gate_grad);
CUDA_KERNEL(loss_scale, support, NULL, run_loss_scale);
