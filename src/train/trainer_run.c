/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop around the step: log, evaluate, save, stop. Called by loongrun,
 * loong-bench and users' programs. Read trainer_create.c before. */
#include <stdio.h>
#include <string.h>

#include "describe.h"
#include "device_overhead.h"
#include "loong/launch.h"
#include "memory_check.h"
#include "predict.h"
#include "preflight.h"
#include "timeline.h"
#include "trainer_impl.h"

/* ---- when ---------------------------------------------------------------- */

static bool every(int64_t step, int64_t interval)
{
    return interval > 0 && step % interval == 0;
}

/* This rank's wishes; the step header makes them everybody's. */
unsigned loongi_trainer_requests(const loong_trainer_t *t)
{
    unsigned signals = loong_signals_get();
    double now = loongi_now();
    unsigned flags = 0;
    /* A run does one step at least: one that is queued again gets on. */
    bool late = t->set.max_wall_time > 0.0 &&
                t->state.step > t->supervision.told.from_step &&
                now - t->report.start_time > t->set.max_wall_time;
    bool due = t->set.save_interval_seconds > 0.0 &&
               now - t->saving.last_time > t->set.save_interval_seconds;
    if ((signals & LOONG_SIGNAL_STOP) != 0 || late) {
        flags |= LOONG_STEP_STOP;
    }
    if ((signals & LOONG_SIGNAL_SAVE) != 0 || due) {
        flags |= LOONG_STEP_SAVE;
    }
    if (t->saving.save != NULL &&
        !loongi_checkpoint_save_ready(t->saving.save)) {
        flags |= LOONG_STEP_WRITING;
    }
    return flags;
}

static loong_status_t save(loong_trainer_t *t)
{
    LOONG_TRY(loongi_trainer_save(t));
    LOONG_TRY(loongi_report_memory(&t->report));
    t->saving.last_time = loongi_now();
    return LOONG_OK;
}

/* What the step header brought, before the step that it opens: a request is
 * about the steps that are done, so that nobody waits for one more. */
static loong_status_t heed_requests(loong_trainer_t *t, bool *stop_p)
{
    *stop_p = (t->flags & LOONG_STEP_STOP) != 0;
    bool wanted = *stop_p || (t->flags & LOONG_STEP_SAVE) != 0;
    bool done = t->state.step > t->supervision.told.from_step;
    if (t->saving.save != NULL && (t->flags & LOONG_STEP_WRITING) == 0) {
        LOONG_TRY(loongi_trainer_advance_save(t)); /* ready on every rank */
    }
    if (*stop_p && t->report.window.steps > 0) {
        LOONG_TRY(loongi_report_interval(&t->report));
    }
    if (t->set.save_dir == NULL && (t->flags & LOONG_STEP_SAVE) != 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "step %lld: a save was asked for, but checkpoint.save is "
                   "not set",
                   (long long)t->state.step);
    }
    return wanted && done && t->set.save_dir != NULL ? save(t) : LOONG_OK;
}

static loong_status_t export_model(loong_trainer_t *t)
{
    const char *dir = loong_recipe_text(t->recipe, "export.hf");
    if (dir == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_trainer_export(t, dir));
    if (loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "exported as a Hugging Face directory: %s", dir);
    }
    return LOONG_OK;
}

/* What the training leaves is written before the last evaluation, so that one
 * that fails loses nothing. */
static loong_status_t keep_last(loong_trainer_t *t)
{
    if (t->set.save_dir != NULL) {
        LOONG_TRY(save(t));
        LOONG_TRY(loongi_trainer_finish_save(t));
    }
    return export_model(t);
}

/* *stop_p: the run ends here, as the recipe says. */
static loong_status_t after_step(loong_trainer_t *t, bool *stop_p)
{
    int64_t step = t->state.step;
    bool last = step == t->set.train_iters;
    *stop_p = !last && every(step, t->set.exit_interval);
    if (every(step, t->set.log_interval) || last || *stop_p) {
        LOONG_TRY(loongi_report_interval(&t->report));
    }
    bool due = every(step, t->set.save_interval) || *stop_p;
    if (last) {
        LOONG_TRY(keep_last(t));
    } else if (due && t->set.save_dir != NULL) {
        LOONG_TRY(save(t));
        LOONG_TRY(*stop_p ? loongi_trainer_finish_save(t) : LOONG_OK);
    }
    if (every(step, t->set.eval_interval) || last) {
        LOONG_TRY(loongi_trainer_evaluate(t));
        LOONG_TRY(loongi_report_memory(&t->report));
        loongi_report_reset(&t->report);
    }
    return LOONG_OK;
}

