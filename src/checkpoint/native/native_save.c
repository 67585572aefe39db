/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving, the part of one rank: its file is laid out, then filled from live
 * memory, on the caller's thread or on a helper thread. Beside it a list of
 * its pieces is left for rank 0. Called by component_native.c, by the training
 * loop and by trainer_save.c. Read native_save.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "convert.h"
#include "file.h"
#include "native_h5.h"
#include "native_save.h"

enum { FETCH_BYTES = 4 << 20 };

static loong_status_t check_piece(loong_checkpoint_save_t *save,
                                  const loong_checkpoint_piece_t *p)
{
    loong_context_t *ctx = save->ctx;
    LOONG_CHECK(ctx, save->stage == LOONG_SAVE_OPEN, LOONG_ERR_ARG,
                "piece of '%s' added after the start", p->name);
    LOONG_CHECK(ctx,
                p->name[0] != '\0' && strchr(p->name, '/') == NULL &&
                    p->kind[0] != '\0' && strchr(p->kind, '/') == NULL &&
                    strcmp(p->kind, "metadata") != 0,
                LOONG_ERR_ARG,
                "'%s' '%s' cannot be the kind and name of a "
                "tensor",
                p->kind, p->name);
    LOONG_CHECK(ctx, !loongi_dtype_is_fp8(p->dtype), LOONG_ERR_UNSUPPORTED,
                "tensor '%s' cannot be saved as %s", p->name,
                loong_dtype_name(p->dtype));
    LOONG_CHECK(ctx, p->ndim >= 0 && p->ndim <= LOONG_TENSOR_MAX_DIMS,
                LOONG_ERR_ARG,
                "tensor '%s' has %d dimensions, 0 to %d are "
                "allowed",
                p->name, p->ndim, (int)LOONG_TENSOR_MAX_DIMS);
    LOONG_CHECK(ctx, p->data != NULL || p->fetch != NULL, LOONG_ERR_ARG,
                "piece of '%s' has neither data nor fetch", p->name);
    for (int d = 0; d < p->ndim; d++) {
        LOONG_CHECK(ctx,
                    p->begin[d] >= 0 && p->count[d] > 0 &&
                        p->count[d] <= p->shape[d] - p->begin[d],
                    LOONG_ERR_ARG,
                    "piece of '%s': %" PRId64 " + %" PRId64 " of %" PRId64
                    " in dimension %d",
                    p->name, p->begin[d], p->count[d], p->shape[d], d);
    }
    return LOONG_OK;
}

/* "/KIND/NAME"; further pieces of one tensor have a number behind it. */
static loong_status_t dataset_name(loong_checkpoint_save_t *save,
                                   const loong_checkpoint_piece_t *piece,
                                   uint64_t *key_p, char **name_p)
{
    int64_t earlier = 0;
    LOONG_TRY(loongi_arena_printf(save->arena, name_p, "/%s/%s", piece->kind,
                                  piece->name));
    *key_p = loongi_checksum(*name_p, strlen(*name_p));
    for (int64_t i = 0; i < save->layout->piece_count; i++) {
        earlier += save->sources[i].key == *key_p;
    }
    return earlier == 0 ? LOONG_OK
                        : loongi_arena_printf(save->arena, name_p,
                                              "/%s/%s@%" PRId64, piece->kind,
                                              piece->name, earlier);
}

loong_status_t loongi_checkpoint_save_add(loong_checkpoint_save_t *save,
                                          const loong_checkpoint_piece_t *piece)
{
    loong_layout_piece_t entry;
    uint64_t key = 0;
    char *dataset = NULL;
    for (int d = 0; d < piece->ndim; d++) {
        if (piece->count[d] == 0) {
            return LOONG_OK;
        }
    }
    LOONG_TRY(check_piece(save, piece));
    LOONG_TRY(dataset_name(save, piece, &key, &dataset));
    memset(&entry, 0, sizeof(entry));
    entry.tensor.kind = piece->kind;
    entry.tensor.name = piece->name;
    entry.tensor.dtype = piece->dtype;
    entry.tensor.ndim = piece->ndim;
    entry.dataset = dataset;
    for (int d = 0; d < piece->ndim; d++) {
        entry.tensor.shape[d] = piece->shape[d];
        entry.begin[d] = piece->begin[d];
        entry.count[d] = piece->count[d];
    }
    LOONG_TRY(loongi_grow(save->ctx, &save->sources, &save->source_capacity,
                          save->layout->piece_count + 1, sizeof(*save->sources),
                          "checkpoint sources"));
    loong_save_source_t *source = &save->sources[save->layout->piece_count];
    source->data = piece->data;
    source->fetch = piece->fetch;
    source->user = piece->user;
    source->key = key;
    return loongi_layout_add_piece(save->layout, &entry);
}

