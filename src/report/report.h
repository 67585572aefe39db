/* SPDX-License-Identifier: Apache-2.0
 *
 * What rank 0 tells of a run: log lines, metrics.jsonl, TensorBoard, statistics
 * of tensors and experts, profiles. */
#ifndef LOONG_REPORT_H
#define LOONG_REPORT_H

#include "metrics.h"
#include "native.h"
#include "plan.h"
#include "profiler.h"
#include "tensorboard.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_expert_metrics loong_expert_metrics_t;

/* How far a run is. */
typedef struct loong_run_state {
    int64_t step;
    int64_t consumed_samples;
    int64_t updates;  /* applied to the optimizer's moments */
    double loss;      /* the first of the model, in the last step */
    double grad_norm; /* likewise */
} loong_run_state_t;

typedef struct loong_report {
    loong_context_t *ctx;
    loong_plan_t *plan;                 /* borrowed, as what follows */
    const loong_run_state_t *state;     /* of the run */
    const loong_frame_t *frame;         /* of the step */
    const double *loss;                 /* values of all losses */
    loong_component_t *component;       /* of the plan, once it is open */
    loong_device_t *device;
    const loong_resources_t *resources;
    loong_jsonl_t *jsonl;       /* rank 0 with log.dir; else NULL */
    loong_tensorboard_t *board; /* likewise */
    double start_time;
    struct {
        double time;
        double data_seconds;
        double comm_seconds;
        double links[2]; /* of loongi_links_add_times */
        double host_seconds; /* NAN: no op is done by the host */
        int64_t tokens;
        int64_t steps;
        double loss_sum;
        double loss_weight;
    } window; /* since the last log line */
    loong_window_t losses;
    double gemm_gflops;               /* of all ranks; 0: not measured yet */
    double memory_peak, memory_total; /* of this rank, in bytes */
    size_t pool_most;                 /* until its device's was counted anew */
    double ms_per_step;               /* of the last interval; 0: none yet */
    double last_loss;                 /* of the last interval */
    double lowest_loss;               /* of all of this run */
    int64_t lowest_step;
    int64_t skipped; /* steps that were not applied, in this run */
    loong_replay_stats_t replayed;      /* until the last interval */
    int64_t graphs_told, gemm_measured; /* so many times */
    struct {
        int64_t count;     /* logged tensors of all stages */
        const char **name; /* "o" of an output or "g" of a gradient, and name */
        char *names;       /* their text */
        int64_t *place;    /* of this rank's among all, stage after stage */
        double *stats;     /* squares, numbers not finite, maxima of all */
    } tensors;
    loong_expert_metrics_t *experts; /* NULL: the model has none */
    loong_profiler_t *profiler;      /* NULL: not measured */
    double profile_blocked;          /* when it began */
} loong_report_t;

/* ---- report.c ---- */
double loongi_unix_time(void); /* seconds since 1970 */
/* Opens the files, and what tensors.c and expert_metrics.c need; ctx, plan,
 * state, frame and loss are set. Collective. */
LOONG_NODISCARD loong_status_t
loongi_report_open(loong_report_t *report, const loong_resources_t *resources);
void loongi_report_close(loong_report_t *report);
void loongi_report_reset(loong_report_t *report);
LOONG_NODISCARD loong_status_t loongi_report_interval(loong_report_t *report);
/* So long has this rank waited for communication: what the lane did beside
 * computation is not counted. */
double loongi_report_blocked(const loong_report_t *report);
/* Of the last interval; NAN before the first step. */
double loongi_report_step_seconds(const loong_report_t *report);
/* What is left to run, in seconds; NAN before the first step. */
double loongi_report_seconds_left(const loong_report_t *report);
/* Takes the memory of this moment into the highest that was seen. */
LOONG_NODISCARD loong_status_t loongi_report_memory(loong_report_t *report);
/* A checkpoint that is whole now, for which training has waited so long. */
LOONG_NODISCARD loong_status_t loongi_report_save(loong_report_t *report,
                                                  loong_checkpoint_save_t *save,
                                                  int64_t step, double stall);
/* The last line of a run. */
void loongi_report_end(loong_report_t *report, bool stopped);
/* The loss of a validation set over `weight` of `normaliser`. */
LOONG_NODISCARD loong_status_t loongi_report_eval(loong_report_t *report,
                                                  const char *name, double loss,
                                                  int64_t weight,
                                                  const char *normaliser,
                                                  double seconds);

/* ---- set_aside.c ---- */
/* Moves metrics.jsonl, recipe.yaml and event files of an earlier run to a new
 * folder of dir, earlier_1 or the next number, and says so; TensorBoard shows
 * it as a run of its own. Does nothing when metrics.jsonl is empty or missing.
 * Not collective. Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t loongi_set_aside(loong_context_t *ctx,
                                                const char *dir);

/* ---- gemm_rate.c ---- */
/* The rate of matrix products that this machine reaches, in 1e9 operations a
 * second, all ranks together: the fastest of a few square products in the
 * compute type, which all ranks run at the same time. NAN where a rank's device
 * has no memory left for them. Takes less than a tenth of a second. Collective
 * on: comm, the world. */
LOONG_NODISCARD loong_status_t loongi_gemm_rate(
    const loong_component_t *component, loong_comm_t *comm, double *gflops_p);

/* ---- tensors.c ---- */
LOONG_NODISCARD loong_status_t loongi_tensors_open(loong_report_t *report);
void loongi_tensors_close(loong_report_t *report);
/* Are tensors logged in the step that begins? */
bool loongi_tensors_due(const loong_report_t *report);
/* Tells what the programs of the step measured. Collective. */
LOONG_NODISCARD loong_status_t loongi_tensors_report(loong_report_t *report);

/* ---- expert_metrics.c ---- */
/* What layers with experts count in the states of their programs
 * (LOONG_MOE_METRIC_LIST): nothing of it goes to the host or between ranks but
 * at a log line. Opens nothing where no stage of any rank has experts. Not
 * collective. */
LOONG_NODISCARD loong_status_t
loongi_expert_metrics_open(loong_report_t *report);
void loongi_expert_metrics_close(loong_report_t *report);
/* Of all ranks since the last call: sums up the layers in m, and keeps each
 * for .._tell. A sum over the ranks of a stage, of `experts` and up to two more
 * numbers a layer, and one over the stages, of five numbers a layer.
 * Collective. */
LOONG_NODISCARD loong_status_t
loongi_expert_metrics_measure(loong_report_t *report, loong_metrics_t *m);
/* A line of metrics.jsonl, and TensorBoard's scalars, for each layer. */
LOONG_NODISCARD loong_status_t
loongi_expert_metrics_tell(loong_report_t *report, const loong_metrics_t *m);

/* ---- profile.c ---- */
/* See loong_trainer_profile_begin and _end. */
LOONG_NODISCARD loong_status_t loongi_profile_begin(loong_report_t *report);
LOONG_NODISCARD loong_status_t loongi_profile_end(loong_report_t *report,
                                                  const char *trace,
                                                  const char **table_p);

#ifdef __cplusplus
}
#endif

#endif
