/* SPDX-License-Identifier: Apache-2.0 */
#include "stage_load.h"

#include <string.h>

/* Rows of a parameter that exist outside: all but the padding of the
 * vocabulary. */
static int64_t real_rows(const loong_stage_t *s, const loong_param_place_t *p)
{
    const loong_decoder_config_t *c = &s->params.model;
    bool vocabulary = strcmp(p->name, "embed_tokens.weight") == 0 ||
                      strcmp(p->name, "lm_head.weight") == 0;
    return vocabulary ? LOONG_MIN(p->params.shape.dim[0], c->vocab_size)
                      : p->params.shape.dim[0];
}

static int64_t row_length(const loong_param_place_t *p)
{
    return p->elements / p->params.shape.dim[0];
}

static loong_status_t check_names(const loong_stage_t *s, const loong_hf_t *hf)
{
    loong_hf_wanted_t *wanted = NULL;
    int64_t count = s->layout->num_params;
    LOONG_TRY(loongi_calloc(s->ctx, (size_t)count, sizeof(*wanted),
                            "wanted parameters", &wanted));
    for (int64_t i = 0; i < count; i++) {
        const loong_param_place_t *p = &s->layout->params[i];
        wanted[i].name = p->name;
        wanted[i].ndim = p->params.shape.rank;
        wanted[i].shape[0] = real_rows(s, p);
        wanted[i].shape[1] = p->params.shape.dim[1];
    }
    loong_status_t status = loongi_hf_check(hf, wanted, count);
    loongi_free(s->ctx, wanted);
    return status;
}

static loong_status_t load_param(loong_stage_t *s, const loong_hf_t *hf,
                                 const loong_param_place_t *p, double *buffer,
                                 int64_t room)
{
    int64_t length = row_length(p);
    int64_t rows = real_rows(s, p);
    int64_t step = LOONG_MAX(room / length, 1);
    for (int64_t row = 0; row < rows; row += step) {
        int64_t n = LOONG_MIN(step, rows - row);
        LOONG_TRY(loongi_hf_read(hf, p->name, row, n, LOONG_F64, buffer));
        loongi_stage_set_param(s, p, row * length, n * length, buffer);
    }
    memset(buffer, 0, (size_t)length * sizeof(*buffer));
    for (int64_t row = rows; row < p->params.shape.dim[0]; row++) {
        loongi_stage_set_param(s, p, row * length, length, buffer);
    }
    return LOONG_OK;
}

loong_status_t loongi_stage_load_hf(loong_stage_t *stage, const loong_hf_t *hf)
{
    int64_t room = 1024 * 1024;
    double *buffer = NULL;
    LOONG_TRY(check_names(stage, hf));
    for (int64_t i = 0; i < stage->layout->num_params; i++) {
        room = LOONG_MAX(room, row_length(&stage->layout->params[i]));
    }
    LOONG_TRY(loongi_calloc(stage->ctx, (size_t)room, sizeof(*buffer),
                            "rows of a checkpoint", &buffer));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < stage->layout->num_params && status == LOONG_OK;
         i++) {
        status = load_param(stage, hf, &stage->layout->params[i], buffer, room);
    }
    loongi_free(stage->ctx, buffer);
    return status;
}
