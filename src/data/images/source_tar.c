/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures in tar files, WebDataset's convention. libarchive reads headers and
 * labels once; pictures are read at their offsets, so the file must be as it
 * is. It is loaded when the first such file is opened, since it brings eight
 * other libraries, which every start of a run would relocate. Called by
 * source.c and source_directory.c. Read source.h before. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <archive.h>
#include <archive_entry.h>

#include "json.h"
#include "source.h"

enum { BLOCK = 10240, LONGEST_LABEL = 1 << 16 };

#define ARCHIVE_LIBRARY "libarchive.so.13"

/* X(name after archive_): every function of libarchive that is called. */
#define ARCHIVE_FUNCTIONS(X)   \
    X(error_string)            \
    X(filter_bytes)            \
    X(read_new)                \
    X(read_free)               \
    X(read_data)               \
    X(read_next_header)        \
    X(read_open_filename)      \
    X(read_support_format_tar) \
    X(entry_filetype)          \
    X(entry_hardlink)          \
    X(entry_pathname)          \
    X(entry_pathname_utf8)     \
    X(entry_size)              \
    X(entry_sparse_count)

typedef struct archive_library {
#define ARCHIVE_POINTER(name_) __typeof__(&archive_##name_) name_;
    ARCHIVE_FUNCTIONS(ARCHIVE_POINTER)
#undef ARCHIVE_POINTER
} archive_library_t;

/* A tar file, and the sample whose members are being read. */
typedef struct listing {
    loong_image_source_t *source;
    loong_context_t *ctx;
    archive_library_t lib;
    struct archive *tar;
    const char *path;
    int64_t size;
    char *first;       /* the name of the sample's first member */
    size_t key_length; /* of the part that all members share */
    image_entry_t entry;
    int64_t cls, json; /* its labels; -1: none */
} listing_t;

/* The part of a member's name that its sample shares. */
static size_t key_length(const char *name)
{
    const char *base = strrchr(name, '/');
    const char *dot = strchr(base != NULL ? base : name, '.');
    return dot != NULL ? (size_t)(dot - name) : strlen(name);
}

static loong_status_t end_sample(listing_t *l)
{
    bool picture = l->entry.name != NULL;
    l->entry.label = l->cls >= 0 ? l->cls : l->json;
    LOONG_CHECK(l->ctx, picture == (l->entry.label >= 0), LOONG_ERR_FORMAT,
                "%s: sample %.*s has no %s", l->path, (int)l->key_length,
                l->first,
                picture ? "label (.cls, or .json with \"label\")"
                        : "picture (.jpg .jpeg .png .webp)");
    if (picture) {
        LOONG_TRY(loongi_image_source_add(l->source, &l->entry));
    }
    l->entry = (image_entry_t){.file = l->path, .file_size = l->size};
    l->cls = l->json = -1;
    return LOONG_OK;
}

static loong_status_t set_picture(listing_t *l, const char *name, int64_t size)
{
    char *copy = NULL;
    LOONG_CHECK(l->ctx, l->entry.name == NULL, LOONG_ERR_FORMAT,
                "%s: %s: a second picture of its sample", l->path, name);
    l->entry.offset = l->lib.filter_bytes(l->tar, -1);
    l->entry.length = size;
    LOONG_CHECK(l->ctx, size <= l->size - l->entry.offset, LOONG_ERR_FORMAT,
                "%s: ends within %s", l->path, name);
    LOONG_TRY(
        loongi_arena_printf(l->source->arena, &copy, "%s: %s", l->path, name));
    l->entry.name = copy;
    return LOONG_OK;
}

/* A number that is the text of a .cls. */
static int64_t number_of(const char *text)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool whole = end > text && end[strspn(end, " \r\n\t")] == '\0';
    return whole && errno == 0 ? number : -1;
}

/* "label" of a .json; -1 where it has none. */
static loong_status_t label_of(loong_context_t *ctx, const char *text,
                               const char *where, int64_t *label_p)
{
    loong_json_t *json = NULL;
    LOONG_TRY(loongi_json_parse(ctx, text, strlen(text), where, &json));
    const loong_json_t *label = loongi_json_get(json, "label");
    bool is_number = loongi_json_kind(label) == LOONG_JSON_INT;
    *label_p = is_number ? loongi_json_int(label) : -1;
    loongi_json_destroy(&json);
    return LOONG_OK;
}

static loong_status_t set_label(listing_t *l, const char *name, bool is_json,
                                char *text)
{
    char where[256];
    la_ssize_t size = l->lib.read_data(l->tar, text, LONGEST_LABEL);
    snprintf(where, sizeof(where), "%s: %s", l->path, name);
    LOONG_CHECK(l->ctx, size >= 0, LOONG_ERR_FORMAT, "%s: %s", where,
                l->lib.error_string(l->tar));
    text[size] = '\0';
    if (is_json) {
        return label_of(l->ctx, text, where, &l->json);
    }
    l->cls = number_of(text);
    LOONG_CHECK(l->ctx, l->cls >= 0, LOONG_ERR_FORMAT,
                "%s: is \"%.32s\", not the number of a class", where, text);
    return LOONG_OK;
}

