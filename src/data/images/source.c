/* SPDX-License-Identifier: Apache-2.0
 *
 * A source of labelled pictures: opening it, and reading a sample. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec.h"
#include "file.h"
#include "source.h"

enum { HEAD = 4096, LONGEST_NUMBER = 32, LONGEST_TEXT = 1 << 20 };

loong_status_t loongi_image_source_add(loong_image_source_t *source,
                                       const char *name,
                                       const image_entry_t *entry)
{
    LOONG_TRY(loongi_grow(source->ctx, &source->entries, &source->capacity,
                          source->count + 1, sizeof(*source->entries),
                          "samples of an image source"));
    source->entries[source->count] = *entry;
    source->entries[source->count++].name = name;
    return LOONG_OK;
}

loong_status_t loongi_image_source_add_class(loong_image_source_t *source,
                                             const char *name)
{
    char *copy = NULL;
    LOONG_TRY(loongi_arena_strdup(source->arena, name, &copy));
    LOONG_TRY(loongi_grow(source->ctx, &source->classes,
                          &source->classes_capacity, source->num_classes + 1,
                          sizeof(*source->classes), "names of classes"));
    source->classes[source->num_classes++] = copy;
    return LOONG_OK;
}

static loong_status_t read_classes(loong_image_source_t *source,
                                   const char *path)
{
    char *text = NULL, *rest = NULL;
    size_t length = 0;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_file_read(source->ctx, path, &text, &length));
    for (char *line = strtok_r(text, "\r\n", &rest);
         line != NULL && status == LOONG_OK;
         line = strtok_r(NULL, "\r\n", &rest)) {
        status = loongi_image_source_add_class(source, line);
    }
    loongi_free(source->ctx, text);
    LOONG_TRY(status);
    LOONG_CHECK(source->ctx, source->num_classes > 0, LOONG_ERR_FORMAT,
                "%s: names no class", path);
    return LOONG_OK;
}

static const char *const tars[] = {"tar", "tgz", "gz",  "xz",
                                       "bz2", "zst", NULL};

/* The tar files of a directory; *count_p is how many there are. */
static loong_status_t list_shards(loong_image_source_t *source,
                                  const char *path, int64_t *count_p)
{
    image_names_t names = {0};
    loong_status_t status = loongi_image_names(source->ctx, source->arena, path,
                                               &names);
    for (int64_t i = 0; status == LOONG_OK && i < names.count; i++) {
        char *file = NULL;
        if (!loongi_image_has_ending(names.at[i], tars)) {
            continue;
        }
        LOONG_TRY_GOTO(loongi_arena_printf(source->arena, &file, "%s/%s", path,
                                           names.at[i]),
                       status, out);
        if (!loongi_dir_exists(file)) {
            status = loongi_image_list_tar(source, file);
            ++*count_p;
        }
    }
out:
    loongi_free(source->ctx, names.at);
    return status;
}

static loong_status_t list(loong_image_source_t *source, const char *path)
{
    int64_t shards = 0;
    if (loongi_dir_exists(path)) {
        LOONG_TRY(list_shards(source, path, &shards));
        if (shards == 0) {
            LOONG_TRY(loongi_image_list_folder(source, path));
        }
    } else {
        LOONG_CHECK(source->ctx, loongi_file_exists(path), LOONG_ERR_NOT_FOUND,
                    "%s: there is no such file or directory", path);
        LOONG_TRY(loongi_image_list_tar(source, path));
    }
    LOONG_CHECK(source->ctx, source->count > 0, LOONG_ERR_FORMAT,
                "%s: has no samples; a directory for each class is read, or "
                "tar files", path);
    return LOONG_OK;
}

loong_status_t loong_image_source_create(loong_context_t *ctx, const char *path,
                                         const char *classes,
                                         loong_image_source_t **source_p)
{
    loong_image_source_t *source = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*source), "image source", &source));
    source->ctx = ctx;
    LOONG_TRY_GOTO(loongi_arena_create(ctx, "names of an image source",
                                       &source->arena),
                   status, err_source);
    if (classes != NULL) {
        LOONG_TRY_GOTO(read_classes(source, classes), status, err_source);
    }
    LOONG_TRY_GOTO(list(source, path), status, err_source);
    *source_p = source;
    return LOONG_OK;
err_source:
    loong_image_source_destroy(&source);
    return status;
}

void loong_image_source_destroy(loong_image_source_t **source)
{
    loong_image_source_t *s = *source;
    if (s != NULL) {
        loongi_arena_destroy(&s->arena);
        loongi_free(s->ctx, s->entries);
        loongi_free(s->ctx, s->classes);
        loongi_free(s->ctx, s);
        *source = NULL;
    }
}

int64_t loong_image_source_samples(const loong_image_source_t *source)
{
    return source->count;
}

int64_t loong_image_source_classes(const loong_image_source_t *source)
{
    return source->num_classes;
}

const char *loong_image_source_class_name(const loong_image_source_t *source,
                                          int64_t label)
{
    bool known = label >= 0 && label < source->num_classes;
    return known ? source->classes[label] : NULL;
}

/* An open sample. */
typedef struct reader {
    loong_context_t *ctx;
    const loong_image_source_t *source;
    const image_entry_t *entry;
    int fd;
    int64_t length; /* of the picture */
} reader_t;

