/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists behind include/loong/register.h; part of the context. */
#ifndef LOONG_REGISTRY_H
#define LOONG_REGISTRY_H

#include "base.h"

typedef struct loong_registry {
    const void **ops;
    int64_t num_ops, cap_ops;
    const void **kernels;
    int64_t num_kernels, cap_kernels;
    const void **devices;
    int64_t num_devices, cap_devices;
    const void **families;
    int64_t num_families, cap_families;
    bool builtin; /* the library's own are entered */
} loong_registry_t;

loong_registry_t *loongi_context_registry(loong_context_t *ctx);
const loong_registry_t *
loongi_context_registry_const(const loong_context_t *ctx);
void loongi_registry_clear(loong_context_t *ctx);

#endif
