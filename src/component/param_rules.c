/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads rules of a recipe and compares them with the names of parameters that a
 * component has. Called before and behind its planning. Read param_rules.h
 * before. */
#include "param_rules.h"

#include <stdio.h>
#include <string.h>

#include "adapter_rules.h"
#include "graph_impl.h"
#include "optimizer_settings.h"
#include "problems.h"
#include "schema.h"

#define FREEZE "model.freeze"
#define SAVED "finetune.modules_to_save"
#define TRAINABLE "model.trainable"
#define DECAY "optimizer.weight_decay_rules"
#define GROUPS "optimizer.groups"
#define INIT "init.by_scope"

enum { PATH_SIZE = 128 };

/* ---- the keys ------------------------------------------------------------ */

static const loong_recipe_field_t decay_keys[] = {
    TEXT("optimizer.weight_decay_rules[].scope", NULL, FREE,
         "glob over parameter names; the last match holds",
         FILLS(loong_param_rule_t, scope)),
    REAL("optimizer.weight_decay_rules[].factor", "0", 0, 1000, FREE,
         "times optimizer.weight_decay; 1 for matrices and 0 for vectors when "
         "no rule matches", FILLS(loong_param_rule_t, weight_decay)),
};

static const int init_kinds[] = {LOONG_INIT_NORMAL, LOONG_INIT_TRUNCATED_NORMAL,
                                 LOONG_INIT_UNIFORM, LOONG_INIT_ZEROS,
                                 LOONG_INIT_ONES};
static const loong_recipe_field_t init_keys[] = {
    TEXT("init.by_scope[].scope", NULL, FREE,
         "glob over parameter names: how these start; the last match holds. "
         "With init.from_hf, and of a checkpoint, those that it lacks or has "
         "in another shape", FILLS(loong_param_rule_t, scope)),
    CHOICE("init.by_scope[].method", "normal",
           "normal truncated_normal uniform zeros ones", FREE,
           "distribution; truncated_normal draws again beyond 3 std",
           FILLS(loong_param_rule_t, init), .values = init_kinds),
    REAL("init.by_scope[].std", "0", 0, 1000, FREE,
         "standard deviation, of uniform too; 0: as the model has it",
         FILLS(loong_param_rule_t, std)),
};

const loong_recipe_table_t loongi_param_rule_keys[] = {LOONG_KEYS(decay_keys),
                                                       LOONG_KEYS(init_keys)};

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

/* The part of a glob behind a role; NULL: it is of another one. */
static const char *glob_of(const loong_recipe_t *recipe, const char *role,
                           const char *glob)
{
    for (int64_t i = 0; loong_recipe_component(recipe, i) != NULL; i++) {
        const char *other = loong_recipe_component(recipe, i);
        size_t length = strlen(other);
        if (strncmp(glob, other, length) == 0 && glob[length] == '.') {
            return strcmp(role, other) == 0 ? glob + length + 1 : NULL;
        }
    }
    return glob;
}

/* Of a group. */
static const char *scope_at(const loong_recipe_t *r, const char *role,
                            int64_t i)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), GROUPS "[%lld].scope", (long long)i);
    const char *scope = loong_recipe_text(r, path);
    return scope != NULL ? glob_of(r, role, scope) : NULL; /* it is refused */
}

typedef struct globs {
    int count;
    const char **list;
} globs_t;

/* The globs of a list that are a component's, with room for `more`. */
static loong_status_t own_globs(const loong_recipe_t *recipe, const char *role,
                                const char *list, int64_t more,
                                loong_arena_t *arena, globs_t *own)
{
    const char *const *all = NULL;
    int count = 0;
    LOONG_TRY(loongi_read_globs(recipe, list, arena, &count, &all));
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)(count + more + 1) * sizeof(*own->list), &own->list));
    own->count = 0;
    for (int i = 0; i < count; i++) {
        const char *glob = glob_of(recipe, role, all[i]);
        if (glob != NULL) {
            own->list[own->count++] = glob;
        }
    }
    return LOONG_OK;
}

