/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing list in a slot of the context for each kind. Called by each kind's
 * own lookup, such as src/graph/register.c. Read registry.h before. */
#include "registry.h"

#include "slots.h"

static void destroy(loong_context_t *ctx, void *data)
{
    loong_registry_t *r = data;
    loongi_free(ctx, r->items);
    loongi_free(ctx, r);
}

loong_registry_t loongi_registry(const loong_context_t *ctx, const char *kind)
{
    static const loong_registry_t none = {NULL, 0, 0};
    const loong_registry_t *r = loongi_context_look(ctx, kind);
    return r != NULL ? *r : none;
}

loong_status_t loongi_registry_add(loong_context_t *ctx, const char *kind,
                                   const void *item)
{
    loong_slot_t *slot = loongi_context_slot(ctx, kind);
    if (slot->data == NULL) {
        LOONG_TRY(
            loongi_alloc(ctx, sizeof(loong_registry_t), kind, &slot->data));
        slot->destroy = destroy;
    }
    loong_registry_t *r = slot->data;
    LOONG_TRY(loongi_grow(ctx, &r->items, &r->cap, r->count + 1,
                          sizeof(*r->items), kind));
    r->items[r->count++] = item;
    return LOONG_OK;
}
