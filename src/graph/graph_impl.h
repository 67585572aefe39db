/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph's own structures, for the modules that read and rewrite it (graph,
 * pass). Model code sees include/loong/graph.h only.
 *
 * Invariants: the node array is in topological order, forward nodes before
 * backward ones; a dead node has no live consumer; the outputs of a node are
 * consecutive in neither array, only listed by the node.
 */
#ifndef LOONG_GRAPH_IMPL_H
#define LOONG_GRAPH_IMPL_H

#include "base.h"
#include "loong/graph.h"
#include "loong/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The program of a chunk that a node belongs to. */
#define LOONG_PROGRAM_LIST(X)                                                 \
    X(F, "forward")                                                           \
    X(B, "backward") /* gradients that earlier stages wait for */             \
    X(W, "weights")  /* gradients of parameters, when split from B */         \
    X(E, "evaluate") /* forward without gradients */                          \
    X(U, "update")   /* optimizer */

typedef enum loong_program_kind {
#define LOONG_PROGRAM_ENUM(name_, text_) LOONG_PROGRAM_##name_,
    LOONG_PROGRAM_LIST(LOONG_PROGRAM_ENUM)
#undef LOONG_PROGRAM_ENUM
    LOONG_PROGRAM_COUNT
} loong_program_kind_t;

typedef enum loong_value_kind {
    LOONG_VALUE_NODE,  /* made by a node */
    LOONG_VALUE_INPUT, /* index: of the input */
    LOONG_VALUE_PARAM, /* index: first member; members: how many */
    LOONG_VALUE_GRAD,  /* main gradient of the same members */
    LOONG_VALUE_STATE  /* index: of the state */
} loong_value_kind_t;

/* How a write to a state begins a step. */
typedef enum loong_write {
    LOONG_WRITE_OWN,   /* an ordinary value */
    LOONG_WRITE_FIRST, /* overwrite on the first micro-batch, then add */
    LOONG_WRITE_ADD    /* always add */
} loong_write_t;

/* What tensor logging knows of a value; see pass/label.c. */
typedef struct loong_logged {
    const char *label; /* NULL: it is not logged */
    uint32_t same;     /* ranks among which it is equal: loong_same_t */
    uint32_t apart;    /* of an input: ranks of which each has a part */
    int32_t instead;   /* 1 + the value that this one completes; 0: none */
    bool saved;        /* not output 0: logged when it has a gradient */
    bool moved;        /* only moved: between ranks, or in memory */
    bool continues;    /* a part of what the node of its op before it made */
    bool sums;         /* ranks that hold the same have parts of its gradient */
} loong_logged_t;

typedef struct loong_value {
    loong_value_kind_t kind;
    loong_dtype_t dtype;
    loong_shape_t shape;
    int32_t node;    /* producer, or -1 */
    int32_t index;   /* see kind; output number for LOONG_VALUE_NODE */
    int32_t members; /* parameters in the pack */
    /* Storage: this value begins `column` elements into `root`, its rows `ld`
     * elements apart; root == itself for a value with storage of its own. */
    loong_val_t root;
    int64_t column;
    int64_t ld;
    /* A node's output that goes straight into a gradient or state. */
    loong_val_t into;
    loong_write_t write;
    loong_val_t grad; /* of a value that was differentiated, else LOONG_NONE */
    const char *name;
    loong_logged_t logged;
} loong_value_t;

typedef struct loong_node {
    const loong_op_t *op;
    const void *attr;
    int num_in;
    int num_out;
    loong_val_t *in;
    loong_val_t *out;
    const char *scope; /* "layers.3.attn", "" at top */
    loong_program_kind_t program;
    bool dead;
    bool recomputed; /* a clone made by the recompute pass */
    int32_t repeat;  /* the part run in rounds that it is of, from 1; 0: none */
    bool again;      /* runs only where there is more than one round */
    bool logged;     /* runs only in steps whose tensors are logged */
} loong_node_t;

typedef struct loong_param {
    loong_param_params_t params; /* name lives in the graph's arena */
    int32_t value;               /* the value that contains it */
    int32_t first;               /* first member of its pack */
    int64_t row;                 /* of the pack where it begins (dim 0) */
} loong_param_t;

/* An input or a declared output. */
typedef struct loong_input {
    const char *name;
    loong_val_t value;
    bool boundary; /* of the chunk, with a gradient unless it is still */
    bool still;
    bool gradient; /* of a boundary, which crosses it the other way */
    bool edge;     /* from or to another component; its gradient as well */
} loong_input_t;