/* So many layers at an end of a component stay fixed. */
static loong_status_t read_layers(loong_context_t *ctx,
                                  const loong_recipe_t *recipe,
                                  const char *role, const char *key,
                                  int num_layers, int64_t *count_p)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "model.%s.%s", role, key);
    *count_p = num_layers > 0 && loong_recipe_is_set(recipe, path)
                   ? loong_recipe_int(recipe, path)
                   : 0;
    LOONG_CHECK(ctx, *count_p <= num_layers, LOONG_ERR_CONFIG,
                "%s: %s: found %lld, the component has %d layers",
                loong_recipe_where(recipe, path), path, (long long)*count_p,
                num_layers);
    return LOONG_OK;
}

static loong_status_t read_freeze(loong_context_t *ctx,
                                  const loong_recipe_t *recipe,
                                  const char *role, int num_layers,
                                  loong_arena_t *arena,
                                  loong_param_rules_t *rules)
{
    char path[PATH_SIZE];
    globs_t own;
    int64_t first = 0;
    int64_t last = 0;
    LOONG_TRY(read_layers(ctx, recipe, role, "freeze_first_layers", num_layers,
                          &first));
    LOONG_TRY(read_layers(ctx, recipe, role, "freeze_last_layers", num_layers,
                          &last));
    LOONG_TRY(own_globs(recipe, role, FREEZE, first + last, arena, &own));
    for (int64_t i = 0; i < first + last; i++) {
        char *layer = NULL;
        int64_t index = i < first ? i : num_layers - (i - first) - 1;
        LOONG_TRY(loongi_arena_printf(arena, &layer, "layers.%lld",
                                      (long long)index));
        own.list[own.count++] = layer;
    }
    snprintf(path, sizeof(path), "model.%s.freeze", role);
    if (loong_recipe_bool(recipe, path)) {
        own.list[own.count++] = "*";
    }
    rules->num_freeze = own.count;
    rules->freeze = own.list;
    LOONG_TRY(own_globs(recipe, role, TRAINABLE, 0, arena, &own));
    rules->restricted = loong_recipe_count(recipe, TRAINABLE) > 0;
    rules->num_trainable = own.count;
    rules->trainable = own.list;
    return loongi_adapter_rules_read(recipe, role, arena, rules);
}

loong_status_t loongi_param_rules_read(loong_context_t *ctx,
                                       const loong_recipe_t *recipe,
                                       const char *role, int num_layers,
                                       loong_arena_t *arena,
                                       loong_param_rules_t *rules_p)
{
    const loong_recipe_t *r = recipe;
    int64_t decays = loong_recipe_count(r, DECAY);
    int64_t groups = loong_recipe_count(r, GROUPS);
    int64_t inits = loong_recipe_count(r, INIT);
    int64_t count = decays + 2 + groups + inits;
    loong_param_rule_t *rules = NULL;
    loong_param_rule_t *rule = NULL;
    LOONG_TRY(read_freeze(ctx, r, role, num_layers, arena, rules_p));
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)count * sizeof(*rules), &rules));
    memset(rules, 0, (size_t)count * sizeof(*rules));
    rule = rules;
    for (int64_t i = 0; i < decays; i++) {
        LOONG_FILL_ITEM(r, DECAY, i, loong_param_rule_t, rule);
        rule->scope = glob_of(r, role, rule->scope);
        rule += rule->scope != NULL;
    }
    for (int64_t i = -1; i < groups; i++) {
        rule->sets = LOONG_RULE_GROUP;
        rule->scope = i < 0 ? "*" : scope_at(r, role, i);
        rule->group = loongi_optimizer_item_group(r, role, i);
        rule += rule->scope != NULL;
    }
    if (rules_p->adapters != NULL && groups == 0) {
        rule->sets = LOONG_RULE_GROUP;
        rule->scope = "*.lora_B";
        rule->group = loongi_optimizer_plus_group(r, role);
        rule++;
    }
    for (int64_t i = 0; i < inits; i++) {
        rule->sets = LOONG_RULE_INIT;
        LOONG_FILL_ITEM(r, INIT, i, loong_param_rule_t, rule);
        rule->scope = glob_of(r, role, rule->scope);
        rule += rule->scope != NULL;
    }
    rules_p->num_rules = (int)(rule - rules);
    rules_p->rules = rules;
    return LOONG_OK;
}

