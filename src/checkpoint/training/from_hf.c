/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of a model as config.json of a directory says them. Called by
 * trainer_create.c, trainer_save.c and artifacts.c. Read from_hf.h before. */
#include "from_hf.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_composite.h"
#include "hf_config.h"
#include "hf_files.h"
#include "loong/tokenizer.h"
#include "problems.h"
#include "recipe_impl.h"
#include "resume_check.h"
#include "view.h"

#define MODEL_KEY "model.foundation"

static loong_status_t add_set(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

/* Of training, or of what reads the model, not of it: no config.json means one
 * for it. */
static bool is_of_training(const char *key)
{
    static const char *const keys[] = {
        "make_vocab_size_divisible_by", "mla_absorb",
        "moe_expert_capacity_factor", "moe_token_drop_policy",
        "moe_router_force_load_balancing", "feature_layer",
        "select_class_token"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return loongi_is_of_learning(key);
}

/* The recipe that is filled. */
typedef struct adoption {
    loong_context_t *ctx;
    loong_recipe_t *recipe;
    const char *dir;
    const char *role;          /* of the component */
    const loong_pairs_t *read; /* from its config.json */
} adoption_t;

/* A key of config.json that belongs to a value which the recipe replaces: it
 * would have no effect. */
static bool is_replaced(const adoption_t *a, const char *key)
{
    static const char type[] = MODEL_KEY ".rope_scaling.type";
    static const char window[] = MODEL_KEY ".window_size";
    const loong_recipe_t *r = a->recipe;
    const char *theirs = loongi_pairs_get(a->read, "rope_scaling.type");
    if (strncmp(key, "rope_scaling.", 13) == 0) {
        return loong_recipe_is_set(r, type) &&
               strcmp(loong_recipe_text(r, type),
                      theirs != NULL ? theirs : "none") != 0;
    }
    return strcmp(key, "max_window_layers") == 0 &&
           loong_recipe_is_set(r, window) && loong_recipe_int(r, window) == 0;
}

/* The recipe holds against config.json, but not silently: what it sets is
 * compared with all that config.json means, defaults included. theirs, ours:
 * what is read without and with the keys of the recipe, filled. */
static void tell_overrides(const adoption_t *a, const loong_pairs_t *theirs,
                           const loong_pairs_t *ours)
{
    for (int64_t i = 0; i < ours->count; i++) {
        char path[256];
        const char *key = ours->items[i].key;
        const char *means = loongi_pairs_get(theirs, key);
        const char *written = loongi_pairs_get(a->read, key);
        snprintf(path, sizeof(path), "model.%s.%s", a->role, key);
        if (loong_recipe_is_set(a->recipe, path) &&
            (written != NULL || !is_of_training(key)) &&
            (means == NULL ||
             !loongi_recipe_same(loongi_recipe_find(a->recipe, path),
                                 ours->items[i].value, means))) {
            loongi_log(a->ctx, LOONG_LOG_WARN,
                       "%s: %s (%s) holds, %s/config.json means %s", path,
                       loong_recipe_text(a->recipe, path),
                       loong_recipe_where(a->recipe, path), a->dir,
                       written != NULL ? written
                       : means != NULL ? means
                                       : "none");
        }
    }
}

static loong_status_t compare(const adoption_t *a, loong_pairs_t *theirs,
                              loong_pairs_t *ours)
{
    for (int64_t i = 0; i < a->read->count; i++) {
        const loong_pair_t *pair = &a->read->items[i];
        LOONG_TRY(loongi_pairs_set(theirs, pair->key, pair->value));
        if (!is_replaced(a, pair->key)) {
            LOONG_TRY(loongi_pairs_set(ours, pair->key, pair->value));
        }
    }
    LOONG_TRY(loongi_each_model_key(a->recipe, a->role, add_set, ours));
    if (loongi_model_fill(a->ctx, theirs) != LOONG_OK ||
        loongi_model_fill(a->ctx, ours) != LOONG_OK) {
        loong_context_clear_error(a->ctx); /* configuring will say it again */
        return LOONG_OK;
    }
    tell_overrides(a, theirs, ours);
    return LOONG_OK;
}

static loong_status_t compare_with_recipe(const adoption_t *a)
{
    loong_pairs_t *theirs = NULL;
    loong_pairs_t *ours = NULL;
    loong_status_t status = loongi_pairs_create(a->ctx, &theirs);
    if (status == LOONG_OK) {
        status = loongi_pairs_create(a->ctx, &ours);
    }
    if (status == LOONG_OK) {
        status = compare(a, theirs, ours);
    }
    loongi_pairs_destroy(&ours);
    loongi_pairs_destroy(&theirs);
    return status;
}

/* Sets what the recipe does not say itself. */
static loong_status_t set_keys(const adoption_t *a,
                               const loong_pairs_t *origins)
{
    for (int64_t i = 0; i < a->read->count; i++) {
        const loong_pair_t *pair = &a->read->items[i];
        char path[256];
        snprintf(path, sizeof(path), "model.%s.%s", a->role, pair->key);
        if (!loong_recipe_is_set(a->recipe, path) &&
            !is_replaced(a, pair->key)) {
            LOONG_TRY(loong_recipe_set(a->recipe, path, pair->value,
                                       loongi_pairs_get(origins, pair->key)));
        }
    }
    return LOONG_OK;
}

/* What the directory has is the component that is asked for. */
static loong_status_t find_role(adoption_t *a, const char *key)
{
    const char *role = loongi_view_role(a->ctx, a->read);
    a->role = a->role != NULL ? a->role : role;
    LOONG_CHECK(a->ctx, strcmp(loong_recipe_role_kind(a->role), role) == 0,
                LOONG_ERR_CONFIG,
                "%s: %s: '%s' has a model of family %s, which model.%s has not",
                loong_recipe_where(a->recipe, key), key, a->dir,
                loongi_pairs_get(a->read, "family"), a->role);
    return LOONG_OK;
}

/* From the config.json that a key of the recipe names; without `sets` it is
 * compared alone. */
static loong_status_t adopt(adoption_t a, const char *key, bool tells,
                            bool sets)
{
    loong_context_t *ctx = a.ctx;
    loong_recipe_t *recipe = a.recipe;
    loong_pairs_t *origins = NULL;
    loong_pairs_t *pairs = NULL;
    a.dir = key != NULL ? loong_recipe_text(recipe, key) : NULL;
    if (a.dir == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_create(ctx, &origins));
    loong_status_t status =
        loongi_hf_config_trace(
            ctx, a.dir, a.role != NULL ? loong_recipe_role_kind(a.role) : NULL,
            origins, &pairs);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "wanted by %s (%s)", key,
                          loong_recipe_where(recipe, key));
    }
    a.read = pairs;
    if (status == LOONG_OK) {
        status = find_role(&a, key);
    }
    if (status == LOONG_OK && tells) {
        status = compare_with_recipe(&a);
    }
    if (status == LOONG_OK && sets) {
        status = set_keys(&a, origins);
    }
    loongi_pairs_destroy(&pairs);
    loongi_pairs_destroy(&origins);
    return status;
}

