/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and directories. Called by all that reads or writes files. Read file.h
 * before. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

static loong_status_t fail_io(loong_context_t *ctx, const char *verb,
                              const char *path)
{
    return LOONG_FAIL(ctx, LOONG_ERR_IO, "cannot %s '%s': %s", verb, path,
                      strerror(errno));
}

/* A wrong place stays wrong; all else, such as a full disk, may be over when
 * it is tried again. */
static loong_status_t fail_create(loong_context_t *ctx, const char *what,
                                  const char *path)
{
    bool wrong = errno == EACCES || errno == EPERM || errno == EROFS ||
                 errno == ENOENT || errno == ENOTDIR || errno == EISDIR ||
                 errno == ELOOP || errno == ENAMETOOLONG;
    return LOONG_FAIL(ctx, wrong ? LOONG_ERR_CANNOT_WRITE : LOONG_ERR_IO,
                      "cannot create %s'%s': %s", what, path, strerror(errno));
}

/* An input that is not there is another failure than one that fails. */
static loong_status_t fail_open(loong_context_t *ctx, const char *path)
{
    if (errno == ENOTDIR) {
        return LOONG_FAIL(ctx, LOONG_ERR_NOT_FOUND,
                          "'%s' does not exist: it is not in a directory",
                          path);
    }
    return errno == ENOENT ? LOONG_FAIL(ctx, LOONG_ERR_NOT_FOUND,
                                        "'%s' does not exist", path)
                           : fail_io(ctx, "open", path);
}

static loong_status_t read_all(loong_context_t *ctx, int fd, const char *path,
                               char *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t n = read(fd, bytes + done, length - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_io(ctx, "read", path);
        }
        LOONG_CHECK(ctx, n > 0, LOONG_ERR_IO,
                    "'%s' shrank while it was read: %zu of %zu bytes", path,
                    done, length);
        done += (size_t)n;
    }
    return LOONG_OK;
}

static loong_status_t read_open(loong_context_t *ctx, int fd, const char *path,
                                char **text_p, size_t *length_p)
{
    struct stat info;
    char *text = NULL;
    if (fstat(fd, &info) != 0) {
        return fail_io(ctx, "inspect", path);
    }
    LOONG_CHECK(ctx, S_ISREG(info.st_mode), LOONG_ERR_IO,
                "'%s' is not a regular file", path);
    size_t length = (size_t)info.st_size;
    LOONG_TRY(loongi_alloc(ctx, length + 1, "file content", &text));
    loong_status_t status = read_all(ctx, fd, path, text, length);
    if (status != LOONG_OK) {
        loongi_free(ctx, text);
        return status;
    }
    *text_p = text;
    *length_p = length;
    return LOONG_OK;
}

loong_status_t loongi_file_read(loong_context_t *ctx, const char *path,
                                char **text_p, size_t *length_p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_open(ctx, path);
    }
    loong_status_t status = read_open(ctx, fd, path, text_p, length_p);
    close(fd);
    return status;
}

loong_status_t loongi_file_pwrite(loong_context_t *ctx, int fd,
                                  const char *path, const void *bytes,
                                  size_t length, off_t offset)
{
    size_t done = 0;
    while (done < length) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, length - done,
                           offset + (off_t)done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_io(ctx, "write", path);
        }
        LOONG_CHECK(ctx, n > 0, LOONG_ERR_IO, "cannot write '%s'", path);
        done += (size_t)n;
    }
    return LOONG_OK;
}

loong_status_t loongi_file_pread(loong_context_t *ctx, int fd,
                                 const char *path, void *bytes, size_t length,
                                 off_t offset)
{
    size_t done = 0;
    while (done < length) {
        ssize_t n = pread(fd, (char *)bytes + done, length - done,
                          offset + (off_t)done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_io(ctx, "read", path);
        }
        LOONG_CHECK(ctx, n > 0, LOONG_ERR_IO,
                    "'%s' ends at byte %lld, %zu bytes are wanted from %lld on",
                    path, (long long)offset + (long long)done, length,
                    (long long)offset);
        done += (size_t)n;
    }
    return LOONG_OK;
}

loong_status_t loongi_file_sync(loong_context_t *ctx, int fd, const char *path)
{
    return fsync(fd) == 0 ? LOONG_OK : fail_io(ctx, "fsync", path);
}

loong_status_t loongi_file_sync_path(loong_context_t *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_io(ctx, "open", path);
    }
    loong_status_t status = loongi_file_sync(ctx, fd, path);
    close(fd);
    return status;
}

