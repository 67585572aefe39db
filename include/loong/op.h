/* SPDX-License-Identifier: Apache-2.0
 *
 * What an op is: argument checks and shape rule, gradient rule, cost. One file
 * of src/op each; the mathematics stands in kernels/<op>/. A user's own op
 * fills the same struct (loong_register_op).
 */
#ifndef LOONG_OP_H
#define LOONG_OP_H

#include "loong/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Type and shape of one operand. */
typedef struct loong_tensor_type {
    loong_dtype_t dtype;
    loong_shape_t shape; /* rank 0: absent */
} loong_tensor_type_t;

/* Groups of ranks that may hold equal values. */
typedef enum loong_same {
    LOONG_SAME_TP = 1,  /* tensor parallel ranks */
    LOONG_SAME_KV = 2,  /* those that share a key head; with TP all of them */
    LOONG_SAME_CP = 4,  /* context parallel ranks */
    LOONG_SAME_ETP = 8, /* those that share an expert */
    LOONG_SAME_EP = 16, /* expert parallel ranks */
    LOONG_SAME_ALL = 31
} loong_same_t;

/* What infer sees and fills. */
typedef struct loong_op_call {
    loong_context_t *ctx;
    const char *op;
    loong_precision_t precision;
    const void *attr;
    int num_in;
    int num_out;
    const loong_tensor_type_t *in; /* absent inputs have rank 0 */
    loong_tensor_type_t *out;      /* all absent at entry */
} loong_op_call_t;

/* What grad sees: the node's operands and the gradients of its outputs. */
typedef struct loong_grad_call {
    loong_graph_t *graph;
    const void *attr;
    int num_in;
    int num_out;
    const loong_val_t *in;
    const loong_val_t *out;
    const loong_val_t *out_grad; /* LOONG_NONE: no gradient arrives */
    const bool *wanted;          /* per input: its gradient is needed */
    loong_val_t *in_grad;        /* all LOONG_NONE at entry */
} loong_grad_call_t;

typedef struct loong_cost {
    double flops;
    double bytes; /* moved to and from memory when nothing stays in a cache */
} loong_cost_t;

struct loong_op {
    const char *name;
    size_t attr_size;
    int min_in;
    int max_in;
    int num_out;
    /* Bit o: kernels can add to output o in place of overwriting it, so that
     * a gradient can be accumulated without a pass of its own. */
    uint32_t accumulates;
    /* Kernels take row-strided inputs / outputs (views of wider tensors);
     * otherwise a copy is made. */
    bool strided_in;
    bool strided_out;
    /* Output 0 is a view of input 0, no kernel runs (reshape, slice); it
     * begins view_column(attr) columns further on (NULL: 0). */
    bool view;
    int64_t (*view_column)(const void *attr);
    /* Inputs are written side by side into output 0 (concat): the producers
     * of the inputs may write there themselves, and then no kernel runs. */
    bool assembles;
    /* Bit o: output o may share the storage of input `overwrites` when that
     * dies here. */
    uint32_t in_place;
    int overwrites;
    /* The input whose last integer says how many rows output 0 has, where there
     * is one: the rows behind them are not written. 0: none. */
    int counted_by;
    /* Bit o: output o is left out (NULL for the kernel) when nobody reads it.
     * Other outputs always have storage. */
    uint32_t optional_out;
    /* Checks arguments (message: op, what was found, what is allowed) and
     * fills out[]. */
    loong_status_t (*infer)(const loong_op_call_t *call);
    /* Emits gradient nodes. NULL: the op has no gradient, and wanting one is
     * an error that names the op. */
    loong_status_t (*grad)(const loong_grad_call_t *call);
    /* Given n values made by n nodes of this op that are to be summed (their
     * gradients meet): emits a cheaper equal of the sum, or returns
     * LOONG_NONE. NULL: the values are added. */
    loong_val_t (*sum)(loong_graph_t *graph, int n, const loong_val_t *in);
    /* The ranks among which output o is equal, as bits of loong_same_t, given
     * those among which all inputs are. NULL: the same. */
    uint32_t (*same)(const void *attr, int o, uint32_t in);
    /* The group whose ranks a kernel that communicates calls. NULL: kernels of
     * this op may not communicate. */
    loong_group_t (*group)(const void *attr);
    /* Fills operand i, of integers, with what an ordinary launch would find
     * there, for kernels that are timed. NULL: any numbers will do. */
    void (*example)(const loong_kernel_query_t *query, int i, void *data);
    /* NULL: bytes of all operands, no flops. */
    void (*cost)(const loong_kernel_query_t *query, loong_cost_t *cost);
};

/* Of a gradient rule that has added up all that goes into a value: what it made
 * is the whole gradient. */
LOONG_API void loong_value_set_grad(loong_graph_t *g, loong_val_t v,
                                    loong_val_t grad);

/* What a builder tells tensor logging, which else goes by ops and scopes. Each
 * returns v; LOONG_NONE is accepted. Moved: v holds what was there before. */
LOONG_API loong_val_t loong_value_moved(loong_graph_t *g, loong_val_t v);
/* v is the whole of which `part` is this rank's, or is what becomes of it. */
LOONG_API loong_val_t loong_value_instead(loong_graph_t *g, loong_val_t v,
                                          loong_val_t part);
/* v is a part of what the node of its op before it made. */
LOONG_API loong_val_t loong_value_continues(loong_graph_t *g, loong_val_t v);
/* Of the input v the ranks of a group have a part each. */
LOONG_API loong_val_t loong_value_apart(loong_graph_t *g, loong_val_t v,
                                        loong_group_t group);
/* The ranks of a group, as bits of loong_same_t. */
LOONG_API uint32_t loong_same_group(loong_group_t group);

#ifdef __cplusplus
}
#endif

#endif
