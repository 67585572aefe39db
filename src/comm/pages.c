/* SPDX-License-Identifier: Apache-2.0
 *
 * Large memory. Called by the backends mpi and threads, by message.c and for
 * boards. Read pages.h before. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pages.h"

static size_t mapped_bytes(size_t bytes)
{
    return (LOONG_MAX(bytes, 1) + LOONG_HUGE_PAGE - 1) / LOONG_HUGE_PAGE *
           LOONG_HUGE_PAGE;
}

/* Reserves addresses one huge page longer than needed and gives back what
 * lies before and after the aligned part. */
static char *reserve(size_t bytes)
{
    size_t total = bytes + LOONG_HUGE_PAGE;
    char *raw = mmap(NULL, total, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        return NULL;
    }
    size_t skip =
        (LOONG_HUGE_PAGE - (uintptr_t)raw % LOONG_HUGE_PAGE) % LOONG_HUGE_PAGE;
    if (skip > 0) {
        munmap(raw, skip);
    }
    munmap(raw + skip + bytes, total - skip - bytes);
    return raw + skip;
}

static loong_status_t map_at(loong_context_t *ctx, int file, int flags,
                             size_t bytes, void **ptr_p)
{
    size_t length = mapped_bytes(bytes);
    char *place = reserve(length);
    void *ptr = place == NULL ? MAP_FAILED
                              : mmap(place, length, PROT_READ | PROT_WRITE,
                                     flags | MAP_FIXED, file, 0);
    if (ptr == MAP_FAILED) {
        int error = errno;
        if (place != NULL) {
            munmap(place, length);
        }
        return LOONG_FAIL(ctx, LOONG_ERR_MEMORY,
                          "cannot map %zu bytes of memory: %s", length,
                          strerror(error));
    }
    /* Advice: a kernel without huge pages for this memory goes on without. */
    madvise(ptr, length, MADV_HUGEPAGE);
    *ptr_p = ptr;
    return LOONG_OK;
}

loong_status_t loongi_pages_alloc(loong_context_t *ctx, size_t bytes,
                                  const char *what, void **ptr_p)
{
    loong_status_t status =
        map_at(ctx, -1, MAP_PRIVATE | MAP_ANONYMOUS, bytes, ptr_p);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "while allocating %s", what);
    }
    return status;
}

loong_status_t loongi_pages_file(loong_context_t *ctx, size_t bytes,
                                 const char *what, int *file_p)
{
    int file = memfd_create(what, MFD_CLOEXEC);
    LOONG_CHECK(ctx, file >= 0, LOONG_ERR_MEMORY,
                "cannot make shared memory for %s: %s", what, strerror(errno));
    if (ftruncate(file, (off_t)mapped_bytes(bytes)) != 0) {
        int error = errno;
        close(file);
        return LOONG_FAIL(ctx, LOONG_ERR_MEMORY,
                          "cannot make %zu bytes of shared memory for %s: %s",
                          mapped_bytes(bytes), what, strerror(error));
    }
    *file_p = file;
    return LOONG_OK;
}

loong_status_t loongi_pages_open(loong_context_t *ctx, int pid, int file,
                                 int *file_p)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, file);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    LOONG_CHECK(ctx, opened >= 0, LOONG_ERR_COMM,
                "cannot open the shared memory of process %d on this machine "
                "(%s): %s; ranks of one machine must run as one user and see "
                "each other's processes",
                pid, path, strerror(errno));
    *file_p = opened;
    return LOONG_OK;
}

loong_status_t loongi_pages_map(loong_context_t *ctx, int file, size_t bytes,
                                void **ptr_p)
{
    return map_at(ctx, file, MAP_SHARED, bytes, ptr_p);
}

void loongi_pages_free(void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        munmap(ptr, mapped_bytes(bytes));
    }
}
