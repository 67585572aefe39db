/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of vision transformers, read and written by the tables of
 * hf_vision_types.c. Listed in src/registry/hf_kinds.c. Read hf_kind.h and
 * vision.h before. */
#include "hf_vision.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_rows.h"
#include "vision.h"

/* Beside vision_config; text and its logits are no part of the encoder. */
static const loong_hf_field_t whole_fields[] = {
    CODE_FIELD("vision_config"),      CODE_FIELD("text_config"),
    CODE_FIELD("vision_config_dict"), CODE_FIELD("text_config_dict"),
    CODE_FIELD("projection_dim"),     CODE_FIELD("logit_scale_init_value"),
    CODE_FIELD("initializer_factor"), CODE_FIELD(NULL)};

/* The type that has the family's fields in vision_config, and the activation
 * where these have none. */
typedef struct kind {
    const char *family;
    const char *whole; /* NULL: none */
    const char *activation;
} kind_t;
static const kind_t kinds[] = {
    {"vit", NULL, "gelu"},
    {"clip_vision_model", "clip", "quick_gelu"},
    {"siglip_vision_model", "siglip", "gelu_tanh"},
    {"qwen2_vl_vision", NULL, "quick_gelu"},
    {"qwen2_5_vl_vision", NULL, "swiglu"},
    {"qwen3_vl_vision", NULL, "gelu_tanh"},
    {"internvl_vision", NULL, "gelu"},
    {"kimi_k25_vision", NULL, "gelu_tanh"},
    {"rice_vit", NULL, "gelu"},
    {"siglip2_vision_model", "siglip2", "gelu_tanh"},
    {"minicpmv4_6_vision", NULL, "gelu_tanh"},
    {"glm4v_vision", NULL, "swiglu"},
    {"ernie4_5_vl_vision", NULL, "quick_gelu"},
};

static const kind_t *kind_of(const loong_hf_type_t *type)
{
    const kind_t *k = kinds;
    while (strcmp(k->family, type->family) != 0) {
        k++;
    }
    return k;
}

static const loong_hf_fixed_t words[] = {{"gelu", "gelu"},
                                         {"gelu_pytorch_tanh", "gelu_tanh"},
                                         {"gelu_new", "gelu_tanh"},
                                         {"quick_gelu", "quick_gelu"},
                                         {"silu", "swiglu"}};

static const char full_field[] = "fullatt_block_indexes";
static const char full_key[] = "full_attention_layers";
static const char deep_key[] = "deepstack_layers";

/* ---- reading ------------------------------------------------------------- */

static loong_status_t map_activation(loong_hf_reader_t *r)
{
    const loong_json_t *value = loongi_hf_field(r->json, "hidden_act");
    if (value == NULL) {
        return loongi_pairs_set(r->pairs, "activation",
                                kind_of(r->type)->activation);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(words); i++) {
        if (strcmp(words[i].key, loongi_json_string(value)) == 0) {
            return loongi_pairs_set(r->pairs, "activation", words[i].value);
        }
    }
    loongi_hf_refuse(r, "hidden_act", value,
                     "gelu, gelu_pytorch_tanh, gelu_new and quick_gelu are");
    return LOONG_OK;
}

/* The feed-forward is so many times as wide as the rest. */
static loong_status_t map_ratio(loong_hf_reader_t *r)
{
    const loong_json_t *ratio = loongi_hf_field(r->json, "mlp_ratio");
    int64_t width = 0;
    if (!loongi_hf_has_field(r->type->fields, "mlp_ratio") ||
        !loongi_pairs_int(r->pairs, "hidden_size", &width)) {
        return LOONG_OK;
    }
    double times = ratio != NULL ? loongi_json_real(ratio) : 4;
    if (times * (double)width < 1) {
        loongi_hf_refuse(r, "mlp_ratio", ratio, "a number > 0 is needed");
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, "ffn_hidden_size",
                                (int64_t)(times * (double)width));
}

/* Those of the layers that are marked, by their numbers: [7,15]. */
static loong_status_t set_layers(loong_pairs_t *pairs, const char *key,
                                 const loong_layer_kinds_t *marked,
                                 int64_t layers)
{
    loong_text_t text = loongi_text_begin(pairs->ctx);
    loongi_text_printf(&text, "[");
    for (int64_t i = 0; i < layers; i++) {
        if (marked->of[i] != 0) {
            loongi_text_printf(&text, "%s%" PRId64, text.length > 1 ? "," : "",
                               i);
        }
    }
    loongi_text_printf(&text, "]");
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_pairs_set(pairs, key, text.data);
    }
    loongi_text_free(&text);
    return status;
}

