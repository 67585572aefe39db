/* SPDX-License-Identifier: Apache-2.0
 *
 * mean_squares and rms_scale: an RMS norm whose channels several ranks have. By
 * rows, with the factor f and m the sum over all ranks of their f sum(x^2):
 *   r = 1 / sqrt(m + eps),  y = x r w
 * With g = dy w:
 *   dm = -r^3 / 2 sum(g x)  (of all ranks together where it is used)
 *   dx = g r  from rms_scale, and  2 f dm x  from mean_squares
 *   dw = sum over rows dy x r
 *
 * Listed as references in kernels/list.h; read ref.h before. */
#include "list.h"
#include "ref.h"

static double inverse_root(const loong_kernel_call_t *call,
                           const ref_mat_t *m, int64_t t)
{
    const loong_norm_attr_t *attr = call->query->attr;
    return 1.0 / sqrt(ref_at(m, t, 0) + attr->eps);
}

static loong_status_t squares(const loong_kernel_call_t *call)
{
    const loong_mean_squares_attr_t *attr = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t m = ref_out(call, 0);
    for (int64_t t = 0; t < x.rows; t++) {
        double sum = 0.0;
        for (int64_t c = 0; c < x.cols; c++) {
            sum += ref_at(&x, t, c) * ref_at(&x, t, c);
        }
        ref_put(&m, t, 0, attr->factor * sum);
    }
    return LOONG_OK;
}

static loong_status_t squares_grad(const loong_kernel_call_t *call)
{
    const loong_mean_squares_attr_t *attr = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t dm = ref_arg(call, 1);
    ref_mat_t dx = ref_out(call, 0);
    for (int64_t t = 0; t < x.rows; t++) {
        double factor = 2.0 * attr->factor * ref_at(&dm, t, 0);
        for (int64_t c = 0; c < x.cols; c++) {
            ref_put(&dx, t, c, factor * ref_at(&x, t, c));
        }
    }
    return LOONG_OK;
}

static loong_status_t scale(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t m = ref_arg(call, 1);
    ref_mat_t w = ref_arg(call, 2);
    ref_mat_t y = ref_out(call, 0);
    for (int64_t t = 0; t < x.rows; t++) {
        double r = inverse_root(call, &m, t);
        for (int64_t c = 0; c < x.cols; c++) {
            ref_put(&y, t, c, ref_at(&x, t, c) * r * ref_at(&w, 0, c));
        }
    }
    return LOONG_OK;
}

static void scale_grad_row(const loong_kernel_call_t *call, int64_t t)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t m = ref_arg(call, 2);
    ref_mat_t w = ref_arg(call, 3);
    ref_mat_t dx = ref_out(call, 0);
    ref_mat_t dm = ref_out(call, 1);
    double r = inverse_root(call, &m, t);
    double dot = 0.0;
    for (int64_t c = 0; c < x.cols; c++) {
        double g = ref_at(&dy, t, c) * ref_at(&w, 0, c);
        dot += g * ref_at(&x, t, c);
        ref_put(&dx, t, c, g * r);
    }
    ref_put(&dm, t, 0, -0.5 * r * r * r * dot);
}

static loong_status_t scale_grad(const loong_kernel_call_t *call)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t m = ref_arg(call, 2);
    ref_mat_t dw = ref_out(call, 2);
    for (int64_t c = 0; c < x.cols && dw.p != NULL; c++) {
        double sum = 0.0;
        for (int64_t t = 0; t < x.rows; t++) {
            sum += ref_at(&dy, t, c) * ref_at(&x, t, c) *
                   inverse_root(call, &m, t);
        }
        ref_add(call, 2, &dw, 0, c, sum);
    }
    for (int64_t t = 0; t < x.rows; t++) {
        scale_grad_row(call, t); /* dx may be the memory of dy */
    }
    return LOONG_OK;
}

REF_KERNEL(mean_squares, NULL, squares);
REF_KERNEL(mean_squares_grad, NULL, squares_grad);
REF_KERNEL(rms_scale, NULL, scale);
REF_KERNEL(rms_scale_grad, NULL, scale_grad);
