/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launcher started this process, and what is wrong with the launch.
 * Called by loongrun, parent.c and mpi_world.c. Read loong/launch.h before. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base.h"
#include "loong/comm.h"
#include "loong/launch.h"

/* In the order of trust: mpirun inside a Slurm job sets its own as well. */
typedef struct launcher {
    const char *name;
    const char *rank;
    const char *size;
    const char *local_rank;
    const char *local_size;
    const char *cure; /* when MPI sees single processes */
} launcher_t;

static const launcher_t launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "this program must be built with the MPI that its mpirun belongs to"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "this program must be built with the MPI that its mpirun belongs to"},
    /* Of a step: a batch script has SLURM_NTASKS, and is one process. */
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL,
     "start it with srun --mpi=pmix, or with mpirun; for one rank with "
     "srun -n 1"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "start it with mpirun"},
};

/* A number of the environment, or `otherwise`. */
static int number(const char *name, int otherwise)
{
    const char *text = name != NULL ? getenv(name) : NULL;
    char *end = NULL;
    long value = text != NULL ? strtol(text, &end, 10) : 0;
    bool valid = text != NULL && end != text && *end == '\0' && value >= 0 &&
                 value < 1 << 24;
    return valid ? (int)value : otherwise;
}

static const launcher_t *find_launcher(void)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(launchers); i++) {
        if (number(launchers[i].rank, -1) >= 0 &&
            number(launchers[i].size, -1) >= 1) {
            return &launchers[i];
        }
    }
    return NULL;
}

void loong_launch_detect(loong_launch_t *launch_p)
{
    const launcher_t *found = find_launcher();
    loong_launch_t launch = {NULL, 0, 1, 0, 1};
    if (found != NULL) {
        launch.launcher = found->name;
        launch.rank = number(found->rank, 0);
        launch.size = number(found->size, 1);
        launch.local_rank = number(found->local_rank, 0);
        launch.local_size = number(found->local_size, 0);
    }
    *launch_p = launch;
}

loong_status_t loong_launch_check(loong_context_t *ctx,
                                  const loong_launch_t *launch, int comm_size)
{
    const launcher_t *found = find_launcher();
    LOONG_CHECK(ctx, comm_size > 1 || launch->size <= 1, LOONG_ERR_CONFIG,
                "%s started %d processes, but each is a job of its own here, "
                "and all would train the same: %s",
                launch->launcher, launch->size,
                found != NULL ? found->cure : "start it with mpirun");
    return LOONG_OK;
}

loong_status_t loong_comm_create_world(loong_context_t *ctx,
                                       const loong_comm_params_t *params,
                                       loong_comm_t **comm_p)
{
    loong_launch_t launch;
    loong_launch_detect(&launch);
    if (launch.size > 1) {
        return loong_comm_create_mpi(ctx, params, comm_p);
    }
    return loong_comm_create_self(ctx, params, comm_p);
}

/* Of the machine, and of those the ones that this process may run on. */
static int count_cores(int *bound_p)
{
    cpu_set_t set;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    *bound_p = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                            : cores;
    return cores;
}

int loong_launch_threads(const loong_launch_t *launch)
{
    int bound = 0;
    int share = count_cores(&bound) / LOONG_MAX(launch->local_size, 1);
    return LOONG_MAX(LOONG_MIN(share, bound), 1);
}

void loong_launch_advice(const loong_launch_t *launch, int threads, char *text,
                         size_t size)
{
    int bound = 0;
    int cores = count_cores(&bound);
    int ranks = LOONG_MAX(launch->local_size, 1);
    int n = 0;
    text[0] = '\0';
    if ((int64_t)ranks * threads > cores) {
        char cure[64] = "use fewer ranks";
        if (ranks <= cores) {
            snprintf(cure, sizeof(cure), "use OMP_NUM_THREADS=%d%s",
                     cores / ranks, ranks > 1 ? " or fewer ranks" : "");
        }
        n = snprintf(text, size,
                     "%d rank%s x %d thread%s on %d core%s: they will wait for "
                     "each other; %s\n",
                     ranks, ranks > 1 ? "s" : "", threads,
                     threads > 1 ? "s" : "", cores, cores > 1 ? "s" : "",
                     cure);
    }
    if (bound < threads && bound < cores && n >= 0 && (size_t)n < size) {
        snprintf(text + n, size - (size_t)n,
                 "%d threads share the %d core%s that this rank is bound to "
                 "(mpirun binds a rank to one core when there are two ranks): "
                 "use mpirun --bind-to none, or --map-by slot:PE=%d\n",
                 threads, bound, bound == 1 ? "" : "s", threads);
    }
}
