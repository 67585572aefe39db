/* SPDX-License-Identifier: Apache-2.0
 *
 * What is wrong with data, before anything is trained on it. Called by
 * src/train/preflight.c. Read data_check.h before. */
#include "data_check.h"

#include <stdio.h>
#include <string.h>

#include "base.h"

enum { WINDOW_IDS = 1 << 15, MOST_IDS = 1 << 24 };

/* The index does not have the largest id. It is looked for in windows that lie
 * evenly in the source, `most` ids in all. */
static loong_status_t find_largest(loong_ids_t *found,
                                   const loong_source_info_t *source,
                                   int64_t most, int32_t *ids)
{
    int64_t windows = LOONG_MAX(LOONG_MIN(most, source->tokens), 1);
    windows = (windows + WINDOW_IDS - 1) / WINDOW_IDS;
    int64_t room = source->tokens - windows * WINDOW_IDS;
    for (int64_t i = 0; i < windows; i++) {
        int64_t begin = i * WINDOW_IDS;
        begin += room > 0 && windows > 1 ? room / (windows - 1) * i : 0;
        int64_t count = LOONG_MIN(WINDOW_IDS, source->tokens - begin);
        LOONG_TRY(loong_dataset_read(source->dataset,
                                     source->first_token + begin, count,
                                     INT32_MAX, ids));
        for (int64_t k = 0; k < count; k++) {
            found->largest = LOONG_MAX(found->largest, ids[k]);
        }
        found->read += count;
    }
    found->there += source->tokens;
    return LOONG_OK;
}

typedef struct check {
    loong_context_t *ctx;
    int64_t vocab;
    int64_t most; /* ids of a source */
    int32_t *ids;
} check_t;

static loong_status_t check_source(const loong_blend_t *blend, int64_t index,
                                   const check_t *check, loong_ids_t *found)
{
    loong_blend_source_info_t source;
    loong_blend_get_source(blend, index, &source);
    if (source.info.dataset == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(find_largest(found, &source.info, check->most, check->ids));
    LOONG_CHECK(check->ctx, found->largest < check->vocab, LOONG_ERR_CONFIG,
                "data '%s' has token id %lld: model.foundation.vocab_size "
                "must be %lld or more, found %lld",
                source.info.path, (long long)found->largest,
                (long long)found->largest + 1, (long long)check->vocab);
    return LOONG_OK;
}

static int64_t sources_of(const loong_blend_t *blend)
{
    loong_blend_info_t info;
    memset(&info, 0, sizeof(info));
    if (blend != NULL) {
        loong_blend_get_info(blend, &info);
    }
    return info.num_sources;
}

loong_status_t loongi_data_check_ids(loong_context_t *ctx, int count,
                                     const loong_blend_t *const *blends,
                                     int64_t vocab, loong_ids_t *found)
{
    check_t check = {ctx, vocab, 0, NULL};
    int64_t sources = 0;
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < count; i++) {
        sources += sources_of(blends[i]);
    }
    LOONG_TRY(loongi_calloc(ctx, WINDOW_IDS, sizeof(*check.ids), "token ids",
                            &check.ids));
    check.most = MOST_IDS / LOONG_MAX(sources, 1);
    for (int i = 0; i < count; i++) {
        for (int64_t k = 0; k < sources_of(blends[i]) && status == LOONG_OK;
             k++) {
            status = check_source(blends[i], k, &check, found);
        }
    }
    loongi_free(ctx, check.ids);
    return status;
}

/* ---- loss masks ---------------------------------------------------------- */

