/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-bench step: whole training steps of a recipe by the trainer itself, on
 * random tokens, and then the floor of the same model in the same run. Called
 * by loong_bench.c, for its recipe by loong_bench_floor.c. Read loong/trainer.h
 * before. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "choices.h"
#include "loong/comm.h"
#include "loong/dataset.h"
#include "loong/trainer.h"
#include "loong_bench.h"
#include "options.h"
#include "tool_configs.h"
#include "trainer_impl.h"

enum { WARM_UP = 2, PATH_SIZE = 512, BATCHES = 16 };

typedef struct options {
    int steps;
    double floor_seconds; /* 0: no floor */
    bool json;
} options_t;

/* ---- recipes ---- */

loong_status_t bench_recipe(loong_context_t *ctx, const char *path,
                            int num_overrides, const char *const *overrides,
                            loong_recipe_t **recipe_p)
{
    char configs[PATH_MAX];
    loong_recipe_params_t params;
    memset(&params, 0, sizeof(params));
    params.config_dir = tool_configs(configs);
    params.num_overrides = num_overrides;
    params.overrides = overrides;
    LOONG_TRY(loong_recipe_load(ctx, path, &params, recipe_p));
    return loong_trainer_fill_recipe(ctx, *recipe_p, false);
}

static int64_t model_int(const loong_recipe_t *r, const char *key,
                         int64_t otherwise)
{
    char path[128];
    snprintf(path, sizeof(path), "model.foundation.%s", key);
    int64_t value = loong_recipe_int(r, path);
    return value > 0 ? value : otherwise;
}

bench_model_t bench_model_of(const loong_context_t *ctx,
                             const loong_recipe_t *recipe,
                             int64_t *micro_batches_p)
{
    bench_model_t m;
    int64_t batch = loong_recipe_int(recipe, "train.micro_batch_size");
    int64_t global = loong_recipe_int(recipe, "train.global_batch_size");
    const char *act = loong_recipe_text(recipe, "model.foundation.activation");
    const char *method = loong_recipe_text(recipe, "finetune.method");
    memset(&m, 0, sizeof(m));
    m.layers = model_int(recipe, "num_layers", 1);
    m.hidden = model_int(recipe, "hidden_size", 1);
    m.heads = model_int(recipe, "num_attention_heads", 1);
    m.kv_heads = model_int(recipe, "num_query_groups", m.heads);
    m.head_dim = model_int(recipe, "kv_channels", m.hidden / m.heads);
    m.ffn = model_int(recipe, "ffn_hidden_size", 4 * m.hidden);
    m.vocab = model_int(recipe, "vocab_size", 1);
    m.tokens =
        loong_recipe_int(recipe, "data.seq_length") * (batch > 0 ? batch : 1);
    m.chunk = 512;
    m.gated = act != NULL && strcmp(act, "swiglu") == 0;
    m.rank = method != NULL && strcmp(method, "lora") == 0
                 ? loong_recipe_int(recipe, "finetune.rank")
                 : 0;
    m.experts = model_int(recipe, "num_experts", 0) > 0;
    loong_device_caps_t caps;
    memset(&caps, 0, sizeof(caps));
    loong_device_find_kind(ctx, "cpu")->caps(NULL, &caps);
    m.dtype = loongi_recipe_precision(recipe, "foundation", &caps).compute;
    m.threads = bench_threads();
    *micro_batches_p = batch > 0 && global > batch ? global / batch : 1;
    return m;
}

/* ---- random tokens ---- */

static loong_status_t write_tokens(loong_context_t *ctx, const char *prefix,
                                   const bench_model_t *m, int64_t tokens)
{
    loong_dataset_writer_params_t params = {
        prefix, loong_dataset_dtype(m->vocab), false};
    loong_dataset_writer_t *writer = NULL;
    int32_t *ids = malloc(sizeof(*ids) * (size_t)tokens);
    uint32_t state = 12345;
    if (ids == NULL) {
        return LOONG_ERR_MEMORY;
    }
    for (int64_t i = 0; i < tokens; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((uint64_t)state * (uint64_t)m->vocab >> 32);
    }
    loong_status_t status = loong_dataset_writer_create(ctx, &params, &writer);
    if (status == LOONG_OK) {
        status = loong_dataset_writer_add(writer, ids, NULL, tokens);
    }
    if (status == LOONG_OK) {
        status = loong_dataset_writer_end_document(writer);
    }
    if (status == LOONG_OK) {
        status = loong_dataset_writer_commit(writer);
    }
    loong_dataset_writer_destroy(&writer);
    free(ids);
    return status;
}

/* The directory is ours and flat. */
static void remove_files(const char *name)
{
    DIR *dir = opendir(name);
    const struct dirent *entry = NULL;
    char path[PATH_SIZE + 300];
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", name, entry->d_name);
        (void)unlink(path);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    (void)rmdir(name);
}

