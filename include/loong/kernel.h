/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel is: a function over raw pointers, sizes and a frame. Kernels
 * know no graph and no policy. For each op a device has an ordered list of
 * kernels, best first, the reference last; the first one that accepts a query
 * is chosen when the program is compiled, and its refusals are kept for
 * --explain. Readable next: op.h (ops that kernels implement).
 */
#ifndef LOONG_KERNEL_H
#define LOONG_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/comm.h"
#include "loong/dtype.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LOONG_MAX_DIMS = 4,
    LOONG_MAX_OPERANDS = 16, /* inputs and outputs of one op together */
    LOONG_MAX_LOSSES = 8,    /* losses of one chunk */
    LOONG_MAX_OPT_GROUPS = 16,
    LOONG_REASON_SIZE = 160
};

/* Everything that changes between two runs of one program. The host writes
 * it before the entry runs; kernels only read it. */
typedef struct loong_frame {
    int64_t step;        /* of the training, 0-based */
    int64_t updates;     /* applied to the optimizer's moments before this */
    int64_t micro_batch; /* of this rank, in this step, 0-based */
    uint64_t seed;       /* of the run */
    int32_t first;       /* 1 on the first micro-batch of the step */
    int32_t last;        /* 1 on the last micro-batch of the step */
    int32_t hollow;      /* 1: it has no rows, nothing of it is computed */
    double loss_scale[LOONG_MAX_LOSSES]; /* weight / normaliser of each loss */
    double grad_scale; /* multiplies gradients in the optimizer (clipping) */
    double lr[LOONG_MAX_OPT_GROUPS]; /* learning rate of each group */
    int32_t log_tensors; /* 1 in a step whose tensors are logged */
} loong_frame_t;

/* What a kernel of a device found wrong in its operands: the first finding
 * until the host synchronises, which then fails. Kernels of a CPU return their
 * status themselves. */
typedef enum loong_device_error_kind {
    LOONG_DEVICE_ERROR_NONE,
    LOONG_DEVICE_ERROR_ID,          /* of a token, outside of 0 .. end - 1 */
    LOONG_DEVICE_ERROR_LABEL,       /* of a token, likewise */
    LOONG_DEVICE_ERROR_SEGMENT,     /* cu_seqlens[place]; `end` rows at most */
    LOONG_DEVICE_ERROR_SEGMENT_END, /* the last of cu_seqlens, not `end` */
    LOONG_DEVICE_ERROR_ROW,         /* rows[place] of queries, up to end - 1 */
    LOONG_DEVICE_ERROR_KEY_ROW,     /* likewise of keys */
    LOONG_DEVICE_ERROR_KEY_END,     /* key_ends[place], up to end */
    LOONG_DEVICE_ERROR_INDEX,  /* of an operand, not in before .. end - 1 */
    LOONG_DEVICE_ERROR_EXPERT, /* of token `place`, not in -1 .. end - 1 */
    LOONG_DEVICE_ERROR_EXPERT_TWICE, /* by token `place` */
    LOONG_DEVICE_ERROR_EXPERT_ROOM,  /* rows of experts place .. before, over
                                        `end` */
    LOONG_DEVICE_ERROR_OFFSET, /* falls below `before`, or exceeds `end` */
    LOONG_DEVICE_ERROR_COUNTS  /* their sum is `value`, `end` where they were
                                  copied */
} loong_device_error_kind_t;
typedef struct loong_device_error {
    int32_t kind; /* loong_device_error_kind_t */
    int32_t operand;
    int64_t value;
    int64_t place; /* the token */
    int64_t before; /* the value in front of it, where values ascend */
    int64_t end;
    const char *op; /* the host's; NULL: not told */
} loong_device_error_t;

/* One operand. The tensor is seen as rows of dim[rank - 1] elements that are
 * contiguous, `ld` elements apart. */
typedef struct loong_karg {
    loong_dtype_t dtype;
    int rank;    /* 0 and dtype 0: the operand is absent, its pointer NULL */
    int64_t dim[LOONG_MAX_DIMS];
    int64_t ld;  /* elements from one row to the next, >= dim[rank - 1] */
} loong_karg_t;

typedef enum loong_attention_backend {
    LOONG_ATTENTION_LOCAL, /* the library's own kernels */
    LOONG_ATTENTION_FUSED, /* those of a library of the device alone */
    LOONG_ATTENTION_AUTO   /* the same; own ones for what it refuses */
} loong_attention_backend_t;

