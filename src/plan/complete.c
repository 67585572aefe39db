/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets the keys that follow from what a run is for. Called by trainer_create.c.
 * Read complete.h before. */
#include "complete.h"

#include <stdio.h>
#include <string.h>

enum { PLAN_LENGTH = 4096 }; /* tokens of a sample, where nothing says it */

static loong_status_t set_open(loong_recipe_t *recipe, const char *key,
                               const char *value, const char *origin)
{
    return value == NULL || loong_recipe_is_set(recipe, key)
               ? LOONG_OK
               : loong_recipe_set(recipe, key, value, origin);
}

/* ---- fine-tuning --------------------------------------------------------- */

/* What published recipes of fine-tuning agree on, as far as they do. */
static const struct {
    const char *key, *full, *lora;
} finetuning[] = {
    {"data.packing", "best_fit", "best_fit"},
    {"optimizer.lr", "2e-5", "2e-4"},
    {"optimizer.lr_warmup_fraction", "0.03", "0.03"},
    {"optimizer.adam_beta2", "0.999", "0.999"},
    {"optimizer.weight_decay", "0", "0"},
    {"eval.on_start", "true", "true"},
    {"eval.sample.conversations", "1", "1"},
    {"eval.sample.max_new_tokens", "48", "48"},
    {"eval.sample.temperature", "0", "0"},
};

static const char *finetuning_value(const loong_recipe_t *recipe, int64_t i)
{
    const char *method = loong_recipe_text(recipe, "finetune.method");
    return strcmp(method, "full") != 0 ? finetuning[i].lora
                                       : finetuning[i].full;
}

bool loongi_recipe_finetunes(const loong_recipe_t *recipe)
{
    return strcmp(loong_recipe_text(recipe, "training_phase"), "sft") == 0 &&
           loong_recipe_reads_texts(recipe);
}

/* Samples with pictures have rows of their own, and none are drawn. Other
 * optimizers than adamw would refuse a key of its. */
static bool completes(const loong_recipe_t *recipe, int64_t i)
{
    const char *key = finetuning[i].key;
    if (strcmp(key, "optimizer.adam_beta2") == 0) {
        return strcmp(loong_recipe_text(recipe, "optimizer.name"), "adamw") ==
               0;
    }
    return loong_recipe_component(recipe, 1) == NULL ||
           (strcmp(key, "data.packing") != 0 &&
            strncmp(key, "eval.sample.", 12) != 0);
}

static const char sft_origin[] = "training_phase: sft";

static bool is_set_one_of(const loong_recipe_t *recipe,
                          const char *const keys[2])
{
    return loong_recipe_is_set(recipe, keys[0]) ||
           loong_recipe_is_set(recipe, keys[1]);
}

/* Beside what is exported: OUT gets OUT.checkpoints. */
static loong_status_t complete_save(loong_recipe_t *recipe)
{
    const char *out = loong_recipe_text(recipe, "export.hf");
    char path[4096];
    size_t length = out != NULL ? strlen(out) : 0;
    while (length > 1 && out[length - 1] == '/') {
        length--;
    }
    if (length == 0 || length + sizeof(".checkpoints") > sizeof(path)) {
        return LOONG_OK;
    }
    snprintf(path, sizeof(path), "%.*s.checkpoints", (int)length, out);
    return set_open(recipe, "checkpoint.save", path, "beside export.hf");
}

loong_status_t loongi_complete_phase(loong_recipe_t *recipe)
{
    if (loong_recipe_is_set(recipe, "finetune.method") &&
        loong_recipe_reads_texts(recipe)) {
        LOONG_TRY(set_open(recipe, "training_phase", "sft", "finetune"));
    }
    return loongi_recipe_finetunes(recipe) &&
                   loong_recipe_init_key(recipe, NULL) == NULL
               ? set_open(recipe, "init.from_hf",
                          loong_recipe_text(recipe, "model.from_hf"),
                          sft_origin)
               : LOONG_OK;
}

/* Of a model that sees pictures the language model is tuned: what is published
 * before it stays. */
