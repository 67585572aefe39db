/* SPDX-License-Identifier: Apache-2.0
 *
 * One launch of a kernel on guarded memory, for op_case.c. */
#ifndef LOONG_OP_LAUNCH_H
#define LOONG_OP_LAUNCH_H

#include "op_case.h"

/* What untouched memory holds. */
enum { OP_PATTERN = 0xA5 };

typedef struct buffer {
    char *base;
    char *data;
    size_t size;
} buffer_t;

typedef struct launch {
    loong_context_t *ctx;
    const loong_kernel_t *kernel;
    loong_kernel_query_t query;
    loong_frame_t frame;
    void *state;
    buffer_t buffer[LOONG_MAX_OPERANDS];
    buffer_t workspace;
} launch_t;

int64_t op_arg_rows(const op_arg_t *a);
int64_t op_arg_cols(const op_arg_t *a);

/* Value number n of operand i, as its own type holds it: the wide launch gets
 * the same. */
double op_value(const op_case_t *c, int i, int64_t n);

/* A context with the built-in ops and kernels; its end reports leaks. */
loong_context_t *op_context(void);
void op_context_end(loong_context_t **ctx);

/* wide: fp64 in place of the floating types. */
loong_kernel_query_t op_query(const op_case_t *c, bool wide);
/* Fails the test where a kernel refuses without a reason. */
bool op_supports(const loong_kernel_t *kernel, const loong_kernel_query_t *q);

/* Fills the operands and prepares the kernel; launch_end frees both. */
void launch_begin(const op_case_t *c, loong_context_t *ctx,
                  const loong_kernel_t *kernel, bool wide, launch_t *l);
void launch_begin_query(const op_case_t *c, loong_context_t *ctx,
                        const loong_kernel_t *kernel,
                        const loong_kernel_query_t *query, launch_t *l);
loong_status_t launch_run(const op_case_t *c, launch_t *l);
/* Is a row of operand i other than untouched memory? */
bool launch_wrote(const op_case_t *c, const launch_t *l, int i, int64_t row);
/* Fails the test where bytes around, between or behind the rows changed. */
void launch_check_untouched(const op_case_t *c, const launch_t *l);
void launch_end(launch_t *l);

#endif
