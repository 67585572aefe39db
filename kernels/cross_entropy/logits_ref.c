/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_cross_entropy: of each row of logits x, with its label l and weight
 * w,
 *   lse = log sum exp(x),  loss = w (lse - x[l])
 *   dx[c] = dloss w (exp(x[c] - lse) - [c = l])
 * and nothing where there is no label. A row is a picture: there are so few of
 * them that a processor has no faster version. Listed as references in
 * kernels/list.h; read ref.h before. */
#include "list.h"
#include "ref.h"

static loong_status_t check(const loong_kernel_call_t *call)
{
    const int32_t *labels = ref_i32(call, 1);
    ref_mat_t x = ref_arg(call, 0);
    for (int64_t t = 0; t < x.rows; t++) {
        LOONG_CHECK(call->ctx,
                    labels[t] == LOONG_IGNORE_LABEL ||
                        (labels[t] >= 0 && labels[t] < x.cols),
                    LOONG_ERR_ARG,
                    "label of row %lld is %d, must be in 0..%lld or %d (no "
                    "loss)",
                    (long long)t, labels[t], (long long)x.cols - 1,
                    LOONG_IGNORE_LABEL);
    }
    return LOONG_OK;
}

static loong_status_t forward(const loong_kernel_call_t *call)
{
    const int32_t *labels = ref_i32(call, 1);
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t weight = ref_arg(call, 2);
    ref_mat_t loss = ref_out(call, 0);
    ref_mat_t lse = ref_out(call, 1);
    LOONG_TRY(check(call));
    for (int64_t t = 0; t < x.rows; t++) {
        double top = -INFINITY;
        double sum = 0.0;
        for (int64_t c = 0; c < x.cols; c++) {
            top = fmax(top, ref_at(&x, t, c));
        }
        for (int64_t c = 0; c < x.cols; c++) {
            sum += exp(ref_at(&x, t, c) - top);
        }
        double all = top + log(sum);
        ref_put(&lse, 0, t, all);
        ref_put(&loss, 0, t,
                labels[t] == LOONG_IGNORE_LABEL
                    ? 0.0
                    : ref_at(&weight, 0, t) * (all - ref_at(&x, t, labels[t])));
    }
    return LOONG_OK;
}

static loong_status_t backward(const loong_kernel_call_t *call)
{
    const int32_t *labels = ref_i32(call, 1);
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t weight = ref_arg(call, 2);
    ref_mat_t lse = ref_arg(call, 3);
    ref_mat_t dloss = ref_arg(call, 4);
    ref_mat_t dx = ref_out(call, 0);
    LOONG_TRY(check(call));
    for (int64_t t = 0; t < x.rows; t++) {
        bool ignored = labels[t] == LOONG_IGNORE_LABEL;
        double by = ref_at(&dloss, 0, t) * ref_at(&weight, 0, t);
        for (int64_t c = 0; c < x.cols; c++) {
            double log_p = ref_at(&x, t, c) - ref_at(&lse, 0, t);
            double d = c == labels[t] ? expm1(log_p) : exp(log_p);
            ref_put(&dx, t, c, ignored ? 0.0 : by * d);
        }
    }
    return LOONG_OK;
}

REF_KERNEL(softmax_cross_entropy, NULL, forward);
REF_KERNEL(softmax_cross_entropy_grad, NULL, backward);
