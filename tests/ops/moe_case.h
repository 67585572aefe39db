/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of the ops of mixtures of experts share. */
#ifndef LOONG_MOE_CASE_H
#define LOONG_MOE_CASE_H

#include "op_case.h"
#include "op_device.h"

static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};

static inline op_arg_t integers(int64_t rows, int64_t cols,
                                const int32_t *values)
{
    op_arg_t arg = op_mat(LOONG_I32, rows, cols);
    arg.values = values;
    if (cols == 0) {
        arg = op_vec(LOONG_I32, rows);
        arg.values = values;
    }
    return arg;
}

static inline void expect(int kernels, const op_case_t *c, loong_dtype_t dtype)
{
    if (dtype != LOONG_F64 && kernels < 1) {
        fail_msg("%s: only the reference supports %s", c->op,
                 loong_dtype_name(dtype));
    }
}

static inline int32_t *whole_numbers(double *from, int64_t n)
{
    int32_t *to = malloc(sizeof(*to) * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        to[i] = (int32_t)from[i];
    }
    free(from);
    return to;
}

#endif
