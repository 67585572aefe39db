/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a directory of peft's. Called by loong-ckpt's commands and by what
 * starts a training (adapter_load.c). Read peft.h before. */
#include "peft.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "convert.h"
#include "file.h"

enum { NAME = 512, FULL = NAME + 64 };

#define EMBEDDING ".lora_embedding_"

bool loongi_peft_is(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_CONFIG, dir);
    return loongi_file_exists(path);
}

loong_status_t loongi_peft_create(loong_context_t *ctx, int64_t modules,
                                  int64_t saved, loong_peft_t **peft_p)
{
    loong_peft_t *p = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*p), "adapters", &p));
    p->ctx = ctx;
    p->path = "";
    loong_status_t status = loongi_arena_create(ctx, "adapters", &p->arena);
    if (status == LOONG_OK) {
        status = loongi_arena_alloc(
            p->arena, (size_t)modules * sizeof(*p->modules), &p->modules);
    }
    if (status == LOONG_OK) {
        status = loongi_arena_alloc(p->arena, (size_t)saved * sizeof(*p->saved),
                                    &p->saved);
    }
    if (status != LOONG_OK) {
        loongi_peft_destroy(&p);
        return status;
    }
    *peft_p = p;
    return LOONG_OK;
}

void loongi_peft_destroy(loong_peft_t **peft)
{
    if (*peft == NULL) {
        return;
    }
    loongi_safetensors_close(&(*peft)->file);
    loongi_json_destroy(&(*peft)->config);
    loongi_arena_destroy(&(*peft)->arena);
    loongi_free((*peft)->ctx, *peft);
    *peft = NULL;
}

const loong_peft_module_t *loongi_peft_find(const loong_peft_t *peft,
                                            const char *module)
{
    for (int64_t i = 0; i < peft->num_modules; i++) {
        if (strcmp(peft->modules[i].name, module) == 0) {
            return &peft->modules[i];
        }
    }
    return NULL;
}

loong_status_t loongi_peft_values(const loong_peft_t *peft,
                                  const loong_peft_tensor_t *tensor, double *to)
{
    return loongi_convert(peft->ctx, tensor->dtype, tensor->data, LOONG_F64, to,
                          loongi_shape_count(tensor->ndim, tensor->shape));
}

/* ---- adapter_config.json ------------------------------------------------- */

static bool is_true(const loong_json_t *config, const char *key)
{
    const loong_json_t *value = loongi_json_get(config, key);
    return value != NULL && loongi_json_bool(value);
}

static double number(const loong_json_t *config, const char *key,
                     double otherwise)
{
    const loong_json_t *value = loongi_json_get(config, key);
    return value != NULL ? loongi_json_real(value) : otherwise;
}

/* Keys are regular expressions of ends of paths, and the first that matches
 * holds, as peft has it. */
static loong_status_t pattern(const loong_peft_t *p, const char *list,
                              const char *module, double *value_p)
{
    const loong_json_t *json = loongi_json_get(p->config, list);
    const loong_json_member_t *m = NULL;
    for (m = json != NULL ? loongi_json_first(json) : NULL; m != NULL;
         m = loongi_json_next(json, m)) {
        char text[NAME];
        regex_t regex;
        const char *key = loongi_json_member_key(m);
        int length = snprintf(text, sizeof(text), "^(.*\\.)?(%s)$", key);
        LOONG_CHECK(p->ctx,
                    length < NAME && strstr(key, "(?") == NULL &&
                        regcomp(&regex, text, REG_EXTENDED | REG_NOSUB) == 0,
                    LOONG_ERR_UNSUPPORTED,
                    "%s/" LOONG_PEFT_CONFIG ": %s: '%s' is no regular "
                    "expression that can be understood here",
                    p->path, list, key);
        bool matches = regexec(&regex, module, 0, NULL, 0) == 0;
        regfree(&regex);
        if (matches) {
            *value_p = loongi_json_real(loongi_json_member_value(m));
            return LOONG_OK;
        }
    }
    return LOONG_OK;
}

