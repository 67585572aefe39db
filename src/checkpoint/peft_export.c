/* SPDX-License-Identifier: Apache-2.0
 *
 * From the adapters of a native checkpoint to those of peft's. Called by
 * export.c. Read native_source.h, hf_adapters.h and peft.h before.
 *
 * A tensor of the files has one adapter, also where parts of it have some of
 * their own here (q, k and v as one matrix): their matrices a stand one below
 * the other, and each b has its rows and the columns of its a. */
#include "peft_export.h"

#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "hf_adapters.h"
#include "hf_composite.h"
#include "hf_names.h"
#include "peft.h"
#include "peft_terms.h"

typedef struct made {
    const loong_hf_param_t *base; /* the first of its parts */
    int64_t rank, in, out;
    int64_t experts; /* as in peft.h */
    bool embedding;
    double scale;
    double *a, *b;
    double *magnitude; /* [out]; NULL: without */
    loong_dtype_t magnitude_type;
} made_t;

typedef struct exporter {
    loong_context_t *ctx;
    const loong_native_source_t *source; /* of the part that is looked at */
    const loong_hf_map_t *map;
    loong_arena_t *arena; /* of peft */
    loong_peft_t *peft;
} exporter_t;

/* ---- adapters ------------------------------------------------------------ */
static bool part_adapter(const exporter_t *e, const loong_hf_param_t *p,
                         loong_native_adapter_t *adapter)
{
    char module[LOONG_HF_MODULE];
    loongi_lora_module(p, module);
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
        LOONG_CHECK(e->ctx, m->magnitude == NULL, LOONG_ERR_UNSUPPORTED,
                    "%s has no adapter, and other rows of the files' matrix "
                    "have one with magnitudes (use_dora), which peft has for "
                    "all of them: an export that is merged can have it "
                    "(export.merge, loong-ckpt export --merge)",
                    p->name);
        return LOONG_OK;
    }
    int64_t column = column_of(e, m, part, &rank);
    int64_t width = own.a->shape[0];
    double factor = own.scale / m->scale;
    LOONG_TRY(read(e, own.a, &a));
    LOONG_TRY(read(e, own.b, &b));
    if (own.magnitude != NULL) {
        double *values = NULL;
        LOONG_TRY(read(e, own.magnitude, &values));
        for (int64_t r = 0; r < own.b->shape[0]; r++) {
            m->magnitude[loongi_hf_file_row(p, r)] = values[r];
        }
    }
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

static loong_peft_tensor_t matrix(loong_dtype_t stored, int64_t rows,
                                  int64_t cols, const double *values)
{
    loong_peft_tensor_t t = {stored, LOONG_F64, 2, {rows, cols}, values};
    return t;
}

static loong_status_t add_made(exporter_t *e, const made_t *m,
                               loong_dtype_t stored)
{
    char module[LOONG_HF_MODULE];
    char *name = NULL;
    int64_t rank = m->rank * LOONG_MAX(m->experts, 1);
    loongi_lora_hf_module(e->map, m->base, module);
    LOONG_TRY(loongi_arena_strdup(e->arena, module, &name));
    loong_peft_module_t made = {name, m->scale, m->experts, m->embedding,
                                matrix(stored, rank, m->in, m->a),
                                matrix(stored, m->out, rank, m->b),
                                {.ndim = 0}};
    if (m->magnitude != NULL) {
        made.magnitude = matrix(m->magnitude_type, m->out, 1, m->magnitude);
        made.magnitude.ndim = 1;
    }
    e->peft->modules[e->peft->num_modules++] = made;
    /* Stacked experts are a parameter to peft, whose module has one order,
     * whatever the files' is. */
    e->peft->fan_in_fan_out = e->peft->fan_in_fan_out ||
                              (m->base->transposed && m->experts == 0);
    return LOONG_OK;
}

/* rows x cols the other way round. */
static loong_status_t turned(const exporter_t *e,
                             const loong_checkpoint_tensor_t *t, double **to)
{
    double *from = NULL;
    LOONG_TRY(read(e, t, &from));
    LOONG_TRY(loongi_arena_alloc(
        e->arena, (size_t)loongi_shape_count(t->ndim, t->shape) * sizeof(**to),
        to));
    for (int64_t r = 0; r < t->shape[0]; r++) {
        for (int64_t c = 0; c < t->shape[1]; c++) {
            (*to)[c * t->shape[0] + r] = from[r * t->shape[1] + c];
        }
    }
    return LOONG_OK;
}

static loong_status_t make_embedding(exporter_t *e, const loong_hf_param_t *p)
{
    made_t m = {.base = p, .embedding = true};
    loong_native_adapter_t own;
    if (!part_adapter(e, p, &own)) {
        return LOONG_OK;
    }
    m.scale = own.scale;
    m.rank = own.b->shape[1];
    m.in = own.b->shape[0];
    m.out = own.a->shape[1];
    LOONG_TRY(turned(e, own.b, &m.a));
    LOONG_TRY(turned(e, own.a, &m.b));
    return add_made(e, &m, own.a->dtype);
}

