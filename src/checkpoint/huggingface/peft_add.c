/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of adapters, as peft's add_weighted_adapter has them. Called by merge.c.
 * Read peft.h before. */
#include <math.h>
#include <string.h>

#include "peft.h"

typedef struct adder {
    const loong_peft_sum_t *sum;
    loong_peft_t *to;
} adder_t;

/* The sum's rank for a module; 0: two that are added differ. */
static int64_t rank_of(const adder_t *s, const char *name)
{
    int64_t rank = 0;
    bool differ = false;
    for (int64_t i = 0; i < s->sum->count; i++) {
        const loong_peft_module_t *m = loongi_peft_find(s->sum->terms[i], name);
        int64_t own = m != NULL ? loongi_peft_rank(m) : 0;
        differ =
            differ || (s->sum->linear && rank > 0 && own > 0 && own != rank);
        rank = own == 0 ? rank : s->sum->linear ? own : rank + own;
    }
    return differ ? 0 : rank;
}

/* Adds one term; `column` of the sum's rank is where its own begin. */
static loong_status_t add_term(const adder_t *s,
                               const loong_peft_module_t *term, double weight,
                               int64_t column, const loong_peft_t *of,
                               loong_peft_module_t *to)
{
    int64_t experts = LOONG_MAX(term->experts, 1);
    int64_t rank = loongi_peft_rank(term);
    int64_t wide = rank * experts; /* columns of b */
    int64_t all = to->a.shape[0];
    int64_t in = to->a.shape[1];
    int64_t out = to->b.shape[0];
    double factor = weight * term->scale;
    double of_b = s->sum->linear ? sqrt(fabs(factor)) : 1.0;
    double of_a = factor / (of_b > 0.0 ? of_b : 1.0);
    double *a = (double *)to->a.data + column * in;
    double *b = (double *)to->b.data + column * experts;
    double *own = NULL;
    LOONG_TRY(loongi_calloc(s->to->ctx, (size_t)(wide * LOONG_MAX(in, out)),
                            sizeof(*own), "an adapter", &own));
    loong_status_t status = loongi_peft_values(of, &term->a, own);
    for (int64_t i = 0; i < wide * in && status == LOONG_OK; i++) {
        int64_t expert = i / (rank * in);
        a[expert * (all / experts - rank) * in + i] += of_a * own[i];
    }
    if (status == LOONG_OK) {
        status = loongi_peft_values(of, &term->b, own);
    }
    for (int64_t r = 0; r < out && status == LOONG_OK; r++) {
        for (int64_t k = 0; k < wide; k++) {
            b[r * all + k] += of_b * own[r * wide + k];
        }
    }
    loongi_free(s->to->ctx, own);
    return status;
}

static loong_status_t matrix(const adder_t *s, const loong_peft_tensor_t *like,
                             int64_t rows, int64_t cols,
                             loong_peft_tensor_t *to)
{
    double *values = NULL;
    LOONG_TRY(loongi_arena_alloc(
        s->to->arena, (size_t)(rows * cols) * sizeof(*values), &values));
    loong_peft_tensor_t made = {s->sum->exact ? LOONG_F64 : like->stored,
                                LOONG_F64,
                                2,
                                {rows, cols},
                                values};
    *to = made;
    return LOONG_OK;
}

static loong_status_t add_module(const adder_t *s,
                                 const loong_peft_module_t *like)
{
    int64_t rank = rank_of(s, like->name);
    int64_t all = rank * LOONG_MAX(like->experts, 1);
    int64_t column = 0;
    loong_peft_module_t *to = &s->to->modules[s->to->num_modules++];
    LOONG_CHECK(s->to->ctx, like->magnitude.ndim == 0, LOONG_ERR_UNSUPPORTED,
                "%s: adapters with magnitudes (use_dora) are not added to "
                "others and not taken out again: a model is merged with one, "
                "with weight 1",
                like->name);
    LOONG_CHECK(s->to->ctx, rank > 0, LOONG_ERR_MISMATCH,
                "%s: adapters have other ranks, and their matrices cannot be "
                "added (linear); cat adds what they make",
                like->name);
    to->scale = 1.0;
    to->experts = like->experts;
    to->embedding = like->embedding;
    LOONG_TRY(
        loongi_arena_strdup(s->to->arena, like->name, (char **)&to->name));
    LOONG_TRY(matrix(s, &like->a, all, like->a.shape[1], &to->a));
    LOONG_TRY(matrix(s, &like->b, like->b.shape[0], all, &to->b));
    for (int64_t i = 0; i < s->sum->count; i++) {
        const loong_peft_module_t *m =
            loongi_peft_find(s->sum->terms[i], like->name);
        if (m == NULL) {
            continue;
        }
        LOONG_CHECK(s->to->ctx,
                    m->experts == like->experts &&
                        m->a.shape[1] == like->a.shape[1] &&
                        m->b.shape[0] == like->b.shape[0],
                    LOONG_ERR_MISMATCH, "%s: %s is of another size than in %s",
                    s->sum->terms[i]->path, m->name, s->sum->terms[0]->path);
        LOONG_TRY(
            add_term(s, m, s->sum->weights[i], column, s->sum->terms[i], to));
        column += !s->sum->linear ? loongi_peft_rank(m) : 0;
    }
    return LOONG_OK;
}

/* What replaces parameters of the base goes along where it is alone. */
static loong_status_t keep_saved(const adder_t *s)
{
    for (int64_t i = 0; i < s->sum->count; i++) {
        const loong_peft_t *t = s->sum->terms[i];
        LOONG_CHECK(s->to->ctx,
                    t->num_saved == 0 ||
                        (s->sum->count == 1 && s->sum->weights[0] == 1.0),
                    LOONG_ERR_UNSUPPORTED,
                    "%s: %s was trained as it is (modules_to_save, bias) and "
                    "takes the place of the base's: it has no weight other "
                    "than 1, and is not added to others",
                    t->path, t->saved[0].name);
        for (int64_t k = 0; k < t->num_saved; k++) {
            s->to->saved[s->to->num_saved++] = t->saved[k];
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_peft_add(loong_context_t *ctx,
                               const loong_peft_sum_t *sum,
                               loong_peft_t **peft_p)
{
    adder_t s = {.sum = sum};
    const loong_peft_t *first = sum->terms[0];
    int64_t modules = 0;
    for (int64_t i = 0; i < sum->count; i++) {
        modules += sum->terms[i]->num_modules;
    }
    LOONG_TRY(loongi_peft_create(ctx, modules, first->num_saved, &s.to));
    s.to->base = first->base;
    s.to->fan_in_fan_out = first->fan_in_fan_out;
    loong_status_t status = keep_saved(&s);
    for (int64_t i = 0; i < sum->count; i++) {
        const loong_peft_t *t = sum->terms[i];
        for (int64_t k = 0; k < t->num_modules && status == LOONG_OK; k++) {
            if (loongi_peft_find(s.to, t->modules[k].name) == NULL) {
                status = add_module(&s, &t->modules[k]);
            }
        }
    }
    if (status != LOONG_OK) {
        loongi_peft_destroy(&s.to);
        return status;
    }
    *peft_p = s.to;
    return LOONG_OK;
}
