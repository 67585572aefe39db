/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of several components in Hugging Face directories: from the whole
 * config.json to the fields of one of them, and what their tensors are called.
 * Called by hf_config_read.c, hf_weights.c and what imports and exports. Read
 * hf_composite.h before. */
#include "hf_composite.h"

#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_kind.h"
#include "hf_names.h"
#include "hf_stacked.h"

/* Kept fields and names: "hf.image_token_index", "hf.prefix.image_encoder". */
#define KEPT "hf."
#define KEPT_TYPE KEPT "model_type"
#define KEPT_PREFIX KEPT "prefix."
enum { KEY_BYTES = 160 };

const loong_hf_composite_t *loongi_hf_composite_find(const char *model_type)
{
    const loong_hf_composite_t *c = loongi_hf_composites;
    while (c->model_type != NULL && strcmp(c->model_type, model_type) != 0) {
        c++;
    }
    return c->model_type != NULL ? c : NULL;
}

/* NULL when there is no such file. */
static loong_status_t load(loong_context_t *ctx, const char *dir,
                           loong_json_t **config_p)
{
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/config.json", dir);
    loong_status_t status = path.status;
    *config_p = NULL;
    if (status == LOONG_OK && loongi_file_exists(path.data)) {
        status = loongi_json_load(ctx, path.data, config_p);
    }
    loongi_text_free(&path);
    return status;
}

static const loong_hf_composite_t *of_config(const loong_json_t *config)
{
    const loong_json_t *type =
        config != NULL ? loongi_hf_field(config, "model_type") : NULL;
    return type != NULL ? loongi_hf_composite_find(loongi_json_string(type))
                        : NULL;
}

loong_status_t loongi_hf_composite_of(loong_context_t *ctx, const char *dir,
                                      const loong_hf_composite_t **composite_p)
{
    loong_json_t *config = NULL;
    LOONG_TRY(load(ctx, dir, &config));
    *composite_p = of_config(config);
    loongi_json_destroy(&config);
    return LOONG_OK;
}

static bool is_image_id(const loong_hf_shared_field_t *f)
{
    return strncmp(f->field.name, "image_token_i", 13) == 0;
}

loong_status_t
loongi_hf_composite_image_id(loong_context_t *ctx,
                             const loong_hf_composite_t *composite,
                             const char *dir, int64_t *id_p)
{
    const loong_hf_shared_field_t *f = composite->fields;
    loong_json_t *config = NULL;
    *id_p = -1;
    LOONG_TRY(load(ctx, dir, &config));
    for (; f->field.name != NULL && config != NULL; f++) {
        const loong_json_t *id =
            is_image_id(f) ? loongi_hf_field(config, f->field.name) : NULL;
        *id_p = id != NULL && loongi_json_kind(id) == LOONG_JSON_INT
                    ? loongi_json_int(id)
                    : *id_p;
    }
    loongi_json_destroy(&config);
    return LOONG_OK;
}

const loong_hf_composite_t *
loongi_hf_composite_kept_type(const loong_pairs_t *kept)
{
    const char *type = loongi_pairs_get(kept, KEPT_TYPE);
    return type != NULL ? loongi_hf_composite_find(type) : NULL;
}

static bool has_families(const loong_hf_composite_t *c,
                         const char *const family[LOONG_HF_PARTS])
{
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        const char *own = c->parts[i].family;
        if (family[i] == NULL || (own != NULL && strcmp(own, family[i]) != 0)) {
            return false;
        }
    }
    return true;
}

const loong_hf_composite_t *
loongi_hf_composite_of_families(const char *const family[LOONG_HF_PARTS],
                                const loong_pairs_t *kept, const char *as)
{
    const loong_hf_composite_t *c = loongi_hf_composite_kept_type(kept);
    c = as != NULL ? loongi_hf_composite_find(as) : c;
    c = c != NULL && has_families(c, family) ? c : NULL;
    if (as != NULL || c != NULL) {
        return c;
    }
    for (c = loongi_hf_composites; c->model_type != NULL; c++) {
        if (has_families(c, family)) {
            return c;
        }
    }
    return NULL;
}