static bool is_set(const loong_json_t *value)
{
    switch (loongi_json_kind(value)) {
    case LOONG_JSON_NULL:
        return false;
    case LOONG_JSON_BOOL:
        return loongi_json_bool(value);
    case LOONG_JSON_ARRAY:
    case LOONG_JSON_OBJECT:
        return loongi_json_count(value) > 0;
    default:
        return true;
    }
}

/* What would make the result another than base + scale * b a: some change the
 * base when they are loaded, some are other methods. Source: peft's
 * LoraLayer.update_layer, LoraConfig. */
static loong_status_t check_plain(const loong_peft_t *p, const char *path)
{
    static const char *const starts[] = {"gaussian", "eva", "orthogonal",
                                         "mica"};
    static const char *const others[] = {
        "layer_replication", "alora_invocation_tokens", "use_qalora",
        "use_bdlora",        "arrow_config",            "kasa_config",
        "monteclora_config", "trainable_token_indices", "lora_bias"};
    const char *key = "init_lora_weights";
    const loong_json_t *start = loongi_json_get(p->config, key);
    if (start != NULL && loongi_json_kind(start) == LOONG_JSON_STRING) {
        const char *name = loongi_json_string(start);
        bool keeps = false;
        for (int64_t i = 0; i < LOONG_COUNT_OF(starts); i++) {
            keeps = keeps || strcasecmp(name, starts[i]) == 0;
        }
        LOONG_CHECK(p->ctx, keeps, LOONG_ERR_UNSUPPORTED,
                    "%s: %s is '%s': peft changes the base when it loads such "
                    "an adapter; save_pretrained's "
                    "path_initial_model_for_weight_conversion makes a plain "
                    "one of it (true, false, gaussian, eva, orthogonal and "
                    "mica leave the base alone)",
                    path, key, name);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(others); i++) {
        const loong_json_t *value = loongi_json_get(p->config, others[i]);
        LOONG_CHECK(p->ctx, value == NULL || !is_set(value),
                    LOONG_ERR_UNSUPPORTED,
                    "%s has %s: plain LoRA (rsLoRA, DoRA) is what can be read",
                    path, others[i]);
    }
    return LOONG_OK;
}

static loong_status_t read_config(loong_peft_t *p)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_CONFIG, p->path);
    LOONG_TRY(loongi_json_load(p->ctx, path, &p->config));
    const loong_json_t *base =
        loongi_json_get(p->config, "base_model_name_or_path");
    const char *method =
        loongi_json_string(loongi_json_get(p->config, "peft_type"));
    LOONG_CHECK(p->ctx, strcmp(method, "LORA") == 0, LOONG_ERR_UNSUPPORTED,
                "%s: peft_type is '%s'; LORA is the method that can be read",
                path, method);
    LOONG_TRY(check_plain(p, path));
    p->base = base != NULL && loongi_json_kind(base) == LOONG_JSON_STRING
                  ? loongi_json_string(base)
                  : NULL;
    p->dropout = number(p->config, "lora_dropout", 0.0);
    p->fan_in_fan_out = is_true(p->config, "fan_in_fan_out");
    return LOONG_OK;
}

/* ---- adapter_model.safetensors ------------------------------------------- */

static loong_peft_tensor_t tensor_of(const loong_safetensor_t *t)
{
    loong_peft_tensor_t tensor = {t->dtype, t->dtype, t->ndim, {0}, t->data};
    for (int d = 0; d < t->ndim; d++) {
        tensor.shape[d] = t->shape[d];
    }
    return tensor;
}

