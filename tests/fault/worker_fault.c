/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank under a parent that takes steps until something happens to it:
 *   worker_fault FAULT VICTIM TIMEOUT
 * Faults of the victim, at step 3: kill, segv, stop, hang, code77, return, io
 * (it fails alone), divides (another collective), strays (a collective of
 * another group), dawdles (comes late, slowly), reads (comes late, from a file
 * that takes its time), parts (closes a communicator of its own, comes late).
 * Before joining: absent, usage. far_NAME: the same, each rank a machine of its
 * own, heartbeats within 1 s; ponders (comes 3 s late, and was computing).
 * none: 10 steps. wait: steps until a signal asks to stop. deaf: asks not. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base.h"
#include "loong/comm.h"
#include "loong/exit_code.h"
#include "loong/launch.h"
#include "step_header.h"

enum { LATE_NAPS = 36, FAULT_STEP = 3, STEPS = 10, WAIT_STEPS = 2000 };

typedef struct job {
    const char *fault;
    int victim;
    double timeout;
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_comm_t *group; /* of the same ranks */
    loong_step_exchange_t *exchange;
} job_t;

static void print_line(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "parent: %s\n", line);
}

static void print_log(void *user, loong_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

static bool is_far(const job_t *job)
{
    return strncmp(job->fault, "far_", 4) == 0;
}

static bool is(const job_t *job, const char *fault)
{
    return strcmp(job->fault + (is_far(job) ? 4 : 0), fault) == 0;
}

static void *write_late(void *user)
{
    const int *ends = user;
    struct timespec nap = {LATE_NAPS / 2, 0};
    nanosleep(&nap, NULL);
    return write(ends[1], "x", 1) == 1 ? user : NULL;
}

/* What a slow file system looks like: a call that does not return. */
static void read_late(void)
{
    int ends[2];
    char byte = 0;
    pthread_t thread;
    if (pipe(ends) == 0 &&
        pthread_create(&thread, NULL, write_late, ends) == 0 &&
        read(ends[0], &byte, 1) == 1) {
        pthread_join(thread, NULL);
    }
}

static loong_status_t suffer(job_t *job)
{
    float value = 1.0f;
    if (is(job, "kill")) {
        kill(getpid(), SIGKILL);
    } else if (is(job, "segv")) {
        raise(SIGSEGV);
    } else if (is(job, "stop")) {
        kill(getpid(), SIGSTOP);
    } else if (is(job, "hang")) {
        for (;;) {
            pause();
        }
    } else if (is(job, "dawdles")) {
        for (int i = 0; i < LATE_NAPS; i++) {
            usleep(500000);
        }
    } else if (is(job, "ponders")) {
        for (double end = loongi_now() + 3.0; loongi_now() < end;) {
        }
    } else if (is(job, "reads")) {
        read_late();
    } else if (is(job, "parts")) {
        loong_comm_t *own = NULL;
        LOONG_TRY(loong_comm_create_self(job->ctx, NULL, &own));
        loong_comm_destroy(&own);
        usleep(1500000);
    } else if (is(job, "strays")) {
        return loong_comm_barrier(job->group, "astray");
    } else if (is(job, "code77")) {
        _exit(77);
    } else if (is(job, "return")) {
        _exit(0);
    } else if (is(job, "io")) {
        return LOONG_FAIL(job->ctx, LOONG_ERR_IO, "cannot read shard 7");
    } else if (is(job, "divides")) {
        return loong_comm_all_reduce(job->comm, &value, 1, LOONG_F32,
                                     LOONG_REDUCE_MAX, "odd one");
    }
    return LOONG_OK;
}

static loong_status_t take_step(job_t *job, int64_t step, unsigned *flags_p)
{
    struct timespec work = {0, 5000000};
    loong_step_report_t report = {.step = step, .recipe_hash = 42};
    loong_step_header_t agreed;
    float gradient[1000] = {0};
    unsigned signals = is(job, "deaf") ? 0u : loong_signals_get();
    report.flags = ((signals & LOONG_SIGNAL_STOP) ? LOONG_STEP_STOP : 0u) |
                   ((signals & LOONG_SIGNAL_SAVE) ? LOONG_STEP_SAVE : 0u);
    if (step == FAULT_STEP && loong_comm_rank(job->comm) == job->victim) {
        LOONG_TRY(suffer(job));
    }
    LOONG_TRY(loongi_step_exchange_run(job->exchange, &report, &agreed));
    nanosleep(&work, NULL);
    LOONG_TRY(loong_comm_all_reduce(job->comm, gradient, 1000, LOONG_F32,
                                    LOONG_REDUCE_SUM, "gradients"));
    *flags_p = agreed.flags;
    return LOONG_OK;
}

static loong_status_t run(job_t *job)
{
    loong_comm_params_t params = {.timeout = job->timeout,
                                  .ranks_per_node = is_far(job) ? 1 : 0,
                                  .heartbeat_timeout = 1.0};
    LOONG_TRY(loong_signals_install(job->ctx));
    LOONG_TRY(loong_comm_create_world(job->ctx, &params, &job->comm));
    if (is(job, "strays")) {
        LOONG_TRY(loong_comm_split(job->comm, 0, loong_comm_rank(job->comm),
                                   "group", &job->group));
    }
    LOONG_TRY(
        loongi_step_exchange_create(job->ctx, job->comm, 1, &job->exchange));
    int rank = loong_comm_rank(job->comm);
    printf("rank %d pid %d runs\n", rank, (int)getpid());
    fflush(stdout);
    bool waits = is(job, "wait") || is(job, "deaf");
    int64_t steps = waits ? WAIT_STEPS : STEPS;
    for (int64_t step = 0; step < steps; step++) {
        unsigned flags = 0;
        LOONG_TRY(take_step(job, step, &flags));
        if ((flags & LOONG_STEP_SAVE) != 0) {
            printf("rank %d saves at step %lld\n", rank, (long long)step);
            fflush(stdout);
        }
        if ((flags & LOONG_STEP_STOP) != 0) {
            printf("rank %d stops at step %lld\n", rank, (long long)step);
            fflush(stdout);
            return LOONG_ERR_INTERRUPTED;
        }
    }
    return LOONG_OK;
}

static int work(job_t *job)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank != NULL && atoi(rank) == job->victim) {
        if (is(job, "absent")) {
            return 0;
        }
        if (is(job, "usage")) {
            fprintf(stderr, "no such option\n");
            return LOONG_EXIT_USAGE;
        }
    }
    loong_status_t status = run(job);
    int code = (int)loong_exit_code_from_status(status);
    int who = 0;
    if (status != LOONG_OK && status != LOONG_ERR_INTERRUPTED) {
        fprintf(stderr, "rank %s: %s\n", rank != NULL ? rank : "0",
                loong_context_error(job->ctx));
        if (job->comm != NULL) {
            loong_comm_abort(job->comm, loong_context_error(job->ctx));
        }
    } else {
        loong_exit_code_agree(job->comm, code, &code, &who);
    }
    loongi_step_exchange_destroy(&job->exchange);
    loong_comm_destroy(&job->group);
    loong_comm_destroy(&job->comm);
    return code;
}

int main(int argc, char **argv)
{
    job_t job = {0};
    loong_context_params_t params = {print_log, NULL, LOONG_LOG_WARN};
    loong_parent_params_t parent = {print_line, NULL, 0.0};
    loong_role_t role = LOONG_ROLE_PARENT;
    int code = LOONG_EXIT_FAILED;
    if (argc != 4 || loong_context_create(&params, &job.ctx) != LOONG_OK) {
        return LOONG_EXIT_USAGE;
    }
    job.fault = argv[1];
    job.victim = atoi(argv[2]);
    job.timeout = atof(argv[3]);
    if (loong_parent_run(job.ctx, &parent, &role, &code) != LOONG_OK) {
        fprintf(stderr, "%s\n", loong_context_error(job.ctx));
        return LOONG_EXIT_FAILED;
    }
    if (role == LOONG_ROLE_WORKER) {
        code = work(&job);
    }
    loong_context_destroy(&job.ctx);
    return code;
}
