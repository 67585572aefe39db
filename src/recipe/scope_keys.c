/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns over parameters and modules that cannot be read. check.c calls
 * it. Read loongi_scope_match in base.h before. */
#include <stdio.h>

#include "problems.h"
#include "recipe_impl.h"

void loongi_scope_keys_check(const loong_recipe_t *recipe,
                             loong_problems_t *problems)
{
    static const char *const lists[][2] = {
        {"model.freeze", ""},
        {"model.trainable", ""},
        {"finetune.target_modules", ""},
        {"finetune.exclude_modules", ""},
        {"finetune.modules_to_save", ""},
        {"finetune.rank_pattern", ".scope"},
        {"finetune.alpha_pattern", ".scope"},
        {"optimizer.weight_decay_rules", ".scope"},
        {"optimizer.groups", ".scope"},
        {"init.by_scope", ".scope"}};
    for (int64_t k = 0; k < LOONG_COUNT_OF(lists); k++) {
        for (int64_t i = 0; i < loong_recipe_count(recipe, lists[k][0]); i++) {
            char path[128];
            char reason[LOONG_SCOPE_REASON];
            snprintf(path, sizeof(path), "%s[%lld]%s", lists[k][0],
                     (long long)i, lists[k][1]);
            const char *pattern = loong_recipe_text(recipe, path);
            if (pattern != NULL && !loongi_scope_valid(pattern, reason)) {
                loongi_problems_add(
                    problems, "%s: %s: found '%s', which is no extended "
                              "regular expression: %s",
                    loong_recipe_where(recipe, path), path, pattern, reason);
            }
        }
    }
}
