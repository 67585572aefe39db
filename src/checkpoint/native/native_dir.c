/* SPDX-License-Identifier: Apache-2.0
 *
 * The save directory. Called by native_commit.c, resume.c and whatever opens a
 * checkpoint. Read native_dir.h before. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file.h"
#include "native.h"
#include "native_dir.h"

enum { EXCHANGE = 2 }; /* RENAME_EXCHANGE of the kernel's interface */

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_step_dir(const char *path)
{
    char manifest[4096];
    int n = snprintf(manifest, sizeof(manifest), "%s/" LOONG_MANIFEST, path);
    return n < (int)sizeof(manifest) && loongi_file_exists(manifest);
}

static bool has_step(const char *path)
{
    bool found = false;
    struct dirent *entry = NULL;
    DIR *dir = opendir(path);
    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        char step[4096];
        int n = snprintf(step, sizeof(step), "%s/%s", path, entry->d_name);
        found = has_prefix(entry->d_name, "step_") &&
                n < (int)sizeof(step) && is_step_dir(step);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

/* Steps make a save directory: `latest` may have been lost. */
bool loongi_checkpoint_is_native(const char *path)
{
    char latest[4096];
    int n = snprintf(latest, sizeof(latest), "%s/" LOONG_LATEST, path);
    return is_step_dir(path) ||
           (n < (int)sizeof(latest) && loongi_file_exists(latest)) ||
           has_step(path);
}

/* The steps that are there, for a message. */
static void list_steps(const char *path, loong_text_t *list)
{
    struct dirent *entry = NULL;
    DIR *dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (has_prefix(entry->d_name, "step_")) {
            loongi_text_printf(list, " %s", entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static loong_status_t fail_missing(loong_context_t *ctx, const char *path,
                                   const char *what)
{
    loong_text_t steps = loongi_text_begin(ctx);
    list_steps(path, &steps);
    loong_status_t status =
        LOONG_FAIL(ctx, LOONG_ERR_NOT_FOUND, "'%s' %s; steps there:%s", path,
                   what, steps.length > 0 ? loongi_text_get(&steps) : " none");
    loongi_text_free(&steps);
    return status;
}

/* ---- what a directory is, when it is nothing ---- */

static bool is_model_file(const char *name)
{
    size_t length = strlen(name);
    static const char end[] = ".safetensors";
    return strcmp(name, "config.json") == 0 ||
           strcmp(name, "model.safetensors.index.json") == 0 ||
           (length >= sizeof(end) &&
            strcmp(name + length - sizeof(end) + 1, end) == 0);
}

/* Some of the names in it. False: one of them is of a model. */
static bool list_names(const char *path, loong_text_t *list, bool *begun_p)
{
    enum { MOST = 6 };
    int count = 0;
    bool model = false;
    struct dirent *entry = NULL;
    DIR *dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        model = model || is_model_file(entry->d_name);
        *begun_p = *begun_p || has_prefix(entry->d_name, LOONG_TMP_PREFIX);
        if (count++ < MOST) {
            loongi_text_printf(list, "%s%s", count > 1 ? ", " : "",
                               entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    loongi_text_printf(list, "%s",
                       count > MOST ? ", ..." : count == 0 ? "nothing" : "");
    return !model;
}

loong_status_t loongi_checkpoint_check_place(loong_context_t *ctx,
                                             const char *path)
{
    bool begun = false;
    LOONG_CHECK(ctx, loongi_dir_exists(path), LOONG_ERR_NOT_FOUND,
                "'%s' is not a directory", path);
    if (loongi_checkpoint_is_native(path)) {
        return LOONG_OK;
    }
    loong_text_t names = loongi_text_begin(ctx);
    bool none = list_names(path, &names, &begun);
    loong_status_t status =
        none ? LOONG_FAIL(ctx, LOONG_ERR_NOT_FOUND,
                          "'%s' is neither a checkpoint (" LOONG_MANIFEST
                          "), nor a directory with some (" LOONG_LATEST
                          "), nor a model (config.json, *.safetensors); in it: "
                          "%s%s", path, loongi_text_get(&names),
                          begun ? "; a save or an import was not finished" : "")
             : LOONG_OK;
    loongi_text_free(&names);
    return status;
}

loong_status_t loongi_checkpoint_check_model(loong_context_t *ctx,
                                             const char *path)
{
    LOONG_TRY(loongi_checkpoint_check_place(ctx, path));
    LOONG_CHECK(ctx, !loongi_checkpoint_is_native(path), LOONG_ERR_ARG,
                "'%s' is a native checkpoint, a Hugging Face directory is "
                "wanted: loong-ckpt export makes one of it", path);
    return LOONG_OK;
}

loong_status_t loongi_checkpoint_check_no_model(loong_context_t *ctx,
                                                const char *path)
{
    bool begun = false;
    loong_text_t names = loongi_text_begin(ctx);
    bool none = list_names(path, &names, &begun);
    loongi_text_free(&names);
    LOONG_CHECK(ctx, none, LOONG_ERR_ARG,
                "'%s' is a Hugging Face directory: another directory is "
                "wanted for a native checkpoint", path);
    return LOONG_OK;
}

loong_status_t loongi_checkpoint_check_outside(loong_context_t *ctx,
                                               const char *path)
{
    char given[PATH_MAX], real[PATH_MAX];
    int length = snprintf(given, sizeof(given), "%s%s",
                          path[0] == '/' ? "" : "./", path);
    LOONG_CHECK(ctx, length < (int)sizeof(given), LOONG_ERR_ARG,
                "'%s' is too long a path", path);
    while (realpath(given, real) == NULL) { /* the end of it will be made */
        char *slash = strrchr(given, '/');
        if (slash == given) {
            return LOONG_OK;
        }
        *slash = '\0';
    }
    for (char *slash = real + strlen(real); slash > real;
         slash = strrchr(real, '/')) {
        *slash = '\0';
        LOONG_CHECK(ctx, !is_step_dir(real), LOONG_ERR_ARG,
                    "'%s' lies in the checkpoint '%s': another directory is "
                    "wanted for an output", path, real);
    }
    return LOONG_OK;
}

loong_status_t loongi_native_resolve(loong_arena_t *arena, loong_context_t *ctx,
                                     const char *path, char **step_dir_p)
{
    char *latest = NULL;
    char *config = NULL;
    char *name = NULL;
    char *step_dir = NULL;
    size_t length = 0;
    LOONG_CHECK(ctx, loongi_dir_exists(path), LOONG_ERR_NOT_FOUND,
                "'%s' is not a directory", path);
    if (is_step_dir(path)) {
        return loongi_arena_strdup(arena, path, step_dir_p);
    }
    if (has_prefix(strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
                   "step_")) {
        return LOONG_FAIL(
            ctx, LOONG_ERR_NOT_FOUND,
            "'%s' has no " LOONG_MANIFEST ": an incomplete checkpoint", path);
    }
    LOONG_TRY(loongi_arena_printf(arena, &latest, "%s/" LOONG_LATEST, path));
    LOONG_TRY(loongi_arena_printf(arena, &config, "%s/config.json", path));
    if (!loongi_file_exists(latest)) {
        LOONG_CHECK(ctx, !loongi_file_exists(config), LOONG_ERR_NOT_FOUND,
                    "'%s' is a Hugging Face directory, a native checkpoint is "
                    "wanted: loong-ckpt import makes one of it", path);
        return fail_missing(ctx, path,
                            "has neither " LOONG_MANIFEST " nor " LOONG_LATEST);
    }
    LOONG_TRY(loongi_file_read(ctx, latest, &name, &length));
    name[strcspn(name, "\r\n")] = '\0';
    loong_status_t status =
        has_prefix(name, "step_") && strchr(name, '/') == NULL
            ? loongi_arena_printf(arena, &step_dir, "%s/%s", path, name)
            : LOONG_FAIL(ctx, LOONG_ERR_FORMAT,
                         "%s holds '%.40s', not the name of a step", latest,
                         name);
    loongi_free(ctx, name);
    LOONG_TRY(status);
    if (!is_step_dir(step_dir)) {
        return fail_missing(ctx, path,
                            "has a " LOONG_LATEST
                            " that names a step which is not "
                            "there or incomplete");
    }
    *step_dir_p = step_dir;
    return LOONG_OK;
}

static loong_status_t join(loong_context_t *ctx, const char *dir,
                           const char *name, char **path_p)
{
    loong_text_t text = loongi_text_begin(ctx);
    loongi_text_printf(&text, "%s/%s", dir, name);
    *path_p = text.data;
    return text.status;
}

loong_status_t loongi_native_clean(loong_context_t *ctx, const char *dir)
{
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    DIR *folder = opendir(dir);
    LOONG_CHECK(ctx, folder != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", dir, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(folder)) != NULL) {
        char *path = NULL;
        if (!has_prefix(entry->d_name, LOONG_TMP_PREFIX)) {
            continue;
        }
        status = join(ctx, dir, entry->d_name, &path);
        if (status == LOONG_OK) {
            loongi_log(ctx, LOONG_LOG_INFO,
                       "removing '%s', left by an interrupted save", path);
            status = loongi_dir_remove(ctx, path);
        }
        loongi_free(ctx, path);
    }
    closedir(folder);
    return status;
}

/* One move where the file system can exchange names; else two moves, between
 * which the step has no directory. */
static loong_status_t replace(loong_context_t *ctx, const char *tmp,
                              const char *final)
{
    if (syscall(SYS_renameat2, AT_FDCWD, tmp, AT_FDCWD, final, EXCHANGE) == 0) {
        return loongi_dir_remove(ctx, tmp);
    }
    LOONG_TRY(loongi_dir_remove(ctx, final));
    return loongi_file_rename(ctx, tmp, final);
}

/* The pointer is written before anything gets its final name: a disk that is
 * full is found while the new step can still be taken back. */
loong_status_t loongi_native_publish(loong_context_t *ctx, const char *dir,
                                     const char *tmp_name, const char *name)
{
    char *paths[4] = {NULL, NULL, NULL, NULL};
    const char *names[4] = {tmp_name, name, LOONG_TMP_PREFIX LOONG_LATEST,
                            LOONG_LATEST};
    char line[64];
    int length = snprintf(line, sizeof(line), "%s\n", name);
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < 4 && status == LOONG_OK; i++) {
        status = join(ctx, dir, names[i], &paths[i]);
    }
    if (status == LOONG_OK) {
        status = loongi_file_write(ctx, paths[2], line, (size_t)length);
    }
    if (status == LOONG_OK) {
        status = loongi_dir_exists(paths[1])
                     ? replace(ctx, paths[0], paths[1])
                     : loongi_file_rename(ctx, paths[0], paths[1]);
    }
    if (status == LOONG_OK) {
        status = loongi_dir_sync(ctx, dir);
    }
    if (status == LOONG_OK) {
        status = loongi_file_rename(ctx, paths[2], paths[3]);
    }
    for (int i = 0; i < 4; i++) {
        loongi_free(ctx, paths[i]);
    }
    return status;
}

/* ---- retention ---- */

typedef struct kept {
    char name[32];
    struct timespec time; /* when it was completed */
} kept_t;

static int newest_first(const void *a, const void *b)
{
    const kept_t *x = a;
    const kept_t *y = b;
    if (x->time.tv_sec != y->time.tv_sec) {
        return x->time.tv_sec < y->time.tv_sec ? 1 : -1;
    }
    if (x->time.tv_nsec != y->time.tv_nsec) {
        return x->time.tv_nsec < y->time.tv_nsec ? 1 : -1;
    }
    return strcmp(y->name, x->name);
}

static loong_status_t collect(loong_context_t *ctx, const char *dir,
                              const char *name, kept_t **steps_p,
                              int64_t *count_p)
{
    loong_status_t status = LOONG_OK;
    int64_t capacity = 0;
    struct dirent *entry = NULL;
    DIR *folder = opendir(dir);
    LOONG_CHECK(ctx, folder != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", dir, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(folder)) != NULL) {
        struct stat info;
        loong_text_t path = loongi_text_begin(ctx);
        loongi_text_printf(&path, "%s/%s/" LOONG_MANIFEST, dir, entry->d_name);
        if (has_prefix(entry->d_name, "step_") &&
            strlen(entry->d_name) < sizeof((*steps_p)->name) &&
            strcmp(entry->d_name, name) != 0 && path.status == LOONG_OK &&
            stat(path.data, &info) == 0) {
            status = loongi_grow(ctx, steps_p, &capacity, *count_p + 1,
                                 sizeof(**steps_p), "steps");
            if (status == LOONG_OK) {
                kept_t *step = &(*steps_p)[(*count_p)++];
                strcpy(step->name, entry->d_name);
                step->time = info.st_mtim;
            }
        }
        loongi_text_free(&path);
    }
    closedir(folder);
    return status;
}

/* "" when `latest` is not there or names nothing that is. */
static void read_latest(loong_context_t *ctx, const char *dir,
                        char name[sizeof(((kept_t *)0)->name)])
{
    loong_text_t path = loongi_text_begin(ctx);
    char *text = NULL;
    size_t length = 0;
    name[0] = '\0';
    loongi_text_printf(&path, "%s/" LOONG_LATEST, dir);
    if (path.status == LOONG_OK && loongi_file_exists(path.data) &&
        loongi_file_read(ctx, path.data, &text, &length) == LOONG_OK) {
        text[strcspn(text, "\r\n")] = '\0';
        loongi_text_free(&path);
        path = loongi_text_begin(ctx);
        loongi_text_printf(&path, "%s/%s", dir, text);
        if (has_prefix(text, "step_") && strchr(text, '/') == NULL &&
            strlen(text) < sizeof(((kept_t *)0)->name) &&
            path.status == LOONG_OK && is_step_dir(path.data)) {
            strcpy(name, text);
        }
        loongi_free(ctx, text);
    }
    loongi_text_free(&path);
}

loong_status_t loongi_checkpoint_steps(loong_context_t *ctx,
                                       loong_arena_t *arena, const char *dir,
                                       const char ***names_p, int64_t *count_p)
{
    char latest[sizeof(((kept_t *)0)->name)];
    kept_t *steps = NULL;
    int64_t count = 0;
    const char **names = NULL;
    read_latest(ctx, dir, latest);
    int64_t first = latest[0] != '\0';
    loong_status_t status = collect(ctx, dir, latest, &steps, &count);
    if (count > 0) {
        qsort(steps, (size_t)count, sizeof(*steps), newest_first);
    }
    if (status == LOONG_OK) {
        status = loongi_arena_alloc(
            arena, (size_t)(first + count) * sizeof(*names), &names);
    }
    for (int64_t i = 0; i < first + count && status == LOONG_OK; i++) {
        char *name = NULL;
        status = loongi_arena_strdup(
            arena, i < first ? latest : steps[i - first].name, &name);
        names[i] = name;
    }
    loongi_free(ctx, steps);
    LOONG_TRY(status);
    *names_p = names;
    *count_p = first + count;
    return LOONG_OK;
}

/* Hidden first, so that a step which is half removed is none. */
static loong_status_t drop(loong_context_t *ctx, const char *dir,
                           const char *name)
{
    char *path = NULL;
    char *hidden = NULL;
    char hidden_name[64];
    snprintf(hidden_name, sizeof(hidden_name), LOONG_TMP_PREFIX "old_%.40s",
             name);
    loong_status_t status = join(ctx, dir, name, &path);
    if (status == LOONG_OK) {
        status = join(ctx, dir, hidden_name, &hidden);
    }
    if (status == LOONG_OK) {
        status = loongi_file_rename(ctx, path, hidden);
    }
    if (status == LOONG_OK) {
        status = loongi_dir_remove(ctx, hidden);
    }
    loongi_free(ctx, hidden);
    loongi_free(ctx, path);
    return status;
}

loong_status_t loongi_native_renew(loong_context_t *ctx, const char *step_dir)
{
    char *manifest = NULL;
    loong_status_t status = join(ctx, step_dir, LOONG_MANIFEST, &manifest);
    if (status == LOONG_OK && utimensat(AT_FDCWD, manifest, NULL, 0) != 0) {
        status = LOONG_FAIL(ctx, LOONG_ERR_IO,
                            "cannot set the time of '%s': %s",
                            manifest, strerror(errno));
    }
    loongi_free(ctx, manifest);
    return status;
}

loong_status_t loongi_native_retain(loong_context_t *ctx, const char *dir,
                                    const char *name, int keep)
{
    kept_t *steps = NULL;
    int64_t count = 0;
    loong_status_t status = collect(ctx, dir, name, &steps, &count);
    if (count > 0) {
        qsort(steps, (size_t)count, sizeof(*steps), newest_first);
    }
    for (int64_t i = keep - 1; i < count && status == LOONG_OK; i++) {
        status = drop(ctx, dir, steps[i].name);
    }
    loongi_free(ctx, steps);
    return status;
}
