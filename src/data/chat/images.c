/* SPDX-License-Identifier: Apache-2.0
 *
 * Contents of messages, with the pictures that stand in them: parts of a list
 * in OpenAI's form, or <image> in a text for each one of the record's "images".
 * Called by convert.c. Read chat.h before. */
#include <inttypes.h>
#include <string.h>

#include "chat.h"
#include "file.h"

#define MARKER "<image>"

/* ---- where pictures are -------------------------------------------------- */

loong_status_t loongi_chat_take_images(chat_conversation_t *c,
                                       const loong_json_t *record)
{
    const loong_json_t *one = loongi_json_get(record, "image");
    const loong_json_t *list = loongi_json_get(record, "images");
    c->images = list != NULL ? list : one;
    bool none =
        c->images == NULL || loongi_json_kind(c->images) == LOONG_JSON_NULL;
    bool many = loongi_json_kind(c->images) == LOONG_JSON_ARRAY;
    c->num_listed = none ? 0 : many ? loongi_json_count(c->images) : 1;
    LOONG_CHECK(c->ctx, c->num_listed == 0 || c->rules.token != NULL,
                LOONG_ERR_FORMAT,
                "the record lists %" PRId64 " pictures, this source has texts "
                "alone: a model that sees pictures is wanted",
                c->num_listed);
    return LOONG_OK;
}

loong_status_t loongi_chat_check_images(const chat_conversation_t *c)
{
    LOONG_CHECK(c->ctx, c->num_used == c->num_listed, LOONG_ERR_FORMAT,
                "the record lists %" PRId64 " pictures, of which %" PRId64
                " stand in its messages, as " MARKER " or as parts",
                c->num_listed, c->num_used);
    LOONG_CHECK(c->ctx, c->num_images < LOONG_MAX_ITEMS, LOONG_ERR_UNSUPPORTED,
                "%" PRId64 " pictures, up to %d are allowed", c->num_images,
                LOONG_MAX_ITEMS - 1);
    return LOONG_OK;
}

/* What a picture is given as: the value of an object that has one of these
 * keys, a path if all is well. NULL: nothing is said. */
static const loong_json_t *path_of(const loong_json_t *image)
{
    static const char *const keys[] = {"image", "image_url", "url", "path"};
    const loong_json_t *path = NULL;
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys) && path == NULL; i++) {
        const loong_json_t *value = loongi_json_get(image, keys[i]);
        path = loongi_json_kind(value) == LOONG_JSON_OBJECT ? path_of(value)
               : loongi_json_kind(value) == LOONG_JSON_NULL ? NULL
                                                            : value;
    }
    return path;
}

static loong_status_t add_path(chat_conversation_t *c, const char *where,
                               const loong_json_t *given)
{
    static const char file[] = "file://";
    const char *slash = c->path != NULL ? strrchr(c->path, '/') : NULL;
    size_t before = c->image_paths.length;
    loong_image_info_t info;
    LOONG_CHECK(c->ctx, loongi_json_kind(given) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT,
                "%s: picture %" PRId64 " is %s, a path is wanted", where,
                c->num_images + 1, loongi_json_kind_text(given));
    const char *path = loongi_json_string(given);
    path += strncmp(path, file, sizeof(file) - 1) == 0 ? sizeof(file) - 1 : 0;
    LOONG_CHECK(c->ctx,
                strstr(path, "://") == NULL && strncmp(path, "data:", 5) != 0,
                LOONG_ERR_UNSUPPORTED,
                "a picture is '%.40s': paths of files are read", path);
    if (path[0] != '/' && c->rules.root != NULL) {
        loongi_text_printf(&c->image_paths, "%s/", c->rules.root);
    } else if (path[0] != '/' && slash != NULL) {
        loongi_text_append(&c->image_paths, c->path,
                           (size_t)(slash + 1 - c->path));
    }
    loongi_text_append(&c->image_paths, path, strlen(path) + 1);
    LOONG_TRY(c->image_paths.status);
    c->num_images++;
    LOONG_CHECK(c->ctx, loongi_file_exists(c->image_paths.data + before),
                LOONG_ERR_FORMAT, "there is no picture '%s'",
                c->image_paths.data + before);
    return loong_image_get_file_info(c->ctx, c->image_paths.data + before,
                                     &info);
}

/* The next one that the record lists. */
static loong_status_t add_listed(chat_conversation_t *c, const char *where)
{
    bool many = loongi_json_kind(c->images) == LOONG_JSON_ARRAY;
    LOONG_CHECK(c->ctx, c->num_used < c->num_listed, LOONG_ERR_FORMAT,
                "%s: picture %" PRId64 " has no path, the record lists "
                "%" PRId64,
                where, c->num_used + 1, c->num_listed);
    const loong_json_t *image =
        many ? loongi_json_at(c->images, c->num_used) : c->images;
    c->num_used++;
    const loong_json_t *path = path_of(image);
    return add_path(c, where, path != NULL ? path : image);
}

