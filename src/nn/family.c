/* SPDX-License-Identifier: Apache-2.0
 *
 * Families of models by name. Called by src/model, which enters its own, the
 * trainer, src/checkpoint and loongrun. Read loong/family.h before. */
#include "loong/family.h"

#include <string.h>

#include "base.h"
#include "registry.h"

loong_status_t loong_register_family(loong_context_t *ctx,
                                     const loong_family_t *family)
{
    LOONG_CHECK(
        ctx,
        family != NULL && family->name != NULL && family->configure != NULL &&
            family->facts != NULL && family->build != NULL,
        LOONG_ERR_ARG, "a family needs a name, configure, facts and build");
    LOONG_CHECK(ctx,
                family->processor == NULL ||
                    family->processor->struct_size == sizeof(loong_processor_t),
                LOONG_ERR_ARG,
                "family %s: its loong_processor_t has %zu bytes, %zu wanted: "
                "it was made for another version",
                family->name, family->processor->struct_size,
                sizeof(loong_processor_t));
    LOONG_CHECK(ctx, loong_find_family(ctx, family->name) == NULL,
                LOONG_ERR_ARG, "family %s is registered already", family->name);
    return loongi_registry_add(ctx, LOONG_REGISTRY_FAMILIES, family);
}

const loong_family_t *loong_family_at(const loong_context_t *ctx, int64_t index)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_FAMILIES);
    return index >= 0 && index < r.count ? r.items[index] : NULL;
}

const loong_family_t *loong_find_family(const loong_context_t *ctx,
                                        const char *name)
{
    for (int64_t i = 0; loong_family_at(ctx, i) != NULL; i++) {
        if (strcmp(loong_family_at(ctx, i)->name, name) == 0) {
            return loong_family_at(ctx, i);
        }
    }
    return NULL;
}
