/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving, the part of all ranks: opening the directory, and putting the ranks'
 * files together into a checkpoint that either is there or is not. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "hf_weights.h"
#include "native_dir.h"
#include "native_h5.h"
#include "native_save.h"

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
    snprintf(save->file_name, sizeof(save->file_name), "rank_%05d.h5",
             save->comm.rank);
    LOONG_TRY(loongi_arena_printf(save->arena, &text, "%s/%s", save->tmp_dir,
                                  save->file_name));
    save->file_path = text;
    return LOONG_OK;
}

static loong_status_t make_dir(loong_checkpoint_save_t *save)
{
    LOONG_CHECK(save->ctx,
                save->params.step >= 0 && save->params.keep_last >= 0,
                LOONG_ERR_ARG, "step and keep_last may not be negative");
    LOONG_TRY(loongi_dir_make(save->ctx, save->dir));
    LOONG_TRY(loongi_native_clean(save->ctx, save->dir));
    LOONG_TRY(loongi_dir_make(save->ctx, save->tmp_dir));
    if (save->params.files_dir == NULL) {
        return LOONG_OK;
    }
    char *files = NULL;
    LOONG_TRY(loongi_arena_printf(save->arena, &files, "%s/hf", save->tmp_dir));
    return loongi_hf_copy_files(save->ctx, save->params.files_dir, files);
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
    if (status == LOONG_OK) {
        struct stat info;
        bool seen = stat(save->tmp_dir, &info) == 0;
        status = loongi_save_agree(
            save, seen ? LOONG_OK : LOONG_ERR_IO,
            "the directory that rank 0 made is not visible: the ranks must "
            "share a file system");
    }
    if (status != LOONG_OK) {
        loongi_checkpoint_save_destroy(&save);
        return status;
    }
    *save_p = save;
    return LOONG_OK;
}

/* ---- commit ---- */

typedef struct report {
    int64_t bytes;
    uint64_t xxh3;
    int64_t text_length; /* of the list of pieces */
} report_t;

static loong_status_t pieces_text(const loong_checkpoint_save_t *save,
                                  loong_text_t *text)
{
    loongi_text_printf(text, "[");
    for (int64_t i = 0; i < save->layout->piece_count; i++) {
        loongi_text_printf(text, i > 0 ? "," : "");
        loongi_layout_piece_text(&save->layout->pieces[i], text);
    }
    loongi_text_printf(text, "]");
    return text->status;
}

static loong_status_t add_rank(loong_checkpoint_save_t *save, int rank,
                               const report_t *report, const char *text)
{
    char name[32];
    loong_json_t *json = NULL;
    snprintf(name, sizeof(name), "rank_%05d.h5", rank);
    LOONG_TRY(loongi_layout_add_file(save->layout, name, report->bytes,
                                     report->xxh3));
    LOONG_TRY(loongi_json_parse(save->ctx, text, (size_t)report->text_length,
                                name, &json));
    loong_status_t status =
        loongi_layout_parse_pieces(save->layout, json, rank, name);
    loongi_json_destroy(&json);
    return status;
}

/* Every rank's report, and the length of the longest list of pieces. */
static loong_status_t gather_reports(loong_checkpoint_save_t *save,
                                     const report_t *mine, report_t *reports,
                                     int64_t *longest_p)
{
    int64_t longest = 0;
    LOONG_TRY(gather(save, mine, sizeof(*mine), reports));
    for (int r = 0; save->comm.rank == 0 && r < save->comm.size; r++) {
        longest = LOONG_MAX(longest, reports[r].text_length);
    }
    LOONG_TRY(broadcast(save, &longest, sizeof(longest)));
    *longest_p = longest;
    return LOONG_OK;
}

/* Lists travel padded to the longest. On rank 0 the layout then holds the
 * pieces of all ranks. */
static loong_status_t gather_pieces(loong_checkpoint_save_t *save,
                                    const loong_text_t *text,
                                    const report_t *reports, int64_t longest)
{
    bool root = save->comm.rank == 0;
    char *padded = NULL;
    char *all = NULL;
    loong_status_t status =
        loongi_alloc(save->ctx, (size_t)longest, "checkpoint pieces", &padded);
    if (status == LOONG_OK) {
        status = loongi_calloc(save->ctx, root ? (size_t)save->comm.size : 1,
                               (size_t)longest, "checkpoint pieces", &all);
    }
    LOONG_TRY_GOTO(
        loongi_save_agree(save, status, loong_context_error(save->ctx)), status,
        out_buffers);
    memcpy(padded, text->data, text->length);
    LOONG_TRY_GOTO(gather(save, padded, (size_t)longest, all), status,
                   out_buffers);
    if (root) {
        save->layout->piece_count = 0; /* they come back with the others */
    }
    for (int r = 0; root && r < save->comm.size && status == LOONG_OK; r++) {
        status = add_rank(save, r, &reports[r], all + r * longest);
    }
out_buffers:
    loongi_free(save->ctx, all);
    loongi_free(save->ctx, padded);
    return status;
}

