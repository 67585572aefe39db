/* SPDX-License-Identifier: Apache-2.0
 *
 * The name that was probably meant by a wrong one. Not collective. */
#ifndef LOONG_NEAREST_H
#define LOONG_NEAREST_H

#include <stddef.h>

#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name in a table that is spelled most like `text`, NULL when none is near:
 * `table` has `count` entries of `size` bytes, each of which begins with its
 * name, a const char *. Dashes, underscores and case do not count. Borrowed
 * from the table. */
LOONG_API const char *loong_nearest(const char *text, const void *table,
                                    size_t count, size_t size);

#ifdef __cplusplus
}
#endif

#endif