static loong_status_t complete_freezing(loong_recipe_t *recipe)
{
    const char *role = NULL;
    for (int64_t i = 0; loong_recipe_component(recipe, i + 1) != NULL; i++) {
        char path[64];
        role = loong_recipe_component(recipe, i);
        snprintf(path, sizeof(path), "model.%s.freeze", role);
        if (loong_recipe_init_key(recipe, role) != NULL) {
            LOONG_TRY(set_open(recipe, path, "true", sft_origin));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_complete_finetuning(loong_recipe_t *recipe)
{
    static const char *const warmup[2] = {"optimizer.lr_warmup_iters",
                                          "optimizer.lr_warmup_fraction"};
    if (!loongi_recipe_finetunes(recipe)) {
        return LOONG_OK;
    }
    LOONG_TRY(complete_freezing(recipe));
    for (int64_t i = 0; i < LOONG_COUNT_OF(finetuning); i++) {
        bool said = (strcmp(finetuning[i].key, warmup[1]) == 0 &&
                     is_set_one_of(recipe, warmup)) ||
                    !completes(recipe, i);
        LOONG_TRY(said ? LOONG_OK
                       : set_open(recipe, finetuning[i].key,
                                  finetuning_value(recipe, i), sft_origin));
    }
    return complete_save(recipe);
}

/* A micro-batch for each rank: more than a run of few ranks needs, never too
 * few. */
static loong_status_t micro_batches(const loong_plan_t *plan, int64_t *rows_p)
{
    const int32_t *on = NULL;
    int ranks = 0;
    LOONG_TRY(loong_recipe_ranks(plan->recipe, NULL, plan->parallel.ranks, &on,
                                 &ranks));
    *rows_p = loong_recipe_int(plan->recipe, "train.micro_batch_size") * ranks;
    return LOONG_OK;
}

static int64_t size_of(const loong_plan_t *plan, const char *key)
{
    return LOONG_MAX(loong_recipe_int(plan->recipe, key), 1);
}

loong_status_t loongi_complete_batch(loong_plan_t *plan, int64_t rows)
{
    char text[24];
    int64_t own = 0;
    LOONG_TRY(micro_batches(plan, &own));
    own /= size_of(plan, "parallel.tensor_model_parallel_size") *
           size_of(plan, "parallel.pipeline_model_parallel_size") *
           size_of(plan, "parallel.context_parallel_size");
    own = LOONG_MAX(own, 1);
    snprintf(text, sizeof(text), "%lld",
             (long long)((rows + own - 1) / own * own));
    return set_open(plan->recipe, "train.global_batch_size", text, sft_origin);
}

typedef struct resumed {
    const loong_plan_t *plan;
    bool tunes; /* it is a fine-tuning, as that before */
} resumed_t;

/* Sets a key as in the run that this one goes on with, if it is one of those
 * above and the recipe says neither it nor that it may change. */
static loong_status_t keep_key(void *user, const char *key, const char *value)
{
    const resumed_t *r = user;
    const loong_plan_t *plan = r->plan;
    const char *usual = NULL;
    bool day = strcmp(key, "data.chat.date") == 0;
    bool follows = day ||
                   (r->tunes && (strcmp(key, "data.seq_length") == 0 ||
                                 strcmp(key, "data.max_images") == 0 ||
                                 strcmp(key, "train.global_batch_size") == 0));
    for (int64_t i = 0; r->tunes && i < LOONG_COUNT_OF(finetuning) && !follows;
         i++) {
        follows = strcmp(key, finetuning[i].key) == 0 &&
                  completes(plan->recipe, i);
        usual = follows ? finetuning_value(plan->recipe, i) : NULL;
    }
    bool said = follows && loong_recipe_is_set(plan->recipe, key) &&
                strcmp(loong_recipe_where(plan->recipe, key), sft_origin) != 0;
    bool free = follows && loong_recipe_may_change(plan->recipe, key);
    if (day && said && loong_comm_rank(plan->comm) == 0 &&
        strcmp(loong_recipe_text(plan->recipe, key), value) != 0) {
        loongi_log(plan->ctx, LOONG_LOG_WARN,
                   "%s: %s, in the checkpoint's run %s: a template that shows "
                   "the day makes other data",
                   key, loong_recipe_text(plan->recipe, key), value);
    }
    if (!follows || said || free ||
        (usual != NULL && strcmp(usual, value) == 0)) {
        return LOONG_OK;
    }
    if (loong_comm_rank(plan->comm) == 0) {
        loongi_log(plan->ctx, LOONG_LOG_INFO,
                   "%s: %s as in the checkpoint, the recipe does not say it",
                   key, value);
    }
    return loong_recipe_set(plan->recipe, key, value, "the checkpoint");
}

loong_status_t loongi_complete_resumed(loong_plan_t *plan,
                                       const loong_recipe_t *before)
{
    resumed_t r = {plan, !plan->evaluate_only &&
                             loongi_recipe_finetunes(plan->recipe) &&
                             loongi_recipe_finetunes(before)};
    return loong_recipe_each(before, "", keep_key, &r);
}

/* ---- other purposes ------------------------------------------------------ */

static loong_status_t print_batch(const loong_plan_t *plan, char text[24])
{
    int64_t rows = 0;
    LOONG_TRY(micro_batches(plan, &rows));
    snprintf(text, 24, "%lld", (long long)rows);
    return LOONG_OK;
}

loong_status_t loongi_complete_evaluation(loong_plan_t *plan)
{
    static const char origin[] = "an evaluation";
    char batch[24];
    LOONG_TRY(print_batch(plan, batch));
    LOONG_TRY(set_open(plan->recipe, "train.global_batch_size", batch, origin));
    LOONG_TRY(set_open(plan->recipe, "optimizer.lr", "0", origin));
    return loongi_recipe_length_key(plan->recipe) != NULL
               ? LOONG_OK
               : loong_recipe_set(plan->recipe, "train.train_iters", "1",
                                  origin);
}

loong_status_t loongi_complete_model(loong_plan_t *plan, int64_t longest)
{
    static const char *const keys[] = {"data.seq_length",
                                       "train.global_batch_size",
                                       "train.train_iters", "optimizer.lr"};
    const char *origin = "assumed: the recipe is a model alone";
    char values[LOONG_COUNT_OF(keys)][24] = {"", "", "1", "0"};
    for (int64_t i = 1; i < LOONG_COUNT_OF(keys); i++) {
        if (loong_recipe_is_set(plan->recipe, keys[i])) {
            return LOONG_OK;
        }
    }
    snprintf(values[0], sizeof(values[0]), "%lld",
             (long long)(longest > 0 ? LOONG_MIN(longest, PLAN_LENGTH)
                                     : PLAN_LENGTH));
    LOONG_TRY(print_batch(plan, values[1]));
    int64_t first = loong_recipe_is_set(plan->recipe, keys[0]) ? 1 : 0;
    for (int64_t i = first; i < LOONG_COUNT_OF(keys); i++) {
        LOONG_TRY(loong_recipe_set(plan->recipe, keys[i], values[i], origin));
        if (loong_comm_rank(plan->comm) == 0) {
            loongi_log(plan->ctx, LOONG_LOG_INFO, "%s: %s %s", origin, keys[i],
                       values[i]);
        }
    }
    return LOONG_OK;
}
