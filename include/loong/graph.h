/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph: values and the nodes (applications of ops) that make them.
 * Building is pure: nothing is allocated on a device and nothing computed, and
 * the result depends on the recipe and the mesh coordinates alone.
 *
 * Builders return a value. After the first error a graph is broken: builders
 * return LOONG_NONE and do nothing, and loong_graph_status gives the error.
 * So model code reads like the mathematics and checks once at its end.
 *
 * Not collective. A graph belongs to one thread.
 */
#ifndef LOONG_GRAPH_H
#define LOONG_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/dtype.h"
#include "loong/kernel.h"
#include "loong/mesh.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_graph loong_graph_t;
typedef struct loong_op loong_op_t;

/* A value of a graph, by index; LOONG_NONE is an absent operand. */
typedef int32_t loong_val_t;
enum { LOONG_NONE = -1 };

typedef struct loong_shape {
    int rank;
    int64_t dim[LOONG_MAX_DIMS];
} loong_shape_t;

static inline loong_shape_t loong_shape_1d(int64_t n)
{
    loong_shape_t shape = {1, {n, 0, 0, 0}};
    return shape;
}

static inline loong_shape_t loong_shape_2d(int64_t rows, int64_t cols)
{
    loong_shape_t shape = {2, {rows, cols, 0, 0}};
    return shape;
}

/* Types of a graph: of activations and matrix parameters, and of what must
 * be wide (statistics, losses, main gradients, vector parameters). */
typedef struct loong_precision {
    loong_dtype_t compute; /* F64, F32 or BF16 */
    loong_dtype_t wide;    /* F64 with F64, else F32 */
} loong_precision_t;

/* How a parameter starts; a function of (seed, name, global index) alone. */
typedef enum loong_init_kind {
    LOONG_INIT_ZEROS,
    LOONG_INIT_ONES,
    LOONG_INIT_NORMAL,  /* mean 0, standard deviation `std` */
    LOONG_INIT_UNIFORM, /* of the same mean and deviation */
    LOONG_INIT_TRUNCATED_NORMAL, /* drawn again beyond 3 std */
    LOONG_INIT_CONSTANT          /* `std` everywhere */
} loong_init_kind_t;

/* Which part of a parameter a rank holds. All zero: the whole of it, and no
 * other rank of the mesh but data-parallel ones does. */
typedef struct loong_placement {
    bool cut; /* indices begin .. begin + count - 1 of dimension dim */
    int dim;
    int64_t begin;
    int64_t count;
    /* Of this, or of the whole, indices inner_begin .. inner_begin +
     * inner_count - 1 of each of so many equal parts of dimension inner_dim;
     * 0: all. */
    int inner_parts;
    int inner_dim;
    int64_t inner_begin;
    int64_t inner_count;
    /* Another rank holds the same part and speaks for it where each element
     * counts once (norms, checkpoints). */
    bool copy;
    /* The holders' gradients are parts of a sum over this group. */
    bool partial;
    loong_group_t group;
    /* Other stages hold it too, and once a step the gradients are summed over
     * the ranks of group TIE + tie - 1; 0: none do. Set by the component. */
    int tie;
    /* Of experts: the ranks that hold the same are those of EDP, not the
     * data-parallel ones of the attention side. */
    bool expert;
} loong_placement_t;

/* A parameter: one global name and shape, whatever the layout. */
typedef struct loong_param_params {
    const char *name;    /* within its component, Hugging Face style path */
    loong_shape_t shape; /* global */
    int64_t padding; /* rows at its end that are in no file */
    loong_placement_t place;
    loong_dtype_t dtype; /* of the storage that kernels read */
    /* Rows are stored as codes, dtype uint8: values have so many columns, not
     * those of `shape`. Of what is frozen. */
    loong_quant_t quant;
    loong_init_kind_t init;
    double std;
    bool frozen;         /* no gradient, no optimizer state */
    double adapter; /* of an adapter: its scale; 0: of the model itself */
    int optimizer;       /* number of its group (src/optim/optimizer.h) */
    double weight_decay; /* factor of the optimizer's weight decay */
    /* Above 0: a step moves every element by this against the sign of its
     * gradient, which is in no norm and not clipped; no moments. */
    double sign_rate;
} loong_param_params_t;

