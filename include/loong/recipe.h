/* SPDX-License-Identifier: Apache-2.0
 *
 * The recipe: what a run shall do, as YAML with a schema.
 *
 *   defaults:                # files laid under this one, in this order
 *     - cluster.yaml         # beside this file, or in configs/
 *   model: qwen3/qwen3_8b    # models/qwen3/qwen3_8b.yaml, found alike
 *   foundation:              # changes parts of it: short for model.foundation
 *     num_layers: 4
 *   train:
 *     train_iters: 1000
 *
 * Overrides on the command line: a.b=c sets, +a.b=c adds a key that is not
 * set, ++a.b=c sets in any case, ~a.b removes. Values are YAML.
 *
 * Paths are "train.train_iters" and "data.train[0].path". All keys, types,
 * ranges and defaults: docs/recipe-reference.md, made from the schema.
 * Not collective.
 */
#ifndef LOONG_RECIPE_H
#define LOONG_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_recipe loong_recipe_t;

enum { LOONG_RECIPE_MAX_GROUPS = 16 }; /* of parameters, in optimizer.groups */

typedef enum loong_recipe_type {
    LOONG_RECIPE_INT,
    LOONG_RECIPE_REAL,
    LOONG_RECIPE_BOOL,
    LOONG_RECIPE_TEXT,
    LOONG_RECIPE_CHOICE,
    LOONG_RECIPE_SECONDS, /* "90", "90s", "15m", "2h"; a real */
    LOONG_RECIPE_AMOUNT,  /* "2000", "2k", "30M", "1.5B"; an int */
    LOONG_RECIPE_BYTES,   /* "4096", "32MiB", "1GB"; an int */
    LOONG_RECIPE_INTS,    /* list */
    LOONG_RECIPE_TEXTS    /* list */
} loong_recipe_type_t;

/* What may become of a key when a run is resumed. */
typedef enum loong_recipe_resume {
    LOONG_RESUME_SAME, /* must not change, unless resume.override names it */
    LOONG_RESUME_FREE  /* may change */
} loong_recipe_resume_t;

/* One key. "data.train[].path" is a key of every item of a list. */
typedef struct loong_recipe_key {
    const char *path;
    loong_recipe_type_t type;
    const char *fallback; /* the default as text; NULL: none */
    double min;           /* of numbers; both 0: no bound */
    double max;
    const char *choices; /* "a b c" */
    loong_recipe_resume_t resume;
    const char *help; /* with the unit */
} loong_recipe_key_t;

typedef struct loong_recipe_params {
    const char *config_dir; /* where defaults: are also looked for, or NULL */
    int num_overrides;
    const char *const *overrides;
    int64_t num_keys; /* of the caller's own; none may be a built-in one */
    const loong_recipe_key_t *keys; /* borrowed while the recipe lives */
} loong_recipe_params_t;

/* Loads a file, its defaults and the overrides, opens the shared objects that
 * the file or an override names (loong/extension.h), and checks everything
 * against the schema; all problems are reported together with file:line, what
 * was found, what is allowed and the nearest key.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_CONFIG; LOONG_ERR_ARG for a key of
 * the caller that there is already. params may be NULL. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_load(loong_context_t *ctx, const char *path,
                  const loong_recipe_params_t *params,
                  loong_recipe_t **recipe_p);

/* The same, but what is wrong against the schema reads as if it were not set,
 * and loong_recipe_check tells it beside everything else: for those who call
 * that before they use a value. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_load_unjudged(loong_context_t *ctx, const char *path,
                           const loong_recipe_params_t *params,
                           loong_recipe_t **recipe_p);
/* The same from text, which names no shared objects; `name` stands for the
 * file in messages. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_parse(loong_context_t *ctx, const char *name, const char *text,
                   const loong_recipe_params_t *params,
                   loong_recipe_t **recipe_p);
/* A recipe with more overrides on it, for questions of the kind "what if"; it
 * must not outlive the one it comes from. ctx gets the errors. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_derive(loong_context_t *ctx, const loong_recipe_t *recipe,
                    int num_overrides, const char *const *overrides,
                    loong_recipe_t **recipe_p);
LOONG_API void loong_recipe_destroy(loong_recipe_t **recipe_p);

/* What the keys must be together, for a number of ranks: batch sizes that
 * divide (where the ranks do: that is the mesh's rule), what a run cannot do
 * without, settings that need each other. Model
 * keys are only looked at when they are set. All problems are reported
 * together, sizes with the nearest allowed values. Errors: LOONG_ERR_CONFIG.*/
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_check(const loong_recipe_t *recipe, int world_size);

/* Values: what was set (null counts as not set), else the default; 0, false,
 * NULL when there is neither. Texts are borrowed. A path that is not in the
 * schema, or whose value is of another type, is a mistake of the caller: the
 * trail tells it and loong_recipe_status is LOONG_ERR_INTERNAL from then on.*/
LOONG_API int64_t loong_recipe_int(const loong_recipe_t *recipe,
                                   const char *path);
LOONG_API double loong_recipe_real(const loong_recipe_t *recipe,
                                   const char *path);
LOONG_API bool loong_recipe_bool(const loong_recipe_t *recipe,
                                 const char *path);
LOONG_API const char *loong_recipe_text(const loong_recipe_t *recipe,
                                        const char *path);
/* Items of a list, 0 when it is not there. */
LOONG_API int64_t loong_recipe_count(const loong_recipe_t *recipe,
                                     const char *path);
/* Was it set by a file or an override? */
LOONG_API bool loong_recipe_is_set(const loong_recipe_t *recipe,
                                   const char *path);

