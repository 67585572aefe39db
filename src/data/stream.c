/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows zlib, liblzma and libzstd. All are used through
 * their streaming interfaces on one input buffer; several gzip members, xz
 * streams or zstd frames in a file follow each other. Called by corpus.c and
 * readers of conversations. Read stream.h before. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "stream.h"

enum { INPUT_SIZE = 1 << 17, MAGIC_SIZE = 6 };

typedef enum packing { PLAIN, GZIP, XZ, ZSTD } packing_t;

struct loong_stream {
    loong_context_t *ctx;
    char *path;
    int fd;
    packing_t packing;
    bool file_end;
    bool inside; /* a member or frame was begun and has not ended */
    int64_t position;
    uint8_t *input; /* [INPUT_SIZE] */
    size_t begin;   /* what is left of it */
    size_t end;
    z_stream gzip;
    bool gzip_ready;
    lzma_stream xz;
    ZSTD_DStream *zstd;
};

/* Moves what is left to the front and reads once. */
static loong_status_t refill(loong_stream_t *s)
{
    memmove(s->input, s->input + s->begin, s->end - s->begin);
    s->end -= s->begin;
    s->begin = 0;
    ssize_t n;
    do {
        n = read(s->fd, s->input + s->end, INPUT_SIZE - s->end);
    } while (n < 0 && errno == EINTR);
    LOONG_CHECK(s->ctx, n >= 0, LOONG_ERR_IO, "cannot read '%s': %s", s->path,
                strerror(errno));
    s->file_end = n == 0;
    s->end += (size_t)n;
    s->position += n;
    return LOONG_OK;
}

static loong_status_t begin_xz(loong_stream_t *s)
{
    LOONG_CHECK(s->ctx,
                lzma_stream_decoder(&s->xz, UINT64_MAX, 0) == LZMA_OK,
                LOONG_ERR_MEMORY, "cannot start liblzma for '%s'", s->path);
    return LOONG_OK;
}

static loong_status_t detect(loong_stream_t *s)
{
    static const uint8_t gzip_magic[] = {0x1f, 0x8b};
    static const uint8_t zstd_magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    static const uint8_t xz_magic[] = {0xfd, '7', 'z', 'X', 'Z', 0};
    while (s->end < MAGIC_SIZE && !s->file_end) {
        LOONG_TRY(refill(s));
    }
    if (s->end >= sizeof(gzip_magic) &&
        memcmp(s->input, gzip_magic, sizeof(gzip_magic)) == 0) {
        s->packing = GZIP;
        /* 16: a gzip header is required; 15: the largest window */
        LOONG_CHECK(s->ctx, inflateInit2(&s->gzip, 16 + 15) == Z_OK,
                    LOONG_ERR_MEMORY, "cannot start zlib for '%s'", s->path);
        s->gzip_ready = true;
    } else if (s->end >= sizeof(xz_magic) &&
               memcmp(s->input, xz_magic, sizeof(xz_magic)) == 0) {
        s->packing = XZ;
        LOONG_TRY(begin_xz(s));
    } else if (s->end >= sizeof(zstd_magic) &&
               memcmp(s->input, zstd_magic, sizeof(zstd_magic)) == 0) {
        s->packing = ZSTD;
        s->zstd = ZSTD_createDStream();
        LOONG_CHECK(s->ctx, s->zstd != NULL, LOONG_ERR_MEMORY,
                    "cannot start zstd for '%s'", s->path);
    }
    return LOONG_OK;
}

static loong_status_t stream_open(loong_stream_t *s, const char *path)
{
    LOONG_TRY(loongi_strdup(s->ctx, path, &s->path));
    LOONG_TRY(loongi_alloc(s->ctx, INPUT_SIZE, "read buffer", &s->input));
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) {
        int code = errno;
        return LOONG_FAIL(s->ctx,
                          code == ENOENT ? LOONG_ERR_NOT_FOUND : LOONG_ERR_IO,
                          "cannot open '%s': %s", path, strerror(code));
    }
    return detect(s);
}

loong_status_t loongi_stream_create(loong_context_t *ctx, const char *path,
                                    loong_stream_t **stream_p)
{
    loong_stream_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "stream", &s));
    s->ctx = ctx;
    s->fd = -1;
    loong_status_t status = stream_open(s, path);
    if (status != LOONG_OK) {
        loongi_stream_destroy(&s);
        return status;
    }
    *stream_p = s;
    return LOONG_OK;
}

