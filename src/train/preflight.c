/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run needs beside its recipe: tokenizer, data, weights, places to
 * write to. All that is wrong is told in one go. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preflight.h"
#include "stage_load.h"
#include "trainer_data.h"
#include "trainer_hf.h"

/* An evaluation scores weights that somebody has trained. */
static loong_status_t check_evaluation(const loong_trainer_t *t, bool begun)
{
    const char *load = loong_recipe_text(t->recipe, "checkpoint.load");
    const char *save = loong_recipe_text(t->recipe, "checkpoint.save");
    bool newest = load != NULL && strcmp(load, "auto") == 0;
    bool model = loong_recipe_text(t->recipe, "init.from_hf") != NULL;
    LOONG_CHECK(t->ctx, !newest || begun, LOONG_ERR_NOT_FOUND,
                "nothing to evaluate: checkpoint.load is auto, and "
                "checkpoint.save: %s has no checkpoint; checkpoint.load=DIR "
                "names one, init.from_hf without checkpoint.load a model",
                save != NULL ? save : "not set");
    LOONG_CHECK(t->ctx, load != NULL || !begun, LOONG_ERR_CONFIG,
                "checkpoint.save: %s has checkpoints, checkpoint.load is not "
                "set: auto evaluates the newest, a directory the one in it; "
                "without checkpoint.save %s", save,
                model ? "the model of init.from_hf is evaluated"
                      : "there is nothing to evaluate");
    LOONG_CHECK(t->ctx, load != NULL || model, LOONG_ERR_CONFIG,
                "nothing to evaluate: set checkpoint.load (a directory, or "
                "auto for the newest checkpoint in checkpoint.save) or "
                "init.from_hf");
    return LOONG_OK;
}

loong_status_t loongi_find_weights(const loong_trainer_t *t,
                                   const char **load_p)
{
    const char *phase = loong_recipe_text(t->recipe, "training_phase");
    const char *hf = loong_recipe_text(t->recipe, "init.from_hf");
    const char *load = loong_recipe_text(t->recipe, "checkpoint.load");
    const char *save = loong_recipe_text(t->recipe, "checkpoint.save");
    bool begun = save != NULL && loongi_checkpoint_is_native(save);
    bool newest = load != NULL && strcmp(load, "auto") == 0;
    if (t->plan.evaluate_only) {
        LOONG_TRY(check_evaluation(t, begun));
    }
    LOONG_CHECK(t->ctx, load != NULL || !begun, LOONG_ERR_CONFIG,
                "checkpoint.save: %s has checkpoints of an earlier run: "
                "checkpoint.load=auto goes on with it, another directory or "
                "an empty one begins anew",
                save);
    load = newest && !begun ? NULL : load;
    LOONG_CHECK(t->ctx,
                load != NULL || hf != NULL || strcmp(phase, "midtrain") != 0,
                LOONG_ERR_CONFIG,
                "training_phase: midtrain goes on from trained weights; "
                "checkpoint.load is auto, and %s has no checkpoint yet: "
                "init.from_hf, or a directory in checkpoint.load the first "
                "time", save != NULL ? save : "checkpoint.save");
    *load_p = load;
    return LOONG_OK;
}

static loong_status_t check_hf(loong_trainer_t *t, const char *dir)
{
    loong_hf_t *model = NULL;
    LOONG_TRY(loongi_hf_open(t->ctx, dir, &model));
    loong_status_t status = loongi_component_check_hf(t->component, model);
    loongi_hf_close(&model);
    return status;
}

static loong_status_t check_weights(loong_trainer_t *t)
{
    const char *hf = loong_recipe_text(t->recipe, "init.from_hf");
    const char *load = NULL;
    LOONG_TRY(loongi_find_weights(t, &load));
    if (load != NULL) {
        loong_status_t status = loongi_trainer_resume(t, load, true);
        if (status != LOONG_OK) {
            loongi_error_note(t->ctx, "wanted by checkpoint.load (%s)",
                              loong_recipe_where(t->recipe, "checkpoint.load"));
        }
        return status;
    }
    return hf != NULL && t->component != NULL ? check_hf(t, hf) : LOONG_OK;
}

/* A directory that is not there yet is made in the nearest one that is: the
 * first of it is tried, and taken away again. */
static loong_status_t check_output(const loong_trainer_t *t, const char *key)
{
    char path[1024];
    char missing[1024] = "";
    const char *dir = loong_recipe_text(t->recipe, key);
    if (dir == NULL) {
        return LOONG_OK;
    }
    snprintf(path, sizeof(path), "%s", dir);
    while (access(path, F_OK) != 0 && strcmp(path, ".") != 0) {
        char *slash = strrchr(path, '/');
        memcpy(missing, path, sizeof(missing));
        if (slash == NULL) {
            snprintf(path, sizeof(path), ".");
        } else {
            slash[slash == path] = '\0';
        }
    }
    LOONG_CHECK(t->ctx, access(path, W_OK | X_OK) == 0, LOONG_ERR_CANNOT_WRITE,
                "%s: %s: %s cannot be written into", key, dir, path);
    if (missing[0] != '\0') {
        int made = mkdir(missing, 0777);
        LOONG_CHECK(t->ctx, made == 0 || errno == EEXIST,
                    LOONG_ERR_CANNOT_WRITE, "%s: %s: cannot create '%s': %s",
                    key, dir, missing, strerror(errno));
        if (made == 0) {
            rmdir(missing);
        }
    }
    return LOONG_OK;
}

/* ---- token ids ----------------------------------------------------------- */

enum { WINDOW_IDS = 1 << 15, MOST_IDS = 1 << 24 };

/* The index does not have the largest id. It is looked for in windows that lie
 * evenly in the source, `most` ids in all. */