static loong_status_t make_experts(exporter_t *e, const loong_hf_param_t *p)
{
    made_t m = {.base = p, .in = p->shape[1], .experts = p->pieces / p->units};
    loong_native_adapter_t own;
    double *b = NULL;
    if (!part_adapter(e, p, &own)) {
        return LOONG_OK;
    }
    m.scale = own.scale;
    m.rank = own.b->shape[1];
    m.out = own.b->shape[0] / m.experts;
    LOONG_TRY(read(e, own.a, &m.a));
    LOONG_TRY(read(e, own.b, &b));
    LOONG_TRY(loongi_arena_alloc(
        e->arena, (size_t)(m.out * m.rank * m.experts) * sizeof(*b), &m.b));
    for (int64_t r = 0; r < m.experts * m.out; r++) {
        double *to = m.b + r % m.out * m.rank * m.experts + r / m.out;
        for (int64_t k = 0; k < m.rank; k++) {
            to[k * m.experts] = b[r * m.rank + k];
        }
    }
    return add_made(e, &m, own.a->dtype);
}

static loong_status_t make(exporter_t *e, const loong_hf_param_t *first)
{
    made_t m = {.base = first, .in = first->shape[1]};
    loong_dtype_t stored = LOONG_F32;
    const loong_checkpoint_tensor_t *magnitude = NULL;
    for (int i = 0; i < first->parts; i++) {
        loong_native_adapter_t own;
        if (part_adapter(e, first + i, &own) && m.scale == 0.0) {
            m.scale = own.scale;
            stored = own.a->dtype;
            magnitude = own.magnitude;
        }
    }
    if (m.scale == 0.0) {
        return LOONG_OK;
    }
    (void)column_of(e, &m, 0, &m.rank);
    m.out = loongi_hf_file_rows(first);
    LOONG_TRY(loongi_arena_alloc(
        e->arena, (size_t)(m.rank * (m.in + m.out)) * sizeof(*m.a), &m.a));
    m.b = m.a + m.rank * m.in;
    if (magnitude != NULL) {
        m.magnitude_type = magnitude->dtype;
        LOONG_TRY(loongi_arena_alloc(
            e->arena, (size_t)m.out * sizeof(*m.magnitude), &m.magnitude));
    }
    for (int i = 0; i < first->parts; i++) {
        LOONG_TRY(fill_part(e, &m, i));
    }
    return add_made(e, &m, stored);
}

/* ---- trained parameters -------------------------------------------------- */

/* It is not left to the base, or has states of an optimizer. */
static bool was_trained(const exporter_t *e, const char *name)
{
    static const char *const states[] = {"exp_avg", "momentum_buffer"};
    char full[512];
    bool found = e->source->base != NULL;
    snprintf(full, sizeof(full), "%s.%s", e->source->component, name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(states); i++) {
        found = found || loongi_checkpoint_find(e->source->checkpoint,
                                                states[i], full) != NULL;
    }
    return found;
}

/* A tensor of the files, by the first of its parts: all were trained, or
 * none. */
