/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of the schema that every component has, whatever its family.
 * Listed by src/registry/recipe_tables.c. Read schema.h before. */
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
/* Of one that is published, alone or as a part of a model. */
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

static const loong_recipe_field_t image_encoder[] = {
    BESIDE(V),
    INT(V "parallel.pipeline_model_parallel_size", NULL, 1, 1024, FREE,
        "stages of its own pipeline; 1 when not given"),
    INT(V "parallel.context_parallel_size", NULL, 1, 1024, FREE,
        "ranks that share the rows of its pictures, and exchange heads in "
        "attention; 1 when not given"),
    INT(V "parallel.num_layers_per_virtual_pipeline_stage", NULL, 0, 1000000,
        FREE, "layers of each of a rank's chunks of it"),
    LAYERS(V),
    INIT(V),
    INT(V "train.micro_batch_size", NULL, 1, 1e6, FREE,
        "samples whose pictures it reads at once, the projector too: a "
        "multiple of train.micro_batch_size, or a part; as many when not "
        "given"),
};
static const loong_recipe_field_t image_projector[] = {BESIDE(P), INIT(P)};
static const loong_recipe_field_t foundation[] = {
    COMPONENT(M),
    LAYERS(M),
    INIT(M),
    TEXT("model.from_hf", NULL, FREE,
         "Hugging Face directory whose config.json says what the model is; "
         "init.from_hf takes its weights as well"),
    TEXTS("model.freeze", SAME,
          "globs of parameter names that stay fixed, or regular expressions "
          "behind re:, as 're:^layers\\.[0-3]\\.'"),
    TEXTS("model.trainable", SAME,
          "globs of the parameter names that are trained, as ['*.bias']; all "
          "others stay fixed"),
};

const loong_recipe_table_t loongi_recipe_component_keys[] = {
    LOONG_KEYS(image_encoder),
    LOONG_KEYS(image_projector),
    LOONG_KEYS(foundation)};
