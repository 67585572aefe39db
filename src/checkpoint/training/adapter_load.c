/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters that a training starts with, from peft's files. Called by
 * stage_load.c. Read adapter_start.h, hf_adapters.h and
 * peft.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapter_start.h"
#include "hf_adapters.h"
#include "hf_composite.h"
#include "hf_quantize.h"
#include "peft.h"

enum { NORMS = 64 }; /* rows whose lengths are taken at a time */

typedef struct start {
    loong_context_t *ctx;
    const loong_component_t *component;
    const loong_hf_t *hf;
    const loong_hf_map_t *map;
    const loong_peft_t *peft; /* NULL: magnitudes start as norms */
} start_t;

/* A matrix of an adapter here, and what it is beside in the files. */
typedef struct matrix {
    const loong_chunk_param_t *param;
    bool is_a, is_magnitude;
    const loong_hf_param_t *base;
    int64_t experts; /* whose matrices stand one below the other; else 0 */
    int64_t rank;
    int64_t rows, cols; /* of all */
} matrix_t;

static loong_status_t matrix_of(const start_t *s, const loong_chunk_param_t *p,
                                matrix_t *m)
{
    char module[LOONG_HF_MODULE];
    loong_param_slice_t part = loongi_param_slice_of(p);
    const loong_shape_t *shape = &p->params.shape;
    m->param = p;
    loong_lora_matrix_t which = loongi_lora_matrix(p->name, module);
    m->is_a = which == LOONG_LORA_A;
    m->is_magnitude = which == LOONG_LORA_MAGNITUDE;
    m->base = loongi_lora_base(s->map, module);
    m->experts = shape->rank > 2 ? shape->dim[0] : 0;
    m->rank =
        m->is_magnitude ? 0 : shape->dim[shape->rank - (m->is_a ? 2 : 1)];
    m->rows = part.all_rows;
    m->cols = part.all_cols;
    LOONG_CHECK(s->ctx, m->base != NULL, LOONG_ERR_MISMATCH,
                "%s: no file has a matrix of this layer", p->name);
    return LOONG_OK;
}

/* The file's matrix of a module, which is or is a part of m; rank: wanted of
 * it. */
static loong_status_t find(const start_t *s, const matrix_t *m,
                           const char *module, int64_t rank,
                           const loong_peft_tensor_t **tensor_p)
{
    const loong_peft_module_t *found = loongi_peft_find(s->peft, module);
    LOONG_CHECK(s->ctx, found != NULL, LOONG_ERR_MISMATCH,
                "%s: there is no " LOONG_PEFT_PREFIX "%s.lora_%s.weight, which "
                "%s is: finetune.target_modules asks for it",
                s->peft->path, module, m->is_a ? "A" : "B", m->param->name);
    LOONG_CHECK(s->ctx, rank == 0 || loongi_peft_rank(found) == rank,
                LOONG_ERR_MISMATCH,
                "%s: %s has rank %lld, here it has %lld: finetune.rank or "
                "rank_pattern",
                s->peft->path, module, (long long)loongi_peft_rank(found),
                (long long)rank);
    double scale = m->param->params.adapter;
    LOONG_CHECK(s->ctx, fabs(found->scale - scale) <= 1e-9 * found->scale,
                LOONG_ERR_MISMATCH,
                "%s: what %s makes is multiplied by %g, here by %g: "
                "finetune.alpha, alpha_pattern or use_rslora",
                s->peft->path, module, found->scale, scale);
    LOONG_CHECK(s->ctx,
                !m->is_magnitude || found->magnitude.ndim == 1,
                LOONG_ERR_MISMATCH,
                "%s: %s has no magnitudes: finetune.use_dora", s->peft->path,
                module);
    *tensor_p = m->is_magnitude                 ? &found->magnitude
                : m->is_a != found->embedding ? &found->a
                                              : &found->b;
    return LOONG_OK;
}

static int64_t width_of(const loong_peft_tensor_t *t)
{
    return t->ndim > 1 ? t->shape[1] : 1;
}

