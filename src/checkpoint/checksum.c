/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows xxHash. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "native_layout.h"

enum { READ_BYTES = 1 << 20 };

uint64_t loongi_checksum(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

static loong_status_t hash(loong_context_t *ctx, int fd, const char *path,
                           XXH3_state_t *state, void *buffer)
{
    for (;;) {
        ssize_t n = read(fd, buffer, READ_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        LOONG_CHECK(ctx, n >= 0, LOONG_ERR_IO, "cannot read '%s': %s", path,
                    strerror(errno));
        if (n == 0) {
            return LOONG_OK;
        }
        XXH3_64bits_update(state, buffer, (size_t)n);
    }
}

loong_status_t loongi_checksum_file(loong_context_t *ctx, const char *path,
                                    uint64_t *xxh3_p)
{
    void *buffer = NULL;
    loong_status_t status = LOONG_OK;
    XXH3_state_t *state = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_IO, "cannot open '%s': %s", path,
                strerror(errno));
    LOONG_TRY_GOTO(loongi_alloc(ctx, READ_BYTES, "checksum", &buffer), status,
                   out_file);
    state = XXH3_createState();
    if (state == NULL) {
        status = LOONG_FAIL(ctx, LOONG_ERR_MEMORY, "no memory to hash");
        goto out_file;
    }
    XXH3_64bits_reset(state);
    status = hash(ctx, fd, path, state, buffer);
    if (status == LOONG_OK) {
        *xxh3_p = XXH3_64bits_digest(state);
    }
out_file:
    XXH3_freeState(state);
    loongi_free(ctx, buffer);
    close(fd);
    return status;
}
