/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize and dequantize; the formulas stand in quantize_ref.c. Eight lanes
 * take 128 columns of a row, 16 elements each. Where rows share a scale, or are
 * transposed, a block of threads takes 128 of them: it keeps their elements in
 * registers from the largest magnitude to the result, so x is read once. */
#include <cuda_fp8.h>

#include "loong/quantize.h"
#include "map.cuh"

using namespace loong_cuda;

namespace {

enum {
    PIECE = 16, /* elements of a thread: 16 bytes of the result */
    SIDE = LOONG_QUANTIZE_BLOCK,
    LANES = SIDE / PIECE,
    STEP = BLOCK / LANES, /* rows that a block of threads has at a time */
    TURNS = SIDE / STEP,
    PITCH = SIDE / 4 + 1 /* words: rows begin in different banks */
};

struct quantize_t {
    mat_t x, q;
    mat_t scales;      /* one, or those of blocks */
    mat_t transposed;  /* p NULL: not wanted */
    unsigned *amax;
    int given; /* the scale */
    float most;
};

struct piece_t {
    float v[PIECE];
};

/* x[0 .. n - 1], n <= PIECE; the rest is 0. */
__device__ __forceinline__ piece_t read_piece(const mat_t &x, int64_t row,
                                              int64_t col, int n)
{
    piece_t y;
    pack_t low = load_at(x, row, col, least(n, PACK));
    pack_t high = load_at(x, row, col + PACK, least(n, PIECE) - PACK);
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        y.v[i] = low.v[i];
        y.v[PACK + i] = high.v[i];
    }
    return y;
}

/* Bits of the largest magnitude: those of NaN are above all others. */
__device__ __forceinline__ unsigned largest(const piece_t &x)
{
    unsigned most = 0;
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        unsigned a = __float_as_uint(x.v[i]) & 0x7fffffffu;
        most = a > most ? a : most;
    }
    return most;
}

__device__ __forceinline__ unsigned most_of_lanes(unsigned x, int lanes)
{
    for (int lane = lanes / 2; lane > 0; lane /= 2) {
        unsigned other = __shfl_xor_sync(EACH, x, lane);
        x = other > x ? other : x;
    }
    return x;
}

__device__ __forceinline__ float scale_of(const quantize_t &a, unsigned most)
{
    float scale = __uint_as_float(most) / a.most;
    return scale == 0.0f ? 1.0f : scale;
}

template <bool E5M2>
__device__ __forceinline__ uint4 narrow_piece(const piece_t &x, float scale)
{
    unsigned word[4];
#pragma unroll
    for (int w = 0; w < 4; w++) {
        word[w] = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float2 two = {x.v[4 * w + 2 * i] / scale,
                          x.v[4 * w + 2 * i + 1] / scale};
            unsigned bits = __nv_cvt_float2_to_fp8x2(
                two, __NV_SATFINITE, E5M2 ? __NV_E5M2 : __NV_E4M3);
            word[w] |= bits << 16 * i;
        }
    }
    uint4 y = {word[0], word[1], word[2], word[3]};
    return y;
}

/* Byte i of 16. */
__device__ __forceinline__ uint8_t byte_of(const uint4 &x, int i)
{
    unsigned word = i < 4 ? x.x : i < 8 ? x.y : i < 12 ? x.z : x.w;
    return (uint8_t)(word >> i % 4 * 8);
}

__device__ __forceinline__ void write_piece(const mat_t &m, int64_t row,
                                            int64_t col, const uint4 &x, int n)
{
    uint8_t *to = row_of<uint8_t>(m, row) + col;
    if (m.packed && n >= PIECE) {
        *reinterpret_cast<uint4 *>(to) = x;
        return;
    }
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        if (i < n) {
            to[i] = byte_of(x, i);
        }
    }
}

__device__ __forceinline__ float given_scale(const quantize_t &a)
{
    return a.given ? *row_of<float>(a.scales, 0) : 0.0f;
}

/* ---- rows ---------------------------------------------------------------- */

