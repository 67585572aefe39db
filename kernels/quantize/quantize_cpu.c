/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize and dequantize; the formulas stand in quantize_ref.c. A thread takes
 * blocks of 128 columns and of as many rows as share a scale, or are transposed
 * over together. Listed in kernels/list.h; read fast.h before. */
#include "fast.h"
#include "loong/quantize.h"

enum { SIDE = LOONG_QUANTIZE_BLOCK, NONE = 0x7f };

/* A number a of fp32, not negative: its bits rounded to the type's mantissa,
 * and brought from one bias to the other. Below the smallest normal number
 * `tiny` the sum with `magic` is rounded to the type's smallest step. */
typedef struct format {
    float most, tiny, magic;
    uint32_t drop; /* bits of the mantissa */
    uint32_t bias; /* difference, in the type's place */
    uint32_t none; /* from here on there are no numbers, but for fp8_e5m2's
                    * infinity */
} format_t;

static const format_t e4m3 = {448.0f, 0x1p-6f, 0x1p14f, 20, 120u << 3, 0x7f};
static const format_t e5m2 = {57344.0f, 0x1p-14f, 0x1p7f,
                              21,       112u << 2, 0x7c};

static const format_t *format_of(loong_dtype_t dtype)
{
    return dtype == LOONG_F8_E4M3 ? &e4m3 : &e5m2;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Bits of the largest magnitude: those of NaN are above all others. */
static uint32_t largest(const float *x, int64_t n)
{
    const word_t *bits = (const word_t *)x;
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        uint32_t a = bits[i] & 0x7fffffffu;
        most = a > most ? a : most;
    }
    return most;
}

/* n <= SIDE numbers over a scale. */
static void narrow(const format_t *f, const float *x, float scale, uint8_t *q,
                   int64_t n)
{
    float y[SIDE], a[SIDE], small[SIDE];
    const word_t *bits = (const word_t *)y;
    const word_t *near = (const word_t *)small;
    word_t *size = (word_t *)a;
    const uint32_t most = bits_of(f->most);
    const uint32_t tiny = bits_of(f->tiny);
    const uint32_t magic = bits_of(f->magic);
    const uint32_t half = (1u << (f->drop - 1)) - 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] / scale;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t w = bits[i] & 0x7fffffffu;
        size[i] = w > most ? most : w;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        small[i] = a[i] + f->magic;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t w = size[i];
        uint32_t even = w + half + (w >> f->drop & 1u);
        uint32_t large = (even >> f->drop) - f->bias;
        uint32_t code = w < tiny ? near[i] - magic : large;
        uint32_t sign = bits[i] >> 24 & 0x80u;
        bool none = (bits[i] & 0x7fffffffu) > 0x7f800000u;
        q[i] = (uint8_t)(none ? NONE : code | sign);
    }
}

static void widen(const format_t *f, const uint8_t *q, float scale, float *y,
                  int64_t n)
{
    const float lift = of_bits((127u + (f->bias >> (23 - f->drop))) << 23);
    float wide[SIDE];
    word_t *bits = (word_t *)wide;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        bits[i] = (uint32_t)(q[i] & 0x7f) << f->drop;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        wide[i] *= lift;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t code = q[i] & 0x7fu;
        uint32_t odd = code == 0x7c ? 0x7f800000u : 0x7fc00000u;
        uint32_t sign = (uint32_t)(q[i] & 0x80) << 24;
        bits[i] = (code < f->none ? bits[i] : odd) | sign;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = wide[i] * scale;
    }
}

typedef struct job {
    const format_t *format;
    fast_mat_t x;
    fast_mat_t scales; /* one, or those of blocks */
    uint8_t *q, *transposed; /* NULL: not wanted */
    int64_t ld, transposed_ld;
    int64_t rows; /* of a block */
    bool given;
} job_t;

