/* SPDX-License-Identifier: Apache-2.0
 *
 * Planned memory against what the kernel says this process holds:
 *   [mpirun -n N] worker_memory DIR DTYPE SHARDING
 * trains two steps of a model of 35 million parameters and compares. Pages
 * that several ranks map count for each of them by its part (Pss), whose they
 * are is not known: what the ranks of a machine hold together is compared. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine_run.h"
#include "trainer_impl.h"

enum { VOCAB = 16384 };

/* Pss_Anon + Pss_Shmem, in bytes. */
static double memory_held(void)
{
    static const char *const keys[] = {"\nPss_Anon:", "\nPss_Shmem:"};
    char text[8192];
    double sum = 0.0;
    int fd = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n < 0) {
        return -1.0;
    }
    text[n] = '\0';
    close(fd);
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(text, keys[i]);
        if (at == NULL) {
            return -1.0;
        }
        sum += strtod(at + strlen(keys[i]), NULL) * 1024.0;
    }
    return sum;
}

typedef struct job {
    const char *dir;
    const char *dtype;
    const char *sharding;
} job_t;

static loong_status_t make_recipe(loong_context_t *ctx, const job_t *job,
                                  loong_recipe_t **recipe_p)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "model:\n"
             "  foundation: {family: llama, num_layers: 6,\n"
             "    hidden_size: 512, ffn_hidden_size: 1408,\n"
             "    num_attention_heads: 8, num_query_groups: 4,\n"
             "    vocab_size: %d, max_position_embeddings: 512,\n"
             "    activation: swiglu,\n"
             "    untie_embeddings_and_output_weights: true}\n"
             "precision: {params_dtype: %s}\n"
             "data: {seq_length: 128, train: [{path: %s/data}]}\n"
             "train: {micro_batch_size: 2, global_batch_size: 4,\n"
             "  train_iters: 2}\n"
             "optimizer: {lr: 1e-3}\n"
             "parallel: {data_parallel_sharding: %s, bucket_bytes: 8MiB}\n",
             VOCAB, job->dtype, job->dir, job->sharding);
    return loong_recipe_parse(ctx, "test", text, NULL, recipe_p);
}

static double planned(const loong_trainer_t *t)
{
    double sum = 0.0;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        sum += (double)t->component->model->bytes[b];
    }
    return sum;
}

/* By what share the ranks hold more or less than planned. */
static loong_status_t measure(loong_context_t *ctx, loong_comm_t *comm,
                              const job_t *job, double *error_p)
{
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *t = NULL;
    double start = memory_held();
    LOONG_TRY(make_recipe(ctx, job, &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe};
    loong_status_t status = loong_trainer_create(ctx, &params, &t);
    if (status == LOONG_OK) {
        status = loong_trainer_run(t);
    }
    if (status == LOONG_OK) {
        status = loong_comm_barrier(comm, "memory");
    }
    if (status == LOONG_OK) {
        double held = memory_held() - start;
        double sums[2] = {held, planned(t)};
        printf("rank %d, %s, %s: planned %.1f MiB, held %.1f MiB, ratio "
               "%.4f\n",
               loong_comm_rank(comm), job->dtype, job->sharding,
               sums[1] / 1048576.0, held / 1048576.0, held / sums[1]);
        status = start < 0.0 ? LOONG_ERR_IO
                             : loong_comm_all_reduce(comm, sums, 2, LOONG_F64,
                                                     LOONG_REDUCE_SUM, "sums");
        *error_p = fabs(sums[0] / sums[1] - 1.0);
    }
    loong_trainer_destroy(&t);
    loong_recipe_destroy(&recipe);
    return status;
}

int main(int argc, char **argv)
{
    loong_context_t *ctx = NULL;
    loong_comm_t *comm = NULL;
    double error = 1.0;
    if (argc != 4 || loong_context_create(NULL, &ctx) != LOONG_OK) {
        return 2;
    }
    loong_status_t status = loong_register_builtin(ctx);
    if (status == LOONG_OK) {
        status = loong_comm_create_world(ctx, NULL, &comm);
    }
    if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
        engine_make_data(ctx, argv[1], VOCAB, 1 << 16);
    }
    if (status == LOONG_OK) {
        status = loong_comm_barrier(comm, "data");
    }
    if (status == LOONG_OK) {
        job_t job = {argv[1], argv[2], argv[3]};
        status = measure(ctx, comm, &job, &error);
    }
    if (status != LOONG_OK) {
        fprintf(stderr, "%s\n", loong_context_error(ctx));
    }
    loong_comm_destroy(&comm);
    loong_context_destroy(&ctx);
    return status != LOONG_OK || error > 0.03;
}
