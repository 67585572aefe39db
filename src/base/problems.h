/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of problems that is reported as one failure: the count first, then
 * one line for each. */
#ifndef LOONG_PROBLEMS_H
#define LOONG_PROBLEMS_H

#include "base.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_problems {
    loong_text_t text; /* lines ended by newline */
    int64_t count;
    int64_t shown; /* lines in text: as many as the error trail can hold */
    const char *in; /* stands before those that are added; NULL: nothing */
} loong_problems_t;

static inline loong_problems_t loongi_problems_begin(loong_context_t *ctx)
{
    loong_problems_t problems = {loongi_text_begin(ctx), 0, 0, NULL};
    return problems;
}
void loongi_problems_add(loong_problems_t *problems, const char *fmt, ...)
    LOONG_PRINTF(2, 3);

/* Frees the list. LOONG_OK when it is empty, else fails with status, "where:
 * N problems" and the lines. */
LOONG_NODISCARD loong_status_t loongi_problems_end(loong_problems_t *problems,
                                                   loong_status_t status,
                                                   const char *where);
/* Behind that, of keys: adds where each one stands that the problems mention;
 * its value in origins says it. false: they mention none. */
bool loongi_problems_note_origins(loong_context_t *ctx,
                                  const loong_pairs_t *origins);

#ifdef __cplusplus
}
#endif

#endif
