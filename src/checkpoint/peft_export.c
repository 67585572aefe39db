/* SPDX-License-Identifier: Apache-2.0
 *
 * From the adapters of a native checkpoint to a peft directory. Called by
 * exchange.c. Read native_source.h and hf_adapters.h before.
 *
 * A tensor of the files has one adapter, also where parts of it have some of
 * their own here (q, k and v as one matrix): their matrices a stand one below
 * the other, and each b has its rows and the columns of its a. */
#include "peft_export.h"

#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "file.h"
#include "hf_adapters.h"
#include "json.h"
#include "safetensors.h"

typedef struct made {
    const loong_hf_param_t *base; /* the first of its parts */
    char module[LOONG_HF_MODULE]; /* of the files */
    int64_t rank, in, out;
    double scale;
    double *a, *b;
} made_t;

/* A parameter that was trained itself, as the files have it. */
typedef struct whole {
    char name[LOONG_HF_MODULE];
    const loong_hf_param_t *param;
    double *values;
} whole_t;

typedef struct exporter {
    loong_context_t *ctx;
    const loong_native_source_t *source;
    const loong_hf_map_t *map;
    loong_arena_t *arena;
    int64_t num_made, num_whole;
    made_t *made;
    whole_t *whole;
} exporter_t;

/* ---- adapters ------------------------------------------------------------ */

static bool part_adapter(const exporter_t *e, const loong_hf_param_t *p,
                         loong_native_adapter_t *adapter)
{
    char module[LOONG_HF_MODULE];
    snprintf(module, sizeof(module), "%.*s",
             (int)(strlen(p->name) - strlen(".weight")), p->name);
    return loongi_native_adapter(e->source, module, adapter);
}

static loong_status_t read(const exporter_t *e,
                           const loong_checkpoint_tensor_t *t, double **to)
{
    int64_t begin[2] = {0, 0};
    LOONG_TRY(loongi_arena_alloc(
        e->arena, (size_t)loongi_shape_count(t->ndim, t->shape) * sizeof(**to),
        to));
    return loongi_checkpoint_read(e->source->checkpoint, t, begin, t->shape,
                                  LOONG_F64, *to);
}

/* Columns of the whole's rank that begin with those of a part; parts with one
 * matrix a share them. */
static int64_t column_of(const exporter_t *e, const made_t *m, int part,
                         int64_t *rank_p)
{
    const loong_checkpoint_tensor_t *seen[8] = {NULL};
    int64_t rank = 0;
    int64_t found = -1;
    for (int i = 0; i < m->base->parts && i < LOONG_COUNT_OF(seen); i++) {
        loong_native_adapter_t own;
        int64_t at = -1;
        if (!part_adapter(e, m->base + i, &own)) {
            continue;
        }
        for (int k = 0, column = 0; k < i; k++) {
            at = seen[k] == own.a ? column : at;
            column += seen[k] != NULL && at < 0 ? (int)seen[k]->shape[0] : 0;
        }
        if (at < 0) {
            at = rank;
            seen[i] = own.a;
            rank += own.a->shape[0];
        }
        found = i == part ? at : found;
    }
    *rank_p = rank;
    return found;
}

static loong_status_t fill_part(const exporter_t *e, made_t *m, int part)
{
    const loong_hf_param_t *p = m->base + part;
    loong_native_adapter_t own;
    double *a = NULL;
    double *b = NULL;
    int64_t rank = 0;
    if (!part_adapter(e, p, &own)) {
        return LOONG_OK;
    }
    int64_t column = column_of(e, m, part, &rank);
    int64_t width = own.a->shape[0];
    double factor = own.scale / m->scale;
    LOONG_TRY(read(e, own.a, &a));
    LOONG_TRY(read(e, own.b, &b));
    memcpy(m->a + column * m->in, a, (size_t)(width * m->in) * sizeof(*a));
    for (int64_t r = 0; r < own.b->shape[0]; r++) {
        double *to = m->b + loongi_hf_file_row(p, r) * m->rank + column;
        for (int64_t k = 0; k < width; k++) {
            to[k] =
                factor == 1.0 ? b[r * width + k] : b[r * width + k] * factor;
        }
    }
    return LOONG_OK;
}

