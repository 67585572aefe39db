/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads rules of a recipe and compares them with the names of parameters that a
 * component has. Called before and behind its planning. */
#include "param_rules.h"

#include <stdio.h>
#include <string.h>

#include "graph_impl.h"
#include "optimizer_settings.h"
#include "problems.h"

#define FREEZE "model.freeze"
#define DECAY "optimizer.weight_decay_rules"
#define GROUPS "optimizer.groups"
#define INIT "init.by_scope"

enum { PATH_SIZE = 128 };

/* ---- reading ------------------------------------------------------------- */

loong_status_t loongi_read_globs(const loong_recipe_t *recipe, const char *path,
                                 loong_arena_t *arena, int *count_p,
                                 const char *const **globs_p)
{
    int64_t count = loong_recipe_count(recipe, path);
    const char **globs = NULL;
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)LOONG_MAX(count, 1) * sizeof(*globs), &globs));
    for (int64_t i = 0; i < count; i++) {
        char item[PATH_SIZE];
        snprintf(item, sizeof(item), "%s[%lld]", path, (long long)i);
        globs[i] = loong_recipe_text(recipe, item);
    }
    *count_p = (int)count;
    *globs_p = globs;
    return LOONG_OK;
}

static const char *item(const char *list, int64_t i, const char *key,
                        char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%s[%lld].%s", list, (long long)i, key);
    return path;
}

static loong_init_kind_t init_kind(const char *text)
{
    static const struct {
        const char *name;
        loong_init_kind_t kind;
    } kinds[] = {{"truncated_normal", LOONG_INIT_TRUNCATED_NORMAL},
                 {"uniform", LOONG_INIT_UNIFORM},
                 {"zeros", LOONG_INIT_ZEROS},
                 {"ones", LOONG_INIT_ONES}};
    for (int64_t i = 0; i < LOONG_COUNT_OF(kinds); i++) {
        if (strcmp(text, kinds[i].name) == 0) {
            return kinds[i].kind;
        }
    }
    return LOONG_INIT_NORMAL;
}

loong_status_t loongi_param_rules_read(const loong_recipe_t *recipe,
                                       loong_arena_t *arena,
                                       loong_param_rules_t *rules_p)
{
    const loong_recipe_t *r = recipe;
    int64_t decays = loong_recipe_count(r, DECAY);
    int64_t groups = loong_recipe_count(r, GROUPS);
    int64_t inits = loong_recipe_count(r, INIT);
    int64_t count = decays + groups + inits;
    loong_param_rule_t *rules = NULL;
    char path[PATH_SIZE];
    LOONG_TRY(loongi_read_globs(r, FREEZE, arena, &rules_p->num_freeze,
                                &rules_p->freeze));
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)LOONG_MAX(count, 1) * sizeof(*rules), &rules));
    memset(rules, 0, (size_t)count * sizeof(*rules));
    for (int64_t i = 0; i < decays; i++) {
        rules[i].scope = loong_recipe_text(r, item(DECAY, i, "scope", path));
        rules[i].weight_decay =
            loong_recipe_real(r, item(DECAY, i, "factor", path));
    }
    for (int64_t i = 0; i < groups; i++) {
        loong_param_rule_t *rule = &rules[decays + i];
        rule->sets = LOONG_RULE_GROUP;
        rule->scope = loong_recipe_text(r, item(GROUPS, i, "scope", path));
        rule->group = loongi_optimizer_item_group(r, i);
    }
    for (int64_t i = 0; i < inits; i++) {
        loong_param_rule_t *rule = &rules[decays + groups + i];
        rule->sets = LOONG_RULE_INIT;
        rule->scope = loong_recipe_text(r, item(INIT, i, "scope", path));
        rule->init =
            init_kind(loong_recipe_text(r, item(INIT, i, "method", path)));
        rule->std = loong_recipe_real(r, item(INIT, i, "std", path));
    }
    rules_p->num_rules = (int)count;
    rules_p->rules = rules;
    return LOONG_OK;
}

/* ---- checking ------------------------------------------------------------ */

