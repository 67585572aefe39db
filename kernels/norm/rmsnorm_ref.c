/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSNorm (Zhang and Sennrich 2019) over groups of d channels:
 *   r = 1 / sqrt(mean(x^2) + eps),  y = x r w
 *   dx = r (g - x r^2 mean(g x)) with g = dy w,   dw = sum over rows dy x r
 * add_rmsnorm normalises x + residual and gives the sum out; rmsnorm_grad adds
 * `dsum`, the gradient that reaches the sum directly. Listed as references in
 * kernels/list.h; read ref.h before. */
#include "list.h"
#include "ref.h"

static void forward_rows(const loong_kernel_call_t *call, const ref_mat_t *x,
                         const ref_mat_t *w)
{
    const loong_norm_attr_t *attr = call->query->attr;
    ref_mat_t y = ref_out(call, 0);
    ref_mat_t rstd = ref_out(call, 1);
    int64_t d = w->cols;
#pragma omp parallel for
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t g = 0; g < y.cols / d; g++) {
            double sum = 0.0;
            for (int64_t c = 0; c < d; c++) {
                double v = ref_at(x, t, g * d + c);
                sum += v * v;
            }
            double r = 1.0 / sqrt(sum / (double)d + attr->eps);
            ref_put(&rstd, t, g, r);
            for (int64_t c = 0; c < d; c++) {
                ref_put(&y, t, g * d + c,
                        ref_at(x, t, g * d + c) * r * ref_at(w, 0, c));
            }
        }
    }
}

static loong_status_t forward(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t w = ref_arg(call, 1);
    forward_rows(call, &x, &w);
    return LOONG_OK;
}

static loong_status_t forward_add(const loong_kernel_call_t *call)
{
    ref_mat_t a = ref_arg(call, 0);
    ref_mat_t b = ref_arg(call, 1);
    ref_mat_t w = ref_arg(call, 2);
    ref_mat_t sum = ref_out(call, 2);
    for (int64_t t = 0; t < a.rows; t++) {
        for (int64_t c = 0; c < a.cols; c++) {
            ref_put(&sum, t, c, ref_at(&a, t, c) + ref_at(&b, t, c));
        }
    }
    forward_rows(call, &sum, &w);
    return LOONG_OK;
}

static void backward_x(const loong_kernel_call_t *call, const ref_mat_t *dy,
                       const ref_mat_t *x, const ref_mat_t *w,
                       const ref_mat_t *rstd)
{
    ref_mat_t dx = ref_out(call, 0);
    bool more = !ref_absent(call, 4) && call->query->num_in > 4;
    ref_mat_t dsum = more ? ref_arg(call, 4) : dx;
    int64_t d = w->cols;
#pragma omp parallel for
    for (int64_t t = 0; t < dx.rows; t++) {
        for (int64_t g = 0; g < dx.cols / d; g++) {
            double r = ref_at(rstd, t, g);
            double dot = 0.0;
            for (int64_t c = 0; c < d; c++) {
                dot += ref_at(dy, t, g * d + c) * ref_at(w, 0, c) *
                       ref_at(x, t, g * d + c);
            }
            double k = dot / (double)d * r * r;
            for (int64_t c = 0; c < d; c++) {
                double v = r * (ref_at(dy, t, g * d + c) * ref_at(w, 0, c) -
                                ref_at(x, t, g * d + c) * k);
                v += more ? ref_at(&dsum, t, g * d + c) : 0.0;
                ref_put(&dx, t, g * d + c, v);
            }
        }
    }
}

static loong_status_t backward(const loong_kernel_call_t *call)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t w = ref_arg(call, 2);
    ref_mat_t rstd = ref_arg(call, 3);
    ref_mat_t dw = ref_out(call, 1);
    int64_t d = w.cols;
    for (int64_t c = 0; c < d && dw.p != NULL; c++) {
        double sum = 0.0;
        for (int64_t t = 0; t < x.rows; t++) {
            for (int64_t g = 0; g < x.cols / d; g++) {
                sum += ref_at(&dy, t, g * d + c) * ref_at(&x, t, g * d + c) *
                       ref_at(&rstd, t, g);
            }
        }
        ref_add(call, 1, &dw, 0, c, sum);
    }
    backward_x(call, &dy, &x, &w, &rstd);
    return LOONG_OK;
}

const loong_kernel_t loongi_rmsnorm_ref = {.name = "rmsnorm_ref",
                                           .op = "rmsnorm",
                                           .device = "cpu",
                                           .run = forward};
const loong_kernel_t loongi_add_rmsnorm_ref = {.name = "add_rmsnorm_ref",
                                               .op = "add_rmsnorm",
                                               .device = "cpu",
                                               .run = forward_add};
const loong_kernel_t loongi_rmsnorm_grad_ref = {.name = "rmsnorm_grad_ref",
                                                .op = "rmsnorm_grad",
                                                .device = "cpu",
                                                .run = backward};
