/* SPDX-License-Identifier: Apache-2.0
 *
 * The program: a flat array of steps. A step never holds an address; an
 * operand is (base, offset), and executing a program binds bases.
 */
#ifndef LOONG_PROGRAM_H
#define LOONG_PROGRAM_H

#include "base.h"
#include "graph_impl.h"
#include "loong/kernel.h"
#include "loong/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where an operand lives. PARAM, GRAD, STATE, OPTIM are one buffer a rank
 * each; SLOT holds what a later program of the same micro-batch reads; SCRATCH
 * what one program reads; INPUT what the loader or the stage before wrote; EDGE
 * and EDGE_GRAD what other components did, rows and gradients; COMM what
 * data-parallel ranks gather or sum for a while. */
#define LOONG_BASE_LIST(X)                                                    \
    X(NONE, "none")                                                           \
    X(PARAM, "parameters")                                                    \
    X(GRAD, "gradients")                                                      \
    X(OPTIM, "optimizer")                                                     \
    X(STATE, "states")                                                        \
    X(SCRATCH, "scratch")                                                     \
    X(SLOT, "slots")                                                          \
    X(INPUT, "inputs")                                                        \
    X(EDGE, "edges")                                                          \
    X(EDGE_GRAD, "gradients of edges")                                        \
    X(COMM, "communication")

typedef enum loong_base {
#define LOONG_BASE_ENUM(name_, text_) LOONG_BASE_##name_,
    LOONG_BASE_LIST(LOONG_BASE_ENUM)
#undef LOONG_BASE_ENUM
    LOONG_BASE_COUNT
} loong_base_t;

const char *loongi_base_name(loong_base_t base);

typedef struct loong_operand {
    loong_base_t base;
    int64_t offset; /* bytes */
} loong_operand_t;

/* On which micro-batches of a step a program step runs. */
typedef enum loong_when {
    LOONG_WHEN_ALWAYS,
    LOONG_WHEN_FIRST,
    LOONG_WHEN_LAST,
    LOONG_WHEN_LOGGED, /* steps whose tensors are logged */
    LOONG_WHEN_AGAIN   /* where a part runs in more than one round */
} loong_when_t;

/* Whether a step runs where a micro-batch of a component has no rows: in a
 * hollow entry, which only meets other replicas in their collectives. */
typedef enum loong_hollow {
    LOONG_HOLLOW_SKIPS,
    LOONG_HOLLOW_RUNS,
    LOONG_HOLLOW_ONLY /* runs there alone */
} loong_hollow_t;

/* A queue of a device; steps of one lane run in order. */
typedef enum loong_lane_kind {
    LOONG_LANE_COMPUTE,
    LOONG_LANE_COMM
} loong_lane_kind_t;

/* A part of a program that runs in rounds, from a step that begins it to one
 * that ends it: all steps run in the first round, those that repeat in the
 * others. */
typedef enum loong_repeat {
    LOONG_REPEAT_BEGINS = 1,
    LOONG_REPEAT_REPEATS = 2,
    LOONG_REPEAT_ENDS = 4
} loong_repeat_t;

typedef struct loong_step {
    const loong_op_t *op;
    const loong_kernel_t *kernel;
    void *state; /* what the kernel's prepare made */
    const char *scope;
    const char *refusals; /* why better kernels were refused; "" if none */
    loong_kernel_query_t query;
    loong_operand_t operand[LOONG_MAX_OPERANDS];
    loong_operand_t workspace;
    int64_t workspace_bytes; /* that the kernel needs; 0: none */
    uint32_t add;       /* bit o: output o is always added to */
    uint32_t add_later; /* bit o: added to from the second micro-batch on */
    uint32_t add_rounds; /* bit o: added to from the second round on */
    uint32_t repeat;     /* bits of loong_repeat_t */
    loong_operand_t rounds; /* i32 [1], of a step that begins a part */
    loong_lane_kind_t lane;
    loong_group_t group; /* whose ranks a kernel that communicates calls */
    bool beside;   /* of lane COMM: there is work before it is awaited */
    /* So many of the program's collectives are complete; of lane COMM: where
     * calls of other groups than its own need not come in order. */
    int32_t await;
    loong_when_t when;
    loong_hollow_t hollow;
    bool recomputed;
    loong_cost_t cost;
} loong_step_t;

