/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills of a device. What the runtime does differently from what
 * device.h promises is made up for here: a blocking copy does not wait for
 * streams, so the stream is waited for first; an asynchronous one reads
 * ordinary memory late and fails when it is long, so it is given pinned memory,
 * in pieces; one inside the device was found a hundred times slower than a
 * kernel (docs/devices/xpu.md), so a kernel does it. Slots of the table in
 * xpu_device.c; read xpu_impl.h before. */
#include <string.h>

#include "xpu_impl.h"

/* ---- inside the device --------------------------------------------------- */

/* A copy of floats, which moves any bits. */
static loong_status_t copy_floats(xpu_data_t *d, void *stream, void *dst,
                                  const void *src, size_t bytes)
{
    enum { MOST = 1 << 30 }; /* floats of a call, whose count is an int */
    int error = 0;
    pthread_mutex_lock(&d->lock);
    XPU_CALL(d, error, d->lib->blas.SetStream(d->blas, stream));
    for (size_t at = 0; at < bytes / 4 && error == 0; at += MOST) {
        int n = (int)LOONG_MIN(bytes / 4 - at, (size_t)MOST);
        XPU_CALL(d, error,
                 d->lib->blas.Scopy(d->blas, n, (const float *)src + at, 1,
                                    (float *)dst + at, 1));
    }
    pthread_mutex_unlock(&d->lock);
    return error == 0 ? LOONG_OK : loongi_xpu_failed(d, "cublasScopy", error);
}

/* Where the shim has no kernel for it. */
static loong_status_t copy_inside(xpu_data_t *d, void *stream, void *dst,
                                  const void *src, size_t bytes)
{
    if (d->blas != NULL &&
        (((uintptr_t)dst | (uintptr_t)src | bytes) & 3) == 0) {
        return copy_floats(d, stream, dst, src, bytes);
    }
    for (size_t at = 0; at < bytes; at += d->chunk) {
        XPU_TRY(d, memcpy_async,
                ((char *)dst + at, (const char *)src + at,
                 LOONG_MIN(bytes - at, d->chunk),
                 d->lib->values.device_to_device, stream));
    }
    return LOONG_OK;
}

/* ---- to and from the host ------------------------------------------------ */

typedef struct copy {
    xpu_side_t to;
    xpu_side_t from;
} copy_t;

static loong_status_t copy_some(xpu_data_t *d, void *stream, copy_t c,
                                const loong_device_rows_t *r)
{
    bool there = c.to == XPU_DEVICE;
    int kind =
        there ? d->lib->values.host_to_device : d->lib->values.device_to_host;
    bool pinned = (there ? c.from : c.to) == XPU_PINNED;
    for (size_t at = 0; at < r->bytes && pinned; at += d->chunk) {
        size_t n = LOONG_MIN(r->bytes - at, d->chunk);
        XPU_TRY(
            d, memcpy_async,
            ((char *)r->dst + at, (const char *)r->src + at, n, kind, stream));
    }
    if (!pinned) {
        XPU_TRY(d, memcpy, (r->dst, r->src, r->bytes, kind));
    }
    return LOONG_OK;
}

/* ---- slots --------------------------------------------------------------- */

static loong_status_t copy_rows(xpu_data_t *d, void *stream, copy_t c,
                                const loong_device_rows_t *r)
{
    bool inside = c.to == XPU_DEVICE && c.from == XPU_DEVICE;
    bool host = c.to != XPU_DEVICE && c.from != XPU_DEVICE;
    int error = 0;
    if (inside && d->lib->shim != NULL && d->lib->shim->copy != NULL) {
        XPU_CALL(d, error, d->lib->shim->copy(r, stream));
        return error == 0 ? LOONG_OK : loongi_xpu_shim_failed(d, "copy", error);
    }
    if (!inside && (c.to == XPU_HOST || c.from == XPU_HOST || host)) {
        XPU_TRY(d, wait, (stream));
    }
    for (size_t i = 0; i < r->rows; i++) {
        loong_device_rows_t one = {(char *)r->dst + i * r->dst_apart,
                                   r->bytes,
                                   (const char *)r->src + i * r->src_apart,
                                   r->bytes,
                                   r->bytes,
                                   1};
        if (inside) {
            LOONG_TRY(copy_inside(d, stream, one.dst, one.src, one.bytes));
        } else if (host) {
            memmove(one.dst, one.src, one.bytes);
        } else {
            LOONG_TRY(copy_some(d, stream, c, &one));
        }
    }
    return LOONG_OK;
}

static size_t reach(size_t apart, const loong_device_rows_t *r)
{
    return r->rows > 0 ? (r->rows - 1) * apart + r->bytes : 0;
}

loong_status_t loongi_xpu_copy_rows(void *data, void *stream,
                                    const loong_device_rows_t *rows)
{
    xpu_data_t *d = data;
    copy_t c;
    if (rows->rows == 0 || rows->bytes == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loongi_xpu_side(d, rows->dst, reach(rows->dst_apart, rows), &c.to));
    LOONG_TRY(
        loongi_xpu_side(d, rows->src, reach(rows->src_apart, rows), &c.from));
    return copy_rows(d, stream, c, rows);
}

loong_status_t loongi_xpu_copy(void *data, void *stream, void *dst,
                               const void *src, size_t bytes)
{
    loong_device_rows_t r = {dst, bytes, src, bytes, bytes, 1};
    return loongi_xpu_copy_rows(data, stream, &r);
}

/* Without a kernel for it: copies of a pinned pattern, which may be changed
 * when they are done. */
static loong_status_t fill_by_copies(xpu_data_t *d, void *stream, char *dst,
                                     int byte, size_t bytes)
{
    pthread_mutex_lock(&d->lock);
    bool same = d->pattern_byte == byte;
    pthread_mutex_unlock(&d->lock);
    if (!same) {
        LOONG_TRY(loongi_xpu_wait_all(d));
        pthread_mutex_lock(&d->lock);
        memset(d->pattern, byte, d->chunk);
        d->pattern_byte = byte;
        pthread_mutex_unlock(&d->lock);
    }
    for (size_t at = 0; at < bytes; at += d->chunk) {
        XPU_TRY(d, memcpy_async,
                (dst + at, d->pattern, LOONG_MIN(bytes - at, d->chunk),
                 d->lib->values.host_to_device, stream));
    }
    return LOONG_OK;
}

loong_status_t loongi_xpu_fill(void *data, void *stream, void *dst, int byte,
                               size_t bytes)
{
    xpu_data_t *d = data;
    int error = 0;
    if (d->pattern != NULL) {
        return fill_by_copies(d, stream, dst, byte & 0xff, bytes);
    }
    XPU_CALL(d, error, d->lib->shim->fill(dst, byte, bytes, stream));
    return error == 0 ? LOONG_OK : loongi_xpu_shim_failed(d, "fill", error);
}
