/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader. A row is T + 1 ids with a weight for each label and the document
 * starts inside it. All rows of a step are read when the step is checked and
 * stay; the arrays of a micro-batch are written from them. */
#include <inttypes.h>
#include <string.h>

#include "token_fields.h"

struct loong_loader {
    loong_context_t *ctx;
    loong_loader_params_t params;
    loong_token_layout_t layout;
    int64_t T;
    int64_t num_rows;        /* of this rank in the largest step */
    loong_token_row_t *rows; /* [num_rows] */
};

static loong_status_t check_batch(loong_context_t *ctx, const char *name,
                                  const loong_loader_params_t *p)
{
    int64_t unit = p->micro_batch_size * p->data_parallel_size;
    LOONG_CHECK(
        ctx, p->global_batch_size >= unit && p->global_batch_size % unit == 0,
        LOONG_ERR_CONFIG,
        "data '%s': global_batch_size %" PRId64
        " is not a multiple of micro_batch_size %" PRId64
        " x data-parallel size %d = %" PRId64,
        name, p->global_batch_size, p->micro_batch_size, p->data_parallel_size,
        unit);
    const loong_rampup_t *r = &p->rampup_batch_size;
    if (r->start == 0) {
        return LOONG_OK;
    }
    LOONG_CHECK(ctx, r->start > 0 && r->increment > 0 && r->samples > 0,
                LOONG_ERR_CONFIG,
                "data '%s': rampup_batch_size %" PRId64 " %" PRId64 " %" PRId64
                ", all three must be above 0",
                name, r->start, r->increment, r->samples);
    LOONG_CHECK(ctx,
                r->start <= p->global_batch_size &&
                    (p->global_batch_size - r->start) % r->increment == 0,
                LOONG_ERR_CONFIG,
                "data '%s': rampup_batch_size does not lead from %" PRId64
                " to global_batch_size %" PRId64 " in steps of %" PRId64,
                name, r->start, p->global_batch_size, r->increment);
    LOONG_CHECK(ctx, r->start % unit == 0 && r->increment % unit == 0,
                LOONG_ERR_CONFIG,
                "data '%s': rampup_batch_size start %" PRId64
                " and increment %" PRId64 " must be multiples of "
                "micro_batch_size x data-parallel size = %" PRId64,
                name, r->start, r->increment, unit);
    return LOONG_OK;
}

static loong_status_t check_params(loong_context_t *ctx,
                                   const loong_loader_params_t *p,
                                   const loong_blend_info_t *blend)
{
    const char *name = blend->name;
    LOONG_CHECK(ctx,
                p->data_parallel_size >= 1 && p->data_parallel_rank >= 0 &&
                    p->data_parallel_rank < p->data_parallel_size,
                LOONG_ERR_CONFIG, "data '%s': data-parallel rank %d of %d",
                name, p->data_parallel_rank, p->data_parallel_size);
    LOONG_CHECK(ctx,
                p->context_parallel_size >= 1 &&
                    p->context_parallel_rank >= 0 &&
                    p->context_parallel_rank < p->context_parallel_size,
                LOONG_ERR_CONFIG, "data '%s': context-parallel rank %d of %d",
                name, p->context_parallel_rank, p->context_parallel_size);
    LOONG_CHECK(ctx,
                p->context_parallel_size == 1 ||
                    blend->seq_length % (2 * p->context_parallel_size) == 0,
                LOONG_ERR_CONFIG,
                "data '%s': seq_length %" PRId64 " is no multiple of 2 x %d "
                "context-parallel ranks",
                name, blend->seq_length, p->context_parallel_size);
    LOONG_CHECK(ctx,
                p->context_parallel_a2a == 0 ||
                    (p->context_parallel_a2a > 0 &&
                     p->context_parallel_size % p->context_parallel_a2a == 0),
                LOONG_ERR_CONFIG,
                "data '%s': %d of %d context-parallel ranks exchange heads",
                name, p->context_parallel_a2a, p->context_parallel_size);
    LOONG_CHECK(ctx,
                p->micro_batch_size >= 1 &&
                    p->micro_batch_size <= INT32_MAX / blend->seq_length,
                LOONG_ERR_CONFIG,
                "data '%s': micro_batch_size %" PRId64
                ", allowed is 1 to %" PRId64 " with seq_length %" PRId64,
                name, p->micro_batch_size, INT32_MAX / blend->seq_length,
                blend->seq_length);
    LOONG_CHECK(ctx, p->vocab_size >= 1 && p->vocab_size <= INT32_MAX,
                LOONG_ERR_CONFIG, "data '%s': vocab_size %" PRId64, name,
                p->vocab_size);
    LOONG_TRY(check_batch(ctx, name, p));
    int64_t most = p->num_samples > 0 ? p->num_samples : blend->epoch_samples;
    LOONG_CHECK(ctx, p->data_parallel_size <= most, LOONG_ERR_CONFIG,
                "data '%s': %d data-parallel ranks share %" PRId64
                " samples: use fewer ranks, more data or a shorter seq_length",
                name, p->data_parallel_size, most);
    LOONG_CHECK(ctx, p->num_samples <= blend->max_samples, LOONG_ERR_CONFIG,
                "data '%s': %" PRId64
                " samples wanted, max_epochs allows %" PRId64,
                name, p->num_samples, blend->max_samples);
    return LOONG_OK;
}

