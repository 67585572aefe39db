// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of the simulated device: sums in double, one rounding to the
// type of the result. What a call may not do is refused: sizes and types that
// do not fit, operands that are less aligned than the algorithm was asked for.
// There are several algorithms: the first suggested is the slowest, and each
// gives bits of its own. One that was suggested for even sizes runs even sizes
// only, and no one runs a size that it was neither suggested nor checked for.
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "cublasLt.h"
#include "sim.h"

using namespace cudasim;

struct cudasim_desc {
    cublasComputeType_t compute;
    bool trans[2];
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
    int32_t bias_type, aux_type; // -1: that of the result
};
struct cudasim_layout {
    cudaDataType_t type;
    int64_t rows, cols, ld;
    int32_t batch;
    int64_t step;
};
struct cudasim_preference {
    size_t workspace;
    uint32_t alignment;
};

enum {
    BIAS = 4,
    GELU = 32,
    DGELU = 64,
    AUX = 128,
    SUM_A = 256,
    SUM_B = 512,
    POINTS = BIAS | SUM_A | SUM_B, // reads the bias, or writes it
    ALGORITHMS = 3
};

// What cublasLtMatmulAlgo_t holds.
struct algorithm_t {
    uint64_t magic, id;
    uint64_t alignment; // of operands, as was wished
    uint64_t extra;     // of bias and aux, as it was found
    uint64_t workspace;
    uint64_t even;      // n and k are
    uint64_t unused[2];
};
static_assert(sizeof(algorithm_t) == sizeof(cublasLtMatmulAlgo_t), "");
static const uint64_t MAGIC = 0x6c74616c676f7331;
static const int costs[ALGORITHMS] = {3, 1, 2}; // turns of the device

extern "C" const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS            ? "success"
           : status == CUBLAS_STATUS_INVALID_VALUE    ? "invalid value"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "execution failed"
                                                      : "not supported";
}