static loong_status_t want_shape(const start_t *s, const matrix_t *m,
                                 const loong_peft_tensor_t *t, int64_t rows,
                                 int64_t cols)
{
    LOONG_CHECK(s->ctx, t->shape[0] == rows && width_of(t) == cols,
                LOONG_ERR_MISMATCH, "%s: %s is [%lld, %lld], here [%lld, %lld]",
                s->peft->path, m->param->name, (long long)t->shape[0],
                (long long)width_of(t), (long long)rows, (long long)cols);
    return LOONG_OK;
}

static loong_status_t read(const start_t *s, const loong_peft_tensor_t *t,
                           double **values_p)
{
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)(t->shape[0] * width_of(t)),
                            sizeof(**values_p), "an adapter", values_p));
    loong_status_t status = loongi_peft_values(s->peft, t, *values_p);
    if (status != LOONG_OK) {
        loongi_free(s->ctx, *values_p);
    }
    return status;
}

/* One module has it all; of what files have as one layer its rows. */
static loong_status_t fill(const start_t *s, const matrix_t *m, double *to)
{
    char module[LOONG_HF_MODULE];
    const loong_peft_tensor_t *t = NULL;
    double *from = NULL;
    int64_t experts = LOONG_MAX(m->experts, 1);
    int64_t out = m->rows / experts;
    bool mixed = !m->is_a && m->experts > 0;
    bool turned = strcmp(m->base->name, LOONG_LORA_EMBEDDING ".weight") == 0;
    loongi_lora_hf_module(s->map, m->base, module);
    LOONG_TRY(find(s, m, module, m->rank, &t));
    bool parts = !m->is_a && m->base->parts > 1;
    int64_t rows = parts ? loongi_hf_file_rows(m->base) : m->rows;
    LOONG_TRY(
        mixed    ? want_shape(s, m, t, out, m->cols * experts)
        : turned ? want_shape(s, m, t, m->cols, m->rows)
                 : want_shape(s, m, t, rows, m->cols));
    LOONG_TRY(read(s, t, &from));
    for (int64_t r = 0; r < m->rows; r++) {
        int64_t row = parts ? loongi_hf_file_row(m->base, r) : r;
        for (int64_t k = 0; k < m->cols; k++) {
            to[r * m->cols + k] =
                mixed    ? from[(r % out * m->cols + k) * experts + r / out]
                : turned ? from[k * m->rows + r]
                         : from[row * m->cols + k];
        }
    }
    loongi_free(s->ctx, from);
    return LOONG_OK;
}

/* A file from before transformers 5: each unit of each expert has an adapter.
 * One below the other the matrices a of its units are that of the expert, and b
 * has theirs one behind the other along a diagonal. */
static loong_status_t fill_pieces(const start_t *s, const matrix_t *m,
                                  double *to)
{
    int units = m->base->units;
    int64_t rank = m->rank / units;
    int64_t rows = m->is_a ? rank : m->rows / m->base->pieces;
    int64_t cols = m->is_a ? m->cols : rank;
    LOONG_CHECK(s->ctx, m->rank % units == 0, LOONG_ERR_MISMATCH,
                "%s: gate and up of experts have adapters of their own, here "
                "they have one of rank %lld: twice theirs is wanted, "
                "finetune.rank_pattern with alpha_pattern",
                s->peft->path, (long long)m->rank);
    for (int64_t i = 0; i < m->base->pieces; i++) {
        char module[LOONG_HF_MODULE];
        const loong_peft_tensor_t *t = NULL;
        double *from = NULL;
        loongi_lora_hf_piece(s->map, m->base, i, module);
        LOONG_TRY(find(s, m, module, rank, &t));
        LOONG_TRY(want_shape(s, m, t, rows, cols));
        LOONG_TRY(read(s, t, &from));
        double *at = to + i * rows * m->cols + (m->is_a ? 0 : i % units * rank);
        for (int64_t r = 0; r < rows; r++) {
            memcpy(at + r * m->cols, from + r * cols,
                   (size_t)cols * sizeof(*at));
        }
        loongi_free(s->ctx, from);
    }
    return LOONG_OK;
}

/* Makes what reads the matrix of a module as the run has it, in codes; NULL: it
 * has the files' numbers. */
