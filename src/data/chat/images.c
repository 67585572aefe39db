/* SPDX-License-Identifier: Apache-2.0
 *
 * Contents of messages, with the pictures and videos that stand in them: parts
 * of a list in OpenAI's form, or <image> and <video> in a text for each one of
 * the record's "images" and "videos".
 * Called by convert.c. Read chat.h before. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "chat.h"
#include "processor.h"
#include "tar.h"

/* Of chat_conversation_t.listed. */
enum { PICTURE, VIDEO };

/* What members of tar files are by their names. */
static const char *const endings[][12] = {
    {"jpg", "jpeg", "png", "webp"},
    {"mp4", "avi", "mov", "mkv", "webm", "m4v", "mpg", "mpeg", "flv", "wmv"}};

static const struct {
    const char *marker, *part, *name, *key, *list;
} kinds[] = {{"<image>", "image", "picture", "image", "images"},
             {"<video>", "video", "video", "video", "videos"}};

static bool reads(const chat_conversation_t *c, int kind)
{
    return kind == PICTURE ? c->rules.token != NULL : c->rules.videos != NULL;
}

/* What the source has, for messages. */
static const char *contents_of(const chat_conversation_t *c)
{
    bool pictures = reads(c, PICTURE);
    bool videos = reads(c, VIDEO);
    return pictures && videos ? "texts, pictures and videos"
           : pictures         ? "texts and pictures"
           : videos           ? "texts and videos"
                              : "texts alone";
}

/* ---- where they are ------------------------------------------------------ */

int loongi_chat_member_kind(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (int kind = PICTURE; kind <= VIDEO && dot != NULL; kind++) {
        for (int i = 0; endings[kind][i] != NULL; i++) {
            if (strcasecmp(dot + 1, endings[kind][i]) == 0) {
                return kind;
            }
        }
    }
    return -1;
}

/* The k-th member of that kind; NULL: there is none. */
static const char *member_at(const chat_conversation_t *c, int kind, int64_t k)
{
    for (int64_t i = 0; i < loongi_json_count(c->members); i++) {
        const char *name = loongi_json_string(loongi_json_at(c->members, i));
        if (loongi_chat_member_kind(name) == kind && k-- == 0) {
            return name;
        }
    }
    return NULL;
}

static int64_t count_members(const chat_conversation_t *c, int kind)
{
    int64_t count = 0;
    while (reads(c, kind) && member_at(c, kind, count) != NULL) {
        count++;
    }
    return count;
}

/* The member that a record names: by its name, the last part of it, or what
 * stands behind the sample's key. */
static loong_status_t find_member(const chat_conversation_t *c, int kind,
                                  const char *name, const char **member_p)
{
    loong_text_t names = loongi_text_begin(c->ctx);
    for (int64_t i = 0; i < loongi_json_count(c->members); i++) {
        const char *member = loongi_json_string(loongi_json_at(c->members, i));
        const char *slash = strrchr(member, '/');
        size_t key = loongi_tar_key(member);
        if (strcmp(name, member) == 0 ||
            (slash != NULL && strcmp(name, slash + 1) == 0) ||
            (member[key] == '.' && strcmp(name, member + key + 1) == 0)) {
            loongi_text_free(&names);
            *member_p = member;
            return LOONG_OK;
        }
        loongi_text_printf(&names, "%s %s", i > 0 ? "," : "", member);
    }
    loong_status_t status =
        LOONG_FAIL(c->ctx, LOONG_ERR_FORMAT,
                   "there is no %s '%s' in its sample, which has%s",
                   kinds[kind].name, name,
                   names.length > 0 ? loongi_text_get(&names) : " none");
    loongi_text_free(&names);
    return status;
}

/* LoongForge's records in tar files: "media" says what "name" lists. */
static bool is_media(const chat_conversation_t *c, const loong_json_t *record,
                     int kind)
{
    const loong_json_t *media = loongi_json_get(record, "media");
    return c->members != NULL &&
           strcmp(loongi_json_string(media), kinds[kind].part) == 0;
}

