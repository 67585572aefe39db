/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as tar shards. Called by tools/loong_data_webdataset.c. Read chat.h
 * before. */
#include "loong/webdataset.h"

#include <ctype.h>
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
#include "webdataset_meta.h"

enum {
    BLOCK = 512,
    END_BLOCKS = 2,
    COPY_SIZE = 1 << 20,
    MAX_ENDING = 16,
    DEFAULT_COUNT = 10000
};
#define DEFAULT_SIZE 3000000000

typedef struct writer {
    loong_context_t *ctx;
    const loong_webdataset_params_t *params;
    loong_webdataset_info_t *info;
    const char *record_path;
    int64_t line;
    /* Of the record: those that it names, and how many were written. */
    int64_t named, total;
    const char *number, *end; /* the text from its next number on */
    loong_text_t json, media; /* media: paths, each ends with 0 */
    /* Of the shard. */
    FILE *tar;
    loong_text_t name, index;
    int64_t at, count;
    loong_text_t counts; /* samples of each shard, int64_t */
    char *buffer;
} writer_t;

/* ---- tar files ----------------------------------------------------------- */

static loong_status_t put(writer_t *w, const void *bytes, size_t length)
{
    LOONG_CHECK(w->ctx, fwrite(bytes, 1, length, w->tar) == length,
                LOONG_ERR_IO, "writing '%s': %s", loongi_text_get(&w->name),
                strerror(errno));
    w->at += (int64_t)length;
    return LOONG_OK;
}

static loong_status_t put_zeros(writer_t *w, size_t length)
{
    static const char zeros[END_BLOCKS * BLOCK];
    return put(w, zeros, length);
}

/* A ustar header: nobody's, of the year 1970. */
static loong_status_t put_header(writer_t *w, const char *name, int64_t size)
{
    char header[BLOCK] = {0};
    unsigned sum = 0;
    LOONG_CHECK(w->ctx, size < (INT64_C(1) << 33), LOONG_ERR_UNSUPPORTED,
                "%s: has %" PRId64 " bytes, less than 8 GiB are allowed", name,
                size);
    snprintf(header, 100, "%s", name);
    snprintf(header + 100, 8, "%07o", 0644U);
    snprintf(header + 108, 8, "%07o", 0U);
    snprintf(header + 116, 8, "%07o", 0U);
    snprintf(header + 124, 12, "%011" PRIo64, size);
    snprintf(header + 136, 12, "%011o", 0U);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    for (int i = 0; i < BLOCK; i++) {
        sum += (unsigned char)header[i];
    }
    snprintf(header + 148, 8, "%06o", sum);
    return put(w, header, BLOCK);
}

static size_t padding(int64_t size)
{
    return (size_t)((BLOCK - size % BLOCK) % BLOCK);
}

static loong_status_t begin_shard(writer_t *w)
{
    w->name.length = w->index.length = 0;
    w->at = w->count = 0;
    loongi_text_printf(&w->name, "%s/shard-%06" PRId64 ".tar", w->params->out,
                       w->info->shards++);
    LOONG_TRY(w->name.status);
    w->tar = fopen(w->name.data, "wbe");
    LOONG_CHECK(w->ctx, w->tar != NULL, LOONG_ERR_IO, "cannot write '%s': %s",
                w->name.data, strerror(errno));
    return LOONG_OK;
}

/* Where each sample begins, and the end, as 64-bit numbers: megatron-energon
 * reads a sample at its place. */
static loong_status_t end_shard(writer_t *w)
{
    loongi_text_append(&w->index, &w->at, sizeof(w->at));
    loongi_text_append(&w->counts, &w->count, sizeof(w->count));
    LOONG_TRY(put_zeros(w, END_BLOCKS * BLOCK));
    int code = fclose(w->tar);
    w->tar = NULL;
    LOONG_CHECK(w->ctx, code == 0, LOONG_ERR_IO, "writing '%s': %s",
                w->name.data, strerror(errno));
    w->info->bytes += w->at;
    loongi_text_printf(&w->name, ".idx");
    LOONG_TRY(w->name.status);
    LOONG_TRY(w->index.status);
    return loongi_file_write(w->ctx, w->name.data, w->index.data,
                             w->index.length);
}

/* ---- records ------------------------------------------------------------- */

