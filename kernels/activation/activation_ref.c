/* SPDX-License-Identifier: Apache-2.0
 *
 * SwiGLU (Shazeer 2020): y = silu(a) b with x = [a | b], silu(a) = a s(a);
 *   da = dy b s(a) (1 + a (1 - s(a))),  db = dy silu(a);
 * of all rows, or of those of experts.
 * GELU (Hendrycks and Gimpel 2016): y = x Phi(x), dy/dx = Phi(x) + x phi(x);
 * tanh form: y = x (1 + tanh u) / 2, u = sqrt(2/pi) (x + 0.044715 x^3);
 * quick form: y = x s(k x), dy/dx = s(k x) (1 + k x (1 - s(k x))), k = 1.702.
 *
 * Listed as references in kernels/list.h; read ref.h before. */
#include "list.h"
#include "moe/moe.h"
#include "ref.h"

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static loong_status_t swiglu(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    LOONG_TRY(loongi_moe_count_rows(call, 1, y.rows, &y.rows));
#pragma omp parallel for
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            double a = ref_at(&x, t, c);
            ref_put(&y, t, c, a * sigmoid(a) * ref_at(&x, t, y.cols + c));
        }
    }
    return LOONG_OK;
}

static loong_status_t swiglu_grad(const loong_kernel_call_t *call)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t dx = ref_out(call, 0);
    LOONG_TRY(loongi_moe_count_rows(call, 2, dy.rows, &dy.rows));
#pragma omp parallel for
    for (int64_t t = 0; t < dy.rows; t++) {
        for (int64_t c = 0; c < dy.cols; c++) {
            double a = ref_at(&x, t, c);
            double b = ref_at(&x, t, dy.cols + c);
            double d = ref_at(&dy, t, c);
            double s = sigmoid(a);
            ref_put(&dx, t, c, d * b * s * (1.0 + a * (1.0 - s)));
            ref_put(&dx, t, dy.cols + c, d * a * s);
        }
    }
    return LOONG_OK;
}

static const double root_2_pi = 0.79788456080286535588; /* sqrt(2 / pi) */

static double gelu_value(double x, loong_activation_t form)
{
    if (form == LOONG_ACT_QUICK_GELU) {
        return x * sigmoid(1.702 * x);
    }
    if (form == LOONG_ACT_GELU_TANH) {
        double u = root_2_pi * (x + 0.044715 * x * x * x);
        return 0.5 * x * (1.0 + tanh(u));
    }
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}

static double gelu_slope(double x, loong_activation_t form)
{
    if (form == LOONG_ACT_QUICK_GELU) {
        double s = sigmoid(1.702 * x);
        return s * (1.0 + 1.702 * x * (1.0 - s));
    }
    if (form == LOONG_ACT_GELU_TANH) {
        double u = root_2_pi * (x + 0.044715 * x * x * x);
        double t = tanh(u);
        return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root_2_pi *
                                     (1.0 + 3.0 * 0.044715 * x * x);
    }
    return 0.5 * erfc(-x * 0.70710678118654752440) +
           x * 0.5 * root_2_pi * exp(-0.5 * x * x);
}

static loong_status_t gelu(const loong_kernel_call_t *call)
{
    const loong_gelu_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
#pragma omp parallel for
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t c = 0; c < y.cols; c++) {
            ref_put(&y, t, c, gelu_value(ref_at(&x, t, c), a->form));
        }
    }
    return LOONG_OK;
}

static loong_status_t gelu_grad(const loong_kernel_call_t *call)
{
    const loong_gelu_attr_t *a = call->query->attr;
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t dx = ref_out(call, 0);
#pragma omp parallel for
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t c = 0; c < x.cols; c++) {
            ref_put(&dx, t, c,
                    ref_at(&dy, t, c) * gelu_slope(ref_at(&x, t, c), a->form));
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_swiglu_ref = {
    .name = "swiglu_ref", .op = "swiglu", .device = "cpu", .run = swiglu};
const loong_kernel_t loongi_swiglu_grad_ref = {.name = "swiglu_grad_ref",
                                               .op = "swiglu_grad",
                                               .device = "cpu",
                                               .run = swiglu_grad};
const loong_kernel_t loongi_gelu_ref = {
    .name = "gelu_ref", .op = "gelu", .device = "cpu", .run = gelu};
const loong_kernel_t loongi_gelu_grad_ref = {.name = "gelu_grad_ref",
                                             .op = "gelu_grad",
                                             .device = "cpu",
                                             .run = gelu_grad};
