/* SPDX-License-Identifier: Apache-2.0
 *
 * What a measurement computes with. */
#ifndef LOONG_FILL_H
#define LOONG_FILL_H

#include "base.h"
#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers that stand in an operand again and again: odd, so that its rows
 * differ. */
enum { LOONG_FILL_COUNT = 8191, LOONG_FILL_BYTES = LOONG_FILL_COUNT * 8 };

/* LOONG_FILL_COUNT normal numbers of fp64, fp32 or bf16: operands whose bits
 * never change take less power of a device than those of a training, and its
 * clocks are others. */
void loongi_fill_normal(loong_dtype_t dtype, void *values);

#ifdef __cplusplus
}
#endif

#endif
