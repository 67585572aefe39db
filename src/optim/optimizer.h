/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer over flat buffers: states and masters of what this rank
 * updates (shards.h), the programs of the norm and of the update.
 */
#ifndef LOONG_OPTIMIZER_H
#define LOONG_OPTIMIZER_H

#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters that are updated alike. */
typedef struct loong_optimizer_group {
    int kind;            /* number of the class */
    double lr;           /* times the schedule's */
    double beta1, beta2; /* see loong_update_attr_t */
    double eps;
    double momentum;
    bool nesterov;
    int ns_steps;        /* muon: of Newton-Schulz */
    bool match_rms;      /* muon: steps as large as adamw's */
    double weight_decay; /* of parameters that are subject to it */
} loong_optimizer_group_t;

/* The average of what is trained, as one more state (ema of loong/update.h). */
typedef struct loong_ema {
    double decay; /* 0: none is kept */
    int64_t start;
    bool warmup;
    bool evaluates; /* evaluations take it in the place of the parameters */
} loong_ema_t;
#define LOONG_EMA "ema" /* checkpoints call it so */

typedef struct loong_optimizer_params {
    int num_groups;
    /* A parameter has the number of one (loong_param_params_t). */
    loong_optimizer_group_t group[LOONG_MAX_OPT_GROUPS];
    bool bf16[LOONG_STATE_COUNT]; /* states stored so; else in the wide type */
    bool stochastic_rounding;     /* of states in bf16; else to nearest */
    loong_ema_t ema;
} loong_optimizer_params_t;

static inline loong_dtype_t
loongi_state_dtype(const loong_optimizer_params_t *params,
                   loong_optimizer_state_t state, loong_dtype_t wide)
{
    return params->bf16[state] ? LOONG_BF16 : wide;
}

/* The class that keeps states of a parameter; NULL: none does. */
static inline const loong_optimizer_class_t *
loongi_optimizer_of(const loong_optimizer_params_t *params,
                    const loong_param_params_t *param)
{
    return param->frozen || param->sign_rate > 0.0
               ? NULL
               : loongi_optimizer_class(params->group[param->optimizer].kind);
}

typedef struct loong_optimizer {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const loong_model_chunk_t *chunk; /* both borrowed */
    const loong_shards_t *shards;
    loong_optimizer_params_t params;
    int64_t optim_bytes;
    int64_t room_offset;   /* of what a step of muon works in, in OPTIM */
    int64_t record_offset; /* of the norm's exact accumulator in OPTIM */
    loong_program_t norm;  /* sums of squares of this rank's parts */
    /* And gathers parameters where only states are shared out. */
    loong_program_t update;
    /* Exchanges parameters and their averages. */
    loong_program_t swap;
} loong_optimizer_t;

/* Plans states, which it places in the buckets, and programs, for the
 * parameters of a chunk. Pure. */
LOONG_NODISCARD loong_status_t loongi_optimizer_create(
    const loong_model_chunk_t *chunk, loong_shards_t *shards,
    const loong_optimizer_params_t *params, loong_optimizer_t **optimizer_p);
void loongi_optimizer_destroy(loong_optimizer_t **optimizer_p);

#ifdef __cplusplus
}
#endif

#endif