static loong_status_t map_windows(loong_hf_reader_t *r)
{
    static const int64_t usual[] = {7, 15, 23, 31};
    const loong_json_t *list = loongi_hf_field(r->json, full_field);
    loong_layer_kinds_t full = {{0}};
    int64_t layers = 0;
    int64_t count =
        list != NULL ? loongi_json_count(list) : LOONG_COUNT_OF(usual);
    if (!loongi_hf_has_field(r->type->fields, full_field) ||
        !loongi_pairs_int(r->pairs, "num_layers", &layers) ||
        layers > LOONG_MAX_LAYERS) {
        return LOONG_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at =
            list != NULL ? loongi_json_int(loongi_json_at(list, i)) : usual[i];
        if (at >= 0 && at < layers) {
            full.of[at] = 1;
        }
    }
    return set_layers(r->pairs, full_key, &full, layers);
}

/* Positions stand in a square. */
static loong_status_t map_grid(loong_hf_reader_t *r)
{
    static const char *const names[][2] = {
        {"pos_emb_height", "pos_emb_width"},
        {"init_pos_emb_height", "init_pos_emb_width"}};
    int64_t side[2];
    int k = loongi_hf_has_field(r->type->fields, names[0][0])   ? 0
            : loongi_hf_has_field(r->type->fields, names[1][0]) ? 1
                                                                : -1;
    if (k < 0) {
        return LOONG_OK;
    }
    const char *height = names[k][0], *width = names[k][1];
    for (int i = 0; i < 2; i++) {
        const loong_json_t *value =
            loongi_hf_field(r->json, i == 0 ? height : width);
        side[i] = value != NULL ? loongi_json_int(value) : 64;
    }
    if (side[0] != side[1] || side[0] < 1 || side[0] > 1000) {
        loongi_hf_refuse(r, width, loongi_hf_field(r->json, width),
                         "that of the height, 1 to 1000, is");
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, "num_position_embeddings",
                                side[0] * side[1]);
}

/* Likewise, of a picture of so many pixels. */
static bool has_sides(const loong_hf_type_t *type)
{
    return strcmp(type->family, "minicpmv4_6_vision") == 0 ||
           strcmp(type->family, "glm4v_vision") == 0;
}

static loong_status_t map_sides(loong_hf_reader_t *r)
{
    static const char name[] = "image_size";
    const loong_json_t *value = loongi_hf_field(r->json, name);
    int64_t patch = 0;
    if (!has_sides(r->type) ||
        !loongi_pairs_int(r->pairs, "patch_size", &patch)) {
        return LOONG_OK;
    }
    bool glm = strcmp(r->type->family, "glm4v_vision") == 0;
    int64_t usual = glm ? 336 : 224;
    int64_t pixels = value != NULL ? loongi_json_int(value) : usual;
    int64_t side = patch > 0 ? pixels / patch : 0;
    if (side < 1 || side > 1000) {
        loongi_hf_refuse(r, name, value, "1 to 1000 times patch_size is");
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, "num_position_embeddings",
                                side * side);
}

/* What the classes' names end with. Those of masked images are ViT's alone. */
static const char classification[] = "ForImageClassification";
static const char masked_image[] = "ForMaskedImageModeling";

static bool has_masked_image(const loong_hf_type_t *type)
{
    return strcmp(type->model_type, "vit") == 0;
}

static void refuse_class(loong_hf_reader_t *r, const loong_json_t *list)
{
    const char *name = r->type->architecture;
    loong_text_t allowed = loongi_text_begin(r->ctx);
    loongi_text_printf(&allowed, "%s%s, ", name, classification);
    if (has_masked_image(r->type)) {
        loongi_text_printf(&allowed, "%s%s, ", name, masked_image);
    }
    loongi_text_printf(&allowed, "%sModel and %sVisionModel are", name, name);
    loongi_hf_refuse(r, "architectures", list, loongi_text_get(&allowed));
    loongi_text_free(&allowed);
}

/* A class for images has as many as it has names; two when they are left out.
 * Others, and sections, which are not of a class of their own, have none. */
static loong_status_t map_head(loong_hf_reader_t *r)
{
    const loong_json_t *list =
        r->section == NULL ? loongi_hf_field(r->json, "architectures") : NULL;
    const loong_json_t *names = loongi_hf_field(r->json, "id2label");
    const loong_json_t *first = list != NULL ? loongi_json_at(list, 0) : NULL;
    const char *name = first != NULL ? loongi_json_string(first) : "";
    size_t begin = strlen(r->type->architecture);
    const char *kind =
        strncmp(name, r->type->architecture, begin) == 0 ? name + begin : "";
    bool classes = strcmp(kind, classification) == 0;
    bool masked = has_masked_image(r->type) && strcmp(kind, masked_image) == 0;
    if (list != NULL && !classes && !masked && strcmp(kind, "Model") != 0 &&
        strcmp(kind, "VisionModel") != 0) {
        refuse_class(r, list);
    }
    if (classes && names != NULL &&
        (loongi_json_kind(names) != LOONG_JSON_OBJECT ||
         loongi_json_count(names) == 0)) {
        loongi_hf_refuse(r, "id2label", names,
                         "an object with a name of each class is needed");
    }
    LOONG_TRY(loongi_pairs_set(r->pairs, "masked_image_modeling",
                               masked ? "true" : "false"));
    return loongi_pairs_set_int(r->pairs, "num_classes",
                                !classes        ? 0
                                : names != NULL ? loongi_json_count(names)
                                                : 2);
}