LOONG_API LOONG_NODISCARD loong_status_t
loong_graph_create(loong_context_t *ctx, loong_precision_t precision,
                   loong_graph_t **graph_p);
LOONG_API void loong_graph_destroy(loong_graph_t **graph_p);

/* Where in a mesh the graph will run: what collectives and layers ask. Before
 * anything is built; a graph starts on a mesh of one rank. */
LOONG_API void loong_graph_set_mesh(loong_graph_t *graph,
                                    const loong_mesh_t *mesh);
LOONG_API const loong_mesh_t *loong_graph_mesh(const loong_graph_t *graph);

/* The first error, LOONG_OK when there is none. */
LOONG_API loong_status_t loong_graph_status(const loong_graph_t *graph);
LOONG_API loong_context_t *loong_graph_context(const loong_graph_t *graph);
LOONG_API loong_precision_t loong_graph_precision(const loong_graph_t *graph);

/* Marks the graph broken with a message; returns LOONG_NONE. */
LOONG_API loong_val_t loong_graph_fail(loong_graph_t *graph,
                                       loong_status_t status, const char *fmt,
                                       ...) LOONG_PRINTF(3, 4);

/* Scopes name nodes by path ("layers.3.attn"). push takes a printf format. */
LOONG_API void loong_graph_push(loong_graph_t *graph, const char *fmt, ...)
    LOONG_PRINTF(2, 3);
LOONG_API void loong_graph_pop(loong_graph_t *graph);
enum { LOONG_MAX_SCOPE = 200 };
/* The path; "" at the top. Borrowed until the next push or pop. */
LOONG_API const char *loong_graph_scope(const loong_graph_t *graph);

/* A tensor that the loader provides for each micro-batch. Asking twice for a
 * name gives the same value; the shape and type must agree. */
LOONG_API loong_val_t loong_graph_input(loong_graph_t *graph, const char *name,
                                        loong_dtype_t dtype,
                                        loong_shape_t shape);

/* The borders of a chunk of a pipeline. A boundary input is an input that the
 * stage before makes: after differentiation its gradient is the output
 * "<name>.grad". A boundary output is an output that the stage after reads:
 * its gradient comes as the input "<name>.grad", and differentiation begins
 * there as it does at losses. Tensors of integers have no gradient. */
LOONG_API loong_val_t loong_graph_boundary_input(loong_graph_t *graph,
                                                 const char *name,
                                                 loong_dtype_t dtype,
                                                 loong_shape_t shape);
LOONG_API void loong_graph_boundary_output(loong_graph_t *graph,
                                           const char *name,
                                           loong_val_t value);
/* No gradient crosses the boundaries of a name. */
LOONG_API void loong_graph_still_boundary(loong_graph_t *graph,
                                          const char *name);

/* The ports of edges between components: rows that another component makes,
 * and rows that another one reads. They are boundaries as those above, unless
 * the model finds that no gradient crosses the edge. A port that is sent and
 * that nobody reads is left out. */
LOONG_API loong_val_t loong_graph_receive(loong_graph_t *graph,
                                          const char *name, loong_dtype_t dtype,
                                          loong_shape_t shape);
LOONG_API void loong_graph_send(loong_graph_t *graph, const char *name,
                                loong_val_t value);

/* A parameter. Asking twice for a name gives the same value (tied weights):
 * its gradients are summed. */
LOONG_API loong_val_t loong_graph_param(loong_graph_t *graph,
                                        const loong_param_params_t *params);

/* Several parameters that lie one after the other in storage, seen as one
 * tensor whose dimension 0 is the sum of theirs (q|k|v, gate|up). The members
 * keep their names. All must have the same type, trailing shape and frozen
 * flag. Values have the shape of the part that the rank holds. */
