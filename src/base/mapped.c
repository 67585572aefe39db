/* SPDX-License-Identifier: Apache-2.0
 *
 * Advice to the system about large files. Called by readers and writers of
 * checkpoints. Read mapped.h before. */
#define _GNU_SOURCE
#include "mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    POPULATE_READ = 22, /* MADV_POPULATE_READ, Linux 5.14 */
    SEEK_TO_DATA = 3    /* SEEK_DATA */
};

/* The pages that the bytes touch. */
static void advise(const void *data, size_t bytes, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data / page * page;
    uintptr_t end = (uintptr_t)data + bytes;
    if (bytes > 0) {
        (void)madvise((void *)begin, end - begin, advice);
    }
}

void loongi_mapped_prefetch(const void *data, size_t bytes)
{
    advise(data, bytes, POPULATE_READ);
}

void loongi_mapped_release(const void *data, size_t bytes)
{
    advise(data, bytes, MADV_DONTNEED);
}

bool loongi_file_is_hole(int fd, int64_t offset, int64_t bytes)
{
    off_t data = lseek(fd, (off_t)offset, SEEK_TO_DATA);
    return data < 0 ? errno == ENXIO : data >= (off_t)(offset + bytes);
}

void loongi_file_flush(int fd, int64_t offset, int64_t bytes)
{
    (void)sync_file_range(fd, (off_t)offset, (off_t)bytes,
                          SYNC_FILE_RANGE_WRITE);
}
