/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of models that users bring as data. Called by extensions, and as a
 * loong_hf_kind_t by readers and writers of Hugging Face files. Read
 * loong/hub.h and hf_kind.h before. */
#include "loong/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_kind.h"
#include "registry.h"
#include "slots.h"

/* One type, one family. */
typedef struct hub_kind {
    loong_hf_kind_t kind; /* first: a kind of these callbacks is one of it */
    loong_hf_type_t types[2];
    loong_hf_names_t names[2];
    const loong_hub_type_t *hub;
    const char *sizes[HF_SIZE_COUNT]; /* as the user says them; HF_NONE: 1 */
} hub_kind_t;

static const hub_kind_t *kind_of(loong_context_t *ctx,
                                 const loong_pairs_t *keys)
{
    return (const hub_kind_t *)loongi_hf_kind_find(
        ctx, loongi_pairs_get(keys, "family"));
}

/* ---- keys ---------------------------------------------------------------- */

/* The family looks at them when it is configured. */
static loong_status_t check(loong_context_t *ctx, const loong_pairs_t *keys)
{
    (void)ctx, (void)keys;
    return LOONG_OK;
}

static loong_status_t fill(loong_context_t *ctx, loong_pairs_t *keys)
{
    const loong_hf_field_t *f = kind_of(ctx, keys)->types[0].fields;
    for (; f->name != NULL; f++) {
        if (f->fallback != NULL && loongi_pairs_get(keys, f->key) == NULL) {
            LOONG_TRY(loongi_pairs_set(keys, f->key, f->fallback));
        }
    }
    return LOONG_OK;
}

/* A key, or a number by itself. */
static loong_status_t find_size(const loong_hf_map_t *map,
                                const loong_pairs_t *keys, const char *size,
                                int64_t *value_p)
{
    char *end = NULL;
    *value_p = strtoll(size, &end, 10);
    LOONG_CHECK(map->ctx,
                (*end == '\0' || loongi_pairs_int(keys, size, value_p)) &&
                    *value_p > 0,
                LOONG_ERR_CONFIG,
                "%s of model type %s: a positive integer is wanted", size,
                map->family->name);
    return LOONG_OK;
}

static loong_status_t size_map(loong_hf_map_t *map, const loong_pairs_t *keys)
{
    const hub_kind_t *k = kind_of(map->ctx, keys);
    map->groups = 1;
    map->conditions[HF_ALWAYS] = true;
    map->sizes[HF_NONE] = 1;
    for (int i = HF_NONE + 1; i < HF_SIZE_COUNT && k->sizes[i] != NULL; i++) {
        LOONG_TRY(find_size(map, keys, k->sizes[i], &map->sizes[i]));
    }
    return k->hub->layers != NULL
               ? find_size(map, keys, k->hub->layers, &map->layers)
               : LOONG_OK;
}

/* ---- config.json --------------------------------------------------------- */

static loong_status_t read_config(loong_hf_reader_t *r)
{
    LOONG_TRY(loongi_pairs_set(r->pairs, "family", r->type->family));
    LOONG_TRY(loongi_hf_map_table(r));
    loongi_hf_check_others(r, r->type->fields);
    return LOONG_OK;
}

static void check_given(loong_hf_writer_t *w)
{
    for (int64_t i = 0; i < w->given->count; i++) {
        const char *key = w->given->items[i].key;
        const loong_hf_field_t *f = w->type->fields;
        while (f->name != NULL && strcmp(f->key, key) != 0) {
            f++;
        }
        if (f->name == NULL && strcmp(key, "family") != 0) {
            loongi_problems_add(&w->problems,
                                "%s: model type %s has nothing like it", key,
                                w->type->model_type);
        }
    }
}

static void write_config(loong_hf_writer_t *w, const char *torch_dtype)
{
    char quoted[128];
    loongi_text_printf(&w->text, "{");
    snprintf(quoted, sizeof(quoted), "[\"%s\"]", w->type->architecture);
    loongi_hf_emit(w, "architectures", quoted);
    snprintf(quoted, sizeof(quoted), "\"%s\"", w->type->model_type);
    loongi_hf_emit(w, "model_type", quoted);
    for (const loong_hf_field_t *f = w->type->fields; f->name != NULL; f++) {
        if (loongi_pairs_get(w->model, f->key) == NULL) {
            loongi_problems_add(&w->problems, "%s is not known", f->key);
        } else if (f->kind == LOONG_HF_INT) {
            loongi_hf_emit_int(w, f->name, f->key);
        } else if (f->kind == LOONG_HF_REAL) {
            loongi_hf_emit_real(w, f->name, f->key);
        } else {
            loongi_hf_emit_bool(w, f->name,
                                loongi_pairs_true(w->model, f->key));
        }
    }
    check_given(w);
    loongi_hf_emit(w, "torch_dtype", torch_dtype);
    loongi_text_printf(&w->text, "\n}\n");
}

/* ---- registration -------------------------------------------------------- */

static void destroy_arena(loong_context_t *ctx, void *data)
{
    loong_arena_t *arena = data;
    (void)ctx;
    loongi_arena_destroy(&arena);
}

static loong_status_t get_arena(loong_context_t *ctx, loong_arena_t **arena_p)
{
    loong_slot_t *slot = loongi_context_slot(ctx, "model types");
    if (slot->data == NULL) {
        loong_arena_t *arena = NULL;
        LOONG_TRY(loongi_arena_create(ctx, "model types", &arena));
        slot->data = arena;
        slot->destroy = destroy_arena;
    }
    *arena_p = slot->data;
    return LOONG_OK;
}