/* Reads up to the first token that carries loss. */
static loong_status_t find_loss(const loong_blend_t *blend, uint8_t *mask,
                                bool *found_p)
{
    for (int64_t k = 0; k < sources_of(blend); k++) {
        loong_blend_source_info_t whole;
        loong_blend_get_source(blend, k, &whole);
        const loong_source_info_t source = whole.info;
        int64_t count = 0;
        *found_p = *found_p || source.dataset == NULL;
        for (int64_t i = 0; i < source.tokens && !*found_p; i += count) {
            count = LOONG_MIN(WINDOW_IDS, source.tokens - i);
            LOONG_TRY(loong_dataset_read_mask(
                source.dataset, source.first_token + i, count, mask));
            *found_p = memchr(mask, 1, (size_t)count) != NULL;
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_data_check_loss(loong_context_t *ctx,
                                      const loong_blend_t *blend,
                                      const char *name)
{
    uint8_t *mask = NULL;
    bool found = false;
    LOONG_TRY(loongi_calloc(ctx, WINDOW_IDS, 1, "loss mask", &mask));
    loong_status_t status = find_loss(blend, mask, &found);
    loongi_free(ctx, mask);
    LOONG_TRY(status);
    LOONG_CHECK(ctx, found, LOONG_ERR_CONFIG,
                "data '%s': nothing of it carries loss", name);
    return LOONG_OK;
}

/* ---- what nobody reads --------------------------------------------------- */

static const char *const type_names[] = {[LOONG_ITEM_TOKENS] = "texts",
                                         [LOONG_ITEM_IMAGE] = "pictures",
                                         [LOONG_ITEM_LABEL] = "labels",
                                         [LOONG_ITEM_VALUES] = "values"};

static loong_status_t check_types(loong_context_t *ctx,
                                  const loong_items_t *items, const char *data,
                                  const loong_blend_source_info_t *source,
                                  uint32_t reads)
{
    char list[64] = "";
    for (size_t t = 0; t < LOONG_COUNT_OF(type_names); t++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s",
                 (reads >> t & 1) == 0 ? "" : used > 0 ? ", " : "",
                 (reads >> t & 1) == 0 ? "" : type_names[t]);
    }
    for (int i = 0; i < items->count; i++) {
        loong_item_type_t type = items->item[i].type;
        LOONG_CHECK(ctx, (reads >> type & 1) != 0, LOONG_ERR_CONFIG,
                    "data '%s': %s: this source of class %s has %s, which the "
                    "model does not read; it reads %s",
                    data, source->info.path, source->source_class->name,
                    type_names[type], list);
    }
    return LOONG_OK;
}

loong_status_t loongi_data_check_items(loong_context_t *ctx,
                                       const loong_blend_t *blend,
                                       uint32_t reads)
{
    loong_items_t items = {
        .ctx = ctx, .vocab_size = INT32_MAX, .unmarked = true, .picture = -1};
    loong_blend_info_t info;
    loong_status_t status = LOONG_OK;
    loong_blend_get_info(blend, &info);
    for (int64_t i = 0; i < info.num_sources && status == LOONG_OK; i++) {
        loong_blend_source_info_t source;
        loong_blend_get_source(blend, i, &source);
        status = source.source_class->read(source.source, 0, &items);
        if (status == LOONG_OK) {
            status = check_types(ctx, &items, info.name, &source, reads);
        }
    }
    loong_items_free(&items);
    return status;
}

/* ---- samples ------------------------------------------------------------- */

loong_status_t loongi_data_judge(loong_context_t *ctx,
                                 const loong_blend_t *blend,
                                 const loong_processor_t *processor,
                                 const void *config)
{
    loong_items_t items = {.ctx = ctx};
    loong_status_t status = processor->begin(config, &items);
    for (int64_t k = 0; k < sources_of(blend) && status == LOONG_OK; k++) {
        loong_blend_source_info_t s;
        loong_blend_get_source(blend, k, &s);
        int64_t count = s.source_class->peek != NULL ? s.info.samples : 0;
        for (int64_t i = 0; i < count && status == LOONG_OK; i++) {
            status = s.source_class->peek(s.source, i, &items);
            if (status == LOONG_OK) {
                status = processor->judge(config, &items);
            }
        }
    }
    loong_items_free(&items);
    return status;
}
