/* SPDX-License-Identifier: Apache-2.0
 *
 * One line of progress that redraws itself on a terminal. The text is
 * returned; the tool writes it. Not collective. */
#ifndef LOONG_PROGRESS_H
#define LOONG_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How to draw. */
typedef struct loong_progress {
    bool shown;  /* a terminal, and neither CI nor TERM=dumb */
    bool colour; /* not with NO_COLOR */
    int columns;
} loong_progress_t;

/* From the file descriptor and the environment (CI, TERM, NO_COLOR, COLUMNS;
 * a variable set to nothing counts as not set). */
LOONG_API void loong_progress_detect(int fd, loong_progress_t *progress);

enum { LOONG_PROGRESS_SIZE = 512 };

/* "\r[=====>     ]  42% 120/5000 eta 1h06m" with codes that clear the rest of
 * the line; "" when not shown. `note` (may be NULL) stands behind. Redraw
 * after a log line; before one write loong_progress_wipe. */
LOONG_API const char *loong_progress_draw(const loong_progress_t *progress,
                                          int64_t done, int64_t total,
                                          double seconds_left,
                                          const char *note,
                                          char text[LOONG_PROGRESS_SIZE]);
/* Clears the line; "" when not shown. Borrowed, static. */
LOONG_API const char *
loong_progress_wipe(const loong_progress_t *progress);

#ifdef __cplusplus
}
#endif

#endif
