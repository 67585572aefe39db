/* SPDX-License-Identifier: Apache-2.0
 *
 * The template of a model and the special tokens that it writes: from the files
 * beside the tokenizer, as transformers finds them, or a built-in one. Called
 * when a source is opened. Read chat.h before. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

#include "chat.h"
#include "file.h"
#include "named.h"

/* What is looked into while a source is opened. */
typedef struct finder {
    chat_template_t *t;
    loong_context_t *ctx;
    const char *directory;      /* with its last '/', or "" */
    loong_json_t *config, *map; /* tokenizer_config, special_tokens_map */
    char *text;                 /* of the template; NULL: not found */
    size_t length;
    bool dated; /* a template shows the day */
    loong_text_t where;
} finder_t;

/* ---- files --------------------------------------------------------------- */

static loong_status_t take_text(finder_t *f, const char *text, size_t length)
{
    LOONG_TRY(loongi_alloc(f->ctx, length + 1, "chat template", &f->text));
    memcpy(f->text, text, length);
    f->length = length;
    return LOONG_OK;
}

/* The file DIRECTORY/<name><suffix>, if it is there. */
static loong_status_t take_file(finder_t *f, const char *name,
                                const char *suffix)
{
    f->where.length = 0;
    loongi_text_printf(&f->where, "%s%s%s", f->directory, name, suffix);
    LOONG_TRY(f->where.status);
    return loongi_file_exists(f->where.data)
               ? loongi_file_read(f->ctx, f->where.data, &f->text, &f->length)
               : LOONG_OK;
}

static loong_status_t load_json(finder_t *f, const char *name,
                                loong_json_t **json_p)
{
    loong_text_t path = loongi_text_begin(f->ctx);
    loongi_text_printf(&path, "%s%s", f->directory, name);
    loong_status_t status = path.status;
    if (status == LOONG_OK && loongi_file_exists(path.data)) {
        status = loongi_json_load(f->ctx, path.data, json_p);
    }
    loongi_text_free(&path);
    return status;
}

/* Of tokenizer_config.json: one text, or several that have names. */
static loong_status_t take_config(finder_t *f, const char *name)
{
    const loong_json_t *all = loongi_json_get(f->config, "chat_template");
    const loong_json_t *text = NULL;
    if (loongi_json_kind(all) == LOONG_JSON_STRING &&
        strcmp(name, "default") == 0) {
        text = all;
    }
    for (int64_t i = 0; i < loongi_json_count(all); i++) {
        const loong_json_t *item = loongi_json_at(all, i);
        const char *found = loongi_json_string(loongi_json_get(item, "name"));
        text =
            strcmp(found, name) == 0 ? loongi_json_get(item, "template") : text;
    }
    f->where.length = 0;
    loongi_text_printf(&f->where, "%stokenizer_config.json: chat_template",
                       f->directory);
    LOONG_TRY(f->where.status);
    return text != NULL ? take_text(f, loongi_json_string(text),
                                    loongi_json_string_length(text))
                        : LOONG_OK;
}

