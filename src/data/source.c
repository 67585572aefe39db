/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of sources by name, and the memory of a sample that is read. Called
 * by blends. Read loong/source.h before. */
#include "loong/source.h"

#include <string.h>

#include "base.h"
#include "registry.h"

enum { ALIGN = 64 };

static const loong_source_class_t *find(const loong_context_t *ctx,
                                        const char *name)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_SOURCES);
    for (int64_t i = 0; i < r.count; i++) {
        const loong_source_class_t *c = r.items[i];
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    return NULL;
}

loong_status_t loong_register_source(loong_context_t *ctx,
                                     const loong_source_class_t *source_class)
{
    const loong_source_class_t *c = source_class;
    LOONG_CHECK(ctx,
                c != NULL && c->struct_size == sizeof(*c) && c->name != NULL &&
                    c->open != NULL && c->close != NULL &&
                    c->get_info != NULL && c->read != NULL,
                LOONG_ERR_ARG,
                "a class of sources needs its struct's size, a name, open, "
                "close, get_info and read");
    LOONG_CHECK(ctx, !c->packs || c->peek != NULL, LOONG_ERR_ARG,
                "sources of class %s pack, and need peek for it", c->name);
    LOONG_CHECK(ctx, find(ctx, c->name) == NULL, LOONG_ERR_ARG,
                "sources of class %s are registered already", c->name);
    return loongi_registry_add(ctx, LOONG_REGISTRY_SOURCES, c);
}

loong_status_t loong_find_source(loong_context_t *ctx, const char *name,
                                 const loong_source_class_t **class_p)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_SOURCES);
    *class_p = find(ctx, name);
    if (*class_p != NULL) {
        return LOONG_OK;
    }
    loong_text_t names = loongi_text_begin(ctx);
    for (int64_t i = 0; i < r.count; i++) {
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "",
                           ((const loong_source_class_t *)r.items[i])->name);
    }
    loong_status_t status = LOONG_FAIL(
        ctx, LOONG_ERR_CONFIG, "there is no source of class '%s', there are %s",
        name, loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

loong_status_t loong_items_begin(loong_items_t *items, size_t most)
{
    items->count = 0;
    items->used = 0;
    if (most > items->bytes) {
        loong_items_free(items);
        LOONG_TRY(loongi_calloc(items->ctx, most + ALIGN, 1, "a sample",
                                &items->memory));
        items->bytes = most;
    }
    return LOONG_OK;
}

void *loong_items_take(loong_items_t *items, size_t bytes)
{
    char *aligned = items->memory;
    aligned += (ALIGN - (uintptr_t)aligned % ALIGN) % ALIGN;
    aligned += items->used;
    items->used += (size_t)loongi_round_up((int64_t)bytes, ALIGN);
    return aligned;
}

void loong_items_free(loong_items_t *items)
{
    if (items->inner != NULL) {
        loong_items_free(items->inner);
        loongi_free(items->ctx, items->inner);
        items->inner = NULL;
    }
    if (items->memory != NULL) {
        loongi_free(items->ctx, items->memory);
    }
    items->memory = NULL;
    items->bytes = items->used = 0;
    items->count = 0;
}