/* Pixels of a side that the decoder makes of a row. */
static void check_stride(loong_hf_reader_t *r)
{
    const loong_json_t *field = loongi_hf_field(r->json, "encoder_stride");
    int64_t stride = field != NULL ? loongi_json_int(field) : 16;
    int64_t patch = 0;
    loongi_pairs_int(r->pairs, "patch_size", &patch);
    if (loongi_pairs_true(r->pairs, "masked_image_modeling") &&
        stride != patch) {
        loongi_problems_add(&r->problems,
                            "encoder_stride %" PRId64 ": patch_size %" PRId64
                            " is needed",
                            stride, patch);
    }
}

/* 0 is none to the engine, and factors of 0 to the class. */
static void check_scale(loong_hf_reader_t *r)
{
    static const char name[] = "layer_scale_init_value";
    const loong_json_t *value = loongi_hf_field(r->json, name);
    if (value != NULL && loongi_hf_has_field(r->type->fields, name) &&
        loongi_json_real(value) == 0.0) {
        loongi_hf_refuse(r, name, value, "a number > 0 is needed");
    }
}

static loong_status_t read_config(loong_hf_reader_t *r)
{
    const char *whole = kind_of(r->type)->whole;
    LOONG_TRY(loongi_pairs_set(r->pairs, "family", r->type->family));
    LOONG_TRY(map_head(r));
    if (whole != NULL && strcmp(r->type->model_type, whole) == 0) {
        const loong_json_t *own = loongi_hf_field(r->json, "vision_config");
        if (own == NULL || loongi_json_kind(own) != LOONG_JSON_OBJECT) {
            loongi_problems_add(&r->problems, "vision_config, an object with "
                                              "the image encoder, is missing");
            return LOONG_OK;
        }
        loongi_hf_check_others(r, whole_fields);
        r->json = own;
        r->problems.in = "vision_config";
    }
    LOONG_TRY(loongi_hf_map_table(r));
    LOONG_TRY(loongi_hf_set_fixed(r));
    LOONG_TRY(map_activation(r));
    LOONG_TRY(map_ratio(r));
    LOONG_TRY(map_windows(r));
    LOONG_TRY(map_grid(r));
    LOONG_TRY(map_sides(r));
    check_stride(r);
    check_scale(r);
    loongi_hf_check_others(r, r->type->fields);
    return LOONG_OK;
}

static bool tell(const loong_hf_reader_t *r, const char *key,
                 loong_text_t *text)
{
    return strcmp(key, "activation") == 0 &&
           loongi_hf_tell_fields(r, "hidden_act", text);
}

/* ---- writing ------------------------------------------------------------- */

static void emit_ratio(loong_hf_writer_t *w)
{
    char text[32];
    int64_t width = 1;
    int64_t inner = 0;
    loongi_pairs_int(w->model, "hidden_size", &width);
    loongi_pairs_int(w->model, "ffn_hidden_size", &inner);
    if (inner % width != 0) {
        loongi_problems_add(&w->problems,
                            "ffn_hidden_size %" PRId64 ": model type %s has a "
                            "multiple of hidden_size %" PRId64,
                            inner, w->type->model_type, width);
    }
    snprintf(text, sizeof(text), "%" PRId64, inner / width);
    loongi_hf_emit(w, "mlp_ratio", text);
}

/* Positions of a side, times so many. */
static void emit_side(loong_hf_writer_t *w, const char *name, int64_t times)
{
    char text[32];
    int64_t positions = 0;
    int64_t patch = 0;
    int64_t side = 0;
    loongi_pairs_int(w->model, "num_position_embeddings", &positions);
    loongi_pairs_int(w->model, "patch_size", &patch);
    while (side * side < positions) {
        side++;
    }
    snprintf(text, sizeof(text), "%" PRId64, side * times);
    loongi_hf_emit(w, name, text);
}

