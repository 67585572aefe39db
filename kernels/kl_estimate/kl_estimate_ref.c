/* SPDX-License-Identifier: Apache-2.0
 *
 * kl_estimate, the third estimator of Schulman, Approximating KL Divergence
 * (2020): with p and r the log-probabilities of a token that the policy drew
 * and d = r - p,
 *
 *     y = exp(d) - 1 - d,  dy/dp = 1 - exp(d)
 *
 * y is not negative, and its mean over the policy's tokens is KL(policy ||
 * reference). Both subtract numbers of about the same size where d is small, so
 * exp(d) - 1 is made in one step. A value each token is nothing to a processor,
 * so there is no faster version. Listed as references in kernels/list.h; read
 * ref.h before. */
#include "list.h"
#include "ref.h"

static loong_status_t forward(const loong_kernel_call_t *call)
{
    ref_mat_t policy = ref_arg(call, 0);
    ref_mat_t reference = ref_arg(call, 1);
    ref_mat_t y = ref_out(call, 0);
    for (int64_t t = 0; t < y.cols; t++) {
        double d = ref_at(&reference, 0, t) - ref_at(&policy, 0, t);
        ref_put(&y, 0, t, expm1(d) - d);
    }
    return LOONG_OK;
}

static loong_status_t backward(const loong_kernel_call_t *call)
{
    ref_mat_t dy = ref_arg(call, 0);
    ref_mat_t policy = ref_arg(call, 1);
    ref_mat_t reference = ref_arg(call, 2);
    ref_mat_t dpolicy = ref_out(call, 0);
    for (int64_t t = 0; t < dpolicy.cols; t++) {
        double d = ref_at(&reference, 0, t) - ref_at(&policy, 0, t);
        ref_put(&dpolicy, 0, t, -ref_at(&dy, 0, t) * expm1(d));
    }
    return LOONG_OK;
}

REF_KERNEL(kl_estimate, NULL, forward);
REF_KERNEL(kl_estimate_grad, NULL, backward);
