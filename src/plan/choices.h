/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says where a device leaves a choice: how products and attention
 * are made, and whether programs are replayed as graphs. */
#ifndef LOONG_CHOICES_H
#define LOONG_CHOICES_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

bool loongi_fast_bf16(const loong_device_caps_t *caps);
/* The types that precision.params_dtype of a role means on such a device. */
loong_precision_t loongi_recipe_precision(const loong_recipe_t *recipe,
                                          const char *role,
                                          const loong_device_caps_t *caps);

LOONG_NODISCARD loong_status_t
loongi_choices_policy(const loong_plan_t *plan, loong_kernel_policy_t *policy);

/* Enters the kernels of train.host_ops for the device. Errors:
 * LOONG_ERR_CONFIG for a name that is no op of the processor's. */
LOONG_NODISCARD loong_status_t
loongi_choices_host_ops(const loong_plan_t *plan);

/* One line for each reason why attention that a library was asked for is made
 * by own kernels. */
void loongi_choices_tell_attention(const loong_plan_t *plan);

LOONG_NODISCARD loong_status_t
loongi_choices_graphs(const loong_plan_t *plan, loong_component_params_t *p);

#ifdef __cplusplus
}
#endif

#endif
