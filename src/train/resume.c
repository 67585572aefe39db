/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoint a run goes on from, for trainer_create.c, and for
 * preflight.c that foretells it. A rank reads and verifies its part of a
 * checkpoint only, so whether one is whole is known to all ranks together. Read
 * trainer_impl.h before. */
#include <stdio.h>
#include <string.h>

#include "complete.h"
#include "native_dir.h"
#include "run_dirs.h"
#include "trainer_impl.h"

enum { NAME_SIZE = 64, PATH_SIZE = 4096 };

/* Those who look: the ranks of a run, or before it rank 0 alone, which reads
 * no tensor. */
typedef struct resume {
    loong_trainer_t *t;
    bool judged;
    int rank;
    int size;
} resume_t;

static loong_status_t open_mine(const resume_t *r, const char *path,
                                loong_checkpoint_t **ck_p)
{
    return loongi_checkpoint_open_part(r->t->ctx, path, r->rank, r->size, ck_p);
}

/* What a failed plan lacks is not compared. */
static loong_status_t check(const resume_t *r, loong_checkpoint_t *ck)
{
    bool planned = r->t->component != NULL && r->t->data.blend != NULL;
    return r->judged && !planned ? LOONG_OK
                                 : loongi_trainer_check_resume(r->t, ck);
}

/* Tensors may be terabytes: only a run reads them. */
static loong_status_t verify(const resume_t *r, loong_checkpoint_t *ck)
{
    if (r->rank == 0) { /* whose files the next save keeps */
        LOONG_TRY(loongi_checkpoint_verify_hf(ck, false));
    }
    return r->judged ? LOONG_OK
                     : loongi_checkpoint_verify(ck, r->rank, r->size);
}

static loong_status_t take(const resume_t *r, loong_checkpoint_t *ck)
{
    if (!r->judged) {
        return loongi_trainer_load(r->t, ck);
    }
    loongi_log(r->t->ctx, LOONG_LOG_INFO,
               "%s: no tensor was read; the run compares their checksums, "
               "loong-ckpt verify does it now",
               loongi_checkpoint_path(ck));
    return LOONG_OK;
}