static bool matches_any(const loong_component_t *component, const char *glob)
{
    for (int64_t i = 0; i < component->num_whole; i++) {
        if (loongi_scope_match(glob, component->whole[i].name)) {
            return true;
        }
    }
    return false;
}

/* Items of optimizer.groups whose scope has a parameter: the first, and
 * another; -1: none. */
static void find_items(const loong_recipe_t *recipe, const char *name,
                       int64_t items[2])
{
    int64_t count = loong_recipe_count(recipe, GROUPS);
    items[0] = items[1] = -1;
    for (int64_t i = 0; i < count && items[1] < 0; i++) {
        char path[PATH_SIZE];
        const char *glob =
            loong_recipe_text(recipe, item(GROUPS, i, "scope", path));
        if (loongi_scope_match(glob, name)) {
            items[items[0] >= 0] = i;
        }
    }
}

/* Where there are groups, every parameter that is trained is in one. */
static void check_groups(const loong_recipe_t *recipe,
                         const loong_component_t *component,
                         loong_problems_t *problems)
{
    const loong_whole_param_t *w = component->whole;
    for (int64_t i = 0; i < component->num_whole; i++) {
        int64_t items[2];
        find_items(recipe, w[i].name, items);
        if (w[i].optimizer == NULL || (items[0] >= 0 && items[1] < 0)) {
            continue;
        }
        if (items[0] < 0) {
            loongi_problems_add(problems, "%s: " GROUPS ": %s is in no scope",
                                loong_recipe_where(recipe, GROUPS), w[i].name);
        } else {
            loongi_problems_add(problems,
                                "%s: " GROUPS
                                ": %s is in the scopes of items %lld and %lld",
                                loong_recipe_where(recipe, GROUPS), w[i].name,
                                (long long)items[0], (long long)items[1]);
        }
    }
}

/* A class of matrices takes no vectors. */
static void check_matrices(const loong_recipe_t *recipe,
                           const loong_component_t *component,
                           loong_problems_t *problems)
{
    const loong_whole_param_t *w = component->whole;
    int64_t i = 0;
    while (
        i < component->num_whole &&
        (w[i].optimizer == NULL || !w[i].optimizer->matrix || w[i].ndim > 1)) {
        i++;
    }
    if (i < component->num_whole) {
        loongi_problems_add(problems,
                            "%s: optimizer: %s is no matrix, %s takes "
                            "matrices: give it another class by " GROUPS,
                            loong_recipe_where(recipe, "optimizer"), w[i].name,
                            w[i].optimizer->name);
    }
}

loong_status_t loongi_param_rules_check(loong_context_t *ctx,
                                        const loong_recipe_t *recipe,
                                        const loong_component_t *component)
{
    static const struct {
        const char *list;
        const char *key;
    } lists[] = {
        {FREEZE, ""}, {DECAY, ".scope"}, {GROUPS, ".scope"}, {INIT, ".scope"}};
    loong_problems_t problems = loongi_problems_begin(ctx);
    for (int64_t k = 0; k < LOONG_COUNT_OF(lists); k++) {
        int64_t count = loong_recipe_count(recipe, lists[k].list);
        for (int64_t i = 0; i < count; i++) {
            char path[PATH_SIZE];
            snprintf(path, sizeof(path), "%s[%lld]%s", lists[k].list,
                     (long long)i, lists[k].key);
            const char *glob = loong_recipe_text(recipe, path);
            if (!matches_any(component, glob)) {
                loongi_problems_add(
                    &problems,
                    "%s: %s: no parameter matches %s; their names are %s "
                    "to %s",
                    loong_recipe_where(recipe, path), path, glob,
                    component->whole[0].name,
                    component->whole[component->num_whole - 1].name);
            }
        }
    }
    check_matrices(recipe, component, &problems);
    if (loong_recipe_count(recipe, GROUPS) > 0) {
        check_groups(recipe, component, &problems);
    }
    int64_t trained = 0;
    for (int64_t i = 0; i < component->num_whole; i++) {
        trained += !component->whole[i].frozen;
    }
    if (component->params.train && trained == 0) {
        loongi_problems_add(&problems,
                            "%s: " FREEZE ": nothing is left to "
                            "train",
                            loong_recipe_where(recipe, FREEZE));
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "the recipe");
}