loong_status_t loongi_chat_use_images(chat_conversation_t *c,
                                      const loong_json_t *record)
{
    LOONG_TRY(loongi_chat_take_images(c, record));
    while (c->num_used < c->num_listed) {
        LOONG_TRY(add_listed(c, "the record"));
    }
    return loongi_chat_check_images(c);
}

/* ---- contents ------------------------------------------------------------ */

/* What a content becomes: a JSON list, or a text. */
typedef struct content {
    chat_conversation_t *c;
    const char *where;
    loong_text_t text;
} content_t;

static loong_status_t add_text(content_t *t, const char *text, size_t length)
{
    LOONG_CHECK(t->c->ctx, memchr(text, '\0', length) == NULL,
                LOONG_ERR_UNSUPPORTED,
                "%s: a part of its content has the character 0", t->where);
    if (!t->c->rules.parts) {
        loongi_text_append(&t->text, text, length);
        return t->text.status;
    }
    loong_text_t own = loongi_text_begin(t->c->ctx);
    loongi_text_append(&own, text, length);
    loong_status_t status = own.status;
    if (length > 0) {
        loongi_text_printf(&t->text, "%s{\"type\":\"text\",\"text\":",
                           t->text.length > 0 ? "," : "");
        loongi_text_json_string(&t->text, loongi_text_get(&own));
        loongi_text_append(&t->text, "}", 1);
    }
    loongi_text_free(&own);
    return status == LOONG_OK ? t->text.status : status;
}

static loong_status_t add_image(content_t *t)
{
    if (t->c->rules.parts) {
        loongi_text_printf(&t->text, "%s{\"type\":\"image\"}",
                           t->text.length > 0 ? "," : "");
    } else {
        loongi_text_printf(&t->text, "%s", t->c->rules.token);
    }
    return t->text.status;
}

/* Where the model sees pictures, markers are such. */
static loong_status_t add_marked(content_t *t, const loong_json_t *text)
{
    const char *at = loongi_json_string(text);
    const char *end = at + loongi_json_string_length(text);
    const char *mark = NULL;
    while (t->c->rules.token != NULL && (mark = strstr(at, MARKER)) != NULL) {
        LOONG_TRY(add_text(t, at, (size_t)(mark - at)));
        LOONG_TRY(add_listed(t->c, t->where));
        LOONG_TRY(add_image(t));
        at = mark + strlen(MARKER);
    }
    return add_text(t, at, (size_t)(end - at));
}

static loong_status_t add_part(content_t *t, const loong_json_t *part,
                               int64_t i)
{
    chat_conversation_t *c = t->c;
    const loong_json_t *text = loongi_json_get(part, "text");
    const char *type = loongi_json_string(loongi_json_get(part, "type"));
    if (loongi_json_kind(part) == LOONG_JSON_STRING) {
        return add_marked(t, part);
    }
    if (strcmp(type, "text") == 0 &&
        loongi_json_kind(text) == LOONG_JSON_STRING) {
        return add_marked(t, text);
    }
    bool image = strcmp(type, "image") == 0 || strcmp(type, "image_url") == 0;
    LOONG_CHECK(c->ctx, image && c->rules.token != NULL, LOONG_ERR_UNSUPPORTED,
                "%s: part %" PRId64 " of its content is of type '%s', this "
                "source has texts%s",
                t->where, i, type,
                c->rules.token != NULL ? " and pictures" : " alone");
    const loong_json_t *path = path_of(part);
    LOONG_TRY(path != NULL ? add_path(c, t->where, path)
                           : add_listed(c, t->where));
    return add_image(t);
}

static loong_status_t add_content(content_t *t, const loong_json_t *content)
{
    LOONG_CHECK(t->c->ctx,
                loongi_json_kind(content) == LOONG_JSON_STRING ||
                    loongi_json_kind(content) == LOONG_JSON_ARRAY,
                LOONG_ERR_FORMAT,
                "%s: content is %s, must be a text or a list of them", t->where,
                loongi_json_kind_text(content));
    if (loongi_json_kind(content) == LOONG_JSON_STRING) {
        return add_marked(t, content);
    }
    for (int64_t i = 0; i < loongi_json_count(content); i++) {
        LOONG_TRY(add_part(t, loongi_json_at(content, i), i));
    }
    return LOONG_OK;
}

loong_status_t loongi_chat_put_content(chat_conversation_t *c,
                                       const loong_json_t *content,
                                       const char *where)
{
    content_t t = {c, where, loongi_text_begin(c->ctx)};
    if (c->rules.token == NULL &&
        loongi_json_kind(content) == LOONG_JSON_STRING) {
        loongi_text_json(&c->text, content);
        return c->text.status;
    }
    loong_status_t status = add_content(&t, content);
    if (status == LOONG_OK && c->rules.parts) {
        loongi_text_printf(&c->text, "[%s]", loongi_text_get(&t.text));
    } else if (status == LOONG_OK) {
        loongi_text_json_string(&c->text, loongi_text_get(&t.text));
    }
    loongi_text_free(&t.text);
    return status == LOONG_OK ? c->text.status : status;
}
