/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONGI_DEVICE_FIRST_H
#define LOONGI_DEVICE_FIRST_H

#include "loong/context.h"

/* The name of the backend that "auto" is: the first choice that has a device
 * here; "": none has. Not collective. */
const char *loongi_device_first(const loong_context_t *ctx);

#endif
