/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in CUDA kernels, best first per op. Entered by
 * src/registry/registry_builtin.c. Read list.h before. */
#include "cuda_device.h"
#include "list.h"

const loong_kernel_t *const loongi_cuda_kernels[] = {
#define LOONG_CUDA_LIST(name_) &loongi_##name_##_cuda,
    LOONG_CUDA_KERNELS(LOONG_CUDA_LIST)
#undef LOONG_CUDA_LIST
    NULL,
};