int loongi_hf_composite_part(const loong_hf_composite_t *composite,
                             const char *role)
{
    int part = LOONG_HF_PART_LOSS;
    while (role != NULL && part >= 0 &&
           strcmp(composite->parts[part].role, role) != 0) {
        part--;
    }
    return part;
}

/* ---- reading ------------------------------------------------------------- */

static bool same_section(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

bool loongi_hf_composite_has(const loong_hf_composite_t *composite,
                             const char *section, const char *name)
{
    for (const loong_hf_shared_field_t *f = composite->fields;
         f->field.name != NULL; f++) {
        if (same_section(f->section, section) &&
            strcmp(f->field.name, name) == 0) {
            return true;
        }
    }
    for (int i = 0; i < LOONG_HF_PARTS && section == NULL; i++) {
        const char *own = composite->parts[i].section;
        if (own != NULL && strcmp(own, name) == 0) {
            return true;
        }
    }
    return false;
}

/* An object of the whole, or the whole; NULL when it is not there. */
static const loong_json_t *find_section(const loong_hf_reader_t *r,
                                        const char *section)
{
    const loong_json_t *found =
        section != NULL ? loongi_hf_field(r->whole, section) : r->whole;
    return found != NULL && loongi_json_kind(found) == LOONG_JSON_OBJECT ? found
                                                                         : NULL;
}

/* The fields at the top are those of no component's kind, unless some
 * component has no section. */
static void check_top(loong_hf_reader_t *r)
{
    static const loong_hf_kind_t none = {.unread = NULL};
    static const loong_hf_field_t end = {.name = NULL};
    loong_hf_reader_t top = *r;
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        if (find_section(r, r->composite->parts[i].section) == NULL) {
            return;
        }
    }
    top.json = r->whole;
    top.section = NULL;
    top.kind = &none;
    loongi_hf_check_others(&top, &end);
    r->problems = top.problems;
}

/* Its section, or the whole as before there were sections. */
static void enter_section(loong_hf_reader_t *r, const loong_hf_part_t *p)
{
    r->section = p->section;
    r->json = find_section(r, p->section);
    if (r->json == NULL) {
        r->section = NULL;
        r->json = r->whole;
        if (!p->flat) {
            loongi_problems_add(&r->problems,
                                "%s, an object with the %s, is "
                                "missing",
                                p->section, p->role);
        }
    }
}

const char *loongi_hf_composite_enter(loong_hf_reader_t *r, int part)
{
    static const loong_hf_field_t no_fields[] = {{.name = NULL}};
    static const loong_hf_fixed_t no_keys[] = {{NULL, NULL}};
    const loong_hf_part_t *p = &r->composite->parts[part];
    r->whole = r->json;
    r->absent = p->absent;
    if (p->section == NULL) {
        r->plain = (loong_hf_type_t){.model_type = p->family,
                                     .architecture = p->family,
                                     .family = p->family,
                                     .fields = no_fields,
                                     .fixed = no_keys};
        r->type = &r->plain;
        return p->family;
    }
    enter_section(r, p);
    const loong_json_t *type = loongi_hf_field(r->json, "model_type");
    const char *own = type != NULL ? loongi_json_string(type) : "";
    bool states = own[0] != '\0' && loongi_hf_composite_find(own) == NULL;
    const char *name = states || p->type == NULL ? own : p->type;
    r->type = loongi_hf_type_find(r->ctx, name);
    check_top(r);
    return name;
}

/* The key of a field that says something of the role; NULL: another's. */
static const char *own_key(const loong_hf_field_t *f, const char *role)
{
    size_t length = strlen(role);
    return f->key != NULL && strncmp(f->key, role, length) == 0 &&
                   f->key[length] == '.'
               ? f->key + length + 1
               : NULL;
}

