/* SPDX-License-Identifier: Apache-2.0
 *
 * What an earlier run told in log.dir is kept where a new one begins. Called by
 * report.c before it opens its files. Read report.h before. */
#include "report.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_SIZE = 1024 };

static bool is_report(const char *name)
{
    return strcmp(name, "metrics.jsonl") == 0 ||
           strcmp(name, "recipe.yaml") == 0 ||
           strncmp(name, "events.out.tfevents.", 20) == 0;
}

/* A new folder of dir, with the first number that is not taken. */
static loong_status_t make_folder(loong_context_t *ctx, const char *dir,
                                  char path[PATH_SIZE])
{
    int made = -1;
    for (int n = 1; made != 0; n++) {
        snprintf(path, PATH_SIZE, "%.900s/earlier_%d", dir, n);
        made = mkdir(path, 0777);
        LOONG_CHECK(ctx, made == 0 || errno == EEXIST, LOONG_ERR_IO,
                    "cannot make '%s' for the files of an earlier run: %s",
                    path, strerror(errno));
    }
    return LOONG_OK;
}

static loong_status_t move_reports(loong_context_t *ctx, const char *dir,
                                   const char *to)
{
    struct dirent *entry = NULL;
    loong_status_t status = LOONG_OK;
    DIR *files = opendir(dir);
    LOONG_CHECK(ctx, files != NULL, LOONG_ERR_IO, "cannot read '%s': %s",
                dir, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(files)) != NULL) {
        char from[2 * PATH_SIZE];
        char path[2 * PATH_SIZE];
        snprintf(from, sizeof(from), "%.900s/%s", dir, entry->d_name);
        snprintf(path, sizeof(path), "%.950s/%s", to, entry->d_name);
        if (is_report(entry->d_name) && rename(from, path) != 0) {
            status = LOONG_FAIL(ctx, LOONG_ERR_IO,
                                "cannot move '%s' to '%s': %s", from, path,
                                strerror(errno));
        }
    }
    closedir(files);
    return status;
}

loong_status_t loongi_set_aside(loong_context_t *ctx, const char *dir)
{
    char path[PATH_SIZE];
    struct stat info;
    snprintf(path, sizeof(path), "%.900s/metrics.jsonl", dir);
    if (stat(path, &info) != 0 || info.st_size == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(make_folder(ctx, dir, path));
    LOONG_TRY(move_reports(ctx, dir, path));
    loongi_log(ctx, LOONG_LOG_WARN,
               "log.dir: %s has the files of an earlier run, which this one "
               "does not go on with: they are in %s now", dir, path);
    return LOONG_OK;
}
