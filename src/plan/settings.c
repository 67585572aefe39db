/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of a training, read once. Called before the model is
 * planned. Read settings.h before. */
#include "settings.h"

#include <string.h>

#include "base.h"

loong_rampup_t loongi_recipe_rampup(const loong_recipe_t *recipe)
{
    loong_rampup_t ramp = {0, 0, 0};
    if (loong_recipe_count(recipe, "train.rampup_batch_size") == 3) {
        ramp.start = loong_recipe_int(recipe, "train.rampup_batch_size[0]");
        ramp.increment = loong_recipe_int(recipe, "train.rampup_batch_size[1]");
        ramp.samples = loong_recipe_int(recipe, "train.rampup_batch_size[2]");
    }
    return ramp;
}

static int choice(const char *text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (text != NULL && strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    return 0;
}

static loong_loss_normalization_t read_normalization(const loong_recipe_t *r)
{
    static const char *const names[] = {"token", "sample", "square_root"};
    return (loong_loss_normalization_t)choice(
        loong_recipe_text(r, "train.loss_normalization"), names, 3);
}

loong_packing_t loongi_recipe_packing(const loong_recipe_t *recipe)
{
    static const char *const names[] = {"none", "greedy", "best_fit"};
    return (loong_packing_t)choice(loong_recipe_text(recipe, "data.packing"),
                                   names, 3);
}

loong_truncation_t loongi_recipe_truncation(const loong_recipe_t *recipe)
{
    static const char *const names[] = {"refuse", "left", "right", "turn"};
    return (loong_truncation_t)choice(
        loong_recipe_text(recipe, "data.truncation"), names, 4);
}

static void read_lr(const loong_recipe_t *r, loong_train_settings_t *s)
{
    static const char *const styles[] = {"constant", "linear", "cosine", "WSD"};
    static const char *const decays[] = {"linear", "cosine", "exponential",
                                         "minus_sqrt"};
    loong_lr_schedule_t *lr = &s->lr;
    lr->style = (loong_lr_style_t)choice(
        loong_recipe_text(r, "optimizer.lr_decay_style"), styles, 4);
    lr->wsd_style = (loong_wsd_style_t)choice(
        loong_recipe_text(r, "optimizer.lr_wsd_decay_style"), decays, 4);
    lr->lr = loong_recipe_real(r, "optimizer.lr");
    lr->min_lr = loong_recipe_real(r, "optimizer.min_lr");
    lr->warmup_iters = loong_recipe_int(r, "optimizer.lr_warmup_iters");
    lr->warmup_fraction = loong_recipe_real(r, "optimizer.lr_warmup_fraction");
    lr->decay_iters = loong_recipe_int(r, "optimizer.lr_decay_iters");
    if (lr->decay_iters == 0) {
        lr->decay_iters = s->train_iters;
    }
    lr->wsd_decay_iters = loong_recipe_int(r, "optimizer.lr_wsd_decay_iters");
}

/* A last part of a batch is a whole step. */
static int64_t steps_of(const loong_recipe_t *r, int64_t samples)
{
    int64_t full = loong_recipe_int(r, "train.global_batch_size");
    loong_rampup_t ramp = loongi_recipe_rampup(r);
    int64_t iters = 0;
    int64_t consumed = 0;
    for (; ramp.start > 0 && consumed < LOONG_MIN(samples, ramp.samples);
         iters++) {
        int64_t steps = (full - ramp.start) / ramp.increment;
        consumed +=
            ramp.start + ramp.increment * (consumed * steps / ramp.samples);
    }
    return iters + LOONG_MAX(samples - consumed + full - 1, 0) / full;
}

const char *loongi_recipe_length_key(const loong_recipe_t *recipe)
{
    static const char *const keys[] = {"train.train_iters",
                                       "train.train_samples",
                                       "train.train_tokens", "train.epochs"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        if (loong_recipe_is_set(recipe, keys[i])) {
            return keys[i];
        }
    }
    return NULL;
}

/* Steps of a training whose length is given in steps, samples or tokens; 0: in
 * epochs, of data that is not open. */
static int64_t read_length(const loong_recipe_t *r)
{
    int64_t samples = loong_recipe_int(r, "train.train_samples");
    if (loong_recipe_is_set(r, "train.train_iters")) {
        return loong_recipe_int(r, "train.train_iters");
    }
    if (loong_recipe_is_set(r, "train.train_tokens")) {
        samples = loong_recipe_int(r, "train.train_tokens") /
                  loong_recipe_int(r, "data.seq_length");
    }
    return samples > 0 ? steps_of(r, samples) : 0;
}

void loongi_settings_set_samples(const loong_recipe_t *recipe, int64_t samples,
                                 loong_train_settings_t *settings)
{
    settings->num_samples = samples;
    settings->train_iters = steps_of(recipe, samples);
    if (settings->lr.decay_iters == 0) {
        settings->lr.decay_iters = settings->train_iters;
    }
}

void loongi_settings_read(const loong_recipe_t *recipe, bool evaluate_only,
                          loong_train_settings_t *settings)
{
    const loong_recipe_t *r = recipe;
    loong_train_settings_t *s = settings;
    s->seq_length = loong_recipe_int(r, "data.seq_length");
    s->micro_batch_size = loong_recipe_int(r, "train.micro_batch_size");
    s->global_batch_size = loong_recipe_int(r, "train.global_batch_size");
    s->train_iters = read_length(r);
    s->exit_interval = loong_recipe_int(r, "train.exit_interval");
    s->max_wall_time = loong_recipe_real(r, "train.max_wall_time");
    s->skip_nan = strcmp(loong_recipe_text(r, "train.on_nan"), "skip") == 0;
    s->clip_grad = loong_recipe_real(r, "optimizer.clip_grad");
    s->loss_normalization = read_normalization(r);
    s->save_interval = loong_recipe_int(r, "checkpoint.save_interval");
    s->save_interval_seconds =
        loong_recipe_real(r, "checkpoint.save_interval_seconds");
    s->keep_last = (int)loong_recipe_int(r, "checkpoint.keep_last");
    s->load_optim =
        !evaluate_only && !loong_recipe_bool(r, "checkpoint.no_load_optim");
    s->async_save = loong_recipe_bool(r, "checkpoint.async");
    s->saves = loong_recipe_text(r, "checkpoint.save") != NULL;
    s->eval_interval = loong_recipe_int(r, "eval.interval");
    s->eval_on_start = loong_recipe_bool(r, "eval.on_start");
    s->eval_iters = loong_recipe_int(r, "eval.iters");
    s->max_new_tokens = loong_recipe_int(r, "eval.sample.max_new_tokens");
    s->sample_top_k = loong_recipe_int(r, "eval.sample.top_k");
    s->sample_temperature = loong_recipe_real(r, "eval.sample.temperature");
    s->log_interval = loong_recipe_int(r, "log.interval");
    s->tensors_interval = loong_recipe_int(r, "log.tensors_interval");
    s->tensorboard = !evaluate_only &&
                     loong_recipe_text(r, "log.dir") != NULL &&
                     loong_recipe_bool(r, "log.tensorboard");
    s->seed = (uint64_t)loong_recipe_int(r, "seed");
    read_lr(r, s);
}
