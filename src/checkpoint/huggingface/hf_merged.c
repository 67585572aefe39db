/* SPDX-License-Identifier: Apache-2.0
 *
 * A model with adapters in it, in rows as they are read. Called by
 * hf_weights.c. Read hf_merged.h and peft.h before.
 *
 * Sums are taken in double and rounded once, to the type that is read. Several
 * adapters follow one another, as in peft's merge_and_unload: lengths of rows
 * (DoRA) are those of what stands before. */
#include "hf_merged.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hf_adapters.h"
#include "hf_impl.h"
#include "hf_names.h"
#include "peft_terms.h"

/* A module of an adapter beside rows of a parameter: a piece of it where each
 * expert has modules of its own. */
typedef struct beside {
    const loong_peft_t *peft;
    const loong_peft_module_t *module;
    double weight;
    const loong_hf_param_t *param;
    int64_t piece; /* -1: it is beside the whole */
} beside_t;

/* ---- what is beside what ------------------------------------------------- */

/* piece: of the row that is looked at. */
static bool find_beside(const loong_hf_t *hf, int64_t term,
                        const loong_hf_param_t *param, int64_t piece,
                        beside_t *found)
{
    char module[LOONG_HF_MODULE];
    const loong_peft_t *peft = hf->merged->terms[term];
    beside_t b = {peft, NULL, hf->merged->weights[term], param, -1};
    loongi_lora_hf_module(hf->map, param - param->part, module);
    b.module = loongi_peft_find(peft, module);
    if (b.module == NULL && loongi_lora_of_experts(param)) {
        loongi_lora_hf_piece(hf->map, param, piece, module);
        b.module = loongi_peft_find(peft, module);
        b.piece = piece;
    }
    *found = b;
    return b.module != NULL;
}

static const loong_peft_saved_t *find_saved(const loong_hf_t *hf, int64_t term,
                                            const loong_hf_param_t *param)
{
    const loong_peft_t *peft = hf->merged->terms[term];
    for (int64_t i = 0; i < peft->num_saved; i++) {
        if (loongi_lora_saved(hf->map, peft->saved[i].name) ==
            param - param->part) {
            return &peft->saved[i];
        }
    }
    return NULL;
}

bool loongi_hf_is_merged(const loong_hf_t *hf, const loong_hf_param_t *param)
{
    return hf->is_merged != NULL &&
           hf->is_merged[param - loongi_hf_map_get(hf->map, 0)];
}

/* ---- sums ---------------------------------------------------------------- */

static loong_status_t values(const loong_peft_t *peft,
                             const loong_peft_tensor_t *t, double **values_p)
{
    LOONG_TRY(loongi_calloc(peft->ctx,
                            (size_t)loongi_shape_count(t->ndim, t->shape),
                            sizeof(**values_p), "an adapter", values_p));
    loong_status_t status = loongi_peft_values(peft, t, *values_p);
    if (status != LOONG_OK) {
        loongi_free(peft->ctx, *values_p);
    }
    return status;
}

/* w [columns] += weight scale b a, of one row of the parameter. */
static void add_row(const beside_t *s, int64_t row, const double *a,
                    const double *b, double *w)
{
    const loong_peft_module_t *m = s->module;
    int64_t columns = s->param->shape[1];
    int64_t experts = LOONG_MAX(m->experts, 1);
    int64_t rank = loongi_peft_rank(m);
    int64_t each = s->param->shape[0] / s->param->pieces * s->param->units;
    int64_t expert = m->experts > 0 ? row / each : 0;
    int64_t out = m->experts > 0 ? row % each
                  : s->piece >= 0
                      ? row % (s->param->shape[0] / s->param->pieces)
                      : loongi_hf_file_row(s->param, row);
    double scale = s->weight * m->scale;
    for (int64_t k = 0; k < rank; k++) {
        double factor = scale * b[out * rank * experts + k * experts + expert];
        const double *from = a + (expert * rank + k) * columns;
        for (int64_t c = 0; c < columns; c++) {
            w[c] += factor * from[c];
        }
    }
}

/* Of an embedding a is [rank, ids] and b [width, rank]. */
static void add_id(const beside_t *s, int64_t id, const double *a,
                   const double *b, double *w)
{
    int64_t rank = s->module->a.shape[0];
    double scale = s->weight * s->module->scale;
    for (int64_t c = 0; c < s->param->shape[1]; c++) {
        for (int64_t k = 0; k < rank; k++) {
            w[c] += scale * a[k * s->param->shape[0] + id] * b[c * rank + k];
        }
    }
}

