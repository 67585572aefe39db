/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures in a directory for each class. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "file.h"
#include "source.h"

enum { DEEPEST = 64 };

const char *const loongi_image_endings[] = {"jpg", "jpeg", "png", "webp", NULL};
/* Pictures to others that read such a directory: to pass them over would
 * number the samples in another way. */
static const char *const foreign[] = {"ppm", "bmp",  "pgm", "tif",
                                      "tiff", "gif", NULL};

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

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

loong_status_t loongi_image_names(loong_context_t *ctx, loong_arena_t *arena,
                                  const char *path, image_names_t *names)
{
    loong_status_t status = LOONG_OK;
    DIR *dir = opendir(path);
    LOONG_CHECK(ctx, dir != NULL, LOONG_ERR_IO, "%s: %s", path,
                strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char *copy = NULL;
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        LOONG_TRY_GOTO(loongi_grow(ctx, &names->at, &names->capacity,
                                   names->count + 1, sizeof(*names->at),
                                   "names in a directory"),
                       status, out);
        LOONG_TRY_GOTO(loongi_arena_strdup(arena, entry->d_name, &copy), status,
                       out);
        names->at[names->count++] = copy;
    }
    if (names->count > 0) {
        qsort(names->at, (size_t)names->count, sizeof(*names->at), by_name);
    }
out:
    closedir(dir);
    return status;
}

/* A class's directories, each before those in it. */
typedef struct walk {
    loong_image_source_t *source;
    image_names_t directories;
} walk_t;

static loong_status_t collect(walk_t *walk, const char *path, int depth)
{
    loong_context_t *ctx = walk->source->ctx;
    image_names_t names = {0};
    loong_status_t status = LOONG_OK;
    LOONG_CHECK(ctx, depth < DEEPEST, LOONG_ERR_FORMAT,
                "%s: is deeper than %d directories", path, DEEPEST);
    LOONG_TRY_GOTO(loongi_grow(ctx, &walk->directories.at,
                               &walk->directories.capacity,
                               walk->directories.count + 1, sizeof(path),
                               "directories of a class"),
                   status, out);
    walk->directories.at[walk->directories.count++] = path;
    LOONG_TRY_GOTO(loongi_image_names(ctx, walk->source->arena, path, &names),
                   status, out);
    for (int64_t i = 0; i < names.count; i++) {
        char *inner = NULL;
        LOONG_TRY_GOTO(loongi_arena_printf(walk->source->arena, &inner, "%s/%s",
                                           path, names.at[i]),
                       status, out);
        if (loongi_dir_exists(inner)) {
            LOONG_TRY_GOTO(collect(walk, inner, depth + 1), status, out);
        }
    }
out:
    loongi_free(ctx, names.at);
    return status;
}

static loong_status_t add_files(loong_image_source_t *source, const char *path,
                                int64_t label)
{
    image_names_t names = {0};
    loong_status_t status = loongi_image_names(source->ctx, source->arena, path,
                                               &names);
    for (int64_t i = 0; status == LOONG_OK && i < names.count; i++) {
        char *file = NULL;
        bool read = loongi_image_has_ending(names.at[i], loongi_image_endings);
        if (!read && !loongi_image_has_ending(names.at[i], foreign)) {
            continue;
        }
        LOONG_TRY_GOTO(loongi_arena_printf(source->arena, &file, "%s/%s", path,
                                           names.at[i]),
                       status, out);
        if (loongi_dir_exists(file)) {
            continue;
        }
        if (!read) {
            status = LOONG_FAIL(source->ctx, LOONG_ERR_UNSUPPORTED,
                                "%s: only .jpg, .jpeg, .png and .webp are read",
                                file);
            break;
        }
        image_entry_t entry = {.file = file, .file_size = -1, .label = label,
                               .picture = {0, -1}};
        status = loongi_image_source_add(source, file, &entry);
    }
out:
    loongi_free(source->ctx, names.at);
    return status;
}

static loong_status_t add_class(loong_image_source_t *source, const char *path,
                                int64_t label)
{
    walk_t walk = {source, {0}};
    int64_t before = source->count;
    loong_status_t status = collect(&walk, path, 0);
    if (status == LOONG_OK) {
        qsort(walk.directories.at, (size_t)walk.directories.count,
              sizeof(*walk.directories.at), by_name);
    }
    for (int64_t d = 0; status == LOONG_OK && d < walk.directories.count; d++) {
        status = add_files(source, walk.directories.at[d], label);
    }
    loongi_free(source->ctx, walk.directories.at);
    LOONG_TRY(status);
    LOONG_CHECK(source->ctx, source->count > before, LOONG_ERR_FORMAT,
                "%s: a class without a picture (.jpg .jpeg .png .webp)", path);
    return LOONG_OK;
}

static int64_t number_of(const loong_image_source_t *source, const char *name)
{
    for (int64_t c = 0; c < source->num_classes; c++) {
        if (strcmp(source->classes[c], name) == 0) {
            return c;
        }
    }
    return -1;
}

static loong_status_t add_named(loong_image_source_t *source, const char *path,
                                const char *name, bool numbered)
{
    char *inner = NULL;
    LOONG_TRY(loongi_arena_printf(source->arena, &inner, "%s/%s", path, name));
    if (!loongi_dir_exists(inner)) {
        return LOONG_OK;
    }
    if (!numbered) {
        LOONG_TRY(loongi_image_source_add_class(source, name));
    }
    int64_t label =
        numbered ? number_of(source, name) : source->num_classes - 1;
    LOONG_CHECK(source->ctx, label >= 0, LOONG_ERR_FORMAT,
                "%s: is none of the %" PRId64 " classes that the file of "
                "classes names", inner, source->num_classes);
    return add_class(source, inner, label);
}

loong_status_t loongi_image_list_folder(loong_image_source_t *source,
                                        const char *path)
{
    image_names_t names = {0};
    bool numbered = source->num_classes > 0;
    loong_status_t status = loongi_image_names(source->ctx, source->arena, path,
                                               &names);
    for (int64_t i = 0; status == LOONG_OK && i < names.count; i++) {
        status = add_named(source, path, names.at[i], numbered);
    }
    loongi_free(source->ctx, names.at);
    return status;
}
