/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CUDA kernels share (kernels/<op>/<op>_cuda.cu). Storage is fp32 or
 * bf16, arithmetic fp32. Rows are read and written 8 elements at a time (16
 * bytes of bf16) where addresses allow, else one by one. The same source runs
 * on the simulated device of the tests, whose headers stand in front of CUDA's:
 * so kernels are launched and shared arrays declared by the macros below.
 */
#ifndef LOONG_CUDA_CUH
#define LOONG_CUDA_CUH

#include <math.h>
#include <stdio.h>

#include "base.h"
#include "list.h"
#include "loong/device.h"
#include "loong/kernel.h"
#include "loong/ops.h"
#include "pack.cuh"
#include "support.cuh"

#ifndef CUDASIM
#define LOONG_KERNEL(...) __VA_ARGS__
#define LOONG_START(kernel_, grid_, block_, shared_, stream_, ...)            \
    LOONG_KERNEL kernel_<<<grid_, block_, shared_, stream_>>>(__VA_ARGS__)
#define LOONG_SHARED(type_, name_, count_) __shared__ type_ name_[count_]
#define LOONG_SHARED_DYNAMIC(type_, name_)                                    \
    extern __shared__ __align__(16) unsigned char loong_dynamic[];            \
    type_ *const name_ = reinterpret_cast<type_ *>(loong_dynamic)
#endif

/* The kernel stands in parentheses, template arguments included; `call` is what
 * it is launched for. */
#define LOONG_LAUNCH(kernel_, grid_, block_, shared_, stream_, ...)           \
    do {                                                                      \
        if (!loong_cuda::only_loaded(                                         \
                call,                                                         \
                reinterpret_cast<const void *>(LOONG_KERNEL kernel_))) {      \
            LOONG_START(kernel_, grid_, block_, shared_, stream_,             \
                        __VA_ARGS__);                                         \
        }                                                                     \
    } while (0)

namespace loong_cuda {

/* CUDA loads a kernel when it is first launched, and may then wait for all that
 * is on the device: for a message whose other end waits for this rank, for
 * ever. To ask for its attributes loads it before. `launched` tells what came
 * of it. */
static inline bool only_loaded(const loong_kernel_call_t *call,
                               const void *kernel)
{
    struct cudaFuncAttributes attributes;
    if (call->load) {
        (void)cudaFuncGetAttributes(&attributes, kernel);
    }
    return call->load;
}

/* ---- operands ------------------------------------------------------------ */

/* An operand as a matrix. */
struct mat_t {
    void *p; /* NULL: absent */
    int64_t rows;
    int64_t cols;
    int64_t ld;
    int half;   /* bf16 */
    int packed; /* rows begin at multiples of 16 bytes */
};

static inline mat_t mat_none(void)
{
    mat_t m = {NULL, 0, 0, 0, 0, 1};
    return m;
}

static inline mat_t mat_arg(const loong_kernel_call_t *call, int a)
{
    if (a >= call->query->num_in + call->query->num_out ||
        call->ptr[a] == NULL) {
        return mat_none();
    }
    const loong_karg_t *arg = &call->query->arg[a];
    mat_t m = mat_none();
    m.p = call->ptr[a];
    m.rows = loong_karg_rows(arg);
    m.cols = loong_karg_cols(arg);
    m.ld = arg->rank > 1 ? arg->ld : m.cols;
    m.half = arg->dtype == LOONG_BF16;
    size_t row = (size_t)m.ld * loong_dtype_size(arg->dtype);
    m.packed = ((uintptr_t)m.p % 16 == 0 && row % 16 == 0) ||
               ((uintptr_t)m.p % 16 == 0 && m.rows == 1);
    return m;
}

static inline mat_t mat_out(const loong_kernel_call_t *call, int o)
{
    return mat_arg(call, call->query->num_in + o);
}

/* The last offset of operand i, which counts the rows; NULL: all. */
static inline const int32_t *rows_by(const loong_kernel_call_t *call, int i)
{
    const loong_kernel_query_t *q = call->query;
    return i < q->num_in && call->ptr[i] != NULL
               ? static_cast<const int32_t *>(call->ptr[i]) +
                     q->arg[i].dim[0] - 1
               : NULL;
}

/* Columns begin .. begin + cols - 1. */
static inline mat_t mat_columns(mat_t m, int64_t begin, int64_t cols)
{
    int64_t size = m.half ? 2 : 4;
    m.p = static_cast<char *>(m.p) + begin * size;
    m.cols = cols;
    m.packed = m.packed && begin * size % 16 == 0;
    return m;
}

template <class T>
static __host__ __device__ __forceinline__ T *row_of(const mat_t &m,
                                                     int64_t row)
{
    return static_cast<T *>(m.p) + row * m.ld;
}

static __device__ __forceinline__ int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

/* ---- sums over a block --------------------------------------------------- */

enum { BLOCK = 256, WARPS = BLOCK / WARP };

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        x += __shfl_xor_sync(EACH, x, lane);
    }
    return x;
}

