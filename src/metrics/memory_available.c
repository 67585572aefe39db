/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory there is to take: what the kernel says of the machine, and
 * the limits of the control groups that the process is in. Called by devices.c
 * and memory_check.c. Read metrics.h before. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "metrics.h"
#include "rng.h"

enum { TEXT = 16384, PATH = 2 * LOONG_MEMORY_PATH };
static const int64_t NO_LIMIT = INT64_C(1) << 60; /* what the kernel means */

/* A file of the kernel; false: not there. */
static bool slurp(const char *path, char text[TEXT])
{
    size_t used = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    while (used < TEXT - 1 &&
           (n = read(fd, text + used, TEXT - 1 - used)) > 0) {
        used += (size_t)n;
    }
    close(fd);
    text[used] = '\0';
    return n >= 0 && used > 0;
}

/* The number behind a word at the begin of a line; -1: not there. */
static int64_t number_of(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; at != NULL && *at != '\0';) {
        if (strncmp(at, word, n) == 0 && strchr(": \t", at[n]) != NULL) {
            at += n + strspn(at + n, ": \t");
            return strtoll(at, NULL, 10);
        }
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    return -1;
}

static int64_t number_in(const char *dir, const char *file)
{
    char path[PATH];
    char text[TEXT];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return slurp(path, text) && text[0] >= '0' && text[0] <= '9'
               ? strtoll(text, NULL, 10)
               : -1; /* "max" is no limit */
}

/* How the two versions of control groups call things. */
typedef struct version {
    const char *mount;
    const char *limit;
    const char *usage;
    const char *files[2]; /* cached ones, which the kernel can drop */
} version_t;

static const version_t v1 = {"/sys/fs/cgroup/memory",
                             "memory.limit_in_bytes",
                             "memory.usage_in_bytes",
                             {"total_inactive_file", "total_active_file"}};
static const version_t v2 = {"/sys/fs/cgroup",
                             "memory.max",
                             "memory.current",
                             {"inactive_file", "active_file"}};

static void take_group(const char *dir, const version_t *v,
                       loong_memory_available_t *available)
{
    char path[PATH];
    char text[TEXT];
    int64_t limit = number_in(dir, v->limit);
    int64_t used = number_in(dir, v->usage);
    if (limit < 0 || limit >= NO_LIMIT || used < 0) {
        return;
    }
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    for (int i = 0; i < 2 && slurp(path, text); i++) {
        used -= LOONG_MAX(number_of(text, v->files[i]), 0);
    }
    int64_t left = LOONG_MAX(limit - LOONG_MAX(used, 0), 0);
    if (left < available->bytes) {
        available->bytes = left;
        snprintf(available->what, sizeof(available->what), "%s/%s", dir,
                 v->limit);
    }
}

/* A group and all that it is in. */
static void take_groups(const char *root, const version_t *v, char *group,
                        loong_memory_available_t *available)
{
    char dir[LOONG_MEMORY_PATH];
    for (;;) {
        char *slash = strrchr(group, '/');
        snprintf(dir, sizeof(dir), "%s%s%s", root, v->mount,
                 strcmp(group, "/") == 0 ? "" : group);
        take_group(dir, v, available);
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
}

/* Lines are "4:cpu,memory:/group" (version 1) and "0::/group" (2). */
static void take_line(const char *root, char *line,
                      loong_memory_available_t *available)
{
    char *names = strchr(line, ':');
    char *group = names != NULL ? strchr(names + 1, ':') : NULL;
    if (group == NULL) {
        return;
    }
    *group++ = '\0';
    names++;
    if (names[0] == '\0') {
        take_groups(root, &v2, group, available);
        return;
    }
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        if (strcmp(name, "memory") == 0) {
            take_groups(root, &v1, group, available);
        }
    }
}

loong_status_t loongi_memory_available(loong_context_t *ctx, const char *root,
                                       loong_memory_available_t *available)
{
    char path[PATH];
    char text[TEXT];
    char *rest = NULL;
    int64_t kib = -1;
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (slurp(path, text)) {
        kib = number_of(text, "MemAvailable");
    }
    LOONG_CHECK(ctx, kib >= 0, LOONG_ERR_IO, "%s: no line MemAvailable", path);
    available->bytes = kib * 1024;
    snprintf(available->what, sizeof(available->what), "MemAvailable");
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (slurp(path, text)) {
        for (char *line = strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest)) {
            take_line(root, line, available);
        }
    }
    snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", root);
    available->id = loongi_rng_name(slurp(path, text) ? text : "") * 31 +
                    loongi_rng_name(available->what);
    return LOONG_OK;
}
