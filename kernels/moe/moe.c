/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the integers that kernels of experts index with: choices, offsets,
 * rows. Called by the CPU kernels and references of experts, of activations and
 * of tensor_stats. Read loong/moe.h before. */
#include "moe.h"

static int64_t elements(const loong_karg_t *arg)
{
    return loong_karg_rows(arg) * loong_karg_cols(arg);
}

loong_status_t loongi_moe_check(const loong_kernel_call_t *call, int i,
                                int64_t low, int64_t high)
{
    const int32_t *value = call->ptr[i];
    int64_t n = elements(&call->query->arg[i]);
    for (int64_t k = 0; k < n; k++) {
        LOONG_CHECK(call->ctx, value[k] >= low && value[k] <= high,
                    LOONG_ERR_ARG,
                    "%s: operand %d has %d at %lld, allowed %lld to %lld",
                    call->query->op, i, value[k], (long long)k,
                    (long long)low, (long long)high);
    }
    return LOONG_OK;
}

loong_status_t loongi_moe_check_offsets(const loong_kernel_call_t *call, int i,
                                        int64_t rows)
{
    const int32_t *offset = call->ptr[i];
    int64_t n = elements(&call->query->arg[i]);
    for (int64_t k = 0; k < n; k++) {
        int64_t before = k > 0 ? offset[k - 1] : 0;
        LOONG_CHECK(call->ctx,
                    offset[k] >= before && offset[k] <= rows &&
                        (k > 0 || offset[k] == 0),
                    LOONG_ERR_ARG,
                    "%s: offset %lld is %d after %lld, there are %lld rows",
                    call->query->op, (long long)k, offset[k],
                    (long long)before, (long long)rows);
    }
    return LOONG_OK;
}

loong_status_t loongi_moe_count_rows(const loong_kernel_call_t *call, int i,
                                     int64_t rows, int64_t *rows_p)
{
    *rows_p = rows;
    if (i < call->query->num_in && call->ptr[i] != NULL) {
        int64_t last = elements(&call->query->arg[i]) - 1;
        *rows_p = ((const int32_t *)call->ptr[i])[last];
        LOONG_CHECK(call->ctx, *rows_p >= 0 && *rows_p <= rows, LOONG_ERR_ARG,
                    "%s: offset %lld is %lld, there are %lld rows",
                    call->query->op, (long long)last, (long long)*rows_p,
                    (long long)rows);
    }
    return LOONG_OK;
}

loong_status_t loongi_moe_check_rows(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    LOONG_TRY(loongi_moe_check(call, 1, -1, elements(&q->arg[2]) - 1));
    return loongi_moe_check(call, 2, LOONG_NO_TOKEN,
                            elements(&q->arg[1]) - 1);
}
