/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tensors of models of several components are called in Hugging Face
 * directories. Called by hf_weights.c and what imports and exports. Read
 * hf_composite.h before. */
#include <stdio.h>
#include <string.h>

#include "hf_composite.h"
#include "hf_names.h"
#include "hf_stacked.h"

/* Kept: "hf.prefix.image_encoder". */
#define KEPT_PREFIX "hf.prefix."
enum { KEY_BYTES = 160 };

/* The i-th prefix of a layout: those of parts, then the bare ones; NULL. */
static const char *prefix_at(const loong_hf_layout_t *layout, int i)
{
    return i < LOONG_HF_PARTS ? layout->prefix[i]
                              : layout->bare[i - LOONG_HF_PARTS];
}

/* The longest prefix that a name has in any layout, and its length, 0: none. */
static int longest_prefix(const loong_hf_composite_t *composite,
                          const char *name, size_t *length_p)
{
    int found = LOONG_HF_PART_LOSS;
    *length_p = 0;
    for (int l = 0; l < composite->num_layouts; l++) {
        for (int i = 0; i < 2 * LOONG_HF_PARTS; i++) {
            const char *prefix = prefix_at(&composite->layouts[l], i);
            size_t length = prefix != NULL ? strlen(prefix) : 0;
            if (length > *length_p && strncmp(name, prefix, length) == 0) {
                *length_p = length;
                found = i;
            }
        }
    }
    return found;
}

int loongi_hf_composite_owner(const loong_hf_composite_t *composite,
                              const char *name)
{
    size_t length = 0;
    return longest_prefix(composite, name, &length) % LOONG_HF_PARTS;
}

bool loongi_hf_composite_module(const loong_hf_composite_t *composite,
                                const char *name, char *module, size_t room)
{
    size_t length = 0;
    int i = longest_prefix(composite, name, &length);
    const char *prefix =
        prefix_at(&composite->layouts[composite->num_layouts - 1], i);
    snprintf(module, room, "%s%s", prefix != NULL ? prefix : "", name + length);
    return length > 0 && strcmp(module, name) != 0;
}

/* The layout that has a tensor of the part; -1: none. */
static int find_layout(const loong_hf_composite_t *composite, int part,
                       const loong_safetensors_set_t *set)
{
    int64_t count = loongi_safetensors_set_count(set);
    int found = -1;
    size_t longest = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *name = loongi_safetensors_set_get(set, i)->name;
        for (int l = 0; l < composite->num_layouts; l++) {
            const char *prefix = composite->layouts[l].prefix[part];
            size_t length = strlen(prefix);
            if (length > longest && strncmp(name, prefix, length) == 0 &&
                loongi_hf_composite_owner(composite, name) == part) {
                longest = length;
                found = l;
            }
        }
    }
    return found;
}

loong_status_t
loongi_hf_composite_keep_names(const loong_hf_composite_t *composite,
                               const loong_safetensors_set_t *set,
                               loong_pairs_t *pairs)
{
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        int layout = find_layout(composite, i, set);
        char key[KEY_BYTES];
        snprintf(key, sizeof(key), KEPT_PREFIX "%s", composite->parts[i].role);
        if (layout >= 0) {
            LOONG_TRY(loongi_pairs_set(pairs, key,
                                       composite->layouts[layout].prefix[i]));
        }
    }
    return loongi_hf_stacked_keep(set, pairs);
}

static void place(const loong_hf_composite_t *composite, int part, int layout,
                  loong_hf_map_t *map)
{
    const loong_hf_layout_t *l = &composite->layouts[LOONG_MAX(layout, 0)];
    map->composite = composite;
    map->part = part;
    map->prefix = l->prefix[part];
    map->bare = l->bare[part] != NULL ? l->bare[part] : map->prefix;
}

/* The part's own names, where the map has those of its family. */
static loong_status_t rename_part(const loong_hf_composite_t *composite,
                                  int part, loong_hf_map_t *map)
{
    const loong_hf_part_t *p = &composite->parts[part];
    return p->names != NULL &&
                   map->family == loongi_hf_names_find(map->ctx, p->family)
               ? loongi_hf_map_rename(map, p->names)
               : LOONG_OK;
}

loong_status_t loongi_hf_composite_place(const loong_hf_composite_t *composite,
                                         int part,
                                         const loong_safetensors_set_t *set,
                                         loong_hf_map_t *map)
{
    place(composite, part, find_layout(composite, part, set), map);
    LOONG_TRY(rename_part(composite, part, map));
    return loongi_hf_stacked_place(map, set);
}

loong_status_t
loongi_hf_composite_place_as(const loong_hf_composite_t *composite, int part,
                             const loong_pairs_t *kept, loong_hf_map_t *map)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof(key), KEPT_PREFIX "%s", composite->parts[part].role);
    const char *prefix = kept != NULL ? loongi_pairs_get(kept, key) : NULL;
    int layout = composite->num_layouts - 1;
    while (layout > 0 &&
           (prefix == NULL ||
            strcmp(prefix, composite->layouts[layout].prefix[part]) != 0)) {
        layout--;
    }
    place(composite, part, layout, map);
    LOONG_TRY(rename_part(composite, part, map));
    loongi_hf_stacked_place_as(map, kept);
    return LOONG_OK;
}

const char *loongi_hf_module_prefix(const loong_hf_map_t *map,
                                    const loong_hf_param_t *param)
{
    loong_hf_map_t modules = *map;
    if (map->composite != NULL) {
        place(map->composite, map->part, map->composite->num_layouts - 1,
              &modules);
    }
    return loongi_hf_param_prefix(&modules, param);
}

bool loongi_hf_composite_is_other(const loong_hf_map_t *map, const char *name)
{
    return map->composite != NULL &&
           loongi_hf_composite_owner(map->composite, name) != map->part;
}
