/* SPDX-License-Identifier: Apache-2.0
 *
 * From the names of layers that users know, those of Hugging Face files and of
 * Megatron, to the engine's. Called by trainer_model.c. Read adapter_start.h
 * and hf_adapters.h before. */
#include <stdio.h>
#include <string.h>

#include "adapter_start.h"
#include "graph_impl.h"
#include "hf_adapters.h"
#include "hf_names.h"

#define TARGETS "finetune.target_modules"

/* Megatron's; of two names the second holds where the first is no layer. */
static const struct {
    const char *name;
    const char *own[2];
} megatron[] = {{"linear_qkv", {"qkv_proj", NULL}},
                {"linear_proj", {"o_proj", NULL}},
                {"linear_fc1", {"gate_up_proj", "up_proj"}},
                {"linear_fc2", {"down_proj", NULL}},
                {"linear_q_down", {"q_a_proj", NULL}},
                {"linear_q_up", {"q_b_proj", NULL}},
                {"linear_kv_down", {"kv_a_proj_with_mqa", NULL}},
                {"linear_kv_up", {"kv_b_proj", NULL}},
                {"output_layer", {LOONG_LORA_HEAD, NULL}}};

typedef struct targets {
    loong_context_t *ctx;
    const loong_hf_map_t *map;
    loong_arena_t *arena;
    loong_adapters_t *a;
    const char **list;
    int count, room;
    const char *fused[4];
} targets_t;

static bool names(const char *target, const char *module)
{
    char inside[LOONG_HF_MODULE];
    snprintf(inside, sizeof(inside), "*.%s", target);
    return loongi_scope_match(target, module) ||
           loongi_scope_match(inside, module);
}

static void add_fused(targets_t *t, const char *name)
{
    int i = 0;
    while (i < t->a->num_fused && strcmp(t->fused[i], name) != 0) {
        i++;
    }
    if (i == t->a->num_fused && i < LOONG_COUNT_OF(t->fused)) {
        t->fused[t->a->num_fused++] = name;
    }
}

static loong_status_t add(targets_t *t, const char *name)
{
    char *copy = NULL;
    LOONG_TRY(loongi_arena_strdup(t->arena, name, &copy));
    t->list[t->count++] = copy;
    return LOONG_OK;
}

/* Routers and gates of shared experts have no adapters here. */
static bool is_gate(const loong_hf_param_t *p)
{
    return loongi_scope_match("*.gate.weight", p->name) ||
           loongi_scope_match("*.shared_expert_gate.weight", p->name);
}

/* A matrix of one layer, or of its experts, or of an end. */
static bool is_linear(const loong_hf_param_t *p)
{
    return p->ndim == 2 && !is_gate(p) &&
           (strncmp(p->name, "layers.", strlen("layers.")) == 0 ||
            strcmp(p->name, LOONG_LORA_EMBEDDING ".weight") == 0 ||
            strcmp(p->name, LOONG_HF_HEAD) == 0);
}

/* A head that is the embedding's matrix has no name in files, and no adapter:
 * merged, it would change the embedding. */
static bool is_tied(const targets_t *t)
{
    return loongi_hf_map_find(t->map, LOONG_HF_HEAD) == NULL;
}

/* The engine's module of a parameter. */
static void module_of(const targets_t *t, const loong_hf_param_t *p,
                      char module[LOONG_HF_MODULE])
{
    loongi_lora_module(p, module);
    const char *fused = loongi_lora_fused(module);
    for (int i = 0; i < t->a->num_fused && fused != NULL; i++) {
        char *last = strrchr(module, '.');
        if (strcmp(fused, t->fused[i]) == 0 && last != NULL) {
            snprintf(last + 1, (size_t)(module + LOONG_HF_MODULE - last - 1),
                     "%s", fused);
            return;
        }
    }
}

/* Whether a target means the unit of an expert by its name in older files. */
static bool names_unit(const targets_t *t, const char *target,
                       const loong_hf_param_t *p, int unit)
{
    char file[LOONG_HF_MODULE];
    loongi_lora_hf_piece(t->map, p, unit, file);
    return names(target, file);
}

/* What files have as gate and up of each expert is one matrix here: both are
 * meant, or none. */
