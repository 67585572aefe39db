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

typedef struct image_span {
    int64_t offset;
    int64_t length; /* -1: to the end of the file; 0: there is none */
} image_span_t;

typedef struct image_entry {
    const char *name; /* for messages */
    const char *file;
    int64_t file_size; /* -1: not known */
    int64_t label;     /* -1: in `number`, or none */
    image_span_t picture;
    image_span_t number; /* a label as text */
    image_span_t text;
} image_entry_t;

struct loong_image_source {
    loong_context_t *ctx;
    loong_arena_t *arena; /* names */
    int64_t count;
    int64_t capacity;
    image_entry_t *entries;
    int64_t num_classes;
    int64_t classes_capacity;
    const char **classes;
};

LOONG_NODISCARD loong_status_t
loongi_image_source_add(loong_image_source_t *source, const char *name,
                        const image_entry_t *entry);
LOONG_NODISCARD loong_status_t
loongi_image_source_add_class(loong_image_source_t *source, const char *name);

/* The samples of a directory of classes; where classes were added before, these
 * number them. */
LOONG_NODISCARD loong_status_t
loongi_image_list_folder(loong_image_source_t *source, const char *path);
/* The samples of a tar file. */
LOONG_NODISCARD loong_status_t
loongi_image_list_tar(loong_image_source_t *source, const char *path);

/* Names in a directory, sorted, without "." and "..", in `arena`. */
typedef struct image_names {
    int64_t count;
    int64_t capacity;
    const char **at;
} image_names_t;
LOONG_NODISCARD loong_status_t loongi_image_names(loong_context_t *ctx,
                                                  loong_arena_t *arena,
                                                  const char *path,
                                                  image_names_t *names);

/* `name` ends with a dot and one of the endings, in letters of either case. */
bool loongi_image_has_ending(const char *name, const char *const *endings);
extern const char *const loongi_image_endings[]; /* NULL at the end */

#ifdef __cplusplus
}
#endif

#endif
