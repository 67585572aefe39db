/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank holds of a model: its components, the lists of entries that
 * run them, and one memory for all. Planning (create) touches no device;
 * allocate does.
 */
#ifndef LOONG_MODEL_H
#define LOONG_MODEL_H

#include "cell.h"
#include "cell_ranks.h"
#include "component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows that one component makes and another one reads. */
typedef struct loong_edge {
    int from, to;     /* components */
    int to_stage;     /* that reads it; the last stage makes it */
    const char *name; /* of the port, at both ends */
    bool gradient;    /* comes back */
} loong_edge_t;

enum { LOONG_MAX_EDGES = 8 };

/* Who reads rows of an edge, or their gradients. */
static inline int loongi_edge_reader(const loong_edge_t *edge, bool backward)
{
    return backward ? edge->from : edge->to;
}

/* Of a device, to and from areas in host memory. */
typedef struct loong_edge_copies {
    void *stream; /* NULL: there are none */
    void *done;   /* event: all that were put on it */
} loong_edge_copies_t;

typedef struct loong_model {
    loong_context_t *ctx;
    int num_components;
    loong_component_t **components; /* the last one has the loss */
    int num_edges;
    loong_edge_t edges[LOONG_MAX_EDGES];
    /* Of this rank, component after component. */
    int num_stages;
    loong_stage_t **stages;
    /* By the number of a stage (loongi_model_first), as lists have them; NULL:
     * of a component that this rank has not, or not of this variant. */
    int num_chunks;
    loong_model_chunk_t **chunks[LOONG_VARIANT_COUNT];
    loong_cell_t *training;   /* of the coming step; NULL: no training */
    loong_cell_t *evaluation; /* of one micro-batch, forward alone */
    loong_cell_ranks_t ranks; /* their ranks, and which of them this is */
    loong_stage_work_t *work[LOONG_MAX_COMPONENTS];     /* of their stages */
    struct loong_edges *under_way[LOONG_VARIANT_COUNT]; /* see edges.h */
    const struct loong_edge_rows *rows; /* borrowed; NULL without edges */
    loong_memory_plan_t *memory_plan;
    int use[LOONG_VARIANT_COUNT];   /* of rank */
    loong_resources_t *resources;   /* borrowed; NULL until allocate */
    void *shared[LOONG_BASE_COUNT]; /* memory that peers read; NULL: none */
    /* What a component reads of edges, forward and backward, goes through host
     * memory, and waits there until it is computed with. */
    bool on_host[LOONG_MAX_COMPONENTS][2];
    /* Its areas on this rank, if that has a device; NULL: none. */
    char *areas[2];
    int64_t area_bytes[2]; /* planned, equal to allocated */
    loong_edge_copies_t copies;
    bool busy; /* messages are under way that cannot be given up */
    int64_t bytes[LOONG_BASE_COUNT]; /* planned, equal to allocated */
    /* device: NULL until allocate; groups: the last one's that is here */
    loong_binding_t run;
} loong_model_t;

/* Cuts, builds and compiles components, the last one with the loss. Not
 * collective. */
LOONG_NODISCARD loong_status_t loongi_model_create(
    loong_context_t *ctx, int num_components,
    const loong_component_params_t *params, loong_model_t **model_p);
/* Of another rank of the plan that `other` is of: params are the same but for
 * the rank in each mesh, and the device. Lists that are equal are shared. */
LOONG_NODISCARD loong_status_t loongi_model_create_rank(
    const loong_model_t *other, const loong_component_params_t *params,
    loong_model_t **model_p);
/* Gives messages up that are under way after a failure, ends what runs on the
 * device (loongi_resources_disconnect), and closes the communicators of
 * devices; nothing the second time, or for NULL. Whatever waits for the device
 * comes behind. Collective on: world. */
void loongi_model_disconnect(loong_model_t *model);
/* Disconnects. Collective on: world, once allocated. */
void loongi_model_destroy(loong_model_t **model_p);

/* What edges carry (edges.h); borrowed. Before allocate. */
void loongi_model_set_rows(loong_model_t *model,
                           const struct loong_edge_rows *rows);

/* Opens the components' communicators, takes the memory of all bases
 * (parameters and gradients where peers of the machine can read them) and
 * prepares kernels. resources: borrowed. Collective on: world. */
LOONG_NODISCARD loong_status_t
loongi_model_allocate(loong_model_t *model, loong_resources_t *resources);