void loongi_stream_destroy(loong_stream_t **stream)
{
    loong_stream_t *s = *stream;
    if (s == NULL) {
        return;
    }
    if (s->gzip_ready) {
        inflateEnd(&s->gzip);
    }
    lzma_end(&s->xz); /* accepts one that was not begun */
    ZSTD_freeDStream(s->zstd); /* accepts NULL */
    if (s->fd >= 0) {
        close(s->fd);
    }
    loongi_free(s->ctx, s->input);
    loongi_free(s->ctx, s->path);
    loongi_free(s->ctx, s);
    *stream = NULL;
}

static void step_plain(loong_stream_t *s, char *bytes, size_t size,
                       size_t *length)
{
    *length = LOONG_MIN(size, s->end - s->begin);
    memcpy(bytes, s->input + s->begin, *length);
    s->begin += *length;
}

static loong_status_t step_gzip(loong_stream_t *s, char *bytes, size_t size,
                                size_t *length)
{
    s->gzip.next_in = s->input + s->begin;
    s->gzip.avail_in = (uInt)(s->end - s->begin);
    s->gzip.next_out = (Bytef *)bytes;
    s->gzip.avail_out = (uInt)LOONG_MIN(size, (size_t)1 << 30);
    uInt room = s->gzip.avail_out;
    int code = inflate(&s->gzip, Z_NO_FLUSH);
    s->begin = s->end - s->gzip.avail_in;
    *length = room - s->gzip.avail_out;
    s->inside = code != Z_STREAM_END;
    LOONG_CHECK(s->ctx,
                code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR,
                LOONG_ERR_FORMAT, "'%s' is broken gzip data: %s", s->path,
                s->gzip.msg != NULL ? s->gzip.msg : zError(code));
    if (code == Z_STREAM_END) {
        inflateReset(&s->gzip); /* ready for another member */
    }
    return LOONG_OK;
}

static loong_status_t step_xz(loong_stream_t *s, char *bytes, size_t size,
                              size_t *length)
{
    s->xz.next_in = s->input + s->begin;
    s->xz.avail_in = s->end - s->begin;
    s->xz.next_out = (uint8_t *)bytes;
    s->xz.avail_out = size;
    lzma_ret code = lzma_code(&s->xz, LZMA_RUN);
    s->begin = s->end - s->xz.avail_in;
    *length = size - s->xz.avail_out;
    s->inside = code != LZMA_STREAM_END;
    LOONG_CHECK(s->ctx,
                code == LZMA_OK || code == LZMA_STREAM_END ||
                    code == LZMA_BUF_ERROR,
                LOONG_ERR_FORMAT, "'%s' is broken xz data (liblzma: %d)",
                s->path, (int)code);
    return code == LZMA_STREAM_END ? begin_xz(s) : LOONG_OK;
}

static loong_status_t step_zstd(loong_stream_t *s, char *bytes, size_t size,
                                size_t *length)
{
    ZSTD_inBuffer in = {s->input, s->end, s->begin};
    ZSTD_outBuffer out = {bytes, size, 0};
    size_t code = ZSTD_decompressStream(s->zstd, &out, &in);
    s->begin = in.pos;
    *length = out.pos;
    s->inside = code != 0;
    LOONG_CHECK(s->ctx, !ZSTD_isError(code), LOONG_ERR_FORMAT,
                "'%s' is broken zstd data: %s", s->path,
                ZSTD_getErrorName(code));
    return LOONG_OK;
}

loong_status_t loongi_stream_read(loong_stream_t *s, char *bytes, size_t size,
                                  size_t *length_p)
{
    *length_p = 0;
    while (size > 0 && *length_p == 0) {
        bool hungry = s->begin == s->end;
        if (hungry && !s->file_end) {
            LOONG_TRY(refill(s));
        }
        hungry = s->begin == s->end;
        if (hungry && (s->packing == PLAIN || !s->inside)) {
            return LOONG_OK;
        }
        if (s->packing == PLAIN) {
            step_plain(s, bytes, size, length_p);
        } else if (s->packing == GZIP) {
            LOONG_TRY(step_gzip(s, bytes, size, length_p));
        } else if (s->packing == XZ) {
            LOONG_TRY(step_xz(s, bytes, size, length_p));
        } else {
            LOONG_TRY(step_zstd(s, bytes, size, length_p));
        }
        LOONG_CHECK(s->ctx, *length_p > 0 || !hungry || !s->inside,
                    LOONG_ERR_FORMAT,
                    "'%s' is cut off: the compressed data has no end", s->path);
    }
    return LOONG_OK;
}

int64_t loongi_stream_position(const loong_stream_t *stream)
{
    return stream->position;
}