/* A key that nobody set, of a directory of several components. */
static loong_status_t set_open(loong_recipe_t *recipe, const char *path,
                               const char *value, const char *dir)
{
    loong_text_t origin = loongi_text_begin(recipe->ctx);
    loongi_text_printf(&origin, "%s/config.json", dir);
    loong_status_t status = origin.status;
    if (status == LOONG_OK && !loong_recipe_is_set(recipe, path)) {
        status = loong_recipe_set(recipe, path, value, origin.data);
    }
    loongi_text_free(&origin);
    return status;
}

/* How the recipe's tokenizer calls an id: an added token almost always, for
 * which its vocabulary need not be loaded. "": it has none. */
static void name_mark(loong_context_t *ctx, const char *path, int32_t id,
                      size_t room, char *mark)
{
    loong_tokenizer_t *whole = NULL;
    if (loong_tokenizer_peek(ctx, path, id, room, mark) == LOONG_OK &&
        mark[0] == '\0' &&
        loong_tokenizer_load(ctx, path, &whole) == LOONG_OK) {
        const char *text = loong_tokenizer_id_to_token(whole, id);
        snprintf(mark, room, "%s", text != NULL ? text : "");
    }
    loong_context_clear_error(ctx); /* who reads texts tells it */
    loong_tokenizer_destroy(&whole);
}

