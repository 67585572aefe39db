/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices that hang (progress.c): who makes a device sets a limit, backends of
 * communicators say when it waits for other ranks. */
#ifndef LOONG_DEVICE_PROGRESS_H
#define LOONG_DEVICE_PROGRESS_H

#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A host's wait for the device is an error (LOONG_ERR_DEVICE) when the device
 * has done nothing of what was launched for so many seconds; 0, as at the
 * start: never. Nothing on a device whose calls return when they are done. */
LOONG_NODISCARD loong_status_t loongi_device_set_limit(loong_device_t *device,
                                                       double seconds);
/* It was found to hang. From then on waits fail at once, and what is freed or
 * destroyed stays as it is. */
bool loongi_device_hangs(const loong_device_t *device);
/* It is in a call that needs other ranks: who watches that call judges it. */
void loongi_device_waits_for_others(loong_device_t *device);

#ifdef __cplusplus
}
#endif

#endif
