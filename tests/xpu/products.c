/* SPDX-License-Identifier: Apache-2.0
 *
 * Claims of libxpu_blas: what its products are off from sums in double; and how
 * fast copies are, which nothing is assumed of. Read assumed.c before. */
#include <math.h>
#include <stdlib.h>

#include "assumed.h"

#define DO(call_)                                 \
    do {                                          \
        int error_ = call_;                       \
        if (error_ != 0) {                        \
            found(#call_ " gives %d", error_);    \
            return false;                         \
        }                                         \
    } while (0)

/* a, b and c, each fp32 or bf16. */
typedef struct matrix {
    int64_t size;
    bool half;
    float *value; /* as the device has it, rounded */
    void *device;
} matrix_t;

static size_t width(const matrix_t *m)
{
    return m->half ? 2 : 4;
}

/* To the nearest, of two the even one. */
static uint16_t narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static bool make(matrix_t *m, int64_t size, bool half, uint32_t seed)
{
    m->size = size;
    m->half = half;
    m->value = malloc(sizeof(float) * (size_t)size);
    uint16_t *narrowed = malloc(sizeof(uint16_t) * (size_t)size);
    for (int64_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        float x = (float)(seed >> 8) / 16777216.0f - 0.5f;
        narrowed[i] = narrow(x);
        m->value[i] = half ? widen(narrowed[i]) : x;
    }
    DO(lib.rt.malloc(&m->device, (uint64_t)size * width(m),
                     lib.values.global_memory));
    DO(lib.rt.memcpy(m->device, half ? (void *)narrowed : (void *)m->value,
                     (uint64_t)size * width(m), lib.values.host_to_device));
    free(narrowed);
    return true;
}

static bool fetch(matrix_t *m)
{
    uint16_t *narrowed = malloc(sizeof(uint16_t) * (size_t)m->size);
    DO(lib.rt.memcpy(m->half ? (void *)narrowed : (void *)m->value, m->device,
                     (uint64_t)m->size * width(m), lib.values.device_to_host));
    for (int64_t i = 0; i < m->size && m->half; i++) {
        m->value[i] = widen(narrowed[i]);
    }
    free(narrowed);
    return true;
}

enum { M = 33, N = 40, HALF_IN = 1, HALF_OUT = 2, TRANSPOSED = 4 };

/* The largest error over the sum of magnitudes; by columns. */
static double error_of(const matrix_t *a, const matrix_t *b, const matrix_t *c,
                       int64_t k, bool transposed)
{
    double worst = 0.0;
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            double sum = 0.0;
            double all = 0.0;
            for (int64_t l = 0; l < k; l++) {
                double x = a->value[transposed ? l + i * k : i + l * M];
                double y = b->value[l + j * k];
                sum += x * y;
                all += fabs(x * y);
            }
            double off = fabs(c->value[i + j * M] - sum) / all;
            worst = isnan(off) || off > worst ? off : worst;
        }
    }
    return worst;
}

/* number: k, behind it the bits above. */
static bool product(int64_t number)
{
    int64_t k = number >> 3;
    bool half_in = (number & HALF_IN) != 0;
    bool half_out = (number & HALF_OUT) != 0;
    bool transposed = (number & TRANSPOSED) != 0;
    const float one = 1.0f;
    const float none = 0.0f;
    void *handle = NULL;
    void *stream = NULL;
    matrix_t a, b, c;
    if (lib.blas_handle == NULL) {
        found("no libxpu_blas");
        return false;
    }
    DO(lib.rt.set_device(0));
    if (!make(&a, M * k, half_in, 1) || !make(&b, N * k, half_in, 2) ||
        !make(&c, M * N, half_out, 3)) {
        return false;
    }
    DO(lib.rt.stream_create(&stream));
    DO(lib.blas.Create(&handle));
    DO(lib.blas.SetStream(handle, stream));
    int in = half_in ? LOONG_XPU_BLAS_BF16 : LOONG_XPU_BLAS_F32;
    int out = half_out ? LOONG_XPU_BLAS_BF16 : LOONG_XPU_BLAS_F32;
    DO(lib.blas.GemmEx(handle, transposed ? LOONG_XPU_BLAS_T : LOONG_XPU_BLAS_N,
                       LOONG_XPU_BLAS_N, M, N, (int)k, &one, a.device, in,
                       transposed ? (int)k : M, b.device, in, (int)k, &none,
                       c.device, out, M, LOONG_XPU_BLAS_COMPUTE_F32,
                       LOONG_XPU_BLAS_ALGO));
    DO(lib.rt.wait(stream));
    if (!fetch(&c)) {
        return false;
    }
    double error = error_of(&a, &b, &c, k, transposed);
    /* Of sums in fp32 and, of a narrow result, its rounding. */
    double bound = 8.0 * sqrt((double)k) * 0x1p-24 + (half_out ? 0x1p-9 : 0.0);
    found("%.2e of the sum of magnitudes, sums in fp32 are within %.2e", error,
          bound);
    return error <= bound;
}

