/* SPDX-License-Identifier: Apache-2.0 */
#include "train_job.h"

#include <pthread.h>
#include <unistd.h>

#include "file.h"
#include "json.h"
#include "loong/comm.h"
#include "loong/dataset.h"
#include "loong/register.h"
#include "native.h"

enum { DOCUMENTS = 40, MAX_OVERRIDES = 32 };

/* ---- the place ----------------------------------------------------------- */

static void make_data(loong_context_t *ctx, const char *dir)
{
    char prefix[300];
    uint32_t state = 7;
    snprintf(prefix, sizeof(prefix), "%s/data", dir);
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, false};
    loong_dataset_writer_t *writer = NULL;
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t ids[200];
        for (int i = 0; i < 200; i++) {
            state = state * 1664525u + 1013904223u;
            ids[i] = (i % 3 == 0 && i > 0)
                         ? (ids[i - 1] * 5 + 1) % JOB_VOCAB
                         : (int32_t)(state >> 16) % JOB_VOCAB;
        }
        assert_ok(ctx, loong_dataset_writer_add(writer, ids, NULL, 120 + d));
        assert_ok(ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
}

job_place_t job_begin(void)
{
    job_place_t place = {test_context(), "/tmp/loong_train_XXXXXX"};
    assert_non_null(mkdtemp(place.dir));
    make_data(place.ctx, place.dir);
    return place;
}

void job_end(job_place_t *place)
{
    assert_ok(place->ctx, loongi_dir_remove(place->ctx, place->dir));
    test_context_end(&place->ctx);
}

/* ---- the run ------------------------------------------------------------- */

static const char recipe_text[] =
    "seed: 11\n"
    "model:\n"
    "  foundation: {family: qwen3, num_layers: 2, hidden_size: 24,\n"
    "    ffn_hidden_size: 40, num_attention_heads: 3,\n"
    "    num_query_groups: 1, kv_channels: 8, vocab_size: 61,\n"
    "    make_vocab_size_divisible_by: 8, max_position_embeddings: 64,\n"
    "    qk_layernorm: true, activation: swiglu,\n"
    "    untie_embeddings_and_output_weights: false}\n"
    "precision: {params_dtype: fp64}\n"
    "data: {seq_length: 16}\n"
    "train: {micro_batch_size: 1, global_batch_size: 12, train_iters: 4}\n"
    "optimizer: {lr: 3e-3}\n"
    "log: {interval: 1, tensorboard: false}\n";

typedef struct job {
    const job_place_t *place;
    bool evaluate;
    int num_overrides;
    const char *overrides[MAX_OVERRIDES];
    job_result_t *result;
    pthread_mutex_t lock;
} job_t;

static void add_log(void *user, loong_log_level_t level, const char *line)
{
    job_t *job = user;
    char *log = job->result->log;
    pthread_mutex_lock(&job->lock);
    size_t used = strlen(log);
    snprintf(log + used, JOB_LOG - used, "%s%s\n",
             level == LOONG_LOG_WARN ? "warning: " : "", line);
    pthread_mutex_unlock(&job->lock);
}

