/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds the backend that joins memory of several kinds in the context. Entered
 * by the registry, found by resources.c and staging.c. Read
 * backends/staged/staged_comm.h before. */
#include "stager.h"

#include "base.h"
#include "registry.h"

loong_status_t loongi_stager_register(loong_context_t *ctx,
                                      const loong_stager_t *stager)
{
    return loongi_registry_add(ctx, LOONG_REGISTRY_STAGERS, stager);
}

loong_status_t loongi_stager_find(loong_context_t *ctx,
                                  const loong_stager_t **stager_p)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_STAGERS);
    LOONG_CHECK(ctx, r.count > 0, LOONG_ERR_UNSUPPORTED,
                "no stager is registered");
    *stager_p = r.items[r.count - 1];
    return LOONG_OK;
}