bool claims_of_products(void)
{
    static const struct {
        const char *name;
        int64_t bits;
    } kinds[] = {{"fp32 x fp32 to fp32", 0},
                 {"bf16 x bf16 to fp32", HALF_IN},
                 {"bf16 x bf16 to bf16", HALF_IN | HALF_OUT},
                 {"bf16 x bf16 to fp32, transposed", HALF_IN | TRANSPOSED}};
    static const int64_t lengths[] = {64, 1000, 4096};
    bool same = true;
    for (int i = 0; i < LOONG_COUNT_OF(kinds); i++) {
        for (int k = 0; k < LOONG_COUNT_OF(lengths); k++) {
            char name[96];
            snprintf(name, sizeof(name), "product of %s, k %lld", kinds[i].name,
                     (long long)lengths[k]);
            claim_t c = {name, "sums in fp32", product,
                         lengths[k] << 3 | kinds[i].bits};
            same = tell_claim(&c, true) && same;
        }
    }
    return same;
}

/* ---- speed --------------------------------------------------------------- */

enum { BYTES = 64 << 20, TIMES = 10 };

typedef enum way { RUNTIME, SHIM, BLAS } way_t;

static int copy_once(way_t way, void *to, void *from, void *handle,
                     void *stream)
{
    loong_device_rows_t r = {to, BYTES, from, BYTES, BYTES, 1};
    return way == RUNTIME ? lib.rt.memcpy(to, from, BYTES,
                                          lib.values.device_to_device)
           : way == SHIM
               ? lib.shim->copy(&r, stream)
               : lib.blas.Scopy(handle, BYTES / 4, from, 1, to, 1);
}

static bool inside(int64_t number)
{
    way_t way = (way_t)number;
    void *buffer[2];
    void *stream = NULL;
    void *handle = NULL;
    if ((way == SHIM && (lib.shim == NULL || lib.shim->copy == NULL)) ||
        (way == BLAS && lib.blas_handle == NULL)) {
        found("not there");
        return true;
    }
    DO(lib.rt.set_device(0));
    DO(lib.rt.stream_create(&stream));
    for (int i = 0; i < 2; i++) {
        DO(lib.rt.malloc(&buffer[i], BYTES, lib.values.global_memory));
    }
    if (way == BLAS) {
        DO(lib.blas.Create(&handle));
        DO(lib.blas.SetStream(handle, stream));
    }
    DO(copy_once(way, buffer[0], buffer[1], handle, stream));
    DO(lib.rt.wait(stream));
    double start = loongi_now();
    for (int i = 0; i < TIMES; i++) {
        DO(copy_once(way, buffer[0], buffer[1], handle, stream));
    }
    DO(lib.rt.wait(stream));
    found("%.1f GB/s read and written",
          2e-9 * BYTES * TIMES / (loongi_now() - start));
    return true;
}

static bool from_host(int64_t chunk)
{
    char *host = NULL;
    char *device = NULL;
    void *stream = NULL;
    DO(lib.rt.set_device(0));
    DO(lib.rt.stream_create(&stream));
    DO(lib.rt.host_alloc((void **)&host, BYTES, 0));
    DO(lib.rt.malloc((void **)&device, BYTES, lib.values.global_memory));
    memset(host, 1, BYTES);
    double start = loongi_now();
    for (int64_t at = 0; at < BYTES; at += chunk) {
        int error = lib.rt.memcpy_async(device + at, host + at, (uint64_t)chunk,
                                        lib.values.host_to_device, stream);
        if (error != 0) {
            found("%d: LOONG_XPU_CHUNK has to be less", error);
            return true;
        }
    }
    DO(lib.rt.wait(stream));
    found("%.1f GB/s", 1e-9 * BYTES / (loongi_now() - start));
    return true;
}

bool claims_of_speed(void)
{
    static const claim_t claims[] = {
        {"copy inside the device by the runtime", "20 GB/s", inside, RUNTIME},
        {"copy inside the device by the shim", "2000 GB/s", inside, SHIM},
        {"copy inside the device by cublasScopy", "2090 GB/s", inside, BLAS},
        {"pinned memory to the device by 256 KiB", "-", from_host, 256 << 10},
        {"pinned memory to the device by 1 MiB", "the usual", from_host,
         1 << 20},
        {"pinned memory to the device by 4 MiB", "-", from_host, 4 << 20},
        {"pinned memory to the device by 16 MiB", "-", from_host, 16 << 20},
        {"pinned memory to the device by 64 MiB", "-", from_host, 64 << 20}};
    bool same = true;
    for (int i = 0; i < LOONG_COUNT_OF(claims); i++) {
        same = tell_measured(&claims[i]) && same;
    }
    return same;
}
