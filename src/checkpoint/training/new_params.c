/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts parameters that files lack. stage_load.c asks for a Hugging Face
 * directory, moments.c and component_native.c ask for a checkpoint. Read
 * new_params.h before. */
#include "new_params.h"

#include <string.h>

#include "graph_impl.h"

enum { NAMED = 8 }; /* so many names in the log */

static bool starts(const loong_param_rule_t *rule, const char *name)
{
    return rule->sets == LOONG_RULE_INIT &&
           loongi_scope_match(rule->scope, name);
}

bool loongi_param_is_new(const loong_component_params_t *params,
                         const loong_origin_t *from,
                         const loong_whole_param_t *param, int64_t there[2])
{
    const loong_param_rules_t *rules = &params->request.rules;
    const loong_whole_param_t *p = param;
    int i = 0;
    while (i < rules->num_rules && !starts(&rules->rules[i], p->name)) {
        i++;
    }
    there[0] = there[1] = 0;
    int ndim = from->find(from->file, params->name, p->name, there);
    return p->adapter > 0.0
               ? ndim == 0
               : i < rules->num_rules &&
                     (ndim != p->ndim ||
                      memcmp(there, p->shape,
                             (size_t)p->ndim * sizeof(*p->shape)) != 0);
}

bool loongi_place_is_new(const loong_stage_t *stage, const loong_origin_t *from,
                         const loong_chunk_param_t *place)
{
    loong_param_slice_t part = loongi_param_slice_of(place);
    loong_whole_param_t whole = {.name = place->name,
                                 .ndim = place->params.shape.rank > 1 ? 2 : 1,
                                 .shape = {part.all_rows, part.all_cols},
                                 .adapter = place->params.adapter};
    int64_t there[2];
    return loongi_param_is_new(stage->params, from, &whole, there);
}

static bool is_new(const loong_component_t *component,
                   const loong_origin_t *from, const loong_whole_param_t *p)
{
    int64_t there[2];
    return loongi_param_is_new(&component->params, from, p, there);
}

loong_status_t loongi_new_params_check(const loong_component_t *component,
                                       const loong_origin_t *from)
{
    const loong_param_rules_t *rules = &component->params.request.rules;
    for (int k = 0; k < rules->num_rules; k++) {
        const loong_param_rule_t *rule = &rules->rules[k];
        bool meant = false; /* else it is of another component */
        bool used = false;
        for (int64_t i = 0; i < component->num_whole && !used; i++) {
            bool here = starts(rule, component->whole[i].name);
            meant = meant || here;
            used = here && is_new(component, from, &component->whole[i]);
        }
        LOONG_CHECK(component->ctx, used || !meant, LOONG_ERR_CONFIG,
                    "init.by_scope: %s has no effect: init.from_hf has every "
                    "parameter of this scope",
                    rule->scope);
    }
    return LOONG_OK;
}

loong_status_t loongi_new_params_initialize(loong_component_t *component,
                                            const loong_origin_t *from,
                                            uint64_t seed)
{
    loong_text_t names = loongi_text_begin(component->ctx);
    int64_t count = 0;
    int64_t adapters = 0;
    for (int64_t i = 0; i < component->num_whole; i++) {
        const loong_whole_param_t *p = &component->whole[i];
        if (!is_new(component, from, p)) {
            continue;
        }
        adapters += p->adapter > 0.0;
        if (p->adapter == 0.0 && count++ < NAMED) {
            loongi_text_printf(&names, "%s%s", count > 1 ? ", " : "", p->name);
        }
    }
    loong_status_t status = LOONG_OK;
    if (adapters > 0) {
        loongi_log(component->ctx, LOONG_LOG_INFO,
                   "new adapters: %lld matrices", (long long)adapters);
    }
    if (count > 0) {
        loongi_log(component->ctx, LOONG_LOG_INFO,
                   "initialised by init.by_scope, not loaded: %lld parameters "
                   "(%s%s)",
                   (long long)count, loongi_text_get(&names),
                   count > NAMED ? ", ..." : "");
    }
    for (int i = 0;
         i < component->num_stages && count + adapters > 0 &&
         status == LOONG_OK;
         i++) {
        status = loongi_stage_initialize(component->stages[i], seed);
    }
    loongi_text_free(&names);
    return status;
}
