/* SPDX-License-Identifier: Apache-2.0
 *
 * Model keys -> config.json and generation_config.json. Called by hf_export.c
 * and export_check.c; kinds of models (src/model) call its parts. Read
 * hf_config.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_code.h"
#include "hf_composite.h"
#include "hf_config.h"
#include "hf_config_write.h"
#include "hf_kind.h"
#include "hf_tokens.h"
#include "json.h"

void loongi_hf_emit(loong_hf_writer_t *w, const char *name, const char *json)
{
    loongi_text_printf(&w->text, "%s\n  \"%s\": %s",
                       w->text.length > 1 ? "," : "", name, json);
}

void loongi_hf_emit_int(loong_hf_writer_t *w, const char *name, const char *key)
{
    char text[32];
    int64_t value = 0;
    loongi_pairs_int(w->model, key, &value);
    snprintf(text, sizeof(text), "%" PRId64, value);
    loongi_hf_emit(w, name, text);
}

void loongi_hf_emit_real(loong_hf_writer_t *w, const char *name,
                         const char *key)
{
    char text[LOONG_REAL_TEXT];
    double value = 0;
    loongi_pairs_real(w->model, key, &value);
    loongi_hf_emit(w, name, loongi_real_text(value, text));
}

void loongi_hf_emit_bool(loong_hf_writer_t *w, const char *name, bool value)
{
    loongi_hf_emit(w, name, value ? "true" : "false");
}

/* Theirs of "theirs=ours|..."; an empty one when there is none. */
static const char *find_word(const char *words, const char *value,
                             char quoted[64])
{
    quoted[0] = '\0';
    for (const char *at = words; *at != '\0' && quoted[0] == '\0';) {
        size_t theirs = strcspn(at, "=");
        const char *ours = at + theirs + 1;
        size_t length = strcspn(ours, "|");
        if (strlen(value) == length && memcmp(value, ours, length) == 0) {
            snprintf(quoted, 64, "\"%.*s\"", (int)theirs, at);
        }
        at = ours + length + (ours[length] == '|');
    }
    return quoted;
}

void loongi_hf_emit_field(loong_hf_writer_t *w, const loong_hf_field_t *f,
                          const char *key)
{
    const char *value = key != NULL ? loongi_pairs_get(w->model, key) : NULL;
    char quoted[64];
    switch (f->kind) {
    case LOONG_HF_INT:
    case LOONG_HF_SQUARE:
    case LOONG_HF_SIGNED:
        loongi_hf_emit_int(w, f->name, key);
        break;
    case LOONG_HF_REAL:
        loongi_hf_emit_real(w, f->name, key);
        break;
    case LOONG_HF_BOOL:
        loongi_hf_emit_bool(w, f->name, loongi_pairs_true(w->model, key));
        break;
    case LOONG_HF_WORD:
        loongi_hf_emit(w, f->name, find_word(f->fallback, value, quoted));
        break;
    case LOONG_HF_LIST:
        loongi_hf_emit(w, f->name, value != NULL ? value : "[]");
        break;
    case LOONG_HF_COUNT:
    case LOONG_HF_ALSO:
    case LOONG_HF_NEUTRAL:
    case LOONG_HF_STATED:
    case LOONG_HF_CODE:
        break;
    }
}

loong_text_t loongi_hf_begin_object(loong_hf_writer_t *w)
{
    loong_text_t whole = w->text;
    w->text = loongi_text_begin(w->ctx);
    loongi_text_printf(&w->text, "{");
    return whole;
}

void loongi_hf_end_object(loong_hf_writer_t *w, const char *name,
                          loong_text_t whole)
{
    loongi_text_printf(&w->text, "\n  }");
    loong_text_t own = w->text;
    w->text = whole;
    loongi_hf_emit(w, name, loongi_text_get(&own));
    loongi_text_free(&own);
}

bool loongi_hf_same_value(const loong_pairs_t *model, const char *key,
                          const char *expected)
{
    double found = 0;
    double wanted = 0;
    int used = 0;
    if (strcmp(loongi_pairs_get(model, key), expected) == 0) {
        return true;
    }
    return loongi_pairs_real(model, key, &found) &&
           sscanf(expected, "%lf%n", &wanted, &used) == 1 &&
           expected[used] == '\0' && found == wanted;
}

