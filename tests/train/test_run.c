/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a training: batch and learning rate by step, clipping, saving,
 * stopping, numbers that are not finite, going on with something changed. */
#include "native_layout.h"
#include "train_job.h"

#include <dirent.h>

enum { ROOM = 64 };

#define PLAIN "optimizer.lr_decay_style=constant\n"

static void run_ok(const job_place_t *p, int ranks, const char *overrides,
                   job_result_t *r)
{
    job_run(p, ranks, overrides, r);
    if (r->status != LOONG_OK) {
        fail_msg("status %s\n%s", loong_status_text(r->status), r->error);
    }
}

static void assert_numbers(const job_place_t *p, const char *key,
                           const double *wanted, int count)
{
    double found[ROOM];
    int n = job_metrics(p, NULL, key, found, ROOM);
    assert_int_equal(n, count);
    for (int i = 0; i < n; i++) {
        /* nine figures are written */
        if (fabs(found[i] - wanted[i]) > 1e-8 * fabs(wanted[i])) {
            fail_msg("%s of line %d: %.9g, wanted %.9g", key, i + 1, found[i],
                     wanted[i]);
        }
    }
}

static void learning_rates_follow_the_schedule(void **state)
{
    (void)state;
    /* Warm-up to step 2, stable, the last 4 of 10 steps fall to min_lr. */
    const double wsd[10] = {5e-3, 1e-2,    1e-2,   1e-2,    1e-2,
                            1e-2, 0.00775, 0.0055, 0.00325, 0.001};
    const double linear[5] = {0.0078, 0.0056, 0.0034, 0.0012, 0.0012};
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 1,
           "train.train_iters=10\noptimizer.lr=1e-2\noptimizer.min_lr=1e-3\n"
           "optimizer.lr_warmup_iters=2\noptimizer.lr_decay_style=WSD\n"
           "optimizer.lr_wsd_decay_iters=4\n"
           "optimizer.lr_wsd_decay_style=linear\n",
           &r);
    assert_numbers(&p, "lr", wsd, 10);
    run_ok(&p, 1,
           "train.train_iters=5\noptimizer.lr=1e-2\noptimizer.min_lr=1.2e-3\n"
           "optimizer.lr_decay_style=linear\noptimizer.lr_decay_iters=4\n"
           "checkpoint.save=$DIR/other\n",
           &r);
    assert_numbers(&p, "lr", linear, 5);
    job_end(&p);
}

static void batches_ramp_up(void **state)
{
    /* [4, 4, 32]: 4 until 16 samples, 8 until 32, then 12. */
    const double samples[7] = {4, 8, 12, 16, 24, 32, 44};
    double tokens[7];
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    for (int i = 0; i < 7; i++) {
        tokens[i] = 16.0 * samples[i];
    }
    run_ok(&p, 2,
           PLAIN "train.train_iters=7\n"
                 "train.rampup_batch_size=[4, 4, 32]\n",
           &r);
    assert_numbers(&p, "tokens", tokens, 7);
    assert_int_equal(r.state.consumed_samples, 44);
    /* The same length given in samples is the same number of steps. */
    run_ok(&p, 2,
           PLAIN "~train.train_iters\ntrain.train_samples=44\n"
                 "train.rampup_batch_size=[4, 4, 32]\n"
                 "checkpoint.save=$DIR/other\n",
           &r);
    assert_int_equal(r.state.step, 7);
    job_end(&p);
}

/* Norm of a moment over all tensors of the checkpoint is too much to ask: the
 * first moment after one step is (1 - beta1) x the clipped gradient. */
static void gradients_are_clipped_to_the_norm(void **state)
{
    double *v[2] = {NULL, NULL};
    double norm[ROOM];
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2, "train.train_iters=1\noptimizer.clip_grad=0\n", &r);
    assert_int_equal(job_metrics(&p, NULL, "grad_norm", norm, ROOM), 1);
    run_ok(&p, 2,
           "train.train_iters=1\noptimizer.clip_grad=0.01\n"
           "checkpoint.save=$DIR/clipped\n",
           &r);
    assert_true(norm[0] > 0.1); /* so that clipping has work */
    const char *name = "foundation.layers.1.mlp.down_proj.weight";
    int64_t n = job_tensor(&p, "save", "exp_avg", name, &v[0]);
    job_tensor(&p, "clipped", "exp_avg", name, &v[1]);
    for (int64_t i = 0; i < n; i++) {
        double wanted = v[0][i] * 0.01 / (norm[0] + 1e-6);
        assert_true(fabs(v[1][i] - wanted) <= 1e-7 * fabs(wanted));
    }
    free(v[0]);
    free(v[1]);
    job_end(&p);
}

