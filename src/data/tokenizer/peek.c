/* SPDX-License-Identifier: Apache-2.0
 *
 * One added token of a tokenizer.json, of which no more is parsed than the list
 * that it stands in: whoever wants one name does not wait for a vocabulary.
 * Called by src/checkpoint/training/from_hf.c. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "loong/tokenizer.h"

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

loong_status_t loong_tokenizer_peek(loong_context_t *ctx, const char *path,
                                    int32_t id, size_t room, char *token)
{
    char *text = NULL;
    size_t size = 0;
    size_t length = 0;
    loong_json_t *list = NULL;
    loong_text_t file = loongi_text_begin(ctx);
    loongi_text_printf(&file, "%s%s", path,
                       loongi_dir_exists(path) ? "/tokenizer.json" : "");
    token[0] = '\0';
    loong_status_t status = file.status;
    if (status == LOONG_OK) {
        status = loongi_file_read(ctx, file.data, &text, &size);
    }
    const char *found =
        status == LOONG_OK ? find_list(text, size, &length) : NULL;
    if (found != NULL) {
        status = loongi_json_parse(ctx, found, length, file.data, &list);
    }
    for (int64_t i = 0; list != NULL && i < loongi_json_count(list); i++) {
        const loong_json_t *item = loongi_json_at(list, i);
        const loong_json_t *own = loongi_json_get(item, "id");
        const loong_json_t *content = loongi_json_get(item, "content");
        if (own != NULL && loongi_json_int(own) == id &&
            loongi_json_string_length(content) < room) {
            snprintf(token, room, "%s", loongi_json_string(content));
        }
    }
    loongi_json_destroy(&list);
    loongi_free(ctx, text);
    loongi_text_free(&file);
    return status;
}
