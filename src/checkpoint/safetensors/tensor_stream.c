/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that fill a file. Fetching and writing go on side by side; the
 * checksum takes the blocks in the order of the file. Called by
 * safetensors_write.c and native_write.c. Read tensor_stream.h before. */
#define _GNU_SOURCE
#include "tensor_stream.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "checksum.h"
#include "file.h"
#include "mapped.h"

enum { BLOCK_BYTES = 16 << 20, HOLE_BYTES = 64 << 10, MAX_THREADS = 8 };

typedef struct block {
    int64_t number;
    const loong_stream_item_t *item;
    int64_t row; /* of the item */
    int64_t rows;
    int64_t offset; /* in the file */
    int64_t bytes;
} block_t;

typedef struct stream {
    loong_context_t *ctx;
    const loong_stream_params_t *params;
    size_t buffer_bytes;
    loong_checksum_t *sum; /* NULL: not wanted */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    int64_t item; /* of the next block */
    int64_t row;
    int64_t number;
    int64_t turn; /* the block that the checksum takes next */
    loong_status_t status;
    /* of the thread whose turn it is */
    int64_t summed; /* bytes of the file */
} stream_t;

typedef struct worker {
    stream_t *stream;
    void *buffer;
    pthread_t thread;
    bool running;
} worker_t;

void loongi_meter_add(loong_meter_t *meter, int64_t bytes)
{
    meter->done += bytes;
    if (meter->progress != NULL) {
        meter->progress(meter->user, meter->done, meter->total);
    }
}

static int64_t rows_of_block(const loong_stream_item_t *item)
{
    return LOONG_MAX(BLOCK_BYTES / LOONG_MAX(item->row_bytes, 1), 1);
}

/* The next block; false when there is none or somebody failed. */
static bool take_block(stream_t *s, block_t *b)
{
    bool taken = false;
    pthread_mutex_lock(&s->lock);
    while (s->status == LOONG_OK && s->item < s->params->count && !taken) {
        const loong_stream_item_t *item = &s->params->items[s->item];
        b->rows = LOONG_MIN(rows_of_block(item), item->rows - s->row);
        b->bytes = b->rows * item->row_bytes;
        if (b->bytes == 0) { /* the item's end */
            s->item++;
            s->row = 0;
            continue;
        }
        b->item = item;
        b->row = s->row;
        b->offset = item->offset + s->row * item->row_bytes;
        b->number = s->number++;
        s->row += b->rows;
        taken = true;
    }
    pthread_mutex_unlock(&s->lock);
    return taken;
}

/* What lies between the items is read back: it was written by others. */
static loong_status_t sum_gap(stream_t *s, int64_t end)
{
    char bytes[4096];
    while (s->summed < end) {
        size_t want = (size_t)LOONG_MIN(end - s->summed,
                                        (int64_t)sizeof(bytes));
        ssize_t n = pread(s->params->fd, bytes, want, (off_t)s->summed);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        LOONG_CHECK(s->ctx, n > 0, LOONG_ERR_IO, "cannot read '%s': %s",
                    s->params->path, n < 0 ? strerror(errno) : "it shrank");
        loongi_checksum_add(s->sum, bytes, (size_t)n);
        s->summed += n;
    }
    return LOONG_OK;
}

static void sum_zeros(stream_t *s, int64_t bytes)
{
    static const char zeros[HOLE_BYTES];
    while (bytes > 0) {
        int64_t n = LOONG_MIN(bytes, (int64_t)HOLE_BYTES);
        loongi_checksum_add(s->sum, zeros, (size_t)n);
        bytes -= n;
    }
}

static loong_status_t sum_block(stream_t *s, const block_t *b,
                                const void *data)
{
    pthread_mutex_lock(&s->lock);
    while (s->turn != b->number && s->status == LOONG_OK) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    loong_status_t status = s->status;
    pthread_mutex_unlock(&s->lock);
    LOONG_TRY(status);
    LOONG_TRY(sum_gap(s, b->offset));
    if (data != NULL) {
        loongi_checksum_add(s->sum, data, (size_t)b->bytes);
    } else {
        sum_zeros(s, b->bytes);
    }
    s->summed += b->bytes;
    pthread_mutex_lock(&s->lock);
    s->turn++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return LOONG_OK;
}

static bool is_zero(const char *bytes, size_t length)
{
    return bytes[0] == 0 &&
           (length == 1 || memcmp(bytes, bytes + 1, length - 1) == 0);
}

static loong_status_t write_range(stream_t *s, const block_t *b,
                                  const char *data, int64_t begin, int64_t end)
{
    return begin == end
               ? LOONG_OK
               : loongi_file_pwrite(s->ctx, s->params->fd, s->params->path,
                                    data + begin, (size_t)(end - begin),
                                    (off_t)(b->offset + begin));
}

