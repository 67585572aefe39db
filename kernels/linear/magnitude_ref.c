/* SPDX-License-Identifier: Apache-2.0
 *
 * magnitude. x is [T,C], s [C,1], m and b [C]; without m it is 1, without b 0:
 *
 *     y[t,c] = x[t,c] m[c] / sqrt(s[c]) + b[c]
 *
 * With u = x / sqrt(s), which is magnitude without m: dx = magnitude of dy, dm
 * = sum over t of dy u, db = sum over t of dy; s is a constant.
 *
 * Listed as a reference in kernels/list.h; read ref.h before. */
#include "list.h"
#include "ref.h"

static bool has(const loong_kernel_call_t *call, int i)
{
    return call->query->num_in > i && call->ptr[i] != NULL;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t s = ref_arg(call, 1);
    ref_mat_t m = has(call, 2) ? ref_arg(call, 2) : s;
    ref_mat_t b = has(call, 3) ? ref_arg(call, 3) : s;
    ref_mat_t y = ref_out(call, 0);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        for (int64_t c = 0; c < x.cols; c++) {
            double v = ref_at(&x, t, c) / sqrt(ref_at(&s, c, 0));
            v *= has(call, 2) ? ref_at(&m, 0, c) : 1.0;
            v += has(call, 3) ? ref_at(&b, 0, c) : 0.0;
            ref_put(&y, t, c, v);
        }
    }
    return LOONG_OK;
}

REF_KERNEL(magnitude, NULL, run);
