/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a directory of peft's. Called by peft_export.c and loong-ckpt merge.
 * Read peft.h before. */
#include "peft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "file.h"

enum { NAME = 512 };

/* ---- adapter_config.json ------------------------------------------------- */

static double rank_of(const loong_peft_module_t *m)
{
    return (double)loongi_peft_rank(m);
}

static double alpha_of(const loong_peft_module_t *m)
{
    return m->scale * rank_of(m);
}

/* Where modules differ from the first. */
static void emit_pattern(const loong_peft_t *p, const char *key,
                         double (*value)(const loong_peft_module_t *),
                         loong_text_t *text)
{
    bool any = false;
    loongi_text_printf(text, "  \"%s\": {", key);
    for (int64_t i = 0; i < p->num_modules; i++) {
        const loong_peft_module_t *m = &p->modules[i];
        if (value(m) != value(&p->modules[0])) {
            loongi_text_printf(text, "%s\n    \"%s\": %.17g", any ? "," : "",
                               m->name, value(m));
            any = true;
        }
    }
    loongi_text_printf(text, "%s},\n", any ? "\n  " : "");
}

static void emit_targets(const loong_peft_t *p, const char *key, bool experts,
                         loong_text_t *text)
{
    bool any = false;
    loongi_text_printf(text, "  \"%s\": [", key);
    for (int64_t i = 0; i < p->num_modules; i++) {
        if ((p->modules[i].experts > 0) == experts) {
            loongi_text_printf(text, "%s\n    \"%s\"", any ? "," : "",
                               p->modules[i].name);
            any = true;
        }
    }
    loongi_text_printf(text, "%s],\n", any ? "\n  " : "");
}

static void emit_saved(const loong_peft_t *p, loong_text_t *text)
{
    bool any = false;
    bool bias = false;
    loongi_text_printf(text, "  \"modules_to_save\": ");
    for (int64_t i = 0; i < p->num_saved; i++) {
        const char *name = p->saved[i].name;
        const char *dot = strrchr(name, '.');
        const char *end = dot != NULL ? dot : name + strlen(name);
        if (strcmp(end, ".bias") == 0) {
            bias = true;
            continue;
        }
        loongi_text_printf(text, "%s\n    \"%.*s\"", any ? "," : "[",
                           (int)(end - name), name);
        any = true;
    }
    loongi_text_printf(text, "%s,\n  \"bias\": \"%s\"\n}\n",
                       any ? "\n  ]" : "null", bias ? "all" : "none");
}

static void emit_config(const loong_peft_t *p, loong_text_t *text)
{
    const loong_peft_module_t *first = &p->modules[0];
    loongi_text_printf(text, "{\n  \"peft_type\": \"LORA\",\n"
                             "  \"task_type\": \"CAUSAL_LM\",\n"
                             "  \"base_model_name_or_path\": ");
    if (p->base != NULL) {
        loongi_text_json_string(text, p->base);
    } else {
        loongi_text_printf(text, "null");
    }
    loongi_text_printf(
        text,
        ",\n  \"r\": %lld,\n  \"lora_alpha\": %.17g,\n"
        "  \"lora_dropout\": %.9g,\n  \"fan_in_fan_out\": %s,\n"
        "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
        "  \"use_rslora\": false,\n%s",
        (long long)loongi_peft_rank(first), alpha_of(first), p->dropout,
        p->fan_in_fan_out ? "true" : "false",
        first->magnitude.ndim > 0 ? "  \"use_dora\": true,\n" : "");
    emit_pattern(p, "rank_pattern", rank_of, text);
    emit_pattern(p, "alpha_pattern", alpha_of, text);
    emit_targets(p, "target_modules", false, text);
    emit_targets(p, "target_parameters", true, text);
    emit_saved(p, text);
}

static loong_status_t write_config(const loong_peft_t *p, const char *dir)
{
    char path[4096];
    loong_text_t text = loongi_text_begin(p->ctx);
    emit_config(p, &text);
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_CONFIG, dir);
    loong_status_t status =
        text.status != LOONG_OK
            ? text.status
            : loongi_file_write(p->ctx, path, text.data, text.length);
    loongi_text_free(&text);
    return status;
}

/* ---- adapter_model.safetensors ------------------------------------------- */

typedef struct item {
    const char *name;
    const loong_peft_tensor_t *tensor;
} item_t;

typedef struct writer {
    const loong_peft_t *peft;
    loong_arena_t *arena;
    int64_t count;
    item_t *items; /* in the order of their names, as peft writes them */
} writer_t;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item_t *)a)->name, ((const item_t *)b)->name);
}

static loong_status_t give_rows(void *user, int64_t index, int64_t row,
                                int64_t rows, void *buffer, const void **data_p)
{
    const writer_t *w = user;
    const loong_peft_tensor_t *t = w->items[index].tensor;
    int64_t cols = loongi_safetensors_row(t->ndim, t->shape);
    (void)data_p;
    return loongi_convert(w->peft->ctx, t->dtype,
                          (const char *)t->data +
                              (size_t)(row * cols) * loong_dtype_size(t->dtype),
                          t->stored, buffer, rows * cols);
}

