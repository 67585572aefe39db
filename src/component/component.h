/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank holds of a component: its stages of the pipeline. Its memory
 * and the lists of entries that run it are the model's (model.h).
 */
#ifndef LOONG_COMPONENT_H
#define LOONG_COMPONENT_H

#include "component_comms.h"
#include "memory_plan.h"
#include "stage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A parameter of the whole model, on whatever rank it is; without padding.
 * Outside of graphs the matrices of experts stand one below the other. */
typedef struct loong_whole_param {
    const char *name;
    int ndim;
    int64_t shape[2];
    bool frozen;
    double adapter; /* see loong_param_params_t */
    loong_quant_t quant; /* likewise */
    int group; /* of the optimizer */
    /* That keeps states of it; NULL: none. */
    const loong_optimizer_class_t *optimizer;
} loong_whole_param_t;

enum { LOONG_MAX_COMPONENTS = 8 };

/* A port of an edge. */
typedef struct loong_edge_port {
    const char *name;
    bool send;
    bool first; /* of the first stage; else of the last one */
} loong_edge_port_t;

typedef struct loong_component {
    loong_context_t *ctx;
    loong_arena_t *arena;
    struct loong_model *model; /* that it is of */
    int index;                 /* of the model's */
    loong_component_params_t params;
    loong_model_facts_t facts;
    int64_t num_whole;
    loong_whole_param_t *whole;
    int num_losses; /* of the whole model */
    loong_loss_params_t losses[LOONG_MAX_LOSSES];
    int num_ports; /* of edges, of the whole model */
    loong_edge_port_t ports[LOONG_MAX_EDGE_PORTS];
    loong_stage_split_t *cuts; /* of all stages of the pipeline */
    int num_chunks;          /* of each of its ranks: stages of these */
    int num_stages;          /* of this rank; 0 where it is not */
    loong_stage_t **stages;
    /* Of its pipeline, borrowed from the model. */
    const loong_schedule_t *schedule; /* of the coming step; NULL: no training*/
    const loong_schedule_t *evaluation; /* of one micro-batch, forward alone */
    loong_program_t tie; /* sums over holders, once a step behind all stages */
    loong_component_comms_t comms; /* none until the model allocates */
    loong_binding_t run; /* the model's, with this component's groups */
} loong_component_t;

/* Rows of a micro-batch, of all ranks that share them. */
static inline int64_t loongi_component_rows(const loong_component_t *c)
{
    return c->params.request.rows * c->params.mesh.size[LOONG_AXIS_CP];
}

/* Cuts the pipeline and lists the whole component; the model puts schedule and
 * evaluation in. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_component_create(loong_context_t *ctx,
                        const loong_component_params_t *params,
                        loong_component_t **component_p);
/* Builds and compiles the stages. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_component_compile(loong_component_t *component);
/* The graph of a part of it, as one rank alone would build that. */
LOONG_NODISCARD loong_status_t loongi_component_build(
    const loong_component_t *component, const loong_stage_split_t *cut,
    loong_graph_t **graph_p);
/* Collective on: world, once its communicators are open. */
void loongi_component_destroy(loong_component_t **component_p);

/* The stage of the pipeline that a stage of this rank is. */
static inline int loongi_component_stage(const loong_component_t *component,
                                         int index)
{
    return loongi_schedule_stage(component->evaluation,
                                 component->params.mesh.coord[LOONG_AXIS_PP],
                                 index);
}

/* The stage with the head, NULL on other ranks; the rank of the pipeline that
 * has it. */
loong_stage_t *loongi_component_head(const loong_component_t *component);
int loongi_component_head_rank(const loong_component_t *component);

#ifdef __cplusplus
}
#endif

#endif