static loong_status_t make(exporter_t *e, const loong_hf_param_t *first)
{
    made_t m = {.base = first, .in = first->shape[1]};
    for (int i = 0; i < first->parts; i++) {
        loong_native_adapter_t own;
        if (part_adapter(e, first + i, &own) && m.scale == 0.0) {
            m.scale = own.scale;
        }
    }
    if (m.scale == 0.0) {
        return LOONG_OK;
    }
    (void)column_of(e, &m, 0, &m.rank);
    loongi_lora_hf_module(e->map, first, m.module);
    m.out = loongi_hf_file_rows(first);
    LOONG_TRY(loongi_arena_alloc(
        e->arena, (size_t)(m.rank * (m.in + m.out)) * sizeof(*m.a), &m.a));
    memset(m.a, 0, (size_t)(m.rank * (m.in + m.out)) * sizeof(*m.a));
    m.b = m.a + m.rank * m.in;
    for (int i = 0; i < first->parts; i++) {
        LOONG_TRY(fill_part(e, &m, i));
    }
    e->made[e->num_made++] = m;
    return LOONG_OK;
}

/* ---- trained parameters -------------------------------------------------- */

/* It has states of an optimizer. */
static bool was_trained(const exporter_t *e, const char *name)
{
    static const char *const states[] = {"exp_avg", "momentum_buffer"};
    char full[512];
    bool found = false;
    snprintf(full, sizeof(full), "%s.%s", e->source->component, name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(states); i++) {
        found = found || loongi_checkpoint_find(e->source->checkpoint,
                                                states[i], full) != NULL;
    }
    return found;
}

static loong_status_t keep_whole(exporter_t *e, const loong_hf_param_t *p)
{
    whole_t w = {.param = p};
    const loong_checkpoint_tensor_t *t = loongi_native_find(e->source, p->name);
    if (t == NULL || !was_trained(e, p->name)) {
        return LOONG_OK;
    }
    LOONG_CHECK(e->ctx, p->parts == 1 && p->pieces == 1 && !p->transposed,
                LOONG_ERR_UNSUPPORTED,
                "%s was trained beside adapters; its files have it with "
                "others as one tensor: an export that is merged can have it "
                "(export.merge, loong-ckpt export --merge)",
                p->name);
    snprintf(w.name, sizeof(w.name), "%s%s",
             p->prefixed ? loongi_hf_map_prefix(e->map) : "", p->hf_name);
    LOONG_TRY(read(e, t, &w.values));
    e->whole[e->num_whole++] = w;
    return LOONG_OK;
}

/* ---- adapter_config.json ------------------------------------------------- */

static double alpha_of(const made_t *m)
{
    return m->scale * (double)m->rank;
}

static void emit_patterns(const exporter_t *e, const char *key, bool ranks,
                          loong_text_t *text)
{
    bool any = false;
    loongi_text_printf(text, "  \"%s\": {", key);
    for (int64_t i = 0; i < e->num_made; i++) {
        const made_t *m = &e->made[i];
        double own = ranks ? (double)m->rank : alpha_of(m);
        double usual = ranks ? (double)e->made[0].rank : alpha_of(&e->made[0]);
        if (own != usual) {
            loongi_text_printf(text, "%s\n    \"%s\": %.17g", any ? "," : "",
                               m->module, own);
            any = true;
        }
    }
    loongi_text_printf(text, "%s},\n", any ? "\n  " : "");
}

