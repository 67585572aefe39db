/* SPDX-License-Identifier: Apache-2.0
 *
 * Hints for wrong names. The tools ask for options and commands, the recipe
 * and the readers of files compare in their own ways. Read loong/nearest.h
 * before. */
#include "loong/nearest.h"

#include <ctype.h>
#include <string.h>

#include "base.h"

enum { LONGEST_NAME = 128, FARTHEST = 4 };

/* Without what does not count. */
static void fold(const char *name, char folded[LONGEST_NAME])
{
    size_t n = 0;
    for (; *name != '\0' && n + 1 < LONGEST_NAME; name++) {
        if (*name != '-' && *name != '_') {
            folded[n++] = (char)tolower((unsigned char)*name);
        }
    }
    folded[n] = '\0';
}

const char *loong_nearest(const char *text, const void *table, size_t count,
                          size_t size)
{
    char wanted[LONGEST_NAME];
    char name[LONGEST_NAME];
    const char *nearest = NULL;
    fold(text, wanted);
    /* A short name is near to everything. */
    int best = LOONG_MIN((int)strlen(wanted) / 2, FARTHEST) + 1;
    for (size_t i = 0; i < count; i++) {
        const char *entry = NULL;
        memcpy(&entry, (const char *)table + i * size, sizeof(entry));
        fold(entry, name);
        int distance = loongi_edit_distance(wanted, name, best);
        if (distance < best) {
            best = distance;
            nearest = entry;
        }
    }
    return nearest;
}