bool loongi_hf_is_section_key(const loong_hf_writer_t *w, const char *key)
{
    const loong_hf_fixed_t *own = w->section_keys;
    while (own != NULL && own->key != NULL && strcmp(own->key, key) != 0) {
        own++;
    }
    return own != NULL && own->key != NULL;
}

void loongi_hf_want_value(loong_hf_writer_t *w, const char *key,
                          const char *expected)
{
    const char *given = loongi_pairs_get(w->given, key);
    if (!loongi_hf_is_section_key(w, key) &&
        !loongi_hf_same_value(w->model, key, expected)) {
        loongi_problems_add(
            &w->problems, "%s = %s: model type %s has %s", key,
            given != NULL ? given : loongi_pairs_get(w->model, key),
            w->type->model_type, expected);
    }
}

bool loongi_hf_writes(const loong_hf_writer_t *w, const char *name)
{
    for (const loong_hf_field_t *f = w->type->fields; f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Those of generation_config.json, else the given ones. */
void loongi_hf_emit_ids(loong_hf_writer_t *w, const loong_json_t *generation)
{
    const char *const *names = loongi_hf_token_names;
    for (int i = 0; i < LOONG_HF_TOKENS; i++) {
        const loong_json_t *value =
            generation ? loongi_json_get(generation, names[i]) : NULL;
        const char *given = generation == NULL && w->kept != NULL
                                ? loongi_pairs_get(w->kept, names[i])
                                : NULL;
        if (value != NULL) {
            loong_text_t json = loongi_text_begin(w->ctx);
            loongi_text_json(&json, value);
            loongi_hf_emit(w, names[i], loongi_text_get(&json));
            loongi_text_free(&json);
            continue;
        }
        loongi_hf_emit(w, names[i], given != NULL ? given : "null");
    }
}

const char *loongi_hf_dtype_name(loong_dtype_t dtype)
{
    switch (dtype) {
    case LOONG_F64:
        return "\"float64\"";
    case LOONG_BF16:
        return "\"bfloat16\"";
    case LOONG_F16:
        return "\"float16\"";
    default:
        return "\"float32\"";
    }
}

loong_status_t loongi_hf_writer_fill(loong_hf_writer_t *w)
{
    const char *family = loongi_pairs_get(w->given, "family");
    LOONG_CHECK(w->ctx, family != NULL, LOONG_ERR_ARG,
                "the model has no family");
    w->type = loongi_hf_type_find(w->ctx, family);
    w->kind = loongi_hf_kind_find(w->ctx, family);
    LOONG_CHECK(w->ctx, w->kind != NULL, LOONG_ERR_UNSUPPORTED,
                "family '%s' has no Hugging Face names", family);
    LOONG_TRY(loongi_pairs_copy(w->ctx, w->given, &w->model));
    LOONG_TRY(w->kind->fill(w->ctx, w->model));
    if (w->kind->choose != NULL) {
        w->kind->choose(w);
    }
    return LOONG_OK;
}

static loong_status_t find_type(loong_hf_writer_t *w)
{
    const char *family = loongi_pairs_get(w->given, "family");
    char types[LOONG_HF_TYPE_LIST];
    LOONG_CHECK(w->ctx,
                family == NULL || loongi_hf_type_find(w->ctx, family) != NULL,
                LOONG_ERR_UNSUPPORTED,
                "family '%s' has no Hugging Face model type (%s have)", family,
                loongi_hf_type_list(w->ctx, NULL, types));
    return loongi_hf_writer_fill(w);
}

void loongi_hf_emit_kept(loong_hf_writer_t *w, const char *name)
{
    const char *json =
        w->kept != NULL ? loongi_pairs_get(w->kept, name) : NULL;
    if (json != NULL) {
        loongi_hf_emit(w, name, json);
    }
}

static loong_status_t write_generation(loong_hf_writer_t *w, const char *path)
{
    loong_text_t whole = w->text;
    w->text = loongi_text_begin(w->ctx);
    loongi_text_printf(&w->text, "{");
    loongi_hf_emit(w, "_from_model_config", "true");
    loongi_hf_emit_ids(w, NULL);
    loongi_text_printf(&w->text, "\n}\n");
    loong_status_t status = w->text.status;
    if (status == LOONG_OK) {
        status = loongi_file_write(w->ctx, path, w->text.data, w->text.length);
    }
    loongi_text_free(&w->text);
    w->text = whole;
    return status;
}

loong_hf_writer_t loongi_hf_writer_begin(loong_context_t *ctx,
                                         const loong_pairs_t *model,
                                         const loong_pairs_t *kept)
{
    loong_hf_writer_t w = {0};
    w.ctx = ctx;
    w.given = model;
    w.kept = kept;
    w.code = kept != NULL ? loongi_pairs_get(kept, LOONG_HF_AUTO_MAP) : NULL;
    w.text = loongi_text_begin(ctx);
    w.problems = loongi_problems_begin(ctx);
    return w;
}

static loong_status_t end_problems(loong_hf_writer_t *w)
{
    char what[160];
    snprintf(what, sizeof(what), "the model as a Hugging Face config.json%s",
             w->note != NULL ? w->note : "");
    return loongi_problems_end(&w->problems, LOONG_ERR_UNSUPPORTED, what);
}

void loongi_hf_writer_end(loong_hf_writer_t *w)
{
    loongi_text_free(&w->text);
    loongi_pairs_destroy(&w->model);
}

/* The text of config.json; problems are added. w: of the component with the
 * loss. */
static loong_status_t write_config(loong_hf_writer_t *w,
                                   const loong_hf_config_params_t *params)
{
    const char *dtype = loongi_hf_dtype_name(params->dtype);
    if (params->composite != NULL) {
        return loongi_hf_composite_write(w, params);
    }
    LOONG_TRY(find_type(w));
    w->kind->write(w, dtype);
    return LOONG_OK;
}

static const loong_pairs_t *model_of(const loong_hf_config_params_t *params)
{
    return params->composite != NULL ? params->parts[LOONG_HF_PART_LOSS]
                                     : params->model;
}

static loong_status_t write_files(loong_hf_writer_t *w,
                                  const loong_hf_config_params_t *params,
                                  const char *config, const char *generation)
{
    loong_json_t *ids = NULL;
    bool present = loongi_file_exists(generation);
    if (present) {
        LOONG_TRY(loongi_json_load(w->ctx, generation, &ids));
    }
    w->generation = ids;
    loong_status_t status = write_config(w, params);
    loongi_json_destroy(&ids);
    loong_status_t listed = end_problems(w);
    LOONG_TRY(status);
    LOONG_TRY(listed);
    LOONG_TRY(w->text.status);
    LOONG_TRY(loongi_file_write(w->ctx, config, w->text.data, w->text.length));
    return present || !w->kind->generates ? LOONG_OK
                                       : write_generation(w, generation);
}

loong_status_t loongi_hf_config_check_as(loong_context_t *ctx,
                                         const loong_hf_config_params_t *params)
{
    loong_hf_writer_t w =
        loongi_hf_writer_begin(ctx, model_of(params), params->tokens);
    loong_status_t status = write_config(&w, params);
    loong_status_t listed = end_problems(&w);
    loongi_hf_writer_end(&w);
    return status != LOONG_OK ? status : listed;
}

loong_status_t loongi_hf_config_check(loong_context_t *ctx,
                                      const loong_pairs_t *model)
{
    const loong_hf_config_params_t params = {
        .dir = "", .model = model, .dtype = LOONG_F32};
    return loongi_hf_config_check_as(ctx, &params);
}

loong_status_t loongi_hf_config_write(loong_context_t *ctx,
                                      const loong_hf_config_params_t *params)
{
    loong_hf_writer_t w =
        loongi_hf_writer_begin(ctx, model_of(params), params->tokens);
    loong_arena_t *paths = NULL;
    char *config = NULL;
    char *generation = NULL;
    LOONG_TRY(loongi_arena_create(ctx, "config paths", &paths));
    loong_status_t status =
        loongi_arena_printf(paths, &config, "%s/config.json", params->dir);
    if (status == LOONG_OK) {
        status = loongi_arena_printf(paths, &generation,
                                     "%s/generation_config.json", params->dir);
    }
    if (status == LOONG_OK) {
        status = loongi_dir_make(ctx, params->dir);
    }
    if (status == LOONG_OK) {
        status = write_files(&w, params, config, generation);
    }
    loongi_hf_writer_end(&w);
    loongi_arena_destroy(&paths);
    return status;
}
