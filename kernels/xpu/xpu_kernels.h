/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of XPUs: products of the vendor's BLAS, and whatever the kernel shim
 * of this machine has (xpu_shim.h). */
#ifndef LOONG_XPU_KERNELS_H
#define LOONG_XPU_KERNELS_H

#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enters those that can run here: none where there is no shim, and of it those
 * ops alone that it has. */
LOONG_NODISCARD loong_status_t
loongi_xpu_kernels_register(loong_context_t *ctx);

/* Best first; ends with NULL. */
extern const loong_kernel_t *const loongi_xpu_products[];

#ifdef __cplusplus
}
#endif

#endif
