/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of ranks that have an XPU each. */
#ifndef LOONG_BKCL_COMM_H
#define LOONG_BKCL_COMM_H

#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library; NULL with the reason. */
void *loongi_bkcl_open(char *why, size_t size);

/* Those of device_comm.h, by BKCL. Collective on: host. */
LOONG_NODISCARD loong_status_t loongi_bkcl_create(loong_context_t *ctx,
                                                  loong_device_t *device,
                                                  loong_comm_t *host,
                                                  loong_comm_t **comm_p);

#ifdef __cplusplus
}
#endif

#endif