static loong_status_t quantizer_of(const start_t *s, const matrix_t *m,
                                   loong_hf_quantizer_t **q_p)
{
    const loong_component_t *c = s->component;
    int64_t i = 0;
    while (i < c->num_whole && strcmp(c->whole[i].name, m->base->name) != 0) {
        i++;
    }
    return i == c->num_whole || c->whole[i].quant == LOONG_QUANT_NONE
               ? LOONG_OK
               : loongi_hf_quantizer_create(s->hf, m->base->name,
                                            c->whole[i].quant, q_p);
}

/* Norms of the rows of the base's matrix, for b is 0. */
static loong_status_t fill_norms(const start_t *s, const matrix_t *m,
                                 double *to)
{
    int64_t cols = m->base->shape[1];
    double *rows = NULL;
    loong_hf_quantizer_t *q = NULL;
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)(NORMS * cols), sizeof(*rows),
                            "rows", &rows));
    loong_status_t status = quantizer_of(s, m, &q);
    for (int64_t r = 0; r < m->rows && status == LOONG_OK; r++) {
        const double *row = rows + r % NORMS * cols;
        double sum = 0.0;
        if (r % NORMS == 0) {
            const loong_hf_block_t b = {m->base->name, r,
                                        LOONG_MIN(NORMS, m->rows - r), 0, cols};
            status = q != NULL ? loongi_hf_quantizer_numbers(q, &b, LOONG_F64,
                                                             rows)
                               : loongi_hf_read(s->hf, b.name, r, b.rows,
                                                LOONG_F64, rows);
        }
        for (int64_t c = 0; c < cols; c++) {
            sum += row[c] * row[c];
        }
        to[r] = sqrt(sum);
    }
    loongi_hf_quantizer_destroy(&q);
    loongi_free(s->ctx, rows);
    return status;
}

static bool in_pieces(const start_t *s, const matrix_t *m)
{
    char module[LOONG_HF_MODULE];
    if (!loongi_lora_of_experts(m->base)) {
        return false;
    }
    loongi_lora_hf_piece(s->map, m->base, 0, module);
    return loongi_peft_find(s->peft, module) != NULL;
}

/* The rows and columns of a matrix that are the rank's. */
static void copy_part(const loong_param_slice_t *part, const double *all,
                      double *own)
{
    for (int64_t r = 0, n = 0; r < part->rows; r += n) {
        n = part->rows - r;
        int64_t row = loongi_param_slice_row(part, r, &n);
        for (int64_t i = 0; i < n; i++) {
            memcpy(own + (r + i) * part->cols,
                   all + (row + i) * part->all_cols + part->col,
                   (size_t)part->cols * sizeof(*own));
        }
    }
}

/* stage: NULL: it is only looked at. */
static loong_status_t load(const start_t *s, loong_stage_t *stage,
                           const loong_chunk_param_t *p)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    matrix_t m;
    double *all = NULL;
    LOONG_TRY(matrix_of(s, p, &m));
    LOONG_TRY(loongi_calloc(s->ctx,
                            (size_t)(m.rows * m.cols + part.rows * part.cols),
                            sizeof(*all), "an adapter", &all));
    double *own = all + m.rows * m.cols;
    loong_status_t status = s->peft == NULL    ? fill_norms(s, &m, all)
                            : in_pieces(s, &m) ? fill_pieces(s, &m, all)
                                               : fill(s, &m, all);
    if (status == LOONG_OK && stage != NULL) {
        copy_part(&part, all, own);
        status =
            loongi_stage_set_param(stage, p, 0, part.rows * part.cols, own);
    }
    loongi_free(s->ctx, all);
    return status;
}

/* ---- what was trained as it is ------------------------------------------- */

/* part_p: the parameter, which may be a part of the files' tensor. */
static const loong_peft_saved_t *saved_of(const start_t *s, const char *name,
                                          const loong_hf_param_t **part_p)
{
    for (int64_t i = 0; i < s->peft->num_saved; i++) {
        const loong_hf_param_t *p =
            loongi_lora_saved(s->map, s->peft->saved[i].name);
        for (int k = 0; p != NULL && k < p->parts; k++) {
            if (strcmp(p[k].name, name) == 0) {
                *part_p = p + k;
                return &s->peft->saved[i];
            }
        }
    }
    return NULL;
}

