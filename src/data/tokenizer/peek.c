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

/* That of tokenizer_config.json, whose keys are ids. */
static loong_status_t load_decoder(loong_context_t *ctx, const char *ranks,
                                   loong_json_t **json_p)
{
    loong_text_t file = loongi_text_begin(ctx);
    const char *slash = strrchr(ranks, '/');
    loongi_text_append(&file, ranks,
                       slash != NULL ? (size_t)(slash + 1 - ranks) : 0);
    loongi_text_printf(&file, "tokenizer_config.json");
    loong_status_t status = file.status;
    if (status == LOONG_OK) {
        status = loongi_json_load(ctx, file.data, json_p);
    }
    loongi_text_free(&file);
    return status;
}

/* The list of a file, or an object that has the decoder. */
static loong_status_t load_added(loong_context_t *ctx, const char *path,
                                 loong_json_t **json_p)
{
    char *text = NULL;
    size_t size = 0;
    size_t length = 0;
    loong_text_t file = loongi_text_begin(ctx);
    loongi_tokenizer_file(path, &file);
    loong_status_t status = file.status;
    if (status == LOONG_OK && loongi_tokenizer_has_ranks(&file)) {
        status = load_decoder(ctx, file.data, json_p);
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
    return status;
}

/* The token of an id, into room bytes, or the id of a token where it is -1;
 * what is not found stays as it is. */
static void find_added(const loong_json_t *json, int32_t *id, char *token,
                       size_t room)
{
    const loong_json_t *decoder = loongi_json_get(json, "added_tokens_decoder");
    const loong_json_member_t *it = loongi_json_first(decoder);
    int32_t wanted = *id;
    bool found = false;
    for (int64_t i = 0; !found; i++) {
        const loong_json_t *item = decoder != NULL
                                       ? loongi_json_member_value(it)
                                       : loongi_json_at(json, i);
        if (item == NULL) {
            break;
        }
        const loong_json_t *number = loongi_json_get(item, "id");
        const loong_json_t *name = loongi_json_get(item, "content");
        int64_t own = decoder != NULL
                          ? strtoll(loongi_json_member_key(it), NULL, 10)
                      : number != NULL ? loongi_json_int(number)
                                       : -1;
        found = wanted >= 0 ? own == wanted
                            : strcmp(token, loongi_json_string(name)) == 0;
        if (found && wanted >= 0 && loongi_json_string_length(name) < room) {
            snprintf(token, room, "%s", loongi_json_string(name));
        }
        *id = found ? (int32_t)own : *id;
        it = decoder != NULL ? loongi_json_next(decoder, it) : NULL;
        if (decoder != NULL && it == NULL) {
            break;
        }
    }
}

loong_status_t loong_tokenizer_peek(loong_context_t *ctx, const char *path,
                                    int32_t id, size_t room, char *token)
{
    loong_json_t *json = NULL;
    token[0] = '\0';
    loong_status_t status = load_added(ctx, path, &json);
    if (status == LOONG_OK && id >= 0) {
        find_added(json, &id, token, room);
    }
    loongi_json_destroy(&json);
    return status;
}

loong_status_t loong_tokenizer_peek_id(loong_context_t *ctx, const char *path,
                                       const char *token, int32_t *id_p)
{
    loong_json_t *json = NULL;
    *id_p = -1;
    loong_status_t status = load_added(ctx, path, &json);
    if (status == LOONG_OK) {
        find_added(json, id_p, (char *)token, 0);
    }
    loongi_json_destroy(&json);
    return status;
}