/* What a processor of pictures and texts had before it was a file alone. */
static loong_status_t take_json(finder_t *f)
{
    loong_json_t *json = NULL;
    if (f->text != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(load_json(f, "chat_template.json", &json));
    const loong_json_t *text =
        json != NULL ? loongi_json_get(json, "chat_template") : NULL;
    loong_status_t status = LOONG_OK;
    if (loongi_json_kind(text) == LOONG_JSON_STRING) {
        f->where.length = 0;
        loongi_text_printf(&f->where, "%schat_template.json", f->directory);
        status = take_text(f, loongi_json_string(text),
                           loongi_json_string_length(text));
    }
    loongi_json_destroy(&json);
    return status;
}

/* One of the model's own. */
static loong_status_t take_named(finder_t *f, const char *name)
{
    if (strcmp(name, "default") == 0) {
        LOONG_TRY(take_file(f, "chat_template", ".jinja"));
        LOONG_TRY(take_json(f));
    } else {
        loong_text_t file = loongi_text_begin(f->ctx);
        loongi_text_printf(&file, "additional_chat_templates/%s", name);
        loong_status_t status = file.status;
        if (status == LOONG_OK) {
            status = take_file(f, file.data, ".jinja");
        }
        loongi_text_free(&file);
        LOONG_TRY(status);
    }
    return f->text != NULL ? LOONG_OK : take_config(f, name);
}

static loong_status_t fail_name(finder_t *f, const char *name)
{
    loong_text_t names = loongi_text_begin(f->ctx);
    const loong_json_t *all = loongi_json_get(f->config, "chat_template");
    for (int64_t i = 0; i < loongi_json_count(all); i++) {
        loongi_text_printf(&names, "%s, ",
                           loongi_json_string(loongi_json_get(
                               loongi_json_at(all, i), "name")));
    }
    for (int64_t i = 0; loongi_named_template_name(i) != NULL; i++) {
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "",
                           loongi_named_template_name(i));
    }
    loong_status_t status = LOONG_FAIL(
        f->ctx, LOONG_ERR_CONFIG,
        "data.chat.template: there is no template '%s', of the model or built "
        "in are %s; a path ends in .jinja",
        name, loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

static loong_status_t take_built_in(finder_t *f, const char *name)
{
    const char *text = loongi_named_template(name);
    f->where.length = 0;
    loongi_text_printf(&f->where, "built-in template %s", name);
    return text != NULL ? take_text(f, text, strlen(text)) : LOONG_OK;
}

/* That of an internvl_chat, which config.json names; its tokenizer's is without
 * the system message. */
static loong_status_t take_conversation(finder_t *f)
{
    loong_json_t *json = NULL;
    LOONG_TRY(load_json(f, "config.json", &json));
    const loong_json_t *type =
        json != NULL ? loongi_json_get(json, "model_type") : NULL;
    loong_status_t status =
        strcmp(loongi_json_string(type), "internvl_chat") == 0
            ? take_built_in(f, loongi_json_string(
                                   loongi_json_get(json, "template")))
            : LOONG_OK;
    loongi_json_destroy(&json);
    return status;
}

static loong_status_t find_text(finder_t *f, const char *name)
{
    size_t length = name != NULL ? strlen(name) : 0;
    if (name == NULL) {
        LOONG_TRY(take_conversation(f));
        return f->text != NULL ? LOONG_OK : take_named(f, "default");
    }
    if (length > 6 && strcmp(name + length - 6, ".jinja") == 0) {
        loongi_text_printf(&f->where, "%s", name);
        return loongi_file_read(f->ctx, name, &f->text, &f->length);
    }
    LOONG_TRY(take_named(f, name));
    if (f->text != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(take_built_in(f, name));
    return f->text != NULL ? LOONG_OK : fail_name(f, name);
}

/* Into *jinja_p, and forgets the text; nothing where there is none. */
static loong_status_t parse(finder_t *f, loong_jinja_t **jinja_p)
{
    if (f->text == NULL) {
        return LOONG_OK;
    }
    const char *where = loongi_text_get(&f->where);
    f->t->hash = XXH3_64bits_withSeed(f->text, f->length, f->t->hash);
    f->dated = f->dated || strstr(f->text, "strftime_now") != NULL;
    f->t->knows_images = f->t->knows_images || strstr(f->text, "image") != NULL;
    loong_status_t status =
        loongi_jinja_parse(f->ctx, f->text, f->length, where, jinja_p);
    if (status == LOONG_OK && f->t->name == NULL) {
        status = loongi_strdup(f->ctx, where, &f->t->name);
    }
    loongi_free(f->ctx, f->text);
    f->text = NULL;
    return status;
}

/* ---- tokens and arguments ------------------------------------------------ */

/* A text, or an object with `content`; NULL: null, or another thing. */
static const loong_json_t *content_of(const loong_json_t *token)
{
    const loong_json_t *content = loongi_json_get(token, "content");
    const loong_json_t *text = content != NULL ? content : token;
    return loongi_json_kind(text) == LOONG_JSON_STRING ? text : NULL;
}

static loong_status_t find_tokens(finder_t *f)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",
                                        "sep_token", "pad_token", "cls_token",
                                        "mask_token"};
    loong_text_t text = loongi_text_begin(f->ctx);
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        const loong_json_t *said = loongi_json_get(f->config, names[i]);
        const loong_json_t *token =
            content_of(said != NULL ? said : loongi_json_get(f->map, names[i]));
        if (token != NULL) {
            loongi_text_printf(&text, "%s\"%s\":", text.length > 0 ? "," : "{",
                               names[i]);
            loongi_text_json(&text, token);
        }
    }
    loongi_text_printf(&text, "%s}", text.length > 0 ? "" : "{");
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        f->t->hash = XXH3_64bits_withSeed(text.data, text.length, f->t->hash);
        status = loongi_json_parse(f->ctx, text.data, text.length,
                                   "special tokens", &f->t->tokens);
    }
    loongi_text_free(&text);
    return status;
}

