/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer over flat buffers: who owns which rows, the collectives that
 * bring gradients together inside the backward, the update program.
 *
 * A bucket is a range of whole packs of one flat buffer. Its reduction is a
 * step of the backward, right after its last gradient, on the last
 * micro-batch. With ZeRO-1 (Rajbhandari et al. 2020) each rank owns a part of
 * every bucket, cut between rows, so that a part is made of rectangles of
 * global tensors; without sharding every rank owns all, and the same parts
 * serve to share the work of the norm. Both give the same bits.
 */
#ifndef LOONG_OPTIMIZER_H
#define LOONG_OPTIMIZER_H

#include "executor.h"
#include "loong/comm.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_optimizer_params {
    const char *device;
    int threads;
    double beta1;
    double beta2;
    double eps;
    double weight_decay; /* of parameters that are subject to it */
    bool shard;          /* ZeRO-1 */
    int64_t bucket_bytes; /* of main gradients; about */
} loong_optimizer_params_t;

/* A part of a bucket that this rank updates. */
typedef struct loong_bucket {
    int flat;
    int64_t begin; /* elements of the flat buffer */
    int64_t end;
    int64_t *counts; /* per rank: elements of its part, in rank order */
    int64_t own_begin;
    int64_t own_end;
    int64_t update_begin; /* what adamw covers: the part, or the bucket */
    int64_t update_end;
    int64_t exp_avg;    /* byte offsets in OPTIM of update_begin */
    int64_t exp_avg_sq;
    int64_t low; /* -1: none */
} loong_bucket_t;

typedef struct loong_optimizer {
    loong_context_t *ctx;
    loong_arena_t *arena;
    int size; /* ranks that sum gradients, and this one's place */
    int rank;
    int64_t num_buckets;
    loong_bucket_t *buckets;
    int64_t optim_bytes;
    int64_t record_offset; /* of the norm's exact accumulator in OPTIM */
    loong_program_t norm;  /* sums of squares of this rank's parts */
    loong_program_t update;
    /* Reductions that wait until all stages are through: of what both ends of
     * a pipeline hold. */
    loong_program_t late;
    loong_program_t gather; /* parameters, with sharding */
} loong_optimizer_t;

/* Plans buckets and programs for a chunk, and inserts the reductions into its
 * backward. Pure. */
LOONG_NODISCARD loong_status_t
loongi_optimizer_create(loong_context_t *ctx, loong_chunk_t *chunk,
                        const loong_mesh_t *mesh,
                        const loong_optimizer_params_t *params,
                        loong_optimizer_t **optimizer_p);
void loongi_optimizer_destroy(loong_optimizer_t **optimizer_p);

/* Derives the low halves of bf16 parameters' masters from fp32 values, and
 * the parameters themselves: values[0 .. count) begin at element `at` of the
 * flat buffer; the part outside this rank's update range sets the parameter
 * only. */
void loongi_optimizer_set_master(const loong_optimizer_t *optimizer,
                                 const loong_chunk_t *chunk,
                                 char *const base[LOONG_BASE_COUNT], int flat,
                                 int64_t at, int64_t count,
                                 const double *values);

#ifdef __cplusplus
}
#endif

#endif
