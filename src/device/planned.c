/* SPDX-License-Identifier: Apache-2.0
 *
 * A device for plans: what a backend says of itself, without any of its
 * calls. Called by src/plan/devices.c. Read planned.h before. */
#include "planned.h"

#include <string.h>

#include "base.h"
#include "registry.h"

/* Its data is its table. */
static void planned_destroy(loong_context_t *ctx, void *data)
{
    loongi_free(ctx, data);
}

/* What a plan may ask of the device; all other slots stay empty. */
static loong_status_t make_table(loong_context_t *ctx,
                                 const loong_device_ops_t *of,
                                 loong_device_ops_t **ops_p)
{
    loong_device_ops_t *ops = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*ops), "planned device", &ops));
    ops->name = of->name;
    ops->host = of->host;
    ops->bf16 = of->bf16;
    ops->tf32 = of->tf32;
    ops->algorithms = of->algorithms;
    ops->fused_attention = of->fused_attention;
    ops->overhead = of->overhead;
    ops->graph_launch = of->graph_launch; /* there are graphs */
    ops->destroy = planned_destroy;
    *ops_p = ops;
    return LOONG_OK;
}

static bool has_kernels(const loong_context_t *ctx, const char *name)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_KERNELS);
    for (int64_t i = 0; i < r.count; i++) {
        const loong_kernel_t *kernel = r.items[i];
        if (kernel->device != NULL && strcmp(kernel->device, name) == 0) {
            return true;
        }
    }
    return false;
}

loong_status_t loong_device_create_planned(loong_context_t *ctx,
                                           const char *name,
                                           loong_device_t **device_p)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_DEVICES);
    const loong_device_ops_t *of = NULL;
    loong_device_ops_t *ops = NULL;
    for (int64_t i = 0; i < r.count && of == NULL; i++) {
        const loong_device_ops_t *known = r.items[i];
        of = strcmp(known->name, name) == 0 ? known : NULL;
    }
    LOONG_CHECK(ctx, of != NULL && has_kernels(ctx, name), LOONG_ERR_NOT_FOUND,
                "nothing can be planned for device %s: this build has no "
                "kernels of it",
                name);
    LOONG_TRY(make_table(ctx, of, &ops));
    loong_status_t status = loongi_device_open(ctx, ops, 0, ops, device_p);
    if (status != LOONG_OK) {
        loongi_free(ctx, ops);
    }
    return status;
}
