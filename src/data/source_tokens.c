/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of token ids: an indexed data set, or a share of its documents, cut
 * into samples of T + 1 ids, or taken by documents. Called through
 * loong_source_class_t; the formula is in loong/blend.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base.h"
#include "source_tokens.h"

typedef struct source {
    loong_context_t *ctx;
    loong_dataset_t *dataset;
    int64_t T;
    loong_source_info_t info;
} source_t;

static void close_source(void *opaque)
{
    source_t *s = opaque;
    if (s != NULL) {
        loong_dataset_destroy(&s->dataset);
        loongi_free(s->ctx, s);
    }
}

static void choose_documents(const loong_source_params_t *p, int64_t documents,
                             loong_source_info_t *info)
{
    int64_t end = documents;
    if (p->split_end > 0) {
        info->first_document =
            (int64_t)floor(p->split_begin * (double)documents);
        end = (int64_t)floor(p->split_end * (double)documents);
    }
    info->documents = end - info->first_document;
}

/* Takes the documents of the split. */
static loong_status_t read_index(source_t *s, const loong_source_params_t *p)
{
    loong_source_info_t *info = &s->info;
    loong_dataset_info_t data;
    LOONG_TRY(
        loong_dataset_create_known(s->ctx, p->path, p->known, &s->dataset));
    loong_dataset_get_info(s->dataset, &data);
    info->dataset = s->dataset;
    info->path = data.prefix;
    info->hash = data.hash;
    choose_documents(p, data.documents, info);
    info->first_token =
        loong_dataset_get_start(s->dataset, info->first_document);
    int64_t end = loong_dataset_get_start(s->dataset, info->first_document +
                                                          info->documents);
    if (info->first_token < 0 || end < 0) {
        return LOONG_ERR_FORMAT;
    }
    info->tokens = end - info->first_token;
    info->samples = info->documents;
    LOONG_CHECK(s->ctx, data.tokens > 0, LOONG_ERR_FORMAT,
                "data '%s': '%s' is empty: %" PRId64 " documents, 0 tokens",
                p->data, p->path, data.documents);
    return LOONG_OK;
}

/* Cuts them into samples. */
static loong_status_t cut(source_t *s, const loong_source_params_t *p)
{
    loong_source_info_t *info = &s->info;
    loong_dataset_info_t data;
    LOONG_TRY(read_index(s, p));
    loong_dataset_get_info(s->dataset, &data);
    info->samples = (info->tokens - 1) / s->T;
    LOONG_CHECK(s->ctx, info->tokens > s->T, LOONG_ERR_FORMAT,
                "data '%s': '%s' has %" PRId64 " tokens in %" PRId64
                " of %" PRId64 " documents, one sample of seq_length %" PRId64
                " takes %" PRId64,
                p->data, p->path, info->tokens, info->documents, data.documents,
                s->T, s->T + 1);
    return LOONG_OK;
}

static loong_status_t
open_as(loong_context_t *ctx, const loong_source_params_t *params,
        loong_status_t (*make)(source_t *s, const loong_source_params_t *p),
        void **source_p)
{
    source_t *s = NULL;
    LOONG_CHECK(ctx, params->seq_length >= 1 && params->seq_length < INT32_MAX,
                LOONG_ERR_CONFIG,
                "data '%s': seq_length %" PRId64 ", must be 1 or more",
                params->data, params->seq_length);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "source of tokens", &s));
    s->ctx = ctx;
    s->T = params->seq_length;
    loong_status_t status = make(s, params);
    if (status != LOONG_OK) {
        close_source(s);
        return status;
    }
    *source_p = s;
    return LOONG_OK;
}

static loong_status_t open_source(loong_context_t *ctx,
                                  const loong_source_params_t *params,
                                  void **source_p)
{
    return open_as(ctx, params, cut, source_p);
}

static void get_info(const void *source, loong_source_info_t *info)
{
    *info = ((const source_t *)source)->info;
}

/* Marks the document starts among the T + 1 tokens from `token` on. */
static loong_status_t mark_starts(const source_t *s, int64_t token,
                                  uint8_t *starts)
{
    int64_t end = token + s->T + 1;
    loong_dataset_info_t info;
    loong_dataset_get_info(s->dataset, &info);
    int64_t document = loong_dataset_find_document(s->dataset, token);
    int64_t start = document < 0 ? -1 : 0;
    for (; start >= 0 && document < info.documents; document++) {
        start = loong_dataset_get_start(s->dataset, document);
        if (start >= end) {
            break;
        }
        if (start >= token) {
            starts[start - token] = 1;
        }
    }
    return start < 0 ? LOONG_ERR_FORMAT : LOONG_OK;
}

