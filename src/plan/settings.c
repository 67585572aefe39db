/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of a training, read once. Called before the model is
 * planned. Read settings.h before. */
#include "settings.h"

#include <string.h>

#include "component.h"
#include "rates.h"
#include "schema.h"

#define SET(member_) FILLS(loong_train_settings_t, member_)
#define RATE(member_) FILLS(loong_device_rates_t, member_)

static const loong_recipe_field_t training[] = {
    INT("train.micro_batch_size", "1", 1, 1e6, FREE, "samples at once",
        SET(micro_batch_size)),
    AMOUNT("train.global_batch_size", NULL, 1, 1e9, SAME, "samples of a step",
           SET(global_batch_size)),
    INTS("train.rampup_batch_size", 0, BIG, SAME,
         "[start, increment, samples]"),
    AMOUNT("train.train_iters", NULL, 1, BIG, FREE,
           "optimizer steps; or the next, or the one after it",
           SET(train_iters)),
    AMOUNT("train.train_samples", NULL, 1, BIG, FREE,
           "length of the training in samples", SET(train_samples)),
    AMOUNT("train.train_tokens", NULL, 1, BIG, FREE,
           "length of the training in tokens", SET(train_tokens)),
    REAL("train.epochs", NULL, 1e-9, 1e9, FREE,
         "length of the training in passes over data.train, counted in rows "
         "where texts share them; the rest of a last batch is empty",
         SET(epochs)),
    AMOUNT("train.exit_interval", "0", 0, BIG, FREE,
           "stop with a checkpoint when the step is a multiple; 0: never",
           SET(exit_interval)),
    SECONDS("train.max_wall_time", "0", 0, FREE,
            "stop with a checkpoint after this time; 0: never",
            SET(max_wall_time)),
    CHOICE("train.loss_normalization", "token", "token sample square_root",
           SAME,
           "what counts equally in the loss of a step: learned tokens; "
           "samples, whatever their N learned tokens; or, between the two, "
           "each token weighs 1 / sqrt(N)",
           SET(loss_normalization)),
    REAL("train.z_loss_coeff", "0", 0, 1, SAME, "of the squared log-sum-exp",
         FILLS(loong_model_request_t, z_loss)),
    REAL("train.kl_loss_coeff", "0", 0, 1e6, SAME,
         "of the KL divergence from the model as it was at the start; of "
         "adapters, from the model without them"),
    CHOICE("train.cuda_graph_impl", "none", "none local auto", FREE,
           "programs are captured once and replayed as graphs of the device; "
           "auto: where it has them, and step by step should that fail"),
    CHOICE("train.attention_backend", "auto", "local fused auto", FREE,
           "who makes attention on a device: local: own kernels; fused: those "
           "of a library; auto: the library's where they are the "
           "faster ones, and own kernels for what it refuses and elsewhere",
           FILLS(loong_kernel_policy_t, attention)),
    TEXTS("train.host_ops", FREE,
          "ops that the processor does where the device has no kernel for "
          "them, with copies there and back in every launch: slow"),
    CHOICE("train.on_nan", "stop", "stop skip", FREE,
           "a loss or gradient that is not finite", SET(skip_nan)),
};

static const loong_recipe_field_t beginning[] = {
    REAL("optimizer.clip_grad", "1.0", 0, 1e9, FREE,
         "largest global norm; 0: no clipping", SET(clip_grad)),

    TEXT("init.from_hf", NULL, FREE, "Hugging Face directory to start from"),
    TEXTS("init.adapters", FREE,
          "directories of adapters that are merged into it, in this order, as "
          "[DIR, DIR=0.5], where what the second adds is halved"),
};

