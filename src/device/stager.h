/* SPDX-License-Identifier: Apache-2.0
 *
 * Who makes communicators of ranks whose memory is not of one kind: a backend,
 * entered into the context by who enters devices. */
#ifndef LOONG_STAGER_H
#define LOONG_STAGER_H

#include "loong/comm.h"
#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_stager {
    /* For all ranks of a job (host, borrowed), each with the device it has.
     * always: between devices of one kind, too. Collective on: host. */
    loong_status_t (*create)(loong_context_t *ctx, loong_device_t *device,
                             loong_comm_t *host, bool always,
                             loong_comm_t **comm_p);
    size_t (*bytes)(void); /* of pinned memory of a rank, besides messages */
} loong_stager_t;

/* The stager is borrowed, and must outlive the context. */
LOONG_NODISCARD loong_status_t
loongi_stager_register(loong_context_t *ctx, const loong_stager_t *stager);
/* The newest. Errors: LOONG_ERR_UNSUPPORTED where there is none. */
LOONG_NODISCARD loong_status_t
loongi_stager_find(loong_context_t *ctx, const loong_stager_t **stager_p);

#ifdef __cplusplus
}
#endif

#endif
