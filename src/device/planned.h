/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices that are not there: loong_device_create_planned. */
#ifndef LOONG_PLANNED_H
#define LOONG_PLANNED_H

#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Refuses a kind of device that this build has no kernels of. Errors:
 * NOT_FOUND. */
LOONG_NODISCARD loong_status_t
loongi_device_check_planned(loong_context_t *ctx, const char *name);

/* Is the memory of such devices the host's? */
bool loongi_device_kind_is_host(const loong_context_t *ctx, const char *kind);

/* A device of a backend's table. data: of a planned one, whose table has no
 * `create`; else NULL. */
LOONG_NODISCARD loong_status_t
loongi_device_open(loong_context_t *ctx, const loong_device_ops_t *ops,
                   int index, void *data, loong_device_t **device_p);

#ifdef __cplusplus
}
#endif

#endif
