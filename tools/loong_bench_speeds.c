/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench speeds: what a micro-batch of a recipe takes on the kind of
 * device that is asked for, for parallel.data_parallel_speeds. Called by
 * loong_bench.c. Read src/plan/plan_shares.h before. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "loong/comm.h"
#include "loong_bench.h"
#include "options.h"
#include "plan_shares.h"
#include "trainer_impl.h"

enum { WARM_UP = 2 };

typedef struct asked {
    bench_asked_t of;
    const loong_json_t *known; /* what the file has already; NULL: nothing */
} asked_t;

/* Median nanoseconds of a micro-batch of a replica, the optimizer with it. */
static loong_status_t time_steps(loong_trainer_t *t, int steps,
                                 int64_t *nanoseconds_p)
{
    bench_times_t times = {0};
    loong_status_t status = LOONG_OK;
    int64_t count =
        loong_loader_micro_batches(t->data.loader, t->state.consumed_samples);
    for (int i = 0; i < WARM_UP + steps && status == LOONG_OK; i++) {
        status = loong_comm_barrier(t->comm, "a step that is timed");
        double begin = bench_now();
        status = status == LOONG_OK ? loongi_train_begin(t) : status;
        status = status == LOONG_OK ? loongi_train_step(t) : status;
        if (i >= WARM_UP) {
            bench_times_add(&times, 1e3 * (bench_now() - begin));
        }
    }
    if (status == LOONG_OK) {
        *nanoseconds_p = llround(1e6 * bench_median(&times) / (double)count);
    }
    free(times.ms);
    return status;
}

static void print_speed(FILE *file, bool first, const char *kind,
                        int64_t nanoseconds)
{
    fprintf(file, "%s\"%s\": %" PRId64, first ? "" : ", ", kind, nanoseconds);
}

static loong_status_t read_known(loong_context_t *ctx, const char *path,
                                 loong_json_t **known_p)
{
    loong_status_t status =
        path != NULL ? loongi_json_load(ctx, path, known_p) : LOONG_OK;
    if (status == LOONG_ERR_NOT_FOUND) {
        loong_context_clear_error(ctx);
        status = LOONG_OK;
    }
    return status;
}

/* What is known of other kinds stays. */
static loong_status_t write_speeds(loong_context_t *ctx, const asked_t *asked,
                                   const char *kind, int64_t nanoseconds)
{
    const char *path = asked->of.path;
    const loong_json_t *of =
        loongi_json_get(asked->known, loongi_speeds_member);
    FILE *file = path != NULL ? fopen(path, "w") : stdout;
    LOONG_CHECK(ctx, file != NULL, LOONG_ERR_IO, "%s: cannot be written", path);
    fprintf(file, "{\"%s\": {", loongi_speeds_member);
    print_speed(file, true, kind, nanoseconds);
    for (const loong_json_member_t *m = loongi_json_first(of); m != NULL;
         m = loongi_json_next(of, m)) {
        if (strcmp(loongi_json_member_key(m), kind) != 0) {
            print_speed(file, false, loongi_json_member_key(m),
                        loongi_json_int(loongi_json_member_value(m)));
        }
    }
    fprintf(file, "}}\n");
    LOONG_CHECK(ctx, path == NULL || fclose(file) == 0, LOONG_ERR_IO,
                "%s: cannot be written", path);
    return LOONG_OK;
}

static loong_status_t run(void *user, loong_trainer_t *t)
{
    const asked_t *asked = user;
    int64_t nanoseconds = 0;
    LOONG_CHECK(t->ctx, !loongi_devices_are_mixed(&t->plan), LOONG_ERR_CONFIG,
                "devices: of several kinds: device=KIND devices=null times one "
                "of them");
    LOONG_TRY(time_steps(t, asked->of.steps, &nanoseconds));
    if (loong_comm_rank(t->comm) != 0) {
        return LOONG_OK;
    }
    const char *kind = loong_device_name(t->plan.device);
    fprintf(stderr, "%s: %.3f ms of a micro-batch, the median of %d steps\n",
            kind, 1e-6 * (double)nanoseconds, asked->of.steps);
    return write_speeds(t->ctx, asked, kind, nanoseconds);
}

static int help(void)
{
    printf("usage: loong-bench speeds [OPTION]... RECIPE device=KIND "
           "[a.b=c]...\n\n"
           "Trains the recipe on its own data and devices of one kind, times "
           "each step after %d to\nwarm up, and writes the nanoseconds of a "
           "micro-batch of one replica. Under mpirun a\nreplica may have "
           "several ranks. A file that is there keeps what it has of other "
           "kinds;\nparallel.data_parallel_speeds names it: data-parallel "
           "ranks then get micro-batches\nby their kind's.\n\n"
           "  --steps N     to measure; 20\n"
           "  --out FILE    in place of the output\n",
           WARM_UP);
    return LOONG_EXIT_OK;
}

int bench_speeds(loong_context_t *ctx, int argc, char **argv)
{
    asked_t asked = {{20, NULL, NULL}, NULL};
    loong_json_t *known = NULL;
    int code = bench_training_options("speeds", help, argc, argv, &asked.of);
    if (code >= 0) {
        return code;
    }
    loong_status_t status = read_known(ctx, asked.of.path, &known);
    asked.known = known;
    if (status == LOONG_OK) {
        status = bench_training(ctx, WARM_UP + asked.of.steps, argc - optind,
                                argv + optind, run, &asked);
    }
    loongi_json_destroy(&known);
    return status == LOONG_OK ? LOONG_EXIT_OK : bench_fail(ctx, status);
}
