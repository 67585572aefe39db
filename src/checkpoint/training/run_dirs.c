/* SPDX-License-Identifier: Apache-2.0
 *
 * The directories of a run. Those that it writes into are made and tried at the
 * start, not when the first checkpoint is due, and held by a lock, so that a
 * second run of the same recipe does not mix its files with these. The lock is
 * the open file's and ends with the process, however it ends. Called by
 * trainer_create.c and preflight.c. Read run_dirs.h before. */
#include "run_dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "native.h"

enum { PATH_SIZE = 1024, OWNER_SIZE = 320 };

static loong_status_t locked_by_other(loong_context_t *ctx, const char *key,
                                      const char *dir, int fd)
{
    char owner[OWNER_SIZE] = "";
    ssize_t n = pread(fd, owner, sizeof(owner) - 1, 0);
    owner[n > 0 ? strcspn(owner, "\n") : 0] = '\0';
    return LOONG_FAIL(ctx, LOONG_ERR_CONFIG,
                      "%s: another run writes into %s (%s); stop it or choose "
                      "another directory",
                      key, dir, owner[0] != '\0' ? owner : "unknown process");
}

static loong_status_t write_owner(loong_context_t *ctx, const char *path,
                                  int fd)
{
    char owner[OWNER_SIZE];
    char host[256] = "unknown";
    (void)gethostname(host, sizeof(host) - 1);
    int n = snprintf(owner, sizeof(owner), "process %ld on %s\n",
                     (long)getpid(), host);
    LOONG_CHECK(ctx,
                ftruncate(fd, 0) == 0 && pwrite(fd, owner, (size_t)n, 0) == n,
                LOONG_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    return LOONG_OK;
}

static bool same_file(int a, int b)
{
    struct stat x;
    struct stat y;
    return a >= 0 && fstat(a, &x) == 0 && fstat(b, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static loong_status_t hold(loong_context_t *ctx, const loong_recipe_t *recipe,
                           const char *key, int other, int *fd_p)
{
    char path[PATH_SIZE];
    const char *dir = loong_recipe_text(recipe, key);
    if (dir == NULL) {
        return LOONG_OK;
    }
    loong_status_t status = loongi_dir_make(ctx, dir);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "%s: %s: %s cannot be made",
                          loong_recipe_where(recipe, key), key, dir);
        return status;
    }
    snprintf(path, sizeof(path), "%s/lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_CANNOT_WRITE,
                "%s: %s: cannot write into %s: %s",
                loong_recipe_where(recipe, key), key, dir, strerror(errno));
    if (same_file(other, fd)) {
        close(fd); /* one directory for both */
        return LOONG_OK;
    }
    *fd_p = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return write_owner(ctx, path, fd);
    }
    if (errno == EWOULDBLOCK) {
        return locked_by_other(ctx, key, dir, fd);
    }
    loongi_log(ctx, LOONG_LOG_WARN,
               "%s: the file system of %s has no locks (%s): a second run in "
               "it would not be noticed",
               key, dir, strerror(errno));
    return LOONG_OK;
}

loong_status_t loongi_run_dirs_open(loong_context_t *ctx,
                                    const loong_recipe_t *recipe, int locks[2])
{
    LOONG_TRY(hold(ctx, recipe, "checkpoint.save", -1, &locks[0]));
    return hold(ctx, recipe, "log.dir", locks[0], &locks[1]);
}

void loongi_run_dirs_close(int locks[2])
{
    for (int i = 0; i < 2; i++) {
        if (locks[i] >= 0) {
            close(locks[i]);
            locks[i] = -1;
        }
    }
}

/* ---- before a run -------------------------------------------------------- */

/* A directory that is not there yet is made in the nearest one that is: the
 * first of it is tried, and taken away again. */