/* The sum over BLOCK threads, in all of them, in an order of its own. room
 * [WARPS] is shared and free again after the next barrier. */
static __device__ __forceinline__ float block_sum(float x, float *room)
{
    int lane = (int)threadIdx.x % WARP;
    x = warp_sum(x);
    __syncthreads(); /* the sum before was read */
    if (lane == 0) {
        room[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    x = lane < WARPS ? room[lane] : 0.0f;
    return warp_sum(x);
}

/* The largest of a block, in all threads. */
static __device__ __forceinline__ float block_max(float x, float *room)
{
    int lane = (int)threadIdx.x % WARP;
    for (int other = WARP / 2; other > 0; other /= 2) {
        x = fmaxf(x, __shfl_xor_sync(EACH, x, other));
    }
    __syncthreads(); /* the room was read */
    if (lane == 0) {
        room[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    x = room[lane % WARPS];
    for (int other = WARP / 2; other > 0; other /= 2) {
        x = fmaxf(x, __shfl_xor_sync(EACH, x, other));
    }
    return x;
}

/* ---- the host's side ----------------------------------------------------- */

static inline cudaStream_t stream_of(const loong_kernel_call_t *call)
{
    return static_cast<cudaStream_t>(call->stream);
}

/* Blocks for `units` pieces of work, at most so many that the device is full
 * several times over: kernels step by the grid, and what they compute does not
 * depend on it. */
static inline dim3 grid_of(const loong_kernel_call_t *call, int64_t units)
{
    enum { EACH_HAS = 16 };
    int64_t most =
        (int64_t)EACH_HAS * loong_device_caps(call->device)->processors;
    return dim3((unsigned)LOONG_MAX(LOONG_MIN(units, most), 1));
}

/* What the launches of a run came to. */
static inline loong_status_t launched(const loong_kernel_call_t *call)
{
    cudaError_t error = cudaGetLastError();
    LOONG_CHECK(call->ctx, error == cudaSuccess, LOONG_ERR_DEVICE,
                "%s: launch failed: %s", call->query->op,
                cudaGetErrorString(error));
    return LOONG_OK;
}

/* Bytes of shared memory that a block may have. */
static inline size_t shared_limit(const loong_kernel_call_t *call)
{
    return loong_device_caps(call->device)->block_shared;
}

/* Dynamic shared memory beyond what every kernel may have: the most that any
 * launch of this one takes, since graphs hold launches from before. */
template <class Kernel>
static inline loong_status_t allow_shared(const loong_kernel_call_t *call,
                                          Kernel *kernel, size_t bytes)
{
    enum { ALWAYS = 48 * 1024 };
    cudaError_t error = cudaSuccess;
    if (bytes > ALWAYS) {
        error = cudaFuncSetAttribute(
            reinterpret_cast<const void *>(kernel),
            cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    }
    LOONG_CHECK(call->ctx, error == cudaSuccess, LOONG_ERR_DEVICE,
                "%s: %zu bytes of shared memory: %s", call->query->op, bytes,
                cudaGetErrorString(error));
    return LOONG_OK;
}

} // namespace loong_cuda

/* Defines one kernel; `workspace_` may be NULL. CUDA_KERNEL_NAMED: one of
 * several of an op. CUDA_KERNEL_STATE: with what its launches share.
 * CUDA_KERNEL_COMM: and needs the other ranks of a group; the host waits for
 * sizes. */
#define CUDA_KERNEL(op_, support_, workspace_, run_)                          \
    extern "C" const loong_kernel_t loongi_##op_##_cuda = {                   \
        #op_ "_cuda", #op_, "cuda", support_, workspace_, NULL,               \
        NULL,         run_, false, false, false, NULL}
#define CUDA_KERNEL_NAMED(op_, suffix_, support_, workspace_, run_)           \
    extern "C" const loong_kernel_t loongi_##op_##_##suffix_##_cuda = {       \
        #op_ "_" #suffix_ "_cuda",                                            \
        #op_,                                                                 \
        "cuda",                                                               \
        support_,                                                             \
        workspace_,                                                           \
        NULL,                                                                 \
        NULL,                                                                 \
        run_,                                                                 \
        false,                                                                \
        false,                                                                \
        false,                                                                \
        NULL}
#define CUDA_KERNEL_STATE(op_, support_, workspace_, prepare_, destroy_,      \
                          run_)                                               \
    extern "C" const loong_kernel_t loongi_##op_##_cuda = {                   \
        #op_ "_cuda", #op_, "cuda", support_, workspace_, prepare_,           \
        destroy_,     run_, false,  false,    false,      NULL}
#define CUDA_KERNEL_COMM(op_, support_, workspace_, prepare_, destroy_, run_) \
    extern "C" const loong_kernel_t loongi_##op_##_cuda = {                   \
        #op_ "_cuda", #op_, "cuda", support_, workspace_, prepare_,           \
        destroy_,     run_, true,   false,    true,       NULL}

#endif
