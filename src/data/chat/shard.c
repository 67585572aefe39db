/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of a tar file as records: members whose names are equal up to the
 * first dot of the file name, one behind another (WebDataset). The .json is the
 * record, a .txt alone a caption; where megatron-energon's metadata have a map
 * of fields, the record is made of these. Called by reader.c. Read chat.h
 * before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat.h"
#include "file.h"
#include "tar.h"

struct chat_shard {
    loong_context_t *ctx;
    const chat_file_t *file;
    int fd;
    loong_arena_t *arena; /* names */
    tar_member_t *members;
    int64_t count, room;
    int64_t begin, end; /* members of the sample */
    int64_t samples;    /* of them so far */
    const char **names; /* [count]: room to sort those of a sample */
};

/* ---- members ------------------------------------------------------------- */

/* "__name__/..." says something of the file, and what has no ending, or nothing
 * in front of it, is part of no sample. */
static bool is_of_sample(const char *name)
{
    const char *slash = strchr(name, '/');
    size_t first = slash != NULL ? (size_t)(slash - name) : 0;
    bool meta = first > 4 && memcmp(name, "__", 2) == 0 &&
                memcmp(slash - 2, "__", 2) == 0;
    return !meta && name[loongi_tar_key(name)] == '.' &&
           !loongi_tar_is_hidden(name);
}

static loong_status_t add_member(void *user, const tar_member_t *member)
{
    chat_shard_t *s = user;
    char *name = NULL;
    if (!is_of_sample(member->name)) {
        return LOONG_OK;
    }
    LOONG_CHECK(s->ctx, !member->is_link, LOONG_ERR_UNSUPPORTED,
                "%s: %s: is a link, a file is wanted (GNU tar's "
                "--hard-dereference --dereference store files)",
                s->file->path, member->name);
    LOONG_TRY(loongi_grow(s->ctx, &s->members, &s->room, s->count + 1,
                          sizeof(*s->members), "members of a tar file"));
    LOONG_TRY(loongi_arena_strdup(s->arena, member->name, &name));
    s->members[s->count] = *member;
    s->members[s->count++].name = name;
    return LOONG_OK;
}

/* The next sample's members; none at the end. */
static void find_sample(chat_shard_t *s)
{
    s->begin = s->end;
    while (s->end < s->count) {
        const char *first = s->members[s->begin].name;
        const char *name = s->members[s->end].name;
        size_t key = loongi_tar_key(first);
        if (loongi_tar_key(name) != key || memcmp(name, first, key) != 0) {
            break;
        }
        s->end++;
    }
    s->samples += s->end > s->begin;
}

static bool is_excluded(const chat_shard_t *s)
{
    const char *name = s->members[s->begin].name;
    return loongi_chat_energon_excludes(s->file->energon, s->file->shard, name,
                                        loongi_tar_key(name));
}

static loong_status_t check_samples(chat_shard_t *s)
{
    int64_t excluded = 0;
    if (s->file->energon == NULL) {
        return LOONG_OK;
    }
    for (find_sample(s); s->end > s->begin; find_sample(s)) {
        excluded += is_excluded(s);
    }
    int64_t wanted =
        loongi_chat_energon_num_excluded(s->file->energon, s->file->shard);
    if (excluded < wanted) {
        loongi_log(s->ctx, LOONG_LOG_WARN,
                   "%s: has %" PRId64 " of the %" PRId64
                   " samples that .nv-meta excludes from it",
                   s->file->path, excluded, wanted);
    }
    LOONG_CHECK(s->ctx, s->samples == s->file->shard_samples, LOONG_ERR_FORMAT,
                "%s: has %" PRId64 " samples, .nv-meta says %" PRId64,
                s->file->path, s->samples, s->file->shard_samples);
    s->begin = s->end = s->samples = 0;
    return LOONG_OK;
}

static loong_status_t open_shard(chat_shard_t *s)
{
    const char *path = s->file->path;
    LOONG_TRY(loongi_arena_create(s->ctx, "names of members", &s->arena));
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(s->ctx, s->fd >= 0, LOONG_ERR_IO, "%s: %s", path,
                strerror(errno));
    LOONG_TRY(loongi_tar_list(s->ctx, path, add_member, s));
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)s->count, sizeof(*s->names),
                            "names of members", &s->names));
    return check_samples(s);
}

loong_status_t loongi_chat_shard_create(loong_context_t *ctx,
                                        const chat_file_t *file,
                                        chat_shard_t **shard_p)
{
    chat_shard_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "tar file of samples", &s));
    s->ctx = ctx;
    s->file = file;
    s->fd = -1;
    loong_status_t status = open_shard(s);
    if (status != LOONG_OK) {
        loongi_chat_shard_destroy(&s);
        return status;
    }
    *shard_p = s;
    return LOONG_OK;
}

