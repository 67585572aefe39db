/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters that a training starts with, from peft's files. Called by
 * stage_load.c. Read adapter_start.h and hf_adapters.h before. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapter_start.h"
#include "convert.h"
#include "hf_adapters.h"
#include "json.h"
#include "safetensors.h"

typedef struct start {
    loong_context_t *ctx;
    const loong_hf_map_t *map;
    const char *dir;
    loong_safetensors_t *file;
    loong_json_t *config;
} start_t;

static double number(const loong_json_t *json, const char *key,
                     double otherwise)
{
    const loong_json_t *value = loongi_json_get(json, key);
    return value != NULL ? loongi_json_real(value) : otherwise;
}

/* Of a pattern's entries those that name the module, by its path or its end. */
static double pattern(const loong_json_t *json, const char *module,
                      double otherwise)
{
    const loong_json_member_t *m = NULL;
    for (m = json != NULL ? loongi_json_first(json) : NULL; m != NULL;
         m = loongi_json_next(json, m)) {
        const char *key = loongi_json_member_key(m);
        size_t length = strlen(module);
        size_t tail = strlen(key);
        if (tail <= length && strcmp(module + length - tail, key) == 0 &&
            (tail == length || module[length - tail - 1] == '.')) {
            otherwise = loongi_json_real(loongi_json_member_value(m));
        }
    }
    return otherwise;
}

/* What peft multiplies the module's adapter by. */
static double scale_of(const start_t *s, const char *module, int64_t rank)
{
    const loong_json_t *rs = loongi_json_get(s->config, "use_rslora");
    double alpha = pattern(loongi_json_get(s->config, "alpha_pattern"), module,
                           number(s->config, "lora_alpha", 8.0));
    return alpha / (rs != NULL && loongi_json_bool(rs) ? sqrt((double)rank)
                                                       : (double)rank);
}

static loong_status_t find(const start_t *s, const loong_chunk_param_t *p,
                           const loong_safetensor_t **tensor_p,
                           const loong_hf_param_t **base_p)
{
    char module[LOONG_HF_MODULE];
    char file[LOONG_HF_MODULE];
    char name[LOONG_HF_MODULE + 64];
    loong_lora_matrix_t matrix = loongi_lora_matrix(p->name, module);
    *base_p = loongi_lora_base(s->map, module);
    LOONG_CHECK(s->ctx, *base_p != NULL, LOONG_ERR_MISMATCH,
                "%s: no file has a matrix of this layer", p->name);
    loongi_lora_hf_module(s->map, *base_p, file);
    snprintf(name, sizeof(name), LOONG_PEFT_PREFIX "%s.lora_%s.weight", file,
             matrix == LOONG_LORA_A ? "A" : "B");
    *tensor_p = loongi_safetensors_find(s->file, name);
    LOONG_CHECK(s->ctx, *tensor_p != NULL, LOONG_ERR_MISMATCH,
                "%s/" LOONG_PEFT_WEIGHTS ": there is no %s, which %s is: "
                "finetune.target_modules asks for it",
                s->dir, name, p->name);
    int64_t rank = (*tensor_p)->shape[matrix == LOONG_LORA_A ? 0 : 1];
    int64_t own = p->params.shape.dim[matrix == LOONG_LORA_A ? 0 : 1];
    LOONG_CHECK(s->ctx, (*tensor_p)->ndim == 2 && rank == own,
                LOONG_ERR_MISMATCH,
                "%s: %s has rank %lld, here it has %lld: finetune.rank or "
                "rank_pattern",
                s->dir, name, (long long)rank, (long long)own);
    double scale = scale_of(s, file, rank);
    LOONG_CHECK(s->ctx, fabs(scale - p->params.adapter) <= 1e-9 * scale,
                LOONG_ERR_MISMATCH,
                "%s: what %s makes is multiplied by %g, here by %g: "
                "finetune.alpha, alpha_pattern or use_rslora",
                s->dir, name, scale, p->params.adapter);
    return LOONG_OK;
}

/* The rows of the file's tensor that are the rank's, of all its columns. */
static loong_status_t load(const start_t *s, loong_stage_t *stage,
                           const loong_chunk_param_t *p)
{
    loong_param_slice_t part = loongi_param_slice_of(p);
    const loong_safetensor_t *tensor = NULL;
    const loong_hf_param_t *base = NULL;
    double *rows = NULL;
    LOONG_TRY(find(s, p, &tensor, &base));
    bool parts = base->parts > 1 && part.all_cols == tensor->shape[1] &&
                 part.all_rows != tensor->shape[0];
    LOONG_CHECK(s->ctx,
                part.all_cols == tensor->shape[1] &&
                    (parts || part.all_rows == tensor->shape[0]),
                LOONG_ERR_MISMATCH, "%s: %s is [%lld, %lld], here [%lld, %lld]",
                s->dir, tensor->name, (long long)tensor->shape[0],
                (long long)tensor->shape[1], (long long)part.all_rows,
                (long long)part.all_cols);
    int64_t cols = part.all_cols;
    LOONG_TRY(loongi_calloc(
        s->ctx, (size_t)(tensor->shape[0] * cols + part.rows * part.cols),
        sizeof(*rows), "an adapter", &rows));
    double *own = rows + tensor->shape[0] * cols;
    loong_status_t status =
        loongi_convert(s->ctx, tensor->dtype, tensor->data, LOONG_F64, rows,
                       tensor->shape[0] * cols);
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
    start_t s = {component->ctx, map, dir, NULL, NULL};
    char path[4096];
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_CONFIG, dir);
    LOONG_TRY(loongi_json_load(s.ctx, path, &s.config));
    snprintf(path, sizeof(path), "%s/" LOONG_PEFT_WEIGHTS, dir);
    loong_status_t status = loongi_safetensors_open(s.ctx, path, &s.file);
    for (int i = 0; i < component->num_stages && status == LOONG_OK; i++) {
        status = load_stage(&s, component->stages[i]);
    }
    loongi_safetensors_close(&s.file);
    loongi_json_destroy(&s.config);
    return status;
}
