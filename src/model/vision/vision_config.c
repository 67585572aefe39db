/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a vision transformer: a table, the defaults of the families
 * (those of their classes in transformers), and what values go together. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problems.h"
#include "vision.h"

typedef enum key_type {
    TEXT,  /* not kept */
    SIZE,  /* at least 1 */
    COUNT, /* at least 0 */
    LAYER, /* a number of layers, or a negative one */
    REAL,
    BOOL,
    CHOICE
} key_type_t;

typedef struct choice {
    const char *name;
    int value;
} choice_t;

static const choice_t activations[] = {{"gelu", LOONG_MLP_GELU},
                                       {"gelu_tanh", LOONG_MLP_GELU_TANH},
                                       {"quick_gelu", LOONG_MLP_QUICK_GELU},
                                       {NULL, 0}};
static const choice_t poolings[] = {{"class_token", LOONG_POOL_CLASS_TOKEN},
                                    {"mean", LOONG_POOL_MEAN},
                                    {NULL, 0}};

typedef struct key {
    const char *name;
    key_type_t type;
    size_t offset;
    const choice_t *choices;
} vision_key_t;

#define AT(member_) offsetof(loong_vision_config_t, member_)

static const vision_key_t keys[] = {
    {"family", TEXT, 0, NULL},
    {"num_layers", SIZE, AT(num_layers), NULL},
    {"hidden_size", SIZE, AT(hidden_size), NULL},
    {"ffn_hidden_size", SIZE, AT(ffn_hidden_size), NULL},
    {"num_attention_heads", SIZE, AT(num_attention_heads), NULL},
    {"image_size", SIZE, AT(image_size), NULL},
    {"patch_size", SIZE, AT(patch_size), NULL},
    {"num_channels", SIZE, AT(num_channels), NULL},
    {"add_class_token", BOOL, AT(class_token), NULL},
    {"add_patch_bias", BOOL, AT(patch_bias), NULL},
    {"pre_layernorm", BOOL, AT(pre_norm), NULL},
    {"post_layernorm", BOOL, AT(post_norm), NULL},
    {"activation", CHOICE, AT(mlp), activations},
    {"layernorm_epsilon", REAL, AT(norm_eps), NULL},
    {"init_method_std", REAL, AT(init_std), NULL},
    {"num_classes", COUNT, AT(num_classes), NULL},
    {"pooling", CHOICE, AT(pooling), poolings},
    {"add_classifier_bias", BOOL, AT(classifier_bias), NULL},
    {"masked_image_modeling", BOOL, AT(masked_image_modeling), NULL},
    {"feature_layer", LAYER, AT(feature_layer), NULL},
    {"select_class_token", BOOL, AT(select_class_token), NULL},
};

static void set_choice(loong_problems_t *problems, const vision_key_t *k,
                       const char *text, void *at)
{
    char allowed[100] = "";
    for (const choice_t *c = k->choices; c->name != NULL; c++) {
        size_t used = strlen(allowed);
        if (strcmp(c->name, text) == 0) {
            *(int *)at = c->value;
            return;
        }
        snprintf(allowed + used, sizeof(allowed) - used, " %s", c->name);
    }
    loongi_problems_add(problems, "%s: found %s, allowed:%s", k->name, text,
                        allowed);
}

static void set_number(loong_problems_t *problems, const vision_key_t *k,
                       const char *text, void *at)
{
    char *end = NULL;
    double value = strtod(text, &end);
    bool number = end != text && *end == '\0';
    int least = k->type == SIZE ? 1 : k->type == LAYER ? -INT32_MAX : 0;
    if (k->type == REAL && number && value >= 0.0 && isfinite(value)) {
        *(double *)at = value;
    } else if (k->type == REAL) {
        loongi_problems_add(problems, "%s: found %s, a number >= 0 wanted",
                            k->name, text);
    } else if (number && value == floor(value) && value >= least &&
               value <= INT32_MAX) {
        *(int64_t *)at = (int64_t)value;
    } else {
        loongi_problems_add(problems,
                            "%s: found %s, a whole number from %d to %d wanted",
                            k->name, text, least, INT32_MAX);
    }
}

static void set_key(loong_problems_t *problems, loong_vision_config_t *config,
                    const char *name, const char *text)
{
    const vision_key_t *k = keys;
    while (k < keys + LOONG_COUNT_OF(keys) && strcmp(k->name, name) != 0) {
        k++;
    }
    if (k == keys + LOONG_COUNT_OF(keys)) {
        loongi_problems_add(problems, "%s: no such key of a vision transformer",
                            name);
        return;
    }
    void *at = (char *)config + k->offset;
    bool yes = strcmp(text, "true") == 0;
    if (k->type == CHOICE) {
        set_choice(problems, k, text, at);
    } else if (k->type != BOOL && k->type != TEXT) {
        set_number(problems, k, text, at);
    } else if (k->type == BOOL && (yes || strcmp(text, "false") == 0)) {
        *(bool *)at = yes;
    } else if (k->type == BOOL) {
        loongi_problems_add(problems, "%s: found %s, true or false wanted",
                            name, text);
    }
}

