/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of tar files. libarchive reads their headers; bytes are read at their
 * offsets, so the file must be as it is. It is loaded when the first such file
 * is opened, since it brings eight other libraries, which every start of a run
 * would relocate. Called by source_tar.c, file_part.c and sources of
 * conversations. */
#include "tar.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <archive.h>
#include <archive_entry.h>

enum { BLOCK = 10240 };

#define ARCHIVE_LIBRARY "libarchive.so.13"

/* X(name after archive_): every function of libarchive that is called. */
#define ARCHIVE_FUNCTIONS(X)   \
    X(error_string)            \
    X(filter_bytes)            \
    X(read_new)                \
    X(read_free)               \
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

typedef struct listing {
    loong_context_t *ctx;
    archive_library_t lib;
    struct archive *tar;
    const char *path;
    int64_t size;
    tar_visit_t visit;
    void *user;
} listing_t;

size_t loongi_tar_key(const char *name)
{
    const char *base = strrchr(name, '/');
    const char *dot = strchr(base != NULL ? base : name, '.');
    return dot != NULL ? (size_t)(dot - name) : strlen(name);
}

/* Names in UTF-8 that the locale does not have come through the second call. */
static const char *name_of(const listing_t *l, struct archive_entry *entry)
{
    const char *name = l->lib.entry_pathname(entry);
    return name != NULL ? name : l->lib.entry_pathname_utf8(entry);
}

static loong_status_t visit_entry(const listing_t *l,
                                  struct archive_entry *entry)
{
    const tar_member_t member = {name_of(l, entry),
                                 l->lib.filter_bytes(l->tar, -1),
                                 l->lib.entry_size(entry)};
    LOONG_CHECK(l->ctx, member.name != NULL, LOONG_ERR_FORMAT,
                "%s: a member's name is not UTF-8", l->path);
    LOONG_CHECK(l->ctx, l->lib.entry_sparse_count(entry) == 0,
                LOONG_ERR_UNSUPPORTED, "%s: %s: is stored with holes", l->path,
                member.name);
    LOONG_CHECK(l->ctx, member.size <= l->size - member.offset,
                LOONG_ERR_FORMAT, "%s: ends within %s", l->path, member.name);
    return l->visit(l->user, &member);
}

static loong_status_t list_members(const listing_t *l)
{
    struct archive_entry *entry = NULL;
    int code = l->lib.read_support_format_tar(l->tar);
    if (code == ARCHIVE_OK) {
        code = l->lib.read_open_filename(l->tar, l->path, BLOCK);
    }
    while (code >= ARCHIVE_WARN) {
        code = l->lib.read_next_header(l->tar, &entry);
        if (code == ARCHIVE_EOF) {
            return LOONG_OK;
        }
        if (code >= ARCHIVE_WARN && l->lib.entry_filetype(entry) == AE_IFREG &&
            l->lib.entry_hardlink(entry) == NULL) {
            LOONG_TRY(visit_entry(l, entry));
        }
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
                "tar files need libarchive: %s", dlerror());
#define LOAD(name_)                                                   \
    *(void **)(void *)&lib->name_ = dlsym(handle, "archive_" #name_); \
    LOONG_CHECK(ctx, lib->name_ != NULL, LOONG_ERR_UNSUPPORTED,       \
                ARCHIVE_LIBRARY " has no archive_" #name_);
    ARCHIVE_FUNCTIONS(LOAD)
#undef LOAD
    return LOONG_OK;
}

loong_status_t loongi_tar_list(loong_context_t *ctx, const char *path,
                               tar_visit_t visit, void *user)
{
    listing_t l = {.ctx = ctx, .path = path, .visit = visit, .user = user};
    struct stat info;
    LOONG_CHECK(ctx, stat(path, &info) == 0, LOONG_ERR_IO, "%s: %s", path,
                strerror(errno));
    l.size = info.st_size;
    LOONG_TRY(load_library(ctx, &l.lib));
    l.tar = l.lib.read_new();
    LOONG_CHECK(ctx, l.tar != NULL, LOONG_ERR_MEMORY, "no memory to read %s",
                path);
    loong_status_t status = list_members(&l);
    l.lib.read_free(l.tar);
    return status;
}
