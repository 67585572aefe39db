/* SPDX-License-Identifier: Apache-2.0 */
#include "cross_entropy.h"

loong_status_t loongi_cross_entropy_labels(const loong_kernel_call_t *call)
{
    const loong_cross_entropy_attr_t *attr = call->query->attr;
    const int32_t *labels = call->ptr[2];
    int64_t rows = loong_karg_rows(&call->query->arg[0], call->frame);
    for (int64_t t = 0; t < rows; t++) {
        LOONG_CHECK(call->ctx,
                    labels[t] == LOONG_IGNORE_LABEL ||
                        (labels[t] >= 0 && labels[t] < attr->vocab),
                    LOONG_ERR_ARG,
                    "label of token row %lld is %d, must be in 0..%lld or %d "
                    "(no loss)",
                    (long long)t, labels[t], (long long)attr->vocab - 1,
                    LOONG_IGNORE_LABEL);
    }
    return LOONG_OK;
}
