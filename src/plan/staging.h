/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks on devices of several kinds need, known before a run. */
#ifndef LOONG_STAGING_H
#define LOONG_STAGING_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pinned host memory that the rank of a component will hold: pieces of
 * collectives, messages between stages. 0: nothing of it is staged. */
LOONG_NODISCARD loong_status_t loongi_staging_bytes(const loong_plan_t *plan,
                                                    const loong_component_t *c,
                                                    int64_t *bytes_p);

/* Which rank has what, what goes through host memory, and how much that takes,
 * rows between components too; nothing where nothing does. */
LOONG_NODISCARD loong_status_t loongi_staging_describe(const loong_plan_t *plan,
                                                       loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
