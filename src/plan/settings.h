/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of a training, as numbers. */
#ifndef LOONG_SETTINGS_H
#define LOONG_SETTINGS_H

#include "fields.h"
#include "loong/loader.h"
#include "lr_schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Around what optimizer and component have. */
extern const loong_recipe_table_t loongi_settings_keys[];

/* Everything the recipe says, as numbers; texts are the recipe's. */
typedef struct loong_train_settings {
    int64_t seq_length;
    loong_packing_t packing;
    double validation_split;
    int64_t max_images, max_patches; /* of a micro-batch; 0: not set */
    int64_t max_videos, max_video_patches; /* likewise, of a video encoder */
    int64_t max_image_patches;       /* of a picture; 0: not set */
    int64_t max_tiles;               /* likewise */
    double video_fps;                /* 0: not set */
    int64_t video_frames;            /* of a video; 0: not set */
    int64_t row_images, row_patches; /* of a row of samples; likewise */
    int64_t micro_batch_size;
    int64_t global_batch_size;
    loong_rampup_t rampup;
    int64_t train_iters; /* of all lengths; 0: in epochs, of data not open */
    int64_t train_samples, train_tokens; /* as given */
    double epochs;
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
    const char *save_dir, *load; /* of checkpoints; NULL: not set */
    bool eval_on_start;
    int64_t eval_interval;
    bool load_optim;
    int64_t eval_iters;    /* global batches; 0: all */
    int64_t max_new_tokens; /* new ones of a sampled text */
    int64_t sample_top_k;
    double sample_temperature;
    int64_t log_interval, tensors_interval;
    const char *log_dir; /* NULL: not set */
    bool tensorboard;    /* beside the metrics of a training */
    uint64_t seed;
} loong_train_settings_t;

/* Room of an encoder, by its number: what is asked for, and by which keys. */
typedef struct loong_room {
    int64_t images, patches; /* 0: not set */
    const char *images_key, *patches_key;
} loong_room_t;
static inline loong_room_t loongi_settings_room(const loong_train_settings_t *s,
                                                int encoder)
{
    const loong_room_t rooms[] = {
        {s->max_images, s->max_patches, "data.max_images", "data.max_patches"},
        {s->max_videos, s->max_video_patches, "data.max_videos",
         "data.max_video_patches"}};
    return rooms[encoder];
}

/* Of a recipe that was filled. */
void loongi_settings_read(const loong_recipe_t *recipe, bool evaluate_only,
                          loong_train_settings_t *settings);
/* The key that says how long a training is; NULL: none does. */
const char *loongi_recipe_length_key(const loong_recipe_t *recipe);

/* The training has so many samples: its steps, and a decay as long as it. Rows
 * of the last step that are none are empty. */
void loongi_settings_set_samples(int64_t samples,
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
