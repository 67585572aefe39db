/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving, the part of all ranks: opening the directory, and putting the ranks'
 * files together into a checkpoint that either is there or is not. Called by
 * trainer_save.c and native_write.c. Read native_save.h before. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "native_dir.h"
#include "native_h5.h"
#include "native_save.h"
#include "workdir.h"

static loong_status_t gather(loong_checkpoint_save_t *save, const void *mine,
                             size_t bytes, void *all)
{
    if (save->comm.size == 1) {
        memcpy(all, mine, bytes);
        return LOONG_OK;
    }
    return save->comm.gather(save->comm.user, mine, bytes, all);
}

static loong_status_t broadcast(loong_checkpoint_save_t *save, void *data,
                                size_t bytes)
{
    return save->comm.size == 1
               ? LOONG_OK
               : save->comm.broadcast(save->comm.user, data, bytes);
}

typedef struct verdict {
    int64_t status;
    char error[LOONG_SAVE_ERROR_TEXT];
} verdict_t;

loong_status_t loongi_save_agree(loong_checkpoint_save_t *save,
                                 loong_status_t status, const char *error)
{
    verdict_t mine = {status, ""};
    verdict_t *all = NULL;
    snprintf(mine.error, sizeof(mine.error), "%s", error);
    size_t room = save->comm.rank == 0 ? (size_t)save->comm.size : 1;
    LOONG_TRY(loongi_calloc(save->ctx, room, sizeof(*all),
                            "checkpoint verdicts", &all));
    loong_status_t outcome = gather(save, &mine, sizeof(mine), all);
    int failed = 0;
    if (outcome == LOONG_OK && save->comm.rank == 0) {
        while (failed < save->comm.size && all[failed].status == LOONG_OK) {
            failed++;
        }
        if (failed < save->comm.size) {
            mine.status = all[failed].status;
            snprintf(mine.error, sizeof(mine.error), "rank %d: %.900s", failed,
                     all[failed].error);
        }
    }
    loongi_free(save->ctx, all);
    LOONG_TRY(outcome);
    LOONG_TRY(broadcast(save, &mine, sizeof(mine)));
    if (mine.status == LOONG_OK) {
        return LOONG_OK;
    }
    loong_context_clear_error(save->ctx);
    return LOONG_FAIL(save->ctx, (loong_status_t)mine.status,
                      "cannot save step %lld to '%s': %s",
                      (long long)save->params.step, save->dir, mine.error);
}

/* ---- begin ---- */

static loong_status_t make_names(loong_checkpoint_save_t *save)
{
    char *text = NULL;
    LOONG_TRY(loongi_arena_strdup(save->arena, save->params.dir, &text));
    save->dir = text;
    LOONG_TRY(loongi_arena_printf(save->arena, &text, LOONG_STEP_FORMAT,
                                  (long long)save->params.step));
    save->name = text;
    LOONG_TRY(loongi_arena_printf(save->arena, &text, LOONG_TMP_PREFIX "%s",
                                  save->name));
    save->tmp_name = text;
    LOONG_TRY(loongi_arena_printf(save->arena, &text, "%s/%s", save->dir,
                                  save->tmp_name));
    save->tmp_dir = text;
    snprintf(save->file_name, sizeof(save->file_name), LOONG_RANK_FORMAT,
             save->comm.rank);
    LOONG_TRY(loongi_arena_printf(save->arena, &text, "%s/%s", save->tmp_dir,
                                  save->file_name));
    save->file_path = text;
    LOONG_TRY(loongi_arena_printf(save->arena, &text, "%s/" LOONG_LIST_FORMAT,
                                  save->tmp_dir, save->comm.rank));
    save->list_path = text;
    return LOONG_OK;
}

static loong_status_t make_dir(loong_checkpoint_save_t *save)
{
    LOONG_CHECK(save->ctx,
                save->params.step >= 0 && save->params.keep_last >= 0,
                LOONG_ERR_ARG, "step and keep_last may not be negative");
    LOONG_TRY(loongi_dir_make(save->ctx, save->dir));
    LOONG_TRY(loongi_native_clean(save->ctx, save->dir));
    return loongi_dir_make(save->ctx, save->tmp_dir);
}

