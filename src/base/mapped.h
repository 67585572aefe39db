/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages and holes of large files: what keeps memory bounded and sparse files
 * sparse. All of it is advice; a system that does not take it is right too. */
#ifndef LOONG_MAPPED_H
#define LOONG_MAPPED_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the pages of a mapped file in one go. */
void loongi_mapped_prefetch(const void *data, size_t bytes);
/* Lets go of them: they come back from the file when they are touched. Other
 * memory than a file's would be lost. */
void loongi_mapped_release(const void *data, size_t bytes);
/* The file has a hole there, all zeros; false when that is not known. */
bool loongi_file_is_hole(int fd, int64_t offset, int64_t bytes);
/* Starts to write these bytes to the disk, and does not wait. */
void loongi_file_flush(int fd, int64_t offset, int64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
