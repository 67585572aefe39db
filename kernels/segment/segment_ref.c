/* SPDX-License-Identifier: Apache-2.0
 *
 * segment_sum:    y[s] = sum over t in cu[s] .. cu[s+1]-1 of x[t]
 * segment_repeat: y[t] = x[s] with t in cu[s] .. cu[s+1]-1, else 0
 *
 * With A[s,t] = 1 where row t is in segment s, else 0, these are A x and A' x:
 * each is the other's derivative. A value each row is nothing to a processor,
 * so there is no faster version. Listed as references in kernels/list.h; read
 * ref.h before. */
#include "list.h"
#include "ref.h"

static loong_status_t check(const loong_kernel_call_t *call)
{
    const loong_segment_attr_t *a = call->query->attr;
    const int32_t *offset = ref_i32(call, 1);
    int64_t count = loong_karg_cols(&call->query->arg[1]);
    for (int64_t s = 0; s < count; s++) {
        int32_t before = s > 0 ? offset[s - 1] : 0;
        LOONG_CHECK(call->ctx, offset[s] >= before && offset[s] <= a->rows,
                    LOONG_ERR_ARG,
                    "%s: offset %lld is %d after %d, there are %lld rows",
                    call->query->op, (long long)s, offset[s], before,
                    (long long)a->rows);
    }
    return LOONG_OK;
}

static loong_status_t sum(const loong_kernel_call_t *call)
{
    const int32_t *offset = ref_i32(call, 1);
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    LOONG_TRY(check(call));
    for (int64_t s = 0; s < y.cols; s++) {
        double total = 0.0;
        for (int64_t t = offset[s]; t < offset[s + 1]; t++) {
            total += ref_at(&x, 0, t);
        }
        ref_put(&y, 0, s, total);
    }
    return LOONG_OK;
}

static loong_status_t repeat(const loong_kernel_call_t *call)
{
    const int32_t *offset = ref_i32(call, 1);
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t y = ref_out(call, 0);
    LOONG_TRY(check(call));
    for (int64_t t = 0; t < y.cols; t++) {
        ref_put(&y, 0, t, 0.0);
    }
    for (int64_t s = 0; s < x.cols; s++) {
        for (int64_t t = offset[s]; t < offset[s + 1]; t++) {
            ref_put(&y, 0, t, ref_at(&x, 0, s));
        }
    }
    return LOONG_OK;
}

REF_KERNEL(segment_sum, NULL, sum);
REF_KERNEL(segment_repeat, NULL, repeat);