/* Also the largest magnitude, as bits. */
static uint32_t quantize_block(const job_t *j, int64_t row, int64_t col)
{
    float buf[FAST_CHUNK] __attribute__((aligned(64)));
    int64_t end = LOONG_MIN(row + j->rows, j->x.rows);
    int64_t n = LOONG_MIN(j->x.cols - col, SIDE);
    uint32_t most = 0;
    for (int64_t r = row; r < end; r++) {
        uint32_t own = largest(fast_get(&j->x, r, col, n, buf), n);
        most = LOONG_MAX(most, own);
    }
    float scale = 0.0f;
    if (j->given) {
        memcpy(&scale, j->scales.p, sizeof(scale));
    } else {
        scale = of_bits(most) / j->format->most;
        scale = scale == 0.0f ? 1.0f : scale;
        memcpy(fast_at(&j->scales, row / j->rows, col / SIDE), &scale,
               sizeof(scale));
    }
    for (int64_t r = row; r < end; r++) {
        narrow(j->format, fast_get(&j->x, r, col, n, buf), scale,
               j->q + r * j->ld + col, n);
    }
    for (int64_t c = col; c < col + n && j->transposed != NULL; c++) {
        for (int64_t r = row; r < end; r++) {
            j->transposed[c * j->transposed_ld + r] = j->q[r * j->ld + c];
        }
    }
    return most;
}

static loong_status_t run_quantize(const loong_kernel_call_t *call)
{
    const loong_quantize_attr_t *a = call->query->attr;
    const loong_karg_t *out = &call->query->arg[call->query->num_in];
    job_t j;
    j.given = a->block_rows == 0;
    j.format = format_of(a->dtype);
    j.x = fast_arg(call, 0);
    j.scales = j.given ? fast_arg(call, 1) : fast_out(call, 1);
    j.q = call->ptr[call->query->num_in];
    j.ld = out->ld;
    j.transposed = a->transposed ? call->ptr[call->query->num_in + 3] : NULL;
    j.transposed_ld = out[3].ld;
    j.rows = a->block_rows == SIDE || a->transposed ? SIDE : 1;
    int64_t across = (j.x.cols + SIDE - 1) / SIDE;
    int64_t blocks = (j.x.rows + j.rows - 1) / j.rows * across;
    uint32_t most = 0;
#pragma omp parallel for schedule(static) reduction(max : most) \
    num_threads(call->query->threads)
    for (int64_t b = 0; b < blocks; b++) {
        uint32_t own =
            quantize_block(&j, b / across * j.rows, b % across * SIDE);
        most = own > most ? own : most;
    }
    memcpy(call->ptr[call->query->num_in + 2], &most, sizeof(most));
    return LOONG_OK;
}

static loong_status_t run_dequantize(const loong_kernel_call_t *call)
{
    const loong_quantize_attr_t *a = call->query->attr;
    const loong_karg_t *in = &call->query->arg[0];
    const format_t *format = format_of(in->dtype);
    const uint8_t *q = call->ptr[0];
    fast_mat_t scales = fast_arg(call, 1);
    fast_mat_t y = fast_out(call, 0);
    int64_t across = (y.cols + SIDE - 1) / SIDE;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t b = 0; b < y.rows * across; b++) {
        float buf[FAST_CHUNK] __attribute__((aligned(64)));
        int64_t row = b / across;
        int64_t col = b % across * SIDE;
        int64_t n = LOONG_MIN(y.cols - col, SIDE);
        float scale = 0.0f;
        memcpy(&scale,
               a->block_rows == 0
                   ? scales.p
                   : fast_at(&scales, row / a->block_rows, col / SIDE),
               sizeof(scale));
        float *to = fast_place(&y, row, col, buf);
        widen(format, q + row * in->ld + col, scale, to, n);
        fast_put(&y, row, col, n, to);
    }
    return LOONG_OK;
}

static bool support_quantize(const loong_kernel_query_t *query,
                             char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, ~1u, reason);
}

static bool support_dequantize(const loong_kernel_query_t *query,
                               char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 1, reason);
}

FAST_KERNEL(quantize, support_quantize, NULL, run_quantize);
FAST_KERNEL(dequantize, support_dequantize, NULL, run_dequantize);
