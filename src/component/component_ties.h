/* SPDX-License-Identifier: Apache-2.0
 *
 * What several stages of a component hold: its ties are found before stages are
 * created, and summed by one program of each rank. */
#ifndef LOONG_COMPONENT_TIES_H
#define LOONG_COMPONENT_TIES_H

#include "component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills params.ties, and those of params.mesh. Not collective.
 * LOONG_ERR_UNSUPPORTED: holders that ask for a parameter in different ways or
 * orders. */
LOONG_NODISCARD loong_status_t
loongi_component_find_ties(loong_component_t *component);
/* Plans `tie`; places: of its chunks. */
LOONG_NODISCARD loong_status_t loongi_component_plan_ties(
    loong_component_t *component, const loong_chunk_bases_t *places);

#ifdef __cplusplus
}
#endif

#endif
