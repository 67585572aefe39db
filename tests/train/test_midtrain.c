/* SPDX-License-Identifier: Apache-2.0
 *
 * `training_phase: midtrain`: a run that goes on from the weights of another,
 * by a Hugging Face directory or a native checkpoint, stops, resumes, and is
 * refused where nothing gives it weights. */
#include "file.h"
#include "loong/checkpoint.h"
#include "train_job.h"

enum { STEPS = 4 };

static void run_ok(const job_place_t *p, const char *overrides,
                   job_result_t *r)
{
    job_run(p, 1, overrides, r);
    if (r->status != LOONG_OK) {
        fail_msg("%s: %s", overrides, r->error);
    }
}

static void clear_log(const job_place_t *p)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/log", p->dir);
    assert_ok(p->ctx, loongi_dir_remove(p->ctx, path));
}

/* Losses and norms of a run, in a log of its own. */
typedef struct curve {
    double loss[STEPS + 1], norm[STEPS + 1];
    int steps;
} curve_t;

static curve_t curve_of(const job_place_t *p)
{
    curve_t c;
    c.steps = job_metrics(p, NULL, "loss", c.loss, STEPS + 1);
    assert_int_equal(job_metrics(p, NULL, "grad_norm", c.norm, STEPS + 1),
                     c.steps);
    return c;
}

#define FROM_HF "~model.foundation\ninit.from_hf=$DIR/hf\n"
#define STOPPED FROM_HF "training_phase=midtrain\ncheckpoint.save=$DIR/mid\n"

static void export_to(const job_place_t *p, const char *name)
{
    char save[100], out[100];
    snprintf(save, sizeof(save), "%s/save", p->dir);
    snprintf(out, sizeof(out), "%s/%s", p->dir, name);
    loong_checkpoint_export_params_t params = {
        .checkpoint = save, .out_dir = out, .bos_token_id = -1,
        .eos_token_id = -1, .pad_token_id = -1};
    assert_ok(p->ctx, loong_checkpoint_export(p->ctx, &params));
}

/* The phase is a name: the same bits as without it, also when it is stopped
 * and resumed; and the first loss is that of trained weights. */
static void from_a_hugging_face_directory(void **state)
{
    static job_result_t r;
    job_place_t p = job_begin();
    (void)state;
    run_ok(&p, "optimizer.lr=3e-2\n", &r);
    curve_t first = curve_of(&p);
    export_to(&p, "hf");
    clear_log(&p);
    run_ok(&p, FROM_HF "~checkpoint.save\n", &r);
    curve_t plain = curve_of(&p);
    clear_log(&p);
    job_run(&p, 1, STOPPED "train.exit_interval=2\n", &r);
    assert_int_equal(r.status, LOONG_ERR_INTERRUPTED);
    assert_int_equal(r.state.step, 2);
    run_ok(&p, STOPPED "checkpoint.load=auto\n", &r);
    assert_int_equal(r.state.step, STEPS);
    curve_t mid = curve_of(&p);
    assert_int_equal(mid.steps, STEPS);
    assert_memory_equal(mid.loss, plain.loss, STEPS * sizeof(double));
    assert_memory_equal(mid.norm, plain.norm, STEPS * sizeof(double));
    assert_true(mid.loss[0] < first.loss[0] - 0.02);
    job_end(&p);
}

/* With new moments; the steps count on. */
static void from_a_native_checkpoint(void **state)
{
    static job_result_t r;
    job_place_t p = job_begin();
    (void)state;
    run_ok(&p, "train.train_iters=2\n", &r);
    clear_log(&p);
    run_ok(&p, "training_phase=midtrain\ncheckpoint.load=$DIR/save\n"
               "checkpoint.no_load_optim=true\ncheckpoint.save=$DIR/mid\n"
               "train.train_iters=4\n", &r);
    assert_int_equal(r.state.step, 4);
    assert_int_equal(curve_of(&p).steps, 2);
    job_end(&p);
}

static void assert_refused(const job_place_t *p, const char *overrides,
                           const char *wanted)
{
    static job_result_t r;
    job_run(p, 1, overrides, &r);
    assert_int_equal(r.status, LOONG_ERR_CONFIG);
    if (strstr(r.error, wanted) == NULL) {
        fail_msg("'%s' is not in: %s", wanted, r.error);
    }
}

static void without_weights_it_is_refused(void **state)
{
    job_place_t p = job_begin();
    (void)state;
    assert_refused(&p, "training_phase=midtrain\n",
                   "midtrain goes on from trained weights: init.from_hf");
    assert_refused(&p, "training_phase=midtrain\ncheckpoint.load=auto\n",
                   "/save has no checkpoint yet: init.from_hf");
    assert_refused(&p, "training_phase=midtrein\n",
                   "found midtrein, allowed: pretrain midtrain");
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_a_hugging_face_directory),
        cmocka_unit_test(from_a_native_checkpoint),
        cmocka_unit_test(without_weights_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
