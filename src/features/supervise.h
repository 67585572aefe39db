/* SPDX-License-Identifier: Apache-2.0
 *
 * A run under a supervisor that restarts it, and faults on request. */
#ifndef LOONG_SUPERVISE_H
#define LOONG_SUPERVISE_H

#include "fault.h"
#include "loong/job.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_supervision {
    loong_faults_t *faults;    /* NULL: none on request */
    loong_job_t *job;          /* rank 0 under a supervisor; else NULL */
    loong_job_progress_t told; /* to it */
} loong_supervision_t;

/* Faults on request, and the supervisor if there is one: refuses what it could
 * not restart. Collective. */
LOONG_NODISCARD loong_status_t loongi_supervise_open(const loong_plan_t *plan,
                                                     loong_supervision_t *s);
void loongi_supervise_close(loong_supervision_t *s);
/* Tell the supervisor: where the run begins, a step, a checkpoint in a
 * directory. */
void loongi_supervise_begin(loong_supervision_t *s, int64_t step);
void loongi_supervise_step(loong_supervision_t *s, int64_t step);
LOONG_NODISCARD loong_status_t loongi_supervise_saved(loong_supervision_t *s,
                                                      const char *dir,
                                                      int64_t step);

#ifdef __cplusplus
}
#endif

#endif
