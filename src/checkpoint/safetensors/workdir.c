/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories of unfinished work. Called by native_write.c,
 * safetensors_set_write.c, import.c, export.c and convert_files.c. Read
 * workdir.h before. */
#include "workdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

static bool holds_key(loong_context_t *ctx, const char *path, const char *key)
{
    char *text = NULL;
    size_t length = 0;
    if (loongi_file_read(ctx, path, &text, &length) != LOONG_OK) {
        loong_context_clear_error(ctx);
        return false;
    }
    bool same = strcmp(text, key) == 0;
    loongi_free(ctx, text);
    return same;
}

static bool is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static loong_status_t empty(loong_context_t *ctx, const char *path)
{
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    DIR *dir = opendir(path);
    LOONG_CHECK(ctx, dir != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", path, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        loong_text_t child = loongi_text_begin(ctx);
        if (is_entry(entry) && strcmp(entry->d_name, LOONG_WORKDIR_KEY) != 0) {
            loongi_text_printf(&child, "%s/%s", path, entry->d_name);
            status = child.status;
            if (status == LOONG_OK) {
                status = loongi_dir_remove(ctx, child.data);
            }
        }
        loongi_text_free(&child);
    }
    closedir(dir);
    return status;
}

/* Opens and locks. What another process finished meanwhile, and took away or
 * made anew, is opened again: a lock on a file that is gone keeps nobody out.
 */
static loong_status_t lock(loong_context_t *ctx, const char *path,
                           const char *file, int *fd_p)
{
    for (;;) {
        struct stat ours, there;
        LOONG_TRY(loongi_dir_make(ctx, path));
        int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 && errno == ENOENT) {
            continue;
        }
        LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_IO, "cannot create '%s': %s", file,
                    strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int error = errno;
            close(fd);
            return LOONG_FAIL(ctx, LOONG_ERR_IO,
                              "another process writes to '%s': %s", path,
                              strerror(error));
        }
        if (fstat(fd, &ours) == 0 && stat(file, &there) == 0 &&
            ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) {
            *fd_p = fd;
            return LOONG_OK;
        }
        close(fd);
    }
}

/* The key is written when the directory is empty: a half-written one is
 * another key. */
static loong_status_t claim(loong_context_t *ctx, const char *path,
                            const char *file, const char *key,
                            loong_workdir_t *dir)
{
    LOONG_TRY(lock(ctx, path, file, &dir->fd));
    dir->resumed = key[0] != '\0' && holds_key(ctx, file, key);
    if (dir->resumed) {
        return LOONG_OK;
    }
    LOONG_TRY(empty(ctx, path));
    LOONG_CHECK(ctx, ftruncate(dir->fd, 0) == 0, LOONG_ERR_IO,
                "cannot write '%s': %s", file, strerror(errno));
    LOONG_TRY(loongi_file_pwrite(ctx, dir->fd, file, key, strlen(key), 0));
    return loongi_file_sync(ctx, dir->fd, file);
}

loong_status_t loongi_workdir_open(loong_context_t *ctx, const char *path,
                                   const char *key, loong_workdir_t *dir_p)
{
    loong_workdir_t dir = {-1, false};
    loong_text_t file = loongi_text_begin(ctx);
    loong_text_t text = loongi_text_begin(ctx);
    loongi_text_printf(&file, "%s/" LOONG_WORKDIR_KEY, path);
    if (key[0] != '\0') {
        loongi_text_printf(&text, "libloong " LOONG_PROJECT_VERSION "\n%s",
                           key);
    }
    loong_status_t status =
        file.status != LOONG_OK ? file.status : text.status;
    if (status == LOONG_OK) {
        status =
            claim(ctx, path, file.data, loongi_text_get(&text), &dir);
    }
    loongi_text_free(&text);
    loongi_text_free(&file);
    if (status != LOONG_OK) {
        loongi_workdir_close(&dir);
        return status;
    }
    *dir_p = dir;
    return LOONG_OK;
}

void loongi_workdir_close(loong_workdir_t *dir)
{
    if (dir->fd >= 0) {
        close(dir->fd);
        dir->fd = -1;
    }
}

static void add_file(loong_text_t *key, const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0) {
        loongi_text_printf(key, "%s %lld %lld.%09ld\n", path,
                           (long long)info.st_size,
                           (long long)info.st_mtim.tv_sec,
                           info.st_mtim.tv_nsec);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_sorted(loong_text_t *key, char **names, int64_t count)
{
    if (count > 0) {
        qsort(names, (size_t)count, sizeof(*names), by_text);
    }
    for (int64_t i = 0; i < count; i++) {
        add_file(key, names[i]);
        loongi_free(key->ctx, names[i]);
    }
    loongi_free(key->ctx, names);
}

void loongi_workdir_add_source(loong_text_t *key, const char *path)
{
    struct dirent *entry = NULL;
    char **names = NULL;
    int64_t count = 0;
    int64_t capacity = 0;
    DIR *dir = path != NULL ? opendir(path) : NULL;
    if (path == NULL) {
        return;
    }
    if (dir == NULL) {
        add_file(key, path);
        return;
    }
    while (key->status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        loong_text_t child = loongi_text_begin(key->ctx);
        if (entry->d_name[0] == '.') {
            continue;
        }
        loongi_text_printf(&child, "%s/%s", path, entry->d_name);
        key->status = child.status;
        if (key->status == LOONG_OK) {
            key->status = loongi_grow(key->ctx, &names, &capacity, count + 1,
                                      sizeof(*names), "names of files");
        }
        if (key->status == LOONG_OK) {
            names[count++] = child.data;
        } else {
            loongi_text_free(&child);
        }
    }
    closedir(dir);
    add_sorted(key, names, count);
}
