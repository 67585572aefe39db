/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops and kernels by name, searched from the newest. Lookups happen when graphs
 * are built and compiled, never while programs run. Called by the lists of ops
 * and kernels, and by passes. Read loong/register.h before. */
#include "loong/register.h"

#include <string.h>

#include "base.h"
#include "loong/device.h"
#include "registry.h"

loong_status_t loong_register_op(loong_context_t *ctx, const loong_op_t *op)
{
    LOONG_CHECK(ctx, op != NULL && op->name != NULL && op->infer != NULL,
                LOONG_ERR_ARG, "an op needs a name and a shape rule");
    LOONG_CHECK(ctx, loong_find_op(ctx, op->name) == NULL, LOONG_ERR_ARG,
                "op %s is registered already", op->name);
    return loongi_registry_add(ctx, LOONG_REGISTRY_OPS, op);
}

loong_status_t loong_register_kernel(loong_context_t *ctx,
                                     const loong_kernel_t *kernel)
{
    LOONG_CHECK(ctx,
                kernel != NULL && kernel->name != NULL && kernel->op != NULL &&
                    kernel->run != NULL,
                LOONG_ERR_ARG,
                "a kernel needs a name, an op and a run function");
    return loongi_registry_add(ctx, LOONG_REGISTRY_KERNELS, kernel);
}

const loong_op_t *loong_find_op(const loong_context_t *ctx, const char *name)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_OPS);
    for (int64_t i = 0; i < r.count; i++) {
        const loong_op_t *op = r.items[i];
        if (strcmp(op->name, name) == 0) {
            return op;
        }
    }
    return NULL;
}

const loong_kernel_t *loong_find_kernel(const loong_context_t *ctx,
                                        const char *op, const char *device,
                                        int i)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_KERNELS);
    for (int64_t k = r.count - 1; k >= 0; k--) {
        const loong_kernel_t *kernel = r.items[k];
        bool fits =
            kernel->device == NULL || strcmp(kernel->device, device) == 0;
        if (fits && strcmp(kernel->op, op) == 0 && i-- == 0) {
            return kernel;
        }
    }
    return NULL;
}

const char *loong_device_kind(const loong_context_t *ctx, int i)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_DEVICES);
    if (i < 0 || i >= r.count) {
        return NULL;
    }
    return ((const loong_device_ops_t *)r.items[r.count - 1 - i])->name;
}