static loong_status_t create(loong_context_t *ctx,
                             const loong_checkpoint_save_params_t *params,
                             loong_checkpoint_save_t **save_p)
{
    loong_checkpoint_save_t *save = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*save), "checkpoint save", &save));
    save->ctx = ctx;
    save->params = *params;
    save->comm.size = 1;
    if (params->comm != NULL) {
        save->comm = *params->comm;
    }
    pthread_mutex_init(&save->lock, NULL);
    pthread_cond_init(&save->changed, NULL);
    LOONG_TRY_GOTO(loongi_arena_create(ctx, "checkpoint save", &save->arena),
                   status, err_save);
    LOONG_TRY_GOTO(loongi_layout_create(ctx, &save->layout), status, err_save);
    LOONG_TRY_GOTO(make_names(save), status, err_save);
    *save_p = save;
    return LOONG_OK;
err_save:
    loongi_checkpoint_save_destroy(&save);
    return status;
}

loong_status_t
loongi_checkpoint_save_begin(loong_context_t *ctx,
                             const loong_checkpoint_save_params_t *params,
                             loong_checkpoint_save_t **save_p)
{
    loong_checkpoint_save_t *save = NULL;
    LOONG_TRY(create(ctx, params, &save));
    loong_status_t status = save->comm.rank == 0 ? make_dir(save) : LOONG_OK;
    status = loongi_save_agree(save, status, loong_context_error(ctx));
    if (status != LOONG_OK) {
        loongi_checkpoint_save_destroy(&save);
        return status;
    }
    *save_p = save;
    return LOONG_OK;
}

/* ---- assembling: rank 0, which may be on its helper thread ---- */

/* The pieces of all ranks, in files numbered by rank. */
static loong_status_t collect(const loong_native_files_t *files,
                              loong_layout_t *layout)
{
    for (int r = 0; r < files->count; r++) {
        char path[PATH_MAX];
        int64_t step = 0;
        snprintf(path, sizeof(path), "%s/" LOONG_LIST_FORMAT, files->tmp_dir,
                 r);
        LOONG_TRY(loongi_layout_read(layout, path, &step, NULL));
        LOONG_CHECK(layout->ctx, layout->file_count == r + 1, LOONG_ERR_FORMAT,
                    "%s lists %lld files instead of one", path,
                    (long long)(layout->file_count - r));
    }
    return loongi_layout_check(layout, 0, 1, files->name);
}

static loong_status_t add_index(const loong_native_files_t *files,
                                loong_layout_t *layout, const char *path)
{
    struct stat info;
    uint64_t xxh3 = 0;
    LOONG_TRY(loongi_h5_create_index(layout->ctx, path, layout, files->step,
                                     files->metadata));
    LOONG_TRY(loongi_checksum_file(layout->ctx, path, &xxh3));
    LOONG_CHECK(layout->ctx, stat(path, &info) == 0, LOONG_ERR_IO,
                "cannot inspect '%s': %s", path, strerror(errno));
    LOONG_TRY(loongi_layout_add_file(layout, "index.h5", info.st_size, xxh3));
    return loongi_file_sync_path(layout->ctx, path);
}

static loong_status_t keep_files(loong_context_t *ctx,
                                 const loong_file_set_t *files,
                                 const char *dir, loong_layout_t *layout)
{
    LOONG_TRY(loongi_file_set_write(ctx, files, dir));
    for (int64_t i = 0; i < loongi_file_set_count(files); i++) {
        const char *bytes = NULL;
        size_t length = 0;
        const char *name = loongi_file_set_get(files, i, &bytes, &length);
        LOONG_TRY(loongi_layout_add_hf(layout, name, (int64_t)length,
                                       loongi_checksum(bytes, length)));
    }
    return LOONG_OK;
}

static loong_status_t describe(const loong_native_files_t *files,
                               loong_layout_t *layout)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/hf", files->tmp_dir);
    if (files->files != NULL && loongi_file_set_count(files->files) > 0) {
        LOONG_TRY(keep_files(layout->ctx, files->files, path, layout));
    }
    LOONG_TRY(collect(files, layout));
    snprintf(path, sizeof(path), "%s/index.h5", files->tmp_dir);
    LOONG_TRY(add_index(files, layout, path));
    return loongi_layout_write_index(layout, files->step, files->metadata,
                                     files->tmp_dir);
}

/* What was needed on the way alone. The key goes last: with it the lists may
 * be gone, the manifest is there. */
static loong_status_t clear_up(loong_context_t *ctx,
                               const loong_native_files_t *files)
{
    char path[PATH_MAX];
    for (int r = 0; r < files->count; r++) {
        snprintf(path, sizeof(path), "%s/" LOONG_LIST_FORMAT, files->tmp_dir,
                 r);
        LOONG_TRY(loongi_dir_remove(ctx, path));
    }
    snprintf(path, sizeof(path), "%s/" LOONG_WORKDIR_KEY, files->tmp_dir);
    return loongi_dir_remove(ctx, path);
}

