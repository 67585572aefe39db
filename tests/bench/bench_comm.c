/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of the MPI communicator, and of what goes over it piece by piece, as
 * between devices of several kinds (staged); not a test:
 *   mpirun -n 2 bench_comm [MiB]     one size, or all
 * GB/s are bytes of one rank's buffer per second, median of the launch. In
 * `copy` all ranks do so at one time; a message goes from even ranks to odd
 * ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm_impl.h"
#include "loong/register.h"
#include "staged_comm.h"

enum { REPEATS = 15 };

typedef enum what {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    MESSAGE,
    COPY,
    KINDS
} what_t;

typedef struct bench {
    loong_comm_t *comm;
    char *data;
    char *other;
    int64_t counts[64];
    int64_t only; /* bytes; 0: all sizes */
} bench_t;

static void print_log(void *user, loong_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static loong_status_t once(bench_t *b, what_t what, int64_t count)
{
    loong_all_to_all_t blocks = {b->data, b->counts, b->other, b->counts};
    for (int r = 0; r < loong_comm_size(b->comm); r++) {
        b->counts[r] = count / loong_comm_size(b->comm);
    }
    size_t bytes = (size_t)count * sizeof(float);
    int rank = loong_comm_rank(b->comm);
    int peer = LOONG_MIN(rank ^ 1, loong_comm_size(b->comm) - 1);
    switch (what) {
    case COPY:
        memcpy(b->other, b->data, bytes);
        return LOONG_OK;
    case MESSAGE:
        return rank == peer ? LOONG_OK
               : rank % 2 == 0
                   ? loong_comm_send(b->comm, b->data, bytes, peer, 0)
                   : loong_comm_recv(b->comm, b->other, bytes, peer, 0);
    case ALL_REDUCE:
        return loong_comm_all_reduce(b->comm, b->data, count, LOONG_F32,
                                     LOONG_REDUCE_SUM, "bench");
    case REDUCE_SCATTER:
        return loong_comm_reduce_scatter(b->comm, b->data, b->counts, LOONG_F32,
                                         LOONG_REDUCE_SUM, "bench");
    case ALL_GATHER:
        return loong_comm_all_gather(b->comm, b->data, b->counts, LOONG_F32,
                                     "bench");
    default:
        return loong_comm_all_to_all(b->comm, &blocks, LOONG_F32, "bench");
    }
}

static loong_status_t measure(bench_t *b, what_t what, int64_t bytes,
                              double *seconds_p)
{
    double times[REPEATS];
    int inner = (int)LOONG_MAX((int64_t)1, (int64_t)(4 << 20) / bytes);
    inner = LOONG_MIN(inner, 1000);
    for (int i = -2; i < REPEATS; i++) {
        LOONG_TRY(loong_comm_barrier(b->comm, "bench"));
        double begin = loongi_now();
        for (int k = 0; k < inner; k++) {
            LOONG_TRY(once(b, what, bytes / 4));
        }
        times[i < 0 ? 0 : i] = (loongi_now() - begin) / inner;
    }
    qsort(times, REPEATS, sizeof(times[0]), compare);
    *seconds_p = times[REPEATS / 2];
    return LOONG_OK;
}

static loong_status_t table(bench_t *b, const char *memory)
{
    static const char *const names[] = {"all_reduce f32", "reduce_scatter f32",
                                        "all_gather", "all_to_all", "message",
                                        "copy"};
    static const int64_t sizes[] = {4 << 10,  1 << 20,  4 << 20,
                                    16 << 20, 64 << 20, 256 << 20};
    for (int what = 0; what < KINDS; what++) {
        char line[256];
        int n = snprintf(line, sizeof(line), "%-8s %-20s", memory, names[what]);
        for (int64_t i = 0; i < LOONG_COUNT_OF(sizes); i++) {
            double seconds = 0.0;
            if (b->only > 0 && b->only != sizes[i]) {
                continue;
            }
            LOONG_TRY(measure(b, (what_t)what, sizes[i], &seconds));
            n += i == 0 ? snprintf(line + n, sizeof(line) - (size_t)n,
                                   "%7.2f us", seconds * 1e6)
                        : snprintf(line + n, sizeof(line) - (size_t)n, "%8.1f",
                                   (double)sizes[i] / seconds * 1e-9);
        }
        if (loong_comm_rank(b->comm) == 0) {
            printf("%s\n", line);
        }
    }
    return LOONG_OK;
}

/* Over b->comm, of memory that none of the others reads. */
static loong_status_t table_staged(loong_context_t *ctx, bench_t *b)
{
    const loong_staged_params_t params = {true, 0};
    loong_device_t *device = NULL;
    bench_t staged = *b;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, "cpu", 0, &device));
    LOONG_TRY(
        loongi_staged_create(ctx, device, b->comm, &params, &staged.comm));
    LOONG_TRY(loongi_comm_reserve(staged.comm, 1, (size_t)256 << 20));
    loong_status_t status = table(&staged, "staged");
    loong_comm_destroy(&staged.comm);
    loong_device_destroy(&device);
    return status;
}

static loong_status_t run(loong_context_t *ctx, int64_t only)
{
    size_t bytes = (size_t)256 << 20;
    loong_comm_params_t params = {.timeout = 60.0};
    const char *per_node = getenv("RANKS_PER_NODE");
    bench_t b = {.only = only};
    char *private_data = NULL;
    char *shared_data = NULL;
    params.ranks_per_node = per_node != NULL ? atoi(per_node) : 0;
    LOONG_TRY(loong_comm_create_world(ctx, &params, &b.comm));
    LOONG_TRY(loongi_alloc(ctx, 2 * bytes, "private", &private_data));
    LOONG_TRY(
        loong_comm_alloc_shared(b.comm, 2 * bytes, "shared", &shared_data));
    memset(private_data, 0, 2 * bytes);
    memset(shared_data, 0, 2 * bytes);
    if (loong_comm_rank(b.comm) == 0 && only == 0) {
        printf("%-29s%10s%8s%8s%8s%8s%8s  (GB/s)\n", "", "4 KiB", "1 MiB",
               "4 MiB", "16 MiB", "64 MiB", "256 MiB");
    }
    b.data = shared_data;
    b.other = shared_data + bytes;
    LOONG_TRY(table(&b, "shared"));
    b.data = private_data;
    b.other = private_data + bytes;
    LOONG_TRY(table(&b, "private"));
    LOONG_TRY(table_staged(ctx, &b));
    loong_comm_free_shared(b.comm, &shared_data);
    loongi_free(ctx, private_data);
    loong_comm_destroy(&b.comm);
    return LOONG_OK;
}

int main(int argc, char **argv)
{
    int64_t only = argc > 1 ? (int64_t)atoi(argv[1]) << 20 : 0;
    loong_context_t *ctx = NULL;
    loong_context_params_t params = {print_log, NULL, LOONG_LOG_WARN};
    if (loong_context_create(&params, &ctx) != LOONG_OK) {
        return 1;
    }
    loong_status_t status = run(ctx, only);
    if (status != LOONG_OK) {
        fprintf(stderr, "%s\n", loong_context_error(ctx));
    }
    loong_context_destroy(&ctx);
    return status == LOONG_OK ? 0 : 1;
}
