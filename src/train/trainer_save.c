/* SPDX-License-Identifier: Apache-2.0
 *
 * Native checkpoints of a run: its state, and when they are written and read.
 * Called by trainer_run.c and resume.c. Read component_native.h before. */
#include <stdio.h>
#include <string.h>

#include "adapter_start.h"
#include "component_native.h"
#include "file.h"
#include "from_hf.h"
#include "loong/checkpoint.h"
#include "moments.h"
#include "native_dir.h"
#include "resume_check.h"
#include "trainer_impl.h"

enum { PATH_SIZE = 4096 };

/* ---- communication for the checkpoint module ----------------------------- */

static loong_status_t gather(void *user, const void *mine, size_t bytes,
                             void *all)
{
    return loong_comm_gather(user, mine, bytes, all, 0, "checkpoint");
}

static loong_status_t broadcast(void *user, void *data, size_t bytes)
{
    return loong_comm_broadcast(user, data, bytes, 0, "checkpoint");
}

/* ---- metadata ------------------------------------------------------------ */

static const char *params_dtype(const loong_trainer_t *t)
{
    return loong_dtype_name(t->component->params.precision.compute);
}

/* Updates that left a component out, which its age does not count. */
static const char *idle_key(const loong_trainer_t *t, int component,
                            char key[64])
{
    snprintf(key, 64, "idle_updates.%s",
             t->model->components[component]->params.name);
    return key;
}

static loong_status_t fill_metadata(loong_trainer_t *t, loong_pairs_t *meta)
{
    char window[LOONG_WINDOW_TEXT];
    loongi_window_print(&t->report.losses, window);
    LOONG_TRY(loongi_resume_describe(t->recipe, params_dtype(t), meta));
    LOONG_TRY(loongi_pairs_set(meta, "loss_window", window));
    LOONG_TRY(loongi_pairs_set_int(meta, "step", t->state.step));
    LOONG_TRY(loongi_pairs_set_int(meta, "consumed_samples",
                                   t->state.consumed_samples));
    LOONG_TRY(loongi_pairs_set_int(meta, "updates", t->state.updates));
    for (int i = 0; i < t->model->num_components; i++) {
        char key[64];
        if (t->upstream.idle[i] > 0) {
            LOONG_TRY(loongi_pairs_set_int(meta, idle_key(t, i, key),
                                           t->upstream.idle[i]));
        }
    }
    for (int64_t i = 0; t->saving.artifacts.hf_fields != NULL &&
                        i < t->saving.artifacts.hf_fields->count;
         i++) {
        const loong_pair_t *field = &t->saving.artifacts.hf_fields->items[i];
        LOONG_TRY(loongi_pairs_set(meta, field->key, field->value));
    }
    for (int i = 0; i < t->model->num_components; i++) {
        LOONG_TRY(
            loongi_adapter_metadata(t->model->components[i], meta));
    }
    LOONG_TRY(
        loongi_pairs_set(meta, "data", loong_blend_describe(t->data.blend)));
    for (int c = 0; c < t->keys.count; c++) {
        for (int64_t i = 0; i < t->keys.keys[c]->count; i++) {
            char key[256];
            const loong_pair_t *pair = &t->keys.keys[c]->items[i];
            snprintf(key, sizeof(key), "model.%s.%s", t->keys.role[c],
                     pair->key);
            LOONG_TRY(loongi_pairs_set(meta, key, pair->value));
        }
    }
    return LOONG_OK;
}

/* ---- saving -------------------------------------------------------------- */

