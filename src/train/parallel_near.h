/* SPDX-License-Identifier: Apache-2.0
 *
 * The layouts nearest to an impossible one. */
#ifndef LOONG_PARALLEL_NEAR_H
#define LOONG_PARALLEL_NEAR_H

#include "parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rules alone; what is broken is told. */
LOONG_NODISCARD loong_status_t
loongi_parallel_rules(const loong_parallel_t *layout);

/* Notes overrides of the recipe that give possible layouts: of the same number
 * of ranks, else of the next numbers that have one; the global batch stays.
 * Nothing when even one rank breaks rules: then it is not the layout. */
LOONG_NODISCARD loong_status_t
loongi_parallel_near(const loong_parallel_t *layout);

#ifdef __cplusplus
}
#endif

#endif