loong_status_t loongi_check_output(loong_context_t *ctx,
                                   const loong_recipe_t *recipe,
                                   const char *key)
{
    char path[1024];
    char missing[1024] = "";
    const char *dir = loong_recipe_text(recipe, key);
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
    LOONG_CHECK(ctx, access(path, W_OK | X_OK) == 0, LOONG_ERR_CANNOT_WRITE,
                "%s: %s: %s: %s cannot be written into",
                loong_recipe_where(recipe, key), key, dir, path);
    if (missing[0] != '\0') {
        int made = mkdir(missing, 0777);
        LOONG_CHECK(ctx, made == 0 || errno == EEXIST, LOONG_ERR_CANNOT_WRITE,
                    "%s: %s: %s: cannot create '%s': %s",
                    loong_recipe_where(recipe, key), key, dir, missing,
                    strerror(errno));
        if (made == 0) {
            rmdir(missing);
        }
    }
    return LOONG_OK;
}

/* An evaluation scores weights that somebody has trained. */
static loong_status_t check_evaluation(loong_context_t *ctx,
                                       const loong_recipe_t *recipe, bool begun)
{
    const char *load = loong_recipe_text(recipe, "checkpoint.load");
    const char *save = loong_recipe_text(recipe, "checkpoint.save");
    bool newest = load != NULL && strcmp(load, "auto") == 0;
    bool model = loong_recipe_init_key(recipe, NULL) != NULL;
    LOONG_CHECK(ctx, !newest || begun, LOONG_ERR_NOT_FOUND,
                "nothing to evaluate: checkpoint.load is auto, and "
                "checkpoint.save: %s has no checkpoint; checkpoint.load=DIR "
                "names one, init.from_hf without checkpoint.load a model",
                save != NULL ? save : "not set");
    LOONG_CHECK(ctx, load != NULL || !begun, LOONG_ERR_CONFIG,
                "checkpoint.save: %s has checkpoints, checkpoint.load is not "
                "set: auto evaluates the newest, a directory the one in it; "
                "without checkpoint.save %s",
                save,
                model ? "the model of init.from_hf is evaluated"
                      : "there is nothing to evaluate");
    LOONG_CHECK(ctx, load != NULL || !loong_recipe_bool(recipe, "eval.ema"),
                LOONG_ERR_CONFIG,
                "eval.ema: only checkpoints have averages: set "
                "checkpoint.load");
    LOONG_CHECK(ctx, load != NULL || model, LOONG_ERR_CONFIG,
                "nothing to evaluate: set checkpoint.load (a directory, or "
                "auto for the newest checkpoint in checkpoint.save) or "
                "init.from_hf");
    return LOONG_OK;
}

loong_status_t loongi_check_unused(loong_context_t *ctx,
                                   const loong_recipe_t *recipe)
{
    const char *save = loong_recipe_text(recipe, "checkpoint.save");
    LOONG_CHECK(ctx,
                save == NULL || !loongi_checkpoint_is_native(save) ||
                    loong_recipe_text(recipe, "checkpoint.load") != NULL,
                LOONG_ERR_CONFIG,
                "checkpoint.save: %s has checkpoints of an earlier run: "
                "checkpoint.load=auto goes on with it, another directory or "
                "an empty one begins anew",
                save);
    return LOONG_OK;
}

loong_status_t loongi_find_weights(loong_context_t *ctx,
                                   const loong_recipe_t *recipe,
                                   bool evaluate_only, const char **load_p)
{
    const char *phase = loong_recipe_text(recipe, "training_phase");
    const char *hf = loong_recipe_init_key(recipe, NULL);
    const char *load = loong_recipe_text(recipe, "checkpoint.load");
    const char *save = loong_recipe_text(recipe, "checkpoint.save");
    bool begun = save != NULL && loongi_checkpoint_is_native(save);
    bool newest = load != NULL && strcmp(load, "auto") == 0;
    if (evaluate_only) {
        LOONG_TRY(check_evaluation(ctx, recipe, begun));
    }
    load = newest && !begun ? NULL : load;
    LOONG_CHECK(ctx,
                load != NULL || hf != NULL || strcmp(phase, "midtrain") != 0,
                LOONG_ERR_CONFIG,
                "training_phase: midtrain goes on from trained weights; "
                "checkpoint.load is auto, and %s has no checkpoint yet: "
                "init.from_hf, or a directory in checkpoint.load the first "
                "time",
                save != NULL ? save : "checkpoint.save");
    *load_p = load;
    return LOONG_OK;
}