/* ---- the writer ---- */

/* Space is asked for before the data is moved, so that a full disk is found
 * at once. File systems without this answer when the data is written. */
static loong_status_t reserve(loong_context_t *ctx, int fd, const char *path,
                              int64_t *bytes_p)
{
    struct stat info;
    LOONG_CHECK(ctx, fstat(fd, &info) == 0, LOONG_ERR_IO,
                "cannot inspect '%s': %s", path, strerror(errno));
    int code = posix_fallocate(fd, 0, info.st_size);
    LOONG_CHECK(ctx, code == 0 || code == EOPNOTSUPP || code == EINVAL,
                LOONG_ERR_IO, "cannot write '%s' (%lld bytes): %s", path,
                (long long)info.st_size, strerror(code));
    *bytes_p = info.st_size;
    return LOONG_OK;
}

static loong_status_t write_fetched(loong_context_t *ctx, int fd,
                                    const char *path,
                                    const loong_layout_piece_t *piece,
                                    const loong_save_source_t *source)
{
    int64_t rows = piece->tensor.ndim > 0 ? piece->count[0] : 1;
    size_t row_bytes =
        (size_t)(loongi_shape_count(piece->tensor.ndim, piece->count) / rows) *
        loong_dtype_size(piece->tensor.dtype);
    int64_t step = LOONG_MAX((int64_t)(FETCH_BYTES / row_bytes), 1);
    void *buffer = NULL;
    loong_status_t status = LOONG_OK;
    step = LOONG_MIN(step, rows);
    LOONG_TRY(loongi_calloc(ctx, (size_t)step, row_bytes, "checkpoint rows",
                            &buffer));
    for (int64_t row = 0; row < rows && status == LOONG_OK; row += step) {
        int64_t n = LOONG_MIN(step, rows - row);
        status = source->fetch(source->user, row, n, buffer);
        if (status != LOONG_OK) {
            status = LOONG_FAIL(ctx, status, "cannot fetch rows of '%s': %s",
                                piece->tensor.name, loong_status_text(status));
            break;
        }
        status = loongi_file_pwrite(
            ctx, fd, path, buffer, (size_t)n * row_bytes,
            (off_t)(piece->offset + row * (int64_t)row_bytes));
    }
    loongi_free(ctx, buffer);
    return status;
}

static loong_status_t write_pieces(loong_checkpoint_save_t *save,
                                   loong_context_t *ctx, int fd)
{
    LOONG_TRY(
        reserve(ctx, fd, save->file_path, &save->layout->files[0].bytes));
    for (int64_t i = 0; i < save->layout->piece_count; i++) {
        const loong_layout_piece_t *piece = &save->layout->pieces[i];
        const loong_save_source_t *source = &save->sources[i];
        if (source->data == NULL) {
            LOONG_TRY(write_fetched(ctx, fd, save->file_path, piece, source));
            continue;
        }
        size_t bytes =
            (size_t)loongi_shape_count(piece->tensor.ndim, piece->count) *
            loong_dtype_size(piece->tensor.dtype);
        LOONG_TRY(loongi_file_pwrite(ctx, fd, save->file_path, source->data,
                                     bytes, (off_t)piece->offset));
    }
    return LOONG_OK;
}

static void signal_flag(loong_checkpoint_save_t *save, bool *flag)
{
    pthread_mutex_lock(&save->lock);
    *flag = true;
    pthread_cond_broadcast(&save->changed);
    pthread_mutex_unlock(&save->lock);
}

