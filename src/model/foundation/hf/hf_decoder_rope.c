/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions of config.json, in the words of transformers 4 and 5. Called
 * by hf_decoder_read.c, hf_decoder_moe.c and hf_decoder_guess.c. Read
 * hf_config_read.h before. */
#include <stdio.h>
#include <string.h>

#include "hf_decoder.h"

#define SCALED " linear dynamic llama3 yarn "
const loong_hf_rope_key_t loongi_hf_rope_keys[] = {
    {"factor", SCALED, true},
    {"low_freq_factor", " llama3 ", true},
    {"high_freq_factor", " llama3 ", true},
    {"original_max_position_embeddings", " llama3 yarn ", true},
    {"beta_fast", " yarn ", false},
    {"beta_slow", " yarn ", false},
    {"attention_factor", " yarn ", false},
    {"mscale", " yarn ", false},
    {"mscale_all_dim", " yarn ", false},
    {"truncate", " yarn ", false},
    {NULL, NULL, false}};

bool loongi_hf_rope_is_scaling(const char *type)
{
    char spaced[32];
    snprintf(spaced, sizeof(spaced), " %.28s ", type);
    return strstr(SCALED, spaced) != NULL;
}

static void check_rope_keys(loong_hf_reader_t *r, const loong_json_t *rope,
                            const char *name, const char *type)
{
    char spaced[32], full[96];
    snprintf(spaced, sizeof(spaced), " %.28s ", type);
    for (const loong_json_member_t *m = loongi_json_first(rope); m != NULL;
         m = loongi_json_next(rope, m)) {
        const char *key = loongi_json_member_key(m);
        const loong_json_t *value = loongi_json_member_value(m);
        const loong_hf_rope_key_t *k = loongi_hf_rope_keys;
        snprintf(full, sizeof(full), "%s.%.60s", name, key);
        while (k->name != NULL && (strcmp(k->name, key) != 0 ||
                                   strstr(k->types, spaced) == NULL)) {
            k++;
        }
        if (k->name != NULL || strcmp(key, "type") == 0 ||
            strcmp(key, "rope_type") == 0 || strcmp(key, "rope_theta") == 0) {
            continue;
        }
        if (strcmp(key, "mrope_section") == 0 &&
            loongi_hf_has_field(r->type->fields, key)) {
            continue;
        }
        if (strcmp(key, "mrope_interleaved") == 0 &&
            loongi_hf_has_field(r->type->fields, key)) {
            loongi_hf_check_neutral(r, full, value, "true");
            continue;
        }
        if (strcmp(key, "partial_rotary_factor") == 0) {
            if (!loongi_hf_has_field(r->type->fields, key)) {
                loongi_hf_check_neutral(r, full, value, "1|1.0");
            }
        } else if (!loongi_hf_is_empty(value)) {
            loongi_hf_refuse(r, full, value, "not known for this rope type");
        }
    }
}

static loong_status_t map_rope_keys(loong_hf_reader_t *r,
                                    const loong_json_t *rope, const char *name,
                                    const char *type)
{
    char spaced[32], full[96], target[96];
    snprintf(spaced, sizeof(spaced), " %.28s ", type);
    for (const loong_hf_rope_key_t *k = loongi_hf_rope_keys; k->name != NULL;
         k++) {
        const loong_json_t *value = loongi_hf_field(rope, k->name);
        if (strstr(k->types, spaced) == NULL) {
            continue;
        }
        snprintf(full, sizeof(full), "%s.%s", name, k->name);
        snprintf(target, sizeof(target), "rope_scaling.%s", k->name);
        bool original =
            strcmp(k->name, "original_max_position_embeddings") == 0;
        const char *limit =
            loongi_pairs_get(r->pairs, "max_position_embeddings");
        if (value == NULL && original && limit != NULL) {
            LOONG_TRY(loongi_pairs_set(r->pairs, target, limit));
        } else if (value == NULL && k->required) {
            loongi_problems_add(&r->problems, "%s is missing", full);
        } else if (value != NULL && loongi_json_real(value) == 0.0 &&
                   strcmp(k->name, "attention_factor") == 0) {
            /* of the engine: not given */
            loongi_hf_refuse(r, full, value, "a number > 0 is needed");
        } else if (value != NULL && original) {
            LOONG_TRY(loongi_hf_map_int(r, value, full, target));
        } else if (value != NULL &&
                   loongi_json_kind(value) == LOONG_JSON_BOOL &&
                   strcmp(k->name, "truncate") == 0) {
            LOONG_TRY(loongi_pairs_set_bool(r->pairs, target,
                                            loongi_json_bool(value)));
        } else if (value != NULL) {
            LOONG_TRY(loongi_hf_map_real(r, value, full, target));
        }
    }
    return LOONG_OK;
}

static const char *rope_type_of(const loong_json_t *rope)
{
    const loong_json_t *type = loongi_hf_field(rope, "rope_type");
    type = type != NULL ? type : loongi_hf_field(rope, "type");
    return type != NULL ? loongi_json_string(type) : "default";
}

/* What the type has for a field of code that is absent. */
static const char *fallback_of(const loong_hf_reader_t *r, const char *name,
                               const char *otherwise)
{
    const loong_hf_field_t *f = r->type->fields;
    while (f->name != NULL && strcmp(f->name, name) != 0) {
        f++;
    }
    return f->fallback != NULL ? f->fallback : otherwise;
}