/* In place of the base's values. stage: as above. */
static loong_status_t load_saved(const start_t *s, loong_stage_t *stage,
                                 const loong_chunk_param_t *p)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    const loong_hf_param_t *of = NULL;
    const loong_peft_saved_t *saved = saved_of(s, p->name, &of);
    int64_t cols = part.all_cols;
    double *from = NULL;
    double *all = NULL;
    if (saved == NULL) {
        return LOONG_OK;
    }
    const loong_peft_tensor_t *t = &saved->tensor;
    LOONG_CHECK(s->ctx,
                t->shape[0] == loongi_hf_file_rows(of) && width_of(t) == cols,
                LOONG_ERR_MISMATCH, "%s: %s is of another size than %s",
                s->peft->path, saved->name, p->name);
    if (stage == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(read(s, t, &from));
    loong_status_t status = loongi_calloc(
        s->ctx, (size_t)(part.all_rows * cols + part.rows * part.cols),
        sizeof(*all), "a parameter beside adapters", &all);
    if (status == LOONG_OK) {
        double *own = all + part.all_rows * cols;
        for (int64_t r = 0; r < part.all_rows; r++) {
            memcpy(all + r * cols, from + loongi_hf_file_row(of, r) * cols,
                   (size_t)cols * sizeof(*all));
        }
        copy_part(&part, all, own);
        status =
            loongi_stage_set_param(stage, p, 0, part.rows * part.cols, own);
    }
    loongi_free(s->ctx, all);
    loongi_free(s->ctx, from);
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t load_params(const start_t *s,
                                  const loong_model_chunk_t *layout,
                                  loong_stage_t *stage)
{
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < layout->num_params && status == LOONG_OK; i++) {
        const loong_chunk_param_t *p = &layout->params[i];
        char module[LOONG_HF_MODULE];
        bool magnitude =
            loongi_lora_matrix(p->name, module) == LOONG_LORA_MAGNITUDE;
        if (magnitude || (s->peft != NULL && p->params.adapter > 0.0)) {
            status = load(s, stage, p);
        } else if (s->peft != NULL) {
            status = load_saved(s, stage, p);
        }
    }
    return status;
}

static loong_status_t load_stage(const start_t *s, loong_stage_t *stage)
{
    loong_status_t status = loongi_stage_upload(stage);
    if (status == LOONG_OK) {
        status = load_params(s, stage->layout, stage);
    }
    return loongi_stage_uploaded(stage, status);
}

static void mark(const start_t *s, const char *module, bool *used)
{
    const loong_peft_module_t *found = loongi_peft_find(s->peft, module);
    if (found != NULL) {
        used[found - s->peft->modules] = true;
    }
}

/* Marks the modules of the files that the component's adapters are. */
static void mark_all(const start_t *s, const loong_component_t *c, bool *used)
{
    for (int64_t i = 0; i < c->num_whole; i++) {
        char module[LOONG_HF_MODULE];
        if (loongi_lora_matrix(c->whole[i].name, module) != LOONG_LORA_A) {
            continue;
        }
        const loong_hf_param_t *base = loongi_lora_base(s->map, module);
        for (int64_t k = 0;
             base != NULL && loongi_lora_of_experts(base) && k < base->pieces;
             k++) {
            loongi_lora_hf_piece(s->map, base, k, module);
            mark(s, module, used);
        }
        if (base != NULL) {
            loongi_lora_hf_module(s->map, base, module);
            mark(s, module, used);
        }
    }
}

