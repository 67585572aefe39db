/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as steps of programs. The operand is a flat range, in place. */
#ifndef LOONG_COLLECTIVE_H
#define LOONG_COLLECTIVE_H

#include "loong/comm.h"
#include "loong/op.h"

typedef struct loong_collective_attr {
    loong_comm_t *comm;
    const int64_t *counts; /* pieces per rank; all_reduce: NULL */
    const char *label;
} loong_collective_attr_t;

#endif