/* Micro-batches of a component in a step of so many of the last one. */
int loongi_model_micro_batches(const loong_model_t *model, int component,
                               int of_last);

/* Makes the lists of a step of so many micro-batches of the last component, no
 * more than planned; nothing when it is the same number. */
LOONG_NODISCARD loong_status_t loongi_model_plan_step(loong_model_t *model,
                                                      int micro_batches);

/* Whether the schedules take a step of so many micro-batches; with the reason
 * else. */
LOONG_NODISCARD loong_status_t loongi_model_accepts(const loong_model_t *model,
                                                    int micro_batches);

/* The rank of the job that a rank of this one's cell is, and that this is. */
static inline int loongi_model_job_rank(const loong_model_t *model,
                                        int cell_rank)
{
    return model->ranks.rank[cell_rank];
}
static inline int loongi_model_rank(const loong_model_t *model)
{
    return loongi_model_job_rank(model, model->ranks.cell_rank);
}

/* The entries of this rank. */
const loong_rank_schedule_t *loongi_model_entries(const loong_model_t *model,
                                                  loong_variant_t variant);

/* The component that one of a list is: itself, or that whose forward it runs
 * ahead of it (cell.h). */
static inline int loongi_model_number(const loong_model_t *model, int component)
{
    return component < model->num_components
               ? component
               : model->training->forward_of[component];
}

/* That an entry is of. */
static inline loong_component_t *
loongi_model_component(const loong_model_t *model, const loong_entry_t *entry)
{
    return model->components[loongi_model_number(model, entry->component)];
}
static inline loong_stage_t *loongi_model_stage(const loong_model_t *model,
                                                const loong_entry_t *entry)
{
    return loongi_model_component(model, entry)->stages[entry->chunk];
}

/* The number of a component's first stage on a rank, among those of a rank that
 * has all components. */
static inline int loongi_model_first(const loong_component_t *component)
{
    return component->model->evaluation->first_chunk[component->index];
}

/* The number of an entry's stage among those. */
static inline int loongi_model_stage_number(const loong_model_t *model,
                                            const loong_entry_t *entry)
{
    return loongi_model_first(loongi_model_component(model, entry)) +
           entry->chunk;
}

/* The bases and groups of an entry. */
loong_binding_t loongi_model_bind(const loong_model_t *model,
                                  loong_variant_t variant,
                                  const loong_entry_t *entry);
/* loongi_memory_plan_run of entry `index` of a list. */
LOONG_NODISCARD loong_status_t
loongi_model_run(const loong_model_t *model, loong_variant_t variant,
                 int64_t index, const loong_frame_t *const frame[2]);

/* An entry REDUCE: behind the last stage of a rank, sums what it ties. */
LOONG_NODISCARD loong_status_t loongi_model_reduce(const loong_model_t *model,
                                                   const loong_entry_t *entry,
                                                   const loong_frame_t *frame);

/* Begins the sends and receives of an entry; waits for what a program reads;
 * waits for all sends of a list. */
LOONG_NODISCARD loong_status_t loongi_model_begin(const loong_model_t *model,
                                                  loong_variant_t variant,
                                                  const loong_entry_t *entry);
LOONG_NODISCARD loong_status_t loongi_model_need(const loong_model_t *model,
                                                 loong_variant_t variant,
                                                 const loong_entry_t *entry);
LOONG_NODISCARD loong_status_t loongi_model_finish(const loong_model_t *model,
                                                   loong_variant_t variant);
/* Marks the frame of an entry whose micro-batch has no rows: its program only
 * meets other replicas, and its inputs need not be filled. */
LOONG_NODISCARD loong_status_t loongi_model_frame(const loong_model_t *model,
                                                  const loong_entry_t *entry,
                                                  loong_frame_t *frame);
/* One forward without gradients through the chunks of all stages; fill: gives
 * an entry its inputs; NULL: they have theirs. */
typedef loong_status_t (*loong_fill_entry_t)(void *user,
                                             const loong_entry_t *entry);
LOONG_NODISCARD loong_status_t loongi_model_forward(const loong_model_t *model,
                                                    loong_variant_t variant,
                                                    const loong_frame_t *frame,
                                                    loong_fill_entry_t fill,
                                                    void *user);

/* loongi_stage_initialize of all stages. */
LOONG_NODISCARD loong_status_t loongi_model_initialize(loong_model_t *model,
                                                       uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