static void emit_names(const exporter_t *e, loong_text_t *text)
{
    bool any = false;
    bool bias = false;
    for (int64_t i = 0; i < e->num_made; i++) {
        loongi_text_printf(text, "%s\n    \"%s\"", i > 0 ? "," : "",
                           e->made[i].module);
    }
    loongi_text_printf(text, "\n  ],\n  \"modules_to_save\": ");
    for (int64_t i = 0; i < e->num_whole; i++) {
        const char *name = e->whole[i].name;
        const char *end = strrchr(name, '.');
        if (end != NULL && strcmp(end, ".bias") == 0) {
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

static loong_status_t write_config(const exporter_t *e, const char *dir)
{
    char path[4096];
    const loong_pairs_t *meta =
        loongi_checkpoint_metadata(e->source->checkpoint);
    const char *dropout = loongi_pairs_get(meta, LOONG_ADAPTER_KEY "dropout");
    char key[128];
    loong_text_t text = loongi_text_begin(e->ctx);
    snprintf(key, sizeof(key), LOONG_BASE_KEY "%s", e->source->component);
    const char *base = loongi_pairs_get(meta, key);
    loongi_text_printf(&text, "{\n  \"peft_type\": \"LORA\",\n"
                              "  \"task_type\": \"CAUSAL_LM\",\n"
                              "  \"base_model_name_or_path\": ");
    if (base != NULL) {
        loongi_text_json_string(&text, base);
    } else {
        loongi_text_printf(&text, "null");
    }
    loongi_text_printf(
        &text,
        ",\n  \"r\": %lld,\n  \"lora_alpha\": %.17g,\n"
        "  \"lora_dropout\": %s,\n  \"fan_in_fan_out\": %s,\n"
        "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
        "  \"use_rslora\": false,\n",
        (long long)e->made[0].rank, alpha_of(&e->made[0]),
        dropout != NULL ? dropout : "0",
        e->made[0].base->transposed ? "true" : "false");
    emit_patterns(e, "rank_pattern", true, &text);
    emit_patterns(e, "alpha_pattern", false, &text);
    loongi_text_printf(&text, "  \"target_modules\": [");
    emit_names(e, &text);
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_CONFIG, dir);
    loong_status_t status =
        text.status != LOONG_OK
            ? text.status
            : loongi_file_write(e->ctx, path, text.data, text.length);
    loongi_text_free(&text);
    return status;
}

/* ---- adapter_model.safetensors ------------------------------------------- */

typedef struct filler {
    const exporter_t *e;
    loong_dtype_t dtype;
    const double **values; /* by handle */
    int64_t *cols;
} filler_t;

static loong_status_t give_rows(void *user, int64_t index, int64_t row,
                                int64_t rows, void *buffer, const void **data_p)
{
    const filler_t *f = user;
    int64_t cols = f->cols[index];
    (void)data_p;
    return loongi_convert(f->e->ctx, LOONG_F64, f->values[index] + row * cols,
                          f->dtype, buffer, rows * cols);
}

static loong_status_t declare(filler_t *f, loong_safetensors_writer_t *out,
                              const char *name, const double *values,
                              const int64_t shape[2], int ndim)
{
    char full[512];
    int64_t handle = 0;
    snprintf(full, sizeof(full), LOONG_PEFT_PREFIX "%s", name);
    LOONG_TRY(
        loongi_safetensors_declare(out, full, f->dtype, ndim, shape, &handle));
    f->values[handle] = values;
    f->cols[handle] = ndim > 1 ? shape[1] : 1;
    return LOONG_OK;
}

/* peft has the bias of a module with an adapter one level further down. */
static void name_whole(const exporter_t *e, const whole_t *w, char *name,
                       size_t size)
{
    const char *end = strrchr(w->name, '.');
    int length = (int)(end - w->name);
    snprintf(name, size, "%s", w->name);
    for (int64_t i = 0; i < e->num_made; i++) {
        if ((int)strlen(e->made[i].module) == length &&
            strncmp(e->made[i].module, w->name, (size_t)length) == 0) {
            snprintf(name, size, "%.*s.base_layer%s", length, w->name, end);
        }
    }
}

static loong_status_t declare_all(const exporter_t *e, filler_t *f,
                                  loong_safetensors_writer_t *out)
{
    char name[LOONG_HF_MODULE + 32];
    for (int64_t i = 0; i < e->num_made; i++) {
        const made_t *m = &e->made[i];
        const int64_t a[2] = {m->rank, m->in};
        const int64_t b[2] = {m->out, m->rank};
        snprintf(name, sizeof(name), "%s.lora_A.weight", m->module);
        LOONG_TRY(declare(f, out, name, m->a, a, 2));
        snprintf(name, sizeof(name), "%s.lora_B.weight", m->module);
        LOONG_TRY(declare(f, out, name, m->b, b, 2));
    }
    for (int64_t i = 0; i < e->num_whole; i++) {
        const whole_t *w = &e->whole[i];
        name_whole(e, w, name, sizeof(name));
        LOONG_TRY(
            declare(f, out, name, w->values, w->param->shape, w->param->ndim));
    }
    return LOONG_OK;
}

static loong_status_t write_weights(const exporter_t *e, const char *dir)
{
    char path[4096];
    loong_meter_t meter = {NULL, NULL, 0, 0};
    int64_t count = 2 * e->num_made + e->num_whole;
    filler_t f = {.e = e, .dtype = LOONG_F32};
    loong_safetensors_source_t source = {give_rows, &f, &meter};
    loong_safetensors_writer_t *out = NULL;
    for (int64_t i = 0; i < loongi_checkpoint_count(e->source->checkpoint);
         i++) {
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_get(e->source->checkpoint, i);
        f.dtype =
            strstr(t->name, ".lora_A.weight") != NULL ? t->dtype : f.dtype;
    }
    LOONG_TRY(loongi_arena_alloc(e->arena, (size_t)count * sizeof(*f.values),
                                 &f.values));
    LOONG_TRY(
        loongi_arena_alloc(e->arena, (size_t)count * sizeof(*f.cols), &f.cols));
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_WEIGHTS, dir);
    LOONG_TRY(loongi_safetensors_create(e->ctx, path, &out));
    loong_status_t status = declare_all(e, &f, out);
    if (status == LOONG_OK) {
        status = loongi_safetensors_fill(out, &source);
    }
    if (status == LOONG_OK) {
        status = loongi_safetensors_commit(out);
    }
    loongi_safetensors_destroy(&out);
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t collect(exporter_t *e)
{
    int64_t count = loongi_hf_map_count(e->map);
    LOONG_TRY(loongi_arena_alloc(e->arena, (size_t)count * sizeof(*e->made),
                                 &e->made));
    LOONG_TRY(loongi_arena_alloc(e->arena, (size_t)count * sizeof(*e->whole),
                                 &e->whole));
    for (int64_t i = 0; i < count; i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(e->map, i);
        if (p->ndim == 2 && p->pieces == 1 && p->part == 0) {
            LOONG_TRY(make(e, p));
        }
        LOONG_TRY(keep_whole(e, p));
    }
    LOONG_CHECK(e->ctx, e->num_made > 0, LOONG_ERR_MISMATCH,
                "%s: no adapter is beside a matrix of the model's files",
                loongi_checkpoint_path(e->source->checkpoint));
    return LOONG_OK;
}

loong_status_t loongi_peft_export(const loong_native_source_t *source,
                                  const loong_hf_map_t *map, const char *dir)
{
    exporter_t e = {.ctx = source->ctx, .source = source, .map = map};
    LOONG_TRY(loongi_arena_create(e.ctx, "peft export", &e.arena));
    loong_status_t status = collect(&e);
    if (status == LOONG_OK) {
        status = loongi_dir_make(e.ctx, dir);
    }
    if (status == LOONG_OK) {
        status = write_weights(&e, dir);
    }
    if (status == LOONG_OK) {
        status = write_config(&e, dir);
    }
    loongi_arena_destroy(&e.arena);
    return status;
}