/* The one whose id config.json says, as the recipe's tokenizer calls it; else
 * that of the family. */
static loong_status_t set_mark(loong_recipe_t *recipe,
                               const loong_hf_composite_t *composite,
                               const char *dir)
{
    static const char key[] = "data.image_token";
    const char *named = loong_recipe_text(recipe, "data.tokenizer");
    const char *path = named != NULL ? named : dir;
    char mark[256] = "";
    int64_t id = -1;
    if (loong_recipe_is_set(recipe, key)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_composite_image_id(recipe->ctx, composite, dir, &id));
    if (id >= 0 && id <= INT32_MAX && strcmp(path, "bytes") != 0) {
        name_mark(recipe->ctx, path, (int32_t)id, sizeof(mark), mark);
    }
    return set_open(recipe, key,
                    mark[0] != '\0' ? mark : composite->image_token, dir);
}

/* Which tokens go to the experts for pictures. */
static loong_status_t set_types(loong_recipe_t *recipe,
                                const loong_hf_composite_t *composite,
                                const char *dir)
{
    loong_text_t ids = loongi_text_begin(recipe->ctx);
    loong_status_t status =
        loongi_hf_composite_vision_ids(recipe->ctx, composite, dir, &ids);
    if (status == LOONG_OK && ids.length > 0) {
        status = set_open(recipe, "data.vision_token_ids", ids.data, dir);
    }
    loongi_text_free(&ids);
    return status;
}

/* What stands for pictures and videos in texts. */
static loong_status_t set_marks(loong_recipe_t *recipe,
                                const loong_hf_composite_t *composite,
                                const char *dir)
{
    LOONG_TRY(set_mark(recipe, composite, dir));
    LOONG_TRY(set_types(recipe, composite, dir));
    return composite->video_token != NULL
               ? set_open(recipe, "data.video_token", composite->video_token,
                          dir)
               : LOONG_OK;
}

/* The first of these files that is there says how; or config.json does. */
static loong_status_t set_processor(loong_recipe_t *recipe,
                                    const loong_hf_composite_t *composite,
                                    const char *dir, const char *key,
                                    const char *const *names)
{
    for (; *names != NULL; names++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", dir,
                 composite->states_processor ? "config.json" : *names);
        if (loongi_file_exists(path)) {
            return set_open(recipe, key, path, dir);
        }
    }
    return LOONG_OK;
}

/* How the model's pictures and videos are processed. */
static loong_status_t set_processors(loong_recipe_t *recipe,
                                     const loong_hf_composite_t *composite,
                                     const char *dir)
{
    static const char *const videos[] = {LOONG_HF_VIDEO_PROCESSOR,
                                         "processor_config.json",
                                         LOONG_HF_IMAGE_PROCESSOR, NULL};
    LOONG_TRY(set_marks(recipe, composite, dir));
    LOONG_TRY(composite->video_token != NULL
                  ? set_processor(recipe, composite, dir,
                                  "data.video_processor", videos)
                  : LOONG_OK);
    return set_processor(recipe, composite, dir, "data.image_processor",
                         loongi_hf_image_processors);
}

