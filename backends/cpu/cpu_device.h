/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_CPU_DEVICE_H
#define LOONG_CPU_DEVICE_H

#include "loong/device.h"

extern const loong_device_ops_t loongi_cpu_device;

#endif