static loong_status_t write_file(loong_checkpoint_save_t *save,
                                 loong_context_t *ctx)
{
    const char *path = save->file_path;
    LOONG_CHECK(ctx, loongi_dir_exists(save->tmp_dir), LOONG_ERR_IO,
                "the directory that rank 0 made is not visible: the ranks "
                "must share a file system");
    LOONG_TRY(loongi_h5_create_rank(ctx, path, save->layout->pieces,
                                    save->layout->piece_count, false));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_IO, "cannot open '%s': %s", path,
                strerror(errno));
    loong_status_t status = write_pieces(save, ctx, fd);
    signal_flag(save, &save->data_done);
    if (status == LOONG_OK) {
        status = loongi_file_sync(ctx, fd, path);
    }
    close(fd);
    LOONG_TRY(status);
    LOONG_TRY(loongi_checksum_file(ctx, path, &save->layout->files[0].xxh3));
    return loongi_layout_write_list(ctx, save->layout, save->params.step,
                                    save->list_path);
}

/* ---- work, on a thread or not ---- */

/* Of this thread. */
static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Both flags are set whatever happens. */
static void run_work(loong_checkpoint_save_t *save, loong_context_t *ctx)
{
    double begin = loongi_now();
    double cpu_begin = cpu_now();
    save->status = save->work(save, ctx);
    if (save->status != LOONG_OK) {
        snprintf(save->error, sizeof(save->error), "%s",
                 loong_context_error(ctx));
        loong_context_clear_error(ctx); /* the ranks agree on it first */
    }
    save->seconds += loongi_now() - begin;
    save->cpu_seconds += cpu_now() - cpu_begin;
    signal_flag(save, &save->data_done);
    signal_flag(save, &save->work_done);
}

static void fail_work(loong_checkpoint_save_t *save, const char *what,
                      const char *why)
{
    save->status = LOONG_ERR_MEMORY;
    snprintf(save->error, sizeof(save->error), "%s: %s", what, why);
    signal_flag(save, &save->data_done);
    signal_flag(save, &save->work_done);
}

static void *work_thread(void *user)
{
    loong_checkpoint_save_t *save = user;
    loong_context_t *ctx = NULL; /* a context belongs to one thread */
    if (loong_context_create(NULL, &ctx) == LOONG_OK) {
        run_work(save, ctx);
        loong_context_destroy(&ctx);
    } else {
        fail_work(save, "the checkpoint thread", "no memory for a context");
    }
    return NULL;
}

/* The thread takes no signals: they are the trainer's. */
static int start_thread(loong_checkpoint_save_t *save)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&save->thread, NULL, work_thread, save);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code;
}

void loongi_save_work(loong_checkpoint_save_t *save, loong_save_work_fn work)
{
    save->work = work;
    save->work_done = false;
    if (!save->params.async) {
        run_work(save, save->ctx);
        return;
    }
    int code = start_thread(save);
    save->threaded = code == 0;
    if (code != 0) {
        fail_work(save, "cannot start the checkpoint thread", strerror(code));
    }
}

loong_status_t loongi_checkpoint_save_start(loong_checkpoint_save_t *save)
{
    LOONG_CHECK(save->ctx, save->stage == LOONG_SAVE_OPEN, LOONG_ERR_ARG,
                "the save was already started");
    LOONG_TRY(loongi_layout_add_file(save->layout, save->file_name, 0, 0));
    save->stage = LOONG_SAVE_WRITING;
    loongi_save_work(save, write_file);
    return LOONG_OK;
}

double loongi_checkpoint_save_wait(loong_checkpoint_save_t *save)
{
    double begin = loongi_now();
    if (save->stage == LOONG_SAVE_OPEN) {
        return 0;
    }
    pthread_mutex_lock(&save->lock);
    while (!save->data_done) {
        pthread_cond_wait(&save->changed, &save->lock);
    }
    pthread_mutex_unlock(&save->lock);
    return loongi_now() - begin;
}

bool loongi_checkpoint_save_ready(loong_checkpoint_save_t *save)
{
    pthread_mutex_lock(&save->lock);
    bool ready = save->work_done;
    pthread_mutex_unlock(&save->lock);
    return ready;
}

double loongi_checkpoint_save_seconds(loong_checkpoint_save_t *save)
{
    return loongi_checkpoint_save_ready(save) ? save->seconds : 0;
}

double loongi_checkpoint_save_cpu_seconds(loong_checkpoint_save_t *save)
{
    return loongi_checkpoint_save_ready(save) ? save->cpu_seconds : 0;
}

int64_t loongi_checkpoint_save_bytes(loong_checkpoint_save_t *save)
{
    return loongi_checkpoint_save_ready(save) ? save->layout->files[0].bytes
                                              : 0;
}
