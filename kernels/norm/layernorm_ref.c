/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm (Ba et al. 2016): m = mean(x), r = 1 / sqrt(var(x) + eps),
 *   y = (x - m) r w + b
 *   with n = (x - m) r and g = dy w:  dx = r (g - mean(g) - n mean(g n))
 *   dw = sum dy n,  db = sum dy
 * add_layernorm normalises x + residual as it is stored, and gives that out;
 * layernorm_grad adds `dsum`, the gradient that reaches the sum directly.
 *
 * Listed as references in kernels/list.h; read ref.h before. */
#include "list.h"
#include "ref.h"

static void forward_rows(const loong_kernel_call_t *call, const ref_mat_t *x,
                         int w_arg)
{
    const loong_norm_attr_t *attr = call->query->attr;
    ref_mat_t w = ref_arg(call, w_arg);
    bool bias = w_arg + 1 < call->query->num_in && !ref_absent(call, w_arg + 1);
    ref_mat_t b = ref_arg(call, bias ? w_arg + 1 : w_arg);
    ref_mat_t y = ref_out(call, 0);
    ref_mat_t mean = ref_out(call, 1);
    ref_mat_t rstd = ref_out(call, 2);
    double n = (double)y.cols;
#pragma omp parallel for
    for (int64_t t = 0; t < y.rows; t++) {
        double m = 0.0;
        double var = 0.0;
        for (int64_t c = 0; c < y.cols; c++) {
            m += ref_at(x, t, c);
        }
        m /= n;
        for (int64_t c = 0; c < y.cols; c++) {
            double v = ref_at(x, t, c) - m;
            var += v * v;
        }
        double r = 1.0 / sqrt(var / n + attr->eps);
        ref_put(&mean, t, 0, m);
        ref_put(&rstd, t, 0, r);
        for (int64_t c = 0; c < y.cols; c++) {
            double v = (ref_at(x, t, c) - m) * r * ref_at(&w, 0, c);
            ref_put(&y, t, c, v + (bias ? ref_at(&b, 0, c) : 0.0));
        }
    }
}

static loong_status_t forward(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    forward_rows(call, &x, 1);
    return LOONG_OK;
}

static loong_status_t forward_add(const loong_kernel_call_t *call)
{
    ref_mat_t a = ref_arg(call, 0);
    ref_mat_t b = ref_arg(call, 1);
    ref_mat_t sum = ref_out(call, 3);
    for (int64_t t = 0; t < a.rows; t++) {
        for (int64_t c = 0; c < a.cols; c++) {
            ref_put(&sum, t, c, ref_at(&a, t, c) + ref_at(&b, t, c));
        }
    }
    forward_rows(call, &sum, 2);
    return LOONG_OK;
}

static void backward_w(const loong_kernel_call_t *call, const ref_mat_t *dy,
                       const ref_mat_t *x, const ref_mat_t *mean,
                       const ref_mat_t *rstd)
{
    ref_mat_t dw = ref_out(call, 1);
    ref_mat_t db = ref_out(call, 2);
    for (int64_t c = 0; c < x->cols; c++) {
        double sum_w = 0.0;
        double sum_b = 0.0;
        for (int64_t t = 0; t < x->rows; t++) {
            double n = (ref_at(x, t, c) - ref_at(mean, t, 0)) *
                       ref_at(rstd, t, 0);
            sum_w += ref_at(dy, t, c) * n;
            sum_b += ref_at(dy, t, c);
        }
        if (dw.p != NULL) {
            ref_add(call, 1, &dw, 0, c, sum_w);
        }
        if (db.p != NULL) {
            ref_add(call, 2, &db, 0, c, sum_b);
        }
    }
}

static loong_status_t backward(const loong_kernel_call_t *call)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t w = ref_arg(call, 2);
    ref_mat_t mean = ref_arg(call, 3);
    ref_mat_t rstd = ref_arg(call, 4);
    ref_mat_t dx = ref_out(call, 0);
    bool more = call->query->num_in > 5 && !ref_absent(call, 5);
    ref_mat_t dsum = more ? ref_arg(call, 5) : dx;
    double n = (double)x.cols;
    backward_w(call, &dy, &x, &mean, &rstd);
    for (int64_t t = 0; t < x.rows; t++) {
        double m = ref_at(&mean, t, 0);
        double r = ref_at(&rstd, t, 0);
        double sum_g = 0.0;
        double sum_gn = 0.0;
        for (int64_t c = 0; c < x.cols; c++) {
            double g = ref_at(&dy, t, c) * ref_at(&w, 0, c);
            sum_g += g;
            sum_gn += g * (ref_at(&x, t, c) - m) * r;
        }
        for (int64_t c = 0; c < x.cols; c++) {
            double g = ref_at(&dy, t, c) * ref_at(&w, 0, c);
            double v = (ref_at(&x, t, c) - m) * r;
            v = r * (g - sum_g / n - v * sum_gn / n);
            ref_put(&dx, t, c, v + (more ? ref_at(&dsum, t, c) : 0.0));
        }
    }
    return LOONG_OK;
}

const loong_kernel_t loongi_layernorm_ref = {.name = "layernorm_ref",
                                             .op = "layernorm",
                                             .device = "cpu",
                                             .run = forward};
const loong_kernel_t loongi_add_layernorm_ref = {.name = "add_layernorm_ref",
                                                 .op = "add_layernorm",
                                                 .device = "cpu",
                                                 .run = forward_add};
const loong_kernel_t loongi_layernorm_grad_ref = {
    .name = "layernorm_grad_ref", .op = "layernorm_grad", .device = "cpu",
    .run = backward};
