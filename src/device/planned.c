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
    ops->caps = of->caps;
    ops->rates = of->rates;
    ops->overhead = of->overhead;
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

loong_status_t loongi_device_check_planned(loong_context_t *ctx,
                                           const char *name)
{
    LOONG_CHECK(ctx,
                loong_device_find_kind(ctx, name) != NULL &&
                    has_kernels(ctx, name),
                LOONG_ERR_NOT_FOUND,
                "nothing can be planned for device %s: this build has no "
                "kernels of it",
                name);
    return LOONG_OK;
}

bool loongi_device_kind_is_host(const loong_context_t *ctx, const char *kind)
{
    const loong_device_ops_t *of = loong_device_find_kind(ctx, kind);
    loong_device_caps_t caps;
    memset(&caps, 0, sizeof(caps));
    if (of != NULL) {
        of->caps(NULL, &caps);
    }
    return loong_caps_have(&caps, LOONG_FEATURE_HOST_MEMORY);
}

loong_status_t loong_device_create_planned(loong_context_t *ctx,
                                           const char *name,
                                           loong_device_t **device_p)
{
    const loong_device_ops_t *of = loong_device_find_kind(ctx, name);
    loong_device_ops_t *ops = NULL;
    LOONG_TRY(loongi_device_check_planned(ctx, name));
    LOONG_TRY(make_table(ctx, of, &ops));
    loong_status_t status = loongi_device_open(ctx, ops, 0, ops, device_p);
    if (status != LOONG_OK) {
        loongi_free(ctx, ops);
    }
    return status;
}