static loong_status_t take_listed(chat_conversation_t *c,
                                  const loong_json_t *record, int kind)
{
    chat_listed_t *l = &c->listed[kind];
    const loong_json_t *list = loongi_json_get(record, kinds[kind].list);
    l->list = list != NULL ? list : loongi_json_get(record, kinds[kind].key);
    if (l->list == NULL && is_media(c, record, kind)) {
        l->list = loongi_json_get(record, "name");
    }
    bool none = l->list == NULL || loongi_json_kind(l->list) == LOONG_JSON_NULL;
    l->unlisted = none && c->members != NULL;
    if (l->unlisted) {
        l->count = count_members(c, kind);
        return LOONG_OK;
    }
    bool many = loongi_json_kind(l->list) == LOONG_JSON_ARRAY;
    l->count = none ? 0 : many ? loongi_json_count(l->list) : 1;
    LOONG_CHECK(c->ctx, l->count == 0 || reads(c, kind), LOONG_ERR_FORMAT,
                "the record lists %" PRId64 " %ss, this source has %s: a model "
                "that sees %ss is wanted",
                l->count, kinds[kind].name, contents_of(c), kinds[kind].name);
    return LOONG_OK;
}

loong_status_t loongi_chat_take_images(chat_conversation_t *c,
                                       const loong_json_t *record)
{
    LOONG_TRY(take_listed(c, record, PICTURE));
    return take_listed(c, record, VIDEO);
}

loong_status_t loongi_chat_check_images(const chat_conversation_t *c)
{
    for (int kind = PICTURE; kind <= VIDEO; kind++) {
        const chat_listed_t *l = &c->listed[kind];
        bool named = l->unlisted && l->used == 0 && c->num_images > 0;
        LOONG_CHECK(c->ctx, l->used == l->count || named, LOONG_ERR_FORMAT,
                    "the %s %" PRId64 " %ss, of which %" PRId64
                    " stand in its messages, as %s or as parts",
                    l->unlisted ? "sample has" : "record lists", l->count,
                    kinds[kind].name, l->used, kinds[kind].marker);
    }
    LOONG_CHECK(c->ctx, c->num_images < LOONG_MAX_ITEMS, LOONG_ERR_UNSUPPORTED,
                "%" PRId64 " pictures and videos, up to %d are allowed",
                c->num_images, LOONG_MAX_ITEMS - 1);
    return LOONG_OK;
}

/* What a picture or a video is given as: the value of an object that has one of
 * these keys, a path if all is well. NULL: nothing is said. */
static const loong_json_t *path_of(const loong_json_t *image)
{
    static const char *const keys[] = {"image", "image_url", "video",
                                       "video_url", "url", "path"};
    const loong_json_t *path = NULL;
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys) && path == NULL; i++) {
        const loong_json_t *value = loongi_json_get(image, keys[i]);
        path = loongi_json_kind(value) == LOONG_JSON_OBJECT ? path_of(value)
               : loongi_json_kind(value) == LOONG_JSON_NULL ? NULL
                                                            : value;
    }
    return path;
}

static loong_status_t decode_picture(loong_context_t *ctx, const char *path)
{
    loong_image_sample_t sample = {0};
    loong_image_t image = {0};
    LOONG_TRY(loong_image_load(ctx, path, &sample));
    loong_status_t status = loong_image_decode(
        ctx, sample.name, sample.bytes, sample.length, NULL, &image);
    loong_image_free(ctx, &image);
    loong_image_sample_free(ctx, &sample);
    return status;
}

/* As a step does it, which would stop at what is broken. */
static loong_status_t decode(chat_conversation_t *c, const char *path,
                             const loong_video_t *of)
{
    int64_t size[2];
    uint8_t *pixels = NULL;
    if (of->frames == 0) {
        return decode_picture(c->ctx, path);
    }
    loong_video_size(c->rules.videos, of->width, of->height, of->frames, size);
    LOONG_TRY(loongi_alloc(c->ctx, (size_t)(size[0] * size[1] * of->frames) * 3,
                           "a video", &pixels));
    loong_status_t status =
        loong_video_read(c->ctx, c->rules.videos, path, of, pixels);
    loongi_free(c->ctx, pixels);
    return status;
}

