/* SPDX-License-Identifier: Apache-2.0
 *
 * One stage of a component's pipeline: its compiled chunks, optimizer and
 * messages, and its parameters. Planning (create) touches no device. Memory is
 * the component's.
 */
#ifndef LOONG_STAGE_H
#define LOONG_STAGE_H

#include "executor.h"
#include "loong/family.h"
#include "optimizer.h"
#include "param_slice.h"
#include "pipeline_split.h"
#include "program.h"
#include "resources.h"
#include "ties.h"
#include "transfer.h"
#include "upload.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_MAX_EDGE_PORTS = 4 };

/* The lists of globs over scopes in what a component is compiled with. */
typedef enum loong_globs {
    LOONG_GLOBS_WIDE,
    LOONG_GLOBS_WATCH,
    LOONG_GLOBS_RECOMPUTE,
    LOONG_GLOBS_COUNT
} loong_globs_t;

typedef struct loong_component_params {
    const char *name; /* its role; names in checkpoints begin with it */
    const char *init; /* directory that it starts from; NULL: rules */
    const char *init_adapters; /* merged into it, one a line; NULL: none */
    const char *adapter; /* and what is beside it, as peft has it; NULL */
    bool beside_adapters; /* the run trains some, of this or of another one */
    loong_mesh_t mesh;
    /* Of the job, by the rank of the mesh, ascending; NULL: the same. */
    const int32_t *ranks;
    bool absent; /* this one is none of them: the mesh is as the first sees it*/
    const loong_family_t *family;
    const void *config; /* of the family; borrowed */
    /* Of a training micro-batch; the part of the model is the stage's. */
    loong_model_request_t request;
    loong_precision_t precision;
    loong_compile_params_t compile; /* split and ahead are the schedule's */
    /* Lists that are of other components as well: a glob that matches no scope
     * here is no mistake. */
    bool shared_globs[LOONG_GLOBS_COUNT];
    loong_shards_params_t shards;
    loong_optimizer_params_t optimizer;
    int64_t logits_rows;            /* T of the chunk for sampling; 0: none */
    loong_routing_t logits_routing; /* of it: texts are sampled live */
    bool train;            /* false: evaluation and logits only */
    const char *schedule;  /* "auto", "one_stage", "1f1b", ... */
    int64_t micro_batch_size; /* of samples, some multiple of the last one's or
                                 a part of that; 0: 1 */
    int micro_batches;     /* of the last one in the largest step */
    const char *join; /* of the last component, see cell.h; NULL: coupled */
    /* Likewise: where rows of edges wait; "host"; NULL: on the device. */
    const char *features;
    /* Data-parallel replicas that read a micro-batch, those behind them the
     * next; 0: all of the cell. */
    int turn;
    bool pair; /* forwards run with backwards of other micro-batches */
    loong_resources_params_t resources; /* that its rank is to have */
    int layers_per_chunk;               /* see loong_split_params_t */
    const char *layout;    /* likewise */
    loong_ties_t ties; /* of its pipeline; found by the component */
    /* Ports of edges that no gradient crosses: the model's. */
    int num_still;
    const char *still[LOONG_MAX_EDGE_PORTS];
} loong_component_params_t;

/* What a chunk of a stage is compiled for. */
typedef enum loong_variant {
    LOONG_VARIANT_TRAIN,
    LOONG_VARIANT_EVAL,
    LOONG_VARIANT_LOGITS,
    LOONG_VARIANT_COUNT
} loong_variant_t;

typedef struct loong_stage {
    loong_context_t *ctx;
    const loong_component_params_t *params; /* borrowed */
    int number; /* in the pipeline */
    loong_stage_split_t cut;
    loong_model_chunk_t *chunk[LOONG_VARIANT_COUNT]; /* NULL: not there */
    /* Of lists; behind them, of the training's forwards that run ahead. */
    loong_transfer_t *transfer[LOONG_VARIANT_COUNT + 1];
    const loong_model_chunk_t *layout; /* any of them: places of parameters */
    loong_shards_t *shards;
    loong_optimizer_t *optimizer; /* NULL without training */
    loong_binding_t run;          /* its bases, slot 0 */
    loong_upload_t *upload; /* while parameters are set; NULL */
} loong_stage_t;

/* Builds and compiles stage `number` of those cut. Not collective. */
LOONG_NODISCARD loong_status_t loongi_stage_create(
    loong_context_t *ctx, const loong_component_params_t *params,
    const loong_stage_split_t *cuts, int number, loong_stage_t **stage_p);
void loongi_stage_destroy(loong_stage_t **stage_p);

/* Makes what kernels share between launches. */
LOONG_NODISCARD loong_status_t loongi_stage_prepare(loong_stage_t *stage);
/* loongi_program_load of the optimizer's programs. */
LOONG_NODISCARD loong_status_t loongi_stage_load(const loong_stage_t *stage);

/* Begins to set parameters, and ends: `status` is what became of it. */
LOONG_NODISCARD loong_status_t loongi_stage_upload(loong_stage_t *stage);
LOONG_NODISCARD loong_status_t loongi_stage_uploaded(loong_stage_t *stage,
                                                     loong_status_t status);

/* In between: sets elements [at, at + count) of a parameter, master included,
 * as far as this rank has them. */
LOONG_NODISCARD loong_status_t
loongi_stage_set_param(loong_stage_t *stage, const loong_chunk_param_t *place,
                       int64_t at, int64_t count, const double *values);

/* Fills parameters and masters from (seed, name, global index), states of the
 * optimizer with zero. Not collective: every rank makes the same. */
LOONG_NODISCARD loong_status_t loongi_stage_initialize(loong_stage_t *stage,
                                                       uint64_t seed);

/* The rows of the part that this rank keeps of it. */
void loongi_stage_shard_rows(const loong_stage_t *stage,
                             const loong_chunk_param_t *place, int64_t *row_p,
                             int64_t *rows_p);

/* The address of a port in slot 0, in the device's memory. */
void *loongi_stage_port(const loong_stage_t *stage, const loong_port_t *port);

/* Runs one program of a chunk in slot 0. */
LOONG_NODISCARD loong_status_t loongi_stage_execute(loong_stage_t *stage,
                                                    loong_variant_t variant,
                                                    loong_program_kind_t kind,
                                                    const loong_frame_t *frame);

#ifdef __cplusplus
}
#endif

#endif
