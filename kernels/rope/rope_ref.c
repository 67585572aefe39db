/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary embedding (Su et al. 2021), by the frequencies of rope.c. The
 * derivative of a rotation is its transpose. Listed as references in
 * kernels/list.h; read ref.h and rope.h before. */
#include "list.h"
#include "ref.h"
#include "rope.h"

static loong_status_t table(const loong_kernel_call_t *call)
{
    const loong_rope_table_attr_t *a = call->query->attr;
    const int32_t *positions = ref_i32(call, 0);
    ref_mat_t y = ref_out(call, 0);
    int half = a->rotary_dim / 2;
    double factor = loongi_rope_factor(a);
    for (int i = 0; i < half; i++) {
        double theta = loongi_rope_frequency(a, i);
        const int32_t *of = positions + loongi_rope_axis(a, i) * y.rows;
        for (int64_t t = 0; t < y.rows; t++) {
            double angle = (double)of[t] * theta;
            ref_put(&y, t, i, factor * cos(angle));
            ref_put(&y, t, half + i, factor * sin(angle));
        }
    }
    return LOONG_OK;
}

static loong_status_t rotate(const loong_kernel_call_t *call)
{
    const loong_rope_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t cs = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
    int64_t half = cs.cols / 2;
#pragma omp parallel for
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t h = 0; h < x.cols; h += a->head_dim) {
            for (int64_t i = 0; i < half; i++) {
                int64_t first = h + a->begin;
                int64_t p = first + (a->interleaved ? 2 * i : i);
                int64_t q = first + (a->interleaved ? 2 * i + 1 : i + half);
                double c = ref_at(&cs, t, i);
                double s = ref_at(&cs, t, half + i);
                double u = ref_at(&x, t, p);
                double v = ref_at(&x, t, q);
                s = a->inverse ? -s : s;
                ref_put(&y, t, p, u * c - v * s);
                ref_put(&y, t, q, v * c + u * s);
            }
            for (int64_t i = 0; i < a->head_dim; i++) {
                if (i < a->begin || i >= a->begin + 2 * half) {
                    ref_put(&y, t, h + i, ref_at(&x, t, h + i));
                }
            }
        }
    }
    return LOONG_OK;
}

static loong_status_t angles(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t i = 0; i < x.cols; i++) {
            double angle = ref_at(&x, t, i);
            ref_put(&y, t, i, cos(angle));
            ref_put(&y, t, x.cols + i, sin(angle));
        }
    }
    return LOONG_OK;
}

/* Of y = (u c - v s, v c + u s): dc = dy . (u, v), ds = dy . (-v, u), summed
 * over the heads. */
static loong_status_t table_grad(const loong_kernel_call_t *call)
{
    const loong_rope_attr_t *a = call->query->attr;
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t out = ref_out(call, 0);
    int64_t half = out.cols / 2;
#pragma omp parallel for
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t i = 0; i < half; i++) {
            double dc = 0.0, ds = 0.0;
            for (int64_t h = a->begin; h < x.cols; h += a->head_dim) {
                int64_t p = h + (a->interleaved ? 2 * i : i);
                int64_t q = h + (a->interleaved ? 2 * i + 1 : i + half);
                double u = ref_at(&x, t, p), v = ref_at(&x, t, q);
                double du = ref_at(&dy, t, p), dv = ref_at(&dy, t, q);
                dc += du * u + dv * v;
                ds += dv * u - du * v;
            }
            ref_add(call, 0, &out, t, i, dc);
            ref_add(call, 0, &out, t, half + i, a->inverse ? -ds : ds);
        }
    }
    return LOONG_OK;
}

REF_KERNEL(rope_angles, NULL, angles);
REF_KERNEL(rope_table_grad, NULL, table_grad);
const loong_kernel_t loongi_rope_table_ref = {.name = "rope_table_ref",
                                              .op = "rope_table",
                                              .device = "cpu",
                                              .run = table};
const loong_kernel_t loongi_rope_ref = {
    .name = "rope_ref", .op = "rope", .device = "cpu", .run = rotate};