static loong_status_t look_at_picture(chat_conversation_t *c, const char *path,
                                      loong_video_t *of)
{
    loong_image_info_t info;
    LOONG_TRY(loong_image_get_file_info(c->ctx, path, &info));
    *of = (loong_video_t){.width = info.width, .height = info.height};
    LOONG_TRY(loongi_processor_check_narrow(c->ctx, c->rules.pictures, path,
                                          info.width, info.height));
    if (loongi_chat_has_slices(&c->rules)) {
        of->parts = loong_image_processor_tiles(c->rules.pictures, info.width,
                                                info.height, false)
                        .count;
    }
    return LOONG_OK;
}

static loong_status_t look_at(chat_conversation_t *c, int kind,
                              const char *path, loong_video_t *video)
{
    bool exists = false;
    *video = (loong_video_t){.frames = 0};
    LOONG_TRY(loongi_file_part_exists(c->ctx, path, &exists));
    LOONG_CHECK(c->ctx, exists, LOONG_ERR_FORMAT, "there is no %s '%s'",
                kinds[kind].name, path);
    LOONG_TRY(kind == VIDEO ? loong_video_measure(c->ctx, c->rules.videos, path,
                                                  video)
                            : look_at_picture(c, path, video));
    return c->rules.decode ? decode(c, path, video) : LOONG_OK;
}

/* With what stands in front of it: the tar file of which it is a member, or
 * image_root, or the file's directory. */
static loong_status_t put_path(chat_conversation_t *c, int kind,
                               const char *path)
{
    const char *slash = c->path != NULL ? strrchr(c->path, '/') : NULL;
    if (c->members != NULL) {
        LOONG_TRY(find_member(c, kind, path, &path));
        loongi_text_printf(&c->image_paths, "%s/", c->path);
    } else if (path[0] != '/' && c->rules.root != NULL) {
        loongi_text_printf(&c->image_paths, "%s/", c->rules.root);
    } else if (path[0] != '/' && slash != NULL) {
        loongi_text_append(&c->image_paths, c->path,
                           (size_t)(slash + 1 - c->path));
    }
    loongi_text_append(&c->image_paths, path, strlen(path) + 1);
    return c->image_paths.status;
}

static loong_status_t add_file(chat_conversation_t *c, int kind,
                               const char *path)
{
    size_t before = c->image_paths.length;
    LOONG_TRY(put_path(c, kind, path));
    LOONG_TRY(loongi_grow(c->ctx, &c->images, &c->images_room,
                          c->num_images + 1, sizeof(*c->images),
                          "pictures of a conversation"));
    return look_at(c, kind, c->image_paths.data + before,
                   &c->images[c->num_images++]);
}

static loong_status_t add_path(chat_conversation_t *c, int kind,
                               const char *where, const loong_json_t *given)
{
    static const char file[] = "file://";
    LOONG_CHECK(c->ctx, loongi_json_kind(given) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT, "%s: %s %" PRId64 " is %s, a path is wanted",
                where, kinds[kind].name, c->num_images + 1,
                loongi_json_kind_text(given));
    const char *path = loongi_json_string(given);
    path += strncmp(path, file, sizeof(file) - 1) == 0 ? sizeof(file) - 1 : 0;
    LOONG_CHECK(c->ctx,
                strstr(path, "://") == NULL && strncmp(path, "data:", 5) != 0,
                LOONG_ERR_UNSUPPORTED,
                "a %s is '%.40s': paths of files are read", kinds[kind].name,
                path);
    return add_file(c, kind, path);
}

/* The next one that the record lists. */
static loong_status_t add_listed(chat_conversation_t *c, int kind,
                                 const char *where)
{
    chat_listed_t *l = &c->listed[kind];
    bool many = loongi_json_kind(l->list) == LOONG_JSON_ARRAY;
    LOONG_CHECK(c->ctx, l->used < l->count, LOONG_ERR_FORMAT,
                "%s: %s %" PRId64 " has no path, the record lists %" PRId64,
                where, kinds[kind].name, l->used + 1, l->count);
    if (l->unlisted) {
        return add_file(c, kind, member_at(c, kind, l->used++));
    }
    const loong_json_t *image =
        many ? loongi_json_at(l->list, l->used) : l->list;
    l->used++;
    const loong_json_t *path = path_of(image);
    return add_path(c, kind, where, path != NULL ? path : image);
}

static const char *token_of(const chat_conversation_t *c, int kind)
{
    return kind == PICTURE ? c->rules.token : c->rules.video_token;
}

