/* SPDX-License-Identifier: Apache-2.0
 *
 * What data-parallel ranks share out (ZeRO, Rajbhandari et al. 2020): who
 * keeps which rows, and the collectives that this puts into programs.
 *
 * Experts are shared among the ranks that hold the same ones (group EDP), all
 * else among data and context parallel ranks.
 *
 * A bucket is a range of whole packs of one flat buffer. Each rank owns a part
 * of every bucket, cut between rows, so that a part is made of rectangles of
 * global tensors. Without sharding every rank has all, and the same parts
 * serve to share the work of the norm.
 *
 *   optim    gradients of a bucket are summed behind the last of them, on the
 *            last micro-batch
 *   grads    a bucket's gradients live in COMM from the first to the last of
 *            a micro-batch, are summed there, and each rank adds its part to
 *            its main gradient
 *   params   as well, and a bucket's parameters live in COMM where programs
 *            read them: gathered one bucket ahead of their use
 */
#ifndef LOONG_SHARDS_H
#define LOONG_SHARDS_H

#include "loong/mesh.h"
#include "optimizer_class.h"
#include "program.h"
#include "upload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each level shares out what the ones before do. X(name, text) */
#define LOONG_SHARDING_LIST(X)                                                \
    X(NONE, "none")                                                           \
    X(OPTIM, "optim") /* moments and masters: ZeRO-1 */                       \
    X(GRADS, "optim_grads")         /* main gradients: ZeRO-2 */              \
    X(PARAMS, "optim_grads_params") /* parameters: ZeRO-3 */

typedef enum loong_sharding {
#define LOONG_SHARDING_ENUM(name_, text_) LOONG_SHARDING_##name_,
    LOONG_SHARDING_LIST(LOONG_SHARDING_ENUM)
#undef LOONG_SHARDING_ENUM
    LOONG_SHARDING_COUNT
} loong_sharding_t;

/* What a recipe calls it. */
const char *loongi_sharding_name(loong_sharding_t sharding);

typedef struct loong_shards_params {
    const char *device;
    int threads;
    loong_kernel_policy_t policy;
    loong_sharding_t sharding;
    int64_t bucket_bytes; /* of main gradients; about */
    /* Data-parallel ranks send gradients rounded to bf16; they are summed in
     * fp32 and rounded once more. */
    bool reduce_bf16;
    bool lanes; /* sums are to run beside computation */
    /* Micro-batches may have no rows: then gradients are zero, and nothing but
     * what is put in runs. */
    bool hollow;
    bool matrix[LOONG_MAX_OPT_GROUPS]; /* groups whose matrices stay whole */
} loong_shards_params_t;

typedef struct loong_bucket {
    int flat;
    loong_group_t group; /* that shares it: DP_CP, of experts EDP */
    int size;            /* of the group, and this rank's place in it */
    int rank;
    int64_t begin; /* elements of the flat buffer */
    int64_t end;
    int64_t *counts; /* per rank: elements of its part, in rank order */
    int64_t own_begin; /* this rank's part */
    int64_t own_end;
    int64_t update_begin; /* what it updates: the part, or the bucket */
    int64_t update_end;
    int64_t grad_begin; /* what of the main gradient it has */
    int64_t grad_end;
    int64_t param_begin; /* what of the parameters it has */
    int64_t param_end;
    int64_t grad;  /* byte offset in GRAD of grad_begin; -1: frozen */
    int64_t param; /* byte offset in PARAM of param_begin */
    /* Set by the optimizer: byte offsets in OPTIM of update_begin. */
    int64_t state[LOONG_MAX_STATES]; /* in the order of the class */
    int64_t low; /* -1: none */
    int64_t ema; /* wide average of the parameters; -1: none */
} loong_bucket_t;

typedef struct loong_shards {
    loong_context_t *ctx;
    loong_arena_t *arena;
    loong_shards_params_t params; /* sharding: no more than is of use */
    loong_dtype_t wide;
    loong_mesh_t mesh;
    int num_flats;
    loong_flat_t flats[LOONG_MAX_FLATS]; /* of the whole chunk */
    int64_t num_buckets; /* of what is trained; with `params` of all */
    loong_bucket_t *buckets;
    int64_t param_bytes; /* of PARAM and GRAD on this rank */
    int64_t grad_bytes;
} loong_shards_t;

/* Plans for the parameters of a chunk that nothing was placed in yet; in one
 * that trains, by its gradients too. Pure. */
LOONG_NODISCARD loong_status_t loongi_shards_create(
    const loong_model_chunk_t *chunk, const loong_mesh_t *mesh,
    const loong_shards_params_t *params, loong_shards_t **shards_p);
void loongi_shards_destroy(loong_shards_t **shards_p);

/* Puts the collectives into the programs of a chunk with these parameters, and
 * moves its operands to where the shards are. Pure. */
LOONG_NODISCARD loong_status_t loongi_shards_place(const loong_shards_t *shards,
                                                   loong_model_chunk_t *chunk);

/* The bucket of an element; NULL: of a frozen flat that every rank has. */
loong_bucket_t *loongi_shards_bucket(const loong_shards_t *shards, int flat,
                                     int64_t element);

/* The ranks that hold the same of a flat buffer. */
static inline loong_group_t loongi_shards_group(const loong_shards_t *shards,
                                                int flat)
{
    return shards->flats[flat].expert ? LOONG_GROUP_EDP : LOONG_GROUP_DP_CP;
}

/* Byte offset in PARAM of an element that this rank has. */
int64_t loongi_shards_param(const loong_shards_t *shards, int flat,
                            int64_t element);

static inline int64_t loongi_shards_grad(const loong_shards_t *shards,
                                         const loong_bucket_t *b,
                                         int64_t element)
{
    return b->grad + (element - b->grad_begin) *
                         (int64_t)loong_dtype_size(shards->wide);
}

/* The elements of a parameter that this rank has, counted from its first. */
void loongi_shards_range(const loong_shards_t *shards,
                         const loong_chunk_param_t *place, int64_t *begin_p,
                         int64_t *end_p);

/* Sets elements [at, at + count) of a parameter, as far as this rank has them,
 * and the low halves of bf16 masters. */
LOONG_NODISCARD loong_status_t
loongi_shards_set(const loong_shards_t *shards, loong_upload_t *upload,
                  const loong_chunk_param_t *place, int64_t at, int64_t count,
                  const double *values);

#ifdef __cplusplus
}
#endif

#endif
