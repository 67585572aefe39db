/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures in tar files, WebDataset's convention. libarchive reads the headers
 * once; contents are read at their offsets, so the file must be as it is. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include <archive.h>
#include <archive_entry.h>

#include "file.h"
#include "source.h"

enum { BLOCK = 10240 };

/* The sample whose members are being read. */
typedef struct group {
    size_t key_length; /* of the first member's name */
    char *first;
    image_entry_t entry;
    const char *picture; /* its name */
} group_t;

typedef struct listing {
    loong_image_source_t *source;
    const char *path;
    int64_t size;
    group_t group;
} listing_t;

/* The part of a member's name that its sample shares. */
static size_t key_length(const char *name)
{
    const char *base = strrchr(name, '/');
    const char *dot = strchr(base != NULL ? base : name, '.');
    return dot != NULL ? (size_t)(dot - name) : strlen(name);
}

static loong_status_t end_group(listing_t *l)
{
    loong_context_t *ctx = l->source->ctx;
    image_entry_t *entry = &l->group.entry;
    bool labelled = entry->number.length > 0 || entry->text.length > 0;
    loong_status_t status = LOONG_OK;
    if ((l->group.picture != NULL) != labelled) {
        status = LOONG_FAIL(ctx, LOONG_ERR_FORMAT, "%s: sample %.*s has no %s",
                            l->path, (int)l->group.key_length, l->group.first,
                            labelled ? "picture (.jpg .jpeg .png .webp)"
                                     : "label (.cls .txt .json)");
    } else if (labelled) {
        char *name = NULL;
        entry->file = l->path;
        entry->file_size = l->size;
        entry->label = -1;
        status = loongi_arena_printf(l->source->arena, &name, "%s: %s", l->path,
                                     l->group.picture);
        if (status == LOONG_OK) {
            status = loongi_image_source_add(l->source, name, entry);
        }
    }
    memset(&l->group, 0, sizeof(l->group));
    return status;
}

static loong_status_t set_span(listing_t *l, const char *name,
                               image_span_t found, image_span_t *to)
{
    loong_context_t *ctx = l->source->ctx;
    LOONG_CHECK(ctx, to->length == 0, LOONG_ERR_FORMAT,
                "%s: %s: a second picture or label of its sample", l->path,
                name);
    LOONG_CHECK(ctx, found.length > 0, LOONG_ERR_FORMAT, "%s: %s: is empty",
                l->path, name);
    LOONG_CHECK(ctx, found.length <= l->size - found.offset, LOONG_ERR_FORMAT,
                "%s: ends within %s", l->path, name);
    *to = found;
    return LOONG_OK;
}

static loong_status_t add_member(listing_t *l, const char *name,
                                 image_span_t found)
{
    static const char *const number[] = {"cls", NULL};
    static const char *const text[] = {"txt", "json", NULL};
    group_t *group = &l->group;
    size_t length = key_length(name);
    if (group->first == NULL || length != group->key_length ||
        memcmp(name, group->first, length) != 0) {
        LOONG_TRY(end_group(l));
        LOONG_TRY(loongi_arena_strdup(l->source->arena, name, &group->first));
        group->key_length = length;
    }
    const char *ending = name + length;
    if (strchr(ending, '.') != strrchr(ending, '.')) {
        return LOONG_OK; /* "0001.mask.png" is another thing */
    }
    if (loongi_image_has_ending(ending, loongi_image_endings)) {
        char *copy = NULL;
        LOONG_TRY(set_span(l, name, found, &group->entry.picture));
        LOONG_TRY(loongi_arena_strdup(l->source->arena, name, &copy));
        group->picture = copy;
    } else if (loongi_image_has_ending(ending, number)) {
        LOONG_TRY(set_span(l, name, found, &group->entry.number));
    } else if (loongi_image_has_ending(ending, text)) {
        LOONG_TRY(set_span(l, name, found, &group->entry.text));
    }
    return LOONG_OK;
}

