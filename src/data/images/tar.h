/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of tar files, and files that may be such: "shards/0.tar/0017.jpg" is
 * a member of the file "shards/0.tar". */
#ifndef LOONG_TAR_H
#define LOONG_TAR_H

#include <limits.h>
#include <sys/stat.h>

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tar_member {
    const char *name;
    int64_t offset, size; /* of its bytes in the file */
    bool is_link;         /* to another file: it has no bytes of its own */
} tar_member_t;

typedef loong_status_t (*tar_visit_t)(void *user, const tar_member_t *member);

/* Visits the regular files and links in a tar file, in its order; names are
 * valid in the call. Errors: LOONG_ERR_FORMAT (broken, cut off, compressed, or
 * with something behind its end), LOONG_ERR_UNSUPPORTED, LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_tar_list(loong_context_t *ctx,
                                               const char *path,
                                               tar_visit_t visit, void *user);

/* Bytes of a member's name that its sample shares: up to the first dot behind
 * the last slash (WebDataset). */
size_t loongi_tar_key(const char *name);
/* Whether the file name begins with a dot, as of what macOS puts beside files:
 * such are of no sample. */
bool loongi_tar_is_hidden(const char *name);

/* Where bytes lie. */
typedef struct file_part {
    char file[PATH_MAX];
    int64_t file_size;
    int64_t offset, length;
} file_part_t;

/* A file, or the member of a tar file; the members of each tar file are listed
 * once while it stays as it is. Errors: LOONG_ERR_NOT_FOUND, what
 * loongi_tar_list has. From any thread. */
LOONG_NODISCARD loong_status_t loongi_file_part(loong_context_t *ctx,
                                                const char *path,
                                                file_part_t *part);
/* Whether there is a regular file or a member. */
LOONG_NODISCARD loong_status_t loongi_file_part_exists(loong_context_t *ctx,
                                                       const char *path,
                                                       bool *exists_p);
/* stat of the file in which its bytes lie. */
bool loongi_file_part_stat(const char *path, struct stat *info);

#ifdef __cplusplus
}
#endif

#endif