static loong_status_t check_type(loong_context_t *ctx,
                                 const loong_hub_type_t *t)
{
    LOONG_CHECK(ctx, t != NULL && t->struct_size == sizeof(*t), LOONG_ERR_ARG,
                "a loong_hub_type_t has %zu bytes, %zu wanted: it was made for "
                "another version",
                t != NULL ? t->struct_size : (size_t)0, sizeof(*t));
    LOONG_CHECK(ctx,
                t->model_type != NULL && t->architecture != NULL &&
                    t->num_tensors > 0,
                LOONG_ERR_ARG,
                "a model type needs a name, an architecture and tensors");
    LOONG_CHECK(ctx, loongi_hf_type_find(ctx, t->model_type) == NULL,
                LOONG_ERR_ARG, "model type %s is registered already",
                t->model_type);
    for (int64_t i = 0; i < t->num_fields; i++) {
        const loong_hub_field_t *f = &t->fields[i];
        LOONG_CHECK(ctx,
                    f->name != NULL && f->key != NULL &&
                        f->type <= LOONG_RECIPE_BOOL &&
                        (f->type != LOONG_RECIPE_BOOL || f->fallback != NULL),
                    LOONG_ERR_ARG,
                    "model type %s: field %lld needs a name, a key and type "
                    "INT, REAL or BOOL, the last with a fallback",
                    t->model_type, (long long)i);
    }
    return LOONG_OK;
}

static loong_status_t make_fields(const loong_hub_type_t *t,
                                  loong_arena_t *arena,
                                  const loong_hf_field_t **fields_p)
{
    static const loong_hf_field_kind_t kinds[] = {
        [LOONG_RECIPE_INT] = LOONG_HF_INT,
        [LOONG_RECIPE_REAL] = LOONG_HF_REAL,
        [LOONG_RECIPE_BOOL] = LOONG_HF_BOOL};
    loong_hf_field_t *fields = NULL;
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)(t->num_fields + 1) * sizeof(*fields), &fields));
    for (int64_t i = 0; i < t->num_fields; i++) {
        const loong_hub_field_t *f = &t->fields[i];
        fields[i] = (loong_hf_field_t){f->name, kinds[f->type], f->key,
                                       f->fallback};
    }
    fields[t->num_fields] = (loong_hf_field_t){NULL, LOONG_HF_CODE, NULL, NULL};
    *fields_p = fields;
    return LOONG_OK;
}

/* The place of a size among those of names. */
static loong_status_t place_size(loong_context_t *ctx, hub_kind_t *k,
                                 const char *size, loong_hf_size_t *place_p)
{
    int i = HF_NONE + 1;
    if (size == NULL) {
        *place_p = HF_NONE;
        return LOONG_OK;
    }
    while (i < HF_SIZE_COUNT && k->sizes[i] != NULL &&
           strcmp(k->sizes[i], size) != 0) {
        i++;
    }
    LOONG_CHECK(ctx, i < HF_SIZE_COUNT, LOONG_ERR_ARG,
                "model type %s: more than %d different sizes",
                k->hub->model_type, HF_SIZE_COUNT - 1);
    k->sizes[i] = size;
    *place_p = (loong_hf_size_t)i;
    return LOONG_OK;
}

static loong_status_t make_rows(loong_context_t *ctx, hub_kind_t *k,
                                loong_arena_t *arena,
                                const loong_hf_row_t **rows_p)
{
    const loong_hub_type_t *t = k->hub;
    loong_hf_row_t *rows = NULL;
    LOONG_TRY(loongi_arena_alloc(
        arena, (size_t)(t->num_tensors + 1) * sizeof(*rows), &rows));
    memset(rows, 0, (size_t)(t->num_tensors + 1) * sizeof(*rows));
    for (int64_t i = 0; i < t->num_tensors; i++) {
        const loong_hub_tensor_t *tensor = &t->tensors[i];
        rows[i].name = tensor->name;
        rows[i].hf_name = tensor->hf_name;
        rows[i].parts = 1;
        LOONG_CHECK(ctx, tensor->name != NULL && tensor->rows != NULL,
                    LOONG_ERR_ARG,
                    "model type %s: tensor %lld needs a name and rows",
                    t->model_type, (long long)i);
        LOONG_TRY(place_size(ctx, k, tensor->rows, &rows[i].rows));
        LOONG_TRY(place_size(ctx, k, tensor->columns, &rows[i].columns));
    }
    *rows_p = rows;
    return LOONG_OK;
}

loong_status_t loong_register_hub_type(loong_context_t *ctx,
                                       const loong_hub_type_t *type)
{
    static const loong_hf_fixed_t none = {NULL, NULL};
    loong_arena_t *arena = NULL;
    hub_kind_t *k = NULL;
    LOONG_TRY(check_type(ctx, type));
    LOONG_TRY(get_arena(ctx, &arena));
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*k), &k));
    memset(k, 0, sizeof(*k));
    k->hub = type;
    k->types[0] = (loong_hf_type_t){.model_type = type->model_type,
                                    .architecture = type->architecture,
                                    .family = type->model_type,
                                    .fixed = &none};
    k->names[0].name = type->model_type;
    k->names[0].prefix = type->prefix != NULL ? type->prefix : "";
    LOONG_TRY(make_fields(type, arena, &k->types[0].fields));
    LOONG_TRY(make_rows(ctx, k, arena, &k->names[0].rows));
    k->kind = (loong_hf_kind_t){
        .role = type->role != NULL ? type->role : "foundation",
        .types = k->types, .names = k->names, .check = check, .fill = fill,
        .state = fill, .size = size_map, .read = read_config,
        .write = write_config};
    return loongi_registry_add(ctx, LOONG_REGISTRY_MODEL_TYPES, &k->kind);
}
