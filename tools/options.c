/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads long options and suggests the name that was probably meant. Called by
 * the commands of loong-bench and loong-data. Read loong/nearest.h before. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/nearest.h"

int options_next(int argc, char **argv, const struct option *options)
{
    size_t count = 0;
    int option = getopt_long(argc, argv, "h", options, NULL);
    const char *given = argv[optind > 0 ? optind - 1 : 0];
    if (option != '?') {
        return option;
    }
    while (options[count].name != NULL) {
        count++;
    }
    char name[128];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(given, "="), given);
    const char *near =
        optopt == 0 && strncmp(given, "--", 2) == 0
            ? loong_nearest(name, options, count, sizeof(*options))
            : NULL;
    if (near != NULL) {
        fprintf(stderr, "%s: did you mean --%s?\n", argv[0], near);
    } else {
        fprintf(stderr, "%s --help lists the options\n", argv[0]);
    }
    return option;
}

int64_t options_number(const char **at_p, int64_t most)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(*at_p, &end, 10);
    if (errno != 0 || end == *at_p || value < 1 || value > most ||
        (*end != ',' && *end != '\0')) {
        return 0;
    }
    *at_p = *end == ',' ? end + 1 : NULL;
    return value;
}
