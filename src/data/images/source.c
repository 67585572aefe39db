/* SPDX-License-Identifier: Apache-2.0
 *
 * A source of labelled pictures: opening it, and reading a sample. Called by
 * source_class.c. Read source.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "source.h"
#include "tar.h"

enum { HEAD = 4096, MORE = 8 };

loong_status_t loongi_image_source_add(loong_image_source_t *source,
                                       const image_entry_t *entry)
{
    LOONG_TRY(loongi_grow(source->ctx, &source->entries, &source->capacity,
                          source->count + 1, sizeof(*source->entries),
                          "samples of an image source"));
    source->entries[source->count++] = *entry;
    return LOONG_OK;
}

static loong_status_t list(loong_image_source_t *source, const char *path)
{
    bool is_directory = loongi_dir_exists(path);
    LOONG_CHECK(source->ctx, is_directory || loongi_file_exists(path),
                LOONG_ERR_NOT_FOUND, "%s: there is no such file or directory",
                path);
    LOONG_TRY(is_directory ? loongi_image_list_directory(source, path)
                           : loongi_image_list_tar(source, path));
    LOONG_CHECK(source->ctx, source->count > 0, LOONG_ERR_FORMAT,
                "%s: has no samples; a directory for each class is read, or "
                "tar files",
                path);
    return LOONG_OK;
}

loong_status_t loong_image_source_create(loong_context_t *ctx, const char *path,
                                         loong_image_source_t **source_p)
{
    loong_image_source_t *source = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*source), "image source", &source));
    source->ctx = ctx;
    loong_status_t status =
        loongi_arena_create(ctx, "names of an image source", &source->arena);
    if (status == LOONG_OK) {
        status = list(source, path);
    }
    if (status != LOONG_OK) {
        loong_image_source_destroy(&source);
        return status;
    }
    *source_p = source;
    return LOONG_OK;
}

void loong_image_source_destroy(loong_image_source_t **source)
{
    loong_image_source_t *s = *source;
    if (s != NULL) {
        loongi_arena_destroy(&s->arena);
        loongi_free(s->ctx, s->entries);
        loongi_free(s->ctx, s);
        *source = NULL;
    }
}

int64_t loong_image_source_samples(const loong_image_source_t *source)
{
    return source->count;
}

static loong_status_t check_file(loong_context_t *ctx,
                                 const image_entry_t *entry, int fd)
{
    struct stat info;
    LOONG_CHECK(ctx, fd >= 0 && fstat(fd, &info) == 0, LOONG_ERR_IO, "%s: %s",
                entry->file, strerror(errno));
    LOONG_CHECK(ctx, S_ISREG(info.st_mode), LOONG_ERR_FORMAT,
                "%s: is no regular file", entry->file);
    LOONG_CHECK(ctx, entry->file_size == info.st_size, LOONG_ERR_MISMATCH,
                "%s: has %" PRId64 " bytes, and %" PRId64 " when it was opened",
                entry->file, (int64_t)info.st_size, entry->file_size);
    return LOONG_OK;
}

/* The whole picture, or as much of its head as tells its sizes. */
static loong_status_t take(loong_context_t *ctx, const image_entry_t *entry,
                           int fd, bool whole, loong_image_sample_t *sample)
{
    loong_status_t status;
    size_t length = (size_t)entry->length;
    LOONG_TRY(check_file(ctx, entry, fd));
    size_t need = whole ? length : HEAD;
    for (;;) {
        size_t have = sample->length;
        sample->length = LOONG_MIN(need, length);
        LOONG_TRY(loongi_realloc(ctx, LOONG_MAX(sample->length, 1),
                                 "file of a picture", &sample->bytes));
        LOONG_TRY(loongi_file_pread(ctx, fd, entry->file, sample->bytes + have,
                                    sample->length - have,
                                    (off_t)(entry->offset + (int64_t)have)));
        status = loong_image_get_info(ctx, entry->name, sample->bytes,
                                      sample->length, &sample->info);
        if (status != LOONG_ERR_FORMAT || sample->length == length) {
            return status;
        }
        loong_context_clear_error(ctx);
        need *= MORE;
    }
}

static loong_status_t read_entry(loong_context_t *ctx,
                                 const image_entry_t *entry, bool whole,
                                 loong_image_sample_t *sample)
{
    loong_image_sample_t found = {.name = entry->name, .label = entry->label};
    /* A pipe without a writer would be waited for. */
    int fd = open(entry->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    loong_status_t status = take(ctx, entry, fd, whole, &found);
    if (fd >= 0) {
        close(fd);
    }
    if (status != LOONG_OK || !whole) {
        loongi_free(ctx, found.bytes);
        found.bytes = NULL;
        found.length = 0;
    }
    LOONG_TRY(status);
    *sample = found;
    return LOONG_OK;
}

static loong_status_t read_file(loong_context_t *ctx, const char *path,
                                bool whole, loong_image_sample_t *sample)
{
    file_part_t part;
    LOONG_TRY(loongi_file_part(ctx, path, &part));
    const image_entry_t entry = {.name = path,
                                 .file = part.file,
                                 .file_size = part.file_size,
                                 .offset = part.offset,
                                 .length = part.length};
    return read_entry(ctx, &entry, whole, sample);
}

loong_status_t loong_image_get_file_info(loong_context_t *ctx, const char *path,
                                         loong_image_info_t *info)
{
    loong_image_sample_t sample;
    LOONG_TRY(read_file(ctx, path, false, &sample));
    *info = sample.info;
    return LOONG_OK;
}

loong_status_t loong_image_load(loong_context_t *ctx, const char *path,
                                loong_image_sample_t *sample)
{
    return read_file(ctx, path, true, sample);
}

static loong_status_t read_sample(loong_context_t *ctx,
                                  const loong_image_source_t *source, int64_t i,
                                  bool whole, loong_image_sample_t *sample)
{
    LOONG_CHECK(ctx, i >= 0 && i < source->count, LOONG_ERR_ARG,
                "there is no sample %" PRId64 " of %" PRId64, i, source->count);
    return read_entry(ctx, &source->entries[i], whole, sample);
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
    memset(sample, 0, sizeof(*sample));
}
