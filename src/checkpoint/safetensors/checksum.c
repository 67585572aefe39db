/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows xxHash. Called by what saves and loads native
 * checkpoints, and by tensor_stream.c. Read checksum.h before. */
#include "checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { READ_BYTES = 1 << 20 };

struct loong_checksum {
    loong_context_t *ctx;
    XXH3_state_t *state;
};

uint64_t loongi_checksum(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

loong_status_t loongi_checksum_create(loong_context_t *ctx,
                                      loong_checksum_t **sum_p)
{
    loong_checksum_t *sum = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*sum), "checksum", &sum));
    sum->ctx = ctx;
    sum->state = XXH3_createState();
    if (sum->state == NULL) {
        loongi_free(ctx, sum);
        return LOONG_FAIL(ctx, LOONG_ERR_MEMORY, "no memory to hash");
    }
    XXH3_64bits_reset(sum->state);
    *sum_p = sum;
    return LOONG_OK;
}

void loongi_checksum_add(loong_checksum_t *sum, const void *bytes,
                         size_t length)
{
    XXH3_64bits_update(sum->state, bytes, length);
}

uint64_t loongi_checksum_get(const loong_checksum_t *sum)
{
    return XXH3_64bits_digest(sum->state);
}

void loongi_checksum_destroy(loong_checksum_t **sum)
{
    if (*sum == NULL) {
        return;
    }
    XXH3_freeState((*sum)->state);
    loongi_free((*sum)->ctx, *sum);
    *sum = NULL;
}

static loong_status_t add_file(loong_checksum_t *sum, int fd, const char *path,
                               void *buffer)
{
    for (;;) {
        ssize_t n = read(fd, buffer, READ_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        LOONG_CHECK(sum->ctx, n >= 0, LOONG_ERR_IO, "cannot read '%s': %s",
                    path, strerror(errno));
        if (n == 0) {
            return LOONG_OK;
        }
        loongi_checksum_add(sum, buffer, (size_t)n);
    }
}

loong_status_t loongi_checksum_file(loong_context_t *ctx, const char *path,
                                    uint64_t *xxh3_p)
{
    void *buffer = NULL;
    loong_checksum_t *sum = NULL;
    loong_status_t status = LOONG_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_IO, "cannot open '%s': %s", path,
                strerror(errno));
    LOONG_TRY_GOTO(loongi_alloc(ctx, READ_BYTES, "checksum", &buffer), status,
                   out_file);
    LOONG_TRY_GOTO(loongi_checksum_create(ctx, &sum), status, out_file);
    status = add_file(sum, fd, path, buffer);
    if (status == LOONG_OK) {
        *xxh3_p = loongi_checksum_get(sum);
    }
out_file:
    loongi_checksum_destroy(&sum);
    loongi_free(ctx, buffer);
    close(fd);
    return status;
}
