/* SPDX-License-Identifier: Apache-2.0
 *
 * What is registered in a context, a list for each kind of thing. Who declares
 * the things registers and finds them. */
#ifndef LOONG_REGISTRY_H
#define LOONG_REGISTRY_H

#include "base.h"

#define LOONG_REGISTRY_OPS "registered ops"
#define LOONG_REGISTRY_KERNELS "registered kernels"
#define LOONG_REGISTRY_DEVICES "registered devices"
#define LOONG_REGISTRY_STAGERS "registered stagers"
#define LOONG_REGISTRY_FAMILIES "registered families"
#define LOONG_REGISTRY_MODEL_TYPES "registered model types"
#define LOONG_REGISTRY_SOURCES "registered sources"
#define LOONG_REGISTRY_EXTENSIONS "extensions"

typedef struct loong_registry {
    const void **items; /* in the order in which they came */
    int64_t count, cap;
} loong_registry_t;

/* The list as it is now. */
loong_registry_t loongi_registry(const loong_context_t *ctx, const char *kind);
/* The item is borrowed, and must outlive the context. */
LOONG_NODISCARD loong_status_t loongi_registry_add(loong_context_t *ctx,
                                                   const char *kind,
                                                   const void *item);

#endif