static void z_loss_adds_its_square(void **state)
{
    double loss[4];
    (void)state;
    static const char *const coefficients[] = {"0", "0.01", "0.02"};
    job_place_t p = job_begin();
    job_result_t r;
    for (int i = 0; i < 3; i++) {
        char overrides[256];
        snprintf(overrides, sizeof(overrides),
                 "train.train_iters=1\ntrain.z_loss_coeff=%s\n"
                 "checkpoint.save=$DIR/z%d\n",
                 coefficients[i], i);
        run_ok(&p, 1, overrides, &r);
        loss[i] = r.state.loss;
    }
    /* Logits are small at the start: the log-sum-exp is log(61) or so. */
    double square = (loss[1] - loss[0]) / 0.01;
    assert_true(fabs(square - log(61.0) * log(61.0)) < 0.5);
    assert_true(fabs((loss[2] - loss[0]) - 2.0 * (loss[1] - loss[0])) < 1e-12);
    job_end(&p);
}

static int count_checkpoints(const job_place_t *p, const char *save)
{
    char path[128];
    int count = 0;
    snprintf(path, sizeof(path), "%s/%s", p->dir, save);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        count += strncmp(e->d_name, "step", 4) == 0;
    }
    closedir(dir);
    return count;
}

static int occurrences(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = strstr(text, what); at != NULL;
         at = strstr(at + 1, what)) {
        count++;
    }
    return count;
}

static void checkpoints_are_made_and_thinned(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2,
           "train.train_iters=7\ncheckpoint.save_interval=2\n"
           "checkpoint.keep_last=0\n",
           &r);
    assert_int_equal(count_checkpoints(&p, "save"), 4); /* 2 4 6 7 */
    run_ok(&p, 2,
           "train.train_iters=7\ncheckpoint.save_interval=2\n"
           "checkpoint.keep_last=2\ncheckpoint.save=$DIR/two\n",
           &r);
    assert_int_equal(count_checkpoints(&p, "two"), 2);
    run_ok(&p, 2,
           "train.train_iters=5\ncheckpoint.save_interval_seconds=0.001ms\n"
           "checkpoint.keep_last=0\ncheckpoint.save=$DIR/timed\n",
           &r);
    /* Due at every second step at least: the time runs from the last save. */
    assert_true(count_checkpoints(&p, "timed") >= 3);
    job_end(&p);
}

static void runs_stop_when_asked(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    job_run(&p, 2, "train.train_iters=9\ntrain.exit_interval=4\n", &r);
    assert_int_equal(r.status, LOONG_ERR_INTERRUPTED);
    assert_int_equal(r.state.step, 4);
    job_run(&p, 2,
            "train.train_iters=9\ntrain.exit_interval=4\n"
            "checkpoint.load=auto\n",
            &r);
    assert_int_equal(r.status, LOONG_ERR_INTERRUPTED);
    assert_int_equal(r.state.step, 8);
    assert_non_null(strstr(r.log, "stopped at step 8 of 9"));
    assert_non_null(strstr(r.log, "checkpoint.load=auto"));
    job_run(&p, 2,
            "train.train_iters=9\ntrain.max_wall_time=1ms\n"
            "checkpoint.save=$DIR/wall\n",
            &r);
    assert_int_equal(r.status, LOONG_ERR_INTERRUPTED);
    assert_int_equal(r.state.step, 1);
    assert_int_equal(count_checkpoints(&p, "wall"), 1);
    run_ok(&p, 2, "train.train_iters=8\ncheckpoint.load=auto\n", &r);
    assert_non_null(strstr(r.log,
                           "nothing to train: the checkpoint is at step 8, "
                           "train.train_iters asks for no more"));
    job_end(&p);
}

/* Every step multiplies the weights by 1 - lr x decay = -1e5, until products
 * leave fp32. */
#define OVERFLOW                                                               \
    "precision.params_dtype=fp32\ntrain.train_iters=12\n"                      \
    "optimizer.lr=1000\noptimizer.weight_decay=100\n" PLAIN