static loong_status_t alloc_rows(loong_loader_t *loader)
{
    const loong_loader_params_t *p = &loader->params;
    size_t n = (size_t)loader->T + 1;
    size_t row = (size_t)loongi_round_up((int64_t)(n * (sizeof(int32_t) + 2)),
                                         (int64_t)sizeof(int32_t));
    char *memory = NULL;
    loader->num_rows = p->global_batch_size / p->data_parallel_size;
    size_t rows = (size_t)loader->num_rows;
    LOONG_TRY(loongi_calloc(loader->ctx, rows, sizeof(*loader->rows),
                            "loader rows", &loader->rows));
    LOONG_TRY(
        loongi_calloc(loader->ctx, rows, row, "samples of a step", &memory));
    for (size_t r = 0; r < rows; r++) {
        loader->rows[r].draw = -1;
        loader->rows[r].ids = (int32_t *)(void *)(memory + r * row);
        loader->rows[r].weight = (uint8_t *)(loader->rows[r].ids + n);
        loader->rows[r].starts = loader->rows[r].weight + n;
    }
    return LOONG_OK;
}

loong_token_layout_t loongi_loader_layout(const loong_loader_params_t *params,
                                          int64_t seq_length)
{
    loong_token_layout_t layout = {seq_length,
                                   params->micro_batch_size,
                                   params->context_parallel_rank,
                                   params->context_parallel_size,
                                   params->context_parallel_a2a,
                                   params->reset_position_ids,
                                   params->reset_attention_mask,
                                   params->num_vision_ids,
                                   params->vision_ids};
    return layout;
}

loong_status_t loong_loader_create(loong_context_t *ctx,
                                   const loong_loader_params_t *params,
                                   loong_loader_t **loader_p)
{
    loong_loader_t *loader = NULL;
    loong_blend_info_t blend;
    loong_blend_get_info(params->blend, &blend);
    LOONG_TRY(check_params(ctx, params, &blend));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*loader), "loader", &loader));
    if (params->num_samples == 0 &&
        params->global_batch_size > blend.epoch_samples) {
        loongi_log(ctx, LOONG_LOG_WARN,
                   "data '%s': a step of %" PRId64 " samples takes some of the "
                   "%" PRId64 " there are more than once",
                   blend.name, params->global_batch_size, blend.epoch_samples);
    }
    loader->ctx = ctx;
    loader->params = *params;
    loader->T = blend.seq_length;
    loader->layout = loongi_loader_layout(params, loader->T);
    loader->layout.vision_ids = loader->params.vision_ids;
    loong_status_t status = alloc_rows(loader);
    if (status != LOONG_OK) {
        loong_loader_destroy(&loader);
        return status;
    }
    *loader_p = loader;
    return LOONG_OK;
}

void loong_loader_destroy(loong_loader_t **loader_p)
{
    loong_loader_t *loader = *loader_p;
    if (loader == NULL) {
        return;
    }
    if (loader->rows != NULL) {
        loongi_free(loader->ctx, loader->rows[0].ids);
    }
    loongi_free(loader->ctx, loader->rows);
    loongi_free(loader->ctx, loader);
    *loader_p = NULL;
}

int64_t loong_loader_batch(const loong_loader_t *loader, int64_t consumed)
{
    const loong_rampup_t *r = &loader->params.rampup_batch_size;
    int64_t full = loader->params.global_batch_size;
    if (r->start == 0 || consumed >= r->samples) {
        return full;
    }
    int64_t steps = (full - r->start) / r->increment;
    return r->start + r->increment * (consumed * steps / r->samples);
}

int64_t loong_loader_micro_batches(const loong_loader_t *loader,
                                   int64_t consumed)
{
    return loong_loader_batch(loader, consumed) /
           (loader->params.micro_batch_size *
            loader->params.data_parallel_size);
}

/* Draw of a row of this rank in a step. */
static int64_t row_draw(const loong_loader_t *loader, int64_t consumed,
                        int64_t micro_batch, int64_t row)
{
    const loong_loader_params_t *p = &loader->params;
    return consumed +
           (micro_batch * p->data_parallel_size + p->data_parallel_rank) *
               p->micro_batch_size +
           row;
}

static bool past_end(const loong_loader_t *loader, int64_t g)
{
    return loader->params.num_samples > 0 && g >= loader->params.num_samples;
}

/* Marks the document starts among the T + 1 tokens from `token` on. */
static loong_status_t mark_starts(const loong_loader_t *loader,
                                  const loong_dataset_t *dataset, int64_t token,
                                  uint8_t *starts)
{
    int64_t end = token + loader->T + 1;
    loong_dataset_info_t info;
    loong_dataset_get_info(dataset, &info);
    memset(starts, 0, (size_t)loader->T + 1);
    int64_t document = loong_dataset_find_document(dataset, token);
    int64_t start = document < 0 ? -1 : 0;
    for (; start >= 0 && document < info.documents; document++) {
        start = loong_dataset_get_start(dataset, document);
        if (start >= end) {
            break;
        }
        if (start >= token) {
            starts[start - token] = 1;
        }
    }
    return start < 0 ? LOONG_ERR_FORMAT : LOONG_OK;
}

