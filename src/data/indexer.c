/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline: the calling thread fills jobs with records and writes
 * finished jobs, both in ring order; workers take full jobs. A job is touched
 * by one thread at a time, so it owns a context. Called by
 * tools/loong_data_index.c. Read loong/indexer.h before. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "loong/dataset.h"
#include "loong/dataset_merge.h"
#include "loong/indexer.h"
#include "utf8.h"

enum {
    JOB_BYTES = 1 << 20,
    MAX_THREADS = 256,
    MAX_NAMED = 20, /* skipped lines that are warnings of their own */
    SKIPPED = -1
};

typedef enum job_state { JOB_FREE, JOB_FULL, JOB_BUSY, JOB_DONE } job_state_t;

typedef struct job_record {
    loong_record_t record; /* bytes: offset by `at` */
    size_t at;
    int64_t tokens; /* or SKIPPED */
} job_record_t;

typedef struct job {
    loong_context_t *ctx;
    job_state_t state;
    loong_status_t status; /* of the worker, its message in ctx */
    char *bytes;           /* copies of the records */
    int64_t length;
    int64_t bytes_size;
    job_record_t *records;
    int64_t count;
    int64_t records_size;
    int32_t *ids;
    int64_t num_ids;
    int64_t ids_size;
    int64_t text_bytes;
    int64_t not_utf8;
} job_t;

typedef struct pipeline {
    loong_context_t *ctx;
    const loong_index_params_t *params;
    loong_dataset_writer_t *writer;
    loong_index_result_t result;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    int64_t num_jobs;
    job_t *jobs;    /* a ring */
    int64_t filled; /* jobs handed out, taken and written so far */
    int64_t taken;
    int64_t written;
    loong_status_t worker_status; /* of an encoder that was not created */
    char worker_error[1024];
    int started;
    pthread_t *threads;
} pipeline_t;

/* An encoder and the context that its errors go to. */
typedef struct worker {
    loong_context_t *ctx;
    void *encoder;
} worker_t;

static loong_status_t encode_record(const pipeline_t *p, const worker_t *w,
                                    job_t *job, job_record_t *r)
{
    const int32_t *ids = NULL;
    int64_t count = 0;
    char *text = NULL;
    size_t length = 0;
    r->record.bytes = job->bytes + r->at;
    loong_status_t status = loong_record_text(
        job->ctx, &r->record, p->params->json_key, &text, &length);
    if (status == LOONG_ERR_FORMAT && p->params->skip_broken) {
        loong_context_clear_error(job->ctx);
        r->tokens = SKIPPED;
        return LOONG_OK;
    }
    LOONG_TRY(status);
    job->not_utf8 += !loongi_utf8_valid(text, length);
    status = p->params->encoder->encode(w->encoder, text, length, &ids, &count);
    loong_record_free(job->ctx, &text);
    if (status != LOONG_OK) {
        loongi_error_note(job->ctx, "%s", loong_context_error(w->ctx));
        loongi_error_note(job->ctx, "while encoding %s:%" PRId64,
                          r->record.path, r->record.line);
        return status;
    }
    bool append = p->params->append_id >= 0 && count > 0;
    r->tokens = count + append;
    LOONG_TRY(loongi_grow(job->ctx, &job->ids, &job->ids_size,
                          job->num_ids + r->tokens, sizeof(*job->ids),
                          "token ids"));
    if (count > 0) {
        memcpy(job->ids + job->num_ids, ids, (size_t)count * sizeof(*ids));
    }
    job->num_ids += r->tokens;
    if (append) {
        job->ids[job->num_ids - 1] = (int32_t)p->params->append_id;
    }
    job->text_bytes += (int64_t)length;
    return LOONG_OK;
}

static void encode_job(const pipeline_t *p, const worker_t *w, job_t *job)
{
    job->status = LOONG_OK;
    for (int64_t i = 0; job->status == LOONG_OK && i < job->count; i++) {
        job->status = encode_record(p, w, job, &job->records[i]);
    }
}

/* Waits for a job; NULL when the work is over. */
static job_t *take_job(pipeline_t *p)
{
    job_t *job = NULL;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && p->taken == p->filled) {
        pthread_cond_wait(&p->changed, &p->lock);
    }
    if (!p->stop) {
        job = &p->jobs[p->taken++ % p->num_jobs];
        job->state = JOB_BUSY;
    }
    pthread_mutex_unlock(&p->lock);
    return job;
}