static loong_status_t add(writer_t *w, const char *module, const char *end,
                          const loong_peft_tensor_t *tensor)
{
    char *name = NULL;
    LOONG_TRY(loongi_arena_printf(w->arena, &name, LOONG_PEFT_PREFIX "%s%s",
                                  module, end));
    w->items[w->count].name = name;
    w->items[w->count++].tensor = tensor;
    return LOONG_OK;
}

/* peft has the bias of a module with an adapter one level further down. */
static loong_status_t add_saved(writer_t *w, const loong_peft_saved_t *saved)
{
    char module[NAME];
    const char *end = strrchr(saved->name, '.');
    end = end != NULL ? end : saved->name;
    snprintf(module, sizeof(module), "%.*s", (int)(end - saved->name),
             saved->name);
    if (loongi_peft_find(w->peft, module) == NULL) {
        return add(w, saved->name, "", &saved->tensor);
    }
    strncat(module, ".base_layer", sizeof(module) - strlen(module) - 1);
    return add(w, module, end, &saved->tensor);
}

/* Matrices of a parameter stand below what has it; of two of one place those
 * of the first stand one level further down. */
static void place_of(const loong_peft_t *p, const loong_peft_module_t *m,
                     char place[NAME])
{
    static const char first[] = ".gate_up_proj";
    char second[NAME];
    const char *end = strrchr(m->name, '.');
    snprintf(place, NAME, "%s", m->name);
    if (m->experts > 0 && end != NULL) {
        place[end - m->name] = '\0';
        snprintf(second, sizeof(second), "%.*s.down_proj",
                 (int)(end - m->name), m->name);
        if (strcmp(end, first) == 0 && loongi_peft_find(p, second) != NULL) {
            snprintf(place, NAME, "%.*s.base_layer", (int)(end - m->name),
                     m->name);
        }
    }
}

static loong_status_t list(writer_t *w)
{
    const loong_peft_t *p = w->peft;
    char place[NAME];
    LOONG_TRY(loongi_arena_alloc(w->arena,
                                 (size_t)(3 * p->num_modules + p->num_saved) *
                                     sizeof(*w->items),
                                 &w->items));
    for (int64_t i = 0; i < p->num_modules; i++) {
        const loong_peft_module_t *m = &p->modules[i];
        place_of(p, m, place);
        LOONG_TRY(add(w, place,
                      m->embedding ? ".lora_embedding_A" : ".lora_A.weight",
                      &m->a));
        LOONG_TRY(add(w, place,
                      m->embedding ? ".lora_embedding_B" : ".lora_B.weight",
                      &m->b));
        if (m->magnitude.ndim > 0) {
            LOONG_TRY(add(w, place, LOONG_PEFT_MAGNITUDE, &m->magnitude));
        }
    }
    for (int64_t i = 0; i < p->num_saved; i++) {
        LOONG_TRY(add_saved(w, &p->saved[i]));
    }
    qsort(w->items, (size_t)w->count, sizeof(*w->items), by_name);
    return LOONG_OK;
}

static loong_status_t write_weights(writer_t *w, const char *dir)
{
    char path[4096];
    int64_t handle = 0;
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t source = {give_rows, w, &meter};
    loong_safetensors_writer_t *out = NULL;
    LOONG_TRY(list(w));
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_WEIGHTS, dir);
    LOONG_TRY(loongi_safetensors_create(w->peft->ctx, path, &out));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < w->count && status == LOONG_OK; i++) {
        const loong_peft_tensor_t *t = w->items[i].tensor;
        status = loongi_safetensors_declare(out, w->items[i].name, t->stored,
                                            t->ndim, t->shape, &handle);
    }
    if (status == LOONG_OK) {
        status = loongi_safetensors_fill(out, &source);
    }
    if (status == LOONG_OK) {
        status = loongi_safetensors_commit(out);
    }
    loongi_safetensors_destroy(&out);
    return status;
}

loong_status_t loongi_peft_check_place(loong_context_t *ctx, const char *dir)
{
    static const char *const model[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    for (int i = 0; i < LOONG_COUNT_OF(model); i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", dir, model[i]);
        LOONG_CHECK(ctx, !loongi_file_exists(path), LOONG_ERR_ARG,
                    "'%s' holds a model (%s): adapters want a directory of "
                    "their own",
                    dir, model[i]);
    }
    return LOONG_OK;
}

loong_status_t loongi_peft_write(const loong_peft_t *peft, const char *dir)
{
    writer_t w = {.peft = peft};
    LOONG_TRY(loongi_peft_check_place(peft->ctx, dir));
    LOONG_TRY(loongi_dir_make(peft->ctx, dir));
    LOONG_TRY(loongi_arena_create(peft->ctx, "peft export", &w.arena));
    loong_status_t status = write_weights(&w, dir);
    loongi_arena_destroy(&w.arena);
    return status == LOONG_OK ? write_config(peft, dir) : status;
}