typedef struct loong_loss {
    loong_loss_params_t params; /* texts live in the graph's arena */
    loong_val_t value;
} loong_loss_t;

/* Recorded routing takes one for each layer with experts. */
enum { LOONG_MAX_INPUTS = 256, LOONG_MAX_OUTPUTS = 256 };

struct loong_graph {
    loong_context_t *ctx;
    loong_arena_t *arena;
    loong_precision_t precision;
    loong_mesh_t mesh;
    loong_status_t status;
    loong_program_kind_t program; /* that new nodes get */
    int32_t repeat;               /* likewise */

    loong_value_t *values;
    int64_t num_values, cap_values;
    loong_node_t *nodes;
    int64_t num_nodes, cap_nodes;
    loong_param_t *params;
    int64_t num_params, cap_params;
    loong_val_t *states;
    int64_t num_states, cap_states;
    loong_val_t *rounds; /* of each part run in rounds */
    int64_t num_repeats, cap_repeats;

    int num_inputs;
    loong_input_t inputs[LOONG_MAX_INPUTS];
    int num_losses;
    loong_loss_t losses[LOONG_MAX_LOSSES];
    int num_outputs;
    loong_input_t outputs[LOONG_MAX_OUTPUTS];

    char scope[LOONG_MAX_SCOPE]; /* current path */
    const char *scope_copy;      /* its copy in the arena, NULL: stale */
};

static inline loong_value_t *loongi_value(const loong_graph_t *g,
                                          loong_val_t v)
{
    return &g->values[v];
}

static inline loong_node_t *loongi_producer(const loong_graph_t *g,
                                            loong_val_t v)
{
    int32_t node = g->values[v].node;
    return node < 0 ? NULL : &g->nodes[node];
}

/* Elements (bound) and bytes of a value seen alone, dense. */
int64_t loongi_shape_elements(const loong_shape_t *shape);
size_t loongi_value_bytes(const loong_graph_t *g, loong_val_t v);
bool loongi_shape_equal(const loong_shape_t *a, const loong_shape_t *b);

/* The shape of the part that the rank holds. */
loong_shape_t loongi_param_shape(const loong_param_params_t *params);

/* Adds a value of the given kind; LOONG_NONE on error. */
loong_val_t loongi_graph_add_value(loong_graph_t *g, loong_value_kind_t kind,
                                   loong_dtype_t dtype,
                                   const loong_shape_t *shape);

/* Checks the operands of an op and runs its shape rule; out[] is all absent at
 * entry. */
LOONG_NODISCARD loong_status_t
loongi_graph_infer(loong_graph_t *g, const loong_op_t *op, const void *attr,
                   int num_in, const loong_val_t *in,
                   loong_tensor_type_t *out);

/* Appends a node whose operands are there already. */
LOONG_NODISCARD loong_status_t
loongi_graph_append_node(loong_graph_t *g, const loong_node_t *node);

/* New nodes get program, scope and rounds of `node`; NULL: those of builders
 * again. */
void loongi_graph_like(loong_graph_t *g, const loong_node_t *node);

/* Says of the output of a view where in the storage of its input it is. A
 * reshape takes its input to be without gaps (pass `dense` sees to it). */
void loongi_graph_make_view(loong_graph_t *g, const loong_node_t *node);

/* True when rows of v do not follow one another without gaps. */
bool loongi_value_has_gaps(const loong_graph_t *g, loong_val_t v);

/* No gradient crosses an edge. */
void loongi_graph_stop_gradient(loong_graph_t *graph, const char *edge);

/* Differentiates the declared losses and boundary outputs with respect to
 * every parameter that is not frozen and to the boundary inputs: appends nodes
 * of program B and `accumulate` nodes that write main gradients. */
LOONG_NODISCARD loong_status_t loongi_graph_differentiate(loong_graph_t *g);

/* The main gradient of the pack that holds parameter `first`. */
loong_val_t loongi_graph_grad_value(loong_graph_t *g, loong_val_t param);

/* Number of live nodes that read v (declared outputs and losses count). */
LOONG_NODISCARD loong_status_t loongi_graph_count_uses(const loong_graph_t *g,
                                                       int32_t **uses_p);

/* Marks nodes dead whose outputs nobody reads and that write no state. */
LOONG_NODISCARD loong_status_t loongi_graph_remove_dead(loong_graph_t *g);

const char *loongi_program_name(loong_program_kind_t kind);

#ifdef __cplusplus
}
#endif

#endif
