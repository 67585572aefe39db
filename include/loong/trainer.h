/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer: a recipe, run. One per rank; all calls but destroy and the
 * texts are collective on its communicator.
 */
#ifndef LOONG_TRAINER_H
#define LOONG_TRAINER_H

#include "loong/comm.h"
#include "loong/context.h"
#include "loong/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_trainer loong_trainer_t;

/* How far a run is; seconds_left is NAN while it is unknown. */
typedef struct loong_trainer_progress {
    int64_t step;
    int64_t total_steps;
    double loss; /* of the step */
    double seconds_left;
} loong_trainer_progress_t;

typedef struct loong_trainer_params {
    loong_comm_t *comm;     /* borrowed */
    loong_recipe_t *recipe; /* borrowed; model keys of init.from_hf are added */
    bool plan_only;         /* nothing runs: for --check and --dry-run */
    bool judge; /* with plan_only: the plan is for this machine; its memory,
                   the data, the tokenizer and checkpoints are judged too */
    bool reads_data; /* with plan_only: its data is here, for
                        loong_trainer_show; nothing else is judged */
    bool decode; /* with judge: pictures not by their heads alone */
    bool evaluate_only;     /* no training, and no files are written */
    /* Called by rank 0 behind every step; NULL: not. */
    void (*progress)(void *user, const loong_trainer_progress_t *now);
    void *progress_user;
    int plan_ranks; /* with plan_only: as if there were so many ranks, comm's
                       the first of them; 0: those of comm */
} loong_trainer_params_t;

/* Sets what training_phase: sft says and the recipe does not, then the model
 * keys of model.from_hf and init.from_hf; loong_trainer_create begins with it.
 * With `tells` the log names keys that the recipe sets otherwise. Not
 * collective. Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT,
 * LOONG_ERR_UNSUPPORTED, LOONG_ERR_CONFIG. */
LOONG_API LOONG_NODISCARD loong_status_t loong_trainer_fill_recipe(
    loong_context_t *ctx, loong_recipe_t *recipe, bool tells);

/* Checks everything and reports all problems together, compiles the programs
 * and, unless plan_only, takes the memory and initialises or loads the model.
 * The context needs loong_register_builtin before.
 * Errors: LOONG_ERR_CONFIG, LOONG_ERR_NOT_FOUND, LOONG_ERR_FORMAT,
 * LOONG_ERR_MISMATCH, LOONG_ERR_MEMORY, LOONG_ERR_COMM. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_create(loong_context_t *ctx,
                     const loong_trainer_params_t *params,
                     loong_trainer_t **trainer_p);
LOONG_API void loong_trainer_destroy(loong_trainer_t **trainer_p);

/* Trains until train.train_iters, a request to stop, or an error. A request
 * saves a checkpoint (when checkpoint.save is set) and returns
 * LOONG_ERR_INTERRUPTED. What is trained to its end goes to export.hf, if that
 * is set, before the last evaluation. Progress goes to the log. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_run(loong_trainer_t *trainer);

/* Loss of every validation set. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_evaluate(loong_trainer_t *trainer);

/* Writes the model as a Hugging Face directory. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_export(loong_trainer_t *trainer, const char *dir);

/* What will run: parameters, tokens per step, memory by class; with plan_only
 * that of every stage's largest rank, and what perhaps does not fit. Borrowed
 * until the next call. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_describe(loong_trainer_t *trainer, const char **text_p);

/* Does it fit into this machine? A plan that does not is still described.
 * Not collective. Errors: LOONG_ERR_MEMORY, LOONG_ERR_CONFIG where ranks share
 * a device. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_check_memory(loong_trainer_t *trainer);

/* How long a step will take, on the largest rank of every stage, by its
 * schedule: on a processor from its kernels, which are timed one by one at the
 * shapes of the plan (some seconds, and memory for the largest of them); on
 * another device by the rates of a kind of it (predict.device), with what ranks
 * send each other. Borrowed until the next call. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_predict(loong_trainer_t *trainer, const char **text_p);

/* Writes the timeline of a step as SVG, of all components: their lists
 * simulated with the costs that loong_trainer_predict found, or, once
 * profile_begin was called, the last step as measured beside the lists with
 * their measured programs (collective then). The text is borrowed until the
 * next call and "" on other ranks than the first. Errors: LOONG_ERR_ARG,
 * LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_plot(loong_trainer_t *trainer, const char *path,
                   const char **text_p);

/* Every step of every program with its kernel and why others were refused. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_explain(loong_trainer_t *trainer, const char **text_p);

/* Writes the first `samples` samples of the training, as the programs get them,
 * to an HTML file: tokens with ids, weights and positions, where samples begin
 * that share a row, and what the image encoder is given. For a trainer of one
 * rank with reads_data. Errors: LOONG_ERR_CONFIG where there is no data,
 * LOONG_ERR_UNSUPPORTED of a family that reads it by a processor of its own;
 * those of the data, LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_trainer_show(
    loong_trainer_t *trainer, int64_t samples, const char *path);

/* Measures every step of every program from now on (each one is timed, so the
 * run is a little slower). The table is borrowed until the next call; trace,
 * when not NULL, is a file that Perfetto opens. Not collective. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_profile_begin(loong_trainer_t *trainer);
LOONG_API LOONG_NODISCARD loong_status_t
loong_trainer_profile_end(loong_trainer_t *trainer, const char *trace,
                          const char **table_p);

/* The first loss of the model in the last step, the gradient norm, steps and
 * updates done. */
typedef struct loong_trainer_state {
    int64_t step;
    int64_t consumed_samples;
    int64_t updates; /* applied to the optimizer's moments */
    double loss;
    double grad_norm;
} loong_trainer_state_t;
LOONG_API loong_trainer_state_t
loong_trainer_get_state(const loong_trainer_t *trainer);

/* Loss number i, 0 <= i < num_losses, of the last step: its mean over its
 * normaliser, before its weight. The name lives as long as the trainer. */
LOONG_API int loong_trainer_num_losses(const loong_trainer_t *trainer);
LOONG_API double loong_trainer_get_loss(const loong_trainer_t *trainer, int i,
                                        const char **name_p);

#ifdef __cplusplus
}
#endif

#endif