/* What peft multiplies the product by, and its rank. */
static loong_status_t read_scale(const loong_peft_t *p, loong_peft_module_t *m)
{
    double rank = number(p->config, "r", 8.0);
    double alpha = number(p->config, "lora_alpha", 8.0);
    LOONG_TRY(pattern(p, "rank_pattern", m->name, &rank));
    LOONG_TRY(pattern(p, "alpha_pattern", m->name, &alpha));
    if (m->experts > 0 && rank >= 1.0) {
        m->experts = LOONG_MAX(m->a.shape[0] / (int64_t)rank, 1);
    }
    LOONG_CHECK(
        p->ctx,
        m->a.ndim == 2 && m->b.ndim == 2 && rank >= 1.0 &&
            m->a.shape[0] == m->b.shape[1] &&
            (double)m->a.shape[0] == rank * (double)LOONG_MAX(m->experts, 1),
        LOONG_ERR_MISMATCH,
        "%s: %s: matrices are [%lld, %lld] and [%lld, %lld], and the "
        "rank of " LOONG_PEFT_CONFIG " is %g",
        p->path, m->name, (long long)m->a.shape[0], (long long)m->a.shape[1],
        (long long)m->b.shape[0], (long long)m->b.shape[1], rank);
    m->scale = alpha / (is_true(p->config, "use_rslora") ? sqrt(rank) : rank);
    return LOONG_OK;
}

static bool ends(const char *name, const char *end)
{
    size_t length = strlen(name);
    return length > strlen(end) &&
           strcmp(name + length - strlen(end), end) == 0;
}

/* Which parameter of experts an adapter at `place` is of: the first where there
 * is another one around it, alone the one that the configuration names. NULL:
 * the place is a layer. */
static const char *parameter_at(const loong_peft_t *p, const char *place,
                                int *length_p)
{
    static const char *const parameters[] = {"gate_up_proj", "down_proj"};
    static const char inner[] = ".experts.base_layer";
    const loong_json_t *list = loongi_json_get(p->config, "target_parameters");
    char name[FULL];
    *length_p = (int)strlen(place);
    if (ends(place, inner)) {
        *length_p -= (int)strlen(".base_layer");
        return parameters[0];
    }
    snprintf(name, sizeof(name),
             LOONG_PEFT_PREFIX "%s.base_layer.lora_A.weight", place);
    if (!ends(place, ".experts")) {
        return NULL;
    }
    if (loongi_safetensors_find(p->file, name) != NULL) {
        return parameters[1];
    }
    for (int64_t i = 0; list != NULL && i < loongi_json_count(list); i++) {
        if (ends(loongi_json_string(loongi_json_at(list, i)), parameters[0])) {
            return parameters[0];
        }
    }
    return parameters[1];
}

/* Of DoRA: one number for each row of the matrix. */
static loong_status_t add_magnitude(const loong_peft_t *p, const char *place,
                                    loong_peft_module_t *m)
{
    char name[FULL];
    bool wanted = is_true(p->config, "use_dora");
    snprintf(name, sizeof(name),
             LOONG_PEFT_PREFIX "%s" LOONG_PEFT_MAGNITUDE, place);
    const loong_safetensor_t *t = loongi_safetensors_find(p->file, name);
    LOONG_CHECK(p->ctx,
                (t != NULL) == wanted &&
                    (t == NULL ||
                     (t->ndim == 1 && t->shape[0] == m->b.shape[0] &&
                      m->experts == 0 && !m->embedding)),
                LOONG_ERR_MISMATCH,
                "%s: use_dora is %s, and %s %s; with DoRA each matrix has a "
                "number for each of its rows",
                p->path, wanted ? "true" : "false",
                t != NULL ? "there is" : "there is no", name);
    if (t != NULL) {
        m->magnitude = tensor_of(t);
    }
    return LOONG_OK;
}

/* "MODULE.lora_A.weight" and its other half. */
static loong_status_t add_module(loong_peft_t *p, const char *name,
                                 const loong_safetensor_t *a)
{
    bool embedding = ends(name, EMBEDDING "A");
    const char *end = embedding ? EMBEDDING "A" : ".lora_A.weight";
    char other[FULL];
    char place[NAME];
    int length = 0;
    char *module = NULL;
    loong_peft_module_t *m = &p->modules[p->num_modules];
    snprintf(place, sizeof(place), "%.*s", (int)(strlen(name) - strlen(end)),
             name);
    const char *parameter = parameter_at(p, place, &length);
    LOONG_TRY(loongi_arena_printf(
        p->arena, &module, "%.*s%s%s", length, place,
        parameter != NULL ? "." : "", parameter != NULL ? parameter : ""));
    snprintf(other, sizeof(other), LOONG_PEFT_PREFIX "%s%s", place,
             embedding ? EMBEDDING "B" : ".lora_B.weight");
    const loong_safetensor_t *b = loongi_safetensors_find(p->file, other);
    LOONG_CHECK(p->ctx, b != NULL, LOONG_ERR_MISMATCH,
                "%s/" LOONG_PEFT_WEIGHTS ": there is no %s beside %s", p->path,
                other, a->name);
    m->name = module;
    m->experts = parameter != NULL;
    m->embedding = embedding;
    m->a = tensor_of(a);
    m->b = tensor_of(b);
    LOONG_TRY(add_magnitude(p, place, m));
    LOONG_TRY(read_scale(p, m));
    p->num_modules++;
    return LOONG_OK;
}

