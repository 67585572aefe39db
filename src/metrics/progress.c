/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the bar of a long task on a terminal. Called by loongrun's screen,
 * loong-data and loong-ckpt. Read loong/progress.h before. */
#include "loong/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "metrics.h"

enum { MIN_COLUMNS = 20, MAX_COLUMNS = 240, MAX_BAR = 40 };

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

static int find_columns(int fd)
{
    struct winsize size;
    int columns = 80;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        columns = size.ws_col;
    } else if (is_set("COLUMNS")) {
        columns = atoi(getenv("COLUMNS"));
    }
    return LOONG_MAX(MIN_COLUMNS, LOONG_MIN(columns, MAX_COLUMNS));
}

void loong_progress_detect(int fd, loong_progress_t *progress)
{
    const char *term = getenv("TERM");
    progress->shown = isatty(fd) && !is_set("CI") && is_set("TERM") &&
                      strcmp(term, "dumb") != 0;
    progress->colour = progress->shown && !is_set("NO_COLOR");
    progress->columns = find_columns(fd);
}

const char *loong_progress_draw(const loong_progress_t *progress,
                                int64_t done, int64_t total,
                                double seconds_left, const char *note,
                                char text[LOONG_PROGRESS_SIZE])
{
    char tail[MAX_COLUMNS + 1];
    char bar[MAX_BAR + 1];
    char left[LOONG_TIME_SIZE];
    text[0] = '\0';
    if (!progress->shown) {
        return text;
    }
    double share = total > 0 ? (double)done / (double)total : 0.0;
    share = LOONG_MAX(0.0, LOONG_MIN(share, 1.0));
    int columns = LOONG_MAX(MIN_COLUMNS,
                            LOONG_MIN(progress->columns, MAX_COLUMNS));
    /* A terminal wraps when its last column is used. */
    int room = columns - 1;
    snprintf(tail, sizeof(tail), " %3d%% %lld/%lld eta %s%s%s",
             (int)(100.0 * share), (long long)done, (long long)total,
             loongi_metrics_time(seconds_left, left), note != NULL ? " " : "",
             note != NULL ? note : "");
    int width = LOONG_MIN(room - (int)strlen(tail) - 2, MAX_BAR);
    if (width < 4) {
        snprintf(text, LOONG_PROGRESS_SIZE, "\r%.*s\033[K", room, tail + 1);
        return text;
    }
    int full = (int)(share * width);
    for (int i = 0; i < width; i++) {
        bar[i] = (char)(i < full ? '=' : i == full ? '>' : ' ');
    }
    bar[width] = '\0';
    snprintf(text, LOONG_PROGRESS_SIZE, "\r[%s%s%s]%s\033[K",
             progress->colour ? "\033[32m" : "", bar,
             progress->colour ? "\033[0m" : "", tail);
    return text;
}

const char *loong_progress_wipe(const loong_progress_t *progress)
{
    return progress->shown ? "\r\033[K" : "";
}
