/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's waits for a device, for who watches over them. */
#ifndef LOONG_WAITED_H
#define LOONG_WAITED_H

#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds of the wait that goes on (loong_device_event_await and what rests on
 * it); 0: there is none. */
double loongi_device_waited(const loong_device_t *device);

#ifdef __cplusplus
}
#endif

#endif