void loongi_chat_shard_destroy(chat_shard_t **shard)
{
    chat_shard_t *s = *shard;
    if (s == NULL) {
        return;
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    loongi_arena_destroy(&s->arena);
    loongi_free(s->ctx, s->names);
    loongi_free(s->ctx, s->members);
    loongi_free(s->ctx, s);
    *shard = NULL;
}

/* The sample's member of this ending; NULL: it has none. */
static const tar_member_t *find_part(const chat_shard_t *s, const char *ending,
                                     size_t length)
{
    for (int64_t i = s->begin; i < s->end; i++) {
        const char *name = s->members[i].name;
        const char *own = name + loongi_tar_key(name) + 1;
        if (strncmp(own, ending, length) == 0 && own[length] == '\0') {
            return &s->members[i];
        }
    }
    return NULL;
}

static loong_status_t append_bytes(const chat_shard_t *s,
                                   const tar_member_t *member,
                                   loong_text_t *text)
{
    char *bytes = NULL;
    size_t size = (size_t)member->size;
    LOONG_TRY(loongi_alloc(s->ctx, size + 1, "member of a tar file", &bytes));
    loong_status_t status = loongi_file_pread(
        s->ctx, s->fd, s->file->path, bytes, size, (off_t)member->offset);
    if (status == LOONG_OK) {
        loongi_text_append(text, bytes, size);
        status = text->status;
    }
    loongi_free(s->ctx, bytes);
    return status;
}

/* ---- records ------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* `{"__members__": [...]`. */
static void put_members(loong_text_t *row, const char **names, int64_t count)
{
    loongi_text_printf(row, "{\"" CHAT_MEMBERS "\":[");
    for (int64_t i = 0; i < count; i++) {
        loongi_text_append(row, ",", i > 0);
        loongi_text_json_string(row, names[i]);
    }
    loongi_text_append(row, "]", 1);
}

/* What is wrong with the sample is its record. */
static void refuse(const chat_shard_t *s, const char *what, const char *field,
                   loong_text_t *row, bool *whole_p)
{
    const char *first = s->members[s->begin].name;
    row->length = 0;
    loongi_text_printf(row, "the sample '%.*s' has no %s%s%s; its members are:",
                       (int)loongi_tar_key(first), first, what,
                       field != NULL ? ", of which .nv-meta makes " : "",
                       field != NULL ? field : "");
    for (int64_t i = s->begin; i < s->end; i++) {
        loongi_text_printf(row, " %s", s->members[i].name);
    }
    *whole_p = false;
}

/* What stands in the .json goes behind the members. */
static loong_status_t put_json(const chat_shard_t *s,
                               const tar_member_t *member, loong_text_t *row,
                               bool *whole_p)
{
    static const char blank[] = " \t\r\n";
    loong_text_t json = loongi_text_begin(s->ctx);
    loong_status_t status = append_bytes(s, member, &json);
    const char *text = loongi_text_get(&json);
    text += strspn(text, blank);
    const char *inside = text + (text[0] == '{');
    inside += strspn(inside, blank);
    if (text[0] == '[') {
        loongi_text_printf(row, ",\"messages\":%s}", text);
    } else if (text[0] == '{') {
        loongi_text_printf(row, "%s%s", inside[0] == '}' ? "" : ",", inside);
    } else {
        refuse(s, "object in its .json", NULL, row, whole_p);
    }
    loongi_text_free(&json);
    return status;
}

static loong_status_t put_crude(const chat_shard_t *s, loong_text_t *row,
                                bool *whole_p)
{
    int64_t count = 0;
    for (int64_t i = s->begin; i < s->end; i++) {
        if (loongi_chat_member_kind(s->members[i].name) >= 0) {
            s->names[count++] = s->members[i].name;
        }
    }
    qsort(s->names, (size_t)count, sizeof(*s->names), by_name);
    put_members(row, s->names, count);
    const tar_member_t *json = find_part(s, "json", 4);
    const tar_member_t *caption = find_part(s, "txt", 3);
    if (json != NULL) {
        return put_json(s, json, row, whole_p);
    }
    if (caption == NULL) {
        refuse(s, ".json and no .txt", NULL, row, whole_p);
        return LOONG_OK;
    }
    loong_text_t text = loongi_text_begin(s->ctx);
    loong_status_t status = append_bytes(s, caption, &text);
    loongi_text_printf(row, ",\"caption\":");
    loongi_text_json_bytes(row, loongi_text_get(&text), text.length);
    loongi_text_append(row, "}", 1);
    loongi_text_free(&text);
    return status;
}

/* ---- a map of fields ----------------------------------------------------- */

/* The element of a list; NULL: it is none, or the key no number. */
static const loong_json_t *element(const loong_json_t *list, const char *key)
{
    bool is_number = key[strspn(key, "0123456789")] == '\0';
    return is_number ? loongi_json_at(list, strtoll(key, NULL, 10)) : NULL;
}

/* Behind "[key][0]": a value in it; NULL: there is none. */
static const loong_json_t *descend(const loong_json_t *value, const char *path,
                                   const char *end)
{
    while (path < end && value != NULL) {
        char key[256];
        size_t length = strcspn(path + 1, "]");
        snprintf(key, sizeof(key), "%.*s", (int)length, path + 1);
        value = loongi_json_kind(value) == LOONG_JSON_ARRAY
                    ? element(value, key)
                    : loongi_json_get(value, key);
        path += length + 2;
    }
    return value;
}

/* One of "json[question],txt"; *found_p false: the sample has none such. */
static loong_status_t put_option(const chat_shard_t *s, const char *option,
                                 size_t length, loong_text_t *row,
                                 bool *found_p)
{
    size_t ending = LOONG_MIN(strcspn(option, "["), length);
    const tar_member_t *member = find_part(s, option, ending);
    loong_text_t text = loongi_text_begin(s->ctx);
    loong_json_t *json = NULL;
    if (member == NULL) {
        return LOONG_OK;
    }
    loong_status_t status = append_bytes(s, member, &text);
    bool is_json = ending == 4 && strncmp(option, "json", 4) == 0;
    if (status == LOONG_OK && is_json) {
        status = loongi_json_parse(s->ctx, loongi_text_get(&text), text.length,
                                   member->name, &json);
    }
    if (status == LOONG_OK && is_json) {
        const loong_json_t *value =
            descend(json, option + ending, option + length);
        *found_p = value != NULL;
        if (value != NULL) {
            loongi_text_json(row, value);
        }
    } else if (status == LOONG_OK && ending == length) {
        *found_p = true;
        loongi_text_json_bytes(row, loongi_text_get(&text), text.length);
    }
    loongi_json_destroy(&json);
    loongi_text_free(&text);
    return status;
}

static loong_status_t put_field(const chat_shard_t *s, chat_field_t field,
                                const char *options, loong_text_t *row,
                                bool *found_p)
{
    loongi_text_printf(row, ",\"%s\":", loongi_chat_field_names[field]);
    for (const char *at = options; *at != '\0' && !*found_p;) {
        size_t length = strcspn(at, ",");
        LOONG_TRY(put_option(s, at, length, row, found_p));
        at += length + (at[length] == ',');
    }
    return LOONG_OK;
}

static const char *find_media(const chat_shard_t *s, const char *options)
{
    for (const char *at = options; *at != '\0';) {
        size_t length = strcspn(at, ",");
        const tar_member_t *member = find_part(s, at, length);
        if (member != NULL) {
            return member->name;
        }
        at += length + (at[length] == ',');
    }
    return NULL;
}

static loong_status_t put_fields(const chat_shard_t *s, loong_text_t *row,
                                 bool *whole_p)
{
    const struct chat_energon *energon = s->file->energon;
    const char *names[2];
    int64_t count = 0;
    for (int f = CHAT_FIELD_image; f <= CHAT_FIELD_video; f++) {
        const char *options = loongi_chat_energon_field(energon, f);
        const char *name = options != NULL ? find_media(s, options) : NULL;
        if (options != NULL && name == NULL) {
            refuse(s, options, loongi_chat_field_names[f], row, whole_p);
            return LOONG_OK;
        }
        if (name != NULL) {
            names[count++] = name;
        }
    }
    put_members(row, names, count);
    for (int f = CHAT_FIELD_caption; f < CHAT_FIELDS; f++) {
        const char *options = loongi_chat_energon_field(energon, f);
        bool found = options == NULL;
        LOONG_TRY(found ? LOONG_OK : put_field(s, f, options, row, &found));
        if (!found) {
            refuse(s, options, loongi_chat_field_names[f], row, whole_p);
            return LOONG_OK;
        }
    }
    loongi_text_append(row, "}", 1);
    return LOONG_OK;
}

loong_status_t loongi_chat_shard_next(chat_shard_t *shard, loong_text_t *row,
                                      int64_t *sample_p, bool *whole_p)
{
    chat_shard_t *s = shard;
    const struct chat_energon *energon = s->file->energon;
    bool excluded = false;
    *whole_p = true;
    do {
        find_sample(s);
        *sample_p = s->samples;
        if (s->begin == s->end) {
            return LOONG_OK;
        }
        excluded = energon != NULL && is_excluded(s);
    } while (excluded);
    LOONG_TRY(energon == NULL || loongi_chat_energon_is_crude(energon)
                  ? put_crude(s, row, whole_p)
                  : put_fields(s, row, whole_p));
    return row->status;
}
