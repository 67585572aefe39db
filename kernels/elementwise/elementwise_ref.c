/* SPDX-License-Identifier: Apache-2.0
 *
 * add: y = a + b.  multiply: y = a b.  scale: y = factor x + shift.
 * cast, copy: y = x.
 * accumulate: out = x, or out += x.  zero: y = 0.
 * concat: inputs side by side.  sum_rows: y[c] = sum over rows of x.
 * slice_grad: x in columns begin .., zero elsewhere.
 * zigzag: rows of context parallel ranks in the order of samples, or back.
 * repeat_heads: y[g times + k][i] = x[g][i], k < times.  sum_heads: y[g][i] =
 * sum over k of x[g times + k][i].
 * select_rows: y[t] = features[t] where is_feature[t], else x[t].
 *
 * Listed as references in kernels/list.h; read ref.h before. */
#include "list.h"
#include "loong/collective.h"
#include "ref.h"
#include "zigzag.h"

static loong_status_t add(const loong_kernel_call_t *call)
{
    ref_mat_t a = ref_arg(call, 0);
    ref_mat_t b = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
#pragma omp parallel for
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            ref_put(&y, t, c, ref_at(&a, t, c) + ref_at(&b, t, c));
        }
    }
    return LOONG_OK;
}

static loong_status_t multiply(const loong_kernel_call_t *call)
{
    ref_mat_t a = ref_arg(call, 0);
    ref_mat_t b = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            ref_put(&y, t, c, ref_at(&a, t, c) * ref_at(&b, t, c));
        }
    }
    return LOONG_OK;
}

static void copy_scaled(const loong_kernel_call_t *call, double factor,
                        double shift)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
#pragma omp parallel for
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            ref_add(call, 0, &y, t, c, factor * ref_at(&x, t, c) + shift);
        }
    }
}

static loong_status_t scale(const loong_kernel_call_t *call)
{
    const loong_scale_attr_t *a = call->query->attr;
    copy_scaled(call, a->factor, a->shift);
    return LOONG_OK;
}

static loong_status_t copy(const loong_kernel_call_t *call)
{
    copy_scaled(call, 1.0, 0.0);
    return LOONG_OK;
}

static loong_status_t concat(const loong_kernel_call_t *call)
{
    ref_mat_t y = ref_out(call, 0);
    int64_t column = 0;
    for (int i = 0; i < call->query->num_in; i++) {
        ref_mat_t x = ref_arg(call, i);
        for (int64_t t = 0; t < x.rows; t++) {
            for (int64_t c = 0; c < x.cols; c++) {
                ref_put(&y, t, column + c, ref_at(&x, t, c));
            }
        }
        column += x.cols;
    }
    return LOONG_OK;
}

static loong_status_t slice_grad(const loong_kernel_call_t *call)
{
    const loong_slice_grad_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            bool inside = c >= a->begin && c < a->begin + x.cols;
            ref_put(&y, t, c, inside ? ref_at(&x, t, c - a->begin) : 0.0);
        }
    }
    return LOONG_OK;
}

static loong_status_t zigzag(const loong_kernel_call_t *call)
{
    const loong_zigzag_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    int64_t own = a->length / a->ranks; /* rows of a sample on a rank */
    int64_t samples = x.rows / a->length;
    for (int64_t t = 0; t < x.rows; t++) {
        int rank = (int)(t / (samples * own));
        int64_t place = t / own % samples * a->length +
                        loongi_zigzag_place(rank, a->ranks, a->length, t % own);
        for (int64_t c = 0; c < x.cols; c++) {
            if (a->inverse) {
                ref_put(&y, t, c, ref_at(&x, place, c));
            } else {
                ref_put(&y, place, c, ref_at(&x, t, c));
            }
        }
    }
    return LOONG_OK;
}

static loong_status_t repeat_heads(const loong_kernel_call_t *call)
{
    const loong_repeat_heads_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    int64_t d = a->head_dim;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            ref_put(&y, t, c, ref_at(&x, t, c / (d * a->times) * d + c % d));
        }
    }
    return LOONG_OK;
}

static loong_status_t sum_heads(const loong_kernel_call_t *call)
{
    const loong_repeat_heads_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    int64_t d = a->head_dim;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            int64_t from = c / d * a->times * d + c % d;
            double sum = ref_at(&x, t, from);
            for (int64_t k = 1; k < a->times; k++) {
                sum += ref_at(&x, t, from + k * d);
            }
            ref_put(&y, t, c, sum);
        }
    }
    return LOONG_OK;
}

static loong_status_t select_rows(const loong_kernel_call_t *call)
{
    const loong_select_rows_attr_t *a = call->query->attr;
    const int32_t *is_feature = ref_i32(call, 1);
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    for (int64_t t = 0; t < y.rows; t++) {
        bool other = (is_feature[t] != 0) != a->inverse;
        bool zero = other && call->query->num_in < 3;
        ref_mat_t from = other && !zero ? ref_arg(call, 2) : x;
        for (int64_t c = 0; c < y.cols; c++) {
            ref_put(&y, t, c, zero ? 0.0 : ref_at(&from, t, c));
        }
    }
    return LOONG_OK;
}

static loong_status_t sum_rows(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
#pragma omp parallel for
    for (int64_t c = 0; c < x.cols; c++) {
        double sum = 0.0;
        for (int64_t t = 0; t < x.rows; t++) {
            sum += ref_at(&x, t, c);
        }
        ref_add(call, 0, &y, 0, c, sum);
    }
    return LOONG_OK;
}

static loong_status_t zero(const loong_kernel_call_t *call)
{
    ref_mat_t y = ref_out(call, 0);
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            ref_put(&y, t, c, 0.0);
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_zero_ref = {
    .name = "zero_ref", .op = "zero", .device = "cpu", .run = zero};
const loong_kernel_t loongi_add_ref = {
    .name = "add_ref", .op = "add", .device = "cpu", .run = add};
const loong_kernel_t loongi_scale_ref = {
    .name = "scale_ref", .op = "scale", .device = "cpu", .run = scale};
const loong_kernel_t loongi_cast_ref = {
    .name = "cast_ref", .op = "cast", .device = "cpu", .run = copy};
const loong_kernel_t loongi_copy_ref = {
    .name = "copy_ref", .op = "copy", .device = "cpu", .run = copy};
const loong_kernel_t loongi_accumulate_ref = {.name = "accumulate_ref",
                                              .op = "accumulate",
                                              .device = "cpu",
                                              .run = copy};
const loong_kernel_t loongi_concat_ref = {
    .name = "concat_ref", .op = "concat", .device = "cpu", .run = concat};
const loong_kernel_t loongi_slice_grad_ref = {.name = "slice_grad_ref",
                                              .op = "slice_grad",
                                              .device = "cpu",
                                              .run = slice_grad};
const loong_kernel_t loongi_zigzag_ref = {
    .name = "zigzag_ref", .op = "zigzag", .device = "cpu", .run = zigzag};
const loong_kernel_t loongi_repeat_heads_ref = {.name = "repeat_heads_ref",
                                                .op = "repeat_heads",
                                                .device = "cpu",
                                                .run = repeat_heads};
const loong_kernel_t loongi_sum_heads_ref = {.name = "sum_heads_ref",
                                             .op = "sum_heads",
                                             .device = "cpu",
                                             .run = sum_heads};
const loong_kernel_t loongi_sum_rows_ref = {
    .name = "sum_rows_ref", .op = "sum_rows", .device = "cpu", .run = sum_rows};
REF_KERNEL(select_rows, NULL, select_rows);
REF_KERNEL(multiply, NULL, multiply);
