/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of mixtures of experts share: checks of the integers that
 * they index with. */
#ifndef LOONG_KERNELS_MOE_H
#define LOONG_KERNELS_MOE_H

#include "base.h"
#include "loong/kernel.h"
#include "loong/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every number of operand i (i32) lies in low .. high. Errors: LOONG_ERR_ARG,
 * naming the op, the place and the number. */
LOONG_NODISCARD loong_status_t
loongi_moe_check(const loong_kernel_call_t *call, int i, int64_t low,
                 int64_t high);

/* Offsets of rows (operand i) begin with 0, do not fall, and end within
 * `rows`. */
LOONG_NODISCARD loong_status_t
loongi_moe_check_offsets(const loong_kernel_call_t *call, int i, int64_t rows);

/* *rows_p: the last offset of operand i, which is 0 .. rows; `rows` where the
 * operand is absent. */
LOONG_NODISCARD loong_status_t
loongi_moe_count_rows(const loong_kernel_call_t *call, int i, int64_t rows,
                      int64_t *rows_p);

/* source (operand 1) and dest (operand 2) of permute and unpermute index into
 * one another. */
LOONG_NODISCARD loong_status_t
loongi_moe_check_rows(const loong_kernel_call_t *call);

#ifdef __cplusplus
}
#endif

#endif
