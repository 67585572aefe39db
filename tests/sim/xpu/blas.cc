// SPDX-License-Identifier: Apache-2.0
//
// libxpu_blas.so: the products that libloong asks for, under cuBLAS's names.
// Sums are made in fp32, in the order of k; what the library is not known to
// do is refused.
#include <cstring>
#include <memory>
#include <vector>

#include "xpu_abi.h"
#include "xpusim.h"

namespace {

enum { UNKNOWN = 7, NOT_SUPPORTED = 15 }; /* of cuBLAS's statuses */

struct handle {
    void *stream = nullptr;
};

struct product {
    int trans_a, trans_b, m, n, k, batch;
    float alpha, beta;
    const void *a, *b;
    void *c;
    int type[3];
    int64_t ld[3];
    int64_t step[3];
    int device;
};

size_t size_of(int type)
{
    return type == LOONG_XPU_BLAS_BF16 ? 2 : 4;
}

float get(const void *p, int type, int64_t i)
{
    uint32_t bits = 0;
    float value = 0.0f;
    if (type == LOONG_XPU_BLAS_F32) {
        return ((const float *)p)[i];
    }
    bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* To the nearest, of two the even one. */
void set(void *p, int type, int64_t i, float value)
{
    uint32_t bits = 0;
    if (type == LOONG_XPU_BLAS_F32) {
        ((float *)p)[i] = value;
        return;
    }
    memcpy(&bits, &value, sizeof(bits));
    bool nan = value != value;
    bits = nan ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
    ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
}

/* Bytes from the first element to the last of a matrix by columns. */
size_t reach(int64_t rows, int64_t cols, int64_t ld, int type)
{
    return rows > 0 && cols > 0
               ? (size_t)((cols - 1) * ld + rows) * size_of(type)
               : 0;
}

int check(const product *p)
{
    int64_t last = p->batch - 1;
    const struct {
        const char *name;
        const void *at;
        int64_t rows, cols;
    } side[3] = {{"a of a product", p->a, p->trans_a ? p->k : p->m,
                  p->trans_a ? p->m : p->k},
                 {"b of a product", p->b, p->trans_b ? p->n : p->k,
                  p->trans_b ? p->k : p->n},
                 {"c of a product", p->c, p->m, p->n}};
    for (int i = 0; i < 3; i++) {
        size_t bytes =
            reach(side[i].rows, side[i].cols, p->ld[i], p->type[i]) +
            (size_t)(last * p->step[i]) * size_of(p->type[i]);
        if (int error =
                xpusim_check(side[i].name, side[i].at, bytes, p->device)) {
            return error;
        }
    }
    return 0;
}

/* c of one product, a column at a time: sums of rows of a run by columns. */
void multiply(const product *p, const char *a, const char *b, char *c)
{
    bool narrow = xpusim_deviates("bf16_sums") != 0;
    std::vector<float> sum((size_t)p->m);
    for (int64_t j = 0; j < p->n; j++) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t l = 0; l < p->k; l++) {
            float y = get(b, p->type[1],
                          p->trans_b ? l * p->ld[1] + j : j * p->ld[1] + l);
            int64_t at = p->trans_a ? l : l * p->ld[0];
            int64_t apart = p->trans_a ? p->ld[0] : 1;
            for (int64_t i = 0; i < p->m; i++) {
                sum[(size_t)i] += get(a, p->type[0], at + i * apart) * y;
            }
            for (int64_t i = 0; i < p->m && narrow; i++) {
                uint16_t bits = 0;
                set(&bits, LOONG_XPU_BLAS_BF16, 0, sum[(size_t)i]);
                sum[(size_t)i] = get(&bits, LOONG_XPU_BLAS_BF16, 0);
            }
        }
        for (int64_t i = 0; i < p->m; i++) {
            int64_t at = j * p->ld[2] + i;
            float old = p->beta != 0.0f ? get(c, p->type[2], at) : 0.0f;
            set(c, p->type[2], at,
                p->alpha * sum[(size_t)i] + p->beta * old);
        }
    }
}

int run(void *data)
{
    std::unique_ptr<product> p((product *)data);
    if (int error = check(p.get())) {
        return error;
    }
    const char *a = (const char *)xpusim_host(p->a);
    const char *b = (const char *)xpusim_host(p->b);
    char *c = (char *)xpusim_host(p->c);
    for (int64_t s = 0; s < p->batch; s++) {
        multiply(p.get(), a + (size_t)(s * p->step[0]) * size_of(p->type[0]),
                 b + (size_t)(s * p->step[1]) * size_of(p->type[1]),
                 c + (size_t)(s * p->step[2]) * size_of(p->type[2]));
    }
    return 0;
}