static loong_status_t read_sample(const void *source, int64_t i,
                                  loong_items_t *items)
{
    const source_t *s = source;
    size_t n = (size_t)s->T + 1;
    int64_t token = s->info.first_token + i * s->T;
    LOONG_TRY(loongi_items_tokens(items, (int64_t)n));
    loong_item_t *item = &items->item[0];
    LOONG_TRY(loong_dataset_read(s->dataset, token, (int64_t)n,
                                 items->vocab_size, item->ids));
    LOONG_TRY(
        loong_dataset_read_mask(s->dataset, token, (int64_t)n, item->weight));
    return items->unmarked ? LOONG_OK : mark_starts(s, token, item->starts);
}

loong_status_t loongi_items_tokens(loong_items_t *items, int64_t count)
{
    enum { PADDING = 3 * 64 };
    size_t n = (size_t)count;
    LOONG_TRY(loong_items_begin(items, n * (sizeof(int32_t) + 2) + PADDING));
    loong_item_t *item = &items->item[items->count++];
    memset(item, 0, sizeof(*item));
    item->type = LOONG_ITEM_TOKENS;
    item->size[0] = count;
    item->ids = loong_items_take(items, n * sizeof(*item->ids));
    item->weight = loong_items_take(items, n);
    item->starts = loong_items_take(items, n);
    memset(item->starts, 0, n);
    return LOONG_OK;
}

static void prefetch(const void *source, int64_t i)
{
    const source_t *s = source;
    loong_dataset_prefetch(s->dataset, s->info.first_token + i * s->T,
                           s->T + 1);
}

const loong_source_class_t loongi_token_source = {
    .struct_size = sizeof(loongi_token_source),
    .name = "tokens",
    .open = open_source,
    .close = close_source,
    .get_info = get_info,
    .read = read_sample,
    .prefetch = prefetch};

/* ---- by documents -------------------------------------------------------- */

static loong_status_t open_documents(loong_context_t *ctx,
                                     const loong_source_params_t *params,
                                     void **source_p)
{
    return open_as(ctx, params, read_index, source_p);
}

/* Where document i of the split lies. */
static loong_status_t find_document(const source_t *s, int64_t i,
                                    int64_t *token_p, int64_t *count_p)
{
    int64_t document = s->info.first_document + i;
    int64_t end = loong_dataset_get_start(s->dataset, document + 1);
    *token_p = loong_dataset_get_start(s->dataset, document);
    *count_p = end - *token_p;
    return *token_p < 0 || end < 0 ? LOONG_ERR_FORMAT : LOONG_OK;
}

static loong_status_t read_document(const void *source, int64_t i,
                                    loong_items_t *items)
{
    const source_t *s = source;
    int64_t token = 0;
    int64_t n = 0;
    LOONG_TRY(find_document(s, i, &token, &n));
    LOONG_TRY(loongi_items_tokens(items, n));
    loong_item_t *item = &items->item[0];
    if (n > 0) {
        item->starts[0] = LOONG_START_DOCUMENT;
        LOONG_TRY(loong_dataset_read(s->dataset, token, n, items->vocab_size,
                                     item->ids));
    }
    return loong_dataset_read_mask(s->dataset, token, n, item->weight);
}

static int64_t count_learned(const uint8_t *mask, int64_t n)
{
    int64_t learned = 0;
    for (int64_t t = 0; t < n; t++) {
        learned += mask[t];
    }
    return learned;
}

static loong_status_t peek_document(const void *source, int64_t i,
                                    loong_items_t *items)
{
    enum { BLOCK = 4096 };
    const source_t *s = source;
    uint8_t mask[BLOCK];
    int64_t token = 0;
    int64_t n = 0;
    loong_dataset_info_t info;
    loong_dataset_get_info(s->dataset, &info);
    LOONG_TRY(find_document(s, i, &token, &n));
    int64_t learned = info.has_mask ? 0 : LOONG_MAX(n - 1, 0);
    for (int64_t t = 1; info.has_mask && t < n; t += BLOCK) {
        int64_t part = LOONG_MIN(n - t, (int64_t)BLOCK);
        LOONG_TRY(loong_dataset_read_mask(s->dataset, token + t, part, mask));
        learned += count_learned(mask, part);
    }
    items->count = 1;
    items->item[0] =
        (loong_item_t){.type = LOONG_ITEM_TOKENS, .size = {n, learned}};
    return LOONG_OK;
}

static void prefetch_document(const void *source, int64_t i)
{
    const source_t *s = source;
    int64_t token = 0;
    int64_t n = 0;
    if (find_document(s, i, &token, &n) == LOONG_OK) {
        loong_dataset_prefetch(s->dataset, token, n);
    }
}

const loong_source_class_t loongi_document_source = {
    .struct_size = sizeof(loongi_document_source),
    .name = "documents",
    .open = open_documents,
    .close = close_source,
    .get_info = get_info,
    .read = read_document,
    .prefetch = prefetch_document,
    .peek = peek_document,
    .packs = true};
