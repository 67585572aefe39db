/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json -> model keys. Called by whatever opens a model directory; kinds
 * of models (src/model) call its parts. Read hf_config.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_config.h"
#include "hf_config_read.h"
#include "hf_foreign.h"
#include "hf_quant.h"
#include "hf_composite.h"
#include "hf_kind.h"

/* Absent and null are the same in these files, but for flags. */
const loong_json_t *loongi_hf_field(const loong_json_t *object,
                                    const char *name)
{
    const loong_json_t *value = loongi_json_get(object, name);
    return value != NULL && loongi_json_kind(value) != LOONG_JSON_NULL ? value
                                                                       : NULL;
}

void loongi_hf_refuse(loong_hf_reader_t *r, const char *name,
                      const loong_json_t *value, const char *allowed)
{
    char text[LOONG_JSON_BRIEF];
    loongi_problems_add(&r->problems, "%s = %s is not supported (%s)", name,
                        loongi_json_brief(r->ctx, value, text), allowed);
}

loong_status_t loongi_hf_map_int(loong_hf_reader_t *r,
                                 const loong_json_t *value, const char *name,
                                 const char *key)
{
    if (loongi_json_kind(value) != LOONG_JSON_INT ||
        loongi_json_int(value) <= 0) {
        loongi_hf_refuse(r, name, value, "a positive integer is needed");
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, key, loongi_json_int(value));
}

loong_status_t loongi_hf_map_real(loong_hf_reader_t *r,
                                  const loong_json_t *value, const char *name,
                                  const char *key)
{
    loong_json_kind_t kind = loongi_json_kind(value);
    if ((kind != LOONG_JSON_INT && kind != LOONG_JSON_REAL) ||
        loongi_json_real(value) < 0) {
        loongi_hf_refuse(r, name, value, "a number >= 0 is needed");
        return LOONG_OK;
    }
    return loongi_pairs_set_real(r->pairs, key, loongi_json_real(value));
}

/* The value is one of the list: the same text, or the same number. */
static bool is_listed(loong_hf_reader_t *r, const loong_json_t *value,
                      const char *allowed)
{
    char text[LOONG_JSON_BRIEF];
    loong_json_kind_t kind = loongi_json_kind(value);
    bool number = kind == LOONG_JSON_INT || kind == LOONG_JSON_REAL;
    loongi_json_brief(r->ctx, value, text);
    for (const char *item = allowed;; item++) {
        size_t length = strcspn(item, "|");
        double wanted = 0.0;
        if (strlen(text) == length && memcmp(text, item, length) == 0) {
            return true;
        }
        if (number && sscanf(item, "%lf", &wanted) == 1 &&
            loongi_json_real(value) == wanted) {
            return true;
        }
        item += length;
        if (*item == '\0') {
            return false;
        }
    }
}

void loongi_hf_check_neutral(loong_hf_reader_t *r, const char *name,
                             const loong_json_t *value, const char *allowed)
{
    char note[96];
    bool absent = loongi_json_kind(value) == LOONG_JSON_NULL &&
                  strcmp(allowed, "true") != 0;
    if (!absent && !is_listed(r, value, allowed)) {
        snprintf(note, sizeof(note), "it must be %.60s or absent", allowed);
        loongi_hf_refuse(r, name, value, note);
    }
}

/* Python takes null for false, whatever the class has by itself. */
bool loongi_hf_flag(loong_hf_reader_t *r, const char *name, bool fallback)
{
    const loong_json_t *value = loongi_json_get(r->json, name);
    if (value == NULL ||
        (loongi_json_kind(value) == LOONG_JSON_NULL && !fallback)) {
        return fallback;
    }
    if (loongi_json_kind(value) != LOONG_JSON_BOOL) {
        loongi_hf_refuse(r, name, value, "true or false is needed");
        return fallback;
    }
    return loongi_json_bool(value);
}

/* The value of a class when the file has none. */
static loong_status_t set_fallback(loong_hf_reader_t *r,
                                   const loong_hf_field_t *f)
{
    double fallback = 0;
    const loong_hf_fixed_t *absent = r->absent;
    while (absent != NULL && absent->key != NULL &&
           strcmp(absent->key, f->name) != 0) {
        absent++;
    }
    if (absent != NULL && absent->key != NULL) {
        return loongi_pairs_set(r->pairs, f->key, absent->value);
    }
    if (f->fallback == NULL) {
        loongi_problems_add(&r->problems, "%s is missing", f->name);
        return LOONG_OK;
    }
    if (f->kind != LOONG_HF_REAL) {
        return loongi_pairs_set(r->pairs, f->key, f->fallback);
    }
    sscanf(f->fallback, "%lf", &fallback);
    return loongi_pairs_set_real(r->pairs, f->key, fallback);
}