static void set_state(pipeline_t *p, job_t *job, job_state_t state)
{
    pthread_mutex_lock(&p->lock);
    job->state = state;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void fail_worker(pipeline_t *p, loong_context_t *ctx,
                        loong_status_t status)
{
    pthread_mutex_lock(&p->lock);
    if (p->worker_status == LOONG_OK) {
        const char *text = ctx != NULL ? loong_context_error(ctx) : "";
        size_t n = LOONG_MIN(strlen(text), sizeof(p->worker_error) - 1);
        memcpy(p->worker_error, text, n);
        p->worker_error[n] = '\0';
        p->worker_status = status;
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    pipeline_t *p = arg;
    const loong_encoder_ops_t *ops = p->params->encoder;
    worker_t w = {NULL, NULL};
    loong_status_t status = loong_context_create(NULL, &w.ctx);
    if (status == LOONG_OK) {
        status = ops->create(p->params->encoder_user, w.ctx, &w.encoder);
    }
    if (status == LOONG_OK) {
        for (job_t *job = take_job(p); job != NULL; job = take_job(p)) {
            encode_job(p, &w, job);
            set_state(p, job, JOB_DONE);
        }
        ops->destroy(w.encoder);
    } else {
        fail_worker(p, w.ctx, status);
    }
    loong_context_destroy(&w.ctx);
    return NULL;
}

/* Copies records into the job until it is large; *end_p: there are no more. */
static loong_status_t fill_job(pipeline_t *p, job_t *job, bool *end_p)
{
    loong_record_t record;
    job->length = job->count = job->num_ids = job->text_bytes = 0;
    job->not_utf8 = 0;
    while (job->length < JOB_BYTES) {
        LOONG_TRY(loong_corpus_next(p->params->corpus, &record));
        if (record.bytes == NULL) {
            *end_p = true;
            return LOONG_OK;
        }
        LOONG_TRY(loongi_grow(job->ctx, &job->bytes, &job->bytes_size,
                              job->length + (int64_t)record.length, 1,
                              "records"));
        LOONG_TRY(loongi_grow(job->ctx, &job->records, &job->records_size,
                              job->count + 1, sizeof(*job->records),
                              "record list"));
        memcpy(job->bytes + job->length, record.bytes, record.length);
        job->records[job->count].record = record;
        job->records[job->count++].at = (size_t)job->length;
        job->length += (int64_t)record.length;
    }
    return LOONG_OK;
}

/* Reads the record again, here and in the order of the corpus, for the words
 * of the warning. */
static void tell_skipped(pipeline_t *p, const job_record_t *r)
{
    char *text = NULL;
    size_t length = 0;
    if (p->result.skipped++ >= MAX_NAMED) {
        return;
    }
    if (loong_record_text(p->ctx, &r->record, p->params->json_key, &text,
                          &length) == LOONG_ERR_FORMAT) {
        loongi_log(p->ctx, LOONG_LOG_WARN, "left out: %s",
                   loong_context_error(p->ctx));
    }
    loong_record_free(p->ctx, &text);
    loong_context_clear_error(p->ctx);
}

static loong_status_t write_job(pipeline_t *p, job_t *job)
{
    int64_t at = 0;
    if (job->status != LOONG_OK) {
        return LOONG_FAIL(p->ctx, job->status, "%s",
                          loong_context_error(job->ctx));
    }
    for (int64_t i = 0; i < job->count; i++) {
        int64_t tokens = job->records[i].tokens;
        if (tokens == SKIPPED) {
            tell_skipped(p, &job->records[i]);
            continue;
        }
        if (tokens == 0) {
            p->result.empty++;
            continue;
        }
        LOONG_TRY(
            loong_dataset_writer_add(p->writer, job->ids + at, NULL, tokens));
        LOONG_TRY(loong_dataset_writer_end_document(p->writer));
        at += tokens;
        p->result.documents++;
    }
    p->result.tokens += at;
    p->result.text_bytes += job->text_bytes;
    p->result.not_utf8 += job->not_utf8;
    return p->params->progress != NULL
               ? p->params->progress(p->params->progress_user, &p->result)
               : LOONG_OK;
}

/* Waits until the oldest job is done, and writes it. */
static loong_status_t drain_one(pipeline_t *p)
{
    job_t *job = &p->jobs[p->written % p->num_jobs];
    pthread_mutex_lock(&p->lock);
    while (job->state != JOB_DONE && p->worker_status == LOONG_OK) {
        pthread_cond_wait(&p->changed, &p->lock);
    }
    loong_status_t failed = p->worker_status;
    pthread_mutex_unlock(&p->lock);
    LOONG_CHECK(p->ctx, failed == LOONG_OK, failed, "%s", p->worker_error);
    LOONG_TRY(write_job(p, job));
    p->written++;
    set_state(p, job, JOB_FREE);
    return LOONG_OK;
}

static loong_status_t run(pipeline_t *p)
{
    bool end = false;
    while (!end) {
        if (p->filled - p->written == p->num_jobs) {
            LOONG_TRY(drain_one(p));
        }
        job_t *job = &p->jobs[p->filled % p->num_jobs];
        loong_status_t status = fill_job(p, job, &end);
        if (status != LOONG_OK) {
            const char *text = loong_context_error(job->ctx);
            return text[0] != '\0' ? LOONG_FAIL(p->ctx, status, "%s", text)
                                   : status;
        }
        pthread_mutex_lock(&p->lock);
        job->state = JOB_FULL;
        p->filled++;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    while (p->written < p->filled) {
        LOONG_TRY(drain_one(p));
    }
    LOONG_CHECK(p->ctx, p->result.tokens > 0, LOONG_ERR_FORMAT,
                "'%s': the corpus gave no token (%" PRId64
                " documents without one, %" PRId64 " broken lines left out)",
                p->params->prefix, p->result.empty, p->result.skipped);
    return loong_dataset_writer_commit(p->writer);
}

static loong_status_t start(pipeline_t *p)
{
    loong_dataset_writer_params_t params = {p->params->prefix, p->params->dtype,
                                            false};
    size_t threads = (size_t)p->params->threads;
    size_t jobs = 2 * threads + 1;
    LOONG_TRY(loong_dataset_writer_create(p->ctx, &params, &p->writer));
    LOONG_TRY(
        loongi_calloc(p->ctx, jobs, sizeof(*p->jobs), "index jobs", &p->jobs));
    for (; p->num_jobs < (int64_t)jobs; p->num_jobs++) {
        LOONG_TRY(loong_context_create(NULL, &p->jobs[p->num_jobs].ctx));
    }
    LOONG_TRY(loongi_calloc(p->ctx, threads, sizeof(*p->threads),
                            "index threads", &p->threads));
    for (; p->started < p->params->threads; p->started++) {
        int code =
            pthread_create(&p->threads[p->started], NULL, worker_main, p);
        LOONG_CHECK(p->ctx, code == 0, LOONG_ERR_MEMORY,
                    "cannot start thread %d of %d: %s", p->started + 1,
                    p->params->threads, strerror(code));
    }
    return LOONG_OK;
}

static void finish(pipeline_t *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++) {
        pthread_join(p->threads[i], NULL);
    }
    for (int64_t i = 0; i < p->num_jobs; i++) {
        job_t *job = &p->jobs[i];
        loongi_free(job->ctx, job->bytes);
        loongi_free(job->ctx, job->records);
        loongi_free(job->ctx, job->ids);
        loong_context_destroy(&job->ctx);
    }
    loong_dataset_writer_destroy(&p->writer);
    loongi_free(p->ctx, p->jobs);
    loongi_free(p->ctx, p->threads);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

static loong_status_t build(loong_context_t *ctx,
                            const loong_index_params_t *params,
                            loong_index_result_t *result)
{
    pipeline_t p = {0};
    LOONG_CHECK(ctx, params->threads >= 1 && params->threads <= MAX_THREADS,
                LOONG_ERR_ARG, "%d threads, allowed are 1 to %d",
                params->threads, MAX_THREADS);
    p.ctx = ctx;
    p.params = params;
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.changed, NULL);
    loong_status_t status = start(&p);
    if (status == LOONG_OK) {
        status = run(&p);
    }
    finish(&p);
    if (status == LOONG_OK) {
        *result = p.result;
    }
    return status;
}

/* The set in the order of the corpus beside the one that is wanted, whose
 * documents are then taken from it. */
static loong_status_t build_shuffled(loong_context_t *ctx,
                                     const loong_index_params_t *params,
                                     const char *sorted,
                                     loong_index_result_t *result)
{
    static const char *const suffixes[] = {".bin", ".idx"};
    loong_index_params_t p = *params;
    loong_dataset_merge_params_t merge = {
        &sorted, 1, params->prefix, true, params->seed, 0.0, 1.0};
    loong_index_result_t made;
    int64_t documents = 0;
    int64_t tokens = 0;
    p.prefix = sorted;
    loong_status_t status = build(ctx, &p, &made);
    if (status == LOONG_OK) {
        status = loong_dataset_merge(ctx, &merge, &documents, &tokens);
    }
    for (int i = 0; i < 2; i++) {
        loong_text_t path = loongi_text_begin(ctx);
        loongi_text_printf(&path, "%s%s", sorted, suffixes[i]);
        (void)unlink(loongi_text_get(&path));
        loongi_text_free(&path);
    }
    if (status == LOONG_OK) {
        *result = made;
    }
    return status;
}

loong_status_t loong_index_build(loong_context_t *ctx,
                                 const loong_index_params_t *params,
                                 loong_index_result_t *result)
{
    if (!params->shuffle) {
        return build(ctx, params, result);
    }
    loong_text_t sorted = loongi_text_begin(ctx);
    loongi_text_printf(&sorted, "%s.sorted", params->prefix);
    loong_status_t status =
        sorted.status != LOONG_OK
            ? sorted.status
            : build_shuffled(ctx, params, sorted.data, result);
    loongi_text_free(&sorted);
    return status;
}