static loong_status_t keep(exporter_t *e, const loong_hf_param_t *p)
{
    const loong_checkpoint_tensor_t *t = NULL;
    int64_t cols = p->ndim > 1 ? p->shape[1] : 1;
    int64_t rows = loongi_hf_file_rows(p);
    double *values = NULL;
    char *name = NULL;
    int trained = 0;
    for (int i = 0; i < p->parts; i++) {
        t = loongi_native_find(e->source, p[i].name);
        trained += t != NULL && was_trained(e, p[i].name);
    }
    if (trained == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_lora_check_saved(e->ctx, e->map, p));
    LOONG_CHECK(e->ctx, trained == p->parts, LOONG_ERR_UNSUPPORTED,
                "%s%s: a part of it was trained as it is, the rest was not: an "
                "export that is merged can have it (export.merge, loong-ckpt "
                "export --merge)",
                loongi_hf_module_prefix(e->map, p), p->hf_name);
    LOONG_TRY(loongi_arena_printf(
        e->arena, &name, "%s%s", loongi_hf_module_prefix(e->map, p),
        p->hf_name));
    LOONG_TRY(loongi_arena_alloc(
        e->arena, (size_t)(rows * cols) * sizeof(*values), &values));
    for (int i = 0; i < p->parts; i++) {
        double *own = NULL;
        t = loongi_native_find(e->source, p[i].name);
        LOONG_TRY(read(e, t, &own));
        for (int64_t r = 0; r < p[i].shape[0]; r++) {
            memcpy(values + loongi_hf_file_row(p + i, r) * cols, own + r * cols,
                   (size_t)cols * sizeof(*values));
        }
    }
    loong_peft_saved_t saved = {
        name, {t->dtype, LOONG_F64, p->ndim, {rows, p->shape[1]}, values},
        false};
    e->peft->saved[e->peft->num_saved++] = saved;
    return LOONG_OK;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t collect(exporter_t *e)
{
    const loong_pairs_t *meta =
        loongi_checkpoint_metadata(e->source->checkpoint);
    char key[128];
    snprintf(key, sizeof(key), LOONG_BASE_KEY "%s", e->source->component);
    e->peft->base = loongi_pairs_get(meta, key);
    (void)loongi_pairs_real(meta, LOONG_ADAPTER_KEY "dropout",
                            &e->peft->dropout);
    for (int64_t i = 0; i < loongi_hf_map_count(e->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(e->map, i);
        if (strcmp(p->name, LOONG_LORA_EMBEDDING ".weight") == 0) {
            LOONG_TRY(make_embedding(e, p));
        } else if (loongi_lora_of_experts(p)) {
            LOONG_TRY(make_experts(e, p));
        } else if (p->ndim == 2 && p->part == 0) {
            LOONG_TRY(make(e, p));
        }
    }
    LOONG_CHECK(e->ctx, e->peft->num_modules > 0, LOONG_ERR_MISMATCH,
                "%s: no adapter is beside a matrix of the model's files",
                loongi_checkpoint_path(e->source->checkpoint));
    return LOONG_OK;
}

static loong_status_t keep_all(exporter_t *e)
{
    for (int64_t i = 0; i < loongi_hf_map_count(e->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(e->map, i);
        LOONG_TRY(p->part == 0 ? keep(e, p) : LOONG_OK);
    }
    return LOONG_OK;
}

/* An adapter of the directory itself makes what those that were merged into it
 * make, too. */
static loong_status_t write_sum(const exporter_t *e, loong_peft_terms_t *merged,
                                const loong_hf_t *base, const char *dir)
{
    int64_t count = merged->count;
    loong_peft_t matrices = *e->peft;
    loong_peft_t *sum = NULL;
    const loong_peft_t **terms = NULL;
    double *weights = NULL;
    for (int64_t i = 0; i < count; i++) {
        LOONG_TRY(loongi_lora_fit(merged->terms[i], base));
    }
    LOONG_TRY(loongi_arena_alloc(
        e->arena, (size_t)(count + 1) * sizeof(loong_peft_t *), &terms));
    LOONG_TRY(loongi_arena_alloc(e->arena,
                                 (size_t)(count + 1) * sizeof(*weights),
                                 &weights));
    matrices.num_saved = 0;
    terms[0] = &matrices;
    weights[0] = 1.0;
    for (int64_t i = 0; i < count; i++) {
        terms[i + 1] = merged->terms[i];
        weights[i + 1] = merged->weights[i];
    }
    const loong_peft_sum_t all = {count + 1, terms, weights, false, false};
    LOONG_TRY(loongi_peft_add(e->ctx, &all, &sum));
    sum->dropout = e->peft->dropout;
    sum->saved = e->peft->saved;
    sum->num_saved = e->peft->num_saved;
    loong_status_t status = loongi_peft_write(sum, dir);
    loongi_peft_destroy(&sum);
    return status;
}

static loong_status_t write(const exporter_t *e,
                            const loong_native_source_t *source,
                            const char *dir)
{
    const char *adapters = loongi_native_base_adapters(source);
    loong_peft_terms_t *merged = NULL;
    if (adapters == NULL) {
        return loongi_peft_write(e->peft, dir);
    }
    LOONG_TRY(loongi_peft_terms_read(e->ctx, adapters, &merged));
    loong_status_t status = write_sum(e, merged, source->base, dir);
    loongi_peft_terms_destroy(e->ctx, &merged);
    return status;
}

loong_status_t loongi_peft_export(int num_parts,
                                  const loong_native_part_t *parts,
                                  const char *dir)
{
    const loong_native_part_t *last = &parts[num_parts - 1];
    exporter_t e = {last->source.ctx, &last->source, last->map, NULL, NULL};
    int64_t saved = 0;
    for (int i = 0; i < num_parts; i++) {
        saved += loongi_hf_map_count(parts[i].map);
    }
    LOONG_TRY(loongi_peft_create(e.ctx, loongi_hf_map_count(e.map), saved,
                                 &e.peft));
    e.arena = e.peft->arena;
    loong_status_t status = collect(&e);
    for (int i = 0; i < num_parts && status == LOONG_OK; i++) {
        e.source = &parts[i].source;
        e.map = parts[i].map;
        status = keep_all(&e);
    }
    if (status == LOONG_OK) {
        status = write(&e, &last->source, dir);
    }
    loongi_peft_destroy(&e.peft);
    return status;
}
