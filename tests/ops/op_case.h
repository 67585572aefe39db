/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch of an op, described once: every registered kernel that supports
 * it is compared with the reference kernel in fp64 on the same values. Checked
 * on the way: bytes outside the operands and the workspace stay untouched, a
 * second launch gives the same bits, a launch allocates nothing.
 */
#ifndef LOONG_OP_CASE_H
#define LOONG_OP_CASE_H

#include "loong/kernel.h"
#include "loong/ops.h"
#include "test.h"

typedef struct op_arg {
    loong_dtype_t dtype;
    int rank; /* 0: absent */
    int64_t dim[LOONG_MAX_DIMS];
    int64_t gap;               /* elements between rows that are not its own */
    double scale;              /* normal values of this deviation; 0: 1 */
    const void *values;        /* instead: copied (dense, of dtype) */
    const double *wide_values; /* instead: rounded to dtype */
    int stream; /* of the normal values; 0: the operand's number + 1 */
    int within; /* its rows begin as those of operand within - 1; 0: own ones */
    int64_t spare; /* rows behind the last: NaN where they are read, and left as
                      they are where others are written */
    double step; /* normal values are multiples of it, at most 64: bf16 holds
                    the sum of two. 0: they are any */
} op_arg_t;

/* The L2 error may be `roundings` times the rounding unit of the storage type
 * plus sqrt(terms) times that of fp32; single elements 16 times that, relative
 * to themselves plus the root mean square. `roundings` counts how often values
 * on the way are rounded to the storage type, `terms` is the longest sum. Where
 * what is rounded may cancel, it is relative to that: `cancels` is the number,
 * from 1, of the operand whose elements bound it, each one of the output's. */
typedef struct op_bound {
    int roundings;
    int64_t terms;
    int cancels;
} op_bound_t;

typedef struct op_case {
    const char *op;
    const void *attr;
    int num_in;
    int num_out;
    op_arg_t arg[LOONG_MAX_OPERANDS];
    uint32_t accumulate; /* outputs that are added to */
    uint32_t compare;    /* outputs that are compared; 0: all */
    int threads;         /* 0: 2 */
    loong_frame_t frame;
    op_bound_t bound;
    uint64_t seed; /* of normal values; 0: 17 */
    int64_t round; /* of a part that runs in rounds */
    loong_attention_backend_t attention;
} op_case_t;

static inline op_arg_t op_mat(loong_dtype_t dtype, int64_t rows, int64_t cols)
{
    op_arg_t arg = {.dtype = dtype, .rank = 2, .dim = {rows, cols}};
    return arg;
}

static inline op_arg_t op_vec(loong_dtype_t dtype, int64_t size)
{
    op_arg_t arg = {.dtype = dtype, .rank = 1, .dim = {size}};
    return arg;
}

/* Returns how many kernels besides the reference took part. */
int op_case_reference(const op_case_t *c);

/* Every kernel that supports the case gives the same bits with 1, 2 and 3
 * threads. */
void op_case_threads(const op_case_t *c);

/* How many rows of output `o` the kernel that would be chosen writes. */
int64_t op_case_written(const op_case_t *c, int o);

/* Name of the kernel that would be chosen. */
const char *op_case_chosen(const op_case_t *c);

/* Launches kernel `name` (NULL: the one that would be chosen): the status and,
 * in text, the error trail. For tests of refused operands. */
loong_status_t op_case_status(const op_case_t *c, const char *name,
                              char text[512]);

/* What that kernel makes of the case, as dense doubles (caller frees). */
void op_case_outputs(const op_case_t *c, const char *name,
                     double *out[LOONG_MAX_OPERANDS]);

/* Finite differences, in fp64: `forward` is launched with its reference
 * kernel, input `i` (of fp64, with wide_values) moved up and down, element by
 * element (every `stride`-th), and
 *
 *     sum over outputs o < num_weights of  weights[o] . output o
 *
 * is differenced; weights[o] NULL: not counted. Compared with grad[] (as long
 * as the input), relative to its root mean square, by `bound`. */
typedef struct op_difference {
    const op_case_t *forward;
    int input;
    int64_t stride;
    int num_weights;
    const double *weights[LOONG_MAX_OPERANDS];
    const double *grad;
    double bound;
} op_difference_t;
void op_case_differences(const op_difference_t *d);

/* Normal numbers, caller frees. */
double *op_normal(int64_t count, int stream, double deviation);

#endif
