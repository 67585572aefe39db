/* SPDX-License-Identifier: Apache-2.0 */
#include "proof.h"

#include "cuda.cuh"
#include "mma.cuh"

using namespace loong_cuda;

/* ---- rmsnorm ------------------------------------------------------------- */

static __device__ float sum_of_block(float x, float *room, bool barrier)
{
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) {
        room[threadIdx.x / WARP] = x;
    }
    if (barrier) {
        __syncthreads();
    }
    x = threadIdx.x % WARP < WARPS ? room[threadIdx.x % WARP] : 0.0f;
    return warp_sum(x);
}

static __global__ void __launch_bounds__(BLOCK)
    rmsnorm(int bug, const float *x, const float *w, float *y, int cols)
{
    LOONG_SHARED(float, room, WARPS);
    const float *from = x + (int64_t)blockIdx.x * cols;
    float *to = y + (int64_t)blockIdx.x * cols;
    int end = bug == PROOF_TAIL ? cols / PACK * PACK : cols;
    bool packed = cols % PACK == 0;
    float sum = 0.0f;
    for (int c = (int)threadIdx.x * PACK; c < end; c += BLOCK * PACK) {
        pack_t p = load(from + c, least(PACK, end - c), packed);
        for (int i = 0; i < PACK; i++) {
            sum += p.v[i] * p.v[i];
        }
    }
    sum = sum_of_block(sum, room, bug != PROOF_NO_BARRIER);
    float r = rsqrtf(sum / (float)cols + 1e-5f);
    for (int c = (int)threadIdx.x * PACK; c < end; c += BLOCK * PACK) {
        int n = least(PACK, end - c);
        pack_t p = load(from + c, n, packed);
        pack_t q = load(w + c, n, packed);
        for (int i = 0; i < PACK; i++) {
            p.v[i] *= r * q.v[i];
        }
        store(to + c, p, n, packed);
    }
}

extern "C" void proof_rmsnorm(proof_bug_t bug, const float *x, const float *w,
                              float *y, proof_shape_t shape,
                              cudaStream_t stream)
{
    unsigned blocks = (unsigned)shape.rows + (bug == PROOF_GRID ? 1 : 0);
    LOONG_START((rmsnorm), dim3(blocks), dim3(BLOCK), 0, stream, (int)bug, x,
                 w, y, shape.cols);
}

/* ---- sum ----------------------------------------------------------------- */

static __global__ void __launch_bounds__(BLOCK)
    sum_all(int bug, const float *x, int n, float *sum)
{
    LOONG_SHARED(float, room, WARPS);
    int stride = (int)(gridDim.x * blockDim.x);
    float own = 0.0f;
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += stride) {
        own += x[i];
    }
    own = sum_of_block(own, room, bug != PROOF_NO_BARRIER);
    if (threadIdx.x == 0) {
        atomicAdd(sum, own);
    }
}

extern "C" void proof_sum(proof_bug_t bug, const float *x, int n, float *sum,
                          cudaStream_t stream)
{
    LOONG_START((sum_all), dim3(5), dim3(BLOCK), 0, stream, (int)bug, x, n,
                 sum);
}

/* ---- transpose ----------------------------------------------------------- */

enum { TILE = 32, LINES = 8 };
typedef float line_t[TILE + 1]; /* one more: no two lines in one bank */

static __global__ void transpose(int bug, const float *x, half_t *y, int rows,
                                 int cols)
{
    LOONG_SHARED(line_t, tile, TILE);
    int r0 = (int)blockIdx.y * TILE;
    int c0 = (int)blockIdx.x * TILE;
    for (int i = (int)threadIdx.y; i < TILE; i += LINES) {
        int r = r0 + i;
        int c = c0 + (int)threadIdx.x;
        if (r < rows && c < cols) {
            tile[i][threadIdx.x] = x[(int64_t)r * cols + c];
        }
    }
    if (bug != PROOF_NO_BARRIER) {
        __syncthreads();
    }
    int ld = bug == PROOF_STRIDE ? cols : rows;
    for (int i = (int)threadIdx.y; i < TILE; i += LINES) {
        int c = c0 + i;
        int r = r0 + (int)threadIdx.x;
        if (r < rows && c < cols) {
            narrow(tile[threadIdx.x][i], y + (int64_t)c * ld + r);
        }
    }
}

