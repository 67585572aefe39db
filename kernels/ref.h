/* SPDX-License-Identifier: Apache-2.0
 *
 * What reference kernels share. They read any floating type, compute in
 * double, and write with one rounding: slow, plain, and the measure of all
 * other kernels. */
#ifndef LOONG_KERNELS_REF_H
#define LOONG_KERNELS_REF_H

#include <math.h>
#include <string.h>

#include "base.h"
#include "convert.h"
#include "loong/kernel.h"
#include "loong/ops.h"

static inline double ref_get(const void *p, loong_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case LOONG_F64:
        return ((const double *)p)[i];
    case LOONG_F32:
        return (double)((const float *)p)[i];
    default:
        return (double)loongi_bf16_to_f32(((const uint16_t *)p)[i]);
    }
}

static inline void ref_set(void *p, loong_dtype_t dtype, int64_t i, double v)
{
    switch (dtype) {
    case LOONG_F64:
        ((double *)p)[i] = v;
        break;
    case LOONG_F32:
        ((float *)p)[i] = (float)v;
        break;
    default:
        ((uint16_t *)p)[i] = loongi_f64_to_bf16(v);
    }
}

/* Operand a of a call, as a matrix. */
typedef struct ref_mat {
    void *p;
    loong_dtype_t dtype;
    int64_t rows;
    int64_t cols;
    int64_t ld;
} ref_mat_t;

static inline ref_mat_t ref_arg(const loong_kernel_call_t *call, int a)
{
    const loong_karg_t *arg = &call->query->arg[a];
    ref_mat_t m;
    m.p = call->ptr[a];
    m.dtype = arg->dtype;
    m.rows = loong_karg_rows(arg);
    m.cols = loong_karg_cols(arg);
    m.ld = arg->ld;
    return m;
}

static inline ref_mat_t ref_out(const loong_kernel_call_t *call, int o)
{
    return ref_arg(call, call->query->num_in + o);
}

static inline double ref_at(const ref_mat_t *m, int64_t row, int64_t col)
{
    return ref_get(m->p, m->dtype, row * m->ld + col);
}

static inline void ref_put(const ref_mat_t *m, int64_t row, int64_t col,
                           double v)
{
    ref_set(m->p, m->dtype, row * m->ld + col, v);
}

/* Writes, or adds when the call says so for output o. */
static inline void ref_add(const loong_kernel_call_t *call, int o,
                           const ref_mat_t *m, int64_t row, int64_t col,
                           double v)
{
    if (call->accumulate & (1u << o)) {
        v += ref_at(m, row, col);
    }
    ref_put(m, row, col, v);
}

static inline const int32_t *ref_i32(const loong_kernel_call_t *call, int a)
{
    return (const int32_t *)call->ptr[a];
}

static inline bool ref_absent(const loong_kernel_call_t *call, int a)
{
    return a >= call->query->num_in + call->query->num_out ||
           call->ptr[a] == NULL;
}

/* The reference kernel of an op on the processor. */
#define REF_KERNEL(op_, workspace_, run_)       \
    const loong_kernel_t loongi_##op_##_ref = { \
        .name = #op_ "_ref",                    \
        .op = #op_,                             \
        .device = "cpu",                        \
        .workspace = workspace_,                \
        .run = run_,                            \
    }

#endif