static loong_status_t train(loong_context_t *ctx, loong_comm_t *comm,
                            void *user)
{
    job_t *job = user;
    loong_recipe_params_t overrides = {NULL, job->num_overrides,
                                       job->overrides, 0, NULL};
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_recipe_parse(ctx, "test", recipe_text, &overrides,
                                 &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .evaluate_only = job->evaluate};
    loong_status_t status = loong_trainer_create(ctx, &params, &trainer);
    if (status == LOONG_OK) {
        status = job->evaluate ? loong_trainer_evaluate(trainer)
                               : loong_trainer_run(trainer);
    }
    if (trainer != NULL && loong_comm_rank(comm) == 0) {
        job->result->state = loong_trainer_get_state(trainer);
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return status;
}

/* Lines to overrides; $DIR becomes the directory. */
static void add_overrides(job_t *job, const char *lines, char *text,
                          size_t size)
{
    size_t n = 0;
    bool begins = true;
    for (const char *c = lines; *c != '\0'; c++) {
        assert_true(n + 128 < size);
        if (begins) {
            assert_true(job->num_overrides < MAX_OVERRIDES);
            job->overrides[job->num_overrides++] = text + n;
            n += (size_t)snprintf(text + n, size - n, *c == '~' ? "" : "++");
        }
        begins = *c == '\n';
        if (strncmp(c, "$DIR", 4) == 0) {
            n += (size_t)snprintf(text + n, size - n, "%s", job->place->dir);
            c += 3;
        } else {
            text[n++] = begins ? '\0' : *c;
        }
    }
    text[n] = '\0';
}

static void start(job_t *job, int ranks, const char *overrides)
{
    loong_threads_params_t params;
    char own[1024];
    char theirs[4096];
    memset(&params, 0, sizeof(params));
    memset(job->result, 0, sizeof(*job->result));
    add_overrides(job,
                  "data.train=[{path: $DIR/data}]\n"
                  "log.dir=$DIR/log\n"
                  "checkpoint.save=$DIR/save\n",
                  own, sizeof(own));
    add_overrides(job, overrides, theirs, sizeof(theirs));
    params.size = ranks;
    params.context.log = add_log;
    params.context.log_user = job;
    params.context.log_level = LOONG_LOG_INFO;
    pthread_mutex_init(&job->lock, NULL);
    job->result->status =
        loong_threads_run(job->place->ctx, &params, train, job);
    pthread_mutex_destroy(&job->lock);
    snprintf(job->result->error, sizeof(job->result->error), "%s",
             loong_context_error(job->place->ctx));
    loong_context_clear_error(job->place->ctx);
}

void job_run(const job_place_t *place, int ranks, const char *overrides,
             job_result_t *result)
{
    job_t job;
    memset(&job, 0, sizeof(job));
    job.place = place;
    job.result = result;
    start(&job, ranks, overrides);
}

void job_evaluate(const job_place_t *place, int ranks, const char *overrides,
                  job_result_t *result)
{
    job_t job;
    memset(&job, 0, sizeof(job));
    job.place = place;
    job.result = result;
    job.evaluate = true;
    start(&job, ranks, overrides);
}

/* ---- what it wrote ------------------------------------------------------- */

/* Of the lines that have `mark`, with this text unless that is NULL. */
static int read_values(const job_place_t *place, const char *mark,
                       const char *text_of_mark, const char *key,
                       double *values, int room)
{
    char path[128];
    char *text = NULL;
    char *rest = NULL;
    size_t length = 0;
    int count = 0;
    loong_context_t *ctx = place->ctx;
    snprintf(path, sizeof(path), "%s/log/metrics.jsonl", place->dir);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        loong_json_t *json = NULL;
        assert_ok(ctx, loongi_json_parse(ctx, line, strlen(line), path, &json));
        const loong_json_t *found = loongi_json_get(json, mark);
        const loong_json_t *value = loongi_json_get(json, key);
        if (found != NULL &&
            (text_of_mark == NULL ||
             strcmp(loongi_json_string(found), text_of_mark) == 0)) {
            assert_true(count < room);
            bool number =
                value != NULL && (loongi_json_kind(value) == LOONG_JSON_INT ||
                                  loongi_json_kind(value) == LOONG_JSON_REAL);
            values[count++] = number ? loongi_json_real(value) : NAN;
        }
        loongi_json_destroy(&json);
    }
    loongi_free(ctx, text);
    return count;
}

int job_metrics(const job_place_t *place, const char *set, const char *key,
                double *values, int room)
{
    return read_values(place, set != NULL ? "eval" : "grad_norm", set, key,
                       values, room);
}

int job_saves(const job_place_t *place, const char *key, double *values,
              int room)
{
    return read_values(place, "save_bytes", NULL, key, values, room);
}

/* Reads a tensor of the last checkpoint in <dir>/<save> as f64. */
int64_t job_tensor(const job_place_t *place, const char *save,
                   const char *kind, const char *name, double **values_p)
{
    char path[128];
    loong_checkpoint_t *ck = NULL;
    snprintf(path, sizeof(path), "%s/%s", place->dir, save);
    assert_ok(place->ctx, loongi_checkpoint_open(place->ctx, path, &ck));
    const loong_checkpoint_tensor_t *t = loongi_checkpoint_find(ck, kind, name);
    assert_non_null(t);
    int64_t n = t->shape[0] * (t->ndim > 1 ? t->shape[1] : 1);
    *values_p = calloc((size_t)n, sizeof(**values_p));
    assert_ok(place->ctx, loongi_checkpoint_read_rows(ck, t, 0, t->shape[0],
                                                      LOONG_F64, *values_p));
    loongi_checkpoint_close(&ck);
    return n;
}
