/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for the GPU backend and its kernels in a build without CUDA: a
 * device table that counts none. The registry enters it in place of
 * cuda_device.c, which says what a table is. */
#include <stdio.h>

#include "cuda_device.h"

static int absent_count(char *reason, size_t size)
{
    snprintf(reason, size, "this build has no CUDA (-DLOONG_CUDA=ON)");
    return 0;
}

static void absent_caps(const void *data, loong_device_caps_t *caps)
{
    (void)data;
    loongi_cuda_caps(caps);
}

const loong_device_ops_t loongi_cuda_device = {.name = "cuda",
                                               .caps = absent_caps,
                                               .rates = loongi_cuda_rates,
                                               .driver = LOONG_CUDA_DRIVER,
                                               .count = absent_count};
const loong_kernel_t *const loongi_cuda_kernels[] = {NULL};