typedef struct loong_program {
    loong_program_kind_t kind;
    int64_t num_steps;
    int64_t cap_steps;
    loong_step_t *steps;
    int64_t scratch_bytes;
    int64_t comm_bytes;
    uint32_t bases; /* bit b: an operand is in base b */
    bool placed; /* on lanes, by loongi_pass_lanes */
} loong_program_t;

/* A tensor that a caller binds or reads: input, declared output, loss. */
typedef struct loong_port {
    const char *name;
    loong_dtype_t dtype;
    loong_shape_t shape;
    loong_operand_t operand;
    bool boundary; /* from or to another stage, see loong_graph_boundary_... */
    bool gradient; /* of a boundary, which crosses it the other way */
    bool edge;     /* from or to another component, see loong_graph_receive */
} loong_port_t;

/* An input that is filled with data, not by another stage or component. */
static inline bool loongi_port_is_data(const loong_port_t *input)
{
    return !input->boundary && !input->gradient && !input->edge;
}

/* A loss: the port of its rows, and what was declared of it. */
typedef struct loong_loss_port {
    loong_port_t port;
    loong_loss_params_t params; /* texts live in the chunk's arena */
    int number; /* among the losses of the model: set by the component */
} loong_loss_port_t;

/* A flat buffer: parameters that share type, trainability and weight decay,
 * one after the other. Element e of it is element e of its main gradient and
 * of each state of the optimizer. */
enum { LOONG_MAX_FLATS = 64 };
typedef struct loong_flat {
    loong_dtype_t dtype;
    bool frozen;
    int optimizer;       /* see loong_param_params_t */
    double weight_decay; /* factor of the optimizer's */
    double sign_rate;    /* see loong_param_params_t */
    bool copy;           /* see loong_placement_t */
    bool partial;
    loong_group_t sum_group;
    int tie;
    bool expert;
    int64_t elements; /* padded to whole cache lines */
    int64_t param_offset; /* bytes in PARAM; -1: shared out among ranks */
    int64_t grad_offset;  /* bytes in GRAD; -1: likewise, or frozen */
} loong_flat_t;

/* Where one parameter lives. */
typedef struct loong_chunk_param {
    const char *name;
    loong_param_params_t params;
    loong_shape_t shape; /* of the part that this rank holds */
    int64_t elements;    /* of the same */
    int flat;
    int64_t flat_offset; /* elements */
    bool begins_pack;    /* one product writes a pack's gradients at once */
} loong_chunk_param_t;

/* A tensor whose statistics are logged: sum of squares, largest finite |x|,
 * elements that are not finite, of all micro-batches of a logged step, as
 * three f64 in STATE. */
typedef struct loong_watch {
    const char *name; /* scope and op of the node that makes it */
    uint32_t same;    /* ranks among which it is equal: loong_same_t */
    bool gradient;    /* of that tensor */
    loong_val_t value;
    loong_val_t state;
    int64_t offset; /* bytes in STATE */
} loong_watch_t;

/* One model chunk of a rank, compiled: programs and the sizes of its bases. */
typedef struct loong_model_chunk {
    loong_context_t *ctx;
    loong_arena_t *arena;
    loong_precision_t precision;
    loong_program_t programs[LOONG_PROGRAM_COUNT];
    int64_t param_bytes;
    int64_t grad_bytes;
    int64_t state_bytes;
    int64_t slot_bytes;    /* of one slot */
    int64_t scratch_bytes; /* largest program */
    int64_t input_bytes;   /* of one micro-batch */
    int64_t edge_bytes[2]; /* of one area: rows, and gradients */
    int64_t num_params;
    loong_chunk_param_t *params;
    int num_flats;
    loong_flat_t flats[LOONG_MAX_FLATS];
    int num_inputs;
    loong_port_t inputs[LOONG_MAX_INPUTS];
    int num_outputs;
    loong_port_t outputs[LOONG_MAX_OUTPUTS];
    int num_losses;
    loong_loss_port_t losses[LOONG_MAX_LOSSES];
    int64_t num_watches;
    loong_watch_t *watches;
} loong_model_chunk_t;