static loong_status_t sync_parent(loong_context_t *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = NULL;
    LOONG_TRY(loongi_strdup(ctx, slash == NULL ? "." : path, &parent));
    if (slash != NULL) {
        parent[LOONG_MAX(slash - path, 1)] = '\0';
    }
    loong_status_t status = loongi_dir_sync(ctx, parent);
    loongi_free(ctx, parent);
    return status;
}

loong_status_t loongi_file_rename(loong_context_t *ctx, const char *from,
                                  const char *to)
{
    LOONG_CHECK(ctx, rename(from, to) == 0, LOONG_ERR_IO,
                "cannot rename '%s' to '%s': %s", from, to, strerror(errno));
    return sync_parent(ctx, to);
}

static loong_status_t write_new(loong_context_t *ctx, const char *path,
                                const void *bytes, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail_create(ctx, "", path);
    }
    loong_status_t status = loongi_file_pwrite(ctx, fd, path, bytes, length, 0);
    if (status == LOONG_OK) {
        status = loongi_file_sync(ctx, fd, path);
    }
    close(fd);
    return status;
}

loong_status_t loongi_file_write(loong_context_t *ctx, const char *path,
                                 const void *bytes, size_t length)
{
    loong_text_t temporary = loongi_text_begin(ctx);
    loongi_text_printf(&temporary, "%s.tmp", path);
    loong_status_t status = temporary.status;
    if (status == LOONG_OK) {
        status = write_new(ctx, temporary.data, bytes, length);
    }
    if (status == LOONG_OK) {
        status = loongi_file_rename(ctx, temporary.data, path);
    }
    if (status != LOONG_OK && temporary.data != NULL) {
        unlink(temporary.data);
    }
    loongi_text_free(&temporary);
    return status;
}

loong_status_t loongi_file_copy(loong_context_t *ctx, const char *from,
                                const char *to)
{
    char *bytes = NULL;
    size_t length = 0;
    LOONG_TRY(loongi_file_read(ctx, from, &bytes, &length));
    loong_status_t status = loongi_file_write(ctx, to, bytes, length);
    loongi_free(ctx, bytes);
    return status;
}

bool loongi_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static bool may_not_write(const char *path)
{
    return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0 &&
           (errno == EACCES || errno == EROFS || errno == EPERM);
}

bool loongi_file_is_fixed(const char *path)
{
    char dir[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        int length = (int)LOONG_MAX(slash - path, 1);
        snprintf(dir, sizeof(dir), "%.*s", length, path);
    }
    return may_not_write(path) || may_not_write(dir);
}

bool loongi_dir_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool loongi_file_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

loong_status_t loongi_dir_make(loong_context_t *ctx, const char *path)
{
    char *part = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_strdup(ctx, path, &part));
    for (char *c = part + 1; status == LOONG_OK && c[-1] != '\0'; c++) {
        if (*c != '/' && *c != '\0') {
            continue;
        }
        char saved = *c;
        *c = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            status = fail_create(ctx, "directory ", part);
        } else if (!loongi_dir_exists(part)) {
            status =
                LOONG_FAIL(ctx, LOONG_ERR_CANNOT_WRITE,
                           "'%s' is not a directory", part);
        }
        *c = saved;
    }
    loongi_free(ctx, part);
    return status;
}

loong_status_t loongi_dir_sync(loong_context_t *ctx, const char *path)
{
    return loongi_file_sync_path(ctx, path);
}

static loong_status_t remove_entries(loong_context_t *ctx, DIR *dir,
                                     const char *path)
{
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        loong_text_t child = loongi_text_begin(ctx);
        loongi_text_printf(&child, "%s/%s", path, entry->d_name);
        status = child.status;
        if (status == LOONG_OK) {
            status = loongi_dir_remove(ctx, child.data);
        }
        loongi_text_free(&child);
    }
    return status;
}

loong_status_t loongi_dir_remove(loong_context_t *ctx, const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? LOONG_OK : fail_io(ctx, "inspect", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return unlink(path) == 0 ? LOONG_OK : fail_io(ctx, "remove", path);
    }
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return fail_io(ctx, "open directory", path);
    }
    loong_status_t status = remove_entries(ctx, dir, path);
    closedir(dir);
    if (status == LOONG_OK && rmdir(path) != 0) {
        status = fail_io(ctx, "remove", path);
    }
    return status;
}