bool known(const product &p)
{
    int in = p.type[0];
    return (in == LOONG_XPU_BLAS_F32 || in == LOONG_XPU_BLAS_BF16) &&
           p.type[1] == in &&
           (p.type[2] == in || p.type[2] == LOONG_XPU_BLAS_F32);
}

/* Leading dimensions as cuBLAS wants them. */
bool fits(const product &p)
{
    return p.m > 0 && p.n > 0 && p.k > 0 &&
           p.ld[0] >= (p.trans_a ? p.k : p.m) &&
           p.ld[1] >= (p.trans_b ? p.n : p.k) && p.ld[2] >= p.m;
}

int launch(const handle *h, product of, int compute)
{
    of.trans_a ^= xpusim_plant("product_side");
    of.beta = xpusim_plant("product_sum") ? 1.0f - of.beta : of.beta;
    of.type[2] = xpusim_plant("product_type") ? 2 : of.type[2];
    of.ld[1] -= xpusim_plant("product_rows");
    if (!known(of) || compute != LOONG_XPU_BLAS_COMPUTE_F32) {
        xpusim_found("a product of types %d, %d, %d, compute %d", of.type[0],
                     of.type[1], of.type[2], compute);
        return NOT_SUPPORTED;
    }
    if (!fits(of)) {
        xpusim_found("a product of m %d, n %d, k %d, rows %lld, %lld, %lld "
                     "apart", of.m, of.n, of.k, (long long)of.ld[0],
                     (long long)of.ld[1], (long long)of.ld[2]);
        return UNKNOWN;
    }
    std::unique_ptr<product> p(new product(of));
    p->device = xpusim_device(h->stream);
    if (check(p.get()) != 0) {
        return UNKNOWN;
    }
    return xpusim_launch(h->stream, "product", run, p.release());
}

struct floats {
    const float *x;
    float *y;
    size_t bytes;
};

int run_copy(void *data)
{
    std::unique_ptr<floats> f((floats *)data);
    int error = xpusim_check("cublasScopy", f->x, f->bytes, -1);
    error = error != 0 ? error
                       : xpusim_check("cublasScopy", f->y, f->bytes, -1);
    if (error == 0) {
        memmove(xpusim_host(f->y), xpusim_host(f->x), f->bytes);
    }
    return error;
}

} // namespace

extern "C" {

XPUSIM_API int cublasCreate_v2(void **h)
{
    *h = new handle;
    return 0;
}

XPUSIM_API int cublasDestroy_v2(void *h)
{
    delete (handle *)h;
    return 0;
}

XPUSIM_API int cublasSetStream_v2(void *h, void *stream)
{
    ((handle *)h)->stream = xpusim_plant("product_stream") ? nullptr : stream;
    return 0;
}

XPUSIM_API int cublasScopy_v2(void *h, int n, const float *x, int incx,
                              float *y, int incy)
{
    if (n < 0 || incx != 1 || incy != 1) {
        return UNKNOWN;
    }
    return xpusim_launch(((handle *)h)->stream, "cublasScopy", run_copy,
                         new floats{x, y, (size_t)n * sizeof(*x)});
}

XPUSIM_API int cublasGemmStridedBatchedEx(
    void *h, int transa, int transb, int m, int n, int k, const void *alpha,
    const void *a, int atype, int lda, long long stepa, const void *b,
    int btype, int ldb, long long stepb, const void *beta, void *c, int ctype,
    int ldc, long long stepc, int batch, int compute, int)
{
    return launch((handle *)h,
                  {transa, transb, m, n, k, batch, *(const float *)alpha,
                   *(const float *)beta, a, b, c, {atype, btype, ctype},
                   {lda, ldb, ldc}, {stepa, stepb, stepc}, 0},
                  compute);
}

XPUSIM_API int cublasGemmEx(void *h, int transa, int transb, int m, int n,
                            int k, const void *alpha, const void *a, int atype,
                            int lda, const void *b, int btype, int ldb,
                            const void *beta, void *c, int ctype, int ldc,
                            int compute, int algo)
{
    return cublasGemmStridedBatchedEx(h, transa, transb, m, n, k, alpha, a,
                                      atype, lda, 0, b, btype, ldb, 0, beta, c,
                                      ctype, ldc, 0, 1, compute, algo);
}
}