static loong_status_t begin_save(loong_trainer_t *t, loong_pairs_t *meta)
{
    loong_checkpoint_comm_t comm = {loong_comm_rank(t->comm),
                                    loong_comm_size(t->comm), t->comm, gather,
                                    broadcast};
    loong_checkpoint_save_params_t params;
    memset(&params, 0, sizeof(params));
    params.dir = t->set.save_dir;
    params.step = t->state.step;
    params.comm = &comm;
    params.metadata = meta;
    params.files = t->saving.artifacts.files;
    params.async = t->set.async_save;
    params.keep_last = t->set.keep_last;
    LOONG_TRY(fill_metadata(t, meta));
    LOONG_TRY(loongi_checkpoint_save_begin(t->ctx, &params, &t->saving.save));
    loong_piece_writer_t to = {t->saving.save, t->plan.device, t->saving.stream,
                               meta->arena};
    for (int i = 0; i < t->model->num_components; i++) {
        LOONG_TRY(loongi_component_write(t->model->components[i], &to));
    }
    return loongi_checkpoint_save_start(t->saving.save);
}

/* The checkpoint is whole, or it failed. */
static loong_status_t end_save(loong_trainer_t *t, loong_status_t status)
{
    if (status == LOONG_OK) {
        status = loongi_report_save(&t->report, t->saving.save,
                                    t->saving.saved_step, t->saving.stall);
    }
    loongi_checkpoint_save_destroy(&t->saving.save);
    loongi_pairs_destroy(&t->saving.metadata);
    LOONG_TRY(status);
    return loongi_supervise_saved(&t->supervision, t->set.save_dir,
                                  t->saving.saved_step);
}

loong_status_t loongi_trainer_advance_save(loong_trainer_t *t)
{
    bool whole = false;
    double begin = loongi_now();
    loong_status_t status =
        loongi_checkpoint_save_advance(t->saving.save, &whole);
    t->saving.stall += loongi_now() - begin;
    return whole || status != LOONG_OK ? end_save(t, status) : LOONG_OK;
}

loong_status_t loongi_trainer_finish_save(loong_trainer_t *t)
{
    while (t->saving.save != NULL) {
        LOONG_TRY(loongi_trainer_advance_save(t));
    }
    return LOONG_OK;
}

/* The directory of a step in checkpoint.save. */
static void step_path(const loong_trainer_t *t, int64_t step,
                      char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%s/" LOONG_STEP_FORMAT, t->set.save_dir,
             (long long)step);
}

loong_status_t loongi_trainer_save(loong_trainer_t *t)
{
    if (t->saving.saved_step == t->state.step) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_trainer_finish_save(t));
    loongi_trainer_renew(t);
    double begin = loongi_now();
    LOONG_TRY(loongi_pairs_create(t->ctx, &t->saving.metadata));
    LOONG_TRY(loong_device_synchronize(t->plan.device, "a checkpoint"));
    LOONG_TRY(begin_save(t, t->saving.metadata));
    t->saving.saved_step = t->state.step;
    t->saving.stall = loongi_now() - begin;
    return t->set.async_save ? LOONG_OK : loongi_trainer_finish_save(t);
}

/* ---- loading ------------------------------------------------------------- */

loong_status_t loongi_trainer_check_resume(loong_trainer_t *t,
                                           loong_checkpoint_t *ck)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(ck);
    const char *data = loongi_pairs_get(meta, "data");
    if (loong_comm_rank(t->comm) == 0) {
        loongi_resume_warn_extensions(meta, t->recipe);
    }
    if (loongi_pairs_get(meta, "recipe") != NULL) {
        LOONG_TRY(loongi_resume_check(meta, t->recipe, &t->keys,
                                      params_dtype(t), t->plan.evaluate_only));
    } else {
        LOONG_TRY(loongi_check_import(t->ctx, t->recipe, meta));
    }
    if (data != NULL && !t->plan.evaluate_only &&
        !loong_recipe_may_change(t->recipe, "data")) {
        loong_status_t status = loong_blend_compare(t->data.blend, data);
        if (status != LOONG_OK) {
            loongi_error_note(t->ctx, "resume.override: [data] goes on with "
                                      "changed data");
            return status;
        }
    }
    for (int i = 0; i < t->model->num_components; i++) {
        LOONG_TRY(loongi_adapter_check_base(t->model->components[i], ck));
    }
    return loongi_moments_check(t->model, ck, t->set.load_optim);
}