/* ---- checking ------------------------------------------------------------ */

static bool matches_any(const loong_recipe_t *recipe,
                        const loong_model_t *model, const char *glob)
{
    for (int k = 0; k < model->num_components; k++) {
        const loong_component_t *c = model->components[k];
        const char *own = glob_of(recipe, c->params.name, glob);
        for (int64_t i = 0; own != NULL && i < c->num_whole; i++) {
            if (loongi_scope_match(own, c->whole[i].name)) {
                return true;
            }
        }
    }
    return false;
}

/* Items of optimizer.groups whose scope has a parameter: the first, and
 * another; -1: none. */
static void find_items(const loong_recipe_t *recipe, const char *role,
                       const char *name, int64_t items[2])
{
    int64_t count = loong_recipe_count(recipe, GROUPS);
    items[0] = items[1] = -1;
    for (int64_t i = 0; i < count && items[1] < 0; i++) {
        const char *glob = scope_at(recipe, role, i);
        if (glob != NULL && loongi_scope_match(glob, name)) {
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
        find_items(recipe, component->params.name, w[i].name, items);
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

/* In a model of several components each one's names are told. */
static void add_unmatched(const loong_recipe_t *recipe,
                          const loong_model_t *model, const char *path,
                          loong_problems_t *problems)
{
    loong_text_t names = loongi_text_begin(model->ctx);
    for (int k = 0; k < model->num_components; k++) {
        const loong_component_t *c = model->components[k];
        bool last = k == model->num_components - 1;
        const char *role = last ? "" : c->params.name;
        const char *dot = last ? "" : ".";
        loongi_text_printf(&names, "%s%s%s to %s%s%s%s", role, dot,
                           c->whole[0].name, role, dot,
                           c->whole[c->num_whole - 1].name, last ? "" : ", ");
    }
    loongi_problems_add(
        problems, "%s: %s: no parameter matches %s; their names are %s",
        loong_recipe_where(recipe, path), path, loong_recipe_text(recipe, path),
        loongi_text_get(&names));
    loongi_text_free(&names);
}

static void check_globs(const loong_recipe_t *recipe,
                        const loong_model_t *model, loong_problems_t *problems)
{
    static const struct {
        const char *list;
        const char *key;
    } lists[] = {
        {FREEZE, ""},      {TRAINABLE, ""},  {DECAY, ".scope"},
        {GROUPS, ".scope"}, {INIT, ".scope"}};
    for (int64_t k = 0; k < LOONG_COUNT_OF(lists); k++) {
        int64_t count = loong_recipe_count(recipe, lists[k].list);
        for (int64_t i = 0; i < count; i++) {
            char path[PATH_SIZE];
            snprintf(path, sizeof(path), "%s[%lld]%s", lists[k].list,
                     (long long)i, lists[k].key);
            if (!matches_any(recipe, model, loong_recipe_text(recipe, path))) {
                add_unmatched(recipe, model, path, problems);
            }
        }
    }
}

/* A module by its whole path or its last parts; beside: it has an adapter. */
static bool has_module(const loong_component_t *c, const char *scope,
                       bool beside)
{
    char inside[LOONG_MAX_SCOPE];
    bool found = false;
    snprintf(inside, sizeof(inside), "*.%s", scope);
    for (int64_t n = 0; n < c->num_whole && !found; n++) {
        const loong_whole_param_t *w = &c->whole[n];
        found = (!beside || w->adapter > 0.0) &&
                (loongi_scope_match(scope, w->name) ||
                 loongi_scope_match(inside, w->name));
    }
    return found;
}

/* Modules that are saved, and those of patterns, which have adapters. */
static void check_modules(const loong_recipe_t *recipe,
                          const loong_model_t *model,
                          loong_problems_t *problems)
{
    const loong_component_t *c = model->components[model->num_components - 1];
    const loong_adapters_t *a = c->params.request.rules.adapters;
    const struct {
        const char *list, *key;
        int count;
        const loong_adapter_pattern_t *patterns;
    } lists[] = {{"finetune.rank_pattern", ".scope",
                  a != NULL ? a->num_ranks : 0, a != NULL ? a->ranks : NULL},
                 {"finetune.alpha_pattern", ".scope",
                  a != NULL ? a->num_alphas : 0, a != NULL ? a->alphas : NULL},
                 {SAVED, "", 0, NULL}};
    for (int64_t k = 0; a != NULL && k < LOONG_COUNT_OF(lists); k++) {
        for (int64_t i = 0; i < loong_recipe_count(recipe, lists[k].list);
             i++) {
            char path[PATH_SIZE];
            snprintf(path, sizeof(path), "%s[%lld]%s", lists[k].list,
                     (long long)i, lists[k].key);
            bool found = lists[k].patterns == NULL &&
                         has_module(c, loong_recipe_text(recipe, path), false);
            for (int n = 0; n < lists[k].count && !found; n++) {
                const loong_adapter_pattern_t *p = &lists[k].patterns[n];
                found = p->item == i && has_module(c, p->scope, true);
            }
            if (!found) {
                add_unmatched(recipe, model, path, problems);
            }
        }
    }
}

/* The matrix beside an adapter, peft loads in one of the two ways alone. */
static void check_saved(const loong_recipe_t *recipe,
                        const loong_component_t *c, loong_problems_t *problems)
{
    static const char a[] = ".lora_A.weight";
    for (int64_t i = 0; i < c->num_whole; i++) {
        const char *own = c->whole[i].name;
        int length = (int)(strlen(own) - strlen(a));
        int64_t k = 0;
        if (length <= 0 || strcmp(own + length, a) != 0) {
            continue;
        }
        while (k < c->num_whole &&
               (c->whole[k].frozen ||
                strncmp(c->whole[k].name, own, (size_t)length) != 0 ||
                strcmp(c->whole[k].name + length, ".weight") != 0)) {
            k++;
        }
        if (k < c->num_whole) {
            loongi_problems_add(problems,
                                "%s: " SAVED ": %.*s has an adapter and is "
                                "trained as it is: peft has one or the other",
                                loong_recipe_where(recipe, SAVED), length, own);
        }
    }
}

loong_status_t loongi_param_rules_check(loong_context_t *ctx,
                                        const loong_recipe_t *recipe,
                                        const loong_model_t *model)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    int64_t trained = 0;
    bool trains = false;
    check_globs(recipe, model, &problems);
    check_modules(recipe, model, &problems);
    check_saved(recipe, model->components[model->num_components - 1],
                &problems);
    for (int k = 0; k < model->num_components; k++) {
        const loong_component_t *c = model->components[k];
        check_matrices(recipe, c, &problems);
        if (loong_recipe_count(recipe, GROUPS) > 0) {
            check_groups(recipe, c, &problems);
        }
        for (int64_t i = 0; i < c->num_whole; i++) {
            trained += !c->whole[i].frozen;
        }
        trains = trains || c->params.train;
    }
    if (trains && trained == 0) {
        loongi_problems_add(&problems,
                            "%s: " FREEZE ": nothing is left to "
                            "train",
                            loong_recipe_where(recipe, FREEZE));
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "the recipe");
}
