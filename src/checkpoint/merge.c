/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of adapters, and models with them in. Called by loong-ckpt merge. Read
 * loong/checkpoint.h and peft.h before.
 *
 * A model is merged as a checkpoint of adapters is that is exported so: the sum
 * becomes one beside OUT, which goes when the model is there. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_adapters.h"
#include "loong/checkpoint.h"
#include "native.h"
#include "peft_import.h"

#define WORK ".merge.partial" /* behind the name of OUT */

typedef struct merger {
    loong_context_t *ctx;
    const loong_checkpoint_merge_params_t *params;
    int64_t count;    /* of adapters */
    const char *base; /* NULL: there is no model */
    const loong_peft_t **terms;
    char work[4096]; /* what is made on the way, beside OUT */
} merger_t;

/* All are adapters but the last, which may be a model. */
static loong_status_t sort_inputs(merger_t *m)
{
    const loong_checkpoint_merge_params_t *p = m->params;
    m->count = p->count;
    for (int64_t i = 0; i < p->count; i++) {
        const char *dir = p->inputs[i];
        LOONG_TRY(loongi_checkpoint_check_place(m->ctx, dir));
        if (loongi_peft_is(dir)) {
            continue;
        }
        LOONG_CHECK(m->ctx, !loongi_checkpoint_is_native(dir), LOONG_ERR_ARG,
                    "'%s' is a native checkpoint: loong-ckpt export makes "
                    "adapters of it, or with --merge the model",
                    dir);
        LOONG_CHECK(m->ctx, i > 0 && i == p->count - 1 && p->weights[i] == 1.0,
                    LOONG_ERR_ARG,
                    "'%s' has no adapters (" LOONG_PEFT_CONFIG "): a model "
                    "stands behind all adapters, and has no weight",
                    dir);
        m->base = dir;
        m->count--;
    }
    return LOONG_OK;
}

static loong_status_t check_weights(const merger_t *m)
{
    const loong_checkpoint_merge_params_t *p = m->params;
    for (int64_t i = 0; i < p->count; i++) {
        LOONG_CHECK(m->ctx, isfinite(p->weights[i]), LOONG_ERR_ARG,
                    "'%s' has the weight %g: a number is wanted", p->inputs[i],
                    p->weights[i]);
    }
    return LOONG_OK;
}

static loong_status_t name_work(merger_t *m)
{
    const char *out = m->params->out_dir;
    size_t length = strlen(out);
    while (length > 1 && out[length - 1] == '/') {
        length--;
    }
    LOONG_CHECK(m->ctx, length + sizeof(WORK) <= sizeof(m->work), LOONG_ERR_ARG,
                "'%s' is too long a path", out);
    snprintf(m->work, sizeof(m->work), "%.*s" WORK, (int)length, out);
    return LOONG_OK;
}

/* Nothing that is read is written. */
static loong_status_t check_output(const merger_t *m)
{
    const loong_checkpoint_merge_params_t *p = m->params;
    for (int64_t i = 0; i < p->count; i++) {
        LOONG_CHECK(m->ctx,
                    !loongi_file_same(p->inputs[i], p->out_dir) &&
                        !loongi_file_same(p->inputs[i], m->work),
                    LOONG_ERR_ARG,
                    "'%s' cannot be merged onto itself: another directory is "
                    "wanted",
                    p->inputs[i]);
    }
    LOONG_CHECK(m->ctx, !loongi_checkpoint_is_native(p->out_dir), LOONG_ERR_ARG,
                "'%s' has checkpoints: another directory is wanted",
                p->out_dir);
    return LOONG_OK;
}

static loong_status_t check_bases(const merger_t *m)
{
    const char *first = m->terms[0]->base;
    for (int64_t i = 1; i < m->count && m->base == NULL; i++) {
        const char *other = m->terms[i]->base;
        LOONG_CHECK(m->ctx,
                    first == NULL || other == NULL || strcmp(first, other) == 0,
                    LOONG_ERR_MISMATCH,
                    "%s is beside '%s' and %s beside '%s': adapters of one "
                    "model are wanted",
                    m->terms[0]->path, first, m->terms[i]->path, other);
    }
    return LOONG_OK;
}

/* An adapter that is there is of the same model. */
static loong_status_t check_replaced(const merger_t *m, const loong_peft_t *sum,
                                     const char *dir)
{
    loong_peft_t *old = NULL;
    if (!loongi_peft_is(dir)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_peft_read(m->ctx, dir, &old));
    bool same = old->base == NULL || sum->base == NULL ||
                strcmp(old->base, sum->base) == 0;
    loong_status_t status =
        same ? LOONG_OK
             : LOONG_FAIL(m->ctx, LOONG_ERR_ARG,
                          "'%s' has an adapter beside '%s', this one is beside "
                          "'%s': another directory is wanted",
                          dir, old->base, sum->base);
    loongi_peft_destroy(&old);
    return status;
}