template <bool E5M2>
__global__ void __launch_bounds__(BLOCK)
    quantize_rows(quantize_t a)
{
    int64_t across = (a.x.cols + SIDE - 1) / SIDE;
    int64_t units = a.x.rows * across;
    int lane = (int)threadIdx.x % LANES;
    float scale = given_scale(a);
    unsigned most = 0;
    for (int64_t first = (int64_t)blockIdx.x * STEP; first < units;
         first += (int64_t)gridDim.x * STEP) { /* all lanes come: votes */
        int64_t u = first + threadIdx.x / LANES;
        int64_t row = u < units ? u / across : 0;
        int64_t col = u % across * SIDE + lane * PIECE;
        int n = u < units ? least(PIECE, a.x.cols - col) : 0;
        piece_t x = read_piece(a.x, row, col, n);
        unsigned own = largest(x);
        if (!a.given) {
            own = most_of_lanes(own, LANES);
            scale = scale_of(a, own);
            if (lane == 0 && u < units) {
                row_of<float>(a.scales, row)[u % across] = scale;
            }
        }
        most = own > most ? own : most;
        write_piece(a.q, row, col, narrow_piece<E5M2>(x, scale), n);
    }
    most = most_of_lanes(most, WARP);
    if (threadIdx.x % WARP == 0) {
        atomicMax(a.amax, most);
    }
}

/* ---- blocks of 128 rows -------------------------------------------------- */

/* The largest over a block of threads, in all of them. */
__device__ __forceinline__ unsigned most_of_block(unsigned x, unsigned *room)
{
    x = most_of_lanes(x, WARP);
    __syncthreads(); /* the one before was read */
    if (threadIdx.x % WARP == 0) {
        room[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    return most_of_lanes(room[threadIdx.x % WARPS], WARPS);
}

/* Rows of a tile of bytes as columns. */
__device__ __forceinline__ void turn(const quantize_t &a, const unsigned *tile,
                                     int64_t row, int64_t col)
{
    int64_t rows = a.x.rows - row;
    int first = (int)threadIdx.x % LANES * PIECE;
    for (int t = 0; t < TURNS; t++) {
        int c = t * STEP + (int)threadIdx.x / LANES;
        unsigned word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            unsigned byte =
                tile[(first + i) * PITCH + c / 4] >> c % 4 * 8 & 0xffu;
            word[i / 4] |= byte << i % 4 * 8;
        }
        uint4 y = {word[0], word[1], word[2], word[3]};
        if (col + c < a.x.cols) {
            write_piece(a.transposed, col + c, row + first, y,
                        least(PIECE, rows - first));
        }
    }
}

template <bool E5M2, bool TRANSPOSED>
__global__ void __launch_bounds__(BLOCK) quantize_tiles(quantize_t a)
{
    LOONG_SHARED(unsigned, room, WARPS);
    LOONG_SHARED(unsigned, tile, TRANSPOSED ? SIDE *PITCH : 1);
    int64_t row = (int64_t)blockIdx.x * SIDE;
    int64_t begin = (int64_t)blockIdx.y * SIDE;
    int64_t col = begin + (int)threadIdx.x % LANES * PIECE;
    float scale = given_scale(a);
    unsigned most = 0;
    piece_t x[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int64_t r = row + t * STEP + threadIdx.x / LANES;
        int n = r < a.x.rows ? least(PIECE, a.x.cols - col) : 0;
        x[t] = read_piece(a.x, r, col, n);
        unsigned own = largest(x[t]);
        most = own > most ? own : most;
    }
    most = most_of_block(most, room);
    if (threadIdx.x == 0) {
        atomicMax(a.amax, most);
    }
    if (!a.given) {
        scale = scale_of(a, most);
        if (threadIdx.x == 0) {
            row_of<float>(a.scales, blockIdx.x)[blockIdx.y] = scale;
        }
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int r = t * STEP + (int)threadIdx.x / LANES;
        uint4 y = narrow_piece<E5M2>(x[t], scale);
        if (row + r < a.x.rows) {
            write_piece(a.q, row + r, col, y, least(PIECE, a.x.cols - col));
        }
        if (TRANSPOSED) {
            unsigned *to =
                tile + r * PITCH + (int)threadIdx.x % LANES * (PIECE / 4);
            to[0] = y.x;
            to[1] = y.y;
            to[2] = y.z;
            to[3] = y.w;
        }
    }
    if (TRANSPOSED) {
        __syncthreads();
        turn(a, tile, row, begin);
    }
}

template <bool E5M2>
loong_status_t quantize(const loong_kernel_call_t *call, const quantize_t &a,
                        bool rows)
{
    int64_t across = (a.x.cols + SIDE - 1) / SIDE;
    dim3 tiles((unsigned)((a.x.rows + SIDE - 1) / SIDE), (unsigned)across);
    if (rows) {
        LOONG_LAUNCH((quantize_rows<E5M2>),
                     grid_of(call, (a.x.rows * across + STEP - 1) / STEP),
                     dim3(BLOCK), 0, stream_of(call), a);
    } else if (a.transposed.p != NULL) {
        LOONG_LAUNCH((quantize_tiles<E5M2, true>), tiles, dim3(BLOCK), 0,
                     stream_of(call), a);
    } else {
        LOONG_LAUNCH((quantize_tiles<E5M2, false>), tiles, dim3(BLOCK), 0,
                     stream_of(call), a);
    }
    return launched(call);
}

/* ---- dequantize ---------------------------------------------------------- */

/* The type's bits in fp32's places are the number, but for the difference of
 * the exponents' biases. */
template <bool E5M2> __device__ __forceinline__ float widen_byte(unsigned bits)
{
    const float lift = E5M2 ? 0x1p112f : 0x1p120f;
    unsigned code = bits & 0x7fu;
    float x = __uint_as_float(code << (E5M2 ? 21 : 20)) * lift;
    if (code >= (E5M2 ? 0x7cu : 0x7fu)) {
        x = __uint_as_float(code == 0x7cu ? 0x7f800000u : 0x7fc00000u);
    }
    return bits & 0x80u ? -x : x;
}

struct dequantize_t {
    mat_t q, scales, y;
    int block_rows; /* 0: one scale */
};

template <bool E5M2>
__global__ void __launch_bounds__(BLOCK)
    dequantize_pieces(dequantize_t a)
{
    int64_t across = (a.y.cols + PIECE - 1) / PIECE;
    int64_t units = a.y.rows * across;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += (int64_t)gridDim.x * BLOCK) {
        int64_t row = u / across;
        int64_t col = u % across * PIECE;
        int n = least(PIECE, a.y.cols - col);
        const uint8_t *from = row_of<uint8_t>(a.q, row) + col;
        float scale =
            a.block_rows == 0
                ? *row_of<float>(a.scales, 0)
                : row_of<float>(a.scales, row / a.block_rows)[col / SIDE];
        uint4 q = {0, 0, 0, 0};
        pack_t low, high;
        if (a.q.packed && n == PIECE) {
            q = *reinterpret_cast<const uint4 *>(from);
        }
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            bool all = a.q.packed && n == PIECE;
            unsigned first = all ? byte_of(q, i) : i < n ? from[i] : 0;
            unsigned second = all            ? byte_of(q, PACK + i)
                              : PACK + i < n ? from[PACK + i]
                                             : 0;
            low.v[i] = widen_byte<E5M2>(first) * scale;
            high.v[i] = widen_byte<E5M2>(second) * scale;
        }
        store_at(a.y, row, col, low, least(n, PACK));
        if (n > PACK) {
            store_at(a.y, row, col + PACK, high, n - PACK);
        }
    }
}

