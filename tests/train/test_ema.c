/* SPDX-License-Identifier: Apache-2.0
 *
 * The exponential moving average of what is trained: that of the formula, for
 * every class of optimizers; evaluated, exported, and resumed on another
 * layout; training itself does not see it. */
#include "file.h"
#include "native.h"
#include "train_job.h"

enum { STEPS = 20 };

#define EMA "optimizer.ema.decay=0.8\n"
#define VALID "data.validation=[{name: v, path: $DIR/data}]\neval.iters=1\n"

static void run(const job_place_t *p, int ranks, const char *keys,
                job_result_t *r)
{
    job_run(p, ranks, keys, r);
    if (r->status != LOONG_OK) {
        fail_msg("%s: %s", keys, r->error);
    }
}

/* Two steps of four. */
static void stop(const job_place_t *p, int ranks, const char *keys)
{
    job_result_t r;
    job_run(p, ranks, keys, &r);
    assert_int_equal(r.state.step, 2);
}

/* The validation loss of a run that evaluates alone. */
static double evaluation(const job_place_t *p, int ranks, const char *keys)
{
    job_result_t r;
    job_evaluate(p, ranks, keys, &r);
    if (r.status != LOONG_OK) {
        fail_msg("%s: %s", keys, r.error);
    }
    const char *text = strstr(r.log, " loss ");
    assert_non_null(text);
    return atof(text + 6);
}

static void clear(const job_place_t *p, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", p->dir, name);
    assert_ok(p->ctx, loongi_dir_remove(p->ctx, path));
}

/* Decay of update number n, from 0, as diffusers' EMAModel has it. */
static double decay_of(int n, int start, bool warmup)
{
    int step = n - start;
    double most = (1.0 + step) / (10.0 + step);
    return step <= 0 ? 0.0 : warmup ? fmin(0.8, most) : 0.8;
}

static void averages_are_those_of_the_formula(void **state)
{
    static const struct {
        const char *keys;
        int start;
        bool warmup;
    } cases[] = {
        {"", 0, false},
        {"optimizer.name=sgd\noptimizer.ema.use_ema_warmup=true\n", 0, true},
        {"optimizer.name=lion\noptimizer.ema.update_after_step=3\n", 3, false},
        {"optimizer.groups=[{scope: layers.*_proj, name: muon}, "
         "{scope: layers.*norm}, {scope: embed_tokens}, {scope: norm}]\n"
         "optimizer.ema.update_after_step=3\n"
         "optimizer.ema.use_ema_warmup=true\n",
         3, true}};
    static const char *const names[] = {
        "foundation.layers.1.mlp.down_proj.weight", "foundation.norm.weight"};
    (void)state;
    for (int c = 0; c < LOONG_COUNT_OF(cases); c++) {
        job_place_t p = job_begin();
        job_result_t r;
        char keys[1024];
        snprintf(keys, sizeof(keys),
                 EMA "train.train_iters=20\ncheckpoint.save_interval=1\n"
                     "checkpoint.keep_last=0\n%s",
                 cases[c].keys);
        run(&p, 1, keys, &r);
        for (int t = 0; t < 2; t++) {
            double *average = calloc(4096, sizeof(*average));
            double *x = NULL;
            for (int n = 0; n < STEPS; n++) {
                char step[64];
                double d = decay_of(n, cases[c].start, cases[c].warmup);
                snprintf(step, sizeof(step), "save/step_%08d", n + 1);
                int64_t count = job_tensor(&p, step, "param", names[t], &x);
                assert_in_range(count, 1, 4096);
                for (int64_t i = 0; i < count; i++) {
                    average[i] = d * average[i] + (1.0 - d) * x[i];
                }
                free(x);
                assert_int_equal(job_tensor(&p, step, "ema", names[t], &x),
                                 count);
                for (int64_t i = 0; i < count; i++) {
                    assert_true(fabs(x[i] - average[i]) <= 1e-14);
                }
                free(x);
            }
            free(average);
        }
        job_end(&p);
    }
}

/* Losses of a run, and of its evaluations. */
static void curves(const job_place_t *p, double loss[4], double eval[4])
{
    assert_int_equal(job_metrics(p, NULL, "loss", loss, 4), 4);
    assert_int_equal(job_metrics(p, "v", "loss", eval, 4), 4);
}

