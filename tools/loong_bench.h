/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands of loong-bench share: options, and one kernel launch with
 * buffers of its own that can be repeated and timed. */
#ifndef LOONG_BENCH_TOOL_H
#define LOONG_BENCH_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/device.h"
#include "loong/exit_code.h"
#include "loong/ops.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"

enum { BENCH_ATTR = 128, BENCH_SHAPE = 8 };

/* A command gets its own name as argv[0] and returns an exit code. */
typedef struct bench_command {
    const char *name;
    const char *summary;
    int (*run)(loong_context_t *ctx, int argc, char **argv);
} bench_command_t;

int bench_op(loong_context_t *ctx, int argc, char **argv);
int bench_floor(loong_context_t *ctx, int argc, char **argv);
int bench_step(loong_context_t *ctx, int argc, char **argv);
int bench_speeds(loong_context_t *ctx, int argc, char **argv);
int bench_costs(loong_context_t *ctx, int argc, char **argv);
int bench_parity(loong_context_t *ctx, int argc, char **argv);
int bench_tokenizer(loong_context_t *ctx, int argc, char **argv);

/* Prints the error trail to stderr; the exit code that fits the status. */
int bench_fail(const loong_context_t *ctx, loong_status_t status);

/* Prints "loong-bench COMMAND: message" to stderr; LOONG_EXIT_USAGE. */
int bench_usage(const char *command, const char *fmt, ...) LOONG_PRINTF(2, 3);

/* One kernel for one query. Operands without a pointer get memory of the
 * device, inputs are filled with numbers of size about 1 (labels and ids: whole
 * numbers below `ids`). */
typedef struct bench_item {
    loong_device_t *device; /* borrowed */
    const loong_kernel_t *kernel;
    loong_kernel_query_t query;
    loong_frame_t frame;
    uint32_t accumulate;
    int64_t ids;
    int64_t segment; /* rows of a segment, for operands "cu_seqlens" */
    int cu_operand;  /* which operand that is, or -1 */
    loong_cost_t cost;
    void *state;
    void *ptr[LOONG_MAX_OPERANDS];
    size_t owned[LOONG_MAX_OPERANDS]; /* bytes, 0: given */
    void *workspace;
    size_t workspace_size;
    void *device_frame;
    double attr[BENCH_ATTR / sizeof(double)]; /* the op's attributes */
} bench_item_t;

/* What is to be launched; in[] of rank 0 is absent. */
typedef struct bench_spec {
    const char *op;
    const void *attr;
    int num_in;
    const loong_tensor_type_t *in;
    int threads;
} bench_spec_t;

/* Fills op, attributes, inputs (dense) and, by the shape rule, the outputs of
 * the query. */
loong_status_t bench_item_describe(loong_context_t *ctx,
                                   const bench_spec_t *spec,
                                   bench_item_t *item);

/* Takes `kernel`, or the one that would be chosen when NULL; allocates, fills,
 * prepares. */
loong_status_t bench_item_prepare(loong_context_t *ctx, loong_device_t *device,
                                  const loong_kernel_t *kernel,
                                  bench_item_t *item);
/* Launches; a device may not have done it on return. */
loong_status_t bench_item_run(loong_context_t *ctx, const bench_item_t *item);
void bench_item_end(loong_context_t *ctx, bench_item_t *item);

double bench_now(void); /* seconds */
double bench_cpu_now(void); /* of processor time of this thread */

/* Times of repetitions. */
typedef struct bench_times {
    double *ms;
    int count, capacity;
} bench_times_t;
void bench_times_add(bench_times_t *times, double ms);
double bench_best(const bench_times_t *times);
double bench_median(bench_times_t *times); /* sorts */

/* "bf16" and the like; the wide type that goes with it. */
bool bench_dtype(const char *command, const char *text, loong_dtype_t *dtype);
loong_dtype_t bench_wide(loong_dtype_t dtype);

/* Whole numbers separated by commas, all at least 1; the number of them, 0
 * after saying what is wrong. */
int bench_shape(const char *command, const char *text,
                int64_t shape[BENCH_SHAPE]);

/* A decoder, as far as its products go. */
typedef struct bench_model {
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int64_t tokens; /* of a micro-batch */
    int64_t chunk;  /* of these, in the loss head at a time */
    bool gated;     /* gate and up in one product */
    loong_dtype_t dtype;
    int threads;
    bool experts; /* their products are not those of a feed-forward */
    int64_t rank; /* of adapters beside all linear layers, which then stay
                     fixed; 0: none */
} bench_model_t;

/* The model of a recipe; *micro_batches_p: of a step on one rank. */
bench_model_t bench_model_of(const loong_context_t *ctx,
                             const loong_recipe_t *recipe,
                             int64_t *micro_batches_p);

/* Loads a recipe for a benchmark; overrides may be none. */
loong_status_t bench_recipe(loong_context_t *ctx, const char *path,
                            int num_overrides, const char *const *overrides,
                            loong_recipe_t **recipe_p);

/* What a command that times the steps of a training is asked for, and most of
 * it. */
enum { BENCH_STEPS = 1000000, BENCH_RANKS = 1 << 20 };
typedef struct bench_asked {
    int steps;        /* to measure */
    const char *path; /* of the file; NULL: the output */
    const char *ranks; /* of costs: to deal to, behind commas; NULL */
} bench_asked_t;

/* Reads --steps, --out, --ranks and --help; *asked has their defaults. -1: the
 * recipe and its overrides are behind optind; else what the command ends
 * with. */
int bench_training_options(const char *command, int (*help)(void), int argc,
                           char **argv, bench_asked_t *asked);

/* Makes a trainer of the recipe argv[0] with the overrides behind it, on all
 * ranks of the world, and uses it: `steps` steps, of which nothing is kept. */
loong_status_t bench_training(loong_context_t *ctx, int64_t steps, int argc,
                              char **argv,
                              loong_status_t (*use)(void *user,
                                                    loong_trainer_t *trainer),
                              void *user);

/* The products of one micro-batch, at least `steps` times and `seconds` long,
 * added to times. */
loong_status_t bench_floor_times(loong_context_t *ctx,
                                 const bench_model_t *model, int steps,
                                 double seconds, bench_times_t *times);

int bench_threads(void); /* of the machine, or OMP_NUM_THREADS */

#endif
