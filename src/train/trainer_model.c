/* SPDX-License-Identifier: Apache-2.0
 *
 * From the model keys of a recipe to a configured family. Called by
 * trainer_create.c. Read loong/family.h before. */
#include <stdio.h>
#include <string.h>

#include "adapter_start.h"
#include "from_hf.h"
#include "param_rules.h"
#include "resume_check.h"
#include "trainer_impl.h"
#include "view.h"

/* The names there are, as "a, b, c", and the nearest to a name. */
static loong_status_t unknown_family(loong_trainer_t *t, const char *role,
                                     const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "model.%s.family", role);
    loong_text_t names = loongi_text_begin(t->ctx);
    const char *near = "";
    int best = 4;
    for (int64_t i = 0; loong_family_at(t->ctx, i) != NULL; i++) {
        const char *other = loong_family_at(t->ctx, i)->name;
        int distance = loongi_edit_distance(name != NULL ? name : "", other,
                                            best);
        near = distance < best ? other : near;
        best = LOONG_MIN(best, distance);
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "", other);
    }
    loong_status_t status =
        name == NULL
            ? LOONG_FAIL(t->ctx, LOONG_ERR_CONFIG,
                         "no model: model: FAMILY/SIZE takes a preset, "
                         "model.from_hf what config.json of a directory says, "
                         "%s one of %s", path, loongi_text_get(&names))
            : LOONG_FAIL(t->ctx, LOONG_ERR_CONFIG,
                         "%s: %s: found %s%s%s%s are %s",
                         loong_recipe_where(t->recipe, path), path, name,
                         near[0] != '\0' ? "; did you mean " : "", near,
                         near[0] != '\0' ? "? There" : "; there",
                         loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

static loong_status_t add_pair(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

/* Does not overrule what the recipe says. */
static loong_status_t add_stated(void *user, const char *key,
                                 const char *value)
{
    return loongi_pairs_get(user, key) != NULL
               ? LOONG_OK
               : loongi_pairs_set(user, key, value);
}

/* A model of several components is an image encoder, a projector and what reads
 * both. */
static loong_status_t check_roles(const loong_trainer_t *t)
{
    const loong_model_keys_t *k = &t->keys;
    LOONG_CHECK(t->ctx,
                k->count == 1 || (k->count == LOONG_MODEL_ROLES &&
                                  strcmp(k->role[2], LOONG_DEFAULT_ROLE) == 0),
                LOONG_ERR_CONFIG,
                "model: %s and %s; pictures reach a " LOONG_DEFAULT_ROLE
                " from an image_encoder by way of an image_projector, all "
                "three must be there",
                k->role[0], k->role[k->count - 1]);
    return LOONG_OK;
}

/* What its neighbours say of a projector the recipe need not. */
static loong_status_t complete_projector(loong_trainer_t *t,
                                         const loong_component_params_t *all)
{
    static const struct {
        const char *path;
        int from;
        const char *origin;
    } sizes[] = {
        {"model.image_projector.input_size", 0, "the image encoder's width"},
        {"model.image_projector.hidden_size", 2, "the width of what reads it"}};
    static const char family[] = "model.image_projector.family";
    for (int64_t i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        const loong_component_params_t *from = &all[sizes[i].from];
        loong_model_facts_t facts = {0};
        char text[24];
        from->family->facts(from->config, &facts);
        snprintf(text, sizeof(text), "%lld", (long long)facts.hidden_size);
        LOONG_CHECK(t->ctx,
                    !loong_recipe_is_set(t->recipe, sizes[i].path) ||
                        loong_recipe_int(t->recipe, sizes[i].path) ==
                            facts.hidden_size,
                    LOONG_ERR_CONFIG, "%s: %s: found %lld, model.%s has %s",
                    loong_recipe_where(t->recipe, sizes[i].path), sizes[i].path,
                    (long long)loong_recipe_int(t->recipe, sizes[i].path),
                    from->name, text);
        if (!loong_recipe_is_set(t->recipe, sizes[i].path)) {
            LOONG_TRY(loong_recipe_set(t->recipe, sizes[i].path, text,
                                       sizes[i].origin));
        }
    }
    const char *usual = all[0].family->projector;
    return loong_recipe_text(t->recipe, family) != NULL || usual == NULL
               ? LOONG_OK
               : loong_recipe_set(t->recipe, family, usual,
                                  "what goes with the image encoder");
}

/* Deep features that nobody reads are not made. */
static loong_status_t match_deep_features(loong_trainer_t *t,
                                          const loong_component_params_t *all)
{
    static const char key[] = "model.image_projector.num_deep_features";
    loong_model_facts_t sender = {0}, reader = {0};
    char text[24];
    all[0].family->facts(all[0].config, &sender);
    all[2].family->facts(all[2].config, &reader);
    int made = sender.deep_features;
    int read = reader.deep_features;
    int both = LOONG_MIN(made, read);
    LOONG_CHECK(t->ctx,
                read <= made &&
                    (!loong_recipe_is_set(t->recipe, key) ||
                     loong_recipe_int(t->recipe, key) == both),
                LOONG_ERR_CONFIG,
                "model: %s sends %d deep features, %s reads %d%s", all[0].name,
                made, all[2].name, read,
                read > made ? ": num_deep_features is at most the number of "
                              "deepstack_layers"
                            : ", num_deep_features of the projector is the "
                              "smaller number");
    if (both < made && loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "model: of %d deep features of %s %s reads %d: the last %d "
                   "are left out, with their mergers",
                   made, all[0].name, all[2].name, both, made - both);
    }
    snprintf(text, sizeof(text), "%d", both);
    return loong_recipe_is_set(t->recipe, key)
               ? LOONG_OK
               : loong_recipe_set(t->recipe, key, text,
                                  "what its neighbours send and read");
}

/* What is merged into the model with the loss, one directory a line. */
static loong_status_t read_init_adapters(loong_trainer_t *t,
                                         loong_arena_t *arena,
                                         loong_component_params_t *p)
{
    static const char key[] = "init.adapters";
    int64_t count = loong_recipe_count(t->recipe, key);
    if (count == 0 || strcmp(loongi_model_role(t->recipe), p->name) != 0) {
        return LOONG_OK;
    }
    const char *where = loong_recipe_where(t->recipe, key);
    LOONG_CHECK(t->ctx, p->init != NULL, LOONG_ERR_CONFIG,
                "%s: %s: adapters are merged into a model: init.from_hf says "
                "which",
                where, key);
    LOONG_CHECK(t->ctx, p->request.rules.quant == LOONG_QUANT_NONE,
                LOONG_ERR_CONFIG,
                "%s: %s: codes have no place for what adapters add, and "
                "quantised anew the sum is another model: finetune.method is "
                "qlora, lora is wanted, or a directory that loong-ckpt merge "
                "makes",
                where, key);
    for (int64_t i = 0; i < count; i++) {
        char item[64];
        char *list = NULL;
        snprintf(item, sizeof(item), "%s[%lld]", key, (long long)i);
        LOONG_TRY(loongi_arena_printf(
            arena, &list, "%s%s%s", i > 0 ? p->init_adapters : "",
            i > 0 ? "\n" : "", loong_recipe_text(t->recipe, item)));
        p->init_adapters = list;
    }
    return LOONG_OK;
}

static loong_status_t configure(loong_trainer_t *t, int i,
                                loong_component_params_t *p)
{
    char path[64];
    void *config = NULL;
    const char *role = t->keys.role[i];
    const char *name = loongi_model_family(t->recipe, role);
    const loong_family_t *family =
        name != NULL ? loong_find_family(t->ctx, name) : NULL;
    if (family == NULL) {
        return unknown_family(t, role, name);
    }
    const char *wanted =
        family->role != NULL ? family->role : LOONG_DEFAULT_ROLE;
    LOONG_CHECK(t->ctx, strcmp(wanted, role) == 0, LOONG_ERR_CONFIG,
                "model.%s.family: %s is a family of model.%s", role, name,
                wanted);
    snprintf(path, sizeof(path), "model.%s", role);
    loong_arena_t *arena = t->keys.keys[i]->arena;
    LOONG_TRY(
        loongi_each_model_key(t->recipe, role, add_pair, t->keys.keys[i]));
    LOONG_TRY(loongi_arena_alloc(arena, family->config_size, &config));
    LOONG_TRY(family->configure(t->ctx, t->recipe, path, config));
    if (family->state != NULL) {
        LOONG_TRY(family->state(config, add_stated, t->keys.keys[i]));
    }
    const char *init = loong_recipe_init_key(t->recipe, role);
    p->name = role;
    p->init = init != NULL ? loong_recipe_text(t->recipe, init) : NULL;
    p->family = family;
    p->config = config;
    loong_model_facts_t facts = {0};
    family->facts(config, &facts);
    LOONG_TRY(loongi_param_rules_read(t->ctx, t->recipe, role,
                                      facts.num_layers, arena,
                                      &p->request.rules));
    LOONG_TRY(read_init_adapters(t, arena, p));
    p->beside_adapters =
        strcmp(loong_recipe_text(t->recipe, "finetune.method"), "full") != 0;
    if (p->beside_adapters) {
        p->adapter = loong_recipe_text(t->recipe, "finetune.adapter");
        LOONG_CHECK(t->ctx, p->adapter == NULL || p->init != NULL,
                    LOONG_ERR_CONFIG,
                    "%s: finetune.adapter: an adapter is beside a model: "
                    "init.from_hf says which",
                    loong_recipe_where(t->recipe, "finetune.adapter"));
    }
    return loongi_adapter_targets(t->ctx, t->recipe, t->keys.keys[i], arena,
                                  &p->request.rules.adapters);
}

loong_status_t
loongi_trainer_model(loong_trainer_t *t,
                     loong_component_params_t params[LOONG_MODEL_ROLES])
{
    loong_model_keys_t *k = &t->keys;
    int last = LOONG_MODEL_ROLES - 1;
    for (int64_t i = 0; loong_recipe_component(t->recipe, i) != NULL; i++) {
        LOONG_TRY(loongi_pairs_create(t->ctx, &k->keys[i]));
        k->role[k->count++] = loong_recipe_component(t->recipe, i);
    }
    if (k->count == 0) {
        return unknown_family(t, LOONG_DEFAULT_ROLE, NULL);
    }
    LOONG_TRY(check_roles(t));
    LOONG_TRY(configure(t, 0, &params[0]));
    if (k->count > 1) {
        LOONG_TRY(configure(t, last, &params[last]));
        LOONG_TRY(complete_projector(t, params));
        LOONG_TRY(match_deep_features(t, params));
        LOONG_TRY(configure(t, 1, &params[1]));
        params[last].request.features = true;
        loong_model_facts_t facts = {0};
        params[1].family->facts(params[1].config, &facts);
        for (int i = 0; i <= last; i++) {
            params[i].request.deep_features = facts.deep_features;
        }
    }
    bool judged = t->plan.judge && loong_comm_rank(t->comm) == 0;
    return loongi_check_export(t->ctx, t->recipe, k,
                               params[0].request.rules.adapters, judged);
}
