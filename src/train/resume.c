/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoint a run goes on from. A rank reads and verifies its part of a
 * checkpoint only, so whether one is whole is known to all ranks together. */
#include <stdio.h>
#include <string.h>

#include "native_dir.h"
#include "trainer_impl.h"

enum { NAME_SIZE = 64, PATH_SIZE = 4096 };

static loong_status_t open_mine(loong_trainer_t *t, const char *path,
                                loong_checkpoint_t **ck_p)
{
    return loongi_checkpoint_open_part(t->ctx, path, loong_comm_rank(t->comm),
                                       loong_comm_size(t->comm), ck_p);
}

static loong_status_t verify(loong_trainer_t *t, loong_checkpoint_t *ck)
{
    if (loong_comm_rank(t->comm) == 0) { /* whose files the next save keeps */
        LOONG_TRY(loongi_checkpoint_verify_hf(ck, false));
    }
    return loongi_checkpoint_verify(ck, loong_comm_rank(t->comm),
                                    loong_comm_size(t->comm));
}

loong_status_t loongi_trainer_resume(loong_trainer_t *t, const char *path)
{
    loong_checkpoint_t *ck = NULL;
    LOONG_TRY(open_mine(t, path, &ck));
    loong_status_t status = loongi_trainer_check_resume(t, ck);
    if (status == LOONG_OK) {
        status = verify(t, ck);
    }
    if (status == LOONG_OK) {
        status = loongi_trainer_load(t, ck);
    }
    loongi_checkpoint_close(&ck);
    return status;
}

/* ---- the newest that is whole -------------------------------------------- */

static bool is_damage(loong_status_t status)
{
    return status == LOONG_ERR_FORMAT || status == LOONG_ERR_NOT_FOUND ||
           status == LOONG_ERR_IO;
}

/* *whole_p: it is so on every rank. The first rank that finds damage tells;
 * other errors than damage are the caller's. */
static loong_status_t agree(loong_trainer_t *t, loong_status_t mine,
                            const char *path, bool *whole_p)
{
    int64_t rank = loong_comm_rank(t->comm);
    int64_t size = loong_comm_size(t->comm);
    int64_t first = mine != LOONG_OK ? rank : size;
    if (mine != LOONG_OK && !is_damage(mine)) {
        return mine;
    }
    LOONG_TRY(loong_comm_all_reduce(t->comm, &first, 1, LOONG_I64,
                                    LOONG_REDUCE_MIN, "checkpoint is whole"));
    if (mine != LOONG_OK && first == rank) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "checkpoint %s is damaged, the one before it is tried: %s",
                   path, loong_context_error(t->ctx));
    }
    if (mine != LOONG_OK) {
        loong_context_clear_error(t->ctx);
    }
    *whole_p = first == size;
    return LOONG_OK;
}

/* *loaded_p: the run goes on from this one. */
static loong_status_t try_one(loong_trainer_t *t, const char *path,
                              bool *loaded_p)
{
    loong_checkpoint_t *ck = NULL;
    bool whole = false;
    loong_status_t status =
        agree(t, open_mine(t, path, &ck), path, &whole);
    if (status == LOONG_OK && whole) {
        status = loongi_trainer_check_resume(t, ck);
    }
    if (status == LOONG_OK && whole) {
        status = agree(t, verify(t, ck), path, &whole);
    }
    if (status == LOONG_OK && whole) {
        status = loongi_trainer_load(t, ck);
        *loaded_p = true;
    }
    loongi_checkpoint_close(&ck);
    return status;
}

/* A save directory whose `latest` is lost or wrong still has its steps. */
static void warn_of_latest(loong_trainer_t *t, loong_arena_t *arena,
                           const char *dir)
{
    char *step = NULL;
    if (loongi_native_resolve(arena, t->ctx, dir, &step) != LOONG_OK) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "checkpoint.load: auto takes the step completed last: %s",
                   loong_context_error(t->ctx));
        loong_context_clear_error(t->ctx);
    }
}

/* Rank 0 looks into the directory, so that all ranks try the same. */
static loong_status_t name_of(loong_trainer_t *t, const char *dir,
                              int64_t index, char name[NAME_SIZE])
{
    memset(name, 0, NAME_SIZE);
    if (loong_comm_rank(t->comm) == 0) {
        loong_arena_t *arena = NULL;
        const char **names = NULL;
        int64_t count = 0;
        LOONG_TRY(loongi_arena_create(t->ctx, "names of steps", &arena));
        loong_status_t status =
            loongi_checkpoint_steps(t->ctx, arena, dir, &names, &count);
        if (status == LOONG_OK && index == 0) {
            warn_of_latest(t, arena, dir);
        }
        if (status == LOONG_OK && index < count) {
            snprintf(name, NAME_SIZE, "%s", names[index]);
        }
        loongi_arena_destroy(&arena);
        LOONG_TRY(status);
    }
    return loong_comm_broadcast(t->comm, name, NAME_SIZE, 0,
                                "name of a checkpoint");
}

loong_status_t loongi_trainer_resume_newest(loong_trainer_t *t,
                                            const char *dir)
{
    bool loaded = false;
    int64_t i = 0;
    for (; !loaded; i++) {
        char name[NAME_SIZE];
        char path[PATH_SIZE];
        LOONG_TRY(name_of(t, dir, i, name));
        LOONG_CHECK(t->ctx, name[0] != '\0', LOONG_ERR_FORMAT,
                    "none of the %lld checkpoints in '%s' is whole",
                    (long long)i, dir);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        LOONG_TRY(try_one(t, path, &loaded));
    }
    if (i > 1 && !t->evaluate_only && loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "checkpoint.keep_last does not count the damaged: they are "
                   "the first to be removed");
    }
    return LOONG_OK;
}

/* Before a save: keep_last counts from the step that the run went on from. */
void loongi_trainer_renew(const loong_trainer_t *t)
{
    char path[PATH_SIZE];
    if (t->saved_step < 0 || t->saved_step != t->told.from_step ||
        loong_comm_rank(t->comm) != 0) {
        return;
    }
    snprintf(path, sizeof(path), "%s/" LOONG_STEP_FORMAT,
             loong_recipe_text(t->recipe, "checkpoint.save"),
             (long long)t->saved_step);
    if (loongi_native_renew(t->ctx, path) != LOONG_OK) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "checkpoint.keep_last may keep later steps, damaged or not, "
                   "instead of this one: %s", loong_context_error(t->ctx));
        loong_context_clear_error(t->ctx);
    }
}
