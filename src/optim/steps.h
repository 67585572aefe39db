/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps over ranges of flat buffers, built by hand. */
#ifndef LOONG_STEPS_H
#define LOONG_STEPS_H

#include "loong/collective.h"
#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n elements one behind the other. */
loong_karg_t loongi_flat_arg(loong_dtype_t dtype, int64_t n);

static inline loong_operand_t loongi_at(loong_base_t base, int64_t offset)
{
    loong_operand_t operand = {base, offset};
    return operand;
}

/* A step without operands yet. */
void loongi_step_begin(loong_step_t *step, const char *op, const char *scope,
                       const loong_shards_params_t *params);

/* A collective over the pieces of a bucket, in place; its one operand is still
 * to be set. */
LOONG_NODISCARD loong_status_t
loongi_step_collective(const loong_shards_t *shards, const char *op,
                       loong_group_t group, const loong_bucket_t *bucket,
                       loong_step_t *step);

/* One input and one output of n elements: copy, accumulate. */
void loongi_step_move(const loong_shards_t *shards, const char *op,
                      loong_dtype_t dtype, int64_t n, loong_step_t *step);

#ifdef __cplusplus
}
#endif

#endif