/* ---- the run ---- */

/* Loads the recipe with what the benchmark decides: data, length, a line of
 * metrics a step, and nothing beside the steps: no files, no evaluation. */
static loong_status_t load(loong_context_t *ctx, const options_t *o,
                           const char *dir, int argc, char **argv,
                           loong_recipe_t **recipe_p)
{
    static const char *const fixed[] = {
        "++log.tensorboard=false", "++log.interval=1",
        "++train.train_samples=null", "++train.train_tokens=null",
        "++train.rampup_batch_size=null", "++train.exit_interval=0",
        "++train.max_wall_time=0", "++optimizer.lr_decay_style=constant",
        "++optimizer.lr_warmup_iters=0", "++optimizer.lr_decay_iters=null",
        "++data.validation=null", "++data.validation_split=0",
        "++data.tokenizer=null",
        "++eval=null", "++checkpoint=null", "++resume=null", "++export=null"};
    enum { OWN = 3, FIXED = (int)(sizeof(fixed) / sizeof(fixed[0])) };
    char own[OWN][PATH_SIZE + 64];
    const char **overrides =
        malloc(sizeof(*overrides) * (size_t)(argc + OWN + FIXED));
    int n = 0;
    if (overrides == NULL) {
        return LOONG_ERR_MEMORY;
    }
    snprintf(own[0], sizeof(own[0]), "++data.train=[{path: %s/tokens}]", dir);
    snprintf(own[1], sizeof(own[1]), "++log.dir=%s", dir);
    snprintf(own[2], sizeof(own[2]), "++train.train_iters=%d",
             o->steps + WARM_UP);
    for (int i = 1; i < argc; i++) {
        overrides[n++] = argv[i];
    }
    for (int i = 0; i < OWN; i++) {
        overrides[n++] = own[i];
    }
    for (int i = 0; i < FIXED; i++) {
        overrides[n++] = fixed[i];
    }
    loong_status_t status = bench_recipe(ctx, argv[0], n, overrides, recipe_p);
    free(overrides);
    return status;
}

static loong_status_t train(loong_context_t *ctx, loong_comm_t *comm,
                            loong_recipe_t *recipe)
{
    loong_trainer_t *trainer = NULL;
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe};
    loong_status_t status = loong_trainer_create(ctx, &params, &trainer);
    if (status == LOONG_OK) {
        status = loong_trainer_run(trainer);
    }
    loong_trainer_destroy(&trainer);
    return status;
}

/* Times of the steps after the warm-up, from metrics.jsonl. */
static void read_times(const char *dir, bench_times_t *times)
{
    static const char key[] = "\"ms_per_step\":";
    char path[PATH_SIZE + 32];
    char line[4096];
    int count = 0;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, key);
        if (at != NULL && count++ >= WARM_UP) {
            bench_times_add(times, strtod(at + sizeof(key) - 1, NULL));
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Of the rank that has most. Collective on: comm. */
static loong_status_t peak_memory(loong_comm_t *comm, double *mib_p)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    *mib_p = (double)usage.ru_maxrss / 1024.0;
    return loong_comm_all_reduce(comm, mib_p, 1, LOONG_F64, LOONG_REDUCE_MAX,
                                 "memory");
}

/* What a run came to. */
typedef struct result {
    int64_t micro_batches;
    double mib;
    bench_times_t steps;
    bench_times_t floors;
} result_t;

static void print(const options_t *o, const char *path, const bench_model_t *m,
                  result_t *r)
{
    double median = bench_median(&r->steps);
    double factor = (double)r->micro_batches;
    double floor_ms = bench_median(&r->floors) * factor;
    double tokens = (double)m->tokens * factor;
    if (o->json) {
        printf("{\"bench\":\"step\",\"recipe\":\"%s\",\"dtype\":\"%s\","
               "\"threads\":%d,\"ms_best\":%.6g,\"ms_median\":%.6g,"
               "\"tokens_per_second\":%.6g,\"floor_ms\":%.6g,"
               "\"peak_mib\":%.1f,\"steps\":%d}\n",
               path, loong_dtype_name(m->dtype), m->threads,
               bench_best(&r->steps), median, tokens / median * 1e3, floor_ms,
               r->mib, r->steps.count);
        return;
    }
    printf("%s, %s, %d threads, %d steps\n", path, loong_dtype_name(m->dtype),
           m->threads, r->steps.count);
    printf("step    %9.1f ms (best %.1f), %.0f tokens/s\n", median,
           bench_best(&r->steps), tokens / median * 1e3);
    if (r->floors.count > 0) {
        printf("floor   %9.1f ms (best %.1f), matrix products alone\n",
               floor_ms, bench_best(&r->floors) * factor);
        printf("step / floor %4.2f\n", median / floor_ms);
    }
    printf("peak memory  %.0f MiB resident\n", r->mib);
}

