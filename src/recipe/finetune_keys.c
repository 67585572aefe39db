/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys of finetune: go with which method and model. together.c calls it;
 * each key alone was checked against the schema. Read
 * src/component/adapter_rules.c before. */
#include <string.h>

#include "problems.h"
#include "recipe_impl.h"

/* What adapters alone read. */
static const char *const of_adapters[] = {
    "finetune.rank",            "finetune.alpha",
    "finetune.dropout",         "finetune.target_modules",
    "finetune.exclude_modules", "finetune.modules_to_save",
    "finetune.bias",            "finetune.rank_pattern",
    "finetune.alpha_pattern",   "finetune.use_rslora",
    "finetune.adapter",         "finetune.init_lora_weights",
    "export.merge",             "finetune.loraplus_lr_ratio",
    "finetune.use_dora"};

static void check_magnitudes(const loong_recipe_t *r,
                             loong_problems_t *problems)
{
    static const char dora[] = "finetune.use_dora";
    if (loong_recipe_bool(r, dora) &&
        !loong_recipe_is_set(r, "init.from_hf") &&
        !loong_recipe_is_set(r, "model.from_hf")) {
        loongi_problems_add(problems,
                            "%s: %s: begins with the lengths of the rows of a "
                            "published model: init.from_hf or model.from_hf is "
                            "wanted",
                            loong_recipe_where(r, dora), dora);
    }
}

static void check_quantization(const loong_recipe_t *r,
                               loong_problems_t *problems)
{
    static const char *const keys[] = {"finetune.quantization",
                                       "finetune.double_quantization"};
    bool codes = strcmp(loong_recipe_text(r, "finetune.method"), "qlora") == 0;
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys) && !codes; i++) {
        if (loong_recipe_is_set(r, keys[i])) {
            loongi_problems_add(problems, "%s: %s: is of finetune.method qlora",
                                loong_recipe_where(r, keys[i]), keys[i]);
        }
    }
    if (codes && loong_recipe_bool(r, keys[1]) &&
        strcmp(loong_recipe_text(r, keys[0]), "nf4") != 0) {
        loongi_problems_add(problems, "%s: %s: is of %s nf4",
                            loong_recipe_where(r, keys[1]), keys[1], keys[0]);
    }
    if (codes && loong_recipe_init_key(r, NULL) == NULL &&
        !loong_recipe_is_set(r, "model.from_hf")) {
        loongi_problems_add(problems,
                            "%s: finetune.method: qlora quantises what it "
                            "reads: init.from_hf or model.from_hf is wanted",
                            loong_recipe_where(r, "finetune.method"));
    }
}

void loongi_finetune_keys_check(const loong_recipe_t *recipe,
                                loong_problems_t *problems)
{
    static const char ratio[] = "finetune.loraplus_lr_ratio";
    static const char phase[] = "training_phase";
    bool adapters =
        strcmp(loong_recipe_text(recipe, "finetune.method"), "full") != 0;
    for (int64_t i = 0; i < LOONG_COUNT_OF(of_adapters) && !adapters; i++) {
        if (loong_recipe_is_set(recipe, of_adapters[i])) {
            loongi_problems_add(problems,
                                "%s: %s: is of adapters: finetune.method lora "
                                "or qlora is wanted",
                                loong_recipe_where(recipe, of_adapters[i]),
                                of_adapters[i]);
        }
    }
    if (strcmp(loong_recipe_text(recipe, phase), "sft") == 0 &&
        !loong_recipe_reads_texts(recipe)) {
        loongi_problems_add(problems,
                            "%s: %s: sft is training on conversations, which "
                            "this model does not read; finetune goes without "
                            "it",
                            loong_recipe_where(recipe, phase), phase);
    }
    check_quantization(recipe, problems);
    check_magnitudes(recipe, problems);
    if (loong_recipe_bool(recipe, "export.merge") &&
        !loong_recipe_is_set(recipe, "export.hf")) {
        loongi_problems_add(problems,
                            "%s: export.merge: has no effect without export.hf",
                            loong_recipe_where(recipe, "export.merge"));
    }
    if (adapters && loong_recipe_real(recipe, ratio) != 1.0 &&
        loong_recipe_count(recipe, "optimizer.groups") > 0) {
        loongi_problems_add(problems,
                            "%s: %s: does not go with optimizer.groups, which "
                            "can give the same rates",
                            loong_recipe_where(recipe, ratio), ratio);
    }
}
