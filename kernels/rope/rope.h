/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a table of rotary embedding. */
#ifndef LOONG_KERNELS_ROPE_H
#define LOONG_KERNELS_ROPE_H

#include "loong/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of pair i, in radians for each position. */
double loongi_rope_frequency(const loong_rope_table_attr_t *attr, int i);

/* The axis of positions that pair i turns by. */
int loongi_rope_axis(const loong_rope_table_attr_t *attr, int i);

/* Of cosines and sines. */
double loongi_rope_factor(const loong_rope_table_attr_t *attr);

#ifdef __cplusplus
}
#endif

#endif