/* Names in UTF-8 that the locale does not have come through the second call. */
static const char *name_of(struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);
    return name != NULL ? name : archive_entry_pathname_utf8(entry);
}

static loong_status_t list_members(listing_t *l, struct archive *tar)
{
    loong_context_t *ctx = l->source->ctx;
    struct archive_entry *entry = NULL;
    int code;
    while ((code = archive_read_next_header(tar, &entry)) != ARCHIVE_EOF) {
        LOONG_CHECK(ctx, code >= ARCHIVE_WARN, LOONG_ERR_FORMAT, "%s: %s",
                    l->path, archive_error_string(tar));
        const char *name = name_of(entry);
        LOONG_CHECK(ctx, name != NULL, LOONG_ERR_FORMAT,
                    "%s: a member's name is not UTF-8", l->path);
        if (archive_entry_filetype(entry) != AE_IFREG ||
            archive_entry_hardlink(entry) != NULL) {
            continue;
        }
        LOONG_CHECK(ctx, archive_entry_sparse_count(entry) == 0,
                    LOONG_ERR_UNSUPPORTED, "%s: %s: is stored with holes",
                    l->path, name);
        /* Behind its header: the contents come next. */
        image_span_t found = {archive_filter_bytes(tar, -1),
                              archive_entry_size(entry)};
        LOONG_TRY(add_member(l, name, found));
    }
    return end_group(l);
}

/* What undoes a compression, or NULL. */
static const char *unpacker(const uint8_t *head, size_t length)
{
    static const struct {
        const char *mark;
        const char *program;
    } packed[] = {{"\x1f\x8b", "gunzip"},
                  {"BZh", "bunzip2"},
                  {"\xfd" "7zXZ", "unxz"},
                  {"\x28\xb5\x2f\xfd", "unzstd"},
                  {"\x04\x22\x4d\x18", "unlz4"}};
    for (int64_t i = 0; i < LOONG_COUNT_OF(packed); i++) {
        size_t mark = strlen(packed[i].mark);
        if (length >= mark && memcmp(head, packed[i].mark, mark) == 0) {
            return packed[i].program;
        }
    }
    return NULL;
}

static loong_status_t check_unpacked(loong_context_t *ctx, const char *path)
{
    uint8_t head[8];
    FILE *file = fopen(path, "rb");
    LOONG_CHECK(ctx, file != NULL, LOONG_ERR_IO, "%s: %s", path,
                strerror(errno));
    const char *program = unpacker(head, fread(head, 1, sizeof(head), file));
    fclose(file);
    LOONG_CHECK(ctx, program == NULL, LOONG_ERR_UNSUPPORTED,
                "%s: is compressed, its members cannot be read at random; "
                "unpack it with %s", path, program);
    return LOONG_OK;
}

loong_status_t loongi_image_list_tar(loong_image_source_t *source,
                                     const char *path)
{
    listing_t listing = {source, NULL, 0, {0}};
    struct stat info;
    char *copy = NULL;
    loong_status_t status;
    LOONG_TRY(check_unpacked(source->ctx, path));
    LOONG_CHECK(source->ctx, stat(path, &info) == 0, LOONG_ERR_IO, "%s: %s",
                path, strerror(errno));
    LOONG_TRY(loongi_arena_strdup(source->arena, path, &copy));
    listing.path = copy;
    listing.size = info.st_size;
    struct archive *tar = archive_read_new();
    LOONG_CHECK(source->ctx, tar != NULL, LOONG_ERR_MEMORY,
                "no memory to read %s", path);
    if (archive_read_support_format_tar(tar) != ARCHIVE_OK ||
        archive_read_open_filename(tar, path, BLOCK) != ARCHIVE_OK) {
        status = LOONG_FAIL(source->ctx, LOONG_ERR_FORMAT, "%s: %s", path,
                            archive_error_string(tar));
    } else {
        status = list_members(&listing, tar);
    }
    archive_read_free(tar);
    return status;
}