/* The name of the record's next member; of one alone "000000017.jpg". */
static loong_status_t name_member(writer_t *w, const char *path,
                                  loong_text_t *name)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash != NULL ? slash : path, '.');
    char ending[MAX_ENDING] = {0};
    LOONG_CHECK(w->ctx,
                dot != NULL && dot[1] != '\0' && strlen(dot) < MAX_ENDING,
                LOONG_ERR_UNSUPPORTED,
                "%s:%" PRId64 ": '%s' has no ending that says what it is",
                w->record_path, w->line, path);
    for (size_t i = 0; dot[1 + i] != '\0'; i++) {
        ending[i] = (char)tolower((unsigned char)dot[1 + i]);
    }
    loongi_text_printf(name, "%09" PRId64, w->info->samples);
    if (w->total > 1) {
        loongi_text_printf(name, ".%02" PRId64, w->named);
    }
    loongi_text_printf(name, ".%s", ending);
    w->named++;
    return name->status;
}

static bool is_one_of(const char *key, const char *const *keys)
{
    while (*keys != NULL && strcmp(key, *keys) != 0) {
        keys++;
    }
    return *keys != NULL;
}

/* As loongi_chat_take_images and parts of contents find them. */
static const char *const of_records[] = {"image", "images", "video", "videos",
                                         NULL};
static const char *const of_parts[] = {
    "image", "image_url", "video", "video_url", "url", "path", NULL};

/* A number stays as it is written: 64 bits may not have it. Numbers are visited
 * in the order of the text, where what begins as one, outside of strings, is
 * one. */
static void put_number(writer_t *w)
{
    const char *at = w->number;
    bool quoted = false;
    while (at < w->end && (quoted || strchr("-0123456789", *at) == NULL)) {
        quoted = quoted != (*at == '"');
        at += *at == '\\' ? 2 : 1;
    }
    const char *begin = at;
    while (at < w->end && strchr("+-.0123456789Ee", *at) != NULL) {
        at++;
    }
    loongi_text_append(&w->json, begin, (size_t)(at - begin));
    w->number = at;
}

static loong_status_t put_scalar(writer_t *w, const loong_json_t *value)
{
    loong_json_kind_t kind = loongi_json_kind(value);
    if (kind == LOONG_JSON_INT || kind == LOONG_JSON_REAL) {
        put_number(w);
    } else {
        loongi_text_json(&w->json, value);
    }
    return w->json.status;
}

static loong_status_t put_file(writer_t *w, const loong_json_t *path);
static loong_status_t put_value(writer_t *w, const loong_json_t *value);

static loong_status_t put_object(writer_t *w, const loong_json_t *object,
                                 const char *const *media)
{
    loongi_text_append(&w->json, "{", 1);
    const loong_json_member_t *it = loongi_json_first(object);
    for (bool first = true; it != NULL; first = false) {
        const char *key = loongi_json_member_key(it);
        const loong_json_t *value = loongi_json_member_value(it);
        loongi_text_append(&w->json, ",", !first);
        loongi_text_json_string(&w->json, key);
        loongi_text_append(&w->json, ":", 1);
        LOONG_TRY(media != NULL && is_one_of(key, media) ? put_file(w, value)
                                                         : put_value(w, value));
        it = loongi_json_next(object, it);
    }
    loongi_text_append(&w->json, "}", 1);
    return w->json.status;
}

static loong_status_t put_array(writer_t *w, const loong_json_t *array,
                                loong_status_t (*each)(writer_t *w,
                                                       const loong_json_t *))
{
    loongi_text_append(&w->json, "[", 1);
    for (int64_t i = 0; i < loongi_json_count(array); i++) {
        loongi_text_append(&w->json, ",", i > 0);
        LOONG_TRY(each(w, loongi_json_at(array, i)));
    }
    loongi_text_append(&w->json, "]", 1);
    return w->json.status;
}

static loong_status_t put_file(writer_t *w, const loong_json_t *path)
{
    static const char scheme[] = "file://";
    const char *name = loongi_json_string(path);
    const char *slash = strrchr(w->record_path, '/');
    loong_text_t member = loongi_text_begin(w->ctx);
    if (loongi_json_kind(path) == LOONG_JSON_ARRAY) {
        return put_array(w, path, put_file);
    }
    if (loongi_json_kind(path) == LOONG_JSON_OBJECT) {
        return put_object(w, path, of_parts);
    }
    if (loongi_json_kind(path) != LOONG_JSON_STRING) {
        return put_scalar(w, path);
    }
    name +=
        strncmp(name, scheme, sizeof(scheme) - 1) == 0 ? sizeof(scheme) - 1 : 0;
    if (name[0] != '/' && w->params->image_root != NULL) {
        loongi_text_printf(&w->media, "%s/", w->params->image_root);
    } else if (name[0] != '/' && slash != NULL) {
        loongi_text_append(&w->media, w->record_path,
                           (size_t)(slash + 1 - w->record_path));
    }
    loongi_text_append(&w->media, name, strlen(name) + 1);
    loong_status_t status = name_member(w, name, &member);
    loongi_text_json_string(&w->json, loongi_text_get(&member));
    loongi_text_free(&member);
    LOONG_TRY(status);
    LOONG_TRY(w->media.status);
    return w->json.status;
}

