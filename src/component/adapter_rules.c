/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads finetune.* of a recipe into the rules of the component with the loss.
 * Called by param_rules.c. Read loong_adapters_t before. */
#include "adapter_rules.h"

#include <string.h>

#include "param_rules.h"
#include "schema.h"

#define LORA(member_) FILLS(loong_adapters_t, member_)
#define PATTERN(member_) FILLS(loong_adapter_pattern_t, member_)

static const loong_recipe_field_t keys[] = {
    CHOICE("finetune.method", "full", "full lora qlora", SAME,
           "what is trained: the model, or adapters of low rank beside its "
           "linear layers, whose matrices qlora stores as codes; finetune: "
           "lora is short for it"),
    CHOICE("finetune.quantization", "nf4", "nf4 int8", SAME,
           "of method qlora: codes of 4 bits in blocks of 64 elements, or of 8 "
           "bits in rows, as bitsandbytes has them"),
    BOOL("finetune.double_quantization", "false", SAME,
         "of nf4: the scales of blocks are quantised themselves, to 8 bits in "
         "blocks of 256"),
    TEXT("finetune.adapter", NULL, FREE,
         "directory of an adapter (adapter_config.json and "
         "adapter_model.safetensors) to go on with, of the same rank, alpha "
         "and modules"),
    INT("finetune.rank", "16", 1, 65536, SAME, "of adapters", LORA(rank)),
    REAL("finetune.alpha", "32", 1e-6, 1e6, SAME,
         "what adapters make is multiplied by alpha / rank", LORA(alpha)),
    REAL("finetune.dropout", "0", 0, 0.999, FREE,
         "of what adapters read, in training", LORA(dropout)),
    TEXTS("finetune.target_modules", SAME,
          "modules with adapters, by their last names or globs over their "
          "paths, as [q_proj, v_proj] or ['layers.0.*']; all linear layers "
          "between the ends when not given"),
    TEXTS("finetune.exclude_modules", SAME, "modules without, likewise"),
    TEXTS("finetune.modules_to_save", SAME,
          "modules of the model that are trained beside its adapters and "
          "saved with them, as [norm]"),
    CHOICE("finetune.bias", "none", "none all lora_only", SAME,
           "biases that are trained beside adapters: all, or those of modules "
           "with adapters"),
    TEXT("finetune.rank_pattern[].scope", NULL, SAME,
         "modules with a rank of their own; the last match holds",
         PATTERN(scope)),
    INT("finetune.rank_pattern[].rank", NULL, 1, 65536, SAME, "theirs",
        PATTERN(value)),
    TEXT("finetune.alpha_pattern[].scope", NULL, SAME,
         "modules with an alpha of their own; the last match holds",
         PATTERN(scope)),
    REAL("finetune.alpha_pattern[].alpha", NULL, 1e-6, 1e6, SAME, "theirs",
         PATTERN(value)),
    BOOL("finetune.use_rslora", "false", SAME,
         "alpha / sqrt(rank) in place of alpha / rank", LORA(rank_stabilized)),
    BOOL("finetune.use_dora", "false", SAME,
         "rows of matrices, with what adapters add, have lengths that are "
         "trained (DoRA); they begin as those of a published model",
         LORA(magnitudes)),
    REAL("finetune.loraplus_lr_ratio", "1", 1e-3, 1e6, FREE,
         "learning rate of the second matrices over that of the first"),
    CHOICE("finetune.init_lora_weights", "kaiming", "kaiming gaussian", FREE,
           "how the first matrix of an adapter starts: uniform as linear "
           "layers do, or normal of deviation 1 / rank; the second is 0",
           LORA(gaussian)),
};

const loong_recipe_table_t loongi_adapter_keys = LOONG_KEYS(keys);

#define KEY(name_) "finetune." name_

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
                                     loong_param_rules_t *rules,
                                     bool *alone_p)
{
    static const char *const matrices[] = {"*.lora_A", "*.lora_B",
                                           "*.lora_magnitude_vector"};
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
    *alone_p = count == LOONG_COUNT_OF(matrices);
    return LOONG_OK;
}

static loong_status_t read_patterns(const loong_recipe_t *recipe,
                                    const char *key, loong_arena_t *arena,
                                    int *count_p,
                                    const loong_adapter_pattern_t **patterns_p)
{
    int64_t count = loong_recipe_count(recipe, key);
    loong_adapter_pattern_t *list = NULL;
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)LOONG_MAX(count, 1) * sizeof(*list), &list));
    for (int64_t i = 0; i < count; i++) {
        LOONG_FILL_ITEM(recipe, key, i, loong_adapter_pattern_t, &list[i]);
        list[i].item = (int)i;
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
    return strcmp(loong_recipe_text(recipe, KEY("method")), "full") != 0 &&
           last != NULL && strcmp(last, role) == 0;
}

static loong_quant_t read_quant(const loong_recipe_t *recipe)
{
    if (strcmp(loong_recipe_text(recipe, KEY("method")), "qlora") != 0) {
        return LOONG_QUANT_NONE;
    }
    if (strcmp(loong_recipe_text(recipe, KEY("quantization")), "int8") == 0) {
        return LOONG_QUANT_INT8;
    }
    return loong_recipe_bool(recipe, KEY("double_quantization"))
               ? LOONG_QUANT_NF4_DOUBLE
               : LOONG_QUANT_NF4;
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
    LOONG_TRY(read_targets(r, arena, a));
    LOONG_FILL(r, "", loong_adapters_t, a);
    LOONG_TRY(
        read_patterns(r, KEY("rank_pattern"), arena, &a->num_ranks, &a->ranks));
    LOONG_TRY(read_patterns(r, KEY("alpha_pattern"), arena, &a->num_alphas,
                            &a->alphas));
    rules->adapters = a;
    rules->quant = read_quant(r);
    return read_trainable(r, arena, rules, &a->alone);
}
