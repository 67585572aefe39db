/* SPDX-License-Identifier: Apache-2.0
 *
 * muon_momentum, muon_normalize, muon_polynomial, muon_step; the formulas stand
 * in loong/update.h. The products between them are ops of their own, and take
 * most of the time. Listed as references in kernels/list.h; read
 * master.h and muon.h before. */
#include "list.h"
#include "master.h"
#include "muon.h"

static loong_status_t momentum(const loong_kernel_call_t *call)
{
    const loong_muon_attr_t *a = call->query->attr;
    ref_mat_t g = ref_arg(call, 0);
    ref_mat_t b = ref_out(call, 0);
    ref_mat_t u = ref_out(call, 1);
#pragma omp parallel for num_threads(call->query->threads)
    for (int64_t i = 0; i < u.rows; i++) {
        int64_t k = loongi_muon_part_row(a, g.rows, i);
        for (int64_t j = 0; j < u.cols; j++) {
            int64_t l = j - a->col;
            double step = 0.0;
            if (k >= 0 && l >= 0 && l < g.cols) {
                double x = ref_at(&g, k, l) * call->frame->grad_scale;
                double own = (1.0 - a->momentum) * x;
                double m = a->momentum * ref_at(&b, k, l) + own;
                ref_put(&b, k, l, m);
                step = a->nesterov ? a->momentum * m + own : m;
            }
            ref_put(&u, i, j, step);
        }
    }
    return LOONG_OK;
}

static loong_status_t normalize(const loong_kernel_call_t *call)
{
    ref_mat_t u = ref_arg(call, 0);
    ref_mat_t x = ref_out(call, 0);
    const double *stats = call->ptr[1];
    double norm = fmax(sqrt(stats[0]), 1e-7);
#pragma omp parallel for num_threads(call->query->threads)
    for (int64_t i = 0; i < u.rows; i++) {
        for (int64_t j = 0; j < u.cols; j++) {
            ref_put(&x, i, j, ref_at(&u, i, j) / norm);
        }
    }
    return LOONG_OK;
}

static loong_status_t polynomial(const loong_kernel_call_t *call)
{
    ref_mat_t a = ref_arg(call, 0);
    ref_mat_t p = ref_arg(call, 1);
    ref_mat_t b = ref_out(call, 0);
#pragma omp parallel for num_threads(call->query->threads)
    for (int64_t i = 0; i < a.rows; i++) {
        for (int64_t j = 0; j < a.cols; j++) {
            ref_put(&b, i, j,
                    (i == j ? 3.4445 : 0.0) - 4.7750 * ref_at(&a, i, j) +
                        2.0315 * ref_at(&p, i, j));
        }
    }
    return LOONG_OK;
}

static loong_status_t step(const loong_kernel_call_t *call)
{
    const loong_muon_attr_t *a = call->query->attr;
    ref_mat_t o = ref_arg(call, 0);
    ref_mat_t p = ref_out(call, 0);
    uint16_t *low = call->ptr[2];
    double lr = call->frame->lr[a->group];
#pragma omp parallel for num_threads(call->query->threads)
    for (int64_t k = 0; k < p.rows; k++) {
        int64_t i = loongi_muon_whole_row(a, k);
        for (int64_t l = 0; l < p.cols; l++) {
            int64_t at = k * p.cols + l;
            double w = ref_master_get(&p, low, at);
            double change = a->scale * ref_at(&o, i, a->col + l);
            ref_master_set(&p, low, at,
                           w - lr * (change + a->weight_decay * w));
        }
    }
    return LOONG_OK;
}

REF_KERNEL(muon_momentum, NULL, momentum);
REF_KERNEL(muon_normalize, NULL, normalize);
REF_KERNEL(muon_polynomial, NULL, polynomial);
REF_KERNEL(muon_step, NULL, step);
