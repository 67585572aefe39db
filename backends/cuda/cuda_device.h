/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA GPUs. Without CUDA (cuda_absent.c) there is none, and the list of
 * kernels is empty. */
#ifndef LOONG_CUDA_DEVICE_H
#define LOONG_CUDA_DEVICE_H

#include "loong/device.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_device_ops_t loongi_cuda_device;
/* Best first per op; ends with NULL. */
extern const loong_kernel_t *const loongi_cuda_kernels[];

#ifdef __cplusplus
}
#endif

#endif