static loong_status_t find_kwargs(finder_t *f, const char *text)
{
    if (text == NULL) {
        return LOONG_OK;
    }
    f->t->hash = XXH3_64bits_withSeed(text, strlen(text), f->t->hash);
    LOONG_TRY(loongi_json_parse(f->ctx, text, strlen(text),
                                "data.chat.template_kwargs", &f->t->kwargs));
    LOONG_CHECK(f->ctx, loongi_json_kind(f->t->kwargs) == LOONG_JSON_OBJECT,
                LOONG_ERR_CONFIG,
                "data.chat.template_kwargs is %s, must be a JSON object",
                loongi_json_kind_text(f->t->kwargs));
    return LOONG_OK;
}

/* The beginning of a day: what is rendered on it is alike. */
static loong_status_t find_day(finder_t *f, const char *date)
{
    struct tm today;
    time_t now = time(NULL);
    char rest = '\0';
    localtime_r(&now, &today);
    struct tm day = {.tm_year = today.tm_year,
                     .tm_mon = today.tm_mon,
                     .tm_mday = today.tm_mday,
                     .tm_isdst = -1};
    if (date != NULL) {
        bool read = sscanf(date, "%4d-%2d-%2d%c", &day.tm_year, &day.tm_mon,
                           &day.tm_mday, &rest) == 3;
        struct tm asked = day;
        day.tm_year -= 1900;
        day.tm_mon -= 1;
        (void)mktime(&day); /* turns 31 June into 1 July */
        LOONG_CHECK(f->ctx,
                    read && day.tm_year == asked.tm_year - 1900 &&
                        day.tm_mon == asked.tm_mon - 1 &&
                        day.tm_mday == asked.tm_mday,
                    LOONG_ERR_CONFIG,
                    "data.chat.date: found '%s', a day such as 2026-01-31 "
                    "wanted",
                    date);
    }
    f->t->now = (int64_t)mktime(&day);
    const int shown[] = {day.tm_year, day.tm_mon, day.tm_mday};
    f->t->hash = f->dated
                     ? XXH3_64bits_withSeed(shown, sizeof(shown), f->t->hash)
                     : f->t->hash;
    return LOONG_OK;
}

static loong_status_t find_all(finder_t *f, const loong_chat_options_t *o)
{
    LOONG_TRY(load_json(f, "tokenizer_config.json", &f->config));
    LOONG_TRY(load_json(f, "special_tokens_map.json", &f->map));
    LOONG_TRY(find_text(f, o->template_name));
    LOONG_TRY(parse(f, &f->t->jinja));
    if (o->template_name == NULL) { /* as transformers chooses */
        LOONG_TRY(take_named(f, "tool_use"));
        LOONG_TRY(parse(f, &f->t->with_tools));
    }
    LOONG_TRY(find_tokens(f));
    LOONG_TRY(find_day(f, o->date));
    return find_kwargs(f, o->template_kwargs);
}

loong_status_t loongi_chat_template_open(loong_context_t *ctx,
                                         const char *tokenizer,
                                         const loong_chat_options_t *options,
                                         chat_template_t *t)
{
    finder_t f = {.t = t, .ctx = ctx, .where = loongi_text_begin(ctx)};
    loong_text_t directory = loongi_text_begin(ctx);
    const char *slash = strrchr(tokenizer, '/');
    t->ctx = ctx;
    if (loongi_dir_exists(tokenizer)) {
        loongi_text_printf(&directory, "%s/", tokenizer);
    } else if (slash != NULL) {
        loongi_text_append(&directory, tokenizer,
                           (size_t)(slash + 1 - tokenizer));
    }
    f.directory = loongi_text_get(&directory);
    loong_status_t status = directory.status;
    if (status == LOONG_OK) {
        status = find_all(&f, options);
    }
    loongi_free(ctx, f.text);
    loongi_json_destroy(&f.config);
    loongi_json_destroy(&f.map);
    loongi_text_free(&f.where);
    loongi_text_free(&directory);
    return status;
}

void loongi_chat_template_close(chat_template_t *t)
{
    loongi_jinja_destroy(&t->jinja);
    loongi_jinja_destroy(&t->with_tools);
    loongi_json_destroy(&t->tokens);
    loongi_json_destroy(&t->kwargs);
    loongi_free(t->ctx, t->name);
}