static loong_status_t find_largest(loong_trainer_t *t,
                                   const loong_source_info_t *source,
                                   int64_t most, int32_t *ids)
{
    int64_t windows = LOONG_MAX(LOONG_MIN(most, source->tokens), 1);
    windows = (windows + WINDOW_IDS - 1) / WINDOW_IDS;
    int64_t room = source->tokens - windows * WINDOW_IDS;
    for (int64_t i = 0; i < windows; i++) {
        int64_t begin = i * WINDOW_IDS;
        begin += room > 0 && windows > 1 ? room / (windows - 1) * i : 0;
        int64_t count = LOONG_MIN(WINDOW_IDS, source->tokens - begin);
        LOONG_TRY(loong_dataset_read(source->dataset,
                                     source->first_token + begin, count,
                                     INT32_MAX, ids));
        for (int64_t k = 0; k < count; k++) {
            t->largest_id = LOONG_MAX(t->largest_id, ids[k]);
        }
        t->ids_read += count;
    }
    t->ids_there += source->tokens;
    return LOONG_OK;
}

static loong_status_t check_source(loong_trainer_t *t,
                                   const loong_blend_t *blend, int64_t index,
                                   int64_t most, int32_t *ids)
{
    int64_t vocab = t->component->facts.vocab_size;
    loong_blend_source_info_t source;
    loong_blend_get_source(blend, index, &source);
    if (source.info.dataset == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(find_largest(t, &source.info, most, ids));
    LOONG_CHECK(t->ctx, t->largest_id < vocab, LOONG_ERR_CONFIG,
                "data '%s' has token id %lld: model.foundation.vocab_size "
                "must be %lld or more, found %lld",
                source.info.path, (long long)t->largest_id,
                (long long)t->largest_id + 1, (long long)vocab);
    return LOONG_OK;
}

static int64_t sources_of(const loong_blend_t *blend)
{
    loong_blend_info_t info;
    memset(&info, 0, sizeof(info));
    if (blend != NULL) {
        loong_blend_get_info(blend, &info);
    }
    return info.num_sources;
}

/* Whether the model knows the ids of the data, as far as they are read. */
static loong_status_t check_ids(loong_trainer_t *t)
{
    const loong_blend_t *blends[LOONG_MAX_VALIDATION + 1] = {t->blend};
    int64_t count = sources_of(t->blend);
    int32_t *ids = NULL;
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < t->num_validation; i++) {
        blends[i + 1] = t->validation[i].blend;
        count += sources_of(blends[i + 1]);
    }
    LOONG_TRY(loongi_calloc(t->ctx, WINDOW_IDS, sizeof(*ids), "token ids",
                            &ids));
    for (int i = 0; i <= t->num_validation; i++) {
        for (int64_t k = 0; k < sources_of(blends[i]) && status == LOONG_OK;
             k++) {
            status = check_source(t, blends[i], k, MOST_IDS / count, ids);
        }
    }
    loongi_free(t->ctx, ids);
    return status;
}

/* ---- loss masks ---------------------------------------------------------- */

/* Reads up to the first token that carries loss. */
static loong_status_t find_loss(const loong_blend_t *blend, uint8_t *mask,
                                bool *found_p)
{
    for (int64_t k = 0; k < sources_of(blend); k++) {
        loong_blend_source_info_t whole;
        loong_blend_get_source(blend, k, &whole);
        const loong_source_info_t source = whole.info;
        int64_t count = 0;
        *found_p = *found_p || source.dataset == NULL;
        for (int64_t i = 0; i < source.tokens && !*found_p; i += count) {
            count = LOONG_MIN(WINDOW_IDS, source.tokens - i);
            LOONG_TRY(loong_dataset_read_mask(
                source.dataset, source.first_token + i, count, mask));
            *found_p = memchr(mask, 1, (size_t)count) != NULL;
        }
    }
    return LOONG_OK;
}

static loong_status_t check_masks(const loong_trainer_t *t)
{
    uint8_t *mask = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_calloc(t->ctx, WINDOW_IDS, 1, "loss mask", &mask));
    for (int i = 0; i < t->num_validation && status == LOONG_OK; i++) {
        bool found = t->validation[i].blend == NULL; /* that is told */
        status = find_loss(t->validation[i].blend, mask, &found);
        if (status == LOONG_OK && !found) {
            status = LOONG_FAIL(t->ctx, LOONG_ERR_CONFIG,
                                "data '%s': no token of it carries loss, "
                                "nothing to evaluate", t->validation[i].name);
        }
    }
    loongi_free(t->ctx, mask);
    return status;
}

loong_status_t loongi_preflight(loong_trainer_t *t)
{
    static const char *const outputs[] = {"checkpoint.save", "log.dir",
                                          "export.hf"};
    loong_status_t status = loongi_trainer_open_tokenizer(t);
    status = loongi_first_of(status, loongi_trainer_open_data(t));
    if (loong_comm_rank(t->comm) == 0) {
        status = loongi_first_of(status, check_masks(t));
    }
    if (loong_comm_rank(t->comm) != 0 ||
        (t->component != NULL && !t->plan.judge)) {
        return status;
    }
    if (t->blend != NULL && t->component != NULL) {
        int64_t samples = t->set.train_iters * t->set.global_batch_size;
        status = loongi_first_of(status,
                                 loong_blend_require(t->blend, samples));
    }
    if (t->component != NULL) {
        status = loongi_first_of(status, check_ids(t));
    }
    status = loongi_first_of(status, check_weights(t));
    for (int64_t i = 0; i < LOONG_COUNT_OF(outputs); i++) {
        status = loongi_first_of(status, check_output(t, outputs[i]));
    }
    return status;
}
