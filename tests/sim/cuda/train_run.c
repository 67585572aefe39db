/* SPDX-License-Identifier: Apache-2.0 */
#include "train_run.h"

#include <execinfo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm_impl.h"
#include "crc.h"
#include "file.h"
#include "loong/dataset.h"
#include "loong/register.h"
#include "staged_comm.h"
#include "staging.h"

static char dir[256];

const char *train_dir(void)
{
    return dir;
}

/* Texts of up to `most` tokens, all of them so long unless `least` is less. */
static void make_set(loong_context_t *ctx, const char *name, int least,
                     int most)
{
    char prefix[300];
    snprintf(prefix, sizeof(prefix), "%s/%s", dir, name);
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, false};
    loong_dataset_writer_t *writer = NULL;
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &writer));
    for (int d = 0; d < 12 * 64 / most; d++) {
        int32_t ids[64];
        int count = least + d * 7 % (most - least + 1);
        for (int i = 0; i < count; i++) {
            ids[i] = (d * 7 + i * 5 + i * i * 3) % VOCAB;
        }
        assert_ok(ctx, loong_dataset_writer_add(writer, ids, NULL, count));
        assert_ok(ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
}

static bool whole; /* all tests have run */

/* What fails in a rank's thread, or crashes there, ends the program: cmocka
 * keeps the message for its own thread. So the place at least is told. */
static void tell_end(void)
{
    void *at[64];
    if (!whole) {
        fputs("the program ends in a thread of a test, here:\n", stderr);
        backtrace_symbols_fd(at, backtrace(at, LOONG_COUNT_OF(at)), 2);
    }
}

int make_data(void **state)
{
    loong_context_t *ctx = test_context();
    (void)state;
    assert_int_equal(atexit(tell_end), 0);
    /* What the backends set where it is not, before there are threads: another
     * one may be reading the environment. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
    snprintf(dir, sizeof(dir), "/tmp/loong_cuda_train_XXXXXX");
    assert_non_null(mkdtemp(dir));
    make_set(ctx, "data", 64, 64);
    make_set(ctx, "short", 3, 13);
    test_context_end(&ctx);
    return 0;
}

int remove_data(void **state)
{
    loong_context_t *ctx = test_context();
    (void)state;
    whole = true;
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    test_context_end(&ctx);
    return 0;
}

static void note(void *user, const loong_trainer_progress_t *now)
{
    job_t *job = user;
    loong_trainer_state_t s = loong_trainer_get_state(job->trainer);
    assert_true(now->step >= 1 && now->step <= STEPS);
    job->loss[now->step] = s.loss;
    job->norm[now->step] = s.grad_norm;
    job->questions[now->step] = cudasim_questions();
    job->waits[now->step] = loong_device_waits(job->trainer->plan.device);
    job->blocked[now->step] = loongi_report_blocked(&job->trainer->report);
    loong_component_t *c = job->trainer->component;
    job->collectives =
        c->run.group != NULL && !c->params.absent
            ? loong_comm_stats(c->run.group[LOONG_GROUP_DP]).calls
            : 0;
    job->links = 0;
    for (int i = 0; i < 2 * LOONG_MAX_EDGES; i++) {
        job->links += loongi_links_get(job->trainer->resources->edges, i / 2,
                                       i % 2) != NULL;
    }
    if (c->params.resources.staging.on) {
        assert_ok(c->ctx, loongi_staging_bytes(&job->trainer->plan, c,
                                               &job->pinned_planned));
        job->pinned =
            (int64_t)loongi_staged_held(job->trainer->resources->device_world);
    }
    if (job->trainer->resources->replay != NULL) {
        job->replayed[now->step] =
            loongi_replay_stats(job->trainer->resources->replay);
    }
}

static loong_status_t sum_params(loong_context_t *ctx, loong_trainer_t *t,
                                 uint32_t *sum_p)
{
    const loong_model_t *m = t->component->model;
    loong_operand_t from = {LOONG_BASE_PARAM, 0};
    size_t bytes = (size_t)m->bytes[LOONG_BASE_PARAM];
    void *memory = NULL;
    LOONG_TRY(loongi_alloc(ctx, bytes, "parameters", &memory));
    loong_status_t status =
        loongi_binding_read(&m->run, from, memory, bytes, "parameters");
    *sum_p = loongi_crc(LOONG_CRC32C, memory, bytes);
    loongi_free(ctx, memory);
    return status;
}

static loong_status_t note_memory(const loong_trainer_t *t, job_t *job)
{
    if (loong_device_get_overhead(t->plan.device) != NULL) {
        LOONG_TRY(loong_device_usage(t->plan.device, &job->usage));
    }
    job->planned = t->plan.memory.rank;
    job->rate = t->report.gemm_gflops;
    return loongi_overhead_plan(&t->plan, &job->overhead);
}

static void look_at(job_t *job, loong_trainer_t *trainer, int rank)
{
    job->copies = cudasim_copies();
    trainer->report.gemm_gflops = job->measures ? job->roof : 1.0;
    if (rank == 0) { /* no other rank writes it, not even back */
        job->trainer = trainer;
    }
}

enum { RECIPE = 2048 };