/* What was loaded is this run's own step: there is no need to save it. */
static bool is_own(const loong_trainer_t *t, const loong_checkpoint_t *ck)
{
    char path[PATH_SIZE];
    if (t->set.save_dir == NULL) {
        return false;
    }
    step_path(t, t->state.step, path);
    return loongi_file_same(path, loongi_checkpoint_path(ck));
}

/* Moments that begin at 0 have seen none. */
static void load_updates(loong_trainer_t *t, const loong_pairs_t *meta)
{
    for (int i = 0; i < t->model->num_components; i++) {
        char key[64];
        if (t->set.load_optim) {
            (void)loongi_pairs_int(meta, idle_key(t, i, key),
                                   &t->upstream.idle[i]);
        }
    }
    if (t->set.load_optim &&
        !loongi_pairs_int(meta, "updates", &t->state.updates)) {
        t->state.updates = t->state.step;
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "the checkpoint does not count updates: as many as steps, "
                   "%lld, are taken to be in its moments",
                   (long long)t->state.step);
    }
}

loong_status_t loongi_trainer_load(loong_trainer_t *t, loong_checkpoint_t *ck)
{
    const loong_pairs_t *meta = loongi_checkpoint_metadata(ck);
    char took[LOONG_HUMAN_SIZE];
    char all[LOONG_HUMAN_SIZE];
    if (t->set.load_optim) {
        loongi_moments_tell(t->component, ck);
    }
    for (int i = 0; i < t->model->num_components; i++) {
        LOONG_TRY(loongi_component_read(t->model->components[i], ck,
                                        t->set.load_optim, t->set.seed));
    }
    LOONG_TRY(loong_comm_barrier(t->comm, "resume")); /* all have loaded */
    loongi_pairs_int(meta, "step", &t->state.step);
    loongi_pairs_int(meta, "consumed_samples", &t->state.consumed_samples);
    load_updates(t, meta);
    const char *window = loongi_pairs_get(meta, "loss_window");
    LOONG_CHECK(t->ctx,
                window == NULL ||
                    loongi_window_read(window, &t->report.losses),
                LOONG_ERR_FORMAT, "%s: loss_window is no list of losses",
                loongi_checkpoint_path(ck));
    t->saving.saved_step = is_own(t, ck) ? t->state.step : -1;
    t->saving.loaded_bytes = loongi_checkpoint_bytes_read(ck);
    loongi_log(t->ctx, LOONG_LOG_INFO,
               "resumed from %s at step %lld: this rank took %s of %s",
               loongi_checkpoint_path(ck), (long long)t->state.step,
               loongi_human_bytes((double)t->saving.loaded_bytes, took),
               loongi_human_bytes((double)loongi_checkpoint_bytes(ck), all));
    return LOONG_OK;
}

/* ---- export -------------------------------------------------------------- */

loong_status_t loong_trainer_export(loong_trainer_t *trainer, const char *dir)
{
    loong_trainer_t *t = trainer;
    LOONG_CHECK(t->ctx, t->set.save_dir != NULL, LOONG_ERR_CONFIG,
                "export.hf goes through a checkpoint: set checkpoint.save");
    LOONG_TRY(loongi_trainer_save(t));
    LOONG_TRY(loongi_trainer_finish_save(t));
    loong_status_t status = LOONG_OK;
    if (loong_comm_rank(t->comm) == 0) {
        char path[PATH_SIZE];
        loong_checkpoint_export_params_t params;
        step_path(t, t->state.step, path); /* `latest` may be another one */
        memset(&params, 0, sizeof(params));
        params.checkpoint = path;
        params.out_dir = dir;
        params.as = loong_recipe_text(t->recipe, "export.as");
        params.ema = loong_recipe_bool(t->recipe, "export.ema");
        params.merge = loong_recipe_bool(t->recipe, "export.merge");
        params.bos_token_id = params.eos_token_id = params.pad_token_id = -1;
        status = loong_checkpoint_export(t->ctx, &params);
    }
    LOONG_TRY(loong_comm_barrier(t->comm, "export"));
    return status;
}