static const loong_recipe_field_t running[] = {
    TEXT("export.hf", NULL, FREE,
         "Hugging Face directory to write at the end, in the place of one of "
         "the same model if it is there; needs checkpoint.save"),
    BOOL("export.ema", "false", FREE,
         "export.hf writes the average that optimizer.ema.decay keeps"),
    BOOL("export.merge", "false", FREE,
         "of a run with adapters: the model with what they add to its "
         "matrices; else export.hf is a directory of the adapters alone, as "
         "peft has them"),
    TEXT("export.as", NULL, FREE,
         "model type of its config.json, of those that can say the same "
         "model, as llama for an internlm2; default: its own"),
    TEXT("checkpoint.save", NULL, FREE, "directory of checkpoints",
         SET(save_dir)),
    TEXT("checkpoint.load", NULL, FREE,
         "directory to resume from; auto: checkpoint.save if it has one",
         SET(load)),
    BOOL("checkpoint.no_load_optim", "false", FREE,
         "parameters only, as from an imported checkpoint: moments begin at 0"),
    AMOUNT("checkpoint.save_interval", "0", 0, BIG, FREE,
           "steps; 0: only at the end", SET(save_interval)),
    SECONDS("checkpoint.save_interval_seconds", "0", 0, FREE, "0: never",
            SET(save_interval_seconds)),
    INT("checkpoint.keep_last", "2", 0, 1e6, FREE,
        "older ones are removed; 0: all", SET(keep_last)),
    BOOL("checkpoint.async", "true", FREE, "write while training goes on",
         SET(async_save)),
    TEXTS("resume.override", FREE,
          "keys, maps or lists of them that may change although marked same"),

    AMOUNT("eval.interval", "0", 0, BIG, FREE, "steps; 0: only at the end",
           SET(eval_interval)),
    BOOL("eval.on_start", "false", FREE, "an evaluation before the first step",
         SET(eval_on_start)),
    AMOUNT("eval.iters", "0", 0, BIG, FREE, "global batches; 0: the whole set",
           SET(eval_iters)),
    BOOL("eval.ema", "false", FREE,
         "evaluations and samples are those of the average that "
         "optimizer.ema.decay keeps",
         FILLS(loong_optimizer_params_t, ema.evaluates)),
    TEXTS("eval.sample.prompts", FREE, "texts to continue at an evaluation"),
    INT("eval.sample.conversations", "0", 0, 1000, FREE,
        "of the first validation set, else of the training: first questions "
        "that are answered at an evaluation"),
    INT("eval.sample.max_new_tokens", "64", 1, 100000, FREE, "tokens",
        SET(max_new_tokens)),
    REAL("eval.sample.temperature", "0.8", 0, 100, FREE, "0: the likeliest",
         SET(sample_temperature)),
    INT("eval.sample.top_k", "40", 0, 1e6, FREE, "0: all", SET(sample_top_k)),

    AMOUNT("log.interval", "10", 1, BIG, FREE, "steps", SET(log_interval)),
    TEXT("log.dir", NULL, FREE, "of metrics.jsonl and TensorBoard files",
         SET(log_dir)),
    TEXTS("log.tensors", FREE,
          "globs of scopes whose tensors and their gradients are logged: "
          "norm, largest value, number not finite"),
    AMOUNT("log.tensors_interval", "100", 1, BIG, FREE, "steps",
           SET(tensors_interval)),
    BOOL("log.tensorboard", "true", FREE, "write event files",
         SET(tensorboard)),

    CHOICE("comm.backend", "auto", "auto self mpi", FREE, "communicator"),
    CHOICE("comm.device_backend", "auto", "auto staged", FREE,
           "between devices of one kind; auto: their own, staged: "
           "through host memory, as between devices of several kinds"),
    SECONDS("comm.timeout", "300", 1, FREE,
            "a collective that waits longer for a rank fails"),
    SECONDS("comm.heartbeat_timeout", "40", 1, FREE,
            "a rank on another machine that is waited for and does not answer "
            "for so long is lost; so is a collective in which all its devices "
            "stand, and a device that ends nothing of what was launched"),
    BOOL("comm.overlap", "true", FREE,
         "collectives run beside computation, on a thread of their own",
         FILLS(loong_component_params_t, compile.lanes)),
    BYTES("comm.overlap_work", "256KiB", 0, BIG, FREE,
          "where the computation beside one touches at least so many bytes",
          FILLS(loong_component_params_t, compile.lane_work)),

    TEXT("predict.device", "auto", FREE,
         "card whose rates --dry-run takes, by a name that a kind of device "
         "has for it (a wrong one lists them); auto: the first of the kind"),
    REAL("predict.tflops", "0", 0, 1e6, FREE,
         "dense bf16 products, TFLOP/s of the datasheet; 0: the table's, as "
         "in all of these",
         RATE(bf16)),
    REAL("predict.products", "0", 0, 1, FREE,
         "share of it that a large product reaches", RATE(products)),
    REAL("predict.copy", "0", 0, 1e6, FREE,
         "GB/s that a copy on the device reads and writes together",
         RATE(copy)),
    REAL("predict.link", "0", 0, 1e6, FREE,
         "GB/s that a device sends to another of its machine", RATE(link)),
    REAL("predict.network", "0", 0, 1e6, FREE,
         "GB/s that a device sends to another machine", RATE(network)),
    INT("predict.machine", "0", 0, 1e6, FREE, "devices of a machine",
        RATE(machine)),
};

const loong_recipe_table_t loongi_settings_keys[] = {
    LOONG_KEYS(training), LOONG_KEYS(beginning), LOONG_KEYS(running)};

static loong_rampup_t read_rampup(const loong_recipe_t *recipe)
{
    loong_rampup_t ramp = {0, 0, 0};
    if (loong_recipe_count(recipe, "train.rampup_batch_size") == 3) {
        ramp.start = loong_recipe_int(recipe, "train.rampup_batch_size[0]");
        ramp.increment = loong_recipe_int(recipe, "train.rampup_batch_size[1]");
        ramp.samples = loong_recipe_int(recipe, "train.rampup_batch_size[2]");
    }
    return ramp;
}

/* A last part of a batch is a whole step. */
static int64_t steps_of(const loong_train_settings_t *s, int64_t samples)
{
    int64_t full = s->global_batch_size;
    loong_rampup_t ramp = s->rampup;
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

static void set_iters(loong_train_settings_t *s, int64_t iters)
{
    s->train_iters = iters;
    if (s->lr.decay_iters == 0) {
        s->lr.decay_iters = iters;
    }
}

void loongi_settings_set_samples(int64_t samples,
                                 loong_train_settings_t *settings)
{
    settings->num_samples = samples;
    set_iters(settings, steps_of(settings, samples));
}

void loongi_settings_read(const loong_recipe_t *recipe, bool evaluate_only,
                          loong_train_settings_t *settings)
{
    loong_train_settings_t s = {.rampup = read_rampup(recipe)};
    LOONG_FILL(recipe, "", loong_train_settings_t, &s);
    LOONG_FILL(recipe, "", loong_lr_schedule_t, &s.lr);
    int64_t samples =
        s.train_tokens > 0 ? s.train_tokens / s.seq_length : s.train_samples;
    bool counted = s.train_iters == 0 && samples > 0;
    set_iters(&s, counted ? steps_of(&s, samples) : s.train_iters);
    s.seed = (uint64_t)loong_recipe_int(recipe, "seed");
    s.load_optim = !evaluate_only &&
                   !loong_recipe_bool(recipe, "checkpoint.no_load_optim");
    s.tensorboard = s.tensorboard && !evaluate_only && s.log_dir != NULL;
    *settings = s;
}
