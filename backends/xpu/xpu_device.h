/* SPDX-License-Identifier: Apache-2.0
 *
 * Kunlun XPUs: the P800 and what has its libraries. Always compiled in; on a
 * machine without those libraries there is none. */
#ifndef LOONG_XPU_DEVICE_H
#define LOONG_XPU_DEVICE_H

#include "loong/device.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_device_ops_t loongi_xpu_device;

#ifdef __cplusplus
}
#endif

#endif