extern "C" size_t cublasLtGetVersion() { return 130100; }

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
                                                   cublasComputeType_t compute,
                                                   cudaDataType_t)
{
    *desc = new cudasim_desc{compute, {false, false}, 1, nullptr, nullptr, 0,
                             -1, -1};
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> static cublasStatus_t take(T *to, const void *value,
                                              size_t size)
{
    if (size != sizeof(T)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t attr,
                               const void *value, size_t size)
{
    int32_t trans = 0;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&desc->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&desc->bias, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(&desc->aux, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(&desc->aux_ld, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(&desc->bias_type, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return take(&desc->aux_type, value, size);
    default:
        break;
    }
    cublasStatus_t status = take(&trans, value, size);
    desc->trans[attr == CUBLASLT_MATMUL_DESC_TRANSB] = trans == CUBLAS_OP_T;
    return status;
}

extern "C" cublasStatus_t
cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                           uint64_t rows, uint64_t cols, int64_t ld)
{
    *layout =
        new cudasim_layout{type, (int64_t)rows, (int64_t)cols, ld, 1, 0};
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
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return take(&layout->batch, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return take(&layout->step, value, size);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return take(&layout->rows, value, size);
    default:
        return take(&layout->cols, value, size);
    }
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
           c->ld >= c->rows && a->batch == b->batch && a->batch == c->batch;
}

// Types that go together, and what an epilogue asks for.
static bool has_kernel(const cudasim_desc *desc, const cudasim_layout *a,
                       const cudasim_layout *b, const cudasim_layout *c)
{
    bool wide = a->type == CUDA_R_32F;
    bool bias = (desc->epilogue & POINTS) != 0;
    bool aux = (desc->epilogue & AUX) != 0;
    return a->type == b->type && (!wide || c->type == CUDA_R_32F) &&
           (wide || desc->compute == CUBLAS_COMPUTE_32F) &&
           (!bias || desc->bias_type == -1 || desc->bias_type == c->type) &&
           (!aux || ((desc->aux_type == -1 || desc->aux_type == c->type) &&
                     desc->aux_ld >= c->rows && desc->aux_ld % 8 == 0)) &&
           (desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
            (c->batch == 1 && !sim.no_epilogues &&
             !(sim.no_sums && (desc->epilogue & (SUM_A | SUM_B)) != 0)));
}

// The largest power of two, up to 256, that addresses are multiples of.
static uint64_t alignment_of(uintptr_t addresses)
{
    uint64_t alignment = 256;
    while (addresses % alignment != 0) {
        alignment /= 2;
    }
    return alignment;
}

static bool even_sizes(const cudasim_desc *desc, const cudasim_layout *a,
                       const cudasim_layout *c)
{
    return (c->cols | (desc->trans[0] ? a->rows : a->cols)) % 2 == 0;
}

// Algorithms, each with the sizes of a product that it is for.
static std::set<std::string> checked;

static std::string as_checked(const algorithm_t &algo,
                              const cudasim_desc *desc,
                              const cudasim_layout *a, const cudasim_layout *c)
{
    int64_t sizes[] = {a->rows, a->cols, c->rows,
                       c->cols, c->batch, (int64_t)desc->epilogue};
    return std::string(reinterpret_cast<const char *>(&algo), sizeof(algo)) +
           std::string(reinterpret_cast<const char *>(sizes), sizeof(sizes));
}

extern "C" void cudasim_epilogues(int there) { sim.no_epilogues = there == 0; }

// A kernel of the library, by what it computes.
static std::string key_of(const algorithm_t &algo, const cudasim_desc *desc,
                          const cudasim_layout *a, const cudasim_layout *c)
{
    int64_t what[] = {(int64_t)algo.id,  desc->trans[0],
                      desc->trans[1],    a->type,
                      c->type,           (int64_t)desc->epilogue};
    return "product" +
           std::string(reinterpret_cast<const char *>(what), sizeof(what));
}

static uint64_t extra_alignment(const cudasim_desc *desc)
{
    uintptr_t bias = desc->epilogue & POINTS ? (uintptr_t)desc->bias : 0;
    uintptr_t aux = desc->epilogue & AUX ? (uintptr_t)desc->aux : 0;
    return alignment_of(bias | aux);
}

extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
    int wanted, cublasLtMatmulHeuristicResult_t *results, int *count)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    *count = 0;
    if (!sizes_fit(desc, a, b, c) || c != d || wanted < 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    uint64_t extra = extra_alignment(desc);
    // Here the second output is written by pieces of 16 bytes.
    bool narrow = extra < 16 || preference->alignment < 16;
    if (!has_kernel(desc, a, b, c) || ((desc->epilogue & AUX) && narrow)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (int i = 0; i < wanted && i < ALGORITHMS; i++) {
        algorithm_t algo = {MAGIC, (uint64_t)i, preference->alignment, extra,
                            preference->workspace, even_sizes(desc, a, c),
                            {0}};
        memset(&results[i], 0, sizeof(results[i]));
        memcpy(&results[i].algo, &algo, sizeof(algo));
        results[i].workspaceSize = algo.workspace;
        checked.insert(as_checked(algo, desc, a, c));
        *count = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                        const cublasLtMatmulAlgo_t *algo,
                        cublasLtMatmulHeuristicResult_t *result)
{
    algorithm_t known;
    memcpy(&known, algo, sizeof(known));
    if (!sizes_fit(desc, a, b, c) || c != d) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (known.magic != MAGIC || known.id >= ALGORITHMS ||
        !has_kernel(desc, a, b, c) ||
        (known.even && !even_sizes(desc, a, c))) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    checked.insert(as_checked(known, desc, a, c));
    memset(result, 0, sizeof(*result));
    result->workspaceSize = known.workspace;
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
    const char *a, *b;
    char *c;
    double alpha, beta;
    int id; // of the algorithm
};

// To the 10 bits of mantissa that tf32 has.
static double as_tf32(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    bits = (bits + 0x1000u) & 0xffffe000u;
    memcpy(&f, &bits, sizeof(f));
    return std::isfinite(x) ? (double)f : x;
}

// An operand as rows of the sums' length, one behind the other; `along`: these
// lie along its columns.
static std::vector<double> pack(const cudasim_layout &l, const void *from,
                                bool along, bool tf32)
{
    int64_t rows = along ? l.cols : l.rows;
    int64_t k = along ? l.rows : l.cols;
    std::vector<double> to((size_t)(rows * k));
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < k; j++) {
            int64_t at = along ? i * l.ld + j : j * l.ld + i;
            double x = read(from, l.type, at);
            to[(size_t)(i * k + j)] = tf32 ? as_tf32(x) : x;
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

// Algorithm 0 in one piece; another in pieces that are rounded to fp32.
static double dot_by(int id, const double *a, const double *b, int64_t k)
{
    if (id == 0) {
        return dot(a, b, k);
    }
    int64_t part = (k + id) / (id + 1);
    float sum = 0.0f;
    for (int64_t l = 0; l < k; l += part) {
        sum += (float)dot(a + l, b + l, k - l < part ? k - l : part);
    }
    return (double)sum;
}

static double finish(const product_t &p, int64_t i, int64_t j, double x)
{
    cudaDataType_t type = p.c_desc.type;
    if (p.desc.epilogue & BIAS) {
        x += read(p.desc.bias, type, i);
    }
    int64_t at = j * p.desc.aux_ld + i;
    const double c = 0.79788456080286535588;
    if (p.desc.epilogue & DGELU) {
        double a = read(p.desc.aux, type, at);
        double t = std::tanh(c * (a + 0.044715 * a * a * a));
        return x * (0.5 * (1.0 + t) +
                    0.5 * a * (1.0 - t * t) * c * (1.0 + 0.134145 * a * a));
    }
    if (p.desc.epilogue & AUX) {
        write(p.desc.aux, type, at, x);
    }
    if (p.desc.epilogue & GELU) {
        x = 0.5 * x * (1.0 + std::tanh(c * (x + 0.044715 * x * x * x)));
    }
    return x;
}

// Sums of an operand's rows of k.
static void add_up(const product_t &p, const std::vector<double> &rows,
                   int64_t k)
{
    for (int64_t i = 0; i < (int64_t)rows.size() / k; i++) {
        double sum = 0.0;
        for (int64_t l = 0; l < k; l++) {
            sum += rows[(size_t)(i * k + l)];
        }
        write(p.desc.bias, p.c_desc.type, i, sum);
    }
}

static void multiply(const product_t &p)
{
    int64_t k = p.desc.trans[0] ? p.a_desc.rows : p.a_desc.cols;
    bool tf32 = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<double> a = pack(p.a_desc, p.a, p.desc.trans[0], tf32);
    std::vector<double> b = pack(p.b_desc, p.b, !p.desc.trans[1], tf32);
    if (p.desc.epilogue & SUM_A) {
        add_up(p, a, k);
    } else if (p.desc.epilogue & SUM_B) {
        add_up(p, b, k);
    }
    for (int64_t j = 0; j < p.c_desc.cols; j++) {
        for (int64_t i = 0; i < p.c_desc.rows; i++) {
            double sum =
                dot_by(p.id, a.data() + i * k, b.data() + j * k, k);
            int64_t at = j * p.c_desc.ld + i;
            sum *= p.alpha;
            if (p.beta != 0.0) { // otherwise c is not read
                sum += p.beta * read(p.c, p.c_desc.type, at);
            }
            write(p.c, p.c_desc.type, at, finish(p, i, j, sum));
        }
    }
}

static cudaError_t multiply_all(const product_t &all)
{
    for (int32_t i = 0; i < all.c_desc.batch; i++) {
        product_t p = all;
        p.a += i * p.a_desc.step * (int64_t)size_of(p.a_desc.type);
        p.b += i * p.b_desc.step * (int64_t)size_of(p.b_desc.type);
        p.c += i * p.c_desc.step * (int64_t)size_of(p.c_desc.type);
        multiply(p);
    }
    return cudaSuccess;
}

static bool bytes_ok(const char *name, const void *p, size_t size,
                     bool aligned)
{
    if (!is_device(p) || !range_ok(p, size)) {
        report("cublasLtMatmul: %s needs %zu bytes from %s", name, size,
               where((uintptr_t)p));
    } else if (!aligned) {
        report("cublasLtMatmul: %s is less aligned than the algorithm counts "
               "on", name);
    } else {
        return true;
    }
    return false;
}

static bool operand_ok(const char *name, const void *p,
                       const cudasim_layout *l, uint64_t alignment)
{
    size_t one = size_of(l->type);
    size_t size = ((size_t)(l->cols - 1) * (size_t)l->ld + (size_t)l->rows +
                   (size_t)(l->batch - 1) * (size_t)l->step) * one;
    return bytes_ok(name, p, size,
                    ((uintptr_t)p | (uintptr_t)l->ld * one |
                     (uintptr_t)l->step * one) % alignment == 0);
}

static bool extras_ok(const cudasim_desc *desc, const cudasim_layout *c,
                      uint64_t alignment)
{
    size_t one = size_of(c->type);
    size_t rows = (size_t)c->rows;
    bool aligned = extra_alignment(desc) >= alignment;
    size_t length = desc->epilogue & SUM_B ? (size_t)c->cols : rows;
    if ((desc->epilogue & POINTS) &&
        !bytes_ok("the bias", desc->bias, length * one, aligned)) {
        return false;
    }
    size_t size = ((size_t)(c->cols - 1) * (size_t)desc->aux_ld + rows) * one;
    return !(desc->epilogue & AUX) ||
           bytes_ok("aux", desc->aux, size, aligned);
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
    algorithm_t how;
    memcpy(&factors[0], alpha, sizeof(float));
    memcpy(&factors[1], beta, sizeof(float));
    memcpy(&how, algo, sizeof(how));
    if (enter("cublasLtMatmul") != cudaSuccess) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (c != d || c_desc != d_desc ||
        !sizes_fit(desc, a_desc, b_desc, c_desc) ||
        how.magic != MAGIC || workspace_size < how.workspace ||
        !range_ok(workspace, workspace_size) ||
        !operand_ok("a", a, a_desc, how.alignment) ||
        !operand_ok("b", b, b_desc, how.alignment) ||
        !operand_ok("c", d, c_desc, how.alignment) ||
        !extras_ok(desc, c_desc, how.extra)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!has_kernel(desc, a_desc, b_desc, c_desc)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (checked.count(as_checked(how, desc, a_desc, c_desc)) == 0) {
        report("cublasLtMatmul: m %lld, n %lld, k of %lld by %lld: the "
               "algorithm was not checked for this size",
               (long long)c_desc->rows, (long long)c_desc->cols,
               (long long)a_desc->rows, (long long)a_desc->cols);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    load_late(key_of(how, desc, a_desc, c_desc), "a product of cuBLASLt",
              stream_of(stream)->device);
    product_t p = {*desc,
                   *a_desc,
                   *b_desc,
                   *c_desc,
                   static_cast<const char *>(a),
                   static_cast<const char *>(b),
                   static_cast<char *>(d),
                   (double)factors[0],
                   (double)factors[1],
                   (int)how.id};
    bool timed = !is_captured(stream_of(stream)); // or counted, as one
    for (int i = 1; timed && i < costs[how.id]; i++) {
        enqueue(stream_of(stream), [] { return cudaSuccess; });
    }
    enqueue(stream_of(stream), [=] { return multiply_all(p); });
    return CUBLAS_STATUS_SUCCESS;
}