/* All that the directory has goes on being trained, or nothing. */
static loong_status_t check_modules(const start_t *s,
                                    const loong_component_t *c)
{
    const loong_adapters_t *adapters = c->params.request.rules.adapters;
    bool *used = NULL;
    int64_t i = 0;
    if (adapters == NULL) {
        return LOONG_OK;
    }
    LOONG_CHECK(s->ctx,
                adapters->magnitudes || s->peft->modules[0].magnitude.ndim == 0,
                LOONG_ERR_MISMATCH,
                "%s has magnitudes (DoRA): finetune.use_dora: true is wanted",
                s->peft->path);
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)s->peft->num_modules, sizeof(*used),
                            "modules of adapters", &used));
    mark_all(s, c, used);
    while (i < s->peft->num_modules && used[i]) {
        i++;
    }
    loongi_free(s->ctx, used);
    LOONG_CHECK(s->ctx, i == s->peft->num_modules, LOONG_ERR_MISMATCH,
                "%s has an adapter of %s: %s", s->peft->path,
                s->peft->modules[i].name,
                loongi_lora_owns(s->map, s->peft->modules[i].name)
                    ? "finetune.target_modules leaves it out"
                    : "adapters of the language model alone are read");
    return LOONG_OK;
}

static bool is_trained(const loong_component_t *c, const char *name)
{
    int64_t k = 0;
    while (k < c->num_whole &&
           (c->whole[k].frozen || strcmp(c->whole[k].name, name) != 0)) {
        k++;
    }
    return k < c->num_whole;
}

static loong_status_t check_saved(const start_t *s, const loong_component_t *c)
{
    for (int64_t i = 0; i < s->peft->num_saved; i++) {
        const char *name = s->peft->saved[i].name;
        const loong_hf_param_t *p = loongi_lora_saved(s->map, name);
        bool trained = p != NULL || !loongi_lora_owns(s->map, name);
        for (int k = 0; p != NULL && k < p->parts; k++) {
            trained = trained && is_trained(c, p[k].name);
        }
        LOONG_CHECK(s->ctx, trained, LOONG_ERR_MISMATCH,
                    "%s has %s, trained as it is: finetune.modules_to_save or "
                    "bias is to name it (of another component than the "
                    "language model: model.COMPONENT.freeze: false)",
                    s->peft->path, name);
    }
    return LOONG_OK;
}

static loong_status_t open_peft(const loong_component_t *c,
                                const loong_hf_t *hf, const char *dir,
                                loong_peft_t **peft_p)
{
    loong_peft_t *peft = NULL;
    LOONG_TRY(loongi_peft_read(c->ctx, dir, &peft));
    const start_t s = {c->ctx, c, hf, loongi_hf_get_map(hf), peft};
    loong_status_t status = loongi_lora_fit(peft, hf);
    if (status == LOONG_OK) {
        status = check_modules(&s, c);
    }
    if (status == LOONG_OK) {
        status = check_saved(&s, c);
    }
    if (status != LOONG_OK) {
        loongi_peft_destroy(&peft);
        return status;
    }
    *peft_p = peft;
    return LOONG_OK;
}

loong_status_t loongi_adapter_check(const loong_component_t *component,
                                    const loong_hf_t *hf, const char *dir)
{
    loong_status_t status = LOONG_OK;
    loong_peft_t *peft = NULL;
    LOONG_TRY(open_peft(component, hf, dir, &peft));
    const start_t s = {component->ctx, component, hf, loongi_hf_get_map(hf),
                       peft};
    for (int i = 0; i < component->num_stages && status == LOONG_OK; i++) {
        status = load_params(&s, component->stages[i]->layout, NULL);
    }
    loongi_peft_destroy(&peft);
    return status;
}

loong_status_t loongi_adapter_load(loong_component_t *component,
                                   const loong_hf_t *hf, const char *dir)
{
    const loong_adapters_t *adapters = component->params.request.rules.adapters;
    loong_status_t status = LOONG_OK;
    loong_peft_t *peft = NULL;
    if (dir == NULL && (adapters == NULL || !adapters->magnitudes)) {
        return LOONG_OK;
    }
    if (dir != NULL) {
        LOONG_TRY(open_peft(component, hf, dir, &peft));
    }
    const start_t s = {component->ctx, component, hf, loongi_hf_get_map(hf),
                       peft};
    for (int i = 0; i < component->num_stages && status == LOONG_OK; i++) {
        status = load_stage(&s, component->stages[i]);
    }
    loongi_peft_destroy(&peft);
    return status;
}
