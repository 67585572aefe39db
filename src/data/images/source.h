/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the samples of a source are: what its listings fill. */
#ifndef LOONG_IMAGE_SOURCE_H
#define LOONG_IMAGE_SOURCE_H

#include "base.h"
#include "loong/image.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct image_entry {
    const char *name; /* for messages */
    const char *file;
    int64_t file_size;
    int64_t offset;
    int64_t length;
    int64_t label;
} image_entry_t;

struct loong_image_source {
    loong_context_t *ctx;
    loong_arena_t *arena; /* names */
    int64_t count;
    int64_t capacity;
    image_entry_t *entries;
    int64_t num_classes; /* of directories */
};

LOONG_NODISCARD loong_status_t loongi_image_source_add(
    loong_image_source_t *source, const image_entry_t *entry);

/* The samples of a directory of tar files or of classes, and of a tar file. */
LOONG_NODISCARD loong_status_t
loongi_image_list_directory(loong_image_source_t *source, const char *path);
LOONG_NODISCARD loong_status_t
loongi_image_list_tar(loong_image_source_t *source, const char *path);

/* `name` ends with a dot and one of the endings, in letters of either case;
 * NULL is behind the last ending. */
bool loongi_image_has_ending(const char *name, const char *const *endings);
extern const char *const loongi_image_endings[];

#ifdef __cplusplus
}
#endif

#endif