static void tell_progress(loong_trainer_t *t)
{
    loong_trainer_progress_t now = {t->state.step, t->set.train_iters,
                                    t->state.loss,
                                    loongi_report_seconds_left(&t->report)};
    if (t->progress.call != NULL && loong_comm_rank(t->comm) == 0) {
        t->progress.call(t->progress.user, &now);
    }
}

loong_status_t loong_trainer_run(loong_trainer_t *trainer)
{
    loong_trainer_t *t = trainer;
    bool stop = false;
    LOONG_CHECK(t->ctx, !t->plan.evaluate_only, LOONG_ERR_ARG,
                "a trainer that was made to evaluate cannot train");
    if (t->state.step >= t->set.train_iters) {
        if (loong_comm_rank(t->comm) == 0) {
            loongi_log(t->ctx, LOONG_LOG_WARN,
                       "nothing to train: the checkpoint is at step %lld, %s "
                       "asks for no more",
                       (long long)t->state.step,
                       loongi_recipe_length_key(t->recipe));
        }
        return export_model(t);
    }
    loongi_report_reset(&t->report);
    loongi_supervise_begin(&t->supervision, t->state.step);
    if (t->set.eval_on_start && t->state.step == 0) {
        LOONG_TRY(loongi_trainer_evaluate(t));
        loongi_report_reset(&t->report);
    }
    while (t->state.step < t->set.train_iters && !stop) {
        LOONG_TRY(loongi_train_begin(t));
        LOONG_TRY(heed_requests(t, &stop));
        if (stop) {
            break;
        }
        LOONG_TRY(loongi_train_step(t));
        if ((t->flags & LOONG_STEP_STOP) != 0) {
            LOONG_TRY(heed_requests(t, &stop));
            break;
        }
        tell_progress(t);
        loongi_supervise_step(&t->supervision, t->state.step);
        LOONG_TRY(after_step(t, &stop));
    }
    LOONG_TRY(loongi_trainer_finish_save(t));
    if (loong_comm_rank(t->comm) == 0) {
        LOONG_TRY(loongi_overhead_report(&t->plan, t->report.pool_most));
    }
    loongi_report_end(&t->report, stop);
    return stop ? LOONG_ERR_INTERRUPTED : LOONG_OK;
}

loong_status_t loong_trainer_evaluate(loong_trainer_t *trainer)
{
    loong_trainer_t *t = trainer;
    bool samples = t->component->params.logits_rows > 0;
    LOONG_CHECK(t->ctx, t->data.num_validation > 0 || samples, LOONG_ERR_CONFIG,
                "nothing to evaluate: set data.validation, "
                "data.validation_split or eval.sample");
    return loongi_trainer_evaluate(t);
}

/* ---- texts --------------------------------------------------------------- */

loong_status_t loong_trainer_describe(loong_trainer_t *trainer,
                                      const char **text_p)
{
    loong_plan_t *plan = &trainer->plan;
    loongi_text_free(&plan->text);
    plan->text = loongi_text_begin(plan->ctx);
    loongi_describe_layout(plan);
    loongi_run_data_describe(&trainer->data, &plan->text);
    return loongi_describe_memory(plan, text_p);
}

loong_status_t loong_trainer_explain(loong_trainer_t *trainer,
                                     const char **text_p)
{
    return loongi_describe_programs(&trainer->plan, text_p);
}

loong_status_t loong_trainer_check_memory(loong_trainer_t *trainer)
{
    return loongi_memory_check(&trainer->plan);
}

loong_status_t loong_trainer_predict(loong_trainer_t *trainer,
                                     const char **text_p)
{
    return loongi_predict(&trainer->plan, text_p);
}

loong_status_t loong_trainer_plot(loong_trainer_t *trainer, const char *path,
                                  const char **text_p)
{
    return loongi_timeline_plot(&trainer->plan, path, text_p);
}

loong_status_t loong_trainer_profile_begin(loong_trainer_t *trainer)
{
    return loongi_profile_begin(&trainer->report);
}

loong_status_t loong_trainer_profile_end(loong_trainer_t *trainer,
                                         const char *trace,
                                         const char **table_p)
{
    return loongi_profile_end(&trainer->report, trace, table_p);
}
