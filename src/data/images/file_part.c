/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that may be members of tar files: where their bytes lie. What was
 * listed of a tar file is kept by the process, by hashes of names: 24 bytes a
 * member. Called by source.c, video.c and sources of conversations. */
#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "tar.h"

typedef struct place {
    uint64_t name; /* its hash */
    int64_t offset, length;
} place_t;

typedef struct tar_index {
    char *path;
    pthread_mutex_t lock; /* of what follows */
    struct stat info; /* of the file that was listed */
    place_t *places;  /* by hash, then by offset */
    int64_t count, room;
} tar_index_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the tree */
static void *indexes; /* of tsearch, by path */

static uint64_t hash_of(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}

/* Bytes of the path that name a tar file, which is there; 0: none does. */
static size_t find_tar(const char *path, struct stat *info)
{
    static const char mark[] = ".tar/";
    const char *at = path;
    while ((at = strstr(at, mark)) != NULL) {
        char file[PATH_MAX];
        size_t length = (size_t)(at - path) + sizeof(mark) - 2;
        if (length < sizeof(file)) {
            memcpy(file, path, length);
            file[length] = '\0';
            if (stat(file, info) == 0 && S_ISREG(info->st_mode)) {
                return length;
            }
        }
        at++;
    }
    return 0;
}

bool loongi_file_part_stat(const char *path, struct stat *info)
{
    return find_tar(path, info) > 0 || stat(path, info) == 0;
}

/* ---- the index ----------------------------------------------------------- */

static loong_status_t add_place(void *user, const tar_member_t *member)
{
    tar_index_t *index = user;
    if (member->is_link) {
        return LOONG_OK;
    }
    if (index->count == index->room) {
        int64_t room = LOONG_MAX(2 * index->room, 64);
        place_t *more =
            realloc(index->places, (size_t)room * sizeof(*index->places));
        if (more == NULL) {
            return LOONG_ERR_MEMORY;
        }
        index->places = more;
        index->room = room;
    }
    index->places[index->count++] =
        (place_t){hash_of(member->name), member->offset, member->size};
    return LOONG_OK;
}

static int by_name(const void *a, const void *b)
{
    const place_t *x = a;
    const place_t *y = b;
    int order = (x->name > y->name) - (x->name < y->name);
    return order != 0 ? order
                      : (x->offset > y->offset) - (x->offset < y->offset);
}

static bool is_as_listed(const tar_index_t *index, const struct stat *info)
{
    const struct stat *then = &index->info;
    return then->st_ino == info->st_ino && then->st_dev == info->st_dev &&
           then->st_size == info->st_size &&
           then->st_mtim.tv_sec == info->st_mtim.tv_sec &&
           then->st_mtim.tv_nsec == info->st_mtim.tv_nsec;
}

static int by_path(const void *a, const void *b)
{
    const tar_index_t *x = a;
    const tar_index_t *y = b;
    return strcmp(x->path, y->path);
}

static tar_index_t *create_index(const char *path)
{
    tar_index_t *index = calloc(1, sizeof(*index));
    char *copy = strdup(path);
    if (index == NULL || copy == NULL) {
        free(index);
        free(copy);
        return NULL;
    }
    index->path = copy;
    pthread_mutex_init(&index->lock, NULL);
    if (tsearch(index, &indexes, by_path) == NULL) {
        free(index->path);
        free(index);
        return NULL;
    }
    return index;
}

/* The one of that path, for good; NULL: out of memory. */
static tar_index_t *take_index(char *path)
{
    const tar_index_t key = {.path = path};
    pthread_mutex_lock(&lock);
    tar_index_t **found = tfind(&key, &indexes, by_path);
    tar_index_t *index = found != NULL ? *found : create_index(path);
    pthread_mutex_unlock(&lock);
    return index;
}

/* Lists its members, if the file is another one than was listed. */
static loong_status_t fill_index(loong_context_t *ctx,
                                 const struct stat *info, tar_index_t *index)
{
    if (is_as_listed(index, info)) {
        return LOONG_OK;
    }
    index->count = 0;
    index->info = (struct stat){0}; /* it is not complete */
    loong_status_t status =
        loongi_tar_list(ctx, index->path, add_place, index);
    LOONG_CHECK(ctx, status != LOONG_ERR_MEMORY, status,
                "out of memory for the members of %s", index->path);
    LOONG_TRY(status);
    if (index->count > 0) {
        qsort(index->places, (size_t)index->count, sizeof(*index->places),
              by_name);
    }
    index->info = *info;
    return LOONG_OK;
}

/* The first of that name; NULL: there is none. */
static const place_t *find_place(const tar_index_t *index, const char *name)
{
    uint64_t hash = hash_of(name);
    int64_t begin = 0;
    int64_t end = index->count;
    while (begin < end) {
        int64_t middle = begin + (end - begin) / 2;
        if (index->places[middle].name < hash) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    bool found = begin < index->count && index->places[begin].name == hash;
    return found ? &index->places[begin] : NULL;
}

static loong_status_t find_member(loong_context_t *ctx, const char *name,
                                  const struct stat *info, file_part_t *part)
{
    tar_index_t *index = take_index(part->file);
    LOONG_CHECK(ctx, index != NULL, LOONG_ERR_MEMORY,
                "out of memory for the members of %s", part->file);
    pthread_mutex_lock(&index->lock);
    loong_status_t status = fill_index(ctx, info, index);
    const place_t *place = status == LOONG_OK ? find_place(index, name) : NULL;
    if (place != NULL) {
        part->offset = place->offset;
        part->length = place->length;
    }
    pthread_mutex_unlock(&index->lock);
    LOONG_TRY(status);
    LOONG_CHECK(ctx, place != NULL, LOONG_ERR_NOT_FOUND,
                "%s: has no member '%s'", part->file, name);
    return LOONG_OK;
}

loong_status_t loongi_file_part(loong_context_t *ctx, const char *path,
                                file_part_t *part)
{
    struct stat info;
    size_t tar = find_tar(path, &info);
    size_t length = tar > 0 ? tar : strlen(path);
    LOONG_CHECK(ctx, length < sizeof(part->file), LOONG_ERR_NOT_FOUND,
                "%.80s...: is longer than a path may be", path);
    memcpy(part->file, path, length);
    part->file[length] = '\0';
    LOONG_CHECK(ctx, tar > 0 || stat(path, &info) == 0,
                errno == ENOENT || errno == ENOTDIR ? LOONG_ERR_NOT_FOUND
                                                    : LOONG_ERR_IO,
                "%s: %s", path, strerror(errno));
    part->file_size = part->length = info.st_size;
    part->offset = 0;
    return tar == 0 ? LOONG_OK : find_member(ctx, path + tar + 1, &info, part);
}

loong_status_t loongi_file_part_exists(loong_context_t *ctx, const char *path,
                                       bool *exists_p)
{
    file_part_t part;
    struct stat info;
    if (find_tar(path, &info) == 0) {
        *exists_p = stat(path, &info) == 0 && S_ISREG(info.st_mode);
        return LOONG_OK;
    }
    loong_status_t status = loongi_file_part(ctx, path, &part);
    *exists_p = status == LOONG_OK;
    if (status == LOONG_ERR_NOT_FOUND) {
        loong_context_clear_error(ctx);
        return LOONG_OK;
    }
    return status;
}
