/* SPDX-License-Identifier: Apache-2.0
 *
 * The layouts nearest to one that breaks rules. */
#ifndef LOONG_LAYOUT_SUGGEST_H
#define LOONG_LAYOUT_SUGGEST_H

#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* loongi_parallel_rules. When it is the layout that breaks them, overrides of
 * the recipe that give the nearest possible layouts are told as well: of the
 * same number of ranks, else of the next numbers that have one; the global
 * batch stays. Nothing is told when even one rank breaks rules: then it is not
 * the layout. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_parallel_check(const loong_parallel_t *layout);

#ifdef __cplusplus
}
#endif

#endif
