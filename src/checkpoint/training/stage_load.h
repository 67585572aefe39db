/* SPDX-License-Identifier: Apache-2.0
 *
 * A stage's parameters from and to files. */
#ifndef LOONG_STAGE_LOAD_H
#define LOONG_STAGE_LOAD_H

#include "hf_weights.h"
#include "component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the directory that it starts from, if any, has its tensors. */
LOONG_NODISCARD loong_status_t
loongi_component_check_init(const loong_component_t *component);
/* Sets its parameters for the first step: from that directory, or by rules and
 * seed. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_component_begin(loong_component_t *component, uint64_t seed);

/* Fills all parameters from a Hugging Face directory; rows that pad the
 * vocabulary become zero, what is new (new_params.h) starts by seed. Not
 * collective: every rank reads. Errors: those of loongi_hf_check and
 * loongi_hf_read. */
LOONG_NODISCARD loong_status_t loongi_component_load_hf(
    loong_component_t *component, const loong_hf_t *hf, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