static void refuse_word(loong_hf_reader_t *r, const loong_json_t *value,
                        const loong_hf_field_t *f)
{
    loong_text_t words = loongi_text_begin(r->ctx);
    for (const char *at = f->fallback; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        loongi_text_printf(&words, "%s%.*s", words.length > 0 ? ", " : "",
                           (int)strcspn(at, "="), at);
    }
    loongi_text_printf(&words, " are");
    loongi_hf_refuse(r, f->name, value, loongi_text_get(&words));
    loongi_text_free(&words);
}

/* "theirs=ours|...": ours of a word, or of the first. */
static loong_status_t map_word(loong_hf_reader_t *r, const loong_json_t *value,
                               const loong_hf_field_t *f)
{
    const char *word = value != NULL ? loongi_json_string(value) : NULL;
    for (const char *at = f->fallback;; at++) {
        size_t theirs = strcspn(at, "=");
        size_t ours = strcspn(at + theirs + 1, "|");
        if (word == NULL ||
            (strlen(word) == theirs && memcmp(at, word, theirs) == 0)) {
            char text[64];
            snprintf(text, sizeof(text), "%.*s", (int)ours, at + theirs + 1);
            return loongi_pairs_set(r->pairs, f->key, text);
        }
        at += theirs + 1 + ours;
        if (*at == '\0') {
            refuse_word(r, value, f);
            return LOONG_OK;
        }
    }
}

static loong_status_t map_signed(loong_hf_reader_t *r,
                                 const loong_json_t *value,
                                 const loong_hf_field_t *f)
{
    if (value == NULL) {
        return set_fallback(r, f);
    }
    if (loongi_json_kind(value) != LOONG_JSON_INT ||
        loongi_json_int(value) == 0) {
        loongi_hf_refuse(r, f->name, value, "an integer but 0 is needed");
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, f->key, loongi_json_int(value));
}

/* The list, or how many items it has. */
static loong_status_t map_list(loong_hf_reader_t *r, const loong_json_t *value,
                               const loong_hf_field_t *f)
{
    if (value == NULL) {
        return set_fallback(r, f);
    }
    if (loongi_json_kind(value) != LOONG_JSON_ARRAY) {
        loongi_hf_refuse(r, f->name, value, "a list is needed");
        return LOONG_OK;
    }
    return f->kind == LOONG_HF_LIST
               ? loongi_pairs_set_json(r->pairs, f->key, value)
               : loongi_pairs_set_int(r->pairs, f->key,
                                      loongi_json_count(value));
}

static loong_status_t map_square(loong_hf_reader_t *r,
                                 const loong_json_t *value,
                                 const loong_hf_field_t *f)
{
    if (value != NULL && loongi_json_kind(value) == LOONG_JSON_ARRAY) {
        const loong_json_t *side = loongi_json_at(value, 0);
        if (loongi_json_count(value) != 2 ||
            loongi_json_int(side) !=
                loongi_json_int(loongi_json_at(value, 1))) {
            loongi_hf_refuse(r, f->name, value, "equal sides are");
            return LOONG_OK;
        }
        value = side;
    }
    return value != NULL ? loongi_hf_map_int(r, value, f->name, f->key)
                         : set_fallback(r, f);
}