/* What stands for one in a text, that or another where it is NULL, and where
 * the first is; *kind_p -1: none does. */
static const char *find_first(const chat_conversation_t *c, const char *text,
                              bool markers, int *kind_p)
{
    const char *first = NULL;
    *kind_p = -1;
    for (int kind = PICTURE; kind <= VIDEO; kind++) {
        const char *mark = markers ? kinds[kind].marker : token_of(c, kind);
        const char *at = reads(c, kind) ? strstr(text, mark) : NULL;
        if (at != NULL && (first == NULL || at < first)) {
            first = at;
            *kind_p = kind;
        }
    }
    return first;
}

/* In the order in which their tokens stand in the texts. */
loong_status_t loongi_chat_use_images(chat_conversation_t *c,
                                      const loong_json_t *record)
{
    LOONG_TRY(loongi_chat_take_images(c, record));
    for (int i = 0; i < c->num_parts; i++) {
        const char *at = c->part[i].text;
        int kind = -1;
        while ((at = find_first(c, at, false, &kind)) != NULL) {
            LOONG_TRY(add_listed(c, kind, "the record"));
            at += strlen(token_of(c, kind));
        }
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

static loong_status_t add_image(content_t *t, int kind)
{
    if (t->c->rules.parts) {
        loongi_text_printf(&t->text, "%s{\"type\":\"%s\"}",
                           t->text.length > 0 ? "," : "", kinds[kind].part);
    } else {
        loongi_text_printf(&t->text, "%s", token_of(t->c, kind));
    }
    return t->text.status;
}

/* Where the model sees pictures or videos, markers are such. */
static loong_status_t add_marked(content_t *t, const loong_json_t *text)
{
    const char *at = loongi_json_string(text);
    const char *end = at + loongi_json_string_length(text);
    const char *mark = NULL;
    int kind = -1;
    while ((mark = find_first(t->c, at, true, &kind)) != NULL) {
        LOONG_TRY(add_text(t, at, (size_t)(mark - at)));
        LOONG_TRY(add_listed(t->c, kind, t->where));
        LOONG_TRY(add_image(t, kind));
        at = mark + strlen(kinds[kind].marker);
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
    LOONG_CHECK(c->ctx, type[0] != '\0', LOONG_ERR_FORMAT,
                "%s: part %" PRId64 " of its content is %s, must be a text or "
                "an object with a 'type'",
                t->where, i,
                loongi_json_kind(part) == LOONG_JSON_OBJECT
                    ? "an object without 'type'"
                    : loongi_json_kind_text(part));
    if (strcmp(type, "text") == 0) {
        LOONG_CHECK(c->ctx, loongi_json_kind(text) == LOONG_JSON_STRING,
                    LOONG_ERR_FORMAT,
                    "%s: part %" PRId64 " of its content is of type 'text': "
                    "its 'text' is %s, must be a text",
                    t->where, i,
                    text != NULL ? loongi_json_kind_text(text) : "missing");
        return add_marked(t, text);
    }
    bool video = strcmp(type, "video") == 0 || strcmp(type, "video_url") == 0;
    bool image = strcmp(type, "image") == 0 || strcmp(type, "image_url") == 0;
    int kind = video ? VIDEO : PICTURE;
    LOONG_CHECK(c->ctx, (image || video) && reads(c, kind),
                LOONG_ERR_UNSUPPORTED,
                "%s: part %" PRId64 " of its content is of type '%s', this "
                "source has %s",
                t->where, i, type, contents_of(c));
    const loong_json_t *path = path_of(part);
    LOONG_TRY(path != NULL ? add_path(c, kind, t->where, path)
                           : add_listed(c, kind, t->where));
    return add_image(t, kind);
}

void loongi_chat_put_markers(const chat_conversation_t *c, const char *text,
                             loong_text_t *to)
{
    for (int kind = PICTURE; kind <= VIDEO; kind++) {
        bool marked = strstr(text, kinds[kind].marker) != NULL;
        for (int64_t i = 0; i < c->listed[kind].count && !marked; i++) {
            loongi_text_printf(to, "%s", kinds[kind].marker);
        }
    }
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
    if (!reads(c, PICTURE) && !reads(c, VIDEO) &&
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
