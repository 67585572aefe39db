/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run owes to others than its user: telling its supervisor how far it
 * is, and the faults that somebody asked for. Called by trainer_create.c,
 * trainer_run.c and trainer_save.c. Read fault.h before. */
#include "supervise.h"

#include <string.h>

#include "problems.h"

/* A supervisor restarts the command as it is. */
static loong_status_t check_restartable(const loong_plan_t *plan)
{
    const char *load = plan->set->load;
    loong_problems_t problems = loongi_problems_begin(plan->ctx);
    if (load == NULL || strcmp(load, "auto") != 0) {
        loongi_problems_add(&problems, "checkpoint.load: found %s, auto wanted",
                            load != NULL ? load : "nothing");
    }
    if (plan->set->save_interval <= 0 &&
        plan->set->save_interval_seconds <= 0.0) {
        loongi_problems_add(&problems,
                            "checkpoint.save_interval and "
                            "save_interval_seconds are both 0, one of them "
                            "wanted");
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG,
                               "a supervised run goes on from its own "
                               "checkpoints");
}

loong_status_t loongi_supervise_open(const loong_plan_t *plan,
                                     loong_supervision_t *s)
{
    if (plan->evaluate_only) {
        return LOONG_OK;
    }
    if (loong_comm_rank(plan->comm) == 0) {
        LOONG_TRY(loong_job_open(plan->ctx, &s->job));
    }
    if (s->job != NULL) {
        LOONG_TRY(check_restartable(plan));
    }
    LOONG_TRY(
        loongi_faults_create(plan->ctx, plan->comm, plan->recipe, &s->faults));
    LOONG_CHECK(
        plan->ctx,
        !loongi_fault_is_set(s->faults, LOONG_FAULT_NAN_GRADIENT) ||
            loongi_component_head(plan->component) != NULL,
        LOONG_ERR_CONFIG,
        "fault nan_gradient on rank %d, which has no loss: it stands on the "
        "last of %d pipeline stages",
        loong_comm_rank(plan->comm), plan->mesh.size[LOONG_AXIS_PP]);
    return LOONG_OK;
}

void loongi_supervise_begin(loong_supervision_t *s, int64_t step)
{
    s->told.from_step = s->told.step = s->told.saved_step = step;
    loong_job_tell(s->job, &s->told);
}

void loongi_supervise_step(loong_supervision_t *s, int64_t step)
{
    s->told.step = step;
    s->told.last_time = loongi_now();
    if (s->told.first_time == 0.0) {
        s->told.first_time = s->told.last_time;
    }
    loong_job_tell(s->job, &s->told);
}

loong_status_t loongi_supervise_saved(loong_supervision_t *s, const char *dir,
                                      int64_t step)
{
    s->told.saved_step = step;
    loong_job_tell(s->job, &s->told);
    return loongi_fault_saved(s->faults, dir, step);
}

void loongi_supervise_close(loong_supervision_t *s)
{
    loong_job_close(&s->job);
    loongi_faults_destroy(&s->faults);
}