static void a_step_with_nan_is_not_applied(void **state)
{
    double norm[ROOM];
    double loss[ROOM];
    double skipped[ROOM];
    int step = 0;
    int rank = -1;
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    job_run(&p, 3, OVERFLOW, &r);
    assert_int_equal(r.status, LOONG_ERR_NUMERIC);
    const char *text = strstr(r.error, "step ");
    assert_non_null(text);
    assert_int_equal(sscanf(text, "step %d, rank %d: loss", &step, &rank), 2);
    assert_true(step > 1 && step < 10 && rank >= 0 && rank < 3);
    assert_non_null(strstr(text, "first parameter with a gradient that is not "
                                 "finite: "));
    assert_null(strstr(text, "finite: none"));
    /* One step is left out, those behind it go on. */
    run_ok(&p, 3,
           "train.train_iters=12\ntrain.on_nan=skip\n"
           "checkpoint.save=$DIR/skip\n"
           "fault=[{kind: nan_gradient, rank: 1, step: 5}]\n",
           &r);
    assert_int_equal(r.state.step, 12);
    assert_int_equal(occurrences(r.log, "the step is not applied"), 1);
    assert_int_equal(occurrences(r.log, "FAULT INJECTION"), 2);
    assert_int_equal(job_metrics(&p, NULL, "grad_norm", norm, ROOM), 12);
    job_metrics(&p, NULL, "loss", loss, ROOM);
    job_metrics(&p, NULL, "skipped_steps", skipped, ROOM);
    for (int i = 0; i < 12; i++) {
        /* The loss of the step itself was a number. */
        assert_true(isfinite(loss[i]));
        assert_true(isnan(norm[i]) == (i == 5));
        assert_true(skipped[i] == (i >= 5));
    }
    job_end(&p);
}

/* ---- updates ------------------------------------------------------------- */

#define MATRIX "foundation.layers.1.mlp.down_proj.weight"
#define EVERY_STEP                                                             \
    "optimizer.weight_decay=0\ntrain.on_nan=skip\n"                            \
    "checkpoint.save_interval=1\ncheckpoint.keep_last=0\n" PLAIN

/* The step that makes checkpoint `step` of `save` out of the one before is
 * AdamW's update number t, as the moments in it say: 1 is the first with these
 * moments. */
static void assert_update(const job_place_t *p, const char *before,
                          const char *after, double t)
{
    static const char *const kinds[] = {"param", "exp_avg", "exp_avg_sq"};
    double *old = NULL;
    double *now[3] = {NULL, NULL, NULL};
    int64_t n = job_tensor(p, before, "param", MATRIX, &old);
    for (int k = 0; k < 3; k++) {
        job_tensor(p, after, kinds[k], MATRIX, &now[k]);
    }
    for (int64_t i = 0; i < n; i++) {
        double m = now[1][i] / (1.0 - pow(0.9, t));
        double v = now[2][i] / (1.0 - pow(0.95, t));
        double step = 3e-3 * m / (sqrt(v) + 1e-8);
        if (!(fabs(old[i] - now[0][i] - step) <= 1e-9 * fabs(step) + 1e-15)) {
            fail_msg("%s: element %lld moved by %.9g, update %g is %.9g",
                     after, (long long)i, old[i] - now[0][i], t, step);
        }
    }
    free(old);
    for (int k = 0; k < 3; k++) {
        free(now[k]);
    }
}

/* A checkpoint as it was written before it counted updates. */
static void forget_updates(const job_place_t *p, const char *step)
{
    char path[128];
    char dir[96];
    int64_t at = 0;
    loong_layout_t *layout = NULL;
    loong_pairs_t *meta = NULL;
    snprintf(dir, sizeof(dir), "%s/%s", p->dir, step);
    snprintf(path, sizeof(path), "%s/checkpoint.json", dir);
    assert_ok(p->ctx, loongi_layout_create(p->ctx, &layout));
    assert_ok(p->ctx, loongi_pairs_create(p->ctx, &meta));
    assert_ok(p->ctx, loongi_layout_read(layout, path, &at, meta));
    for (int64_t i = 0; i < meta->count; i++) {
        if (strcmp(meta->items[i].key, "updates") == 0) {
            meta->items[i].key = "else";
        }
    }
    assert_ok(p->ctx, loongi_layout_check(layout, 0, 1, dir));
    assert_ok(p->ctx, loongi_layout_write_index(layout, at, meta, dir));
    loongi_layout_destroy(&layout);
    loongi_pairs_destroy(&meta);
}

