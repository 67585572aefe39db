/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize and dequantize (loong/quantize.h):
 *
 *   s   given, or of a block: max |x| / most, 1 where that is 0
 *   q = the number of the type that is nearest to x / s, of two the even one;
 *       `most` with the sign of x where that is beyond it; NaN of NaN
 *   y = q s
 *
 * x / s is rounded to fp32 first, unless x is fp64. Here q is found by a search
 * in the type's numbers: independent of what other kernels do with bits. Listed
 * as references in kernels/list.h; read ref.h before. */
#include "list.h"
#include "loong/quantize.h"
#include "ref.h"

enum { CODES = 128, NONE = 0x7f };

/* Numbers that are not negative, in the order of their bits. */
typedef struct numbers {
    double value[CODES];
    int last; /* the largest that is finite */
} numbers_t;

static numbers_t numbers_of(loong_dtype_t dtype)
{
    numbers_t n;
    n.last = 0;
    for (int i = 0; i < CODES; i++) {
        uint8_t bits = (uint8_t)i;
        n.value[i] = (double)(dtype == LOONG_F8_E4M3
                                  ? loongi_e4m3_to_f32(bits)
                                  : loongi_e5m2_to_f32(bits));
        n.last = isfinite(n.value[i]) ? i : n.last;
    }
    return n;
}

static uint8_t nearest(const numbers_t *n, double x)
{
    double a = fabs(x);
    int low = 0;
    int high = n->last;
    uint8_t sign = signbit(x) ? 0x80 : 0;
    if (isnan(x)) {
        return NONE;
    }
    if (a >= n->value[high]) {
        return (uint8_t)(sign | high);
    }
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (n->value[middle] <= a) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = a - n->value[low];
    double above = n->value[high] - a;
    bool up = above < below || (above == below && low % 2 == 1);
    return (uint8_t)(sign | (up ? high : low));
}

static double divided(const ref_mat_t *x, int64_t row, int64_t col, double s)
{
    double v = ref_at(x, row, col);
    return x->dtype == LOONG_F64 ? v / s : (double)((float)v / (float)s);
}

/* The largest magnitude of a block; NaN where there is one. */
static double largest(const ref_mat_t *x, const int64_t from[2],
                      const int64_t to[2])
{
    double most = 0.0;
    for (int64_t i = from[0]; i < to[0]; i++) {
        for (int64_t j = from[1]; j < to[1]; j++) {
            double a = fabs(ref_at(x, i, j));
            most = isnan(a) || isnan(most) ? NAN : fmax(most, a);
        }
    }
    return most;
}

static double scale_of(const ref_mat_t *x, double amax, double most)
{
    double s = x->dtype == LOONG_F64 ? amax / most
                                     : (double)((float)amax / (float)most);
    return s == 0.0 ? 1.0 : s;
}

static void quantize_block(const loong_kernel_call_t *call,
                           const numbers_t *n, double s,
                           const int64_t from[2], const int64_t to[2])
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t q = ref_out(call, 0);
    int transposed = call->query->num_in + 3;
    for (int64_t i = from[0]; i < to[0]; i++) {
        for (int64_t j = from[1]; j < to[1]; j++) {
            uint8_t bits = nearest(n, divided(&x, i, j, s));
            ((uint8_t *)q.p)[i * q.ld + j] = bits;
            if (!ref_absent(call, transposed)) {
                ref_mat_t t = ref_arg(call, transposed);
                ((uint8_t *)t.p)[j * t.ld + i] = bits;
            }
        }
    }
}

static loong_status_t quantize(const loong_kernel_call_t *call)
{
    const loong_quantize_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t amax = ref_out(call, 2);
    numbers_t n = numbers_of(a->dtype);
    int64_t rows = LOONG_MAX(a->block_rows, 1);
    double all = 0.0;
    for (int64_t i = 0; i < x.rows; i += rows) {
        for (int64_t j = 0; j < x.cols; j += LOONG_QUANTIZE_BLOCK) {
            int64_t from[2] = {i, j};
            int64_t to[2] = {LOONG_MIN(i + rows, x.rows),
                             LOONG_MIN(j + LOONG_QUANTIZE_BLOCK, x.cols)};
            double most = largest(&x, from, to);
            double s = 0.0;
            if (a->block_rows == 0) {
                ref_mat_t scale = ref_arg(call, 1);
                s = ref_at(&scale, 0, 0);
            } else {
                ref_mat_t scales = ref_out(call, 1);
                s = scale_of(&x, most, n.value[n.last]);
                ref_put(&scales, i / rows, j / LOONG_QUANTIZE_BLOCK, s);
            }
            quantize_block(call, &n, s, from, to);
            all = isnan(most) || isnan(all) ? NAN : fmax(all, most);
        }
    }
    ref_put(&amax, 0, 0, all);
    return LOONG_OK;
}

static double number_at(const ref_mat_t *q, int64_t row, int64_t col)
{
    const uint8_t *bits = (const uint8_t *)q->p + row * q->ld + col;
    return q->dtype == LOONG_F8_E4M3   ? (double)loongi_e4m3_to_f32(*bits)
           : q->dtype == LOONG_F8_E5M2 ? (double)loongi_e5m2_to_f32(*bits)
                                       : ref_at(q, row, col);
}

static loong_status_t dequantize(const loong_kernel_call_t *call)
{
    const loong_quantize_attr_t *a = call->query->attr;
    ref_mat_t q = ref_arg(call, 0);
    ref_mat_t scale = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
    for (int64_t i = 0; i < y.rows; i++) {
        for (int64_t j = 0; j < y.cols; j++) {
            double s = a->block_rows == 0
                           ? ref_at(&scale, 0, 0)
                           : ref_at(&scale, i / a->block_rows,
                                    j / LOONG_QUANTIZE_BLOCK);
            ref_put(&y, i, j, number_at(&q, i, j) * s);
        }
    }
    return LOONG_OK;
}

REF_KERNEL(quantize, NULL, quantize);
REF_KERNEL(dequantize, NULL, dequantize);
