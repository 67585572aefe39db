/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of its conversations. Called by trainer_data.c. Read
 * trainer_data.h and loong/chat.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "complete.h"
#include "loong/chat.h"
#include "resume_check.h"
#include "trainer_data.h"
#include "view.h"

enum {
    MAX_TAGS = 16,
    ROW_MULTIPLE = 64,  /* of places in a row */
    ROW_LEAST = 1024,   /* which short samples share */
    ROW_MOST = 1 << 20, /* where the model knows no bound */
    STEP_SAMPLES = 16
};

static const char length_key[] = "data.seq_length";

/* What data.chat says; texts are the recipe's. */
typedef struct chat_keys {
    loong_chat_options_t options;
    const char *tags[MAX_TAGS];
} chat_keys_t;

static loong_status_t read_chat(const loong_trainer_t *t, chat_keys_t *keys)
{
    const loong_recipe_t *r = t->recipe;
    int64_t tags = loong_recipe_count(r, "data.chat.tags");
    LOONG_CHECK(t->ctx, tags <= MAX_TAGS, LOONG_ERR_CONFIG,
                "data.chat.tags: %lld, there are fewer names", (long long)tags);
    for (int64_t i = 0; i < tags; i++) {
        char key[64];
        snprintf(key, sizeof(key), "data.chat.tags[%lld]", (long long)i);
        keys->tags[i] = loong_recipe_text(r, key);
    }
    keys->options = (loong_chat_options_t){
        .format = loong_recipe_text(r, "data.chat.format"),
        .template_name = loong_recipe_text(r, "data.chat.template"),
        .template_kwargs = loong_recipe_text(r, "data.chat.template_kwargs"),
        .train_on = loong_recipe_text(r, "data.chat.train_on"),
        .train_on_tool_results =
            loong_recipe_bool(r, "data.chat.train_on_tool_results"),
        .use_chosen = loong_recipe_bool(r, "data.chat.use_chosen"),
        .skip_refused = loong_recipe_bool(r, "data.chat.skip_refused"),
        .tags = keys->tags,
        .num_tags = tags,
        .cache = loong_recipe_text(r, "data.chat.cache")};
    return LOONG_OK;
}

bool loongi_trainer_has_chat(const loong_trainer_t *t)
{
    static const char *const lists[] = {"data.train", "data.validation"};
    const loong_recipe_t *r = t->recipe;
    bool has = strcmp(loong_recipe_text(r, "training_phase"), "sft") == 0;
    for (int l = 0; l < 2; l++) {
        for (int64_t i = 0; i < loong_recipe_count(r, lists[l]); i++) {
            char key[64];
            snprintf(key, sizeof(key), "%s[%lld].source", lists[l],
                     (long long)i);
            const char *name = loong_recipe_text(r, key);
            has = has || (name != NULL && strcmp(name, "chat") == 0);
        }
    }
    return has;
}

loong_status_t loongi_trainer_create_blend(loong_trainer_t *t,
                                           loong_blend_params_t *params,
                                           loong_blend_t **blend_p)
{
    chat_keys_t chat;
    bool wanted = false;
    for (int64_t i = 0; i < params->num_sources; i++) {
        wanted = wanted || strcmp(params->sources[i].class_name, "chat") == 0;
    }
    if (wanted) {
        LOONG_TRY(read_chat(t, &chat));
        params->chat = &chat.options;
    }
    return loong_blend_create(t->ctx, params, blend_p);
}

/* ---- rows ---------------------------------------------------------------- */

/* Of the samples that rows are made of. */
typedef struct sample_figures {
    int64_t samples, ids, longest;
} sample_figures_t;

static void count_samples(const loong_blend_t *blend, sample_figures_t *of)
{
    loong_blend_info_t info = {.num_sources = 0};
    if (blend != NULL) {
        loong_blend_get_info(blend, &info);
    }
    for (int64_t i = 0; i < info.num_sources; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(blend, i, &source);
        const loong_pack_info_t *pack = source.info.pack;
        if (pack != NULL) {
            of->samples += pack->samples;
            of->ids += pack->ids;
            of->longest = LOONG_MAX(of->longest, pack->longest);
        }
    }
}

static loong_status_t set_length(loong_trainer_t *t, int64_t length,
                                 const char *origin)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)length);
    return loong_recipe_set(t->recipe, length_key, text, origin);
}

/* Rows of a step that have about STEP_SAMPLES samples. */
static int64_t step_rows(const loong_trainer_t *t, const sample_figures_t *of)
{
    int64_t each = loong_recipe_int(t->recipe, length_key);
    bool packs = loongi_recipe_packing(t->recipe) != LOONG_PACK_NONE;
    double full = packs && of->samples > 0
                      ? (double)of->ids / (double)of->samples / (double)each
                      : 1.0;
    return (int64_t)ceil(STEP_SAMPLES * full);
}

/* The data is opened with rows for the longest text that the model reads; what
 * is longer is refused or cut there as anywhere. */
static loong_status_t measure_samples(loong_trainer_t *t, int64_t most,
                                      bool length)
{
    sample_figures_t train = {0};
    if (length) {
        LOONG_TRY(set_length(t, most, "the model"));
    }
    LOONG_TRY(loongi_trainer_open_blends(t));
    count_samples(t->data.blend, &train);
    sample_figures_t all = train;
    for (int i = 0; i < t->data.num_validation; i++) {
        count_samples(t->data.validation[i].blend, &all);
    }
    loongi_trainer_close_data(t);
    int64_t rounded =
        (all.longest + ROW_MULTIPLE - 1) / ROW_MULTIPLE * ROW_MULTIPLE;
    if (length) {
        LOONG_TRY(set_length(t, LOONG_MIN(LOONG_MAX(rounded, ROW_LEAST), most),
                             "the longest sample"));
    }
    return loongi_complete_batch(&t->plan, step_rows(t, &train));
}

int64_t loongi_trainer_longest(const loong_trainer_t *t)
{
    static const char key[] =
        "model." LOONG_DEFAULT_ROLE ".max_position_embeddings";
    bool reads = strcmp(loongi_model_role(t->recipe), LOONG_DEFAULT_ROLE) == 0;
    return reads ? loong_recipe_int(t->recipe, key) : 0;
}

loong_status_t loongi_trainer_complete_rows(loong_trainer_t *t)
{
    int64_t most = loongi_trainer_longest(t);
    bool length = !loong_recipe_is_set(t->recipe, length_key);
    if (!loongi_recipe_finetunes(t->recipe) ||
        (!length &&
         loong_recipe_is_set(t->recipe, "train.global_batch_size"))) {
        return LOONG_OK;
    }
    most = most > 0 ? most : ROW_MOST;
    if (!t->plan.plan_only || t->plan.judge) {
        return measure_samples(t, most, length);
    }
    LOONG_TRY(length ? set_length(t, LOONG_MIN(most, ROW_LEAST),
                                  "training_phase: sft")
                     : LOONG_OK);
    return loongi_complete_batch(&t->plan, STEP_SAMPLES);
}
