/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds model types and families among those of all kinds. Called by readers
 * and writers of config.json and of names. Read hf_kind.h before. */
#include "hf_kind.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_TYPE = 128 };

const loong_hf_type_t *loongi_hf_type_find(const char *model_type)
{
    for (int k = 0; loongi_hf_kinds[k] != NULL; k++) {
        const loong_hf_type_t *t = loongi_hf_kinds[k]->types;
        for (; t->model_type != NULL; t++) {
            if (strcmp(t->model_type, model_type) == 0) {
                return t;
            }
        }
    }
    return NULL;
}

const char *loongi_hf_type_nearest(const char *model_type)
{
    const char *nearest = NULL;
    int best = 2 + (int)LOONG_MIN(strlen(model_type), LONGEST_TYPE) / 3;
    for (int k = 0; loongi_hf_kinds[k] != NULL; k++) {
        const loong_hf_type_t *t = loongi_hf_kinds[k]->types;
        for (; t->model_type != NULL; t++) {
            int distance =
                loongi_edit_distance(model_type, t->model_type, best);
            if (distance < best) {
                best = distance;
                nearest = t->model_type;
            }
        }
    }
    return nearest;
}

const char *loongi_hf_type_list(char text[LOONG_HF_TYPE_LIST])
{
    size_t length = 0;
    text[0] = '\0';
    for (int k = 0; loongi_hf_kinds[k] != NULL; k++) {
        const loong_hf_type_t *t = loongi_hf_kinds[k]->types;
        for (; t->model_type != NULL && length < LOONG_HF_TYPE_LIST; t++) {
            length += (size_t)snprintf(
                text + length, LOONG_HF_TYPE_LIST - length, "%s%s",
                length > 0 ? ", " : "", t->model_type);
        }
    }
    return text;
}

const loong_hf_names_t *loongi_hf_names_find(const char *family)
{
    const loong_hf_kind_t *kind = loongi_hf_kind_find(family);
    const loong_hf_names_t *names = kind != NULL ? kind->names : NULL;
    while (names != NULL && strcmp(names->name, family) != 0) {
        names++;
    }
    return names;
}

const loong_hf_kind_t *loongi_hf_kind_find(const char *family)
{
    for (int k = 0; loongi_hf_kinds[k] != NULL && family != NULL; k++) {
        const loong_hf_names_t *names = loongi_hf_kinds[k]->names;
        for (; names->name != NULL; names++) {
            if (strcmp(names->name, family) == 0) {
                return loongi_hf_kinds[k];
            }
        }
    }
    return NULL;
}