/* Ranks agree wherever one of them can fail alone, so that none waits. */
static loong_status_t collect(loong_checkpoint_save_t *save)
{
    loong_text_t text = loongi_text_begin(save->ctx);
    report_t mine = {save->bytes, save->xxh3, 0};
    report_t *reports = NULL;
    int64_t longest = 0;
    loong_status_t status = pieces_text(save, &text);
    mine.text_length = (int64_t)text.length;
    if (status == LOONG_OK) {
        status =
            loongi_calloc(save->ctx, (size_t)save->comm.size, sizeof(*reports),
                          "checkpoint reports", &reports);
    }
    status = loongi_save_agree(save, status, loong_context_error(save->ctx));
    if (status == LOONG_OK) {
        status = gather_reports(save, &mine, reports, &longest);
    }
    if (status == LOONG_OK) {
        status = gather_pieces(save, &text, reports, longest);
    }
    loongi_free(save->ctx, reports);
    loongi_text_free(&text);
    return status;
}

static loong_status_t finish_index(loong_checkpoint_save_t *save,
                                   const char *path)
{
    struct stat info;
    uint64_t xxh3 = 0;
    LOONG_TRY(loongi_h5_create_index(save->ctx, path, save->layout,
                                     save->params.step, save->params.metadata));
    LOONG_TRY(loongi_checksum_file(save->ctx, path, &xxh3));
    LOONG_CHECK(save->ctx, stat(path, &info) == 0, LOONG_ERR_IO,
                "cannot inspect '%s': %s", path, strerror(errno));
    LOONG_TRY(
        loongi_layout_add_file(save->layout, "index.h5", info.st_size, xxh3));
    return loongi_file_sync_path(save->ctx, path);
}

/* Everything is on the disk before the directory gets its name. */
static loong_status_t assemble(loong_checkpoint_save_t *save)
{
    char *index = NULL;
    char *manifest = NULL;
    LOONG_TRY(loongi_layout_check(save->layout, save->name));
    LOONG_TRY(
        loongi_arena_printf(save->arena, &index, "%s/index.h5", save->tmp_dir));
    LOONG_TRY(loongi_arena_printf(save->arena, &manifest, "%s/" LOONG_MANIFEST,
                                  save->tmp_dir));
    LOONG_TRY(finish_index(save, index));
    LOONG_TRY(loongi_layout_write(save->layout, save->params.step,
                                  save->params.metadata, manifest));
    LOONG_TRY(loongi_dir_sync(save->ctx, save->tmp_dir));
    return loongi_native_publish(save->ctx, save->dir, save->tmp_name,
                                 save->name);
}

/* Old steps that cannot be removed do not make the new one bad. */
static void retain(loong_checkpoint_save_t *save)
{
    if (save->params.keep_last > 0 &&
        loongi_native_retain(save->ctx, save->dir, save->name,
                             save->params.keep_last) != LOONG_OK) {
        loongi_log(save->ctx, LOONG_LOG_WARN, "old checkpoints stay: %s",
                   loong_context_error(save->ctx));
        loong_context_clear_error(save->ctx);
    }
}

static void join_writer(loong_checkpoint_save_t *save)
{
    if (save->threaded) {
        pthread_join(save->thread, NULL);
        save->threaded = false;
    }
}

loong_status_t loongi_checkpoint_save_commit(loong_checkpoint_save_t *save)
{
    LOONG_CHECK(save->ctx, save->started, LOONG_ERR_ARG,
                "the save was not started");
    join_writer(save);
    loong_status_t status = loongi_save_agree(save, save->status, save->error);
    if (status == LOONG_OK) {
        status = collect(save);
        if (status == LOONG_OK && save->comm.rank == 0) {
            status = assemble(save);
        }
        status =
            loongi_save_agree(save, status, loong_context_error(save->ctx));
    }
    if (save->comm.rank == 0 && status == LOONG_OK) {
        retain(save);
    } else if (save->comm.rank == 0 &&
               loongi_dir_remove(save->ctx, save->tmp_dir) != LOONG_OK) {
        loongi_log(save->ctx, LOONG_LOG_WARN, "'%s' stays", save->tmp_dir);
    }
    return status;
}

void loongi_checkpoint_save_destroy(loong_checkpoint_save_t **save)
{
    if (*save == NULL) {
        return;
    }
    join_writer(*save);
    loongi_free((*save)->ctx, (*save)->sources);
    loongi_layout_destroy(&(*save)->layout);
    loongi_arena_destroy(&(*save)->arena);
    pthread_cond_destroy(&(*save)->changed);
    pthread_mutex_destroy(&(*save)->lock);
    loongi_free((*save)->ctx, *save);
    *save = NULL;
}
