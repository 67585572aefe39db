/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer's own state. Read trainer_create.c, trainer_run.c, train_step.c
 * in this order. */
#ifndef LOONG_TRAINER_IMPL_H
#define LOONG_TRAINER_IMPL_H

#include "artifacts.h"
#include "exact_sum.h"
#include "inputs.h"
#include "loong/trainer.h"
#include "losses.h"
#include "pairs.h"
#include "report.h"
#include "resume_check.h"
#include "router_replay.h"
#include "run_data.h"
#include "sample.h"
#include "supervise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a run keeps. */
typedef struct loong_saving {
    loong_artifacts_t artifacts; /* rank 0 */
    loong_checkpoint_save_t *save;
    void *stream;            /* of the device, for the writing thread */
    loong_pairs_t *metadata; /* and what the writing thread reads */
    int64_t saved_step;
    int64_t loaded_bytes; /* of tensors that were taken of a checkpoint */
    double stall;         /* seconds that training has waited for the save */
    double last_time;
    unsigned asked; /* LOONG_STEP_SAVE: within a step, for the next header */
    int locks[2]; /* of checkpoint.save and log.dir, rank 0; -1: none */
} loong_saving_t;

struct loong_trainer {
    loong_context_t *ctx;
    loong_comm_t *comm; /* world */
    loong_recipe_t *recipe;
    uint64_t recipe_hash;
    loong_train_settings_t set;
    loong_plan_t plan; /* with the model's keys */
    loong_model_keys_t keys;
    loong_resources_t *resources; /* NULL: nothing is allocated */
    loong_model_t *model;
    loong_component_t *component; /* of it, with the loss */
    loong_upstream_step_t upstream;
    loong_step_exchange_t *exchange;
    loong_router_replay_t *router_replay; /* NULL: routers choose, unheard */
    loong_run_data_t data;
    loong_saving_t saving;
    struct {
        void (*call)(void *user, const loong_trainer_progress_t *now);
        void *user;
    } progress;
    loong_inputs_t inputs;
    loong_step_metrics_t metrics;
    loong_sampling_t sampling;
    loong_supervision_t supervision;

    /* The run. */
    loong_run_state_t state;
    loong_frame_t frame;
    loong_losses_t losses;
    unsigned flags; /* agreed on in the step header */
    loong_report_t report;
};

/* ---- trainer_model.c ---- */
/* Fills name, family, config and the rules of the components, as many as
 * t->keys has then, the last one with the loss. */
LOONG_NODISCARD loong_status_t loongi_trainer_model(
    loong_trainer_t *t, loong_component_params_t params[LOONG_MODEL_ROLES]);

/* ---- train_step.c ---- */
/* A step: what all agree on, t->flags in it, and work that need not follow. */
LOONG_NODISCARD loong_status_t loongi_train_begin(loong_trainer_t *t);
/* With LOONG_STEP_STOP in t->flags behind it the step was given up, and the run
 * is where it was before. */
LOONG_NODISCARD loong_status_t loongi_train_step(loong_trainer_t *t);
unsigned loongi_trainer_requests(const loong_trainer_t *t);

/* ---- trainer_save.c ---- */
LOONG_NODISCARD loong_status_t loongi_trainer_save(loong_trainer_t *t);
/* Takes the save under way on, after which it may be the newest checkpoint;
 * does not wait when it is ready on all ranks. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_advance_save(loong_trainer_t *t);
/* Waits for the save that is under way, if any. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_finish_save(loong_trainer_t *t);
/* Is this the run that the checkpoint was saved by? Lists what is not. */
LOONG_NODISCARD loong_status_t
loongi_trainer_check_resume(loong_trainer_t *t, loong_checkpoint_t *ck);
/* Takes the state of a checkpoint that was checked and verified. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_load(loong_trainer_t *t,
                                                   loong_checkpoint_t *ck);

/* ---- resume.c ---- */
/* From the checkpoint in the directory `load`, which must be whole; auto: from
 * the newest of checkpoint.save that is whole on all ranks, the damaged ones
 * are told as warnings. Collective, unless judged: then rank 0 finds out what
 * a run would do; it reads no tensor and keeps nothing. */
LOONG_NODISCARD loong_status_t loongi_trainer_resume(loong_trainer_t *t,
                                                     const char *load,
                                                     bool judged);
/* What follows from the purpose of a run is as in the run that this one goes on
 * with. What is wrong with a checkpoint is told later. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_keep_keys(loong_trainer_t *t);
void loongi_trainer_renew(const loong_trainer_t *t);

/* ---- evaluate.c ---- */
/* "validation loss" of all sets, logged by rank 0. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_evaluate(loong_trainer_t *t);

#ifdef __cplusplus
}
#endif

#endif