static loong_status_t resume_from(const resume_t *r, const char *path)
{
    loong_checkpoint_t *ck = NULL;
    LOONG_TRY(open_mine(r, path, &ck));
    loong_status_t status = check(r, ck);
    if (status == LOONG_OK) {
        status = verify(r, ck);
    }
    if (status == LOONG_OK) {
        status = take(r, ck);
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
static loong_status_t agree(const resume_t *r, loong_status_t mine,
                            const char *path, bool *whole_p)
{
    loong_context_t *ctx = r->t->ctx;
    int64_t first = mine != LOONG_OK ? r->rank : r->size;
    if (mine != LOONG_OK && !is_damage(mine)) {
        return mine;
    }
    if (!r->judged) {
        LOONG_TRY(loong_comm_all_reduce(r->t->comm, &first, 1, LOONG_I64,
                                        LOONG_REDUCE_MIN,
                                        "checkpoint is whole"));
    }
    if (mine != LOONG_OK && first == r->rank) {
        loongi_log(ctx, LOONG_LOG_WARN,
                   "checkpoint %s is damaged, the one before it is tried: %s",
                   path, loong_context_error(ctx));
    }
    if (mine != LOONG_OK) {
        loong_context_clear_error(ctx);
    }
    *whole_p = first == r->size;
    return LOONG_OK;
}

/* *taken_p: the run goes on from this one. */
static loong_status_t try_one(const resume_t *r, const char *path,
                              bool *taken_p)
{
    loong_checkpoint_t *ck = NULL;
    bool whole = false;
    loong_status_t status = agree(r, open_mine(r, path, &ck), path, &whole);
    if (status == LOONG_OK && whole) {
        status = check(r, ck);
    }
    if (status == LOONG_OK && whole) {
        status = agree(r, verify(r, ck), path, &whole);
    }
    if (status == LOONG_OK && whole) {
        status = take(r, ck);
        *taken_p = true;
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
static loong_status_t name_of(const resume_t *r, const char *dir, int64_t index,
                              char name[NAME_SIZE])
{
    loong_trainer_t *t = r->t;
    memset(name, 0, NAME_SIZE);
    if (r->rank == 0) {
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
    return r->judged ? LOONG_OK
                     : loong_comm_broadcast(t->comm, name, NAME_SIZE, 0,
                                            "name of a checkpoint");
}

static loong_status_t resume_newest(const resume_t *r, const char *dir)
{
    loong_trainer_t *t = r->t;
    bool taken = false;
    int64_t i = 0;
    for (; !taken; i++) {
        char name[NAME_SIZE];
        char path[PATH_SIZE];
        LOONG_TRY(name_of(r, dir, i, name));
        LOONG_CHECK(t->ctx, name[0] != '\0', LOONG_ERR_FORMAT,
                    "none of the %lld checkpoints in '%s' is whole",
                    (long long)i, dir);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        LOONG_TRY(try_one(r, path, &taken));
    }
    if (i > 1 && !t->plan.evaluate_only && r->rank == 0) {
        loongi_log(t->ctx, LOONG_LOG_INFO,
                   "checkpoint.keep_last does not count the damaged: they are "
                   "the first to be removed");
    }
    return LOONG_OK;
}

loong_status_t loongi_trainer_resume(loong_trainer_t *t, const char *load,
                                     bool judged)
{
    resume_t r = {t, judged, judged ? 0 : loong_comm_rank(t->comm),
                  judged ? 1 : loong_comm_size(t->comm)};
    return strcmp(load, "auto") != 0 ? resume_from(&r, load)
                                     : resume_newest(&r, t->set.save_dir);
}

/* ---- its recipe ---------------------------------------------------------- */

/* Adds what a checkpoint says of its run; false: it says nothing. */
static bool read_recipe(const loong_trainer_t *t, const char *path,
                        loong_text_t *text)
{
    loong_checkpoint_t *ck = NULL;
    if (loongi_checkpoint_open_part(t->ctx, path, 0, 0, &ck) != LOONG_OK) {
        loong_context_clear_error(t->ctx);
        return false;
    }
    const char *recipe =
        loongi_pairs_get(loongi_checkpoint_metadata(ck), "recipe");
    loongi_text_printf(text, "%s", recipe != NULL ? recipe : "");
    loongi_checkpoint_close(&ck);
    return recipe != NULL;
}

/* Of the newest step that has one, as damaged ones are passed over. */
static loong_status_t read_newest(const loong_trainer_t *t,
                                  loong_arena_t *arena, loong_text_t *text)
{
    const char *dir = t->set.save_dir;
    const char **names = NULL;
    int64_t count = 0;
    bool found = false;
    LOONG_TRY(loongi_checkpoint_steps(t->ctx, arena, dir, &names, &count));
    for (int64_t i = 0; i < count && !found; i++) {
        char path[PATH_SIZE];
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        found = read_recipe(t, path, text);
    }
    return LOONG_OK;
}

static void find_recipe(const loong_trainer_t *t, loong_text_t *text)
{
    const char *load = NULL;
    loong_arena_t *arena = NULL;
    loong_status_t status =
        loongi_find_weights(t->ctx, t->recipe, false, &load);
    if (status == LOONG_OK && load != NULL && strcmp(load, "auto") != 0) {
        (void)read_recipe(t, load, text);
    } else if (status == LOONG_OK && load != NULL) {
        status = loongi_arena_create(t->ctx, "names of steps", &arena);
        status = status == LOONG_OK ? read_newest(t, arena, text) : status;
        loongi_arena_destroy(&arena);
    }
    if (status != LOONG_OK) {
        loong_context_clear_error(t->ctx);
    }
}

static loong_status_t keep_keys(loong_trainer_t *t, const char *text)
{
    loong_recipe_t *before = NULL;
    if (loongi_resume_parse(text, t->recipe, &before) != LOONG_OK) {
        loong_context_clear_error(t->ctx);
        return LOONG_OK;
    }
    loong_status_t status = loongi_complete_resumed(&t->plan, before);
    loong_recipe_destroy(&before);
    return status;
}

/* From rank 0 to all; *text_p is the caller's. */
static loong_status_t share_text(const loong_trainer_t *t,
                                 const loong_text_t *mine, char **text_p)
{
    int64_t length = mine->status == LOONG_OK ? (int64_t)mine->length : 0;
    LOONG_TRY(loong_comm_broadcast(t->comm, &length, sizeof(length), 0,
                                   "length of a recipe"));
    LOONG_TRY(loongi_alloc(t->ctx, (size_t)length + 1, "recipe", text_p));
    if (mine->length > 0) {
        memcpy(*text_p, loongi_text_get(mine), (size_t)length);
    }
    (*text_p)[length] = '\0';
    return loong_comm_broadcast(t->comm, *text_p, (size_t)length, 0, "recipe");
}

loong_status_t loongi_trainer_keep_keys(loong_trainer_t *t)
{
    loong_text_t found = loongi_text_begin(t->ctx);
    char *text = NULL;
    if (!loongi_run_data_has_chat(&t->data)) {
        return LOONG_OK;
    }
    if (loong_comm_rank(t->comm) == 0) {
        find_recipe(t, &found);
    }
    loong_status_t status = share_text(t, &found, &text);
    if (status == LOONG_OK && text[0] != '\0') {
        status = keep_keys(t, text);
    }
    loongi_free(t->ctx, text);
    loongi_text_free(&found);
    return status;
}

/* Before a save: keep_last counts from the step that the run went on from. */
void loongi_trainer_renew(const loong_trainer_t *t)
{
    char path[PATH_SIZE];
    if (t->saving.saved_step < 0 ||
        t->saving.saved_step != t->supervision.told.from_step ||
        loong_comm_rank(t->comm) != 0) {
        return;
    }
    snprintf(path, sizeof(path), "%s/" LOONG_STEP_FORMAT, t->set.save_dir,
             (long long)t->saving.saved_step);
    if (loongi_native_renew(t->ctx, path) != LOONG_OK) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "checkpoint.keep_last may keep later steps, damaged or not, "
                   "instead of this one: %s", loong_context_error(t->ctx));
        loong_context_clear_error(t->ctx);
    }
}
