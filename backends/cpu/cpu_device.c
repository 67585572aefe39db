/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU: memory in huge pages, a stream that is in order and synchronous. Its
 * table is entered by registry_builtin.c and called by src/device/device.c.
 * Read loong/device.h before. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base.h"
#include "cpu_device.h"
#include "isa.h"

enum { HUGE_PAGE = 2 * 1024 * 1024 };

static void cpu_caps(const void *data, loong_device_caps_t *caps)
{
    bool bf16 = loongi_isa() >= LOONG_ISA_LEVEL_avx512_bf16;
    (void)data;
    caps->features = 1u << LOONG_FEATURE_HOST_MEMORY;
    caps->rate[LOONG_F64] = LOONG_RATE_VECTOR;
    caps->rate[LOONG_F32] = LOONG_RATE_VECTOR;
    caps->rate[LOONG_BF16] = bf16 ? LOONG_RATE_MATRIX : LOONG_RATE_SLOW;
    caps->align = 1;
}

static int cpu_count(char *reason, size_t size)
{
    (void)reason;
    (void)size;
    return 1;
}

static loong_status_t cpu_create(loong_context_t *ctx, int index, void **data_p)
{
    (void)ctx;
    (void)index;
    *data_p = NULL;
    return LOONG_OK;
}

static void cpu_destroy(loong_context_t *ctx, void *data)
{
    (void)ctx;
    (void)data;
}

/* What to map so that an aligned range of `bytes` lies inside. */
static size_t mapped_bytes(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

/* Anonymous pages are zero, and are taken when they are first touched, 2 MiB
 * at a time: 4 KiB faults cost seven times as much. The end that does not fill
 * a huge page stays in small ones: what is held is what was asked for. */
static loong_status_t cpu_alloc(loong_context_t *ctx, void *data, size_t bytes,
                                const char *what, void **ptr_p)
{
    (void)data;
    size_t size = mapped_bytes(bytes);
    char *map = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOONG_CHECK(ctx, map != MAP_FAILED, LOONG_ERR_MEMORY,
                "cannot map %zu bytes for %s", bytes, what);
    size_t skip = (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
    if (skip > 0) {
        munmap(map, skip);
    }
    munmap(map + skip + size, HUGE_PAGE - skip);
    madvise(map + skip, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    *ptr_p = map + skip;
    return LOONG_OK;
}

static void cpu_free(loong_context_t *ctx, void *data, void *ptr, size_t bytes)
{
    (void)ctx;
    (void)data;
    munmap(ptr, mapped_bytes(bytes));
}

static loong_status_t cpu_copy(void *data, void *stream, void *dst,
                               const void *src, size_t bytes)
{
    (void)data;
    (void)stream;
    memmove(dst, src, bytes);
    return LOONG_OK;
}

static loong_status_t cpu_copy_rows(void *data, void *stream,
                                    const loong_device_rows_t *r)
{
    (void)data;
    (void)stream;
    for (size_t i = 0; i < r->rows; i++) {
        memcpy((char *)r->dst + i * r->dst_apart,
               (const char *)r->src + i * r->src_apart, r->bytes);
    }
    return LOONG_OK;
}

static loong_status_t cpu_fill(void *data, void *stream, void *dst, int byte,
                               size_t bytes)
{
    (void)data;
    (void)stream;
    memset(dst, byte, bytes);
    return LOONG_OK;
}

static loong_status_t cpu_synchronize(void *data, void *stream)
{
    (void)data;
    (void)stream;
    return LOONG_OK;
}

static void cpu_describe(void *data, char *text, size_t size)
{
    (void)data;
    double gib = (double)sysconf(_SC_PHYS_PAGES) *
                 (double)sysconf(_SC_PAGESIZE) / (1024.0 * 1024.0 * 1024.0);
    snprintf(text, size, "%ld cores, %.1f GiB of memory",
             sysconf(_SC_NPROCESSORS_ONLN), gib);
}

const loong_device_ops_t loongi_cpu_device = {
    .name = "cpu",
    .caps = cpu_caps,
    .count = cpu_count,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .copy_rows = cpu_copy_rows,
    .fill = cpu_fill,
    .synchronize = cpu_synchronize,
    .describe = cpu_describe,
};
