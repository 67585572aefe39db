/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that a path means; and one added token of it, of which no more is
 * parsed than the list that it stands in: whoever wants one name does not wait
 * for a vocabulary. Called by src/checkpoint/training/from_hf.c and
 * src/train/preflight.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "tokenizer_impl.h"

/* The byte behind the array that begins at `at`; NULL: it does not end. */
static const char *end_of_array(const char *at, const char *end)
{
    int depth = 0;
    for (bool quoted = false; at < end; at++) {
        if (quoted) {
            quoted = *at != '"';
            at += *at == '\\';
            continue;
        }
        quoted = *at == '"';
        depth += (*at == '[') - (*at == ']');
        if (*at == ']' && depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

/* The list as text; *length is 0 where there is none. A vocabulary may have a
 * token of that name, whose value is a number. */
static const char *find_list(const char *text, size_t size, size_t *length)
{
    static const char key[] = "\"added_tokens\"";
    static const char blanks[] = " \t\r\n";
    *length = 0;
    for (const char *at = text; (at = strstr(at, key)) != NULL;) {
        at += sizeof(key) - 1;
        at += strspn(at, blanks);
        if (*at != ':') {
            continue;
        }
        at++;
        at += strspn(at, blanks);
        const char *end =
            *at == '[' ? end_of_array(at, text + size) : NULL;
        if (end != NULL) {
            *length = (size_t)(end - at);
            return at;
        }
    }
    return NULL;
}

bool loongi_tokenizer_has_ranks(const loong_text_t *file)
{
    size_t ending = sizeof(LOONG_TIKTOKEN_FILE) - 1;
    return file->length >= ending &&
           strcmp(file->data + file->length - ending, LOONG_TIKTOKEN_FILE) == 0;
}

void loongi_tokenizer_file(const char *path, loong_text_t *file)
{
    bool directory = loongi_dir_exists(path);
    loongi_text_printf(file, "%s%s", path, directory ? "/tokenizer.json" : "");
    if (directory && file->status == LOONG_OK &&
        !loongi_file_exists(file->data)) {
        loong_text_t ranks = loongi_text_begin(file->ctx);
        loongi_text_printf(&ranks, "%s/" LOONG_TIKTOKEN_FILE, path);
        if (ranks.status == LOONG_OK && loongi_file_exists(ranks.data)) {
            file->length = 0;
            loongi_text_printf(file, "%s", ranks.data);
        }
        loongi_text_free(&ranks);
    }
}

void loongi_tokenizer_config(const char *file, loong_text_t *config)
{
    const char *slash = strrchr(file, '/');
    loongi_text_append(config, file,
                       slash != NULL ? (size_t)(slash + 1 - file) : 0);
    loongi_text_printf(config, "tokenizer_config.json");
}

/* The list of a file, or an object that has the decoder. */
static loong_status_t load_added(loong_context_t *ctx, const char *path,
                                 loong_json_t **json_p)
{
    char *text = NULL;
    size_t size = 0;
    size_t length = 0;
    loong_text_t file = loongi_text_begin(ctx);
    loong_text_t config = loongi_text_begin(ctx);
    loongi_tokenizer_file(path, &file);
    loongi_tokenizer_config(loongi_text_get(&file), &config);
    loong_status_t status =
        file.status != LOONG_OK ? file.status : config.status;
    if (status == LOONG_OK && loongi_tokenizer_has_ranks(&file)) {
        status = loongi_json_load(ctx, config.data, json_p);
    } else if (status == LOONG_OK) {
        status = loongi_file_read(ctx, file.data, &text, &size);
    }
    const char *found =
        text != NULL ? find_list(text, size, &length) : NULL;
    if (found != NULL) {
        status = loongi_json_parse(ctx, found, length, file.data, json_p);
    }
    loongi_free(ctx, text);
    loongi_text_free(&file);
    loongi_text_free(&config);
    return status;
}

/* Those of the list, or of the decoder, whose keys are ids, one by one. */
typedef struct added {
    const loong_json_t *list, *decoder;
    int64_t next;
    const loong_json_member_t *member;
    int64_t id; /* of the one that was found, and its name */
    const loong_json_t *name;
} added_t;

static added_t begin_added(const loong_json_t *json)
{
    const loong_json_t *decoder = loongi_json_get(json, "added_tokens_decoder");
    return (added_t){.list = decoder != NULL ? NULL : json,
                     .decoder = decoder,
                     .member = loongi_json_first(decoder),
                     .id = -1};
}

static bool next_added(added_t *a)
{
    const loong_json_t *item = a->member != NULL
                                   ? loongi_json_member_value(a->member)
                                   : loongi_json_at(a->list, a->next++);
    const loong_json_t *id = loongi_json_get(item, "id");
    a->name = loongi_json_get(item, "content");
    if (a->member != NULL) {
        a->id = strtoll(loongi_json_member_key(a->member), NULL, 10);
        a->member = loongi_json_next(a->decoder, a->member);
    } else {
        a->id = id != NULL ? loongi_json_int(id) : -1;
    }
    return item != NULL;
}

loong_status_t loong_tokenizer_peek(loong_context_t *ctx, const char *path,
                                    int32_t id, size_t room, char *token)
{
    loong_json_t *json = NULL;
    token[0] = '\0';
    LOONG_TRY(load_added(ctx, path, &json));
    added_t a = begin_added(json);
    while (next_added(&a)) {
        if (id >= 0 && a.id == id && loongi_json_string_length(a.name) < room) {
            snprintf(token, room, "%s", loongi_json_string(a.name));
            break;
        }
    }
    loongi_json_destroy(&json);
    return LOONG_OK;
}

loong_status_t loong_tokenizer_peek_id(loong_context_t *ctx, const char *path,
                                       const char *token, int32_t *id_p)
{
    loong_json_t *json = NULL;
    *id_p = -1;
    LOONG_TRY(load_added(ctx, path, &json));
    added_t a = begin_added(json);
    while (*id_p < 0 && next_added(&a)) {
        *id_p = strcmp(token, loongi_json_string(a.name)) == 0 ? (int32_t)a.id
                                                               : -1;
    }
    loongi_json_destroy(&json);
    return LOONG_OK;
}