static loong_status_t map_fields(loong_hf_reader_t *r, const char *role)
{
    for (const loong_hf_shared_field_t *f = r->composite->fields;
         f->field.name != NULL; f++) {
        loong_hf_field_t own = f->field;
        bool shared = own.key == NULL && own.kind != LOONG_HF_CODE;
        own.key = own_key(&f->field, role);
        r->json = find_section(r, f->section);
        r->json = r->json != NULL ? r->json : r->whole;
        if (own.key != NULL || shared) {
            LOONG_TRY(loongi_hf_map_field(r, &own));
        }
    }
    return LOONG_OK;
}

/* A part's hidden_size; what is wrong with the part is told where it is read
 * for itself. */
static loong_status_t width_of(const loong_hf_reader_t *whole, int part,
                               int64_t *width_p)
{
    loong_hf_reader_t r = {.ctx = whole->ctx,
                           .path = whole->path,
                           .json = whole->whole,
                           .composite = whole->composite};
    r.problems = loongi_problems_begin(r.ctx);
    (void)loongi_hf_composite_enter(&r, part);
    loong_status_t status = LOONG_OK;
    if (r.type != NULL) {
        r.kind = loongi_hf_kind_find(r.ctx, r.type->family);
        status = loongi_pairs_create(r.ctx, &r.pairs);
    }
    if (status == LOONG_OK && r.pairs != NULL) {
        status = r.kind->read(&r);
    }
    if (status == LOONG_OK && r.pairs != NULL) {
        loongi_pairs_int(r.pairs, "hidden_size", width_p);
    }
    if (loongi_problems_end(&r.problems, LOONG_ERR_UNSUPPORTED, r.path) !=
        LOONG_OK) {
        loong_context_clear_error(r.ctx);
    }
    loongi_pairs_destroy(&r.pairs);
    return status;
}

/* What stands between two others is as wide as they. */
static loong_status_t map_widths(loong_hf_reader_t *r)
{
    static const char *const keys[] = {"input_size", "hidden_size"};
    static const int parts[] = {0, LOONG_HF_PART_LOSS};
    for (int i = 0; i < 2; i++) {
        int64_t width = 0;
        LOONG_TRY(width_of(r, parts[i], &width));
        if (width > 0 && loongi_pairs_get(r->pairs, keys[i]) == NULL) {
            LOONG_TRY(loongi_pairs_set_int(r->pairs, keys[i], width));
        }
    }
    return LOONG_OK;
}

/* A file of weights says it; without one, as where a model is described alone,
 * it is there. */
static loong_status_t has_spare(const loong_hf_reader_t *r, int part,
                                bool *has_p)
{
    const char *spare = r->composite->parts[part].spare;
    loong_safetensors_set_t *set = NULL;
    if (spare == NULL || r->dir == NULL) {
        return LOONG_OK;
    }
    if (loongi_safetensors_set_open(r->ctx, r->dir, &set) != LOONG_OK) {
        loong_context_clear_error(r->ctx); /* whoever reads them tells it */
        return LOONG_OK;
    }
    *has_p = false;
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const char *name = loongi_safetensors_set_get(set, i)->name;
        size_t length = strlen(name);
        size_t end = strlen(spare);
        *has_p = *has_p ||
                 (length > end && strcmp(name + length - end, spare) == 0 &&
                  loongi_hf_composite_owner(r->composite, name) == part);
    }
    loongi_safetensors_set_close(&set);
    return LOONG_OK;
}

loong_status_t loongi_hf_composite_map(loong_hf_reader_t *r, int part)
{
    const loong_hf_part_t *p = &r->composite->parts[part];
    const char *section = r->section;
    const loong_json_t *json = r->json;
    bool has = true;
    LOONG_TRY(has_spare(r, part, &has));
    for (const loong_hf_fixed_t *f = has ? p->keys : NULL;
         f != NULL && f->key != NULL; f++) {
        LOONG_TRY(loongi_pairs_set(r->pairs, f->key, f->value));
    }
    LOONG_TRY(map_fields(r, p->role));
    r->section = section;
    r->json = json;
    if (p->family != NULL && strcmp(p->family, r->type->family) != 0) {
        loongi_problems_add(&r->problems,
                            "%s is of family %s, model type %s "
                            "has %s",
                            p->role, r->type->family, r->composite->model_type,
                            p->family);
    }
    return p->section == NULL ? map_widths(r) : LOONG_OK;
}

