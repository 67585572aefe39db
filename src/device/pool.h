/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device's pool keeps of memory that was freed. */
#ifndef LOONG_POOL_H
#define LOONG_POOL_H

#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives it back to the driver; `pool_most` (loong_device_usage_t) is counted
 * anew. Waits for the compute stream. Nothing to do without a pool. */
LOONG_NODISCARD loong_status_t loongi_device_trim(loong_device_t *device);

#ifdef __cplusplus
}
#endif

#endif
