/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes into every checkpoint of a run beside its state: the files of the
 * tokenizer, Python files of the model, ids of tokens, what config.json says of
 * parts that the engine does not have. All is read at the
 * start, from the directories that the recipe names, else from the checkpoint
 * that the run goes on from; they may be gone when it saves. Called by
 * preflight.c and export_check.c. Read hf_files.h before. */
#include "artifacts.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "from_hf.h"
#include "hf_code.h"
#include "hf_composite.h"
#include "hf_extra.h"
#include "hf_files.h"
#include "hf_tokens.h"
#include "native.h"
#include "resume_check.h"

/* ---- the checkpoint that the run goes on from ---------------------------- */

/* NULL where it cannot be read, or the files that it keeps, if they are wanted,
 * are not what was saved: the load tells that. */
static loong_checkpoint_t *open_right(loong_context_t *ctx, const char *path,
                                      bool files)
{
    loong_checkpoint_t *ck = NULL;
    if (loongi_checkpoint_open_part(ctx, path, 0, 0, &ck) != LOONG_OK ||
        (files && loongi_checkpoint_verify_hf(ck, false) != LOONG_OK)) {
        loong_context_clear_error(ctx);
        loongi_checkpoint_close(&ck);
    }
    return ck;
}

/* That of `auto`: the load passes over one that is damaged, too. */
static loong_checkpoint_t *open_newest(loong_context_t *ctx, const char *dir,
                                       bool files)
{
    loong_checkpoint_t *ck = NULL;
    loong_arena_t *arena = NULL;
    const char **names = NULL;
    int64_t count = 0;
    if (loongi_arena_create(ctx, "names of steps", &arena) != LOONG_OK ||
        loongi_checkpoint_steps(ctx, arena, dir, &names, &count) != LOONG_OK) {
        loong_context_clear_error(ctx);
    }
    for (int64_t i = 0; i < count && ck == NULL; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        ck = open_right(ctx, path, files);
    }
    loongi_arena_destroy(&arena);
    return ck;
}

/* NULL when there is none. */
static loong_checkpoint_t *
open_earlier(loong_context_t *ctx, const loong_recipe_t *recipe, bool files)
{
    const char *load = loong_recipe_text(recipe, "checkpoint.load");
    const char *save = loong_recipe_text(recipe, "checkpoint.save");
    if (load == NULL || strcmp(load, "auto") != 0) {
        return load != NULL && loongi_checkpoint_is_native(load)
                   ? open_right(ctx, load, files)
                   : NULL;
    }
    return save != NULL && loongi_checkpoint_is_native(save)
               ? open_newest(ctx, save, files)
               : NULL;
}

static const char *kept_dir(const loong_checkpoint_t *ck, char dir[PATH_MAX])
{
    snprintf(dir, PATH_MAX, "%s/hf", loongi_checkpoint_path(ck));
    return dir;
}

static bool same_family(const loong_recipe_t *recipe, const loong_pairs_t *meta)
{
    char key[64];
    const char *role = loongi_model_role(recipe);
    snprintf(key, sizeof(key), "model.%s.family", role);
    const char *ours = loongi_model_family(recipe, role);
    const char *its = loongi_pairs_get(meta, key);
    return ours != NULL && its != NULL && strcmp(ours, its) == 0;
}

static loong_status_t take_known(loong_pairs_t *pairs,
                                 const loong_pairs_t *meta, const char *name)
{
    const char *value = loongi_pairs_get(meta, name);
    return value != NULL && loongi_pairs_get(pairs, name) == NULL
               ? loongi_pairs_set(pairs, name, value)
               : LOONG_OK;
}

/* ---- code of the model --------------------------------------------------- */

static loong_status_t code_of_dir(loong_context_t *ctx,
                                  const loong_recipe_t *recipe,
                                  loong_pairs_t *pairs, loong_file_set_t *files)
{
    const char *dir = loongi_recipe_hf_dir(recipe);
    if (dir == NULL) {
        return LOONG_OK;
    }
    const loong_hf_composite_t *composite = NULL;
    LOONG_TRY(loongi_hf_composite_of(ctx, dir, &composite));
    if (composite != NULL) {
        LOONG_TRY(loongi_hf_composite_keep(ctx, dir, pairs));
        LOONG_TRY(files != NULL ? loongi_hf_files_read(ctx, dir, files)
                                : LOONG_OK);
    }
    if (composite == NULL || loong_recipe_component(recipe, 1) == NULL) {
        LOONG_TRY(loongi_hf_code_read(
            ctx, dir, loongi_model_family(recipe, loongi_model_role(recipe)),
            pairs));
    }
    return files != NULL && loongi_hf_has_code(pairs)
               ? loongi_file_set_read_dir(files, dir, ".py")
               : LOONG_OK;
}