/* ---- what is kept for an export ------------------------------------------ */

static const char *kept_key(const loong_hf_shared_field_t *f,
                            char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, KEPT "%s%s%s",
             f->section != NULL ? f->section : "",
             f->section != NULL ? "." : "", f->field.name);
    return key;
}

const char *loongi_hf_composite_kept(const loong_pairs_t *pairs,
                                     const loong_hf_shared_field_t *field)
{
    char key[KEY_BYTES];
    return pairs != NULL ? loongi_pairs_get(pairs, kept_key(field, key)) : NULL;
}

static loong_status_t keep_fields(const loong_hf_composite_t *composite,
                                  const loong_json_t *config,
                                  loong_pairs_t *pairs)
{
    LOONG_TRY(loongi_pairs_set(pairs, KEPT_TYPE, composite->model_type));
    for (const loong_hf_shared_field_t *f = composite->fields;
         f->field.name != NULL; f++) {
        char key[KEY_BYTES];
        const loong_json_t *in =
            f->section != NULL ? loongi_hf_field(config, f->section) : config;
        const loong_json_t *value =
            in != NULL ? loongi_json_get(in, f->field.name) : NULL;
        if (f->field.kind == LOONG_HF_CODE && value != NULL) {
            LOONG_TRY(loongi_pairs_set_json(pairs, kept_key(f, key), value));
        }
    }
    return LOONG_OK;
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

static loong_status_t keep_names(const loong_hf_composite_t *composite,
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

loong_status_t loongi_hf_composite_keep(loong_context_t *ctx, const char *dir,
                                        loong_pairs_t *pairs)
{
    loong_json_t *config = NULL;
    loong_safetensors_set_t *set = NULL;
    LOONG_TRY(load(ctx, dir, &config));
    const loong_hf_composite_t *composite = of_config(config);
    loong_status_t status = LOONG_OK;
    if (composite != NULL) {
        status = keep_fields(composite, config, pairs);
        if (status == LOONG_OK) {
            status = loongi_safetensors_set_open(ctx, dir, &set);
        }
        if (status == LOONG_OK) {
            status = keep_names(composite, set, pairs);
        }
    }
    loongi_safetensors_set_close(&set);
    loongi_json_destroy(&config);
    return status;
}

loong_status_t
loongi_hf_composite_keep_id(loong_context_t *ctx,
                            const loong_hf_composite_t *composite, int64_t id,
                            loong_pairs_t *pairs)
{
    char key[KEY_BYTES];
    const loong_hf_shared_field_t *f = composite->fields;
    for (; f->field.name != NULL; f++) {
        int64_t own = id;
        bool says =
            is_image_id(f) && loongi_pairs_int(pairs, kept_key(f, key), &own);
        LOONG_CHECK(ctx, !says || own == id, LOONG_ERR_CONFIG,
                    "config.json: %s is %lld, the token of data.image_token "
                    "has id %lld",
                    f->field.name, (long long)own, (long long)id);
    }
    snprintf(key, sizeof(key), KEPT "%s", composite->image_token_id);
    return loongi_pairs_get(pairs, key) == NULL
               ? loongi_pairs_set_int(pairs, key, id)
               : LOONG_OK;
}

loong_status_t loongi_hf_composite_take(const loong_pairs_t *from,
                                        loong_pairs_t *pairs)
{
    for (int64_t i = 0; i < from->count; i++) {
        const loong_pair_t *pair = &from->items[i];
        if (strncmp(pair->key, KEPT, sizeof(KEPT) - 1) == 0 &&
            loongi_pairs_get(pairs, pair->key) == NULL) {
            LOONG_TRY(loongi_pairs_set(pairs, pair->key, pair->value));
        }
    }
    return LOONG_OK;
}

/* ---- names --------------------------------------------------------------- */

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
    return loongi_hf_composite_owner(map->composite, name) != map->part;
}
