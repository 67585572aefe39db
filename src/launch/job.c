/* SPDX-License-Identifier: Apache-2.0
 *
 * Job and supervisor: two texts in a directory. Called by
 * src/features/supervise.c, parent.c and loong-supervise. Read loong/job.h
 * before. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"
#include "loong/job.h"

enum { PATH_SIZE = 4096, LINE_SIZE = 512 };

struct loong_job {
    loong_context_t *ctx;
    int file; /* -1: given up */
};

static bool path_of(const char *dir, const char *name, char path[PATH_SIZE])
{
    return snprintf(path, PATH_SIZE, "%s/%s", dir, name) < PATH_SIZE;
}

/* NULL: nobody supervises, or not on this machine. */
static const char *supervised_dir(void)
{
    struct stat info;
    const char *dir = getenv(LOONG_JOB_DIR_ENV);
    bool here = dir != NULL && stat(dir, &info) == 0 && S_ISDIR(info.st_mode);
    return here ? dir : NULL;
}

/* ---- the job ------------------------------------------------------------- */

int loong_job_attempt(void)
{
    const char *text = getenv(LOONG_JOB_ATTEMPT_ENV);
    long attempt = text != NULL ? strtol(text, NULL, 10) : 1;
    return attempt >= 1 && attempt < 1 << 30 ? (int)attempt : 1;
}

loong_status_t loong_job_open(loong_context_t *ctx, loong_job_t **job_p)
{
    char path[PATH_SIZE];
    const char *dir = supervised_dir();
    loong_job_t *job = NULL;
    if (dir == NULL) {
        *job_p = NULL;
        return LOONG_OK;
    }
    LOONG_CHECK(ctx, path_of(dir, "progress", path), LOONG_ERR_IO,
                LOONG_JOB_DIR_ENV ": a path of more than %d bytes", PATH_SIZE);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    LOONG_CHECK(ctx, file >= 0, LOONG_ERR_IO,
                "cannot tell the supervisor: '%s': %s", path, strerror(errno));
    loong_status_t status = loongi_alloc(ctx, sizeof(*job), "progress", &job);
    if (status != LOONG_OK) {
        close(file);
        return status;
    }
    job->ctx = ctx;
    job->file = file;
    *job_p = job;
    return LOONG_OK;
}

void loong_job_tell(loong_job_t *job, const loong_job_progress_t *p)
{
    char line[LINE_SIZE];
    if (job == NULL || job->file < 0) {
        return;
    }
    /* Of one length, so that a later line covers an earlier one. */
    int n = snprintf(line, sizeof(line),
                     "from %019lld step %019lld saved %019lld first %020.6f "
                     "last %020.6f\n",
                     (long long)p->from_step, (long long)p->step,
                     (long long)p->saved_step, p->first_time, p->last_time);
    if (pwrite(job->file, line, (size_t)n, 0) != n) {
        loongi_log(job->ctx, LOONG_LOG_WARN,
                   "cannot tell the supervisor how far the run is: %s",
                   strerror(errno));
        close(job->file);
        job->file = -1;
    }
}

void loong_job_close(loong_job_t **job_p)
{
    loong_job_t *job = *job_p;
    if (job == NULL) {
        return;
    }
    if (job->file >= 0) {
        close(job->file);
    }
    loongi_free(job->ctx, job);
    *job_p = NULL;
}

/* Complete before it has its name; link() refuses a name that is taken. */
void loong_job_tell_verdict(const loong_job_verdict_t *v)
{
    char path[PATH_SIZE];
    char own[PATH_SIZE];
    char name[64];
    char line[LINE_SIZE];
    const char *dir = supervised_dir();
    snprintf(name, sizeof(name), ".verdict_%ld", (long)getpid());
    if (dir == NULL || !path_of(dir, "verdict", path) ||
        !path_of(dir, name, own)) {
        return;
    }
    int n = snprintf(line, sizeof(line), "code %d rank %d time %.6f\n%.*s\n",
                     v->code, v->rank, v->time,
                     (int)strcspn(v->text, "\r\n"), v->text);
    int file = open(own, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) {
        return; /* the supervisor does without: it has the exit code */
    }
    bool whole = write(file, line, (size_t)n) == n;
    close(file);
    int linked = whole ? link(own, path) : -1;
    (void)linked; /* another parent was first */
    unlink(own);
}

/* ---- the supervisor ------------------------------------------------------ */

static bool read_text(const char *dir, const char *name, char *text,
                      size_t size)
{
    char path[PATH_SIZE];
    if (!path_of(dir, name, path)) {
        return false;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    ssize_t n = read(file, text, size - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

bool loong_job_read_progress(const char *dir, loong_job_progress_t *progress_p)
{
    char text[LINE_SIZE];
    long long from = 0;
    long long step = 0;
    long long saved = 0;
    loong_job_progress_t p = {0};
    if (!read_text(dir, "progress", text, sizeof(text)) ||
        sscanf(text, "from %lld step %lld saved %lld first %lf last %lf", &from,
               &step, &saved, &p.first_time, &p.last_time) != 5) {
        return false;
    }
    p.from_step = from;
    p.step = step;
    p.saved_step = saved;
    *progress_p = p;
    return true;
}

bool loong_job_read_verdict(const char *dir, loong_job_verdict_t *verdict_p)
{
    char text[LINE_SIZE];
    loong_job_verdict_t v = {0};
    const char *reason = NULL;
    if (!read_text(dir, "verdict", text, sizeof(text)) ||
        sscanf(text, "code %d rank %d time %lf", &v.code, &v.rank, &v.time) !=
            3 ||
        (reason = strchr(text, '\n')) == NULL) {
        return false;
    }
    reason++;
    snprintf(v.text, sizeof(v.text), "%.*s", (int)strcspn(reason, "\n"),
             reason);
    *verdict_p = v;
    return true;
}

void loong_job_clear(const char *dir)
{
    static const char *const names[] = {"progress", "verdict"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        char path[PATH_SIZE];
        if (path_of(dir, names[i], path)) {
            unlink(path);
        }
    }
}
