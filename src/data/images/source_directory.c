/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories of tar files, and of pictures in a directory for each class.
 * Called by source.c. Read source.h before. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "file.h"
#include "source.h"

const char *const loongi_image_endings[] = {"jpg", "jpeg", "png", "webp", NULL};
/* Pictures to others that read such a directory: to pass them over would
 * number the samples in another way. */
static const char *const foreign[] = {"ppm",  "bmp", "pgm", "tif",
                                      "tiff", "gif", NULL};
static const char *const tars[] = {"tar", "tgz", "gz", "xz",
                                   "bz2", "zst", NULL};

bool loongi_image_has_ending(const char *name, const char *const *endings)
{
    const char *dot = strrchr(name, '.');
    for (; dot != NULL && *endings != NULL; endings++) {
        if (strcasecmp(dot + 1, *endings) == 0) {
            return true;
        }
    }
    return false;
}

static int is_inside(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* By bytes, in every locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Visits what is in a directory, by name; paths are in the source's arena. */
static loong_status_t walk(loong_image_source_t *source, const char *path,
                           loong_status_t (*visit)(loong_image_source_t *source,
                                                   const char *path))
{
    struct dirent **entries = NULL;
    loong_status_t status = LOONG_OK;
    int count = scandir(path, &entries, is_inside, by_name);
    LOONG_CHECK(source->ctx, count >= 0, LOONG_ERR_IO, "%s: %s", path,
                strerror(errno));
    for (int i = 0; i < count; i++) {
        char *inner = NULL;
        if (status == LOONG_OK) {
            status = loongi_arena_printf(source->arena, &inner, "%s/%s", path,
                                         entries[i]->d_name);
        }
        if (status == LOONG_OK) {
            status = visit(source, inner);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

static loong_status_t visit_tar(loong_image_source_t *source, const char *path)
{
    return loongi_image_has_ending(path, tars) && !loongi_dir_exists(path)
               ? loongi_image_list_tar(source, path)
               : LOONG_OK;
}

static loong_status_t visit_file(loong_image_source_t *source, const char *path)
{
    struct stat info = {0};
    (void)stat(path, &info); /* what is not there is told when it is read */
    if (S_ISDIR(info.st_mode)) {
        return walk(source, path, visit_file);
    }
    image_entry_t entry = {.name = path,
                           .file = path,
                           .file_size = info.st_size,
                           .length = info.st_size,
                           .label = source->num_classes};
    LOONG_CHECK(source->ctx, !loongi_image_has_ending(path, foreign),
                LOONG_ERR_UNSUPPORTED,
                "%s: only .jpg, .jpeg, .png and .webp are read", path);
    return loongi_image_has_ending(path, loongi_image_endings)
               ? loongi_image_source_add(source, &entry)
               : LOONG_OK;
}

/* By directory, then by file name. */
static int by_place(const void *a, const void *b)
{
    const char *x = ((const image_entry_t *)a)->file;
    const char *y = ((const image_entry_t *)b)->file;
    size_t in_x = (size_t)(strrchr(x, '/') - x);
    size_t in_y = (size_t)(strrchr(y, '/') - y);
    int order = strncmp(x, y, LOONG_MIN(in_x, in_y));
    order = order != 0 ? order : (in_x > in_y) - (in_x < in_y);
    return order != 0 ? order : strcmp(x + in_x, y + in_y);
}

static loong_status_t visit_class(loong_image_source_t *source,
                                  const char *path)
{
    int64_t before = source->count;
    if (!loongi_dir_exists(path)) {
        return LOONG_OK;
    }
    LOONG_TRY(walk(source, path, visit_file));
    LOONG_CHECK(source->ctx, source->count > before, LOONG_ERR_FORMAT,
                "%s: a class without a picture (.jpg .jpeg .png .webp)", path);
    qsort(source->entries + before, (size_t)(source->count - before),
          sizeof(*source->entries), by_place);
    source->num_classes++;
    return LOONG_OK;
}

loong_status_t loongi_image_list_directory(loong_image_source_t *source,
                                           const char *path)
{
    LOONG_TRY(walk(source, path, visit_tar));
    return source->count > 0 ? LOONG_OK : walk(source, path, visit_class);
}
