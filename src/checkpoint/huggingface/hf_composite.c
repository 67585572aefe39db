/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of several components in Hugging Face directories: from the whole
 * config.json to the fields of one of them. Called by hf_config_read.c and what
 * imports and exports. Read hf_composite.h before. */
#include "hf_composite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "hf_kind.h"

/* Kept fields: "hf.image_token_index". */
#define KEPT "hf."
#define KEPT_TYPE KEPT "model_type"
enum { KEY_BYTES = 160 };

const loong_hf_composite_t *loongi_hf_composite_find(const char *model_type)
{
    const loong_hf_composite_t *const *c = loongi_hf_composites;
    while (*c != NULL && strcmp((*c)->model_type, model_type) != 0) {
        c++;
    }
    return *c;
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

/* That of the same model_type which the file is of. */
static const loong_hf_composite_t *told_apart(const loong_hf_composite_t *c,
                                              const loong_json_t *config)
{
    const loong_json_t *section =
        c->other != NULL ? loongi_hf_field(config, c->parts[0].section) : NULL;
    return section != NULL && loongi_hf_field(section, c->other_has) != NULL
               ? c->other
               : c;
}

const loong_hf_composite_t *
loongi_hf_composite_of_json(const loong_context_t *ctx,
                            const loong_json_t *config)
{
    const loong_json_t *type =
        config != NULL ? loongi_hf_field(config, "model_type") : NULL;
    const char *name = type != NULL ? loongi_json_string(type) : "";
    const loong_hf_composite_t *c = loongi_hf_composite_find(name);
    c = c != NULL ? told_apart(c, config) : c;
    bool whole = c != NULL && (loongi_hf_field(config, c->parts[0].section) ||
                               loongi_hf_type_find(ctx, name) == NULL);
    return whole ? c : NULL;
}

loong_status_t loongi_hf_composite_of(loong_context_t *ctx, const char *dir,
                                      const loong_hf_composite_t **composite_p)
{
    loong_json_t *config = NULL;
    LOONG_TRY(load(ctx, dir, &config));
    *composite_p = loongi_hf_composite_of_json(ctx, config);
    loongi_json_destroy(&config);
    return LOONG_OK;
}

static bool is_image_id(const loong_hf_composite_t *composite,
                        const loong_hf_shared_field_t *f)
{
    return strncmp(f->field.name, "image_token_i", 13) == 0 ||
           strcmp(f->field.name, composite->image_token_id) == 0;
}

static int64_t id_in(const loong_json_t *config, const char *name,
                     int64_t otherwise)
{
    const loong_json_t *id =
        config != NULL ? loongi_hf_field(config, name) : NULL;
    return id != NULL && loongi_json_kind(id) == LOONG_JSON_INT
               ? loongi_json_int(id)
               : otherwise;
}

loong_status_t loongi_hf_composite_vision_ids(
    loong_context_t *ctx, const loong_hf_composite_t *composite,
    const char *dir, loong_text_t *ids)
{
    const loong_hf_fixed_t *f = composite->vision_ids;
    loong_json_t *config = NULL;
    if (f == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(load(ctx, dir, &config));
    for (; f->key != NULL; f++) {
        int64_t id = id_in(config, f->key, strtoll(f->value, NULL, 10));
        loongi_text_printf(ids, "%s%" PRId64,
                           f == composite->vision_ids ? "[" : ", ", id);
    }
    loongi_text_printf(ids, "]");
    loongi_json_destroy(&config);
    return ids->status;
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
    for (; f->field.name != NULL; f++) {
        *id_p = is_image_id(composite, f) ? id_in(config, f->field.name, *id_p)
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
    c = c != NULL && c->written_as != NULL
            ? loongi_hf_composite_find(c->written_as)
            : c;
    c = c != NULL && has_families(c, family) ? c : NULL;
    if (as != NULL || c != NULL) {
        return c;
    }
    for (int i = 0; (c = loongi_hf_composites[i]) != NULL; i++) {
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
    top.section = top.problems.in = NULL;
    top.kind = &none;
    loongi_hf_check_others(&top, &end);
    top.problems.in = r->problems.in;
    r->problems = top.problems;
}

/* Its section, or the whole as before there were sections; false: it must have
 * one. */
static bool enter_section(loong_hf_reader_t *r, const loong_hf_part_t *p)
{
    r->json = find_section(r, p->section);
    if (r->json == NULL && !p->flat) {
        loongi_problems_add(&r->problems,
                            "%s, an object with the %s, is missing", p->section,
                            p->role);
        return false;
    }
    r->section = r->problems.in = r->json != NULL ? p->section : NULL;
    r->json = r->json != NULL ? r->json : r->whole;
    return true;
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
    if (!enter_section(r, p)) {
        return NULL;
    }
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
        r->problems.in = r->json != NULL ? f->section : NULL;
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
    r->problems.in = NULL;
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
    if (composite->written_as != NULL) {
        const char *as = composite->written_as;
        int64_t id = id_in(config, composite->image_token_id, -1);
        composite = loongi_hf_composite_find(as);
        LOONG_TRY(loongi_pairs_set(pairs, KEPT_TYPE, as));
        return id < 0 ? LOONG_OK
                      : loongi_hf_composite_keep_id(pairs->ctx, composite, id,
                                                    pairs);
    }
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

loong_status_t loongi_hf_composite_keep(loong_context_t *ctx, const char *dir,
                                        loong_pairs_t *pairs)
{
    loong_json_t *config = NULL;
    loong_safetensors_set_t *set = NULL;
    LOONG_TRY(load(ctx, dir, &config));
    const loong_hf_composite_t *composite =
        loongi_hf_composite_of_json(ctx, config);
    loong_status_t status = LOONG_OK;
    if (composite != NULL) {
        status = keep_fields(composite, config, pairs);
        if (status == LOONG_OK) {
            status = loongi_safetensors_set_open(ctx, dir, &set);
        }
        if (status == LOONG_OK) {
            status =
                loongi_hf_composite_keep_names(composite, set, pairs);
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
            is_image_id(composite, f) &&
            loongi_pairs_int(pairs, kept_key(f, key), &own);
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
