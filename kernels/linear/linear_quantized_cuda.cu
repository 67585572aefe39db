/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_quantized in panels (linear_panels.h), which cuBLASLt multiplies, or
 * the kernels of grouped_linear. Of a panel a thread makes 16 elements, four
 * threads a block of nf4: their codes are one read of 8 bytes, or of 16 of
 * int8. A matrix as a whole, dequantize_blockwise, is one panel. The formula
 * stands in src/base/quant.h. */
#include "linear_panels.h"
#include "map.cuh"
#include "quant.h"

using namespace loong_cuda;

namespace
{

enum { PIECE = 16 /* elements of a thread */ };

/* The numbers of codes of 4 and of 8 bits. */
struct numbers_t {
    float normal[16];
    float dynamic[256];
};

struct part_t {
    const uint8_t *rows;
    int64_t ld, cols; /* bytes of a row, elements of it */
    loong_panel_t panel;
    const int32_t *offset; /* of the experts' rows; or NULL */
    loong_quant_t quant;
    mat_t to;
};

__device__ __forceinline__ float float_at(const uint8_t *at)
{
    return *reinterpret_cast<const float *>(at);
}

/* Of a block; `scales` are those of its row. */
__device__ __forceinline__ float absmax_of(const part_t &a,
                                           const float *dynamic,
                                           const uint8_t *scales, int64_t block)
{
    if (a.quant == LOONG_QUANT_INT8) {
        return float_at(scales);
    }
    if (a.quant == LOONG_QUANT_NF4) {
        return float_at(scales + block * 4);
    }
    const uint8_t *nested =
        scales + loongi_quant_nested_at(a.cols / LOONG_QUANT_BLOCK);
    int64_t before = *reinterpret_cast<const int32_t *>(nested + 4);
    int64_t group =
        block < before ? 0 : (block - before) / LOONG_QUANT_NESTED + 1;
    float coarse =
        __fmul_rn(dynamic[scales[block]], float_at(nested + 8 + group * 4));
    return __fadd_rn(coarse, float_at(nested));
}

/* Eight elements from column `col` on. */
__device__ __forceinline__ pack_t pack_of(const part_t &a, const float *normal,
                                          const uint8_t *row, int64_t col,
                                          float absmax)
{
    pack_t y;
    if (a.quant == LOONG_QUANT_INT8) {
        uint2 w = *reinterpret_cast<const uint2 *>(row + col);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            unsigned word = i < 4 ? w.x : w.y;
            int code = (signed char)(word >> i % 4 * 8);
            y.v[i] = __fmul_rn(__fmul_rn((float)code, absmax),
                               7.874015718698502e-3f);
        }
        return y;
    }
    unsigned w = *reinterpret_cast<const unsigned *>(row + col / 2);
#pragma unroll
    for (int i = 0; i < PACK; i++) { /* the upper bits of a byte come first */
        unsigned code = w >> (i / 2 * 8 + (i % 2 == 0 ? 4 : 0)) & 15u;
        y.v[i] = __fmul_rn(normal[code], absmax);
    }
    return y;
}

template <class T>
__global__ void __launch_bounds__(BLOCK)
    dequantize_kernel(part_t a, numbers_t numbers)
{
    LOONG_SHARED(float, normal, 16);
    LOONG_SHARED(float, dynamic, 256);
    for (int i = (int)threadIdx.x; i < 256; i += BLOCK) {
        dynamic[i] = numbers.dynamic[i];
        if (i < 16) {
            normal[i] = numbers.normal[i];
        }
    }
    __syncthreads();
    int64_t across = (a.to.cols + PIECE - 1) / PIECE;
    int64_t scales_at = loongi_quant_scales_at(a.quant, a.cols);
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
         u < a.to.rows * across; u += (int64_t)gridDim.x * BLOCK) {
        int64_t row = u / across;
        int64_t col = u % across * PIECE;
        int64_t e = row / a.panel.rows;
        if (a.offset != NULL && a.offset[e] == a.offset[e + 1]) {
            continue; /* nothing reads the weights of this expert */
        }
        const uint8_t *from =
            a.rows +
            (e * a.panel.each + a.panel.row + row % a.panel.rows) * a.ld;
        float absmax = absmax_of(a, dynamic, from + scales_at,
                                 (a.panel.col + col) / LOONG_QUANT_BLOCK);
        T *to = row_of<T>(a.to, row) + col;
#pragma unroll
        for (int i = 0; i < PIECE; i += PACK) {
            int n = least(PACK, a.to.cols - col - i);
            if (n > 0) {
                pack_t y =
                    pack_of(a, normal, from, a.panel.col + col + i, absmax);
                store(to + i, y, n, a.to.packed);
            }
        }
    }
}

