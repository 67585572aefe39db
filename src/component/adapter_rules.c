/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads finetune.* of a recipe into the rules of the component with the loss.
 * Called by param_rules.c. Read loong_adapters_t before. */
#include "adapter_rules.h"

#include <stdio.h>
#include <string.h>

#include "param_rules.h"

#define KEY(name_) "finetune." name_

enum { PATH_SIZE = 128 };

/* Globs of the paths that a list names, by whole paths or by last parts, each
 * with `end` behind it; they go behind those of `list`, which has room. */
static loong_status_t add_names(const loong_recipe_t *recipe, const char *key,
                                const char *end, loong_arena_t *arena,
                                int *count_p, const char **list)
{
    int count = 0;
    const char *const *names = NULL;
    LOONG_TRY(loongi_read_globs(recipe, key, arena, &count, &names));
    for (int i = 0; i < count; i++) {
        char *own = NULL;
        char *inside = NULL;
        LOONG_TRY(loongi_arena_printf(arena, &own, "%s%s", names[i], end));
        LOONG_TRY(loongi_arena_printf(arena, &inside, "*.%s%s", names[i], end));
        list[(*count_p)++] = own;
        list[(*count_p)++] = inside;
    }
    return LOONG_OK;
}

static loong_status_t read_trainable(const loong_recipe_t *recipe,
                                     loong_arena_t *arena,
                                     loong_param_rules_t *rules)
{
    static const char *const matrices[] = {"*.lora_A", "*.lora_B"};
    const char *bias = loong_recipe_text(recipe, KEY("bias"));
    int64_t most = rules->num_trainable + LOONG_COUNT_OF(matrices) + 1 +
                   2 * loong_recipe_count(recipe, KEY("modules_to_save")) +
                   2 * loong_recipe_count(recipe, KEY("target_modules"));
    const char **list = NULL;
    int count = 0;
    LOONG_TRY(loongi_arena_alloc(arena, (size_t)most * sizeof(*list), &list));
    for (int i = 0; i < rules->num_trainable; i++) {
        list[count++] = rules->trainable[i];
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(matrices); i++) {
        list[count++] = matrices[i];
    }
    LOONG_TRY(
        add_names(recipe, KEY("modules_to_save"), "", arena, &count, list));
    if (strcmp(bias, "all") == 0) {
        list[count++] = "*.bias";
    } else if (strcmp(bias, "lora_only") == 0) {
        LOONG_TRY(add_names(recipe, KEY("target_modules"), ".bias", arena,
                            &count, list));
    }
    rules->restricted = true;
    rules->num_trainable = count;
    rules->trainable = list;
    return LOONG_OK;
}

static loong_status_t read_patterns(const loong_recipe_t *recipe,
                                    const char *key, const char *value,
                                    loong_arena_t *arena, int *count_p,
                                    const loong_adapter_pattern_t **patterns_p)
{
    int64_t count = loong_recipe_count(recipe, key);
    loong_adapter_pattern_t *list = NULL;
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)LOONG_MAX(count, 1) * sizeof(*list), &list));
    for (int64_t i = 0; i < count; i++) {
        char path[PATH_SIZE];
        snprintf(path, sizeof(path), "%s[%lld].scope", key, (long long)i);
        list[i].scope = loong_recipe_text(recipe, path);
        snprintf(path, sizeof(path), "%s[%lld].%s", key, (long long)i, value);
        list[i].value = strcmp(value, "rank") == 0
                            ? (double)loong_recipe_int(recipe, path)
                            : loong_recipe_real(recipe, path);
    }
    *count_p = (int)count;
    *patterns_p = list;
    return LOONG_OK;
}

/* Experts have adapters where they are named. */
static loong_status_t read_targets(const loong_recipe_t *recipe,
                                   loong_arena_t *arena, loong_adapters_t *a)
{
    static const char *const between_ends[] = {"layers"};
    int count = 0;
    const char *const *named = NULL;
    const char **excluded = NULL;
    LOONG_TRY(loongi_read_globs(recipe, KEY("target_modules"), arena,
                                &a->num_targets, &a->targets));
    LOONG_TRY(loongi_read_globs(recipe, KEY("exclude_modules"), arena, &count,
                                &named));
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)(count + 1) * sizeof(*excluded), &excluded));
    memcpy(excluded, named, (size_t)count * sizeof(*excluded));
    if (a->num_targets == 0) {
        a->num_targets = LOONG_COUNT_OF(between_ends);
        a->targets = between_ends;
        excluded[count++] = "*.experts";
    }
    a->num_excluded = count;
    a->excluded = excluded;
    return LOONG_OK;
}

/* The last component is the one with the loss. */
static bool has_adapters(const loong_recipe_t *recipe, const char *role)
{
    const char *last = NULL;
    for (int64_t i = 0; loong_recipe_component(recipe, i) != NULL; i++) {
        last = loong_recipe_component(recipe, i);
    }
    return strcmp(loong_recipe_text(recipe, KEY("method")), "lora") == 0 &&
           last != NULL && strcmp(last, role) == 0;
}

loong_status_t loongi_adapter_rules_read(const loong_recipe_t *recipe,
                                         const char *role, loong_arena_t *arena,
                                         loong_param_rules_t *rules)
{
    const loong_recipe_t *r = recipe;
    loong_adapters_t *a = NULL;
    if (!has_adapters(r, role)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*a), &a));
    memset(a, 0, sizeof(*a));
    LOONG_TRY(read_targets(r, arena, a));
    a->rank = (int)loong_recipe_int(r, KEY("rank"));
    a->alpha = loong_recipe_real(r, KEY("alpha"));
    a->dropout = loong_recipe_real(r, KEY("dropout"));
    a->rank_stabilized = loong_recipe_bool(r, KEY("use_rslora"));
    a->gaussian =
        strcmp(loong_recipe_text(r, KEY("init_lora_weights")), "gaussian") == 0;
    LOONG_TRY(read_patterns(r, KEY("rank_pattern"), "rank", arena,
                            &a->num_ranks, &a->ranks));
    LOONG_TRY(read_patterns(r, KEY("alpha_pattern"), "alpha", arena,
                            &a->num_alphas, &a->alphas));
    rules->adapters = a;
    return read_trainable(r, arena, rules);
}
