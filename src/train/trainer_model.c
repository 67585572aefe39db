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

/* A model of several components has encoders, a projector behind each, and what
 * reads these. */
static loong_status_t check_roles(const loong_trainer_t *t)
{
    const loong_model_keys_t *k = &t->keys;
    int pairs = (k->count - 1) / 2;
    bool fit = strcmp(k->role[k->count - 1], LOONG_DEFAULT_ROLE) == 0 &&
               k->count % 2 == 1;
    for (int i = 0; i < pairs; i++) {
        const char *encoder = loong_recipe_role_kind(k->role[2 * i]);
        fit = fit && strcmp(encoder, "image_encoder") == 0 &&
              strncmp(k->role[2 * i], k->role[2 * i + 1], 6) == 0;
    }
    bool alone = k->count == 1 && strcmp(loong_recipe_role_kind(k->role[0]),
                                         k->role[0]) == 0;
    LOONG_CHECK(t->ctx, alone || fit, LOONG_ERR_CONFIG,
                "model: %s and %s; pictures reach a " LOONG_DEFAULT_ROLE
                " from an image_encoder by way of an image_projector, videos "
                "from there as well, or from a video_encoder by way of a "
                "video_projector: all three, or five, must be there",
                k->role[0], k->role[k->count - 1]);
    return LOONG_OK;
}

/* What its neighbours say of a projector the recipe need not. */
static loong_status_t
complete_projector(loong_trainer_t *t, const char *projector,
                   const loong_component_params_t *encoder,
                   const loong_component_params_t *last)
{
    const struct {
        const char *key;
        const loong_component_params_t *from;
        const char *origin;
    } sizes[] = {{"input_size", encoder, "the encoder's width"},
                 {"hidden_size", last, "the width of what reads it"}};
    char path[64];
    for (int64_t i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        const loong_component_params_t *from = sizes[i].from;
        loong_model_facts_t facts = {0};
        char text[24];
        from->family->facts(from->config, &facts);
        snprintf(path, sizeof(path), "model.%s.%s", projector, sizes[i].key);
        snprintf(text, sizeof(text), "%lld", (long long)facts.hidden_size);
        LOONG_CHECK(t->ctx,
                    !loong_recipe_is_set(t->recipe, path) ||
                        loong_recipe_int(t->recipe, path) == facts.hidden_size,
                    LOONG_ERR_CONFIG, "%s: %s: found %lld, model.%s has %s",
                    loong_recipe_where(t->recipe, path), path,
                    (long long)loong_recipe_int(t->recipe, path), from->name,
                    text);
        if (!loong_recipe_is_set(t->recipe, path)) {
            LOONG_TRY(
                loong_recipe_set(t->recipe, path, text, sizes[i].origin));
        }
    }
    const char *usual = encoder->family->projector;
    snprintf(path, sizeof(path), "model.%s.family", projector);
    return loong_recipe_text(t->recipe, path) != NULL || usual == NULL
               ? LOONG_OK
               : loong_recipe_set(t->recipe, path, usual,
                                  "what goes with the encoder");
}

/* Deep features that nobody reads are not made. */
static loong_status_t
match_deep_features(loong_trainer_t *t, const char *projector,
                    const loong_component_params_t *encoder,
                    const loong_component_params_t *last)
{
    loong_model_facts_t sender = {0}, reader = {0};
    char key[64];
    char text[24];
    snprintf(key, sizeof(key), "model.%s.num_deep_features", projector);
    encoder->family->facts(encoder->config, &sender);
    last->family->facts(last->config, &reader);
    int made = sender.deep_features;
    int read = reader.deep_features;
    int both = LOONG_MIN(made, read);
    LOONG_CHECK(t->ctx,
                read <= made &&
                    (!loong_recipe_is_set(t->recipe, key) ||
                     loong_recipe_int(t->recipe, key) == both),
                LOONG_ERR_CONFIG,
                "model: %s sends %d deep features, %s reads %d%s",
                encoder->name, made, last->name, read,
                read > made ? ": num_deep_features is at most the number of "
                              "deepstack_layers"
                            : ", num_deep_features of the projector is the "
                              "smaller number");
    if (both < made && loong_comm_rank(t->comm) == 0) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "model: of %d deep features of %s %s reads %d: the last %d "
                   "are left out, with their mergers",
                   made, encoder->name, last->name, both, made - both);
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
    LOONG_CHECK(t->ctx, strcmp(wanted, loong_recipe_role_kind(role)) == 0,
                LOONG_ERR_CONFIG,
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
    for (int64_t i = 0; loong_recipe_component(t->recipe, i) != NULL; i++) {
        LOONG_TRY(loongi_pairs_create(t->ctx, &k->keys[i]));
        k->role[k->count++] = loong_recipe_component(t->recipe, i);
    }
    if (k->count == 0) {
        return unknown_family(t, LOONG_DEFAULT_ROLE, NULL);
    }
    LOONG_TRY(check_roles(t));
    int last = k->count - 1;
    LOONG_TRY(configure(t, last, &params[last]));
    params[last].request.features = last / 2;
    for (int e = 0; e < last; e += 2) {
        const char *projector = k->role[e + 1];
        LOONG_TRY(configure(t, e, &params[e]));
        LOONG_TRY(
            complete_projector(t, projector, &params[e], &params[last]));
        LOONG_TRY(
            match_deep_features(t, projector, &params[e], &params[last]));
        LOONG_TRY(configure(t, e + 1, &params[e + 1]));
        loong_model_facts_t facts = {0};
        params[e + 1].family->facts(params[e + 1].config, &facts);
        params[e + 1].request.encoder = e / 2;
        params[e].request.deep_features = facts.deep_features;
        params[e + 1].request.deep_features = facts.deep_features;
        params[last].request.deep_features = facts.deep_features;
    }
    bool judged = t->plan.judge && loong_comm_rank(t->comm) == 0;
    return loongi_check_export(t->ctx, t->recipe, k,
                               params[0].request.rules.adapters, judged);
}