/* Parts of a content say by their type that they are pictures or videos. */
static loong_status_t put_value(writer_t *w, const loong_json_t *value)
{
    const char *type = loongi_json_string(loongi_json_get(value, "type"));
    bool part =
        strncmp(type, "image", 5) == 0 || strncmp(type, "video", 5) == 0;
    switch (loongi_json_kind(value)) {
    case LOONG_JSON_OBJECT:
        return put_object(w, value, part ? of_parts : NULL);
    case LOONG_JSON_ARRAY:
        return put_array(w, value, put_value);
    default:
        return put_scalar(w, value);
    }
}

/* Twice: the first time counts. */
static loong_status_t rewrite(writer_t *w, const loong_json_t *json,
                              const chat_record_t *record)
{
    w->total = 0;
    for (int pass = 0; pass < 2; pass++) {
        w->total = w->named;
        w->named = 0;
        w->json.length = w->media.length = 0;
        w->number = record->bytes;
        w->end = record->bytes + record->length;
        LOONG_TRY(put_object(w, json, of_records));
    }
    return LOONG_OK;
}

static loong_status_t copy_bytes(writer_t *w, const file_part_t *part, int fd)
{
    for (int64_t done = 0; done < part->length;) {
        int64_t length = LOONG_MIN(part->length - done, COPY_SIZE);
        LOONG_TRY(loongi_file_pread(w->ctx, fd, part->file, w->buffer,
                                    (size_t)length,
                                    (off_t)(part->offset + done)));
        LOONG_TRY(put(w, w->buffer, (size_t)length));
        done += length;
    }
    return put_zeros(w, padding(part->length));
}