/* Steps that were not applied leave the moments as they are, and their age. */
static void updates_are_counted_not_steps(void **state)
{
    double updates[ROOM];
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2, EVERY_STEP "train.train_iters=7\nfault=["
           "{kind: nan_gradient, step: 0}, {kind: nan_gradient, step: 1}, "
           "{kind: nan_gradient, step: 2}, {kind: nan_gradient, step: 3}, "
           "{kind: nan_gradient, step: 4}]\n", &r);
    assert_int_equal(r.state.updates, 2);
    assert_update(&p, "save/step_00000005", "save/step_00000006", 1.0);
    assert_update(&p, "save/step_00000006", "save/step_00000007", 2.0);
    assert_int_equal(job_metrics(&p, NULL, "updates", updates, ROOM), 7);
    assert_true(updates[4] == 0.0 && updates[6] == 2.0);
    assert_non_null(strstr(r.log, "5 steps were not applied"));
    /* They live on in checkpoints; */
    run_ok(&p, 2, EVERY_STEP "train.train_iters=8\ncheckpoint.load=auto\n",
           &r);
    assert_update(&p, "save/step_00000007", "save/step_00000008", 3.0);
    /* new moments are of age 0 at any step; */
    run_ok(&p, 2, EVERY_STEP "train.train_iters=10\ncheckpoint.load=auto\n"
           "checkpoint.no_load_optim=true\n", &r);
    assert_int_equal(r.state.updates, 2);
    assert_update(&p, "save/step_00000008", "save/step_00000009", 1.0);
    assert_update(&p, "save/step_00000009", "save/step_00000010", 2.0);
    /* and where a checkpoint does not tell, it is its step. */
    forget_updates(&p, "save/step_00000010");
    run_ok(&p, 2, EVERY_STEP "train.train_iters=11\ncheckpoint.load=auto\n",
           &r);
    assert_non_null(strstr(r.log, "does not count updates"));
    assert_update(&p, "save/step_00000010", "save/step_00000011", 11.0);
    job_end(&p);
}

static void assert_resume(const job_place_t *p, const char *overrides,
                          const char *refusal)
{
    job_result_t r;
    char all[512];
    snprintf(all, sizeof(all), "checkpoint.load=$DIR/save\n%s", overrides);
    job_run(p, 2, all, &r);
    if (refusal == NULL && r.status != LOONG_OK) {
        fail_msg("%s refused: %s", overrides, r.error);
    }
    if (refusal != NULL &&
        (r.status != LOONG_ERR_MISMATCH || strstr(r.error, refusal) == NULL)) {
        fail_msg("%s: %s, wanted: %s, found: %s", overrides,
                 loong_status_text(r.status), refusal, r.error);
    }
}

static void what_may_change_at_a_resume(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2, "train.train_iters=2\n", &r);
    assert_resume(&p,
                  "optimizer.lr=1e-4\ntrain.micro_batch_size=2\n"
                  "train.train_iters=3\ncheckpoint.save=$DIR/a\n",
                  NULL);
    assert_resume(&p, "train.global_batch_size=24\ncheckpoint.save=$DIR/b\n",
                  "train.global_batch_size");
    assert_resume(&p,
                  "train.global_batch_size=24\ntrain.train_iters=3\n"
                  "resume.override=[train.global_batch_size]\n"
                  "checkpoint.save=$DIR/c\n",
                  NULL);
    assert_resume(&p,
                  "data.train=[{path: $DIR/data, weight: 2, max_epochs: 3}]\n"
                  "checkpoint.save=$DIR/d\n",
                  "data.train");
    assert_resume(&p, "seed=12\ncheckpoint.save=$DIR/e\n", "seed");
    assert_resume(&p,
                  "model.foundation.num_layers=3\n"
                  "resume.override=[model]\ncheckpoint.save=$DIR/f\n",
                  "layers.2.");
    job_end(&p);
}

/* The same layers with experts, written in three ways; and others. */
static void layers_may_be_written_otherwise(void **state)
{
    (void)state;
#define EXPERTS                                                            \
    "model.foundation.family=qwen3_moe\nmodel.foundation.num_experts=4\n" \
    "model.foundation.moe_ffn_hidden_size=8\n"                             \
    "model.foundation.moe_router_topk=2\nmodel.foundation.moe_layer_freq="
    job_place_t p = job_begin();
    job_result_t r;
    run_ok(&p, 2, EXPERTS "'[0]*1+[1]*1'\ntrain.train_iters=1\n", &r);
    assert_resume(&p, EXPERTS "'[0]*1+[1]*'\ntrain.train_iters=2\n"
                  "checkpoint.save=$DIR/a\n", NULL);
    assert_resume(&p, EXPERTS "'[0]+[1]'\ntrain.train_iters=2\n"
                  "checkpoint.save=$DIR/b\n", NULL);
    assert_resume(&p, EXPERTS "'[1]*2'\ntrain.train_iters=2\n"
                  "checkpoint.save=$DIR/c\n",
                  "moe_layer_freq: [0]*1+[1]* in the checkpoint, now 1");
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_rates_follow_the_schedule),
        cmocka_unit_test(batches_ramp_up),
        cmocka_unit_test(gradients_are_clipped_to_the_norm),
        cmocka_unit_test(z_loss_adds_its_square),
        cmocka_unit_test(checkpoints_are_made_and_thinned),
        cmocka_unit_test(runs_stop_when_asked),
        cmocka_unit_test(a_step_with_nan_is_not_applied),
        cmocka_unit_test(updates_are_counted_not_steps),
        cmocka_unit_test(what_may_change_at_a_resume),
        cmocka_unit_test(layers_may_be_written_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