LOONG_API loong_val_t loong_graph_pack(loong_graph_t *graph, int num_params,
                                       const loong_param_params_t *params);

/* A named tensor that persists between steps, zero at the start; written only
 * by `assign` and `accumulate`. */
LOONG_API loong_val_t loong_graph_state(loong_graph_t *graph, const char *name,
                                        loong_dtype_t dtype,
                                        loong_shape_t shape);

/* Applies an op. `attr` is copied (op->attr_size bytes; may be NULL when that
 * is 0). An absent optional input is LOONG_NONE. out[], an array of its own,
 * receives the op's outputs; those that the shape rule left out are
 * LOONG_NONE. Returns out[0]. */
LOONG_API loong_val_t loong_graph_apply(loong_graph_t *graph,
                                        const loong_op_t *op, const void *attr,
                                        int num_in, const loong_val_t *in,
                                        int num_out, loong_val_t *out);

/* What one row of a loss depends on. Losses of items are equal in all layouts,
 * micro-batchings and packings; others are what the rows of a micro-batch make
 * of each other. A step without a row of a loss of items is not applied. */
typedef enum loong_coupling {
    LOONG_LOSS_OF_ITEM,
    LOONG_LOSS_OF_MICRO_BATCH
} loong_coupling_t;

/* A loss is a port: its value in a step is the sum of its rows over all
 * micro-batches and ranks, over its normaliser, and what is trained is the sum
 * of the values times their weights. Losses of one name and normaliser in
 * several chunks are one loss; the first that a model declares is the one that
 * is logged as "loss". */
typedef struct loong_loss_params {
    const char *name;
    /* A sum over the samples of the step that the data gives: of token data
     * "loss_weight", the sum of that field, and "tokens", their number. */
    const char *normaliser;
    double weight;
    loong_coupling_t coupling;
    uint32_t same; /* ranks that hold the same rows: loong_same_t of op.h */
} loong_loss_params_t;

/* Declares `rows` wide [T] as a loss. The op that makes them scales their
 * gradient by frame.loss_scale[index]: weight over the normaliser. Returns the
 * index. */
LOONG_API int loong_graph_loss(loong_graph_t *graph, loong_val_t rows,
                               const loong_loss_params_t *params);

/* Nodes built from here on are of a part that runs `rounds` times (i32 [1],
 * made before it) in each program: values made and read inside are of one
 * round; what is read outside is added up over the rounds, by ops that can
 * (`accumulates`). Gradients of its nodes form such a part of the backward. */
LOONG_API void loong_graph_repeat_begin(loong_graph_t *graph,
                                        loong_val_t rounds);
/* Nodes built from here on are of this one of such parts, of none with 0;
 * returns what they were of. */
LOONG_API int loong_graph_repeat_set(loong_graph_t *graph, int part);

/* Losses declared so far: the number of the next one. */
LOONG_API int loong_graph_losses(const loong_graph_t *graph);

/* Declares a value the caller wants to read after a run (logits). */
LOONG_API void loong_graph_output(loong_graph_t *graph, const char *name,
                                  loong_val_t value);

LOONG_API loong_dtype_t loong_value_dtype(const loong_graph_t *graph,
                                          loong_val_t value);
LOONG_API loong_shape_t loong_value_shape(const loong_graph_t *graph,
                                          loong_val_t value);

LOONG_API bool loong_value_is_param(const loong_graph_t *graph,
                                    loong_val_t value);

/* The node that makes a value; false for inputs, parameters and states.
 * Borrowed until the graph changes. */
typedef struct loong_producer {
    const loong_op_t *op;
    const void *attr;
    int num_in;
    const loong_val_t *in;
} loong_producer_t;
LOONG_API bool loong_value_producer(const loong_graph_t *graph,
                                    loong_val_t value,
                                    loong_producer_t *producer_p);

#ifdef __cplusplus
}
#endif

#endif
