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
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "file.h"

enum { RECORD = 512, BLOCK = 20 * RECORD };

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
    int64_t end; /* of the members so far */
    tar_visit_t visit;
    void *user;
} listing_t;

size_t loongi_tar_key(const char *name)
{
    const char *base = strrchr(name, '/');
    const char *dot = strchr(base != NULL ? base : name, '.');
    return dot != NULL ? (size_t)(dot - name) : strlen(name);
}

bool loongi_tar_is_hidden(const char *name)
{
    size_t key = loongi_tar_key(name);
    return name[key] == '.' && (key == 0 || name[key - 1] == '/');
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
                                 l->lib.entry_size(entry),
                                 l->lib.entry_filetype(entry) == AE_IFLNK ||
                                     l->lib.entry_hardlink(entry) != NULL};
    LOONG_CHECK(l->ctx, member.name != NULL, LOONG_ERR_FORMAT,
                "%s: a member's name is not UTF-8", l->path);
    LOONG_CHECK(l->ctx, l->lib.entry_sparse_count(entry) == 0,
                LOONG_ERR_UNSUPPORTED, "%s: %s: is stored with holes", l->path,
                member.name);
    LOONG_CHECK(l->ctx, member.size <= l->size - member.offset,
                LOONG_ERR_FORMAT, "%s: ends within %s", l->path, member.name);
    return l->visit(l->user, &member);
}

/* Behind the members are zeros and nothing else: a file that was cut off
 * between two members, or that another was put behind, reads as a shorter one
 * for libarchive. */
static loong_status_t check_end(const listing_t *l)
{
    static const char zeros[BLOCK];
    char bytes[BLOCK] = {0};
    int fd = open(l->path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(l->ctx, fd >= 0, LOONG_ERR_IO, "%s: %s", l->path,
                strerror(errno));
    loong_status_t status = LOONG_OK;
    bool is_cut = l->size - l->end < RECORD;
    bool is_zero = true;
    int64_t at = l->end;
    for (int64_t length = RECORD;
         !is_cut && is_zero && at < l->size && status == LOONG_OK;
         length = LOONG_MIN(BLOCK, l->size - at)) {
        status = loongi_file_pread(l->ctx, fd, l->path, bytes, (size_t)length,
                                   (off_t)at);
        is_zero = memcmp(bytes, zeros, (size_t)length) == 0;
        is_cut = !is_zero && at == l->end;
        at += length;
    }
    close(fd);
    LOONG_TRY(status);
    LOONG_CHECK(l->ctx, !is_cut, LOONG_ERR_FORMAT,
                "%s: ends without its end-of-archive block: it was cut off",
                l->path);
    LOONG_CHECK(l->ctx, is_zero, LOONG_ERR_FORMAT,
                "%s: has more behind its end-of-archive block at %" PRId64
                ": one tar file is wanted, not several one behind another",
                l->path, l->end);
    return LOONG_OK;
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
            return check_end(l);
        }
        if (code < ARCHIVE_WARN) {
            break;
        }
        unsigned type = l->lib.entry_filetype(entry);
        if (type == AE_IFREG || type == AE_IFLNK ||
            l->lib.entry_hardlink(entry) != NULL) {
            LOONG_TRY(visit_entry(l, entry));
        }
        l->end = l->lib.filter_bytes(l->tar, -1) +
                 (l->lib.entry_size(entry) + RECORD - 1) / RECORD * RECORD;
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
