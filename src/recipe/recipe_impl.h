/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_RECIPE_IMPL_H
#define LOONG_RECIPE_IMPL_H

#include "base.h"
#include "loong/recipe.h"
#include "pairs.h"
#include "problems.h"
#include "tree.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_RECIPE_PATH = 256 }; /* bytes of the longest path */


struct loong_recipe {
    loong_context_t *ctx;
    loong_arena_t *arena;
    loong_recipe_params_t params;
    const loong_recipe_key_t **sorted; /* all keys, by path */
    loong_tree_t *root;
    bool judged_later; /* loong_recipe_check tells what is wrong */
    uint64_t extensions_hash; /* of their files; 0: none */
    loong_text_t printed;
    loong_status_t *status; /* of reading; apart, as readers see a const */
};

/* Keys of the schema: the built-in ones, then the caller's own. */
int64_t loongi_recipe_count_keys(const loong_recipe_t *recipe);
const loong_recipe_key_t *loongi_recipe_key_at(const loong_recipe_t *recipe,
                                               int64_t index);

LOONG_NODISCARD loong_status_t loongi_recipe_sort_keys(loong_recipe_t *recipe);

/* "data.train: [a, b]" becomes "data.train: [{path: a}, {path: b}]"; a set of
 * data.validation has its path for a name, too; ranks: [0, 2-3] "0,2-3". */
LOONG_NODISCARD loong_status_t
loongi_recipe_expand_paths(loong_recipe_t *recipe);

/* Opens what the file `own` and overrides name under extensions, and adds their
 * keys. */
LOONG_NODISCARD loong_status_t
loongi_recipe_load_extensions(loong_recipe_t *recipe, const char *own);

/* "a[3].b" -> "a[].b"; "model.video_" -> "model.image_", whose keys are
 * meant. */
void loongi_recipe_generic_path(const char *path,
                                char generic[LOONG_RECIPE_PATH]);

/* The key that is likest to a path; NULL when none is near. */
const loong_recipe_key_t *loongi_recipe_nearest(const loong_recipe_t *recipe,
                                                const char *path);

/* Adds to a message what a model without a file could have meant: the likest
 * name, the sizes of its family or the families of config_dir. */
void loongi_recipe_suggest_preset(const char *config_dir, const char *wanted,
                                  loong_text_t *text);

/* The key of a path, list indices ignored; NULL when the schema has none. */
const loong_recipe_key_t *loongi_recipe_find(const loong_recipe_t *recipe,
                                             const char *path);

/* Its values are lists; NULL: no. */
static inline bool loongi_recipe_lists(const loong_recipe_key_t *key)
{
    return key != NULL && (key->type == LOONG_RECIPE_INTS ||
                           key->type == LOONG_RECIPE_TEXTS);
}

/* Does any key lie below this path, as a map (".") or list ("[]")? */
bool loongi_recipe_is_branch(const loong_recipe_t *recipe, const char *path,
                             const char *separator);

/* Is it a key, a map or list of keys, or an item of a list? */
bool loongi_recipe_exists(const loong_recipe_t *recipe, const char *path);

/* Items of a list, without being a reader of it. */
int64_t loongi_recipe_items(const loong_recipe_t *recipe, const char *path);

/* Checks the whole tree against the schema, and marks what is wrong. */
void loongi_recipe_judge_schema(const loong_recipe_t *recipe,
                                loong_problems_t *problems);
LOONG_NODISCARD loong_status_t
loongi_recipe_check_schema(const loong_recipe_t *recipe);

/* Which keys go with optimizer.name. */
void loongi_optimizer_keys_check(const loong_recipe_t *recipe,
                                 loong_problems_t *problems);
/* Likewise of keys of finetune and the method. */
void loongi_finetune_keys_check(const loong_recipe_t *recipe,
                                loong_problems_t *problems);
/* Regular expressions that are none. */
void loongi_scope_keys_check(const loong_recipe_t *recipe,
                             loong_problems_t *problems);

/* Whether the ranks that components stand on are those of a job, and each rank
 * has a component. */
void loongi_recipe_check_ranks(const loong_recipe_t *recipe, int world_size,
                               loong_problems_t *problems);

/* What two recipes came to, by path: of models, of what is auto. Where there
 * is a value it is compared, and not what the recipe says. */
typedef struct loong_recipe_meant {
    const loong_pairs_t *before;
    const loong_pairs_t *after;
} loong_recipe_meant_t;

/* Whether canonical texts of a key's value mean one value. Reals do that are
 * apart by roundings alone: 128 ** -0.5 and 1 / sqrt(128) differ in the last
 * digit. key: NULL for one that recipes do not have. */
bool loongi_recipe_same(const loong_recipe_key_t *key, const char *a,
                        const char *b);

/* As loong_recipe_compare and loong_recipe_check_resume, of what they came
 * to. */
LOONG_NODISCARD loong_status_t loongi_recipe_compare(
    const loong_recipe_t *before, const loong_recipe_t *after,
    const loong_recipe_meant_t *meant, loong_recipe_change_fn visit,
    void *user);
LOONG_NODISCARD loong_status_t loongi_recipe_check_resume(
    const loong_recipe_t *before, const loong_recipe_t *after,
    const loong_recipe_meant_t *meant);

/* Adds a change that is not allowed, with what goes on as before. */
void loongi_recipe_refuse(const loong_recipe_t *after,
                          const loong_recipe_change_t *change,
                          loong_problems_t *problems);

/* Text to number; false when it is none. */
bool loongi_recipe_number(loong_recipe_type_t type, const char *text,
                          double *value_p);
bool loongi_recipe_flag(const char *text, bool *value_p);
bool loongi_recipe_is_whole(loong_recipe_type_t type);
bool loongi_recipe_is_number(loong_recipe_type_t type); /* lists included */

#ifdef __cplusplus
}
#endif

#endif
