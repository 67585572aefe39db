/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a directory's auto_map and Python files, and finds the type that an
 * export can be of where transformers has no class. Called by imports, exports
 * and the artifacts of a run. Read hf_config_read.h before. */
#include "hf_code.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_composite.h"
#include "hf_extra.h"
#include "hf_kind.h"
#include "json.h"

/* "" is no path: the file is then absent. */
static const char *path_of(char path[PATH_MAX], const char *dir,
                           const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s", dir, name);
    path[length < PATH_MAX ? length : 0] = '\0';
    return path;
}

/* "module.Class" is in DIR/module.py, "other/model--module.Class" elsewhere. */
static bool is_there(const char *dir, const char *reference)
{
    char name[NAME_MAX];
    char path[PATH_MAX];
    if (strstr(reference, "--") != NULL) {
        return true;
    }
    int length = snprintf(name, sizeof(name), "%.*s.py",
                          (int)strcspn(reference, "."), reference);
    return length < (int)sizeof(name) &&
           loongi_file_exists(path_of(path, dir, name));
}

/* An entry is a reference, or a list with one for each of two classes. */
static bool all_there(const char *dir, const loong_json_t *map)
{
    for (const loong_json_member_t *m = loongi_json_first(map); m != NULL;
         m = loongi_json_next(map, m)) {
        const loong_json_t *value = loongi_json_member_value(m);
        bool list = loongi_json_kind(value) == LOONG_JSON_ARRAY;
        for (int64_t i = 0; i < (list ? loongi_json_count(value) : 1); i++) {
            const loong_json_t *one = list ? loongi_json_at(value, i) : value;
            if (loongi_json_kind(one) != LOONG_JSON_NULL &&
                !is_there(dir, loongi_json_string(one))) {
                return false;
            }
        }
    }
    return loongi_json_count(map) > 0;
}

loong_status_t loongi_hf_code_read(loong_context_t *ctx, const char *dir,
                                   const char *family, loong_pairs_t *pairs)
{
    char path[PATH_MAX];
    loong_json_t *config = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(
        loongi_json_load(ctx, path_of(path, dir, "config.json"), &config));
    const loong_json_t *map = loongi_json_get(config, LOONG_HF_AUTO_MAP);
    const loong_json_t *name = loongi_json_get(config, "model_type");
    const loong_hf_type_t *type =
        name != NULL ? loongi_hf_type_find(ctx, loongi_json_string(name))
                     : NULL;
    bool same =
        type != NULL && family != NULL && strcmp(type->family, family) == 0;
    bool own = same && strcmp(type->model_type, family) == 0;
    if (same) {
        status = loongi_hf_extra_read(ctx, config, pairs);
    }
    if (status == LOONG_OK && own && map != NULL && all_there(dir, map)) {
        status = loongi_pairs_set_json(pairs, LOONG_HF_AUTO_MAP, map);
    }
    loongi_json_destroy(&config);
    return status;
}

bool loongi_hf_has_code(const loong_pairs_t *kept)
{
    const loong_hf_composite_t *composite = loongi_hf_composite_kept_type(kept);
    return loongi_pairs_get(kept, LOONG_HF_AUTO_MAP) != NULL ||
           (composite != NULL && composite->foreign);
}

bool loongi_hf_code_tokenizes(loong_context_t *ctx, const char *dir)
{
    char path[PATH_MAX];
    loong_json_t *config = NULL;
    path_of(path, dir, "tokenizer_config.json");
    if (!loongi_file_exists(path)) {
        return false;
    }
    if (loongi_json_load(ctx, path, &config) != LOONG_OK) {
        loongi_log(ctx, LOONG_LOG_WARN, "%s", loong_context_error(ctx));
        loong_context_clear_error(ctx);
        return false;
    }
    bool found =
        loongi_json_count(loongi_json_get(config, LOONG_HF_AUTO_MAP)) > 0;
    loongi_json_destroy(&config);
    return found;
}

const char *loongi_hf_like(const loong_context_t *ctx, const char *family)
{
    const loong_hf_kind_t *kind = loongi_hf_kind_find(ctx, family);
    const loong_hf_fixed_t *pair = kind != NULL ? kind->like : NULL;
    while (pair != NULL && pair->key != NULL &&
           strcmp(pair->key, family) != 0) {
        pair++;
    }
    return pair != NULL ? pair->value : NULL;
}

static loong_status_t check_own(loong_context_t *ctx,
                                const loong_pairs_t *model, bool has_code)
{
    const char *family = loongi_pairs_get(model, "family");
    const char *other = loongi_hf_like(ctx, family);
    LOONG_CHECK(ctx, other == NULL || has_code, LOONG_ERR_CONFIG,
                "transformers has no class for model type %s, and no Python "
                "files are kept that bring one (docs/checkpoints.md): as "
                "model type %s (--as %s, export.as: %s) the same model is "
                "written for a class that it has; as %s, for programs that "
                "know that type by themselves",
                family, other, other, other, family);
    return LOONG_OK;
}

static loong_status_t check_other(loong_context_t *ctx, const char *as)
{
    const loong_hf_type_t *type = loongi_hf_type_find(ctx, as);
    const char *near = loongi_hf_type_nearest(ctx, as);
    char types[LOONG_HF_TYPE_LIST];
    LOONG_CHECK(ctx, type != NULL, LOONG_ERR_ARG,
                "an export as model type '%s': there is none of that name%s%s "
                "(%s are)",
                as, near != NULL ? ", the nearest is " : "",
                near != NULL ? near : "",
                loongi_hf_type_list(ctx, NULL, types));
    LOONG_CHECK(ctx, strcmp(type->family, as) == 0, LOONG_ERR_ARG,
                "an export as model type '%s': a model of family %s becomes "
                "one by what its keys say", as, type->family);
    return LOONG_OK;
}

/* What a model leaves to the defaults of its own family is said before it is
 * called another. */
static loong_status_t rename_family(loong_context_t *ctx, const char *as,
                                    loong_pairs_t *model)
{
    const loong_hf_kind_t *kind =
        loongi_hf_kind_find(ctx, loongi_pairs_get(model, "family"));
    LOONG_CHECK(ctx, kind != NULL, LOONG_ERR_UNSUPPORTED,
                "family '%s' has no Hugging Face model type",
                loongi_pairs_get(model, "family"));
    LOONG_TRY(kind->state(ctx, model));
    return loongi_pairs_set(model, "family", as);
}

loong_status_t loongi_hf_model_as(loong_context_t *ctx,
                                  const loong_pairs_t *model, const char *as,
                                  bool has_code, loong_pairs_t **model_p)
{
    loong_pairs_t *out = NULL;
    LOONG_TRY(as != NULL ? check_other(ctx, as)
                         : check_own(ctx, model, has_code));
    LOONG_TRY(loongi_pairs_copy(ctx, model, &out));
    loong_status_t status =
        as != NULL ? rename_family(ctx, as, out) : LOONG_OK;
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&out);
        return status;
    }
    *model_p = out;
    return LOONG_OK;
}

loong_status_t loongi_hf_part_as(loong_context_t *ctx,
                                 const loong_hf_composite_t *composite,
                                 const loong_pairs_t *model, const char *as,
                                 loong_pairs_t **model_p)
{
    const char *family = loongi_pairs_get(model, "family");
    bool takes = composite->foreign || (composite->takes != NULL &&
                                        strcmp(composite->takes, family) == 0);
    as = as != NULL && !takes ? loongi_hf_like(ctx, family) : NULL;
    return loongi_hf_model_as(ctx, model, as, takes, model_p);
}