static loong_status_t add_units(targets_t *t, const char *target,
                                const loong_hf_param_t *p, int64_t *found_p)
{
    bool found[2] = {false, false};
    char file[LOONG_HF_MODULE];
    for (int u = 0; u < p->units; u++) {
        for (int i = 0; i < t->a->num_targets; i++) {
            found[u] = found[u] || names_unit(t, t->a->targets[i], p, u);
        }
    }
    loongi_lora_hf_piece(t->map, p, found[0] ? 1 : 0, file);
    LOONG_CHECK(t->ctx, p->units == 1 || found[0] == found[1],
                LOONG_ERR_CONFIG,
                TARGETS ": %s names one of two matrices that are one here, %s: "
                "%s too is wanted, or that name, or exclude_modules: "
                "['*.experts']",
                target, p->name, file);
    bool here = found[0] && (names_unit(t, target, p, 0) ||
                             names_unit(t, target, p, p->units - 1));
    *found_p += here;
    loongi_lora_module(p, file);
    return here ? add(t, file) : LOONG_OK;
}

/* What a pattern calls by names of files or of Megatron, by those here. */
static loong_status_t translate_pattern(const targets_t *t,
                                        const loong_adapter_pattern_t *from,
                                        loong_adapter_pattern_t *to,
                                        int *count_p)
{
    to[(*count_p)++] = *from;
    for (int64_t k = 0; k < 2 * LOONG_COUNT_OF(megatron); k++) {
        const char *own = megatron[k / 2].own[k % 2];
        if (own != NULL && strcmp(from->scope, megatron[k / 2].name) == 0) {
            to[*count_p] = *from;
            to[(*count_p)++].scope = own;
        }
    }
    for (int64_t i = 0; i < loongi_hf_map_count(t->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(t->map, i);
        char own[LOONG_HF_MODULE];
        char file[LOONG_HF_MODULE];
        char *copy = NULL;
        if (!is_linear(p)) {
            continue;
        }
        module_of(t, p, own);
        loongi_lora_hf_module(t->map, p, file);
        if (names(from->scope, file) && !names(from->scope, own)) {
            LOONG_TRY(loongi_arena_strdup(t->arena, own, &copy));
            to[*count_p] = *from;
            to[(*count_p)++].scope = copy;
        }
    }
    return LOONG_OK;
}

static loong_status_t translate_patterns(const targets_t *t, int *count_p,
                                         const loong_adapter_pattern_t **list_p)
{
    const loong_adapter_pattern_t *from = *list_p;
    loong_adapter_pattern_t *to = NULL;
    int64_t room = *count_p * (loongi_hf_map_count(t->map) + 3);
    int count = 0;
    LOONG_TRY(loongi_arena_alloc(
        t->arena, (size_t)LOONG_MAX(room, 1) * sizeof(*to), &to));
    for (int i = 0; i < *count_p; i++) {
        LOONG_TRY(translate_pattern(t, &from[i], to, &count));
    }
    *list_p = to;
    *count_p = count;
    return LOONG_OK;
}

/* Layers that a target means by either name. */
static loong_status_t add_matches(targets_t *t, const char *target,
                                  int64_t *found_p)
{
    for (int64_t i = 0; i < loongi_hf_map_count(t->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(t->map, i);
        char own[LOONG_HF_MODULE];
        char file[LOONG_HF_MODULE];
        if (!is_linear(p)) {
            continue;
        }
        module_of(t, p, own);
        loongi_lora_hf_module(t->map, p, file);
        bool here = names(target, own);
        *found_p += here || names(target, file);
        if (!here && names(target, file)) {
            LOONG_TRY(add(t, own));
        } else if (!here && loongi_lora_of_experts(p) &&
                   !loongi_scope_any(t->a->num_excluded, t->a->excluded, own)) {
            LOONG_TRY(add_units(t, target, p, found_p));
        }
    }
    return LOONG_OK;
}

/* The word stands in a list, a blank before each. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (; *list != '\0'; list += strcspn(list, " ")) {
        list++;
        if (strncmp(list, word, length) == 0 &&
            strchr(" ", list[length]) != NULL) {
            return true;
        }
    }
    return false;
}

/* The layers of a model, each once, by their last names. */
static void list_layers(const targets_t *t, loong_text_t *text)
{
    for (int64_t i = 0; i < loongi_hf_map_count(t->map); i++) {
        char own[LOONG_HF_MODULE];
        if (!is_linear(loongi_hf_map_get(t->map, i))) {
            continue;
        }
        module_of(t, loongi_hf_map_get(t->map, i), own);
        const char *dot = strrchr(own, '.');
        const char *last = dot != NULL ? dot + 1 : own;
        if (!has_word(loongi_text_get(text), last)) {
            loongi_text_printf(text, " %s", last);
        }
    }
}

static loong_status_t add_target(targets_t *t, loong_context_t *ctx,
                                 const loong_recipe_t *recipe, int i)
{
    const char *target = t->a->targets[i];
    int64_t found = 0;
    for (int64_t k = 0; k < LOONG_COUNT_OF(megatron); k++) {
        for (int n = 0; n < 2 && strcmp(target, megatron[k].name) == 0; n++) {
            const char *own = megatron[k].own[n];
            if (own != NULL && found == 0) {
                LOONG_TRY(add_matches(t, own, &found));
                LOONG_TRY(add(t, own));
            }
        }
    }
    LOONG_TRY(add_matches(t, target, &found));
    loong_text_t layers = loongi_text_begin(ctx);
    if (found == 0) {
        list_layers(t, &layers);
    }
    loong_status_t status =
        found > 0 ? LOONG_OK
                  : LOONG_FAIL(ctx, LOONG_ERR_CONFIG,
                               "%s: " TARGETS ": no layer that can have "
                               "adapters is called %s; there are%s%s",
                               loong_recipe_where(recipe, TARGETS), target,
                               loongi_text_get(&layers),
                               is_tied(t) ? ", and the head is the matrix of "
                                            LOONG_LORA_EMBEDDING
                                          : "");
    loongi_text_free(&layers);
    return status;
}

static loong_status_t exclude_head(targets_t *t)
{
    loong_adapters_t *a = t->a;
    const char **list = NULL;
    LOONG_TRY(loongi_arena_alloc(
        t->arena, (size_t)(a->num_excluded + 1) * sizeof(*list), &list));
    memcpy(list, a->excluded, (size_t)a->num_excluded * sizeof(*list));
    list[a->num_excluded++] = LOONG_LORA_HEAD;
    a->excluded = list;
    return LOONG_OK;
}

static loong_status_t translate(targets_t *t, loong_context_t *ctx,
                                const loong_recipe_t *recipe)
{
    int64_t params = loongi_hf_map_count(t->map);
    for (int i = 0; i < t->a->num_targets; i++) {
        if (strcmp(t->a->targets[i], "linear_qkv") == 0) {
            add_fused(t, "qkv_proj");
        } else if (strcmp(t->a->targets[i], "linear_fc1") == 0) {
            add_fused(t, "gate_up_proj");
        }
    }
    for (int64_t i = 0; i < params; i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(t->map, i);
        char module[LOONG_HF_MODULE];
        if (is_linear(p) && p->parts > 1) {
            loongi_lora_module(p, module);
            const char *fused = loongi_lora_fused(module);
            if (fused != NULL) {
                add_fused(t, fused);
            }
        }
    }
    t->room = (int)((params + 4) * (t->a->num_targets + 1));
    LOONG_TRY(loongi_arena_alloc(t->arena, (size_t)t->room * sizeof(*t->list),
                                 &t->list));
    for (int i = 0; i < t->a->num_targets; i++) {
        LOONG_TRY(add(t, t->a->targets[i]));
        LOONG_TRY(add_target(t, ctx, recipe, i));
    }
    LOONG_TRY(translate_patterns(t, &t->a->num_ranks, &t->a->ranks));
    LOONG_TRY(translate_patterns(t, &t->a->num_alphas, &t->a->alphas));
    if (is_tied(t)) {
        LOONG_TRY(exclude_head(t));
    }
    const char **fused = NULL;
    LOONG_TRY(loongi_arena_alloc(t->arena, sizeof(t->fused), &fused));
    memcpy(fused, t->fused, sizeof(t->fused));
    t->a->fused = fused;
    t->a->targets = t->list;
    t->a->num_targets = t->count;
    return LOONG_OK;
}

loong_status_t loongi_adapter_targets(loong_context_t *ctx,
                                      const loong_recipe_t *recipe,
                                      const loong_pairs_t *model,
                                      loong_arena_t *arena,
                                      const loong_adapters_t **adapters)
{
    loong_hf_map_t *map = NULL;
    targets_t t = {.ctx = ctx, .arena = arena};
    if (*adapters == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*t.a), &t.a));
    *t.a = **adapters;
    if (loongi_hf_map_create(ctx, model, &map) != LOONG_OK) {
        loong_context_clear_error(ctx); /* a family without files */
        return LOONG_OK;
    }
    t.map = map;
    loong_status_t status = translate(&t, ctx, recipe);
    loongi_hf_map_destroy(&map);
    *adapters = t.a;
    return status;
}
