/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the configurations are that recipes name: beside an installed tool,
 * else those of the source tree it was built from. */
#ifndef LOONG_TOOL_CONFIGS_H
#define LOONG_TOOL_CONFIGS_H

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline const char *tool_configs(char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        snprintf(slash + 1, (size_t)(path + PATH_MAX - slash - 1), "%s",
                 LOONG_TO_CONFIGS);
        if (access(path, R_OK) == 0) {
            return path;
        }
    }
    return LOONG_CONFIG_DIR;
}

#endif