/* All but stretches of zeros. */
static loong_status_t write_block(stream_t *s, const block_t *b,
                                  const char *data)
{
    int64_t begin = 0;
    for (int64_t at = 0; at < b->bytes; at += HOLE_BYTES) {
        int64_t n = LOONG_MIN(b->bytes - at, (int64_t)HOLE_BYTES);
        if (is_zero(data + at, (size_t)n)) {
            LOONG_TRY(write_range(s, b, data, begin, at));
            begin = at + n;
        }
    }
    LOONG_TRY(write_range(s, b, data, begin, b->bytes));
    loongi_file_flush(s->params->fd, b->offset, b->bytes);
    return LOONG_OK;
}

static loong_status_t move_block(stream_t *s, const block_t *b, void *buffer)
{
    const loong_stream_params_t *p = s->params;
    const void *data = buffer;
    LOONG_TRY(p->source(p->user, b->item->index, b->item->first + b->row,
                        b->rows, buffer, &data));
    bool borrowed = data != NULL && data != buffer;
    if (borrowed) {
        loongi_mapped_prefetch(data, (size_t)b->bytes);
    }
    if (s->sum != NULL) {
        LOONG_TRY(sum_block(s, b, data));
    }
    if (data != NULL) {
        LOONG_TRY(write_block(s, b, data));
    }
    if (borrowed) {
        loongi_mapped_release(data, (size_t)b->bytes);
    }
    return LOONG_OK;
}

static void *work(void *user)
{
    worker_t *w = user;
    stream_t *s = w->stream;
    block_t b = {0};
    while (take_block(s, &b)) {
        loong_status_t status = move_block(s, &b, w->buffer);
        pthread_mutex_lock(&s->lock);
        if (status == LOONG_OK) {
            loongi_meter_add(s->params->meter, b.bytes);
        } else if (s->status == LOONG_OK) {
            s->status = status;
            pthread_cond_broadcast(&s->changed);
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

/* A thread that cannot be started is one less; this one works as well. */
static void run_threads(worker_t *workers, int count)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 1; i < count; i++) {
        workers[i].running =
            pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    work(&workers[0]);
    for (int i = 1; i < count; i++) {
        if (workers[i].running) {
            pthread_join(workers[i].thread, NULL);
        }
    }
}

static int count_threads(const loong_stream_params_t *params)
{
    int64_t blocks = 0;
    for (int64_t i = 0; i < params->count; i++) {
        const loong_stream_item_t *item = &params->items[i];
        blocks += (item->rows + rows_of_block(item) - 1) / rows_of_block(item);
    }
    cpu_set_t set;
    int64_t most = sched_getaffinity(0, sizeof(set), &set) == 0
                       ? CPU_COUNT(&set)
                       : (int64_t)sysconf(_SC_NPROCESSORS_ONLN);
    most = LOONG_MAX(most, 2); /* one waits for the disk, one works */
    most = LOONG_MIN(most, (int64_t)MAX_THREADS);
    return (int)LOONG_MAX(LOONG_MIN(most, blocks), 1);
}

static loong_status_t run(stream_t *s)
{
    worker_t workers[MAX_THREADS] = {0};
    loong_status_t status = LOONG_OK;
    int count = count_threads(s->params);
    for (int64_t i = 0; i < s->params->count; i++) {
        const loong_stream_item_t *item = &s->params->items[i];
        int64_t rows = LOONG_MIN(rows_of_block(item), item->rows);
        s->buffer_bytes =
            LOONG_MAX(s->buffer_bytes, (size_t)(rows * item->row_bytes));
    }
    for (int i = 0; i < count && status == LOONG_OK; i++) {
        workers[i].stream = s;
        status = loongi_alloc(s->ctx, s->buffer_bytes, "block of a file",
                              &workers[i].buffer);
    }
    if (status == LOONG_OK) {
        run_threads(workers, count);
        status = s->status;
    }
    for (int i = 0; i < count; i++) {
        loongi_free(s->ctx, workers[i].buffer);
    }
    return status;
}

loong_status_t loongi_stream_fill(loong_context_t *ctx,
                                  const loong_stream_params_t *params,
                                  uint64_t *xxh3_p)
{
    stream_t s = {0};
    s.ctx = ctx;
    s.params = params;
    if (xxh3_p != NULL) {
        LOONG_TRY(loongi_checksum_create(ctx, &s.sum));
    }
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.changed, NULL);
    loong_status_t status = run(&s);
    if (status == LOONG_OK && s.sum != NULL) {
        status = sum_gap(&s, params->bytes);
    }
    if (status == LOONG_OK && s.sum != NULL) {
        *xxh3_p = loongi_checksum_get(s.sum);
    }
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
    loongi_checksum_destroy(&s.sum);
    return status;
}
