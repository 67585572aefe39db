/* SPDX-License-Identifier: Apache-2.0 */
#include "layout_run.h"

#include <stdatomic.h>
#include <unistd.h>

#include "file.h"
#include "layout_job.h"
#include "trainer_impl.h"

layout_place_t layout_begin(void)
{
    layout_place_t place = {test_context(), "/tmp/loong_layout_XXXXXX"};
    char prefix[300];
    assert_non_null(mkdtemp(place.dir));
    snprintf(prefix, sizeof(prefix), "%s/data", place.dir);
    layout_data_t data = {.prefix = prefix, .vocab_size = LAYOUT_VOCAB,
                          .documents = 40, .length = 120};
    assert_ok(place.ctx, layout_data_write(place.ctx, &data));
    return place;
}

void layout_end(layout_place_t *place)
{
    if (getenv("LOONG_LAYOUT_KEEP") != NULL) {
        print_message("kept: %s\n", place->dir);
    } else {
        assert_ok(place->ctx, loongi_dir_remove(place->ctx, place->dir));
    }
    test_context_end(&place->ctx);
}

bool layout_long(void)
{
    return getenv("LOONG_LAYOUT_STEPS") != NULL;
}

int layout_steps(void)
{
    return layout_long() ? atoi(getenv("LOONG_LAYOUT_STEPS")) : 3;
}

/* ---- a run -------------------------------------------------------------- */

static void recipe_text(const layout_place_t *place, const layout_run_t *r,
                        char *text, size_t size)
{
    char ramp[64] = "";
    if (r->ramp > 0) {
        snprintf(ramp, sizeof(ramp), ", rampup_batch_size: [%d, %d, 96]",
                 r->ramp, r->ramp);
    }
    int length = snprintf(
        text, size,
        "seed: 11\n"
        "model: {foundation: %s}\n"
        "precision: {params_dtype: %s}\n"
        "data:\n"
        "  seq_length: %d\n"
        "  train: [{path: %s/data}]\n"
        "  reset_position_ids: %s\n"
        "  reset_attention_mask: %s\n"
        "  vision_token_ids: %s\n"
        "train: {micro_batch_size: %d, global_batch_size: %d,\n"
        "  z_loss_coeff: %g, kl_loss_coeff: %g,\n"
        "  train_iters: %d, exit_interval: %d%s}\n"
        "optimizer: {lr: 3e-3, lr_warmup_iters: 2%s%s}\n"
        "parallel: %s\n"
        "checkpoint: {save: %s/%s, save_interval: %d%s%s}\n"
        "%s\n",
        r->model, r->dtype, r->seq_length > 0 ? r->seq_length : 16,
        place->dir, r->unpacked ? "false" : "true",
        r->unpacked ? "false" : "true",
        r->vision_ids != NULL ? r->vision_ids : "null", r->micro_batch_size,
        r->global_batch_size > 0 ? r->global_batch_size : 24, r->z_loss,
        r->kl_loss, r->steps, r->stop_at, ramp,
        r->optimizer != NULL ? ", " : "",
        r->optimizer != NULL ? r->optimizer : "", r->parallel, place->dir,
        r->save, r->save_interval,
        r->load != NULL ? ", load: " : "", r->load != NULL ? r->load : "",
        r->more);
    assert_true(length > 0 && (size_t)length < size);
}

static atomic_llong loaded; /* bytes, by all ranks of a run */

static loong_status_t run_steps(loong_trainer_t *trainer)
{
    atomic_fetch_add(&loaded, trainer->saving.loaded_bytes);
    return loong_trainer_run(trainer);
}

/* What was loaded is saved again. */
static loong_status_t save_again(loong_trainer_t *trainer)
{
    trainer->saving.saved_step = -1;
    LOONG_TRY(loongi_trainer_save(trainer));
    return loongi_trainer_finish_save(trainer);
}

/* And the steps after it. */
static loong_status_t save_and_run(loong_trainer_t *trainer)
{
    LOONG_TRY(save_again(trainer));
    return run_steps(trainer);
}

void layout_run(const layout_place_t *place, layout_run_t *run)
{
    char text[4096];
    layout_job_t job;
    memset(&job, 0, sizeof(job));
    recipe_text(place, run, text, sizeof(text));
    job.path = "test";
    job.text = text;
    job.enter = run->enter;
    job.params = run->params;
    job.ranks = run->ranks;
    job.losses = run->losses;
    job.work = run->save_only ? save_again : run_steps;
    if (run->save_first) {
        job.work = save_and_run;
    }
    atomic_store(&loaded, 0);
    loong_status_t status = layout_job_run(place->ctx, &job);
    const char *trail = loong_context_error(place->ctx);
    run->status = status;
    run->loss = job.loss;
    run->grad_norm = job.grad_norm;
    run->loaded = atomic_load(&loaded);
    const char *reason = run->refusal != NULL ? run->refusal : run->failure;
    if (reason != NULL) {
        assert_true(run->refusal == NULL ||
                    (status == LOONG_ERR_CONFIG && job.refused));
        if (status == LOONG_OK || strstr(trail, reason) == NULL) {
            fail_msg("'%s' is not in: %s", reason, trail);
        }
        loong_context_clear_error(place->ctx);
    } else if (status != LOONG_OK) {
        fail_msg("%d ranks, %s: %s", run->ranks, run->parallel,
                 trail);
    }
}

/* ---- comparison --------------------------------------------------------- */

static void check_scalar(const layout_run_t *run, const char *what, double got,
                         double want, double bound)
{
    if (!(fabs(got - want) <= bound * fabs(want))) {
        fail_msg("%d ranks, %s: %s %.17g, one rank has %.17g", run->ranks,
                 run->parallel, what, got, want);
    }
}

void layout_compare(const layout_place_t *place, const layout_run_t *run,
                    const layout_run_t *one, double bound)
{
    layout_difference_t d;
    char path[2][600];
    const layout_run_t *runs[2] = {run, one};
    check_scalar(run, "loss", run->loss, one->loss, bound);
    check_scalar(run, "gradient norm", run->grad_norm, one->grad_norm, bound);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s", place->dir, runs[i]->save);
    }
    assert_ok(place->ctx,
              layout_job_compare(place->ctx, path[0], path[1], &d));
    if (!(d.param <= bound && d.moment <= bound)) {
        fail_msg("%d ranks, %s: %s differs by %g, %s by %g", run->ranks,
                 run->parallel, d.worst[0], d.param, d.worst[1], d.moment);
    }
}
