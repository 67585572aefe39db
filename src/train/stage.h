/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank holds of a component: compiled chunks, optimizer, memory, and
 * the binding of programs to it. Planning (create) touches no device; allocate
 * and prepare do.
 */
#ifndef LOONG_STAGE_H
#define LOONG_STAGE_H

#include "executor.h"
#include "groups.h"
#include "loong/device.h"
#include "loong/family.h"
#include "optimizer.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_stage_params {
    loong_mesh_t mesh;
    const loong_family_t *family;
    const void *config; /* of the family; borrowed */
    loong_model_request_t request; /* of a training micro-batch */
    bool cut; /* the request names a part of the model; else it is all */
    loong_precision_t precision;
    loong_compile_params_t compile;
    loong_shards_params_t shards;
    loong_optimizer_params_t optimizer;
    int64_t logits_tokens; /* T of the chunk for sampling; 0: none */
    bool train;            /* false: evaluation and logits only */
} loong_stage_params_t;

/* The chunks of a stage. */
typedef enum loong_stage_chunk {
    LOONG_STAGE_TRAIN,
    LOONG_STAGE_EVAL,
    LOONG_STAGE_LOGITS,
    LOONG_STAGE_CHUNKS
} loong_stage_chunk_t;

/* A parameter of the whole model, on whatever rank it is; without padding. */
typedef struct loong_whole_param {
    const char *name;
    int ndim;
    int64_t shape[2];
    bool frozen;
} loong_whole_param_t;

typedef struct loong_stage {
    loong_context_t *ctx;
    loong_arena_t *arena;
    int64_t num_whole;
    loong_whole_param_t *whole;
    const loong_groups_t *groups; /* borrowed; NULL until allocate */
    loong_device_t *device;       /* borrowed; NULL until allocate */
    loong_stage_params_t params;
    loong_model_facts_t facts;
    loong_chunk_t *chunk[LOONG_STAGE_CHUNKS]; /* NULL: not there */
    const loong_chunk_t *layout; /* any of them: places of parameters */
    loong_shards_t *shards;
    loong_optimizer_t *optimizer; /* NULL without training */
    int64_t num_slots;
    int64_t bytes[LOONG_BASE_COUNT]; /* planned, equal to allocated */
    loong_run_t run;
} loong_stage_t;

/* Builds and compiles. num_slots is the schedule's. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_stage_create(loong_context_t *ctx, const loong_stage_params_t *params,
                    int64_t num_slots, loong_stage_t **stage_p);
/* Collective on: world, once allocated. */
void loongi_stage_destroy(loong_stage_t **stage_p);

/* Takes the memory of all bases (parameters and gradients where peers of the
 * machine can read them) and prepares kernels. Collective on: world. */
LOONG_NODISCARD loong_status_t
loongi_stage_allocate(loong_stage_t *stage, loong_device_t *device,
                      const loong_groups_t *groups);

/* Fills parameters and masters from (seed, name, global index), the moments
 * with zero. Not collective: every rank makes the same. */
LOONG_NODISCARD loong_status_t loongi_stage_initialize(loong_stage_t *stage,
                                                       uint64_t seed);

/* Sets elements [at, at + count) of a parameter, master included, as far as
 * this rank has them. */
void loongi_stage_set_param(loong_stage_t *stage,
                            const loong_param_place_t *place, int64_t at,
                            int64_t count, const double *values);

/* What a rank holds of a parameter, seen as a matrix: `rows` rows of `cols`
 * elements in storage, which are rows row .. and columns col .. of a tensor
 * [all_rows, all_cols] outside. Padding of the vocabulary is not counted. */
typedef struct loong_part {
    int64_t row, rows, all_rows;
    int64_t col, cols, all_cols;
} loong_part_t;
loong_part_t loongi_part_of(const loong_param_place_t *place);

/* The rows of the part that this rank keeps of it. */
void loongi_stage_kept_rows(const loong_stage_t *stage,
                            const loong_param_place_t *place, int64_t *row_p,
                            int64_t *rows_p);

/* A tensor outside. */
typedef struct loong_part_source {
    /* Rows of it, all columns, into `to`. */
    loong_status_t (*read)(void *user, int64_t row, int64_t rows, void *to);
    void *user;
    size_t size;  /* of an element */
    void *buffer; /* of `room` elements, at least a row */
    int64_t room;
} loong_part_source_t;

/* Reads rows row .. row + rows - 1 of the part (counted within it) into `to`,
 * dense. */
LOONG_NODISCARD loong_status_t
loongi_part_read(const loong_part_t *part, const loong_part_source_t *source,
                 int64_t row, int64_t rows, void *to);

/* The bases with a slot bound, and the address of a port there; of slot 0. */
loong_run_t loongi_stage_bind(const loong_stage_t *stage,
                              loong_stage_chunk_t chunk, int64_t slot);
void *loongi_run_port(const loong_run_t *run, const loong_port_t *port);
void *loongi_stage_port(const loong_stage_t *stage, const loong_port_t *port);

/* Runs one program of a chunk with a slot bound. */
LOONG_NODISCARD loong_status_t
loongi_stage_execute(loong_stage_t *stage, loong_stage_chunk_t chunk,
                 loong_program_kind_t kind, int64_t slot,
                 const loong_frame_t *frame);

#ifdef __cplusplus
}
#endif

#endif
