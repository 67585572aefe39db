/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says where a device leaves a choice: how products and attention
 * are made, and whether programs are replayed as graphs. */
#ifndef LOONG_CHOICES_H
#define LOONG_CHOICES_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

LOONG_NODISCARD loong_status_t
loongi_choices_policy(const loong_trainer_t *t, loong_kernel_policy_t *policy);

/* One line for each reason why attention that cuDNN was asked for is made by
 * own kernels. */
void loongi_choices_tell_attention(const loong_trainer_t *t);

LOONG_NODISCARD loong_status_t
loongi_choices_graphs(const loong_trainer_t *t, loong_component_params_t *p);

#ifdef __cplusplus
}
#endif

#endif
