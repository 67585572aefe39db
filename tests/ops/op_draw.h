/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases that are drawn: each op test has some beside those it names. Env
 * OP_SEED (1) is the seed of the first, one more that of the next; env OP_CASES
 * says how many each test draws. Each case tells its seed before it begins. */
#ifndef LOONG_OP_DRAW_H
#define LOONG_OP_DRAW_H

#include "op_case.h"

typedef struct op_draw {
    uint64_t seed;  /* of the case, also for its values */
    uint64_t drawn; /* numbers of the case */
    int left;
} op_draw_t;

/* everyday: cases where OP_CASES says nothing. */
op_draw_t op_draw_begin(int everyday);
/* The next case; false behind the last one. */
bool op_draw_next(op_draw_t *d);

/* 0 .. n - 1, all alike. */
int op_draw_below(op_draw_t *d, int n);
/* 1 .. most: one, a power of two or its neighbours, or any. */
int64_t op_draw_size(op_draw_t *d, int64_t most);
/* fp32 or bf16. */
loong_dtype_t op_draw_dtype(op_draw_t *d);
/* Elements between rows: none, some, or so many that rows do not begin at
 * multiples of 16 bytes. */
int64_t op_draw_gap(op_draw_t *d);

#endif
