/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer tells: statistics of tensors in metrics.jsonl, equal on one
 * rank and two; the predicted time of a step. */
#include "engine_run.h"

#include <unistd.h>

#include "file.h"
#include "json.h"
#include "trainer_impl.h"

/* One key head. */
#define QWEN                                                                  \
    "family: qwen3, num_layers: 2, num_attention_heads: 2, "                  \
    "num_query_groups: 1, kv_channels: 16, qk_layernorm: true"

typedef struct job {
    char dir[64];
    const char *model;
    const char *extra;
    bool predict;
    const char *scopes; /* NULL: the last layer and the head */
    char text[2048];
} job_t;

static loong_status_t make_recipe(loong_context_t *ctx, const job_t *job,
                                  loong_recipe_t **recipe_p)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "model:\n"
             "  foundation: {%s, hidden_size: 32, ffn_hidden_size: 48,\n"
             "    vocab_size: %d, max_position_embeddings: 64,\n"
             "    hidden_dropout: 0.1, activation: swiglu}\n"
             "data: {seq_length: 16, train: [{path: %s/data}]}\n"
             "train: {micro_batch_size: 1, global_batch_size: 8,\n"
             "  train_iters: 4}\n"
             "optimizer: {lr: 1e-2}\n"
             "log: {dir: %s/log, tensors_interval: 2,\n"
             "  tensors: %s}\n"
             "%s\n",
             job->model, ENGINE_VOCAB, job->dir, job->dir,
             job->scopes != NULL ? job->scopes : "['layers.1.*', lm_head]",
             job->extra);
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
        t->report.gemm_gflops = INFINITY; /* not measured */
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
        job_t job = {"", QWEN, "precision: {params_dtype: fp64}", false, NULL,
                     ""};
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

/* Finds a record of the one rank. */
static const record_t *same_as(const record_t *r, const record_t *all,
                               int count)
{
    for (int i = 0; i < count; i++) {
        if (all[i].step == r->step && all[i].gradient == r->gradient &&
            strcmp(all[i].name, r->name) == 0) {
            return &all[i];
        }
    }
    return NULL;
}

enum { MOST_ALL = 1024 };

/* All tensors of a model. */
static int log_all(loong_context_t *ctx, const char *model, int ranks,
                   const char *extra, record_t *records)
{
    char more[512];
    snprintf(more, sizeof(more), "precision: {params_dtype: fp64}\n%s", extra);
    job_t job = {"", model, more, false, "['*']", ""};
    begin(ctx, &job, ranks);
    int count = read_records(ctx, &job, records, MOST_ALL);
    end(ctx, &job);
    return count;
}

/* Every tensor of the model as on one rank, in the same order; `missing`: so
 * many gradients are in no layout's hands as a whole. */
static void check_layout(const char *model, int ranks, const char *extra,
                         int missing)
{
    static record_t one[MOST_ALL], all[MOST_ALL];
    static const char *last = NULL; /* the model that `one` is of */
    static int count = 0;
    loong_context_t *ctx = test_context();
    if (model != last) {
        count = log_all(ctx, model, 1, "", one);
        last = model;
    }
    int found = log_all(ctx, model, ranks, extra, all);
    for (int i = 0; i < found; i++) {
        const record_t *r = same_as(&all[i], one, count);
        const char *of = all[i].gradient ? "gradient" : "output";
        if (r == NULL) {
            fail_msg("%d ranks, %s: %s %s is not one of one rank's", ranks,
                     extra, of, all[i].name);
        } else if (!near(all[i].norm, r->norm) || !near(all[i].max, r->max)) {
            fail_msg("%d ranks, %s: %s %s: norm %g, max %g, one rank has %g "
                     "and %g", ranks, extra, of, all[i].name, all[i].norm,
                     all[i].max, r->norm, r->max);
        }
    }
    for (int i = 0; i < count && found != count - missing; i++) {
        if (same_as(&one[i], all, found) == NULL) {
            fail_msg("%d ranks, %s: %s of %s is missing (%d of %d)", ranks,
                     extra, one[i].gradient ? "gradient" : "output",
                     one[i].name, found, count);
        }
    }
    assert_int_equal(found, count - missing);
    for (int i = 0; i < count && missing == 0; i++) {
        assert_string_equal(all[i].name, one[i].name);
    }
    test_context_end(&ctx);
}

#define DENSE                                                                 \
    "family: qwen3, num_layers: 4, num_attention_heads: 4, "                  \
    "num_query_groups: 2, kv_channels: 8, qk_layernorm: true"
#define MIXTURE                                                               \
    "family: qwen2_moe, num_layers: 2, num_attention_heads: 4, "              \
    "num_query_groups: 2, kv_channels: 8, num_experts: 4, "                   \
    "moe_router_topk: 2, moe_ffn_hidden_size: 16, "                           \
    "moe_shared_expert_intermediate_size: 24, moe_aux_loss_coeff: 0.01"

static void test_layouts(void **state)
{
    (void)state;
    static const char dense[] = DENSE;
    static const char mixture[] = MIXTURE;
    static const struct {
        const char *model;
        int ranks;
        const char *extra;
        int missing;
    } cases[] = {
        {dense, 1, "recompute: {granularity: full}", 0},
        {dense, 2, "parallel: {tensor_model_parallel_size: 2}", 0},
        {dense, 4, "parallel: {tensor_model_parallel_size: 2, "
                   "sequence_parallel: true}", 0},
        {dense, 2, "parallel: {context_parallel_size: 2}", 0},
        {dense, 4, "parallel: {context_parallel_size: 4, "
                   "cp_comm_type: a2a}", 0},
        {dense, 4, "parallel: {context_parallel_size: 4, cp_comm_type: "
                   "a2a+p2p, hierarchical_context_parallel_sizes: [2, 2]}", 0},
        {dense, 2, "parallel: {pipeline_model_parallel_size: 2}\n"
                   "schedule: zero_bubble_h1", 0},
        {dense, 4, "parallel: {pipeline_model_parallel_size: 2, "
                   "tensor_model_parallel_size: 2, sequence_parallel: true, "
                   "num_layers_per_virtual_pipeline_stage: 1}", 0},
        /* Both ranks have parts of the gradients of q|k|v, of the norm of k and
         * of the rotated k of each layer, in both steps. */
        {QWEN, 2, "parallel: {tensor_model_parallel_size: 2}", 2 * 2 * 3},
        {mixture, 2, "parallel: {expert_model_parallel_size: 2}", 0},
        {mixture, 4, "parallel: {expert_model_parallel_size: 4, "
                     "moe_token_dispatcher_type: alltoall}", 0},
        {mixture, 4, "parallel: {tensor_model_parallel_size: 2, "
                     "sequence_parallel: true, context_parallel_size: 2, "
                     "expert_model_parallel_size: 2}", 0},
    };
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        check_layout(cases[i].model, cases[i].ranks, cases[i].extra,
                     cases[i].missing);
    }
}

/* ---- prediction ---------------------------------------------------------- */

/* Parts add up to the step, and tokens a second fit it. */
static void check_prediction(const char *extra, int ranks)
{
    loong_context_t *ctx = test_context();
    job_t job = {"", QWEN, extra, true, NULL, ""};
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
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_prediction),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