static void set_length(double length, int64_t columns, double *w)
{
    double sum = 0.0;
    for (int64_t c = 0; c < columns; c++) {
        sum += w[c] * w[c];
    }
    for (int64_t c = 0; c < columns; c++) {
        w[c] *= length / sqrt(sum);
    }
}

static loong_status_t add_rows(const beside_t *s, int64_t row, int64_t rows,
                               double *w)
{
    double *of[3] = {NULL, NULL, NULL};
    const loong_peft_module_t *m = s->module;
    int64_t columns = s->param->shape[1];
    loong_status_t status = values(s->peft, &m->a, &of[0]);
    if (status == LOONG_OK) {
        status = values(s->peft, &m->b, &of[1]);
    }
    if (status == LOONG_OK && m->magnitude.ndim > 0) {
        status = values(s->peft, &m->magnitude, &of[2]);
    }
    for (int64_t r = 0; r < rows && status == LOONG_OK; r++) {
        double *to = w + r * columns;
        if (m->embedding) {
            add_id(s, row + r, of[0], of[1], to);
        } else {
            add_row(s, row + r, of[0], of[1], to);
        }
        if (of[2] != NULL) {
            set_length(of[2][loongi_hf_file_row(s->param, row + r)], columns,
                       to);
        }
    }
    for (int i = 0; i < LOONG_COUNT_OF(of); i++) {
        loongi_free(s->peft->ctx, of[i]);
    }
    return status;
}

static loong_status_t replace_rows(const loong_peft_t *peft,
                                   const loong_peft_saved_t *saved,
                                   const loong_hf_param_t *param, int64_t row,
                                   int64_t rows, double *w)
{
    size_t columns = param->ndim > 1 ? (size_t)param->shape[1] : 1;
    double *all = NULL;
    LOONG_TRY(values(peft, &saved->tensor, &all));
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = loongi_hf_file_row(param, row + r);
        memcpy(w + (size_t)r * columns, all + (size_t)from * columns,
               columns * sizeof(*w));
    }
    loongi_free(peft->ctx, all);
    return LOONG_OK;
}

loong_status_t loongi_hf_add_merged(const loong_hf_t *hf,
                                    const loong_hf_param_t *param, int64_t row,
                                    int64_t rows, double *w)
{
    int64_t each = param->shape[0] / param->pieces;
    for (int64_t i = 0; i < hf->merged->count; i++) {
        const loong_peft_saved_t *saved = find_saved(hf, i, param);
        if (saved != NULL) {
            LOONG_TRY(
                replace_rows(hf->merged->terms[i], saved, param, row, rows, w));
        }
        for (int64_t r = 0, n = 0; r < rows; r += n) {
            beside_t b;
            n = LOONG_MIN(each - (row + r) % each, rows - r);
            if (param->ndim == 2 &&
                find_beside(hf, i, param, (row + r) / each, &b)) {
                LOONG_TRY(add_rows(&b, row + r, n, w + r * param->shape[1]));
            }
        }
    }
    return LOONG_OK;
}

/* ---- what is refused ----------------------------------------------------- */

static bool is_embedding(const loong_hf_param_t *p)
{
    return strcmp(p->name, LOONG_LORA_EMBEDDING ".weight") == 0;
}

static loong_status_t check_beside(const loong_hf_t *hf, const beside_t *b)
{
    const loong_peft_module_t *m = b->module;
    const loong_hf_param_t *p = b->param;
    const char *path = b->peft->path;
    int64_t each = p->shape[0] / p->pieces;
    int64_t out = b->piece >= 0    ? each
                  : m->experts > 0 ? each * p->units
                                   : loongi_hf_file_rows(p);
    int64_t rows = m->embedding ? p->shape[1] : out;
    int64_t cols = m->embedding ? p->shape[0] : p->shape[1];
    LOONG_CHECK(
        hf->ctx,
        m->b.shape[0] == rows && m->a.shape[1] == cols &&
            m->b.shape[1] == m->a.shape[0] && is_embedding(p) == m->embedding &&
            (m->experts == 0 || m->experts == p->pieces / p->units),
        LOONG_ERR_MISMATCH,
        "%s: %s: matrices are [%lld, %lld] and [%lld, %lld], that of "
        "'%s' is [%lld, %lld]",
        path, m->name, (long long)m->a.shape[0], (long long)m->a.shape[1],
        (long long)m->b.shape[0], (long long)m->b.shape[1], hf->dir,
        (long long)rows, (long long)cols);
    LOONG_CHECK(hf->ctx, m->magnitude.ndim == 0 || b->weight == 1.0,
                LOONG_ERR_UNSUPPORTED,
                "%s: has magnitudes (use_dora): there is no weight but 1 for "
                "it, this one is %g",
                path, b->weight);
    LOONG_CHECK(hf->ctx,
                !m->embedding ||
                    loongi_hf_map_find(hf->map, LOONG_HF_HEAD) != NULL,
                LOONG_ERR_UNSUPPORTED,
                "%s: the adapter of " LOONG_LORA_EMBEDDING " cannot be merged: "
                "the head is the same matrix and has none",
                path);
    return LOONG_OK;
}

