/* SPDX-License-Identifier: Apache-2.0
 *
 * Large zeroed memory, aligned to 2 MiB, with huge pages advised: of this
 * process alone, or readable by the other ranks of the machine. */
#ifndef LOONG_COMM_PAGES_H
#define LOONG_COMM_PAGES_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOONG_HUGE_PAGE ((size_t)2 << 20)

/* Private memory. A size of 0 gives a valid pointer. */
LOONG_NODISCARD loong_status_t loongi_pages_alloc(loong_context_t *ctx,
                                                  size_t bytes,
                                                  const char *what,
                                                  void **ptr_p);

/* An anonymous memory file: no name, no limit but the machine's memory, gone
 * with its last user. *file_p is a descriptor the caller closes. */
LOONG_NODISCARD loong_status_t loongi_pages_file(loong_context_t *ctx,
                                                 size_t bytes, const char *what,
                                                 int *file_p);
/* The same file, opened from the process that made it. */
LOONG_NODISCARD loong_status_t loongi_pages_open(loong_context_t *ctx, int pid,
                                                 int file, int *file_p);
LOONG_NODISCARD loong_status_t loongi_pages_map(loong_context_t *ctx, int file,
                                                size_t bytes, void **ptr_p);

/* Of either kind; bytes as given on creation. NULL is accepted. */
void loongi_pages_free(void *ptr, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