loong_status_t loongi_hf_map_field(loong_hf_reader_t *r,
                                   const loong_hf_field_t *f)
{
    const loong_json_t *value = loongi_hf_field(r->json, f->name);
    switch (f->kind) {
    case LOONG_HF_SIGNED:
        return map_signed(r, value, f);
    case LOONG_HF_WORD:
        return map_word(r, value, f);
    case LOONG_HF_SQUARE:
        return map_square(r, value, f);
    case LOONG_HF_LIST:
    case LOONG_HF_COUNT:
        return map_list(r, value, f);
    case LOONG_HF_CODE:
        return LOONG_OK;
    case LOONG_HF_STATED:
    case LOONG_HF_NEUTRAL:
        value = loongi_json_get(r->json, f->name);
        if (value == NULL && f->kind == LOONG_HF_STATED) {
            loongi_problems_add(&r->problems, "%s is missing (%s is)", f->name,
                                f->fallback);
        } else if (value != NULL) {
            loongi_hf_check_neutral(r, f->name, value, f->fallback);
        }
        return LOONG_OK;
    case LOONG_HF_INT:
        return value != NULL ? loongi_hf_map_int(r, value, f->name, f->key)
                             : set_fallback(r, f);
    case LOONG_HF_REAL:
    case LOONG_HF_ALSO:
        return value != NULL ? loongi_hf_map_real(r, value, f->name, f->key)
                             : set_fallback(r, f);
    case LOONG_HF_BOOL:
        return loongi_pairs_set_bool(
            r->pairs, f->key,
            loongi_hf_flag(r, f->name, strcmp(f->fallback, "true") == 0));
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_map_table(loong_hf_reader_t *r)
{
    for (const loong_hf_field_t *f = r->type->fields; f->name != NULL; f++) {
        LOONG_TRY(loongi_hf_map_field(r, f));
    }
    return LOONG_OK;
}

bool loongi_hf_has_field(const loong_hf_field_t *fields, const char *name)
{
    for (; fields->name != NULL; fields++) {
        if (strcmp(fields->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_ignored(const char *name)
{
    for (const char *const *f = loongi_hf_ignored_fields; *f != NULL; f++) {
        if (strcmp(*f, name) == 0) {
            return true;
        }
    }
    return false;
}

bool loongi_hf_is_empty(const loong_json_t *value)
{
    switch (loongi_json_kind(value)) {
    case LOONG_JSON_NULL:
        return true;
    case LOONG_JSON_BOOL:
        return !loongi_json_bool(value);
    case LOONG_JSON_STRING:
        return loongi_json_string_length(value) == 0;
    case LOONG_JSON_ARRAY:
    case LOONG_JSON_OBJECT:
        return loongi_json_count(value) == 0;
    default:
        return false;
    }
}

static const loong_hf_field_t *find_common(const char *name)
{
    const loong_hf_field_t *f = loongi_hf_common_fields;
    while (f->name != NULL && strcmp(f->name, name) != 0) {
        f++;
    }
    return f->name != NULL ? f : NULL;
}

void loongi_hf_check_other_field(loong_hf_reader_t *r,
                                 const loong_json_member_t *member)
{
    const char *name = loongi_json_member_key(member);
    const loong_json_t *value = loongi_json_member_value(member);
    const loong_hf_field_t *f =
        r->kind->unread != NULL ? r->kind->unread(r->type, name) : NULL;
    bool unread = f != NULL;
    f = unread ? f : find_common(name);
    if (is_ignored(name) ||
        (r->composite != NULL &&
         loongi_hf_composite_has(r->composite, r->section, name))) {
        return;
    }
    if (f != NULL && f->kind == LOONG_HF_NEUTRAL) {
        loongi_hf_check_neutral(r, name, value, f->fallback);
    } else if (f != NULL && !unread) { /* quantization_config */
        loongi_hf_check_quant(r, value);
    } else if (f == NULL && !loongi_hf_is_empty(value)) {
        loongi_hf_refuse(r, name, value,
                         "the field is not known; if it does not change what "
                         "the model computes, remove it");
    }
}

void loongi_hf_check_others(loong_hf_reader_t *r, const loong_hf_field_t *known)
{
    for (const loong_json_member_t *m = loongi_json_first(r->json); m != NULL;
         m = loongi_json_next(r->json, m)) {
        if (!loongi_hf_has_field(known, loongi_json_member_key(m))) {
            loongi_hf_check_other_field(r, m);
        }
    }
}

loong_status_t loongi_hf_set_fixed(loong_hf_reader_t *r)
{
    for (const loong_hf_fixed_t *f = r->type->fixed; f->key != NULL; f++) {
        LOONG_TRY(loongi_pairs_set(r->pairs, f->key, f->value));
    }
    return LOONG_OK;
}

bool loongi_hf_is_type(const loong_hf_reader_t *r, const char *model_type)
{
    return strcmp(r->type->model_type, model_type) == 0;
}

/* part: of a model of several, whose role it must have; -1: the whole. */
static loong_status_t unknown_type(const loong_hf_reader_t *r, const char *name,
                                   int part)
{
    const char *what = loongi_hf_foreign_type(name);
    const char *near = loongi_hf_type_nearest(r->ctx, name);
    char types[LOONG_HF_TYPE_LIST];
    return LOONG_FAIL(r->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s: %s%smodel_type '%s' is not supported%s%s (%s are)",
                      r->path, r->section != NULL ? r->section : "",
                      r->section != NULL ? "." : "", name,
                      what != NULL   ? ": it has "
                      : near != NULL ? ", the nearest is "
                                     : "",
                      what != NULL   ? what
                      : near != NULL ? near
                                     : "",
                      loongi_hf_type_list(
                          r->ctx,
                          part < 0 ? NULL : r->composite->parts[part].role,
                          types));
}

static loong_status_t read_config(loong_hf_reader_t *r, const char *role,
                                  loong_pairs_t *origins)
{
    const loong_json_t *type = loongi_hf_field(r->json, "model_type");
    LOONG_CHECK(r->ctx, type != NULL, LOONG_ERR_FORMAT, "%s: no model_type",
                r->path);
    LOONG_CHECK(r->ctx, loongi_json_kind(type) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT, "%s: model_type is %s, must be a text",
                r->path, loongi_json_kind_text(type));
    const char *name = loongi_json_string(type);
    int part = -1;
    r->problems = loongi_problems_begin(r->ctx);
    r->composite = loongi_hf_composite_of_json(r->ctx, r->json);
    if (r->composite != NULL) {
        part = loongi_hf_composite_part(r->composite, role);
        LOONG_CHECK(r->ctx, part >= 0, LOONG_ERR_CONFIG,
                    "%s: model type %s has no %s", r->path, name, role);
        name = loongi_hf_composite_enter(r, part);
    } else {
        r->type = loongi_hf_type_find(r->ctx, name);
    }
    if (name == NULL) {
        return loongi_problems_end(&r->problems, LOONG_ERR_FORMAT, r->path);
    }
    if (r->type == NULL) {
        loongi_text_free(&r->problems.text); /* they follow from it */
        return unknown_type(r, name, part);
    }
    LOONG_TRY(loongi_pairs_create(r->ctx, &r->pairs));
    r->kind = loongi_hf_kind_find(r->ctx, r->type->family);
    loong_status_t status = r->kind->read(r);
    if (status == LOONG_OK && part >= 0) {
        status = loongi_hf_composite_map(r, part);
    }
    loong_status_t listed =
        loongi_problems_end(&r->problems, LOONG_ERR_UNSUPPORTED, r->path);
    status = status != LOONG_OK ? status : listed;
    if (status == LOONG_OK && origins != NULL) {
        status = loongi_hf_tell_origins(r, origins);
    }
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&r->pairs);
    }
    return status;
}

loong_status_t loongi_hf_config_read_json(loong_context_t *ctx,
                                          const char *path,
                                          const loong_json_t *json,
                                          const char *role,
                                          loong_pairs_t **pairs_p)
{
    loong_hf_reader_t reader = {.ctx = ctx, .path = path, .json = json};
    LOONG_TRY(read_config(&reader, role, NULL));
    *pairs_p = reader.pairs;
    return LOONG_OK;
}

loong_status_t loongi_hf_config_trace(loong_context_t *ctx, const char *dir,
                                      const char *role, loong_pairs_t *origins,
                                      loong_pairs_t **pairs_p)
{
    loong_hf_reader_t reader = {0};
    loong_json_t *json = NULL;
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/config.json", dir);
    loong_status_t status = path.status;
    if (status == LOONG_OK) {
        status = loongi_json_load(ctx, path.data, &json);
    }
    if (status == LOONG_OK) {
        reader.ctx = ctx;
        reader.path = path.data;
        reader.json = json;
        reader.dir = dir;
        status = read_config(&reader, role, origins);
        loongi_json_destroy(&json);
    }
    loongi_text_free(&path);
    if (status == LOONG_OK) {
        *pairs_p = reader.pairs;
    }
    return status;
}

loong_status_t loongi_hf_config_read(loong_context_t *ctx, const char *dir,
                                     loong_pairs_t **pairs_p)
{
    return loongi_hf_config_trace(ctx, dir, NULL, NULL, pairs_p);
}

loong_status_t loongi_hf_config_guess(loong_context_t *ctx,
                                      const loong_json_t *config,
                                      const loong_hf_field_t *used,
                                      loong_pairs_t *model,
                                      loong_problems_t *unused)
{
    loong_hf_reader_t reader = {.ctx = ctx, .json = config, .pairs = model,
                                .problems = *unused};
    reader.kind = loongi_hf_kind_find(ctx, loongi_pairs_get(model, "family"));
    loong_status_t status = reader.kind->guess(&reader, used);
    *unused = reader.problems;
    return status;
}
