/* SPDX-License-Identifier: Apache-2.0
 *
 * A random cell whose components are random models: compiled programs of every
 * stage, some with outputs that nobody reads, segments of every message,
 * micro-batches without anything. Replicas are models of their own, so that
 * nothing but messages makes them equal; they meet in collectives as the
 * sharding of their component has it. */
#ifndef FAKE_COMPONENTS_H
#define FAKE_COMPONENTS_H

#include "cell_impl.h"
#include "executor.h"
#include "fake.h"
#include "fake_cell.h"
#include "memory_plan.h"
#include "shards.h"
#include "ties.h"

enum {
    FAKE_STAGES = 12, /* of a component, at most */
    FAKE_MICRO = 8,
    FAKE_EDGE_ROWS = 6,
    FAKE_SEGMENTS = 2
};

typedef struct fake_segment {
    int from_row, to_row, rows; /* 0: there is none */
} fake_segment_t;

typedef struct fake_components {
    loong_context_t *ctx;
    uint64_t seed;
    fake_cell_t drawn;
    loong_cell_t *cell;
    loong_model_chunk_t *chunks[FAKE_COMPONENTS][FAKE_STAGES];
    loong_shards_t *shards[FAKE_COMPONENTS][FAKE_STAGES];
    loong_sharding_t sharding[FAKE_COMPONENTS];
    uint32_t tie[FAKE_COMPONENTS]; /* stages that hold FAKE_TIED */
    loong_arena_t *arena;
    loong_ties_t ties[FAKE_COMPONENTS]; /* as the library finds them */
    /* Nothing is there: of components of one stage that others read. */
    bool hollow[FAKE_COMPONENTS][FAKE_RANKS][FAKE_MICRO];
    fake_segment_t segments[FAKE_MESSAGES][FAKE_SEGMENTS]; /* of this step */
    loong_message_end_t from[FAKE_MESSAGES], to[FAKE_MESSAGES];
} fake_components_t;

loong_status_t fake_components_create(loong_context_t *ctx, uint64_t seed,
                                      const char *join,
                                      fake_components_t *fake);
void fake_components_destroy(fake_components_t *fake);
/* Draws the segments of a step. */
void fake_components_plan(fake_components_t *fake, int step);

/* The component that was drawn: whose forward one runs. */
static inline int fake_own(const fake_components_t *fake, int component)
{
    return fake->cell->forward_of[component];
}
/* Where a rank is in a component. */
int fake_replica(const fake_components_t *fake, int component, int rank);
/* The frame of a program. */
loong_frame_t fake_component_frame(const fake_components_t *fake, int component,
                                   int replica, int stage, int step,
                                   int micro_batch);
/* Collectives over the replicas of a component in one of its programs. */
int fake_collectives(const fake_components_t *fake, const loong_entry_t *entry,
                     int stage, const loong_frame_t *frame);
/* The port of a message at one of its ends. */
const loong_port_t *fake_message_port(const fake_components_t *fake,
                                      int message, bool from);

/* ---- what reference and replay share ------------------------------------- */

enum { FAKE_STEPS = 2 };

static inline char *fake_port_data(const loong_binding_t *run,
                                   const loong_port_t *port)
{
    return run->base[port->operand.base] + port->operand.offset;
}

static inline int64_t fake_port_bytes(const loong_port_t *port)
{
    return loongi_shape_elements(&port->shape) *
           (int64_t)loong_dtype_size(port->dtype);
}

static inline int64_t fake_row_bytes(const loong_port_t *port)
{
    return fake_port_bytes(port) / port->shape.dim[0];
}

/* Where a parameter is in bound bases, and its gradient: NULL when it has
 * none. */
typedef struct fake_param {
    char *param, *grad;
    int64_t elements;
    int rank; /* of the pipeline; of a holder */
} fake_param_t;

/* Of a tie; one holder is a stage. */
enum { FAKE_HOLDERS = 4 };
/* Each holder gets the sum of their gradients: those of a rank first, then
 * ranks, in this order. */
void fake_sum_tie(int count, const fake_param_t holders[FAKE_HOLDERS]);
int64_t fake_find_tied(const loong_model_chunk_t *chunk); /* -1: not there */
fake_param_t fake_param_of(const loong_model_chunk_t *chunk,
                           const loong_binding_t *run, int64_t index);
/* Of the parameter at the start, of its gradient, of the data of a
 * micro-batch. */
uint64_t fake_param_key(const loong_model_chunk_t *chunk,
                        const loong_frame_t *frame, int64_t param);
uint64_t fake_grad_key(const loong_frame_t *frame, int64_t param);
uint64_t fake_ids_key(const loong_frame_t *frame);

/* Runs all steps with storage of its own for every micro-batch; leaves what
 * kernels read, and the gradients. */
void fake_components_reference(fake_components_t *fake, fake_table_t *seen,
                               fake_table_t *grads);

#endif
