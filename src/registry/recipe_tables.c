/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema of recipes: the tables of keys, which stand beside the structs
 * that they fill. Called by src/recipe; read fields.h before. */
#include "fields.h"

#include "decoder_config.h"
#include "projector.h"
#include "vision.h"

const loong_recipe_table_t *const loongi_recipe_tables[] = {
    &loongi_recipe_run_keys,
    &loongi_vision_fields,
    &loongi_recipe_component_keys[0],
    &loongi_projector_fields,
    &loongi_recipe_component_keys[1],
    &loongi_decoder_fields,
    &loongi_recipe_component_keys[2],
    &loongi_recipe_component_keys[3],
    &loongi_recipe_keys,
    NULL};