extern "C" void proof_transpose(proof_bug_t bug, const float *x,
                                unsigned short *y, proof_shape_t shape,
                                cudaStream_t stream)
{
    dim3 grid((unsigned)((shape.cols + TILE - 1) / TILE),
              (unsigned)((shape.rows + TILE - 1) / TILE));
    LOONG_START((transpose), grid, dim3(TILE, LINES), 0, stream, (int)bug, x,
                 y, shape.rows, shape.cols);
}

/* ---- functions ----------------------------------------------------------- */

static __device__ float value_of(int function, float x)
{
    switch (function) {
    case PROOF_EX2:
        return exp2_of(x);
    case PROOF_RCP:
        return inverse_of(x);
    case PROOF_RSQRT:
        return rsqrtf(x);
    case PROOF_EXP:
        return expf(x);
    case PROOF_LOG:
        return logf(x);
    case PROOF_TANH:
        return tanhf(x);
    case PROOF_ERFC:
        return erfcf(x);
    default:
        return x * inverse_of(x);
    }
}

static __global__ void evaluate(int function, const float *x, float *y, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        y[i] = value_of(function, x[i]);
    }
}

extern "C" void proof_function(proof_function_t function, const float *x,
                               float *y, int n, cudaStream_t stream)
{
    LOONG_START((evaluate), dim3((unsigned)((n + BLOCK - 1) / BLOCK)),
                 dim3(BLOCK), 0, stream, (int)function, x, y, n);
}

/* ---- one wrong thing ----------------------------------------------------- */

static __global__ void wrong_access(int wrong, float *x, int n,
                                    const float *host)
{
    LOONG_SHARED(float, room, 64);
    int i = (int)threadIdx.x;
    float v = 0.0f;
    room[i] = 0.0f;
    if (i == 5) {
        switch (wrong) {
        case WRONG_READ:
            v = x[n];
            break;
        case WRONG_WRITE:
            x[-1] = 1.0f;
            break;
        case WRONG_FREED:
            v = x[0];
            break;
        case WRONG_ALIGNMENT:
            v = load(x + 1, PACK, true).v[0];
            break;
        case WRONG_HOST:
            v = host[3];
            break;
        case WRONG_SHARED:
            v = room[59 + i];
            break;
        }
        if (v == 12345.0f) { /* the reads are not left out */
            x[0] = v;
        }
    }
}

static __global__ void wrong_waiting(int wrong, float *x)
{
    int i = (int)threadIdx.x;
    if (wrong == WRONG_DIVERGED) {
        if (i < 3) {
            __syncthreads();
        } else {
            __syncthreads();
        }
    }
    if (wrong == WRONG_LANE && i == 7) {
        return;
    }
    if (wrong == WRONG_LANE || i < 16) {
        x[i] = __shfl_xor_sync(EACH, x[i], 1);
    } else {
        __syncthreads();
    }
}

static __global__ void wrong_lanes(int wrong, float *x)
{
    int i = (int)threadIdx.x;
    bool low = i < WARP / 2;
    unsigned half = 0xffffu;
    if (wrong == WRONG_PLACES) {
        if (low) {
            x[i] = __shfl_xor_sync(EACH, x[i], 1);
        } else {
            x[i] = __shfl_xor_sync(EACH, x[i], 2);
        }
    }
    if (wrong == WRONG_MASKS) {
        __syncwarp(low ? half : EACH);
    }
    if (wrong == WRONG_OWN) {
        x[i] = __shfl_xor_sync(half, x[i], 1);
    }
    if (wrong == WRONG_SOURCE && low) {
        x[i] = __shfl_down_sync(half, x[i], 8);
    }
    if (wrong == WRONG_PRODUCT && i != 3) {
        unsigned a[4] = {0, 0, 0, 0};
        float c[4] = {0, 0, 0, 0};
        MMA(c, a, a);
        x[i] = c[0];
    }
}

extern "C" void proof_wrong(proof_wrong_t wrong, float *x, int n,
                            cudaStream_t stream)
{
    static float *host;
    if (host == NULL) {
        host = static_cast<float *>(calloc(16, sizeof(float)));
    }
    if (wrong < WRONG_DIVERGED) {
        LOONG_START((wrong_access), dim3(2), dim3(64), 0, stream, (int)wrong,
                     x, n, (const float *)host);
    } else if (wrong >= WRONG_PLACES) {
        LOONG_START((wrong_lanes), dim3(1), dim3(32), 0, stream, (int)wrong,
                     x);
    } else {
        LOONG_START((wrong_waiting), dim3(1), dim3(32), 0, stream,
                     (int)wrong, x);
    }
}