/* The share of a head that is rotated, of types that leave a part alone. */
static loong_status_t map_share(loong_hf_reader_t *r, const loong_json_t *rope)
{
    static const char name[] = "partial_rotary_factor";
    const loong_json_t *value =
        rope != NULL ? loongi_hf_field(rope, name) : NULL;
    const loong_json_t *dim = loongi_hf_field(r->json, "rotary_dim");
    int64_t width = 0;
    if (!loongi_hf_has_field(r->type->fields, name)) {
        return LOONG_OK;
    }
    value = value != NULL ? value : loongi_hf_field(r->json, name);
    if (value != NULL) {
        return loongi_hf_map_real(r, value, name, "rotary_percent");
    }
    if (dim == NULL || !loongi_pairs_int(r->pairs, "kv_channels", &width)) {
        return loongi_pairs_set(r->pairs, "rotary_percent",
                                fallback_of(r, name, "1"));
    }
    if (loongi_json_kind(dim) != LOONG_JSON_INT || loongi_json_int(dim) <= 0 ||
        loongi_json_int(dim) > width) {
        loongi_hf_refuse(r, "rotary_dim", dim, "1 to head_dim is needed");
        return LOONG_OK;
    }
    return loongi_pairs_set_real(r->pairs, "rotary_percent",
                                 (double)loongi_json_int(dim) / (double)width);
}

/* Channels for time; height and width share the others. */
static loong_status_t map_allocation(loong_hf_reader_t *r)
{
    static const char name[] = "freq_allocation";
    const loong_json_t *value = loongi_hf_field(r->json, name);
    int64_t width = 0;
    int64_t time = value == NULL                                    ? 20
                   : loongi_json_kind(value) == LOONG_JSON_INT
                       ? loongi_json_int(value)
                       : -1;
    char text[96];
    if (!loongi_pairs_int(r->pairs, "kv_channels", &width)) {
        return LOONG_OK; /* already reported */
    }
    int64_t rest = width / 2 - time;
    if (time < 0 || rest < 0 || rest % 2 != 0) {
        loongi_problems_add(&r->problems,
                            "%s = %lld is not supported (of %lld channels an "
                            "even number must be left for height and width)",
                            name, (long long)time, (long long)(width / 2));
        return LOONG_OK;
    }
    snprintf(text, sizeof(text), "[%lld,%lld,%lld]", (long long)(rest / 2),
             (long long)(rest / 2), (long long)time);
    return loongi_pairs_set(r->pairs, "mrope_section", text);
}

/* Which channels turn by height, width and time: of texts all by the same. */
static loong_status_t map_sections(loong_hf_reader_t *r,
                                   const loong_json_t *rope)
{
    static const char name[] = "mrope_section";
    const loong_json_t *value =
        rope != NULL ? loongi_hf_field(rope, name) : NULL;
    if (value == NULL &&
        loongi_hf_has_field(r->type->fields, "freq_allocation")) {
        return map_allocation(r);
    }
    const char *usual = fallback_of(r, name, NULL);
    if (value == NULL && usual != NULL) {
        return loongi_pairs_set(r->pairs, name, usual);
    }
    if (value == NULL || !loongi_hf_has_field(r->type->fields, name)) {
        return LOONG_OK;
    }
    loong_text_t text = loongi_text_begin(r->ctx);
    loongi_text_json(&text, value);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_pairs_set(r->pairs, name, text.data);
    }
    loongi_text_free(&text);
    return status;
}

loong_status_t loongi_hf_map_rope(loong_hf_reader_t *r)
{
    const loong_json_t *theta = loongi_hf_field(r->json, "rope_theta");
    const loong_json_t *scaling = loongi_hf_field(r->json, "rope_scaling");
    const loong_json_t *parameters =
        loongi_hf_field(r->json, "rope_parameters");
    const loong_json_t *rope = parameters != NULL ? parameters : scaling;
    const char *name = parameters != NULL ? "rope_parameters" : "rope_scaling";
    const char *type = "default";
    if (scaling != NULL && parameters != NULL) {
        loongi_problems_add(&r->problems, "rope_scaling and rope_parameters "
                                          "are both there: keep one");
    }
    if (rope != NULL && loongi_json_kind(rope) != LOONG_JSON_OBJECT) {
        loongi_hf_refuse(r, name, rope, "an object is needed");
        rope = NULL;
    }
    if (rope != NULL) {
        const loong_json_t *inner = loongi_hf_field(rope, "rope_theta");
        theta = inner != NULL ? inner : theta;
        type = rope_type_of(rope);
        if (strcmp(type, "mrope") == 0 &&
            loongi_hf_has_field(r->type->fields, "mrope_section")) {
            type = "default"; /* an older word for that field */
        }
        check_rope_keys(r, rope, name, type);
    }
    if (theta != NULL) {
        LOONG_TRY(loongi_hf_map_real(r, theta, "rope_theta", "rotary_base"));
    } else {
        LOONG_TRY(
            loongi_pairs_set_real(r->pairs, "rotary_base", r->type->theta));
    }
    LOONG_TRY(map_share(r, rope));
    LOONG_TRY(map_sections(r, rope));
    if (strcmp(type, "default") == 0) {
        return LOONG_OK;
    }
    if (loongi_hf_has_field(r->type->fields, "mrope_section")) {
        loongi_hf_refuse(r, name, rope, "rope_type default is");
        return LOONG_OK;
    }
    if (loongi_hf_is_type(r, "phi3")) { /* yarn and su are its LongRoPE */
        loongi_problems_add(&r->problems,
                            "%s.rope_type = '%s' is not supported (default "
                            "is; LongRoPE is not computed)", name, type);
        return LOONG_OK;
    }
    if (!loongi_hf_rope_is_scaling(type)) {
        loongi_problems_add(&r->problems,
                            "%s.rope_type = '%s' is not supported (default, "
                            "linear, dynamic, llama3 and yarn are)",
                            name, type);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_set(r->pairs, "rope_scaling.type", type));
    return map_rope_keys(r, rope, name, type);
}
