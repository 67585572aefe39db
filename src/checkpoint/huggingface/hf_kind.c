/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds model types and families among those of all kinds. Called by readers
 * and writers of config.json and of names. Read hf_kind.h before. */
#include "hf_kind.h"

#include <stdio.h>
#include <string.h>

#include "hf_composite.h"
#include "registry.h"

enum { LONGEST_TYPE = 128 };

const loong_hf_kind_t *loongi_hf_kind_at(const loong_context_t *ctx, int64_t i)
{
    int64_t built_in = 0;
    while (loongi_hf_kinds[built_in] != NULL) {
        built_in++;
    }
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_MODEL_TYPES);
    return i < built_in             ? loongi_hf_kinds[i]
           : i < built_in + r.count ? r.items[i - built_in]
                                    : NULL;
}

const loong_hf_type_t *loongi_hf_type_find(const loong_context_t *ctx,
                                           const char *model_type)
{
    const loong_hf_kind_t *kind;
    for (int64_t k = 0; (kind = loongi_hf_kind_at(ctx, k)) != NULL; k++) {
        const loong_hf_type_t *t = kind->types;
        for (; t->model_type != NULL; t++) {
            if (strcmp(t->model_type, model_type) == 0) {
                return t;
            }
        }
    }
    return NULL;
}

/* All types, of one component and then of several, or those of a role; NULL:
 * there are no more. */
static const char *type_at(const loong_context_t *ctx, const char *role,
                           int64_t i)
{
    const loong_hf_kind_t *kind;
    for (int64_t k = 0; (kind = loongi_hf_kind_at(ctx, k)) != NULL; k++) {
        const loong_hf_type_t *t = kind->types;
        bool meant = role == NULL || strcmp(kind->role, role) == 0;
        for (; meant && t->model_type != NULL; t++) {
            if (i-- == 0) {
                return t->model_type;
            }
        }
    }
    const loong_hf_composite_t *const *c = loongi_hf_composites;
    while (*c != NULL && i-- > 0) {
        c++;
    }
    return role == NULL && *c != NULL ? (*c)->model_type : NULL;
}

const char *loongi_hf_type_nearest(const loong_context_t *ctx,
                                   const char *model_type)
{
    const char *nearest = NULL;
    int best = 2 + (int)LOONG_MIN(strlen(model_type), LONGEST_TYPE) / 3;
    const char *type;
    for (int64_t i = 0; (type = type_at(ctx, NULL, i)) != NULL; i++) {
        int distance = loongi_edit_distance(model_type, type, best);
        if (distance < best) {
            best = distance;
            nearest = type;
        }
    }
    return nearest;
}

const char *loongi_hf_type_list(const loong_context_t *ctx, const char *role,
                                char text[LOONG_HF_TYPE_LIST])
{
    static const char more[] = ", ...";
    size_t length = 0;
    text[0] = '\0';
    const char *type;
    for (int64_t i = 0; (type = type_at(ctx, role, i)) != NULL; i++) {
        size_t room = LOONG_HF_TYPE_LIST - length;
        if (strlen(type) + 2 + sizeof(more) > room) {
            snprintf(text + length, room, "%s", more);
            break;
        }
        length += (size_t)snprintf(text + length, room, "%s%s",
                                   length > 0 ? ", " : "", type);
    }
    return text;
}

const loong_hf_names_t *loongi_hf_names_find(const loong_context_t *ctx,
                                             const char *family)
{
    const loong_hf_kind_t *kind = loongi_hf_kind_find(ctx, family);
    const loong_hf_names_t *names = kind != NULL ? kind->names : NULL;
    while (names != NULL && strcmp(names->name, family) != 0) {
        names++;
    }
    return names;
}

const loong_hf_kind_t *loongi_hf_kind_find(const loong_context_t *ctx,
                                           const char *family)
{
    const loong_hf_kind_t *kind;
    for (int64_t k = 0;
         family != NULL && (kind = loongi_hf_kind_at(ctx, k)) != NULL; k++) {
        const loong_hf_names_t *names = kind->names;
        for (; names->name != NULL; names++) {
            if (strcmp(names->name, family) == 0) {
                return kind;
            }
        }
    }
    return NULL;
}