const loong_quantize_attr_t *attr_of(const loong_kernel_query_t *query)
{
    return static_cast<const loong_quantize_attr_t *>(query->attr);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_quantize_attr_t *attr = attr_of(call->query);
    bool e5m2 = attr->dtype == LOONG_F8_E5M2;
    bool rows = attr->block_rows != SIDE && !attr->transposed;
    quantize_t a;
    a.x = mat_arg(call, 0);
    a.q = mat_out(call, 0);
    a.given = attr->block_rows == 0;
    a.scales = a.given ? mat_arg(call, 1) : mat_out(call, 1);
    a.amax = static_cast<unsigned *>(call->ptr[call->query->num_in + 2]);
    a.transposed = mat_out(call, 3);
    a.most = e5m2 ? 57344.0f : 448.0f;
    cudaMemsetAsync(a.amax, 0, sizeof(*a.amax), stream_of(call));
    LOONG_TRY(launched(call));
    if (a.x.rows == 0 || a.x.cols == 0) {
        return LOONG_OK;
    }
    return e5m2 ? quantize<true>(call, a, rows)
                : quantize<false>(call, a, rows);
}

static loong_status_t run_back(const loong_kernel_call_t *call)
{
    dequantize_t a = {mat_arg(call, 0), mat_arg(call, 1), mat_out(call, 0),
                      attr_of(call->query)->block_rows};
    int64_t across = (a.y.cols + PIECE - 1) / PIECE;
    dim3 grid = grid_of(call, (a.y.rows * across + BLOCK - 1) / BLOCK);
    if (call->query->arg[0].dtype == LOONG_F8_E5M2) {
        LOONG_LAUNCH((dequantize_pieces<true>), grid, dim3(BLOCK), 0,
                     stream_of(call), a);
    } else {
        LOONG_LAUNCH((dequantize_pieces<false>), grid, dim3(BLOCK), 0,
                     stream_of(call), a);
    }
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    uint32_t q = 1u << query->num_in | 1u << (query->num_in + 3);
    return cuda_support(query, ~1u, q, reason);
}

static bool support_back(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1, 1u << 0, reason);
}

CUDA_KERNEL(quantize, support, NULL, run);
CUDA_KERNEL(dequantize, support_back, NULL, run_back);
