/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run owes to others than its user: telling its supervisor how far it
 * is, and the faults that somebody asked for. */
#include <string.h>

#include "problems.h"
#include "trainer_impl.h"

/* A supervisor restarts the command as it is. */
static loong_status_t check_restartable(const loong_trainer_t *t)
{
    const char *load = loong_recipe_text(t->recipe, "checkpoint.load");
    loong_problems_t problems = loongi_problems_begin(t->ctx);
    if (load == NULL || strcmp(load, "auto") != 0) {
        loongi_problems_add(&problems, "checkpoint.load: found %s, auto wanted",
                            load != NULL ? load : "nothing");
    }
    if (t->set.save_interval <= 0 && t->set.save_interval_seconds <= 0.0) {
        loongi_problems_add(&problems, "checkpoint.save_interval and "
                            "save_interval_seconds are both 0, one of them "
                            "wanted");
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG,
                               "a supervised run goes on from its own "
                               "checkpoints");
}

loong_status_t loongi_supervise_open(loong_trainer_t *t)
{
    if (t->plan.evaluate_only) {
        return LOONG_OK;
    }
    if (loong_comm_rank(t->comm) == 0) {
        LOONG_TRY(loong_job_open(t->ctx, &t->job));
    }
    if (t->job != NULL) {
        LOONG_TRY(check_restartable(t));
    }
    LOONG_TRY(
        loongi_faults_create(t->ctx, t->comm, t->recipe, &t->faults));
    LOONG_CHECK(
        t->ctx,
        !loongi_fault_is_set(t->faults, LOONG_FAULT_NAN_GRADIENT) ||
            loongi_component_head(t->component) != NULL,
        LOONG_ERR_CONFIG,
        "fault nan_gradient on rank %d, which has no loss: it stands on the "
        "last of %d pipeline stages",
        loong_comm_rank(t->comm), t->plan.mesh.size[LOONG_AXIS_PP]);
    return LOONG_OK;
}

void loongi_supervise_begin(loong_trainer_t *t)
{
    t->told.from_step = t->told.step = t->told.saved_step = t->state.step;
    loong_job_tell(t->job, &t->told);
}

void loongi_supervise_step(loong_trainer_t *t)
{
    t->told.step = t->state.step;
    t->told.last_time = loongi_now();
    if (t->told.first_time == 0.0) {
        t->told.first_time = t->told.last_time;
    }
    loong_job_tell(t->job, &t->told);
}

loong_status_t loongi_supervise_saved(loong_trainer_t *t)
{
    t->told.saved_step = t->saved_step;
    loong_job_tell(t->job, &t->told);
    return loongi_fault_saved(t->faults,
                              loong_recipe_text(t->recipe, "checkpoint.save"),
                              t->saved_step);
}