static loong_status_t copy_file(writer_t *w, const char *path)
{
    file_part_t part;
    loong_text_t name = loongi_text_begin(w->ctx);
    loong_status_t status = loongi_file_part(w->ctx, path, &part);
    LOONG_CHECK(w->ctx, status == LOONG_OK, status,
                "%s:%" PRId64 ": wants '%s'", w->record_path, w->line, path);
    int fd = open(part.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    LOONG_CHECK(w->ctx, fd >= 0, LOONG_ERR_IO, "%s: %s", path, strerror(errno));
    status = name_member(w, path, &name);
    if (status == LOONG_OK) {
        status = put_header(w, name.data, part.length);
    }
    if (status == LOONG_OK) {
        status = copy_bytes(w, &part, fd);
    }
    close(fd);
    loongi_text_free(&name);
    w->info->files++;
    return status;
}

static loong_status_t write_sample(writer_t *w)
{
    char name[32];
    bool full =
        w->count >= w->params->max_count || w->at >= w->params->max_size;
    if (w->tar != NULL && full) {
        LOONG_TRY(end_shard(w));
    }
    LOONG_TRY(w->tar == NULL ? begin_shard(w) : LOONG_OK);
    loongi_text_append(&w->index, &w->at, sizeof(w->at));
    snprintf(name, sizeof(name), "%09" PRId64 ".json", w->info->samples);
    LOONG_TRY(put_header(w, name, (int64_t)w->json.length));
    LOONG_TRY(put(w, w->json.data, w->json.length));
    LOONG_TRY(put_zeros(w, padding((int64_t)w->json.length)));
    const char *path = loongi_text_get(&w->media);
    const char *end = path + w->media.length;
    for (w->named = 0; path < end; path += strlen(path) + 1) {
        LOONG_TRY(copy_file(w, path));
    }
    w->count++;
    w->info->samples++;
    return LOONG_OK;
}

static loong_status_t write_record(writer_t *w, const chat_record_t *record)
{
    loong_json_t *json = NULL;
    char where[PATH_MAX];
    w->line = record->line;
    snprintf(where, sizeof(where), "%s:%" PRId64, w->record_path, w->line);
    LOONG_CHECK(w->ctx, !record->broken, LOONG_ERR_FORMAT, "%s: %.*s", where,
                (int)record->length, record->bytes);
    LOONG_CHECK(w->ctx, !record->plain, LOONG_ERR_UNSUPPORTED,
                "%s: is a line of text, records of JSON are written", where);
    LOONG_TRY(
        loongi_json_parse(w->ctx, record->bytes, record->length, where, &json));
    loong_status_t status =
        loongi_json_kind(json) == LOONG_JSON_OBJECT
            ? rewrite(w, json, record)
            : LOONG_FAIL(w->ctx, LOONG_ERR_FORMAT,
                         "%s: the record is %s, must be an object", where,
                         loongi_json_kind_text(json));
    loongi_json_destroy(&json);
    LOONG_TRY(status);
    return write_sample(w);
}

static loong_status_t write_file(writer_t *w, const chat_file_t *file)
{
    chat_reader_t *reader = NULL;
    chat_record_t record;
    const char *kind = loongi_chat_kind(file->path);
    LOONG_CHECK(w->ctx, strcmp(kind, ".tar") != 0, LOONG_ERR_UNSUPPORTED,
                "%s: is a shard already", file->path);
    w->record_path = file->path;
    LOONG_TRY(loongi_chat_reader_create(w->ctx, file, &reader));
    loong_status_t status = loongi_chat_reader_next(reader, &record);
    while (status == LOONG_OK && record.bytes != NULL) {
        status = write_record(w, &record);
        if (status == LOONG_OK) {
            status = loongi_chat_reader_next(reader, &record);
        }
    }
    loongi_chat_reader_destroy(&reader);
    return status;
}

/* ---- all of it ----------------------------------------------------------- */

static loong_status_t make_out(writer_t *w)
{
    loong_text_t path = loongi_text_begin(w->ctx);
    const char *out = w->params->out;
    LOONG_CHECK(w->ctx, rmdir(out) == 0 || errno == ENOENT, LOONG_ERR_ARG,
                "'%s': a directory that is absent or empty is wanted (%s)", out,
                strerror(errno));
    loongi_text_printf(&path, "%s/.nv-meta", out);
    loong_status_t status = path.status;
    if (status == LOONG_OK) {
        status = loongi_dir_make(w->ctx, path.data);
    }
    loongi_text_free(&path);
    return status;
}

static loong_status_t write_set(writer_t *w, const chat_files_t *files)
{
    LOONG_TRY(loongi_alloc(w->ctx, COPY_SIZE, "room to copy", &w->buffer));
    for (int64_t i = 0; i < files->count; i++) {
        LOONG_TRY(write_file(w, &files->file[i]));
    }
    LOONG_CHECK(w->ctx, w->tar != NULL, LOONG_ERR_FORMAT,
                "%s: there are no records", w->params->paths[0]);
    LOONG_TRY(end_shard(w));
    return loongi_webdataset_put_meta(
        w->ctx, w->params, w->info,
        (const int64_t *)(const void *)w->counts.data);
}

/* A set that is not whole is taken away. */
static loong_status_t write_all(writer_t *w, chat_files_t *files)
{
    const loong_webdataset_params_t *p = w->params;
    LOONG_TRY(loongi_webdataset_check_split(w->ctx, p->split));
    for (int64_t i = 0; i < p->num_paths; i++) {
        LOONG_TRY(loongi_chat_list(files, p->paths[i], "train"));
    }
    LOONG_TRY(make_out(w));
    loong_status_t status = write_set(w, files);
    if (w->tar != NULL) {
        fclose(w->tar);
    }
    if (status != LOONG_OK && loongi_dir_remove(w->ctx, p->out) != LOONG_OK) {
        loongi_log(w->ctx, LOONG_LOG_WARN, "'%s' holds a part of a set",
                   p->out);
    }
    return status;
}

loong_status_t loong_webdataset_write(loong_context_t *ctx,
                                      const loong_webdataset_params_t *params,
                                      loong_webdataset_info_t *info)
{
    loong_webdataset_params_t p = *params;
    p.max_count = p.max_count > 0 ? p.max_count : DEFAULT_COUNT;
    p.max_size = p.max_size > 0 ? p.max_size : DEFAULT_SIZE;
    p.split = p.split != NULL ? p.split : "train=1";
    writer_t w = {.ctx = ctx,
                  .params = &p,
                  .info = info,
                  .json = loongi_text_begin(ctx),
                  .media = loongi_text_begin(ctx),
                  .name = loongi_text_begin(ctx),
                  .index = loongi_text_begin(ctx),
                  .counts = loongi_text_begin(ctx)};
    chat_files_t files = {.ctx = ctx};
    *info = (loong_webdataset_info_t){0};
    loong_status_t status = write_all(&w, &files);
    loongi_chat_files_free(&files);
    loongi_text_free(&w.json);
    loongi_text_free(&w.media);
    loongi_text_free(&w.name);
    loongi_text_free(&w.index);
    loongi_text_free(&w.counts);
    loongi_free(ctx, w.buffer);
    return status;
}
