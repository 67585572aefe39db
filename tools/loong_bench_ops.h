/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops that loong-bench op times, and what each is launched on. */
#ifndef LOONG_BENCH_OPS_H
#define LOONG_BENCH_OPS_H

#include "loong_bench.h"

typedef struct bench_request {
    const char *op; /* a name of the list below */
    loong_dtype_t dtype;
    int64_t shape[BENCH_SHAPE];
    int num_shape;
    int threads;
} bench_request_t;

typedef struct bench_op_kind {
    const char *name;
    const char *shape; /* its sizes by name, and how many they are */
    int num_shape;
    const char *usual; /* shape when none is given */
    loong_status_t (*describe)(loong_context_t *ctx, const bench_request_t *r,
                               bench_item_t *item);
} bench_op_kind_t;

/* Number i, NULL behind the last one. */
const bench_op_kind_t *bench_op_kind(int i);

#endif
