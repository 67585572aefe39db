/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of a training, as numbers. */
#ifndef LOONG_SETTINGS_H
#define LOONG_SETTINGS_H

#include "loong/loader.h"
#include "loong/recipe.h"
#include "lr_schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything the recipe says, as numbers. */
typedef struct loong_train_settings {
    int64_t seq_length;
    int64_t micro_batch_size;
    int64_t global_batch_size;
    int64_t train_iters;
    int64_t num_samples; /* of a length in epochs; 0: whole batches */
    int64_t exit_interval;
    double max_wall_time;
    bool skip_nan;
    double clip_grad;
    loong_loss_normalization_t loss_normalization;
    loong_lr_schedule_t lr;
    int64_t save_interval;
    double save_interval_seconds;
    int keep_last;
    bool async_save;
    bool saves; /* a directory of checkpoints is set */
    bool eval_on_start;
    int64_t eval_interval;
    bool load_optim;
    int64_t eval_iters;    /* global batches; 0: all */
    int64_t max_new_tokens; /* new ones of a sampled text */
    int64_t sample_top_k;
    double sample_temperature;
    int64_t log_interval, tensors_interval;
    bool tensorboard; /* beside the metrics of a training */
    uint64_t seed;
} loong_train_settings_t;

/* Of a recipe that was filled. */
void loongi_settings_read(const loong_recipe_t *recipe, bool evaluate_only,
                          loong_train_settings_t *settings);
/* The key that says how long a training is; NULL: none does. */
const char *loongi_recipe_length_key(const loong_recipe_t *recipe);
loong_rampup_t loongi_recipe_rampup(const loong_recipe_t *recipe);
loong_packing_t loongi_recipe_packing(const loong_recipe_t *recipe);
loong_truncation_t loongi_recipe_truncation(const loong_recipe_t *recipe);

/* The training has so many samples: its steps, and a decay as long as it. Rows
 * of the last step that are none are empty. */
void loongi_settings_set_samples(const loong_recipe_t *recipe, int64_t samples,
                                 loong_train_settings_t *settings);
/* What a training takes of its data, at most. */
static inline int64_t loongi_settings_samples(const loong_train_settings_t *s)
{
    return s->num_samples > 0 ? s->num_samples
                              : s->train_iters * s->global_batch_size;
}

#ifdef __cplusplus
}
#endif

#endif
