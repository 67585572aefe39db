/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_COMPONENT_MEMORY_H
#define LOONG_COMPONENT_MEMORY_H

#include "component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was planned: on the device, or, for parameters, gradients and what is
 * exchanged, where peers of the machine read it. Collective on: world. */
LOONG_NODISCARD loong_status_t
loongi_component_take_memory(loong_component_t *component);
/* What there is of it. Collective on: world. */
void loongi_component_give_memory_back(loong_component_t *component);

#ifdef __cplusplus
}
#endif

#endif
