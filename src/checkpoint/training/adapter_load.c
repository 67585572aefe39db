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
#include "peft.h"

typedef struct start {
    loong_context_t *ctx;
    const loong_hf_map_t *map;
    const loong_peft_t *peft;
} start_t;

static loong_status_t find(const start_t *s, const loong_chunk_param_t *p,
                           const loong_peft_tensor_t **tensor_p,
                           const loong_hf_param_t **base_p)
{
    char module[LOONG_HF_MODULE];
    char file[LOONG_HF_MODULE];
    bool first = loongi_lora_matrix(p->name, module) == LOONG_LORA_A;
    *base_p = loongi_lora_base(s->map, module);
    LOONG_CHECK(s->ctx, *base_p != NULL, LOONG_ERR_MISMATCH,
                "%s: no file has a matrix of this layer", p->name);
    loongi_lora_hf_module(s->map, *base_p, file);
    const loong_peft_module_t *m = loongi_peft_find(s->peft, file);
    LOONG_CHECK(s->ctx, m != NULL, LOONG_ERR_MISMATCH,
                "%s: there is no " LOONG_PEFT_PREFIX "%s.lora_%s.weight, which "
                "%s is: finetune.target_modules asks for it",
                s->peft->path, file, first ? "A" : "B", p->name);
    int64_t rank = m->a.shape[0];
    int64_t own = p->params.shape.dim[first ? 0 : 1];
    LOONG_CHECK(s->ctx, rank == own, LOONG_ERR_MISMATCH,
                "%s: %s has rank %lld, here it has %lld: finetune.rank or "
                "rank_pattern",
                s->peft->path, file, (long long)rank, (long long)own);
    LOONG_CHECK(s->ctx, fabs(m->scale - p->params.adapter) <= 1e-9 * m->scale,
                LOONG_ERR_MISMATCH,
                "%s: what %s makes is multiplied by %g, here by %g: "
                "finetune.alpha, alpha_pattern or use_rslora",
                s->peft->path, file, m->scale, p->params.adapter);
    *tensor_p = first ? &m->a : &m->b;
    return LOONG_OK;
}

/* The rows of the file's tensor that are the rank's, of all its columns. */
static loong_status_t load(const start_t *s, loong_stage_t *stage,
                           const loong_chunk_param_t *p)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    const loong_peft_tensor_t *tensor = NULL;
    const loong_hf_param_t *base = NULL;
    double *rows = NULL;
    LOONG_TRY(find(s, p, &tensor, &base));
    bool parts = base->parts > 1 && part.all_cols == tensor->shape[1] &&
                 part.all_rows != tensor->shape[0];
    LOONG_CHECK(s->ctx,
                part.all_cols == tensor->shape[1] &&
                    (parts || part.all_rows == tensor->shape[0]),
                LOONG_ERR_MISMATCH, "%s: %s is [%lld, %lld], here [%lld, %lld]",
                s->peft->path, p->name, (long long)tensor->shape[0],
                (long long)tensor->shape[1], (long long)part.all_rows,
                (long long)part.all_cols);
    int64_t cols = part.all_cols;
    LOONG_TRY(loongi_calloc(
        s->ctx, (size_t)(tensor->shape[0] * cols + part.rows * part.cols),
        sizeof(*rows), "an adapter", &rows));
    double *own = rows + tensor->shape[0] * cols;
    loong_status_t status = loongi_peft_values(s->peft, tensor, rows);
    for (int64_t r = 0, n = 0; r < part.rows; r += n) {
        n = 1;
        int64_t row = loongi_param_slice_row(&part, r, &n);
        n = 1;
        row = parts ? loongi_hf_file_row(base, row) : row;
        memcpy(own + r * part.cols, rows + row * cols + part.col,
               (size_t)part.cols * sizeof(*own));
    }
    if (status == LOONG_OK) {
        status =
            loongi_stage_set_param(stage, p, 0, part.rows * part.cols, own);
    }
    loongi_free(s->ctx, rows);
    return status;
}

static loong_status_t load_stage(const start_t *s, loong_stage_t *stage)
{
    loong_status_t status = loongi_stage_upload(stage);
    for (int64_t i = 0; i < stage->layout->num_params && status == LOONG_OK;
         i++) {
        if (stage->layout->params[i].params.adapter > 0.0) {
            status = load(s, stage, &stage->layout->params[i]);
        }
    }
    return loongi_stage_uploaded(stage, status);
}

loong_status_t loongi_adapter_load(loong_component_t *component,
                                   const loong_hf_map_t *map, const char *dir)
{
    loong_peft_t *peft = NULL;
    LOONG_TRY(loongi_peft_read(component->ctx, dir, &peft));
    const start_t s = {component->ctx, map, peft};
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < component->num_stages && status == LOONG_OK; i++) {
        status = load_stage(&s, component->stages[i]);
    }
    loongi_peft_destroy(&peft);
    return status;
}
