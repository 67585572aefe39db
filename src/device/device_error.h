/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels of a device found wrong, as an error. For backends. */
#ifndef LOONG_DEVICE_ERROR_H
#define LOONG_DEVICE_ERROR_H

#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* LOONG_OK when there is no error; else it is forgotten, and LOONG_ERR_ARG says
 * what it was, on which device. */
LOONG_NODISCARD loong_status_t
loongi_device_error_take(loong_context_t *ctx, const char *device, int index,
                         loong_device_error_t *error);

#ifdef __cplusplus
}
#endif

#endif