/* LOONG_OK while every path that was asked for is in the schema. */
LOONG_API loong_status_t loong_recipe_status(const loong_recipe_t *recipe);

/* Where a value comes from, for messages: "file:line", "command line",
 * "default". Borrowed from the recipe. */
LOONG_API const char *loong_recipe_where(const loong_recipe_t *recipe,
                                         const char *path);

/* Logs a warning for each key that was set and that nobody has asked for, to
 * be called when a run has been set up. */
LOONG_API void loong_recipe_warn_unread(const loong_recipe_t *recipe);

/* Sets a key from outside (a Hugging Face config.json, say), one that is a list
 * from YAML ("[1, 4]"); `origin` stands for the file. Errors:
 * LOONG_ERR_CONFIG. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_set(loong_recipe_t *recipe, const char *path, const char *value,
                 const char *origin);

/* Calls visit for every scalar that is set below a prefix ("model.foundation"),
 * with the rest of its path. Stops at the first status that is not OK. */
LOONG_API LOONG_NODISCARD loong_status_t loong_recipe_each(
    const loong_recipe_t *recipe, const char *prefix,
    loong_status_t (*visit)(void *user, const char *key, const char *value),
    void *user);

/* The path that says a key of a component: its own, as
 * "model.image_encoder.optimizer.lr", where that is set, else the key itself,
 * "optimizer.lr". role: as loong_recipe_component gives it. Borrowed from the
 * recipe. */
LOONG_API const char *loong_recipe_own_path(const loong_recipe_t *recipe,
                                            const char *role, const char *key);

/* The key that names the directory whose weights a component starts from: its
 * own, of the one with the loss (the last one; NULL) also init.from_hf. NULL:
 * none is named. */
LOONG_API const char *loong_recipe_init_key(const loong_recipe_t *recipe,
                                            const char *role);

/* The ranks of a job of world_size that a component stands on, which is what
 * model.ROLE.ranks says, or all. role: NULL for that with the loss. *ranks_p:
 * *count_p of them, ascending, borrowed from the recipe; NULL: all, as where
 * the key is wrong, which loong_recipe_check tells. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_ranks(const loong_recipe_t *recipe, const char *role,
                   int world_size, const int32_t **ranks_p, int *count_p);

/* Of a component ("model.foundation"): the keys of its family, without those
 * that every component has (freeze, init, parallel ...). */
LOONG_API LOONG_NODISCARD loong_status_t loong_recipe_each_family_key(
    const loong_recipe_t *recipe, const char *component,
    loong_status_t (*visit)(void *user, const char *key, const char *value),
    void *user);

/* The roles of components, in the order in which one reads another: encoders
 * of pictures and of videos, each with its projector, and what reads these. */
enum { LOONG_MODEL_ROLES = 5 };
LOONG_API extern const char *const loong_recipe_roles[LOONG_MODEL_ROLES];
/* The role whose families and keys one has: those of videos have those of
 * pictures. Static. */
LOONG_API const char *loong_recipe_role_kind(const char *role);

/* The components of the recipe's model by their role ("foundation"), those that
 * something is said of; NULL behind the last one. Static. */
LOONG_API const char *loong_recipe_component(const loong_recipe_t *recipe,
                                             int64_t i);

/* The model's loss is of texts, alone or with pictures, as far as it is
 * known. */
LOONG_API bool loong_recipe_reads_texts(const loong_recipe_t *recipe);

/* The whole recipe with defaults filled in, as YAML; with origins each value
 * is followed by where it came from. Borrowed, until the next call. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_print(loong_recipe_t *recipe, bool origins, const char **text_p);

/* Hash of the text without origins: equal recipes on all ranks. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_recipe_hash(loong_recipe_t *recipe, uint64_t *hash_p);

/* One key with two values, in canonical text; NULL: neither set nor a
 * default. */
typedef struct loong_recipe_change {
    const char *path;
    const char *before;
    const char *after;
    loong_recipe_resume_t resume;
} loong_recipe_change_t;
typedef loong_status_t (*loong_recipe_change_fn)(
    void *user, const loong_recipe_change_t *change);

/* Calls visit for every key whose value differs, in the order of the schema;
 * how a value is written does not matter. Stops at the first status that is
 * not LOONG_OK and returns it. Both recipes have the keys of `after`. */
LOONG_API LOONG_NODISCARD loong_status_t loong_recipe_compare(
    const loong_recipe_t *before, const loong_recipe_t *after,
    loong_recipe_change_fn visit, void *user);

/* May a run that was saved with `before` go on with `after`? What changed and
 * may change is listed in the log (LOONG_LOG_INFO). Errors:
 * LOONG_ERR_MISMATCH with all other changes. */
LOONG_API LOONG_NODISCARD loong_status_t loong_recipe_check_resume(
    const loong_recipe_t *before, const loong_recipe_t *after);

/* Does resume.override name this path, or a map or list it is in? */
LOONG_API bool loong_recipe_may_change(const loong_recipe_t *recipe,
                                       const char *path);

/* What holds when a key is not set, for people: the default, "of the family"
 * for what the model's family decides, "none" for what is optional or has to
 * be given. */
LOONG_API const char *loong_recipe_default_text(const loong_recipe_key_t *key);

/* The key that other programs call so ("lr", "optimizer.betas"); NULL: none. */
LOONG_API const loong_recipe_key_t *loong_recipe_meant(const char *path);

/* The schema, for documents and --help-config. */
LOONG_API int64_t loong_recipe_num_keys(void);
LOONG_API const loong_recipe_key_t *loong_recipe_key(int64_t index);

#ifdef __cplusplus
}
#endif

#endif
