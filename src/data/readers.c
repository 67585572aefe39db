/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that read ahead. Called by the loader. Read readers.h before. */
#include "readers.h"

#include <pthread.h>
#include <string.h>

typedef struct reader {
    loong_readers_t *all;
    int number;
    pthread_t thread;
} reader_t;

struct loong_readers {
    loong_context_t *ctx;
    loong_reader_fn run;
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t begun, done;
    int64_t tasks, next, finished;
    bool ends;
    int count; /* that run */
    reader_t *readers;
};

static void *work(void *opaque)
{
    const reader_t *self = opaque;
    loong_readers_t *r = self->all;
    pthread_mutex_lock(&r->lock);
    while (!r->ends) {
        if (r->next == r->tasks) {
            pthread_cond_wait(&r->begun, &r->lock);
            continue;
        }
        int64_t i = r->next++;
        pthread_mutex_unlock(&r->lock);
        r->run(r->user, self->number, i);
        pthread_mutex_lock(&r->lock);
        if (++r->finished == r->tasks) {
            pthread_cond_broadcast(&r->done);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static loong_status_t start_threads(loong_readers_t *r, int count)
{
    LOONG_TRY(loongi_calloc(r->ctx, (size_t)count, sizeof(*r->readers),
                            "reading threads", &r->readers));
    for (; r->count < count; r->count++) {
        reader_t *reader = &r->readers[r->count];
        reader->all = r;
        reader->number = r->count;
        int error = pthread_create(&reader->thread, NULL, work, reader);
        LOONG_CHECK(r->ctx, error == 0, LOONG_ERR_MEMORY,
                    "cannot start thread %d of %d that read samples: %s",
                    r->count + 1, count, strerror(error));
    }
    return LOONG_OK;
}

loong_status_t loongi_readers_create(loong_context_t *ctx, int count,
                                     loong_reader_fn run, void *user,
                                     loong_readers_t **readers_p)
{
    loong_readers_t *r = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*r), "reading threads", &r));
    r->ctx = ctx;
    r->run = run;
    r->user = user;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->begun, NULL);
    pthread_cond_init(&r->done, NULL);
    loong_status_t status = start_threads(r, count);
    if (status != LOONG_OK) {
        loongi_readers_destroy(&r);
        return status;
    }
    *readers_p = r;
    return LOONG_OK;
}

void loongi_readers_destroy(loong_readers_t **readers)
{
    loong_readers_t *r = *readers;
    if (r == NULL) {
        return;
    }
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_broadcast(&r->begun);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->count; i++) {
        pthread_join(r->readers[i].thread, NULL);
    }
    pthread_cond_destroy(&r->done);
    pthread_cond_destroy(&r->begun);
    pthread_mutex_destroy(&r->lock);
    loongi_free(r->ctx, r->readers);
    loongi_free(r->ctx, r);
    *readers = NULL;
}

void loongi_readers_start(loong_readers_t *readers, int64_t tasks)
{
    loong_readers_t *r = readers;
    loongi_readers_wait(r);
    pthread_mutex_lock(&r->lock);
    r->tasks = tasks;
    r->next = r->finished = 0;
    pthread_cond_broadcast(&r->begun);
    pthread_mutex_unlock(&r->lock);
}

void loongi_readers_wait(loong_readers_t *readers)
{
    loong_readers_t *r = readers;
    pthread_mutex_lock(&r->lock);
    while (r->finished < r->tasks) {
        pthread_cond_wait(&r->done, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
}