/* Everything is on the disk before the directory gets its name. */
loong_status_t loongi_native_assemble(loong_context_t *ctx,
                                      const loong_native_files_t *files)
{
    char manifest[PATH_MAX];
    snprintf(manifest, sizeof(manifest), "%s/" LOONG_MANIFEST, files->tmp_dir);
    if (!loongi_file_exists(manifest)) {
        loong_layout_t *layout = NULL;
        LOONG_TRY(loongi_layout_create(ctx, &layout));
        loong_status_t status = describe(files, layout);
        loongi_layout_destroy(&layout);
        LOONG_TRY(status);
    }
    LOONG_TRY(clear_up(ctx, files));
    LOONG_TRY(loongi_dir_sync(ctx, files->tmp_dir));
    return loongi_native_publish(ctx, files->dir, files->tmp_name, files->name);
}

/* Old steps that cannot be removed do not make the new one bad. */
static void retain(loong_checkpoint_save_t *save, loong_context_t *ctx)
{
    if (save->params.keep_last > 0 &&
        loongi_native_retain(ctx, save->dir, save->name,
                             save->params.keep_last) != LOONG_OK) {
        snprintf(save->warning, sizeof(save->warning), "%s",
                 loong_context_error(ctx));
        loong_context_clear_error(ctx);
    }
}

static loong_status_t assemble(loong_checkpoint_save_t *save,
                               loong_context_t *ctx)
{
    loong_native_files_t files = {
        save->dir,         save->tmp_dir,   save->tmp_name,
        save->name,        save->params.step, save->comm.size,
        save->params.metadata, save->params.files};
    LOONG_TRY(loongi_native_assemble(ctx, &files));
    retain(save, ctx);
    return LOONG_OK;
}

/* ---- the ranks go on together ---- */

static void join_worker(loong_checkpoint_save_t *save)
{
    if (save->threaded) {
        pthread_join(save->thread, NULL);
        save->threaded = false;
    }
}

/* What rank 0 has to say, or to clear up, at the end. */
static void finish(loong_checkpoint_save_t *save, loong_status_t status)
{
    if (save->warning[0] != '\0') {
        loongi_log(save->ctx, LOONG_LOG_WARN, "old checkpoints stay: %s",
                   save->warning);
    }
    if (status != LOONG_OK &&
        loongi_dir_remove(save->ctx, save->tmp_dir) != LOONG_OK) {
        loongi_log(save->ctx, LOONG_LOG_WARN, "'%s' stays", save->tmp_dir);
    }
}

loong_status_t loongi_checkpoint_save_advance(loong_checkpoint_save_t *save,
                                              bool *whole_p)
{
    bool root = save->comm.rank == 0;
    bool written = save->stage == LOONG_SAVE_WRITING;
    LOONG_CHECK(save->ctx, written || save->stage == LOONG_SAVE_ASSEMBLING,
                LOONG_ERR_ARG, "the save was not started, or is over");
    join_worker(save);
    loong_status_t status = loongi_save_agree(save, save->status, save->error);
    if (status == LOONG_OK && written) {
        save->stage = LOONG_SAVE_ASSEMBLING;
        if (root) {
            loongi_save_work(save, assemble);
        }
        *whole_p = false;
        return LOONG_OK;
    }
    save->stage = LOONG_SAVE_OVER;
    if (root) {
        finish(save, status);
    }
    *whole_p = status == LOONG_OK;
    return status;
}

loong_status_t loongi_checkpoint_save_commit(loong_checkpoint_save_t *save)
{
    bool whole = false;
    while (!whole) {
        LOONG_TRY(loongi_checkpoint_save_advance(save, &whole));
    }
    return LOONG_OK;
}

void loongi_checkpoint_save_destroy(loong_checkpoint_save_t **save)
{
    if (*save == NULL) {
        return;
    }
    join_worker(*save);
    loongi_free((*save)->ctx, (*save)->sources);
    loongi_layout_destroy(&(*save)->layout);
    loongi_arena_destroy(&(*save)->arena);
    pthread_cond_destroy(&(*save)->changed);
    pthread_mutex_destroy(&(*save)->lock);
    loongi_free((*save)->ctx, *save);
    *save = NULL;
}