static loong_status_t read_sample(const loong_loader_t *loader, int64_t g,
                                  loong_token_row_t *row)
{
    const loong_loader_params_t *p = &loader->params;
    int64_t T = loader->T;
    loong_sample_t sample;
    loong_blend_source_info_t source;
    LOONG_TRY(loong_blend_locate(p->blend, g, &sample));
    loong_blend_get_source(p->blend, sample.source, &source);
    LOONG_TRY(loong_dataset_read(source.dataset, sample.token, T + 1,
                                 p->vocab_size, row->ids));
    LOONG_TRY(loong_dataset_read_mask(source.dataset, sample.token + 1, T,
                                      row->weight));
    if (p->eod_mask_loss || p->reset_position_ids || p->reset_attention_mask) {
        LOONG_TRY(
            mark_starts(loader, source.dataset, sample.token, row->starts));
    }
    for (int64_t t = 0; p->eod_mask_loss && t < T; t++) {
        if (row->starts[t + 1]) {
            row->weight[t] = 0;
        }
    }
    return LOONG_OK;
}

/* A row of this rank in a step, read unless it is here. */
static loong_status_t get_row(loong_loader_t *loader, int64_t consumed,
                              int64_t micro_batch, int64_t j,
                              loong_token_row_t **row_p)
{
    int64_t g = row_draw(loader, consumed, micro_batch, j);
    loong_token_row_t *row =
        &loader->rows[micro_batch * loader->params.micro_batch_size + j];
    *row_p = row;
    if (row->draw == g) {
        return LOONG_OK;
    }
    row->draw = -1;
    row->count = 0;
    if (past_end(loader, g)) {
        memset(row->ids, 0, (size_t)(loader->T + 1) * sizeof(*row->ids));
        memset(row->weight, 0, (size_t)loader->T + 1);
        memset(row->starts, 0, (size_t)loader->T + 1);
    } else {
        LOONG_TRY(read_sample(loader, g, row));
    }
    int64_t own = loader->T / loader->params.context_parallel_size;
    for (int64_t i = 0; i < own; i++) {
        row->count += row->weight[loongi_token_place(&loader->layout, i)];
    }
    row->draw = g;
    return LOONG_OK;
}

loong_status_t loong_loader_check_step(loong_loader_t *loader, int64_t consumed,
                                       int64_t *loss_tokens_p)
{
    int64_t micro_batches = loong_loader_micro_batches(loader, consumed);
    int64_t total = 0;
    for (int64_t k = 0; k < micro_batches; k++) {
        for (int64_t j = 0; j < loader->params.micro_batch_size; j++) {
            loong_token_row_t *row = NULL;
            LOONG_TRY(get_row(loader, consumed, k, j, &row));
            total += row->count;
        }
    }
    *loss_tokens_p = total;
    return LOONG_OK;
}

loong_status_t loong_loader_fill(loong_loader_t *loader, int64_t consumed,
                                 int64_t micro_batch, int num_fields,
                                 const loong_field_t *fields)
{
    int64_t rows = loader->params.micro_batch_size;
    LOONG_CHECK(loader->ctx,
                micro_batch >= 0 &&
                    micro_batch < loong_loader_micro_batches(loader, consumed),
                LOONG_ERR_ARG, "micro-batch %" PRId64 " of %" PRId64,
                micro_batch, loong_loader_micro_batches(loader, consumed));
    for (int64_t j = 0; j < rows; j++) {
        loong_token_row_t *row = NULL;
        LOONG_TRY(get_row(loader, consumed, micro_batch, j, &row));
    }
    for (int i = 0; i < num_fields; i++) {
        LOONG_TRY(loongi_token_field_fill(loader->ctx, &loader->layout,
                                          &loader->rows[micro_batch * rows],
                                          &fields[i]));
    }
    return LOONG_OK;
}

void loong_loader_prefetch(const loong_loader_t *loader, int64_t consumed)
{
    const loong_loader_params_t *p = &loader->params;
    int64_t micro_batches = loong_loader_micro_batches(loader, consumed);
    loong_blend_info_t blend;
    loong_blend_get_info(p->blend, &blend);
    for (int64_t i = 0; i < micro_batches * p->micro_batch_size; i++) {
        int64_t g = row_draw(loader, consumed, i / p->micro_batch_size,
                             i % p->micro_batch_size);
        loong_sample_t sample;
        loong_blend_source_info_t source;
        if (past_end(loader, g) || g >= blend.max_samples ||
            loong_blend_locate(p->blend, g, &sample) != LOONG_OK) {
            return;
        }
        loong_blend_get_source(p->blend, sample.source, &source);
        loong_dataset_prefetch(source.dataset, sample.token, loader->T + 1);
    }
}
