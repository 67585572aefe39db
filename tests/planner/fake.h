/* SPDX-License-Identifier: Apache-2.0
 *
 * Fake ops and a world to run them in, for the planner test. A fake kernel
 * computes nothing: it fills its outputs with a hash of every byte it reads, of
 * its site in the graph, of the step and the micro-batch. So one wrong byte
 * anywhere ends in wrong results. The world knows what is allocated and which
 * bytes have been written; it notices a read of anything else at once, and
 * compares what every kernel reads with what the reference read.
 */
#ifndef LOONG_FAKE_H
#define LOONG_FAKE_H

#include "graph_impl.h"
#include "loong/register.h"
#include "schedule.h"

enum { FAKE_MAX_OUT = 3, FAKE_MAX_IN = 6 };

/* What one node is. */
typedef struct fake_attr {
    uint64_t key; /* of the node; clones have the same */
    int variant;  /* which op of the family */
    int64_t workspace;
    loong_tensor_type_t out[FAKE_MAX_IN];
    /* How the gradient is made. */
    bool joint;        /* one node for all inputs, else one for each */
    uint32_t save_in;  /* bit i: the backward reads input i */
    uint32_t save_out; /* bit o: and output o */
} fake_attr_t;

/* The device of the fake kernels. */
#define FAKE_DEVICE "fake"

/* Built-in ops and fake ones, fake kernels for both. */
loong_status_t fake_register(loong_context_t *ctx);
enum { FAKE_VARIANTS = 8 };
const loong_op_t *fake_op(int variant);
/* As cross_entropy: the forward makes the gradients. in: x, w. */
const loong_op_t *fake_loss_op(void);

uint64_t fake_mix(uint64_t a, uint64_t b);
/* Hash of `rows` x `cols` elements of `size` bytes, rows `stride` apart. */
uint64_t fake_digest(const void *data, int64_t rows, int64_t cols, size_t size,
                     int64_t stride);
/* Bytes that depend on a key. */
void fake_fill(void *data, size_t bytes, uint64_t key);

/* ---- what the reference saw --------------------------------------------- */

typedef struct fake_table {
    uint64_t *key;
    uint64_t *value;
    uint64_t size; /* a power of two */
    uint64_t used;
} fake_table_t;

void fake_table_put(fake_table_t *table, uint64_t key, uint64_t value);
bool fake_table_get(const fake_table_t *table, uint64_t key, uint64_t *value);
void fake_table_free(fake_table_t *table);

/* ---- the world ---------------------------------------------------------- */

/* An allocated buffer with a shadow: which bytes hold something, and how far
 * it was ever touched. */
typedef struct fake_region {
    const char *name;
    char *data;
    int64_t bytes;
    bool *valid;
    int64_t touched; /* end of the last byte that was ever written */
} fake_region_t;

enum { FAKE_MAX_REGIONS = 192 };

typedef struct fake_world {
    fake_table_t *seen; /* of the reference */
    bool record;        /* this is the reference: fill `seen` */
    int num_regions;    /* 0: memory is not checked (reference) */
    fake_region_t regions[FAKE_MAX_REGIONS];
    char error[400]; /* the first thing that is wrong, "" */
} fake_world_t;

fake_region_t *fake_world_add(fake_world_t *world, const char *name,
                              int64_t bytes);
void fake_world_free(fake_world_t *world);
/* Frees bytes: they are overwritten and may not be read any more. */
void fake_region_poison(fake_region_t *region, int64_t begin, int64_t bytes);
/* True, or what is wrong goes to error. */
bool fake_world_read(fake_world_t *world, const void *data, int64_t bytes,
                     const char *what);
bool fake_world_write(fake_world_t *world, const void *data, int64_t bytes,
                      const char *what);
void fake_world_fail(fake_world_t *world, const char *fmt, ...)
    LOONG_PRINTF(2, 3);

/* ---- random stages ------------------------------------------------------ */

/* A model of `stages` stages that depends on seed alone. */
typedef struct fake_model {
    uint64_t seed;
    int stages;
    bool tied;    /* the first and last stage share a parameter */
    loong_precision_t precision;
} fake_model_t;

fake_model_t fake_model_make(uint64_t seed, int stages);
loong_status_t fake_model_build(loong_context_t *ctx, const fake_model_t *model,
                                int stage, loong_graph_t **graph_p);
/* The frame of a micro-batch on a stage; its seed is the stage. */
loong_frame_t fake_model_frame(int stage, int step, int micro_batch,
                               int micro_batches);
uint64_t fake_draw(uint64_t seed, uint64_t index, uint64_t bound);

#define FAKE_TIED "tied"

/* ---- reference: everything has storage of its own ----------------------- */

typedef struct fake_reference {
    fake_table_t seen;
    /* Gradients and states at the end of each step, by name. */
    fake_table_t results;
} fake_reference_t;

uint64_t fake_result_key(int stage, int step, const char *name);
uint64_t fake_message_key(int stage, int step, int micro_batch,
                          const char *name);
/* After a step: new parameters from the old and the gradient. */
void fake_update(void *param, size_t param_size, const void *grad,
                 size_t grad_size, int64_t elements);
/* Sum over the holders of a tied parameter: a becomes the sum of a and b. */
void fake_combine(void *a, const void *b, size_t size, int64_t elements);

void fake_reference_run(loong_context_t *ctx, const fake_model_t *model,
                        int steps, int micro_batches,
                        fake_reference_t *reference);
void fake_reference_free(fake_reference_t *reference);

/* ---- replay: the programs on memory as planned -------------------------- */

typedef struct fake_options {
    const char *schedule;
    loong_schedule_params_t params;
    bool in_place;
    bool no_direct;
    bool no_assemble;
    int num_recompute;
    const char *recompute[2];
    int steps;
    bool unchecked; /* leave the validator of schedules out */
} fake_options_t;

/* What happened, so that a test can say that something did. */
typedef struct fake_counters {
    int64_t steps_run;
    int64_t in_place;
    int64_t strided;   /* operands with gaps */
    int64_t direct;    /* kernels that add into gradients */
    int64_t assembled; /* outputs into the columns of another tensor */
    int64_t recomputed;
    int64_t weights;   /* steps of W */
    int64_t pairs;
    int64_t reused;    /* slots taken over */
    int64_t tied;
    int64_t messages;
} fake_counters_t;

/* False: error says what went wrong. Adds to counters. */
enum { FAKE_ERROR_SIZE = 1000 };
bool fake_replay_run(loong_context_t *ctx, const fake_model_t *model,
                     const fake_options_t *options,
                     const fake_reference_t *reference,
                     fake_counters_t *counters, char error[FAKE_ERROR_SIZE]);

#endif