static void emit_fields(loong_hf_writer_t *w)
{
    const char *activation = loongi_pairs_get(w->model, "activation");
    char word[40] = "";
    for (const loong_hf_field_t *f = w->type->fields; f->name != NULL; f++) {
        loongi_hf_emit_field(w, f, f->key);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(words) && word[0] == '\0'; i++) {
        if (strcmp(words[i].value, activation) == 0) {
            snprintf(word, sizeof(word), "\"%s\"", words[i].key);
        }
    }
    loongi_hf_emit(w, "hidden_act", word);
    if (loongi_hf_writes(w, "mlp_ratio")) {
        emit_ratio(w);
    }
    if (loongi_hf_writes(w, full_field)) {
        loongi_hf_emit(w, full_field, loongi_pairs_get(w->model, full_key));
    }
    if (loongi_hf_writes(w, "pos_emb_height")) {
        emit_side(w, "pos_emb_height", 1);
        emit_side(w, "pos_emb_width", 1);
    }
    if (has_sides(w->type)) {
        int64_t patch = 1;
        loongi_pairs_int(w->model, "patch_size", &patch);
        emit_side(w, "image_size", patch);
    }
    if (loongi_hf_writes(w, "vision_use_head")) {
        loongi_hf_emit(w, "vision_use_head", "false");
    }
}

static void emit_type(loong_hf_writer_t *w, const char *type)
{
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\"", type);
    loongi_hf_emit(w, "model_type", quoted);
}

/* Classes have numbers for names. */
static void emit_classes(loong_hf_writer_t *w, int64_t classes)
{
    static const char *const fields[] = {"id2label", "label2id"};
    for (int i = 0; i < 2; i++) {
        loong_text_t whole = loongi_hf_begin_object(w);
        for (int64_t c = 0; c < classes; c++) {
            char name[32];
            char value[40];
            snprintf(name, sizeof(name), i == 0 ? "%" PRId64 : "LABEL_%" PRId64,
                     c);
            snprintf(value, sizeof(value),
                     i == 0 ? "\"LABEL_%" PRId64 "\"" : "%" PRId64, c);
            loongi_hf_emit(w, name, value);
        }
        loongi_hf_end_object(w, fields[i], whole);
    }
}

/* A section has the type that its model says. */
static void choose(loong_hf_writer_t *w)
{
    if (w->section_type != NULL) {
        w->type = w->section_type;
    }
}

static void write_config(loong_hf_writer_t *w, const char *torch_dtype)
{
    char name[80];
    int64_t classes = 0;
    const char *whole = kind_of(w->type)->whole;
    bool masked = loongi_pairs_true(w->model, "masked_image_modeling");
    loongi_pairs_int(w->model, "num_classes", &classes);
    for (const loong_hf_fixed_t *f = w->type->fixed; f->key != NULL; f++) {
        bool head = strcmp(f->key, "pooling") == 0 ||
                    strcmp(f->key, "add_classifier_bias") == 0;
        if (classes > 0 || !head) {
            loongi_hf_want_value(w, f->key, f->value);
        }
    }
    loongi_text_printf(&w->text, "{");
    snprintf(name, sizeof(name), "[\"%s%s\"]", w->type->architecture,
             classes > 0     ? classification
             : masked        ? masked_image
             : whole != NULL ? "VisionModel"
                             : "Model");
    loongi_hf_emit(w, "architectures", name);
    if (classes > 0 && whole != NULL) {
        emit_type(w, whole);
        loong_text_t outer = loongi_hf_begin_object(w);
        emit_type(w, w->type->model_type);
        emit_fields(w);
        loongi_hf_end_object(w, "vision_config", outer);
    } else {
        emit_type(w, w->type->model_type);
        emit_fields(w);
    }
    if (classes > 0) {
        emit_classes(w, classes);
    }
    if (masked) {
        loongi_hf_emit_int(w, "encoder_stride", "patch_size");
    }
    loongi_hf_emit(w, "torch_dtype", torch_dtype);
    loongi_text_printf(&w->text, "\n}\n");
}

/* ---- keys ---------------------------------------------------------------- */

static loong_status_t check(loong_context_t *ctx, const loong_pairs_t *keys)
{
    loong_vision_config_t config;
    return loongi_vision_configure(ctx, keys, &config);
}

static loong_status_t set_key(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

static loong_status_t fill(loong_context_t *ctx, loong_pairs_t *keys)
{
    loong_vision_config_t config;
    LOONG_TRY(loongi_vision_configure(ctx, keys, &config));
    LOONG_TRY(loongi_vision_state(&config, set_key, keys));
    if (config.window_size > 0) {
        LOONG_TRY(set_layers(keys, full_key, &config.full, config.num_layers));
    }
    return loongi_pairs_get(keys, deep_key) != NULL
               ? set_layers(keys, deep_key, &config.deep, config.num_layers)
               : LOONG_OK;
}

const loong_hf_kind_t loongi_hf_vision = {.role = "image_encoder",
                                          .types = loongi_hf_vision_types,
                                          .names = loongi_hf_vision_names,
                                          .check = check,
                                          .fill = fill,
                                          .state = fill,
                                          .size = loongi_hf_vision_size,
                                          .read = read_config,
                                          .write = write_config,
                                          .choose = choose,
                                          .tell = tell};
