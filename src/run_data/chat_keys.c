/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of its conversations. Called by open_data.c. Read
 * run_data.h and loong/chat.h before. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "loong/chat.h"
#include "run_data.h"

enum { MAX_TAGS = 16 };

static const char date_key[] = "data.chat.date";

/* What data.chat says; texts are the recipe's. */
typedef struct chat_keys {
    loong_chat_options_t options;
    const char *tags[MAX_TAGS];
} chat_keys_t;

static loong_status_t read_chat(const loong_run_data_t *d, chat_keys_t *keys)
{
    const loong_recipe_t *r = d->plan->recipe;
    int64_t tags = loong_recipe_count(r, "data.chat.tags");
    LOONG_CHECK(d->plan->ctx, tags <= MAX_TAGS, LOONG_ERR_CONFIG,
                "data.chat.tags: %lld, there are fewer names", (long long)tags);
    for (int64_t i = 0; i < tags; i++) {
        char key[64];
        snprintf(key, sizeof(key), "data.chat.tags[%lld]", (long long)i);
        keys->tags[i] = loong_recipe_text(r, key);
    }
    keys->options =
        (loong_chat_options_t){.tags = keys->tags, .num_tags = tags};
    LOONG_FILL(r, "", loong_chat_options_t, &keys->options);
    return LOONG_OK;
}

bool loongi_run_data_is_chat(const char *source_class)
{
    return strcmp(source_class, "chat") == 0 ||
           strcmp(source_class, "image_chat") == 0;
}

bool loongi_run_data_has_chat(const loong_run_data_t *d)
{
    static const char *const lists[] = {"data.train", "data.validation"};
    const loong_recipe_t *r = d->plan->recipe;
    bool has = strcmp(loong_recipe_text(r, "training_phase"), "sft") == 0;
    for (int l = 0; l < 2; l++) {
        for (int64_t i = 0; i < loong_recipe_count(r, lists[l]); i++) {
            const char *name = loongi_run_data_source_class(d, lists[l], i);
            has = has || (name != NULL && loongi_run_data_is_chat(name));
        }
    }
    return has;
}

loong_status_t loongi_run_data_complete_date(loong_run_data_t *d)
{
    char day[16] = "";
    struct tm local;
    time_t now = time(NULL);
    if (!loongi_run_data_has_chat(d) ||
        loong_recipe_is_set(d->plan->recipe, date_key)) {
        return LOONG_OK;
    }
    localtime_r(&now, &local);
    (void)strftime(day, sizeof(day), "%Y-%m-%d", &local);
    LOONG_TRY(loong_comm_broadcast(d->plan->comm, day, sizeof(day), 0,
                                   "the day of a run"));
    return loong_recipe_set(d->plan->recipe, date_key, day,
                            "the day on which the run began");
}

loong_status_t loongi_run_data_create_blend(loong_run_data_t *d,
                                            loong_blend_params_t *params,
                                            loong_blend_t **blend_p)
{
    chat_keys_t chat;
    bool wanted = false;
    for (int64_t i = 0; i < params->num_sources; i++) {
        wanted =
            wanted || loongi_run_data_is_chat(params->sources[i].class_name);
    }
    if (wanted) {
        LOONG_TRY(read_chat(d, &chat));
        params->chat = &chat.options;
    }
    return loong_blend_create(d->plan->ctx, params, blend_p);
}
