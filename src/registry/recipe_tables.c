/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema of recipes: the tables of keys, which stand beside the structs
 * that they fill. Called by src/recipe; read fields.h before. */
#include "fields.h"

#include "adapter_rules.h"
#include "component_params.h"
#include "decoder_config.h"
#include "fault.h"
#include "optimizer_settings.h"
#include "param_rules.h"
#include "projector.h"
#include "run_data.h"
#include "vision.h"

const loong_recipe_table_t *const loongi_recipe_tables[] = {
    &loongi_recipe_run_keys,
    &loongi_vision_fields,
    &loongi_recipe_component_keys[0],
    &loongi_projector_fields,
    &loongi_recipe_component_keys[1],
    &loongi_decoder_fields,
    &loongi_recipe_component_keys[2],
    &loongi_adapter_keys,
    &loongi_layout_keys,
    &loongi_data_keys,
    &loongi_settings_keys[0],
    &loongi_optimizer_keys[0],
    &loongi_param_rule_keys[0],
    &loongi_optimizer_keys[1],
    &loongi_settings_keys[1],
    &loongi_param_rule_keys[1],
    &loongi_settings_keys[2],
    &loongi_fault_keys,
    NULL};