static loong_status_t begin(reader_t *r)
{
    struct stat info;
    r->fd = open(r->entry->file, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(r->ctx, r->fd >= 0, LOONG_ERR_IO, "%s: %s", r->entry->file,
                strerror(errno));
    LOONG_CHECK(r->ctx, fstat(r->fd, &info) == 0, LOONG_ERR_IO, "%s: %s",
                r->entry->file, strerror(errno));
    LOONG_CHECK(r->ctx,
                r->entry->file_size < 0 || r->entry->file_size == info.st_size,
                LOONG_ERR_MISMATCH,
                "%s: has %" PRId64 " bytes, and %" PRId64 " when it was opened",
                r->entry->file, (int64_t)info.st_size, r->entry->file_size);
    r->length = r->entry->picture.length < 0 ? (int64_t)info.st_size
                                             : r->entry->picture.length;
    return LOONG_OK;
}

static loong_status_t take(const reader_t *r, int64_t offset, int64_t length,
                           void *to)
{
    return loongi_file_pread(r->ctx, r->fd, r->entry->file, to, (size_t)length,
                             (off_t)offset);
}

static loong_status_t take_number(const reader_t *r, int64_t *label_p)
{
    image_span_t span = r->entry->number;
    char digits[LONGEST_NUMBER + 1] = "", *end = digits;
    if (span.length == 0) {
        *label_p = r->entry->label;
        return LOONG_OK;
    }
    if (span.length <= LONGEST_NUMBER) {
        LOONG_TRY(take(r, span.offset, span.length, digits));
    }
    errno = 0;
    long long label = strtoll(digits, &end, 10);
    bool whole = end > digits && end[strspn(end, " \r\n\t")] == '\0';
    LOONG_CHECK(r->ctx, whole && errno == 0 && label >= 0, LOONG_ERR_FORMAT,
                "%s: its .cls is \"%s\", not the number of a class",
                r->entry->name, digits);
    LOONG_CHECK(r->ctx,
                r->source->num_classes == 0 || label < r->source->num_classes,
                LOONG_ERR_FORMAT,
                "%s: its class is %lld, and there are %" PRId64,
                r->entry->name, label, r->source->num_classes);
    *label_p = label;
    return LOONG_OK;
}

static loong_status_t take_text(const reader_t *r, char **text_p)
{
    image_span_t span = r->entry->text;
    if (span.length == 0) {
        return LOONG_OK;
    }
    LOONG_CHECK(r->ctx, span.length <= LONGEST_TEXT, LOONG_ERR_UNSUPPORTED,
                "%s: its text has %" PRId64 " bytes; %d are allowed",
                r->entry->name, span.length, LONGEST_TEXT);
    LOONG_TRY(loongi_alloc(r->ctx, (size_t)span.length + 1,
                           "text of a picture", text_p));
    return take(r, span.offset, span.length, *text_p);
}

/* The picture's file, or as much of its head as tells its sizes. */
static loong_status_t take_picture(const reader_t *r, bool whole,
                                   loong_image_sample_t *sample)
{
    size_t length = (size_t)r->length;
    size_t have = 0, need = whole ? length : HEAD;
    do {
        need = LOONG_MIN(need, length);
        LOONG_TRY(loongi_realloc(r->ctx, need, "file of a picture",
                                 &sample->bytes));
        LOONG_TRY(take(r, r->entry->picture.offset + (int64_t)have,
                       (int64_t)(need - have), sample->bytes + have));
        have = need;
        need = loongi_jpeg_need(sample->bytes, have);
    } while (need > have && have < length);
    sample->length = have;
    return loong_image_get_info(r->ctx, r->entry->name, sample->bytes, have,
                                &sample->info);
}

static loong_status_t read_sample(loong_context_t *ctx,
                                  const loong_image_source_t *source, int64_t i,
                                  bool whole, loong_image_sample_t *sample)
{
    loong_status_t status = LOONG_OK;
    LOONG_CHECK(ctx, i >= 0 && i < source->count, LOONG_ERR_ARG,
                "there is no sample %" PRId64 " of %" PRId64, i, source->count);
    reader_t reader = {ctx, source, &source->entries[i], -1, 0};
    loong_image_sample_t found = {.name = reader.entry->name};
    LOONG_TRY_GOTO(begin(&reader), status, out);
    LOONG_TRY_GOTO(take_number(&reader, &found.label), status, out);
    LOONG_TRY_GOTO(take_text(&reader, &found.text), status, out);
    LOONG_TRY_GOTO(take_picture(&reader, whole, &found), status, out);
    if (!whole) {
        loongi_free(ctx, found.bytes);
        found.bytes = NULL;
        found.length = 0;
    }
out:
    if (reader.fd >= 0) {
        close(reader.fd);
    }
    if (status != LOONG_OK) {
        loong_image_sample_free(ctx, &found);
        return status;
    }
    *sample = found;
    return LOONG_OK;
}

loong_status_t loong_image_source_peek(loong_context_t *ctx,
                                       const loong_image_source_t *source,
                                       int64_t i, loong_image_sample_t *sample)
{
    return read_sample(ctx, source, i, false, sample);
}

loong_status_t loong_image_source_read(loong_context_t *ctx,
                                       const loong_image_source_t *source,
                                       int64_t i, loong_image_sample_t *sample)
{
    return read_sample(ctx, source, i, true, sample);
}

void loong_image_sample_free(loong_context_t *ctx, loong_image_sample_t *sample)
{
    loongi_free(ctx, sample->bytes);
    loongi_free(ctx, sample->text);
    memset(sample, 0, sizeof(*sample));
}
