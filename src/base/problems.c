/* SPDX-License-Identifier: Apache-2.0
 *
 * Collected problems. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "problems.h"

/* What fits the error trail beside what callers add to it. */
enum { SHOWN_BYTES = 6144 };

void loongi_problems_add(loong_problems_t *problems, const char *fmt, ...)
{
    char line[1000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    problems->count++;
    if (problems->text.length + strlen(line) < SHOWN_BYTES) {
        loongi_text_printf(&problems->text, "%s\n", line);
        problems->shown++;
    }
}

loong_status_t loongi_problems_end(loong_problems_t *problems,
                                   loong_status_t status, const char *where)
{
    loong_context_t *ctx = problems->text.ctx;
    loong_status_t outcome = problems->text.status;
    if (outcome == LOONG_OK && problems->count > 0) {
        outcome = LOONG_FAIL(ctx, status, "%s: %" PRId64 " problem%s", where,
                             problems->count, problems->count > 1 ? "s" : "");
        for (char *line = problems->text.data; *line != '\0';) {
            char *end = strchr(line, '\n');
            *end = '\0';
            loongi_error_note(ctx, "  %s", line);
            line = end + 1;
        }
        if (problems->shown < problems->count) {
            loongi_error_note(ctx, "  and %" PRId64 " more",
                              problems->count - problems->shown);
        }
    }
    loongi_text_free(&problems->text);
    problems->count = problems->shown = 0;
    return outcome;
}