/* Rank 0 writes the data and tells what was measured. */
static loong_status_t run(loong_context_t *ctx, const options_t *o,
                          const char *path, loong_comm_t *comm,
                          loong_recipe_t *recipe)
{
    const char *dir = loong_recipe_text(recipe, "log.dir");
    char prefix[PATH_SIZE + 16];
    result_t r = {1, 0.0, {NULL, 0, 0}, {NULL, 0, 0}};
    bench_model_t m = bench_model_of(ctx, recipe, &r.micro_batches);
    bool first = loong_comm_rank(comm) == 0;
    loong_status_t status = LOONG_OK;
    snprintf(prefix, sizeof(prefix), "%s/tokens", dir);
    if (first) {
        status = write_tokens(ctx, prefix, &m,
                              BATCHES * (m.tokens * r.micro_batches + 1));
    }
    if (status == LOONG_OK) {
        status = loong_comm_barrier(comm, "data");
    }
    if (status == LOONG_OK) {
        status = train(ctx, comm, recipe);
    }
    if (status == LOONG_OK) {
        status = peak_memory(comm, &r.mib);
    }
    if (status != LOONG_OK || !first) {
        return status;
    }
    read_times(dir, &r.steps);
    if (o->floor_seconds > 0.0 && !m.experts) {
        status = bench_floor_times(ctx, &m, 3, o->floor_seconds, &r.floors);
    }
    if (status == LOONG_OK) {
        print(o, path, &m, &r);
    }
    free(r.steps.ms);
    free(r.floors.ms);
    return status;
}

static loong_status_t run_ranks(loong_context_t *ctx, const options_t *o,
                                int argc, char **argv)
{
    char dir[PATH_SIZE];
    options_t mine = *o;
    loong_comm_t *comm = NULL;
    loong_recipe_t *recipe = NULL;
    const char *tmp = getenv("TMPDIR");
    loong_status_t status = loong_comm_create_world(ctx, NULL, &comm);
    if (status != LOONG_OK) {
        return status;
    }
    bool first = loong_comm_rank(comm) == 0;
    if (loong_comm_size(comm) > 1) {
        mine.floor_seconds = 0.0; /* the products of one rank alone */
    }
    snprintf(dir, sizeof(dir), "%s/loong-bench-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    if (first && mkdtemp(dir) == NULL) {
        fprintf(stderr, "loong-bench: cannot make the directory %s\n", dir);
        status = LOONG_ERR_IO;
    }
    if (status == LOONG_OK) {
        status = loong_comm_broadcast(comm, dir, sizeof(dir), 0, "directory");
    }
    if (status == LOONG_OK) {
        status = load(ctx, &mine, dir, argc, argv, &recipe);
    }
    if (status == LOONG_OK) {
        status = run(ctx, &mine, argv[0], comm, recipe);
    }
    loong_recipe_destroy(&recipe);
    if (first) {
        remove_files(dir);
    }
    loong_comm_destroy(&comm);
    return status;
}

static int help(void)
{
    printf("usage: loong-bench step [OPTION]... RECIPE [a.b=c]...\n\n"
           "Trains on random tokens and times each step; then the matrix "
           "products alone.\nOMP_NUM_THREADS sets the threads. Under mpirun "
           "the ranks share the global batch,\nand the products are left "
           "out, as with experts; rank 0 tells the times of a step, which\n"
           "ends for all together, and the memory of the rank that has "
           "most.\n\n"
           "  --steps N            to measure, after %d to warm up; 12\n"
           "  --floor-seconds S    5; 0: no floor\n"
           "  --json               one line of JSON, with ms_median\n",
           WARM_UP);
    return LOONG_EXIT_OK;
}

int bench_step(loong_context_t *ctx, int argc, char **argv)
{
    static const struct option table[] = {
        {"steps", required_argument, NULL, 's'},
        {"floor-seconds", required_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    options_t o = {12, 5.0, false};
    int c;
    while ((c = options_next(argc, argv, table)) != -1) {
        switch (c) {
        case 's':
            o.steps = atoi(optarg);
            break;
        case 'f':
            o.floor_seconds = atof(optarg);
            break;
        case 'j':
            o.json = true;
            break;
        case 'h':
            return help();
        default: /* it has been said */
            return LOONG_EXIT_USAGE;
        }
    }
    if (optind == argc || o.steps < 1) {
        return bench_usage("step", optind == argc ? "no recipe given"
                                                  : "--steps must be positive");
    }
    loong_status_t status = run_ranks(ctx, &o, argc - optind, argv + optind);
    return status == LOONG_OK ? LOONG_EXIT_OK : bench_fail(ctx, status);
}