/* One adapter, without what the model beside it has as well. */
static loong_status_t read_term(const merger_t *m, int64_t i)
{
    loong_peft_t *term = NULL;
    loong_hf_t *hf = NULL;
    LOONG_TRY(loongi_peft_read(m->ctx, m->params->inputs[i], &term));
    m->terms[i] = term;
    const char *base = loongi_peft_base(term, m->base);
    if (base == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_open(m->ctx, base, &hf));
    loong_status_t status = loongi_lora_fit(term, hf);
    loongi_hf_close(&hf);
    return status;
}

/* Writes the sum; `exact` where it is rounded later. */
static loong_status_t add(merger_t *m, const char *dir)
{
    const loong_checkpoint_merge_params_t *p = m->params;
    loong_peft_t *sum = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_calloc(m->ctx, (size_t)m->count, sizeof(*m->terms),
                            "adapters", &m->terms));
    for (int64_t i = 0; i < m->count && status == LOONG_OK; i++) {
        status = read_term(m, i);
    }
    if (status == LOONG_OK) {
        status = check_bases(m);
    }
    const loong_peft_sum_t terms = {m->count, m->terms, p->weights, p->linear,
                                    m->base != NULL};
    if (status == LOONG_OK) {
        status = loongi_peft_add(m->ctx, &terms, &sum);
    }
    if (status == LOONG_OK && p->svd_rank > 0) {
        status = loongi_peft_truncate(sum, p->svd_rank);
    }
    if (status == LOONG_OK) {
        status = check_replaced(m, sum, dir);
    }
    if (status == LOONG_OK) {
        status = loongi_peft_write(sum, dir);
    }
    loongi_peft_destroy(&sum);
    for (int64_t i = 0; i < m->count; i++) {
        loongi_peft_destroy((loong_peft_t **)&m->terms[i]);
    }
    loongi_free(m->ctx, m->terms);
    return status;
}

static loong_status_t merge(merger_t *m)
{
    const loong_checkpoint_merge_params_t *p = m->params;
    bool alone = m->count == 1 && p->weights[0] == 1.0 && p->svd_rank == 0;
    char sum[sizeof(m->work) + 8];
    char native[sizeof(m->work) + 8];
    snprintf(sum, sizeof(sum), "%s/sum", m->work);
    snprintf(native, sizeof(native), "%s/native", m->work);
    const loong_checkpoint_import_params_t import = {
        .hf_dir = alone ? p->inputs[0] : sum,
        .save_dir = native,
        .names = {.base = m->base}};
    const loong_checkpoint_export_params_t export = {.checkpoint = native,
                                                     .out_dir = p->out_dir,
                                                     .convert = p->convert,
                                                     .dtype = p->dtype,
                                                     .max_shard_bytes =
                                                         p->max_shard_bytes,
                                                     .bos_token_id = -1,
                                                     .eos_token_id = -1,
                                                     .pad_token_id = -1,
                                                     .merge = true,
                                                     .progress = p->progress,
                                                     .user = p->user};
    LOONG_TRY(alone ? LOONG_OK : add(m, sum));
    LOONG_TRY(loong_checkpoint_import(m->ctx, &import));
    return loong_checkpoint_export(m->ctx, &export);
}

loong_status_t
loong_checkpoint_merge(loong_context_t *ctx,
                       const loong_checkpoint_merge_params_t *params)
{
    merger_t m = {.ctx = ctx, .params = params};
    LOONG_CHECK(ctx, !params->linear || params->svd_rank == 0, LOONG_ERR_ARG,
                "adapters are added by their matrices (linear), or what they "
                "make is approximated (svd)");
    LOONG_TRY(loongi_checkpoint_check_outside(ctx, params->out_dir));
    LOONG_TRY(name_work(&m));
    LOONG_TRY(sort_inputs(&m));
    LOONG_TRY(check_output(&m));
    LOONG_TRY(check_weights(&m));
    if (m.base == NULL) {
        return add(&m, params->out_dir);
    }
    LOONG_TRY(loongi_dir_remove(ctx, m.work)); /* of one that was killed */
    loong_status_t status = merge(&m);
    loong_status_t removed = loongi_dir_remove(ctx, m.work);
    return status != LOONG_OK ? status : removed;
}
