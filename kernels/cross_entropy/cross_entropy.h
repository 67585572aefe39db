/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of labels that all cross_entropy kernels make. */
#ifndef LOONG_CROSS_ENTROPY_H
#define LOONG_CROSS_ENTROPY_H

#include "base.h"
#include "loong/kernel.h"
#include "loong/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Errors: LOONG_ERR_ARG, naming the row and the label. */
LOONG_NODISCARD loong_status_t
loongi_cross_entropy_labels(const loong_kernel_call_t *call);

#ifdef __cplusplus
}
#endif

#endif
