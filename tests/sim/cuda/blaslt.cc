// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of the simulated device: sums in double, one rounding to the
// type of the result. What a call may not do is refused: sizes that do not
// fit, operands that are less aligned than the algorithm was asked for.
#include <cstring>
#include <vector>

#include "cublasLt.h"
#include "sim.h"

using namespace cudasim;

struct cudasim_desc {
    bool trans[2];
};
struct cudasim_layout {
    cudaDataType_t type;
    int64_t rows, cols, ld;
};
struct cudasim_preference {
    size_t workspace;
    uint32_t alignment;
};

extern "C" const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "success"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "invalid value"
                                                   : "not supported";
}

extern "C" cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete reinterpret_cast<int *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                                   cublasComputeType_t,
                                                   cudaDataType_t)
{
    *desc = new cudasim_desc();
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t attr,
                               const void *value, size_t size)
{
    int32_t trans = 0;
    if (size != sizeof(trans)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(&trans, value, size);
    desc->trans[attr == CUBLASLT_MATMUL_DESC_TRANSB] = trans == CUBLAS_OP_T;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                           uint64_t rows, uint64_t cols, int64_t ld)
{
    *layout = new cudasim_layout{type, (int64_t)rows, (int64_t)cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                 cublasLtMatrixLayoutAttribute_t attr,
                                 const void *value, size_t size)
{
    int64_t *to = attr == CUBLASLT_MATRIX_LAYOUT_ROWS ? &layout->rows
                                                      : &layout->cols;
    if (size != sizeof(*to)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new cudasim_preference{0, 256};
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                     cublasLtMatmulPreferenceAttributes_t attr,
                                     const void *value, size_t size)
{
    if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        memcpy(&p->workspace, value, size);
    } else { // one for all here
        memcpy(&p->alignment, value, size);
    }
    return CUBLAS_STATUS_SUCCESS;
}

static size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

// op(a) [m,k] op(b) [k,n] -> c [m,n], and columns that do not overlap.
static bool sizes_fit(const cudasim_desc *desc, const cudasim_layout *a,
                      const cudasim_layout *b, const cudasim_layout *c)
{
    int64_t m = desc->trans[0] ? a->cols : a->rows;
    int64_t k = desc->trans[0] ? a->rows : a->cols;
    int64_t n = desc->trans[1] ? b->rows : b->cols;
    int64_t other = desc->trans[1] ? b->cols : b->rows;
    return m > 0 && n > 0 && k > 0 && other == k && c->rows == m &&
           c->cols == n && a->ld >= a->rows && b->ld >= b->rows &&
           c->ld >= c->rows;
}

// Algorithm: how much alignment it counts on, and its workspace.
extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
    int wanted, cublasLtMatmulHeuristicResult_t *results, int *count)
{
    *count = 0;
    if (!sizes_fit(desc, a, b, c) || c != d || wanted < 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memset(&results[0], 0, sizeof(results[0]));
    results[0].algo.data[0] = preference->alignment;
    results[0].algo.data[1] = preference->workspace;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static double read(const void *p, cudaDataType_t type, int64_t i)
{
    uint32_t bits;
    float x;
    if (type == CUDA_R_16BF) {
        bits = (uint32_t) static_cast<const uint16_t *>(p)[i] << 16;
        memcpy(&x, &bits, sizeof(x));
        return (double)x;
    }
    return (double)static_cast<const float *>(p)[i];
}

static void write(void *p, cudaDataType_t type, int64_t i, double v)
{
    float x = (float)v;
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (type == CUDA_R_16BF) {
        uint32_t even = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        static_cast<uint16_t *>(p)[i] = (uint16_t)(nan ? 0x7fffu : even);
    } else {
        static_cast<float *>(p)[i] = x;
    }
}

struct product_t {
    cudasim_desc desc;
    cudasim_layout a_desc, b_desc, c_desc;
    const void *a, *b;
    void *c;
    double alpha, beta;
};

// Rows of the sums' length, one behind the other.
static std::vector<double> pack(const void *from, cudaDataType_t type,
                                int64_t rows, int64_t row, int64_t k,
                                int64_t step)
{
    std::vector<double> to((size_t)(rows * k));
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t l = 0; l < k; l++) {
            to[(size_t)(i * k + l)] = read(from, type, i * row + l * step);
        }
    }
    return to;
}

static double dot(const double *a, const double *b, int64_t k)
{
    double sum[8] = {0.0};
    int64_t l = 0;
    for (; l + 8 <= k; l += 8) {
        for (int u = 0; u < 8; u++) {
            sum[u] += a[l + u] * b[l + u];
        }
    }
    for (; l < k; l++) {
        sum[0] += a[l] * b[l];
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) +
           ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static cudaError_t multiply(const product_t &p)
{
    int64_t k = p.desc.trans[0] ? p.a_desc.rows : p.a_desc.cols;
    int64_t a_step = p.desc.trans[0] ? 1 : p.a_desc.ld;
    int64_t a_row = p.desc.trans[0] ? p.a_desc.ld : 1;
    int64_t b_step = p.desc.trans[1] ? p.b_desc.ld : 1;
    int64_t b_col = p.desc.trans[1] ? 1 : p.b_desc.ld;
    std::vector<double> a =
        pack(p.a, p.a_desc.type, p.c_desc.rows, a_row, k, a_step);
    std::vector<double> b =
        pack(p.b, p.b_desc.type, p.c_desc.cols, b_col, k, b_step);
    for (int64_t j = 0; j < p.c_desc.cols; j++) {
        for (int64_t i = 0; i < p.c_desc.rows; i++) {
            double sum = dot(a.data() + i * k, b.data() + j * k, k);
            int64_t at = j * p.c_desc.ld + i;
            sum *= p.alpha;
            if (p.beta != 0.0) { // otherwise c is not read
                sum += p.beta * read(p.c, p.c_desc.type, at);
            }
            write(p.c, p.c_desc.type, at, sum);
        }
    }
    return cudaSuccess;
}

static bool operand_ok(const char *name, const void *p,
                       const cudasim_layout *l, uint64_t alignment)
{
    size_t size = ((size_t)(l->cols - 1) * (size_t)l->ld + (size_t)l->rows) *
                  size_of(l->type);
    bool aligned =
        ((uintptr_t)p | (uintptr_t)l->ld * size_of(l->type)) % alignment == 0;
    if (!is_device(p) || !range_ok(p, size)) {
        report("cublasLtMatmul: %s needs %zu bytes from %s", name, size,
               where((uintptr_t)p));
    } else if (!aligned) {
        report("cublasLtMatmul: %s is at no multiple of %d bytes, which the "
               "algorithm counts on", name, (int)alignment);
    } else {
        return true;
    }
    return false;
}

extern "C" cublasStatus_t
cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha,
               const void *a, cublasLtMatrixLayout_t a_desc, const void *b,
               cublasLtMatrixLayout_t b_desc, const void *beta, const void *c,
               cublasLtMatrixLayout_t c_desc, void *d,
               cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algo,
               void *workspace, size_t workspace_size, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    float factors[2];
    memcpy(&factors[0], alpha, sizeof(float));
    memcpy(&factors[1], beta, sizeof(float));
    if (enter("cublasLtMatmul") != cudaSuccess || c != d ||
        c_desc != d_desc || !sizes_fit(desc, a_desc, b_desc, c_desc) ||
        workspace_size < algo->data[1] ||
        !range_ok(workspace, workspace_size) ||
        !operand_ok("a", a, a_desc, algo->data[0]) ||
        !operand_ok("b", b, b_desc, algo->data[0]) ||
        !operand_ok("c", d, c_desc, algo->data[0])) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    product_t p = {*desc, *a_desc, *b_desc, *c_desc, a, b, d,
                   (double)factors[0], (double)factors[1]};
    enqueue(stream_of(stream), [=] { return multiply(p); });
    return CUBLAS_STATUS_SUCCESS;
}