loong_status_t dequantize(const loong_kernel_call_t *call, const part_t &a)
{
    numbers_t numbers = {};
    memcpy(numbers.normal, loongi_quant_normal, sizeof(numbers.normal));
    if (a.quant == LOONG_QUANT_NF4_DOUBLE) {
        loongi_quant_dynamic(numbers.dynamic);
    }
    if (a.to.half) {
        LOONG_LAUNCH((dequantize_kernel<half_t>), grid_for(call, a.to),
                     dim3(BLOCK), 0, stream_of(call), a, numbers);
    } else {
        LOONG_LAUNCH((dequantize_kernel<float>), grid_for(call, a.to),
                     dim3(BLOCK), 0, stream_of(call), a, numbers);
    }
    return launched(call);
}

loong_status_t make(const loong_kernel_call_t *call, const loong_panel_t *panel,
                    void *to)
{
    const loong_kernel_query_t *q = call->query;
    const loong_linear_quantized_attr_t *attr =
        static_cast<const loong_linear_quantized_attr_t *>(q->attr);
    part_t a = {static_cast<const uint8_t *>(call->ptr[1]),
                q->arg[1].ld,
                attr->cols,
                *panel,
                q->num_in > 3 ? static_cast<const int32_t *>(call->ptr[3])
                              : NULL,
                attr->quant,
                mat_none()};
    a.to.p = to;
    a.to.rows = panel->experts * panel->rows;
    a.to.cols = a.to.ld = panel->cols;
    a.to.half = q->arg[0].dtype == LOONG_BF16;
    a.to.packed = a.to.cols % PACK == 0;
    return dequantize(call, a);
}

const loong_kernel_t *const kernels[] = {&loongi_linear_cuda, NULL};
const loong_kernel_t *const grouped[] = {&loongi_grouped_linear_wgmma_cuda,
                                         &loongi_grouped_linear_tiles_cuda,
                                         &loongi_grouped_linear_cuda, NULL};

/* A panel of 64 MiB of bf16: few launches, and little beside what a layer
 * keeps. */
const loong_linear_panels_t panels = {1 << 25, kernels, grouped, make};

} // namespace

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return loongi_panels_support(&panels, query, reason);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return loongi_panels_workspace(&panels, query);
}

static loong_status_t prepare(loong_context_t *ctx,
                              const loong_kernel_query_t *query, void **state_p)
{
    return loongi_panels_prepare(ctx, &panels, query, state_p);
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    return loongi_panels_run(&panels, call);
}

static bool support_numbers(const loong_kernel_query_t *query,
                            char reason[LOONG_REASON_SIZE])
{
    loong_dtype_t dtype = query->arg[1].dtype;
    if (dtype != LOONG_F32 && dtype != LOONG_BF16) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "operand %d is %s, this kernel takes fp32 and bf16", 1,
                 loong_dtype_name(dtype));
        return false;
    }
    return true;
}

static loong_status_t run_numbers(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_dequantize_blockwise_attr_t *attr =
        static_cast<const loong_dequantize_blockwise_attr_t *>(q->attr);
    int64_t rows = q->arg[0].dim[0];
    loong_panel_t all = {1, rows, 0, rows, 0, attr->cols};
    part_t a = {static_cast<const uint8_t *>(call->ptr[0]),
                q->arg[0].ld,
                attr->cols,
                all,
                NULL,
                attr->quant,
                mat_out(call, 0)};
    return dequantize(call, a);
}

CUDA_KERNEL(dequantize_blockwise, support_numbers, NULL, run_numbers);
CUDA_KERNEL_STATE(linear_quantized, support, workspace, prepare,
                  loongi_panels_destroy, run);