/* What all families have, unless they say otherwise. */
static const loong_vision_config_t common = {.num_channels = 3,
                                             .class_token = true,
                                             .patch_bias = true,
                                             .post_norm = true,
                                             .mlp = LOONG_MLP_GELU,
                                             .norm_eps = 1e-12,
                                             .init_std = 0.02,
                                             .classifier_bias = true};

/* Those of ViT are the common ones. CLIP's last norm is of the class token
 * alone, which its classifier does not look at. */
static const struct {
    const char *family;
    loong_pair_t pair;
} family_defaults[] = {
    {"clip_vision_model", {"add_patch_bias", "false"}},
    {"clip_vision_model", {"pre_layernorm", "true"}},
    {"clip_vision_model", {"post_layernorm", "false"}},
    {"clip_vision_model", {"activation", "quick_gelu"}},
    {"clip_vision_model", {"layernorm_epsilon", "1e-5"}},
    {"clip_vision_model", {"pooling", "mean"}},
    {"siglip_vision_model", {"add_class_token", "false"}},
    {"siglip_vision_model", {"activation", "gelu_tanh"}},
    {"siglip_vision_model", {"layernorm_epsilon", "1e-6"}},
    {"siglip_vision_model", {"pooling", "mean"}},
};

static void set_defaults(loong_problems_t *problems,
                         loong_vision_config_t *config, const char *family)
{
    *config = common;
    for (int64_t i = 0; i < LOONG_COUNT_OF(family_defaults); i++) {
        if (family != NULL && strcmp(family_defaults[i].family, family) == 0) {
            const loong_pair_t *pair = &family_defaults[i].pair;
            set_key(problems, config, pair->key, pair->value);
        }
    }
}

static void check(loong_problems_t *problems, const loong_vision_config_t *c,
                  const loong_pairs_t *pairs)
{
    static const char *const wanted[] = {"num_layers", "hidden_size",
                                         "num_attention_heads", "image_size",
                                         "patch_size"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(wanted); i++) {
        if (loongi_pairs_get(pairs, wanted[i]) == NULL) {
            loongi_problems_add(problems, "%s is missing", wanted[i]);
        }
    }
    if (c->num_attention_heads > 0 &&
        c->hidden_size % c->num_attention_heads != 0) {
        loongi_problems_add(problems,
                            "hidden_size %lld is no multiple of "
                            "num_attention_heads %lld",
                            (long long)c->hidden_size,
                            (long long)c->num_attention_heads);
    }
    if (c->patch_size > 0 && c->image_size % c->patch_size != 0) {
        loongi_problems_add(problems,
                            "image_size %lld is no multiple of patch_size %lld",
                            (long long)c->image_size, (long long)c->patch_size);
    }
    int64_t layers = loongi_vision_layers(c);
    if (layers < 1 || layers > c->num_layers ||
        (c->feature_layer != 0 && c->num_classes > 0)) {
        loongi_problems_add(problems,
                            "feature_layer: found %lld, 1 to %lld and -%lld to "
                            "-1 are layers that others read, who read none of "
                            "an encoder with num_classes",
                            (long long)c->feature_layer,
                            (long long)c->num_layers, (long long)c->num_layers);
    }
    if (c->num_classes > 0 && c->pooling == LOONG_POOL_CLASS_TOKEN &&
        !c->class_token) {
        loongi_problems_add(problems, "pooling: class_token, but "
                                      "add_class_token is false: mean is left");
    }
    if (c->num_classes > 0 && c->masked_image_modeling) {
        loongi_problems_add(problems,
                            "masked_image_modeling stands in place of a "
                            "classifier, num_classes %lld",
                            (long long)c->num_classes);
    }
}

loong_status_t loongi_vision_configure(loong_context_t *ctx,
                                       const loong_pairs_t *pairs,
                                       loong_vision_config_t *config)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    set_defaults(&problems, config, loongi_pairs_get(pairs, "family"));
    for (int64_t i = 0; i < pairs->count; i++) {
        set_key(&problems, config, pairs->items[i].key, pairs->items[i].value);
    }
    if (config->ffn_hidden_size == 0) {
        config->ffn_hidden_size = 4 * config->hidden_size;
    }
    check(&problems, config, pairs);
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG,
                               "the vision transformer");
}

static void print_key(const vision_key_t *k, const void *at, char text[32])
{
    switch (k->type) {
    case TEXT:
        break;
    case SIZE:
    case LAYER:
    case COUNT:
        snprintf(text, 32, "%lld", (long long)*(const int64_t *)at);
        break;
    case REAL:
        snprintf(text, 32, "%.17g", *(const double *)at);
        break;
    case BOOL:
        snprintf(text, 32, "%s", *(const bool *)at ? "true" : "false");
        break;
    case CHOICE:
        for (const choice_t *c = k->choices; c->name != NULL; c++) {
            if (c->value == *(const int *)at) {
                snprintf(text, 32, "%s", c->name);
            }
        }
        break;
    }
}

loong_status_t loongi_vision_state(const void *config, loong_model_state_fn add,
                                   void *user)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        char text[32] = "";
        print_key(&keys[i], (const char *)config + keys[i].offset, text);
        if (keys[i].type != TEXT) {
            LOONG_TRY(add(user, keys[i].name, text));
        }
    }
    return LOONG_OK;
}