/* The bias of a module with an adapter stands one level further down, and so
 * does the table that an adapter of an embedding or a head is beside. */
static loong_status_t add_saved(loong_peft_t *p, const char *name,
                                const loong_safetensor_t *t)
{
    static const char level[] = ".base_layer.";
    const char *at = strstr(name, level);
    char *own = NULL;
    LOONG_TRY(at != NULL ? loongi_arena_printf(p->arena, &own, "%.*s.%s",
                                               (int)(at - name), name,
                                               at + strlen(level))
                         : loongi_arena_strdup(p->arena, name, &own));
    loong_peft_saved_t saved = {own, tensor_of(t),
                                at != NULL && ends(name, ".weight")};
    p->saved[p->num_saved++] = saved;
    return LOONG_OK;
}

static loong_status_t read_tensors(loong_peft_t *p)
{
    for (int64_t i = 0; i < loongi_safetensors_count(p->file); i++) {
        const loong_safetensor_t *t = loongi_safetensors_get(p->file, i);
        const size_t prefix = strlen(LOONG_PEFT_PREFIX);
        const char *name = t->name + prefix;
        bool known = strncmp(t->name, LOONG_PEFT_PREFIX, prefix) == 0 &&
                     t->ndim <= 2 && loongi_dtype_is_float(t->dtype);
        if (known &&
            (ends(name, ".lora_A.weight") || ends(name, EMBEDDING "A"))) {
            LOONG_TRY(add_module(p, name, t));
        } else if (known && strstr(name, ".lora_") == NULL) {
            LOONG_TRY(add_saved(p, name, t));
        } else {
            LOONG_CHECK(p->ctx,
                        known && (ends(name, ".lora_B.weight") ||
                                  ends(name, EMBEDDING "B") ||
                                  ends(name, LOONG_PEFT_MAGNITUDE)),
                        LOONG_ERR_UNSUPPORTED,
                        "%s/" LOONG_PEFT_WEIGHTS ": %s is not understood",
                        p->path, t->name);
        }
    }
    LOONG_CHECK(p->ctx, p->num_modules > 0, LOONG_ERR_FORMAT,
                "%s/" LOONG_PEFT_WEIGHTS " has no adapter", p->path);
    return LOONG_OK;
}

loong_status_t loongi_peft_read(loong_context_t *ctx, const char *dir,
                                loong_peft_t **peft_p)
{
    char path[4096];
    loong_safetensors_t *file = NULL;
    loong_peft_t *p = NULL;
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_WEIGHTS, dir);
    LOONG_TRY(loongi_safetensors_open(ctx, path, &file));
    int64_t most = loongi_safetensors_count(file);
    loong_status_t status = loongi_peft_create(ctx, most, most, &p);
    if (status != LOONG_OK) {
        loongi_safetensors_close(&file);
        return status;
    }
    char *own = NULL;
    p->file = file;
    status = loongi_arena_strdup(p->arena, dir, &own);
    p->path = own;
    if (status == LOONG_OK) {
        status = read_config(p);
    }
    if (status == LOONG_OK) {
        status = read_tensors(p);
    }
    if (status != LOONG_OK) {
        loongi_peft_destroy(&p);
        return status;
    }
    *peft_p = p;
    return LOONG_OK;
}
