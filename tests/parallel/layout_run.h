/* SPDX-License-Identifier: Apache-2.0
 *
 * A short training in f64 on ranks that are threads of this process, in a
 * given layout, and the comparison of two such runs. */
#ifndef LOONG_LAYOUT_RUN_H
#define LOONG_LAYOUT_RUN_H

#include "loong/recipe.h"
#include "test.h"

enum { LAYOUT_VOCAB = 61 };

typedef struct layout_run {
    const char *save;     /* name of its checkpoint directory */
    const char *model;    /* YAML flow mapping of model.foundation */
    const char *parallel; /* of parallel */
    const char *more;     /* lines of YAML; may be "" */
    const char *optimizer; /* more of its keys; NULL: none */
    int ramp;             /* samples of the first steps, rising; 0: all */
    const char *dtype;    /* "fp64" */
    int ranks;
    int micro_batch_size;
    int global_batch_size; /* 0: 24 */
    int seq_length;        /* 0: 16 */
    const char *vision_ids; /* data.vision_token_ids; NULL: none */
    bool unpacked;  /* documents of a sample see each other */
    double z_loss;  /* its coefficient */
    double kl_loss; /* train.kl_loss_coeff */
    int steps;
    int stop_at;      /* 0: not */
    int save_interval; /* 0: at the end alone */
    const char *load; /* NULL: from the start */
    bool save_only;   /* what was loaded, without a step */
    bool save_first;  /* what was loaded, and then the steps */
    const char *refusal; /* it is refused with this text; NULL: it is not */
    const char *failure; /* it fails with this text, whenever; NULL: not */
    loong_status_t (*enter)(loong_context_t *ctx); /* see layout_job_t */
    loong_recipe_params_t params; /* keys that this brings */
    double *losses;   /* of each step; may be NULL */
    loong_status_t status;
    double loss;      /* of the last step */
    double grad_norm;
    int64_t loaded; /* bytes of tensors that all ranks took of a checkpoint */
} layout_run_t;

/* A directory with a small data set, removed at the end unless
 * LOONG_LAYOUT_KEEP is set. */
typedef struct layout_place {
    loong_context_t *ctx;
    char dir[64];
} layout_place_t;
layout_place_t layout_begin(void);

/* The long tests: LOONG_LAYOUT_STEPS says how many steps a run has. */
bool layout_long(void);
int layout_steps(void); /* everyday: 3 */
void layout_end(layout_place_t *place);

void layout_run(const layout_place_t *place, layout_run_t *run);

/* Loss and norm of the last step, parameters and moments agree to `bound`
 * (relative, by norm of each tensor). */
void layout_compare(const layout_place_t *place, const layout_run_t *run,
                    const layout_run_t *one, double bound);

#endif