static loong_status_t add_member(listing_t *l, const char *name, int64_t size)
{
    static const char *const cls[] = {"cls", NULL};
    static const char *const json[] = {"json", NULL};
    size_t length = key_length(name);
    if (l->first == NULL || length != l->key_length ||
        memcmp(name, l->first, length) != 0) {
        LOONG_TRY(end_sample(l));
        LOONG_TRY(loongi_arena_strdup(l->source->arena, name, &l->first));
        l->key_length = length;
    }
    const char *ending = name + length;
    bool is_json = loongi_image_has_ending(ending, json);
    if (strchr(ending, '.') != strrchr(ending, '.')) {
        return LOONG_OK; /* "0001.mask.png" is another thing */
    }
    if (loongi_image_has_ending(ending, loongi_image_endings)) {
        return set_picture(l, name, size);
    }
    if (is_json || loongi_image_has_ending(ending, cls)) {
        char *text = NULL;
        LOONG_CHECK(l->ctx, size < LONGEST_LABEL, LOONG_ERR_UNSUPPORTED,
                    "%s: %s: has %" PRId64 " bytes, %d are allowed", l->path,
                    name, size, LONGEST_LABEL - 1);
        LOONG_TRY(loongi_alloc(l->ctx, LONGEST_LABEL, "label", &text));
        loong_status_t status = set_label(l, name, is_json, text);
        loongi_free(l->ctx, text);
        return status;
    }
    return LOONG_OK;
}

/* Names in UTF-8 that the locale does not have come through the second call. */
static const char *name_of(const listing_t *l, struct archive_entry *entry)
{
    const char *name = l->lib.entry_pathname(entry);
    return name != NULL ? name : l->lib.entry_pathname_utf8(entry);
}

static loong_status_t list_members(listing_t *l)
{
    struct archive_entry *entry = NULL;
    int code = l->lib.read_support_format_tar(l->tar);
    if (code == ARCHIVE_OK) {
        code = l->lib.read_open_filename(l->tar, l->path, BLOCK);
    }
    while (code >= ARCHIVE_WARN) {
        code = l->lib.read_next_header(l->tar, &entry);
        if (code == ARCHIVE_EOF) {
            return end_sample(l);
        }
        if (code < ARCHIVE_WARN || l->lib.entry_filetype(entry) != AE_IFREG ||
            l->lib.entry_hardlink(entry) != NULL) {
            continue;
        }
        const char *name = name_of(l, entry);
        LOONG_CHECK(l->ctx, name != NULL, LOONG_ERR_FORMAT,
                    "%s: a member's name is not UTF-8", l->path);
        LOONG_CHECK(l->ctx, l->lib.entry_sparse_count(entry) == 0,
                    LOONG_ERR_UNSUPPORTED, "%s: %s: is stored with holes",
                    l->path, name);
        LOONG_TRY(add_member(l, name, l->lib.entry_size(entry)));
    }
    return LOONG_FAIL(l->ctx, LOONG_ERR_FORMAT,
                      "%s: %s; tar files are read that are not compressed",
                      l->path, l->lib.error_string(l->tar));
}

static loong_status_t load_library(loong_context_t *ctx, archive_library_t *lib)
{
    void *handle =
        dlopen(ARCHIVE_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    LOONG_CHECK(ctx, handle != NULL, LOONG_ERR_UNSUPPORTED,
                "pictures in tar files need libarchive: %s", dlerror());
#define LOAD(name_)                                                   \
    *(void **)(void *)&lib->name_ = dlsym(handle, "archive_" #name_); \
    LOONG_CHECK(ctx, lib->name_ != NULL, LOONG_ERR_UNSUPPORTED,       \
                ARCHIVE_LIBRARY " has no archive_" #name_);
    ARCHIVE_FUNCTIONS(LOAD)
#undef LOAD
    return LOONG_OK;
}

loong_status_t loongi_image_list_tar(loong_image_source_t *source,
                                     const char *path)
{
    listing_t l = {.source = source, .ctx = source->ctx, .cls = -1, .json = -1};
    struct stat info;
    char *copy = NULL;
    LOONG_CHECK(l.ctx, stat(path, &info) == 0, LOONG_ERR_IO, "%s: %s", path,
                strerror(errno));
    LOONG_TRY(loongi_arena_strdup(source->arena, path, &copy));
    l.path = copy;
    l.size = info.st_size;
    LOONG_TRY(load_library(l.ctx, &l.lib));
    l.tar = l.lib.read_new();
    LOONG_CHECK(l.ctx, l.tar != NULL, LOONG_ERR_MEMORY, "no memory to read %s",
                path);
    loong_status_t status = list_members(&l);
    l.lib.read_free(l.tar);
    return status;
}
