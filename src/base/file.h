/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole reads, writes that are complete or absent, directories. Every
 * failure names the path and the system's reason.
 */
#ifndef LOONG_FILE_H
#define LOONG_FILE_H

#include <sys/types.h>

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The whole file with a NUL behind it; *length_p does not count the NUL.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_file_read(loong_context_t *ctx,
                                                const char *path, char **text_p,
                                                size_t *length_p);

/* Replaces or creates path: temporary name, fsync, rename, fsync of the
 * directory. A crash leaves the old file or the new one. */
LOONG_NODISCARD loong_status_t loongi_file_write(loong_context_t *ctx,
                                                 const char *path,
                                                 const void *bytes,
                                                 size_t length);

/* pwrite until all is written; a short write or full disk is LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_file_pwrite(loong_context_t *ctx, int fd,
                                                  const char *path,
                                                  const void *bytes,
                                                  size_t length, off_t offset);
/* pread until all is read; a file that ends before is LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_file_pread(loong_context_t *ctx, int fd,
                                                 const char *path, void *bytes,
                                                 size_t length, off_t offset);
LOONG_NODISCARD loong_status_t loongi_file_sync(loong_context_t *ctx, int fd,
                                                const char *path);

LOONG_NODISCARD loong_status_t loongi_file_sync_path(loong_context_t *ctx,
                                                     const char *path);

/* Renames within one directory and makes the new name durable. */
LOONG_NODISCARD loong_status_t loongi_file_rename(loong_context_t *ctx,
                                                  const char *from,
                                                  const char *to);

LOONG_NODISCARD loong_status_t loongi_file_copy(loong_context_t *ctx,
                                                const char *from,
                                                const char *to);

bool loongi_file_exists(const char *path);
bool loongi_dir_exists(const char *path);
/* Both are there and one, whatever their names. */
bool loongi_file_same(const char *a, const char *b);
/* This process may not write it: the file is there and read-only, or could not
 * be replaced or made where it is. False where there is no such directory. */
bool loongi_file_is_fixed(const char *path);

/* mkdir -p. */
LOONG_NODISCARD loong_status_t loongi_dir_make(loong_context_t *ctx,
                                               const char *path);
LOONG_NODISCARD loong_status_t loongi_dir_sync(loong_context_t *ctx,
                                               const char *path);

/* rm -r, without following links; an absent path is success. */
LOONG_NODISCARD loong_status_t loongi_dir_remove(loong_context_t *ctx,
                                                 const char *path);

#ifdef __cplusplus
}
#endif

#endif
