/* SPDX-License-Identifier: Apache-2.0
 *
 * Collected problems. Called by what checks recipes, models and checkpoints.
 * Read problems.h before. */
#include <ctype.h>
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
    int begin = problems->in != NULL
                    ? snprintf(line, 100, "%.90s: ", problems->in)
                    : 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(line + begin, sizeof(line) - (size_t)begin, fmt, args);
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
        outcome = status;
        loongi_error_note(ctx, "%s: %" PRId64 " problem%s", where,
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

/* The text has it as a word of its own. */
static bool mentions(const char *text, const char *key)
{
    size_t length = strlen(key);
    const char *at = strstr(text, key);
    for (; at != NULL; at = strstr(at + 1, key)) {
        unsigned char before = at > text ? (unsigned char)at[-1] : ' ';
        unsigned char behind = (unsigned char)at[length];
        if (!isalnum(before) && strchr("_.", before) == NULL &&
            !isalnum(behind) && behind != '_') {
            return true;
        }
    }
    return false;
}

bool loongi_problems_note_origins(loong_context_t *ctx,
                                  const loong_pairs_t *origins)
{
    loong_text_t told = loongi_text_begin(ctx);
    bool any = false;
    loongi_text_printf(&told, "%s", loong_context_error(ctx));
    for (int64_t i = 0; i < origins->count; i++) {
        const loong_pair_t *origin = &origins->items[i];
        if (mentions(loongi_text_get(&told), origin->key)) {
            any = true;
            loongi_error_note(ctx, "  %s is from %s", origin->key,
                              origin->value);
        }
    }
    loongi_text_free(&told);
    return any;
}