static void write_recipe(const job_t *job, char text[RECIPE])
{
    snprintf(text, RECIPE,
             "seed: 11\n"
             "%s: %s\n"
             "model:\n"
             "  foundation: {family: qwen3, num_layers: %d, hidden_size: %d,\n"
             "    ffn_hidden_size: 24, num_attention_heads: 2,\n"
             "    num_query_groups: 1, kv_channels: 8, vocab_size: %d,\n"
             "    make_vocab_size_divisible_by: 8, activation: %s,\n"
             "    max_position_embeddings: %d,\n"
             "    untie_embeddings_and_output_weights: %s%s}\n"
             "precision: {params_dtype: %s}\n"
             "data:\n"
             "  seq_length: %d\n"
             "  train: [{path: %s/%s}]\n"
             "%s"
             "train: {micro_batch_size: 1, global_batch_size: %d,\n"
             "  train_iters: %d%s}\n"
             "optimizer: {lr: 1e-2, lr_warmup_iters: 2,\n"
             "  lr_decay_iters: 4}\n"
             "%s",
             job->device[0] == '[' ? "devices" : "device", job->device,
             job->layers, job->hidden, VOCAB, job->activation,
             LOONG_MAX(64, job->seq_length),
             job->untied ? "true" : "false", job->model, job->dtype,
             job->seq_length, dir, job->data, job->data_keys,
             job->batch, job->steps, job->train, job->extra);
}

static loong_status_t make_trainer(loong_context_t *ctx, const job_t *job,
                                   loong_trainer_params_t *params,
                                   loong_recipe_t **recipe_p,
                                   loong_trainer_t **trainer_p)
{
    char text[RECIPE];
    write_recipe(job, text);
    LOONG_TRY(loong_recipe_parse(ctx, "test",
                                 job->recipe != NULL ? job->recipe : text, NULL,
                                 recipe_p));
    params->recipe = *recipe_p;
    return loong_trainer_create(ctx, params, trainer_p);
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    job_t *job = user;
    loong_recipe_t *recipe = NULL, *other_recipe = NULL;
    loong_trainer_t *trainer = NULL, *other = NULL;
    const char *told = "";
    loong_trainer_params_t params = {
        .comm = comm, .progress = note, .progress_user = job};
    LOONG_TRY(loong_register_builtin(ctx));
    loong_status_t status = make_trainer(ctx, job, &params, &recipe, &trainer);
    if (status == LOONG_OK && job->other != NULL) {
        status = make_trainer(ctx, job->other, &params, &other_recipe, &other);
    }
    if (status == LOONG_OK) {
        look_at(job, trainer, loong_comm_rank(comm));
        status = loong_trainer_run(trainer);
    }
    if (status == LOONG_OK) {
        status = loong_trainer_describe(trainer, &told);
        job->tf32 = strstr(told, "in tf32") != NULL;
    }
    if (status == LOONG_OK && job->export_dir != NULL) {
        status = loong_trainer_export(trainer, job->export_dir);
    }
    if (status == LOONG_OK) {
        status = sum_params(ctx, trainer,
                            &job->params[loong_comm_rank(comm) % 4]);
    }
    if (status == LOONG_OK) {
        const loong_model_t *m = trainer->component->model;
        __atomic_fetch_add(&job->waiting, m->area_bytes[0] + m->area_bytes[1],
                           __ATOMIC_RELAXED);
    }
    if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
        status = note_memory(trainer, job);
    }
    job->calls = cudasim_calls();
    if (trainer != NULL && status != LOONG_OK) { /* as loongrun does */
        loong_comm_abort(comm, loong_context_error(ctx));
    }
    loong_trainer_destroy(&other);
    loong_recipe_destroy(&other_recipe);
    loong_trainer_destroy(&trainer);
    assert_null(comm->wait_policy); /* which asks who is gone */
    loong_recipe_destroy(&recipe);
    return status;
}

loong_status_t try_train(loong_context_t *ctx, job_t *job)
{
    loong_threads_params_t params = {0};
    params.size = job->ranks;
    params.comm.timeout = job->timeout > 0.0 ? job->timeout : 60.0;
    params.context = job->context;
    cudasim_devices(job->ranks, (size_t)64 << 20);
    return loong_threads_run(ctx, &params, run_rank, job);
}

void train(job_t *job)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, try_train(ctx, job));
    test_context_end(&ctx);
    assert_string_equal(cudasim_report(), "");
    assert_int_equal(cudasim_alive(), 0);
    cudasim_reset();
}

job_t make_job(const char *device, const char *dtype)
{
    job_t job;
    memset(&job, 0, sizeof(job));
    job.device = device;
    job.dtype = dtype;
    job.activation = "swiglu";
    job.extra = "";
    job.model = "";
    job.train = "";
    job.data = "data";
    job.data_keys = "";
    job.ranks = 1;
    job.layers = 2;
    job.seq_length = 8;
    job.hidden = 16;
    job.batch = 2;
    job.steps = STEPS;
    return job;
}

/* Sums of tens of products of one type in other orders. */
void compare(const job_t *a, const job_t *b, double bound)
{
    for (int i = 1; i <= a->steps; i++) {
        if (fabs(a->loss[i] - b->loss[i]) > bound * a->loss[i] ||
            fabs(a->norm[i] - b->norm[i]) > bound * a->norm[i]) {
            print_error("step %d: loss %.9g and %.9g, norm %.9g and %.9g\n",
                        i, a->loss[i], b->loss[i], a->norm[i], b->norm[i]);
        }
        assert_true(a->loss[i] > 0.0 && a->norm[i] > 0.0);
        assert_true(fabs(a->loss[i] - b->loss[i]) <= bound * a->loss[i]);
        assert_true(fabs(a->norm[i] - b->norm[i]) <= bound * a->norm[i]);
    }
}