static loong_status_t code_of_earlier(const loong_recipe_t *recipe,
                                      const loong_checkpoint_t *ck,
                                      loong_pairs_t *pairs,
                                      loong_file_set_t *files)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(ck);
    char dir[PATH_MAX];
    if (!same_family(recipe, meta)) {
        return LOONG_OK;
    }
    bool known = loongi_hf_has_code(pairs);
    LOONG_TRY(loongi_hf_extra_take(meta, pairs));
    LOONG_TRY(loongi_hf_composite_take(meta, pairs));
    if (known) {
        return LOONG_OK;
    }
    LOONG_TRY(take_known(pairs, meta, LOONG_HF_AUTO_MAP));
    if (files == NULL || !loongi_hf_has_code(pairs)) {
        return LOONG_OK;
    }
    return loongi_file_set_read_dir(files, kept_dir(ck, dir), ".py");
}

loong_status_t loongi_artifacts_code(loong_context_t *ctx,
                                     const loong_recipe_t *recipe,
                                     loong_pairs_t *pairs)
{
    LOONG_TRY(code_of_dir(ctx, recipe, pairs, NULL));
    loong_checkpoint_t *ck = open_earlier(ctx, recipe, false);
    loong_status_t status =
        ck != NULL ? code_of_earlier(recipe, ck, pairs, NULL) : LOONG_OK;
    loongi_checkpoint_close(&ck);
    return status;
}

/* ---- all of it ----------------------------------------------------------- */

static loong_status_t keep_tokenizer_of(loong_context_t *ctx,
                                        const loong_recipe_t *recipe,
                                        const char *key,
                                        loong_artifacts_t *artifacts)
{
    loong_status_t status = loongi_hf_files_read_tokenizer(
        ctx, loong_recipe_text(recipe, key), artifacts->files);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "wanted by %s (%s)", key,
                          loong_recipe_where(recipe, key));
    }
    return status;
}

static loong_status_t keep_tokenizer(loong_context_t *ctx,
                                     const loong_recipe_t *recipe,
                                     const loong_checkpoint_t *earlier,
                                     loong_artifacts_t *artifacts)
{
    const char *named = loong_recipe_text(recipe, "data.tokenizer");
    const char *init = loong_recipe_init_key(recipe, NULL);
    char dir[PATH_MAX];
    if (named != NULL) {
        return strcmp(named, "bytes") != 0
                   ? keep_tokenizer_of(ctx, recipe, "data.tokenizer", artifacts)
                   : LOONG_OK;
    }
    if (init != NULL) {
        LOONG_TRY(loongi_hf_tokens_read(ctx, loong_recipe_text(recipe, init),
                                        artifacts->hf_fields));
        return keep_tokenizer_of(ctx, recipe, init, artifacts);
    }
    if (earlier == NULL) {
        return LOONG_OK;
    }
    for (int i = 0; i < LOONG_HF_TOKENS; i++) {
        LOONG_TRY(take_known(artifacts->hf_fields,
                             loongi_checkpoint_metadata(earlier),
                             loongi_hf_token_names[i]));
    }
    return loongi_dir_exists(kept_dir(earlier, dir))
               ? loongi_hf_files_read_tokenizer(ctx, dir, artifacts->files)
               : LOONG_OK;
}

loong_status_t loongi_artifacts_read(loong_context_t *ctx,
                                     const loong_recipe_t *recipe,
                                     loong_artifacts_t *artifacts)
{
    LOONG_TRY(loongi_pairs_create(ctx, &artifacts->hf_fields));
    LOONG_TRY(loongi_file_set_create(ctx, &artifacts->files));
    loong_checkpoint_t *ck = open_earlier(ctx, recipe, true);
    loong_status_t status = keep_tokenizer(ctx, recipe, ck, artifacts);
    if (status == LOONG_OK) {
        status =
            code_of_dir(ctx, recipe, artifacts->hf_fields, artifacts->files);
    }
    if (status == LOONG_OK && ck != NULL) {
        status =
            code_of_earlier(recipe, ck, artifacts->hf_fields, artifacts->files);
    }
    loongi_checkpoint_close(&ck);
    return status;
}

void loongi_artifacts_clear(loong_artifacts_t *artifacts)
{
    loongi_pairs_destroy(&artifacts->hf_fields);
    loongi_file_set_destroy(&artifacts->files);
}
