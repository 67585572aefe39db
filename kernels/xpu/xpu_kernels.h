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

/* False with the reason: products cannot be made here. */
bool loongi_xpu_has_blas(char reason[LOONG_REASON_SIZE]);

/* Best first; ends with NULL. */
extern const loong_kernel_t *const loongi_xpu_products[];

/* Products of experts, two of them. */
extern const loong_kernel_t loongi_xpu_grouped, loongi_xpu_grouped_dw;

/* Products of adapters, with what a shim may have beside them; as above. */
extern const loong_kernel_t *const loongi_xpu_adapters[];

/* Losses, of products and what a shim may have between them (raw_xpu.h). */
extern const loong_kernel_t *const loongi_xpu_heads[];

/* Whatever the shim has, by the op of a query: for those that launch it. */
extern const loong_kernel_t loongi_xpu_raw;

#ifdef __cplusplus
}
#endif

#endif