/* Marks the parameters that a term is beside, and which of its modules are
 * beside any. */
static loong_status_t mark(const loong_hf_t *hf, int64_t term, bool *used)
{
    for (int64_t i = 0; i < loongi_hf_map_count(hf->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(hf->map, i);
        beside_t b;
        for (int64_t k = 0; k < p->pieces && p->ndim == 2; k++) {
            if (find_beside(hf, term, p, k, &b)) {
                LOONG_TRY(check_beside(hf, &b));
                used[b.module - b.peft->modules] = true;
                hf->is_merged[i] = true;
            }
        }
        hf->is_merged[i] = hf->is_merged[i] || find_saved(hf, term, p) != NULL;
    }
    return LOONG_OK;
}

static loong_status_t check_modules(const loong_hf_t *hf, int64_t term)
{
    const loong_peft_t *peft = hf->merged->terms[term];
    int64_t i = 0;
    bool *used = NULL;
    LOONG_TRY(loongi_calloc(hf->ctx, (size_t)peft->num_modules, sizeof(*used),
                            "modules of adapters", &used));
    loong_status_t status = mark(hf, term, used);
    while (i < peft->num_modules && used[i]) {
        i++;
    }
    loongi_free(hf->ctx, used);
    LOONG_TRY(status);
    LOONG_CHECK(hf->ctx, i == peft->num_modules, LOONG_ERR_MISMATCH,
                "%s: %s: '%s' has no matrix of this name%s", peft->path,
                peft->modules[i].name, hf->dir,
                loongi_lora_owns(hf->map, peft->modules[i].name)
                    ? ""
                    : " in the language model, whose adapters alone are read");
    return LOONG_OK;
}

static loong_status_t check_saved(const loong_hf_t *hf, int64_t term,
                                  const loong_peft_saved_t *s)
{
    const char *path = hf->merged->terms[term]->path;
    const loong_hf_param_t *p = loongi_lora_saved(hf->map, s->name);
    LOONG_CHECK(hf->ctx,
                p != NULL && p->ndim == s->tensor.ndim &&
                    s->tensor.shape[0] == loongi_hf_file_rows(p) &&
                    (p->ndim < 2 || s->tensor.shape[1] == p->shape[1]),
                LOONG_ERR_MISMATCH,
                "%s: %s: the language model in '%s' has no tensor of this name "
                "and shape, or has it in another form",
                path, s->name, hf->dir);
    LOONG_CHECK(hf->ctx, hf->merged->weights[term] == 1.0,
                LOONG_ERR_UNSUPPORTED,
                "%s: %s was trained as it is (modules_to_save, bias) and takes "
                "the place of the base's: there is no weight but 1 for it, "
                "this one is %g",
                path, s->name, hf->merged->weights[term]);
    return LOONG_OK;
}

static loong_status_t check_term(const loong_hf_t *hf, int64_t term)
{
    const loong_peft_t *peft = hf->merged->terms[term];
    LOONG_TRY(check_modules(hf, term));
    for (int64_t i = 0; i < peft->num_saved; i++) {
        LOONG_TRY(check_saved(hf, term, &peft->saved[i]));
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_merge(loong_hf_t *hf, const char *list)
{
    loong_peft_terms_t *terms = NULL;
    LOONG_TRY(loongi_peft_terms_read(hf->ctx, list, &terms));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < terms->count && status == LOONG_OK; i++) {
        status = loongi_lora_fit(terms->terms[i], hf); /* to the files' own */
    }
    hf->merged = terms;
    if (status == LOONG_OK) {
        status = loongi_calloc(hf->ctx, (size_t)loongi_hf_map_count(hf->map),
                               sizeof(*hf->is_merged),
                               "parameters with adapters", &hf->is_merged);
    }
    for (int64_t i = 0; i < terms->count && status == LOONG_OK; i++) {
        status = check_term(hf, i);
    }
    return status;
}