/* In bf16 parameters are rounded masters: a swap gives both halves back. */
static void training_does_not_see_it(void **state)
{
    static const char *const layouts[] = {
        "", "parallel.data_parallel_sharding=optim\n",
        "parallel.data_parallel_sharding=optim_grads_params\n"
        "precision.params_dtype=bf16\n",
        "precision.params_dtype=bf16\n"};
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        double loss[2][4], eval[2][4];
        job_place_t p = job_begin();
        job_result_t r;
        char keys[1024];
        for (int k = 0; k < 2; k++) {
            snprintf(keys, sizeof(keys),
                     VALID "eval.interval=1\noptimizer.lr=0.05\n"
                           "checkpoint.save_interval=2\n%s%s"
                           "checkpoint.save=$DIR/save%d\n",
                     layouts[i], k == 1 ? EMA "eval.ema=true\n" : "", k);
            run(&p, 2, keys, &r);
            curves(&p, loss[k], eval[k]);
            clear(&p, "log");
        }
        assert_memory_equal(loss[0], loss[1], sizeof(loss[0]));
        assert_true(eval[0][0] == eval[1][0]); /* the first average */
        assert_true(fabs(eval[0][3] - eval[1][3]) > 1e-3);
        job_end(&p);
    }
}

static void evaluated_exported_and_resumed(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    double loss, eval[2], *x = NULL, *y = NULL;
    static const char name[] = "foundation.layers.0.self_attn.q_proj.weight";
    run(&p, 1,
        EMA VALID "optimizer.lr=0.05\neval.ema=true\n"
                  "export.hf=$DIR/hf\nexport.ema=true\n",
        &r);
    assert_int_equal(job_metrics(&p, "v", "loss", eval, 2), 1);
    loss = evaluation(&p, 2,
                      EMA VALID "eval.ema=true\ncheckpoint.load=auto\n"
                                "parallel.data_parallel_sharding=optim\n");
    assert_true(fabs(loss - eval[0]) <= 1e-4);
    loss =
        evaluation(&p, 1,
                   VALID "~model.foundation\n"
                         "init.from_hf=$DIR/hf\ncheckpoint.save=$DIR/none\n");
    assert_true(fabs(loss - eval[0]) <= 1e-4);
    loss = evaluation(&p, 1, EMA VALID "checkpoint.load=auto\n");
    assert_true(fabs(loss - eval[0]) > 1e-3);
    stop(&p, 2,
         EMA "optimizer.lr=0.05\ntrain.exit_interval=2\n"
             "checkpoint.save=$DIR/parts\n"
             "parallel.data_parallel_sharding=optim_grads_params\n");
    run(&p, 2,
        EMA "optimizer.lr=0.05\ncheckpoint.save=$DIR/parts\n"
            "checkpoint.load=auto\nparallel.pipeline_model_parallel_size=2\n",
        &r);
    int64_t n = job_tensor(&p, "save", "ema", name, &x);
    assert_int_equal(job_tensor(&p, "parts", "ema", name, &y), n);
    for (int64_t i = 0; i < n; i++) {
        assert_true(fabs(x[i] - y[i]) <= 1e-12);
    }
    free(x);
    free(y);
    job_end(&p);
}

static void refused(const job_place_t *p, const char *keys, const char *says)
{
    job_result_t r;
    job_run(p, 1, keys, &r);
    assert_int_not_equal(r.status, LOONG_OK);
    if (strstr(r.error, says) == NULL) {
        fail_msg("'%s' is not in: %s", says, r.error);
    }
}

static void what_has_no_average_is_refused(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    refused(&p, "eval.ema=true\n", "eval.ema: has no effect without");
    refused(&p, EMA "export.ema=true\n", "has no effect without export.hf");
    stop(&p, 1, "train.exit_interval=2\n");
    refused(&p, EMA "checkpoint.load=auto\n",
            "has no averages: training with optimizer.ema.update_after_step");
    run(&p, 1, EMA "checkpoint.load=auto\noptimizer.ema.update_after_step=2\n",
        &r);
    run(&p, 1, "checkpoint.load=auto\ntrain.train_iters=5\n", &r);
    assert_non_null(strstr(r.log, "has averages of parameters"));
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_are_those_of_the_formula),
        cmocka_unit_test(training_does_not_see_it),
        cmocka_unit_test(evaluated_exported_and_resumed),
        cmocka_unit_test(what_has_no_average_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
