/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of the schema that every component has, whatever its family.
 * schema.c has the rest. Listed by src/registry/recipe_tables.c. Read schema.h
 * before. */
#include "schema.h"

#define M "model.foundation."
#define V "model.image_encoder."
#define P "model.image_projector."
/* Of every component; what stands at the top level holds where these are not
 * given. */
#define COMPONENT(role_)                                                      \
    BOOL(role_ "freeze", NULL, SAME, "all of it stays fixed"),                \
        TEXT(role_ "ranks", NULL, FREE,                                       \
             "ranks of the job that it stands on, as 0-1, [0, 2, 4-7] or "    \
             "4-; all of them when not given"),                               \
        CHOICE(role_ "precision.params_dtype", NULL, "auto bf16 fp32 fp64",   \
               SAME, "compute type of this component"),                       \
        TEXTS(role_ "precision.fp32_scopes", SAME,                            \
              "globs of its scopes whose ops work in fp32"),                  \
        CHOICE(role_ "recompute.granularity", NULL, "none full selective",    \
               FREE, "what its backward computes again"),                     \
        TEXTS(role_ "recompute.scopes", FREE, "globs of its scopes"),         \
        REAL(role_ "optimizer.lr", NULL, 0, 1000, FREE,                       \
             "its highest learning rate, in the proportion of which it "      \
             "follows the schedule"),                                         \
        REAL(role_ "optimizer.weight_decay", NULL, 0, 100, FREE,              \
             "of its matrices and embeddings")
/* Of one that is published alone. */
#define INIT(role_)                                                           \
    TEXT(role_ "init.from_hf", NULL, FREE,                                    \
         "Hugging Face directory that this component starts from, and is "    \
         "like where its keys are not given; init.from_hf is of the "         \
         "component with the loss")
/* Of one with layers. */
#define LAYERS(role_)                                                         \
    INT(role_ "freeze_first_layers", NULL, 0, 1000000, SAME,                  \
        "so many of its first layers stay fixed"),                            \
        INT(role_ "freeze_last_layers", NULL, 0, 1000000, SAME,               \
            "so many of its last layers stay fixed")
/* Of a component beside the one with the loss. */
#define BESIDE(role_)                                                         \
    INT(role_ "parallel.tensor_model_parallel_size", NULL, 1, 1024, FREE,     \
        "ranks that share each layer, where other components read this one; " \
        "1 when not given"),                                                  \
        BOOL(role_ "parallel.sequence_parallel", NULL, FREE,                  \
             "these cut the rows between layers as well"),                    \
        COMPONENT(role_)

static const loong_recipe_key_t image_encoder[] = {BESIDE(V), LAYERS(V),
                                                   INIT(V)};
static const loong_recipe_key_t image_projector[] = {BESIDE(P)};
static const loong_recipe_key_t foundation[] = {
    COMPONENT(M),
    LAYERS(M),
    INIT(M),
    TEXT("model.from_hf", NULL, FREE,
         "Hugging Face directory whose config.json says what the model is; "
         "init.from_hf takes its weights as well"),
    TEXTS("model.freeze", SAME, "globs of parameter names that stay fixed"),
    TEXTS("model.trainable", SAME,
          "globs of the parameter names that are trained, as ['*.bias']; all "
          "others stay fixed"),
};

static const loong_recipe_key_t finetune[] = {
    CHOICE("finetune.method", "full", "full lora", SAME,
           "what is trained: the model, or adapters of low rank beside its "
           "linear layers; finetune: lora is short for it"),
    TEXT("finetune.adapter", NULL, FREE,
         "directory of an adapter (adapter_config.json and "
         "adapter_model.safetensors) to go on with, of the same rank, alpha "
         "and modules"),
    INT("finetune.rank", "16", 1, 65536, SAME, "of adapters"),
    REAL("finetune.alpha", "32", 1e-6, 1e6, SAME,
         "what adapters make is multiplied by alpha / rank"),
    REAL("finetune.dropout", "0", 0, 0.999, FREE,
         "of what adapters read, in training"),
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
         "modules with a rank of their own; the last match holds"),
    INT("finetune.rank_pattern[].rank", NULL, 1, 65536, SAME, "theirs"),
    TEXT("finetune.alpha_pattern[].scope", NULL, SAME,
         "modules with an alpha of their own; the last match holds"),
    REAL("finetune.alpha_pattern[].alpha", NULL, 1e-6, 1e6, SAME, "theirs"),
    BOOL("finetune.use_rslora", "false", SAME,
         "alpha / sqrt(rank) in place of alpha / rank"),
    REAL("finetune.loraplus_lr_ratio", "1", 1e-3, 1e6, FREE,
         "learning rate of the second matrices over that of the first"),
    CHOICE("finetune.init_lora_weights", "kaiming", "kaiming gaussian", FREE,
           "how the first matrix of an adapter starts: uniform as linear "
           "layers do, or normal of deviation 1 / rank; the second is 0"),
};

const loong_recipe_table_t loongi_recipe_component_keys[] = {
    {NULL, image_encoder, LOONG_COUNT_OF(image_encoder)},
    {NULL, image_projector, LOONG_COUNT_OF(image_projector)},
    {NULL, foundation, LOONG_COUNT_OF(foundation)},
    {NULL, finetune, LOONG_COUNT_OF(finetune)}};
