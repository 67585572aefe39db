/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that read samples while a step runs: so many numbered tasks, shared
 * out as they come. */
#ifndef LOONG_READERS_H
#define LOONG_READERS_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_readers loong_readers_t;

/* Does task i on thread `reader`, 0 <= reader < count. */
typedef void (*loong_reader_fn)(void *user, int reader, int64_t i);

LOONG_NODISCARD loong_status_t
loongi_readers_create(loong_context_t *ctx, int count, loong_reader_fn run,
                      void *user, loong_readers_t **readers_p);
/* Waits for the tasks that are under way; others are not begun. NULL: no-op. */
void loongi_readers_destroy(loong_readers_t **readers);

/* Begins tasks 0 .. tasks-1; waits for those before. */
void loongi_readers_start(loong_readers_t *readers, int64_t tasks);
/* Until all are done. */
void loongi_readers_wait(loong_readers_t *readers);

#ifdef __cplusplus
}
#endif

#endif
