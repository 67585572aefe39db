/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process holds, from the kernel's own account. Called by report.c and
 * gemm_rate.c. Read metrics.h before. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "metrics.h"

static const char path[] = "/proc/self/status";

/* "\nRssAnon:      1234 kB" */
static loong_status_t find_kib(loong_context_t *ctx, const char *text,
                               const char *key, size_t *bytes_p)
{
    const char *at = strstr(text, key);
    LOONG_CHECK(ctx, at != NULL, LOONG_ERR_FORMAT, "%s: no line %s", path,
                key + 1);
    char *end = NULL;
    unsigned long long kib = strtoull(at + strlen(key), &end, 10);
    LOONG_CHECK(ctx, strncmp(end, " kB", 3) == 0, LOONG_ERR_FORMAT,
                "%s: %s is not in kB", path, key + 1);
    *bytes_p = (size_t)kib * 1024;
    return LOONG_OK;
}

loong_status_t loongi_memory_used(loong_context_t *ctx, size_t *bytes_p)
{
    char text[8192];
    size_t used = 0;
    size_t anonymous = 0;
    size_t shared = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_IO, "%s: cannot open: %s", path,
                strerror(errno));
    ssize_t n = 0;
    while (used < sizeof(text) - 1 &&
           (n = read(fd, text + used, sizeof(text) - 1 - used)) > 0) {
        used += (size_t)n;
    }
    int error = errno;
    close(fd);
    LOONG_CHECK(ctx, n >= 0, LOONG_ERR_IO, "%s: cannot read: %s", path,
                strerror(error));
    text[used] = '\0';
    LOONG_TRY(find_kib(ctx, text, "\nRssAnon:", &anonymous));
    LOONG_TRY(find_kib(ctx, text, "\nRssShmem:", &shared));
    *bytes_p = anonymous + shared;
    return LOONG_OK;
}

void loongi_memory_give_back(void)
{
    (void)malloc_trim(0);
}
