/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files in memory, with their names: what is read once and written to
 * other directories later, when the first may be gone. */
#ifndef LOONG_FILE_SET_H
#define LOONG_FILE_SET_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_file_set loong_file_set_t;

LOONG_NODISCARD loong_status_t loongi_file_set_create(loong_context_t *ctx,
                                                      loong_file_set_t **set_p);
void loongi_file_set_destroy(loong_file_set_t **set_p);

/* Reads a file under this name; one that was read before stays. */
LOONG_NODISCARD loong_status_t loongi_file_set_read(loong_file_set_t *set,
                                                    const char *path,
                                                    const char *name);
/* Reads the files of a directory whose names end so, those with a dot in front
 * left out. */
LOONG_NODISCARD loong_status_t loongi_file_set_read_dir(loong_file_set_t *set,
                                                        const char *dir,
                                                        const char *ending);

int64_t loongi_file_set_count(const loong_file_set_t *set);
/* The name of one, and its bytes, which stay those of the set. */
const char *loongi_file_set_get(const loong_file_set_t *set, int64_t index,
                                const char **bytes_p, size_t *length_p);
/* Writes all into a directory, which is made. From any thread, with its own
 * context. */
LOONG_NODISCARD loong_status_t loongi_file_set_write(
    loong_context_t *ctx, const loong_file_set_t *set, const char *dir);

#ifdef __cplusplus
}
#endif

#endif
