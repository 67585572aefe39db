/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer tells: statistics of tensors in metrics.jsonl, equal on one
 * rank and two; the predicted time of a step. */
#include "engine_run.h"

#include <unistd.h>

#include "file.h"
#include "json.h"

typedef struct job {
    char dir[64];
    const char *extra;
    bool predict;
    char text[2048];
} job_t;

static loong_status_t make_recipe(loong_context_t *ctx, const job_t *job,
                                  loong_recipe_t **recipe_p)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "model:\n"
             "  foundation: {family: qwen3, num_layers: 2, hidden_size: 32,\n"
             "    ffn_hidden_size: 48, num_attention_heads: 2,\n"
             "    num_query_groups: 1, kv_channels: 16, vocab_size: %d,\n"
             "    max_position_embeddings: 64, qk_layernorm: true,\n"
             "    hidden_dropout: 0.1, activation: swiglu}\n"
             "data: {seq_length: 16, train: [{path: %s/data}]}\n"
             "train: {micro_batch_size: 1, global_batch_size: 8,\n"
             "  train_iters: 4}\n"
             "optimizer: {lr: 1e-2}\n"
             "log: {dir: %s/log, tensors_interval: 2,\n"
             "  tensors: ['layers.1.*', lm_head]}\n"
             "%s\n",
             ENGINE_VOCAB, job->dir, job->dir, job->extra);
    return loong_recipe_parse(ctx, "test", text, NULL, recipe_p);
}

static loong_status_t work(loong_context_t *ctx, loong_comm_t *comm,
                           void *user)
{
    job_t *job = user;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *t = NULL;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(make_recipe(ctx, job, &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .plan_only = job->predict};
    loong_status_t status = loong_trainer_create(ctx, &params, &t);
    if (status == LOONG_OK && job->predict) {
        const char *text = NULL;
        status = loong_trainer_predict(t, &text);
        if (status == LOONG_OK && loong_comm_rank(comm) == 0) {
            snprintf(job->text, sizeof(job->text), "%s", text);
        }
    } else if (status == LOONG_OK) {
        status = loong_trainer_run(t);
    }
    loong_trainer_destroy(&t);
    loong_recipe_destroy(&recipe);
    return status;
}

static void begin(loong_context_t *ctx, job_t *job, int ranks)
{
    loong_threads_params_t params = {0};
    params.size = ranks;
    snprintf(job->dir, sizeof(job->dir), "/tmp/loong-log-XXXXXX");
    assert_non_null(mkdtemp(job->dir));
    engine_make_data(ctx, job->dir, ENGINE_VOCAB, 1 << 13);
    assert_ok(ctx, loong_threads_run(ctx, &params, work, job));
}

static void end(loong_context_t *ctx, const job_t *job)
{
    assert_ok(ctx, loongi_dir_remove(ctx, job->dir));
}

/* ---- tensors ------------------------------------------------------------- */

typedef struct record {
    int step;
    char name[128];
    bool gradient;
    double norm, max, not_finite;
} record_t;

static int read_records(loong_context_t *ctx, const job_t *job,
                        record_t *records, int most)
{
    char path[128];
    char *text = NULL;
    size_t length = 0;
    int count = 0;
    snprintf(path, sizeof(path), "%s/log/metrics.jsonl", job->dir);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    for (char *line = strtok(text, "\n"); line != NULL;
         line = strtok(NULL, "\n")) {
        loong_json_t *json = NULL;
        assert_ok(ctx, loongi_json_parse(ctx, line, strlen(line), "line",
                                         &json));
        const loong_json_t *name = loongi_json_get(json, "tensor");
        if (name != NULL) {
            assert_true(count < most);
            record_t *r = &records[count++];
            const char *of = loongi_json_string(loongi_json_get(json, "of"));
            r->step = (int)loongi_json_int(loongi_json_get(json, "step"));
            snprintf(r->name, sizeof(r->name), "%s", loongi_json_string(name));
            r->gradient = strcmp(of, "gradient") == 0;
            r->norm = loongi_json_real(loongi_json_get(json, "norm"));
            r->max = loongi_json_real(loongi_json_get(json, "max"));
            r->not_finite =
                loongi_json_real(loongi_json_get(json, "not_finite"));
        }
        loongi_json_destroy(&json);
    }
    loongi_free(ctx, text);
    return count;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-8 * fabs(b);
}

/* In f64 the same on one rank and on two; of steps 2 and 4; outputs and
 * gradients of everything in the scopes, nothing of other scopes. */
static void test_tensors(void **state)
{
    (void)state;
    enum { MOST = 128 };
    static record_t records[2][MOST];
    int count[2];
    int gradients = 0;
    loong_context_t *ctx = test_context();
    for (int i = 0; i < 2; i++) {
        job_t job = {"", "precision: {params_dtype: fp64}", false, ""};
        begin(ctx, &job, i + 1);
        count[i] = read_records(ctx, &job, records[i], MOST);
        end(ctx, &job);
    }
    assert_int_equal(count[0], count[1]);
    assert_true(count[0] > 2 * 2 * 12);
    for (int k = 0; k < count[0]; k++) {
        const record_t *a = &records[0][k];
        const record_t *b = &records[1][k];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->step, k < count[0] / 2 ? 2 : 4);
        assert_int_equal(a->step, b->step);
        assert_int_equal(a->gradient, b->gradient);
        assert_true(a->norm > 0.0 && a->max > 0.0 && a->max <= a->norm);
        assert_true(near(a->norm, b->norm) && near(a->max, b->max));
        assert_true(a->not_finite == 0.0 && b->not_finite == 0.0);
        assert_true(strncmp(a->name, "layers.1.", 9) == 0 ||
                    strncmp(a->name, "lm_head.", 8) == 0);
        gradients += a->gradient;
    }
    assert_true(gradients > count[0] / 3);
    test_context_end(&ctx);
}

/* ---- prediction ---------------------------------------------------------- */

/* Parts add up to the step, and tokens a second fit it. */
static void check_prediction(const char *extra, int ranks)
{
    loong_context_t *ctx = test_context();
    job_t job = {"", extra, true, ""};
    double step = 0.0;
    double rate = 0.0;
    double part[3] = {0.0, 0.0, 0.0};
    long long timed = 0;
    begin(ctx, &job, ranks);
    assert_int_equal(
        sscanf(job.text,
               "predicted step: %lf ms (%lf tokens/s): forward %lf, backward "
               "%lf, optimizer %lf\n  from %lld launches timed",
               &step, &rate, &part[0], &part[1], &part[2], &timed),
        6);
    assert_true(fabs(step - part[0] - part[1] - part[2]) < 0.21);
    assert_true(fabs(rate - 8 * 16 / (1e-3 * step)) < 0.6 / step * rate + 1.0);
    assert_true(part[0] > 0.0 && part[1] > 0.0 && timed > 20);
    assert_int_equal(strstr(job.text, "collectives are not in it") != NULL,
                     ranks > 1);
    end(ctx, &job);
    test_context_end(&ctx);
}

static void test_prediction(void **state)
{
    (void)state;
    check_prediction("precision: {params_dtype: fp32}", 1);
    check_prediction("precision: {params_dtype: bf16}\n"
                     "recompute: {granularity: full}",
                     2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_prediction),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