/* How kernels are made where a device leaves a choice. */
typedef struct loong_kernel_policy {
    bool tf32;  /* products of fp32 round their operands to it */
    bool fixed; /* the file may not be written: nothing is measured */
    /* File of algorithms that were measured; NULL: none is measured, the
     * library's first choice is taken. Borrowed, until kernels are prepared. */
    const char *algorithms;
    loong_attention_backend_t attention;
} loong_kernel_policy_t;

/* What a kernel is asked for at compile time. arg[] holds the inputs, then
 * the outputs. */
typedef struct loong_kernel_query {
    const char *op;
    const void *attr; /* the op's attribute struct */
    int num_in;
    int num_out;
    int threads;         /* of the rank's team */
    uint32_t accumulate; /* bit o: output o may be added to at run time */
    loong_karg_t arg[LOONG_MAX_OPERANDS];
    loong_kernel_policy_t policy;
} loong_kernel_query_t;

typedef struct loong_device loong_device_t;

/* One launch. ptr[] matches query->arg[]; an absent operand is NULL. */
typedef struct loong_kernel_call {
    loong_context_t *ctx;
    const loong_kernel_query_t *query;
    void *state; /* what prepare made, or NULL */
    const loong_frame_t *frame; /* NULL: a graph is captured, see `waits` */
    void *const *ptr;
    void *workspace; /* query_workspace bytes, 256-byte aligned, undefined */
    void *stream;    /* of the device; NULL on a CPU */
    uint32_t accumulate; /* bit o: add to output o, else overwrite it */
    int64_t round; /* of a part that runs in rounds, from 0 */
    loong_comm_t *const *group; /* by loong_group_t; NULL on one rank */
    /* NULL on a CPU; elsewhere kernels read and write these in place of
     * `frame` and of a returned status. */
    const loong_frame_t *device_frame; /* a copy in the device's memory */
    loong_device_error_t *error;       /* of the device */
    loong_device_t *device; /* NULL: the processor, with the host's memory */
    /* Of a device: what launches need is loaded, and nothing is launched but
     * products of libraries and copies, on whatever the operands hold; no other
     * rank is called. */
    bool load;
} loong_kernel_call_t;

/* A kernel. All functions are not collective. */
typedef struct loong_kernel {
    const char *name;   /* "linear_onednn" */
    const char *op;     /* name of the op it implements */
    const char *device; /* the name of its kind; NULL: whatever there is */
    /* Accepts (true) or refuses; a refusal writes why. NULL: accepts all. */
    bool (*support)(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE]);
    /* Bytes of workspace one launch needs. NULL: none. */
    size_t (*workspace)(const loong_kernel_query_t *query);
    /* Makes what the launches of this query share (library primitives,
     * tables). The query outlives the state. NULL: no state. */
    loong_status_t (*prepare)(loong_context_t *ctx,
                              const loong_kernel_query_t *query,
                              void **state_p);
    void (*destroy)(loong_context_t *ctx, void *state);
    /* Launches. Allocates nothing of ours. */
    loong_status_t (*run)(const loong_kernel_call_t *call);
    bool communicates; /* needs the other ranks of a group, and only moves data
                          or sums it: may run beside computation */
    bool joins; /* computes, and needs the other ranks in between */
    /* Of a device: its host side waits for the device, so that it is no part of
     * a graph. What changes from run to run is read on the device, in
     * device_frame. */
    bool waits;
    /* Bytes that one launch reads and writes beyond what the op is said to:
     * what it keeps between passes of its own. NULL: none. */
    double (*more_bytes)(const loong_kernel_query_t *query);
} loong_kernel_t;

/* Rows of operand a: product of all dimensions but the last. A scalar or vector
 * of rank 1 is one row. */
static inline int64_t loong_karg_rows(const loong_karg_t *arg)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < arg->rank; i++) {
        rows *= arg->dim[i];
    }
    return rows;
}

/* Elements of one row. */
static inline int64_t loong_karg_cols(const loong_karg_t *arg)
{
    return arg->rank > 0 ? arg->dim[arg->rank - 1] : 0;
}

/* True when the operand's rows follow one another without gaps. */
static inline bool loong_karg_dense(const loong_karg_t *arg)
{
    return arg->rank < 2 || arg->ld == arg->dim[arg->rank - 1];
}

#ifdef __cplusplus
}
#endif

#endif