/* How a graph is compiled. */
typedef struct loong_compile_params {
    const char *device; /* "cpu" */
    int threads;
    loong_kernel_policy_t policy;
    bool fuse;     /* form fused ops before differentiation */
    bool in_place; /* let outputs take the storage of dying inputs */
    int64_t slot_room; /* bytes of a slot that another chunk takes anyhow */
    int64_t least_in_slot; /* bytes of what one program alone has there */
    bool split;    /* gradients of parameters in W, apart from B */
    /* Forwards run ahead of the backwards of earlier micro-batches: each
     * gradient is then written by one program, so that micro-batches are summed
     * one after the other in every schedule. */
    bool ahead;
    bool lanes;       /* collectives are to run beside computation */
    int64_t lane_work; /* that touches so many bytes at least */
    bool overlap;     /* with lanes: products go beside their collectives */
    bool no_direct;   /* accumulate gradients by copies: for comparison */
    bool no_assemble; /* concat by copies: for comparison */
    /* Scope globs whose ops work in the wide type. */
    int num_wide;
    const char *const *wide;
    bool wide_edges; /* another component has another type */
    /* Scope globs whose tensors are logged, when training. */
    int num_watch;
    const char *const *watch;
    /* Scope globs whose forward is run again in the backward. */
    int num_recompute;
    const char *const *recompute;
} loong_compile_params_t;

/* Differentiates (when `train`) and compiles; the graph may be destroyed
 * afterwards. In a chunk compiled with train = false the forward is program
 * E. Errors: those of the graph; LOONG_ERR_UNSUPPORTED when an op has no
 * kernel, with every refusal. */
LOONG_NODISCARD loong_status_t loongi_model_chunk_compile(
    loong_graph_t *graph, bool train, const loong_compile_params_t *params,
    loong_model_chunk_t **chunk_p);
void loongi_model_chunk_destroy(loong_model_chunk_t **chunk_p);

/* Makes what the kernels share between launches (library primitives). */
LOONG_NODISCARD loong_status_t
loongi_model_chunk_prepare(loong_model_chunk_t *chunk);
LOONG_NODISCARD loong_status_t
loongi_program_prepare(loong_context_t *ctx, loong_program_t *program);

/* Looks a port up by name; NULL when there is none. */
const loong_port_t *loongi_model_chunk_input(const loong_model_chunk_t *chunk,
                                             const char *name);
const loong_port_t *loongi_model_chunk_output(const loong_model_chunk_t *chunk,
                                              const char *name);
const loong_chunk_param_t *
loongi_model_chunk_param(const loong_model_chunk_t *chunk, const char *name);

/* Appends a step that was built by hand (optimizer, collectives): chooses the
 * kernel of op for query on device (prepare comes later). operand[] and the
 * flags of `step` must be set. Workspace is taken from SCRATCH at offset 0. */
LOONG_NODISCARD loong_status_t
loongi_program_append(loong_context_t *ctx, loong_program_t *program,
                      const char *device, const loong_step_t *step,
                      loong_arena_t *arena);
void loongi_program_clear(loong_context_t *ctx, loong_program_t *program);

/* Every step in text: op, kernel, types, bytes, flops, refusals. */
void loongi_program_explain(const loong_program_t *program,
                            loong_text_t *text);
void loongi_model_chunk_explain(const loong_model_chunk_t *chunk,
                                loong_text_t *text);

/* Chooses the first kernel of step->op that supports step->query; fills kernel,
 * group, workspace_bytes and refusals. Errors: LOONG_ERR_UNSUPPORTED without a
 * kernel, and where one communicates and the op tells no group. */
LOONG_NODISCARD loong_status_t
loongi_step_choose(loong_context_t *ctx, loong_arena_t *arena,
                   const char *device, loong_step_t *step);

#ifdef __cplusplus
}
#endif

#endif
