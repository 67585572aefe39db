/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases of every raw kernel, as test_raw.c draws them. */
#ifndef RAW_CASES_H
#define RAW_CASES_H

#include "op_case.h"

/* A case of an op, of so many rows and columns. */
typedef struct variant {
    int64_t rows, cols;
    loong_dtype_t dtype;
    int bits; /* each op reads them as it likes */
} variant_t;

enum { GAPS = 1, OPTION = 2, SUM = 4, MOST = 64 };

static inline op_arg_t raw_mat(const variant_t *v, int64_t rows, int64_t cols)
{
    op_arg_t a = op_mat(v->dtype, rows, cols);
    a.gap = v->bits & GAPS ? 5 : 0;
    return a;
}

typedef struct raw_case {
    const char *op;
    void (*make)(const variant_t *v, op_case_t *c);
} raw_case_t;

/* Each ends with an op that is NULL. */
extern const raw_case_t raw_cases[], raw_cases_more[], raw_cases_experts[],
    raw_cases_updates[];

#endif
