// SPDX-License-Identifier: Apache-2.0
//
// Products of the simulated cuBLASLt: sums in double, one rounding to the type
// of the result; an algorithm but the first rounds parts of sums as well.
#include <cmath>
#include <cstring>
#include <vector>

#include "blaslt_sim.h"

using namespace cudasim;

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

// The first column of a is one number, not 0, again and again.
static bool is_uniform(const product_t &p)
{
    size_t size = p.a_desc.type == CUDA_R_16BF ? 2 : 4;
    uint32_t first = 0;
    memcpy(&first, p.a, size);
    for (int64_t i = 1; i < p.a_desc.rows; i++) {
        if (memcmp(p.a, p.a + (size_t)i * size, size) != 0) {
            return false;
        }
    }
    return first != 0;
}

static int64_t uniform_products;

extern "C" int64_t cudasim_uniform_products(void) { return uniform_products; }

cudaError_t cudasim::multiply_all(const product_t &all)
{
    uniform_products += is_uniform(all);
    for (int32_t i = 0; i < all.c_desc.batch; i++) {
        product_t p = all;
        p.a += i * p.a_desc.step * (int64_t)size_of(p.a_desc.type);
        p.b += i * p.b_desc.step * (int64_t)size_of(p.b_desc.type);
        p.c += i * p.c_desc.step * (int64_t)size_of(p.c_desc.type);
        multiply(p);
    }
    return cudaSuccess;
}