static loong_status_t adopt_parts(const adoption_t *from, const char *key,
                                  const loong_hf_composite_t *composite,
                                  bool tells, bool sets)
{
    const char *dir = loong_recipe_text(from->recipe, key);
    for (int i = 0; i < LOONG_HF_PARTS; i++) {
        adoption_t a = *from;
        char init[64];
        a.role = composite->parts[i].role;
        snprintf(init, sizeof(init), "model.%s.init.from_hf", a.role);
        LOONG_TRY(adopt(a, key, tells, sets));
        if (sets && i < LOONG_HF_PART_LOSS &&
            strcmp(key, "init.from_hf") == 0) {
            LOONG_TRY(set_open(from->recipe, init, dir, dir));
        }
    }
    return LOONG_OK;
}

/* Every component of a directory of several, unless it has one of its own; all,
 * or where one is wrong none, by which the rest of the recipe were judged. */
static loong_status_t adopt_whole(const adoption_t *from, const char *key,
                                  bool tells, bool *whole_p)
{
    loong_recipe_t *recipe = from->recipe;
    const char *dir = loong_recipe_text(recipe, key);
    const loong_hf_composite_t *composite = NULL;
    *whole_p = false;
    if (dir == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_composite_of(from->ctx, dir, &composite));
    *whole_p = composite != NULL;
    if (composite == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(adopt_parts(from, key, composite, false, false));
    LOONG_TRY(adopt_parts(from, key, composite, tells, true));
    return set_processors(recipe, composite, dir);
}

/* Of components of several directories, those of whole models among them: as
 * the one says that the language model is from. */
static loong_status_t adopt_marks(loong_recipe_t *recipe, const char *key)
{
    const char *dir = key != NULL ? loong_recipe_text(recipe, key) : NULL;
    const loong_hf_composite_t *composite = NULL;
    if (dir == NULL || loong_recipe_component(recipe, 1) == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_composite_of(recipe->ctx, dir, &composite));
    return composite != NULL ? set_marks(recipe, composite, dir) : LOONG_OK;
}

loong_status_t loongi_recipe_fill_loss(loong_context_t *ctx,
                                       loong_recipe_t *recipe)
{
    const char *key = loong_recipe_is_set(recipe, "model.from_hf")
                          ? "model.from_hf"
                          : "init.from_hf";
    const char *dir = loong_recipe_text(recipe, key);
    const loong_hf_composite_t *composite = NULL;
    if (dir == NULL || loong_recipe_reads_texts(recipe)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_composite_of(ctx, dir, &composite));
    adoption_t a = {ctx, recipe, NULL, NULL, NULL};
    if (composite == NULL) {
        return LOONG_OK;
    }
    a.role = composite->parts[LOONG_HF_PART_LOSS].role;
    return adopt(a, key, false, true);
}

loong_status_t loongi_recipe_fill(loong_context_t *ctx,
                                  loong_recipe_t *recipe, bool tells)
{
    /* What a model's file leaves out it does not have: nothing comes from the
     * file of the weights then. */
    const char *key = loong_recipe_init_key(recipe, NULL);
    const char *model = loong_recipe_text(recipe, "model.from_hf");
    bool same = model != NULL && key != NULL &&
                strcmp(model, loong_recipe_text(recipe, key)) == 0;
    bool whole = false;
    adoption_t a = {ctx, recipe, NULL, NULL, NULL};
    a.role = loong_recipe_component(recipe, 0);
    for (int64_t i = 1; loong_recipe_component(recipe, i) != NULL; i++) {
        LOONG_TRY(adopt(a, loong_recipe_init_key(recipe, a.role), tells, true));
        a.role = loong_recipe_component(recipe, i);
    }
    LOONG_TRY(adopt_whole(&a, "model.from_hf", tells, &whole));
    LOONG_TRY(whole ? LOONG_OK : adopt(a, "model.from_hf", tells, true));
    if (key != NULL && strcmp(key, "init.from_hf") == 0) {
        LOONG_TRY(adopt_whole(&a, key, tells && !same, &whole));
        if (whole) {
            return LOONG_OK;
        }
    }
    LOONG_TRY(same ? LOONG_OK : adopt(a, key, tells, model == NULL));
    return adopt_marks(recipe, key);
}

/* ---- imported checkpoints ------------------------------------------------ */

static void judge_key(loong_context_t *ctx, const loong_recipe_t *recipe,
                      const char *key, const char *before, const char *now,
                      loong_problems_t *problems)
{
    char path[256];
    now = now != NULL ? now : "not set";
    snprintf(path, sizeof(path), "model.%s.%s", loongi_model_role(recipe), key);
    if (is_of_training(key) ||
        loongi_recipe_same(loongi_recipe_find(recipe, path), before, now)) {
        return;
    }
    if (loong_recipe_may_change(recipe, path)) {
        loongi_log(ctx, LOONG_LOG_INFO,
                   "other than in the checkpoint: %s: %s -> %s "
                   "(resume.override)",
                   path, before, now);
    } else {
        loongi_problems_add(problems, "%s: %s in the checkpoint, now %s", path,
                            before, now);
    }
}

/* Keys of another family mean other things. */
static loong_status_t judge_import(loong_context_t *ctx,
                                   const loong_recipe_t *recipe,
                                   loong_pairs_t *theirs, loong_pairs_t *ours)
{
    const char *family = loongi_pairs_get(theirs, "family");
    const char *now = loongi_pairs_get(ours, "family");
    bool same = family != NULL && now != NULL && strcmp(family, now) == 0;
    if (same) {
        LOONG_TRY(loongi_model_fill(ctx, theirs));
        LOONG_TRY(loongi_model_fill(ctx, ours));
    }
    loong_problems_t problems = loongi_problems_begin(ctx);
    for (int64_t i = 0; i < theirs->count; i++) {
        const loong_pair_t *pair = &theirs->items[i];
        if (same || strcmp(pair->key, "family") == 0) {
            judge_key(ctx, recipe, pair->key, pair->value,
                      loongi_pairs_get(ours, pair->key), &problems);
        }
    }
    return loongi_problems_end(
        &problems, LOONG_ERR_MISMATCH,
        "another model than was imported; what is meant goes into "
        "resume.override");
}

static loong_status_t compare_import(loong_context_t *ctx,
                                     const loong_recipe_t *recipe,
                                     const loong_pairs_t *meta,
                                     loong_pairs_t *theirs, loong_pairs_t *ours)
{
    LOONG_TRY(loongi_view_model_keys(meta, loongi_model_role(recipe), theirs));
    if (theirs->count == 0) { /* weights alone: names and shapes have to do */
        return LOONG_OK;
    }
    LOONG_TRY(loongi_each_model_key(recipe, loongi_model_role(recipe), add_set,
                                    ours));
    return judge_import(ctx, recipe, theirs, ours);
}

loong_status_t loongi_check_import(loong_context_t *ctx,
                                   const loong_recipe_t *recipe,
                                   const loong_pairs_t *meta)
{
    loong_pairs_t *theirs = NULL;
    loong_pairs_t *ours = NULL;
    loong_status_t status = loongi_pairs_create(ctx, &theirs);
    if (status == LOONG_OK) {
        status = loongi_pairs_create(ctx, &ours);
    }
    if (status == LOONG_OK) {
        status = compare_import(ctx, recipe, meta, theirs, ours);
    }
    loongi_pairs_destroy(&ours);
    loongi_pairs_destroy(&theirs);
    return status;
}

const char *loongi_recipe_hf_dir(const loong_recipe_t *recipe)
{
    const char *key = loong_recipe_init_key(recipe, NULL);
    return loong_recipe_text(recipe, key != NULL ? key : "model.from_hf");
}
