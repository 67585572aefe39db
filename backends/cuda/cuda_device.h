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
/* Ends with one without a name. */
extern const loong_device_rates_t loongi_cuda_rates[];
#define LOONG_CUDA_DRIVER "/proc/driver/nvidia/version"
/* Of any GPU. */
void loongi_cuda_caps(loong_device_caps_t *caps);
/* Best first per op; ends with NULL. */
extern const loong_kernel_t *const loongi_cuda_kernels[];

#ifdef __cplusplus
}
#endif

#endif
