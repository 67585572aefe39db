/* SPDX-License-Identifier: Apache-2.0
 *
 * The fingerprint of a blend: "key: value" lines, their hash, and what
 * changed between two of them. Called by blend.c and trainer_save.c. Read
 * blend_impl.h before. */
#include <inttypes.h>
#include <string.h>

#include <xxhash.h>

#include "blend_impl.h"

loong_status_t loongi_blend_describe(loong_blend_t *blend)
{
    loong_text_t *text = &blend->description;
    *text = loongi_text_begin(blend->ctx);
    loongi_text_printf(text,
                       "seq_length: %" PRId64 "\nseed: %" PRIu64
                       "\nshuffle: %s\nsources: %" PRId64 "\n",
                       blend->seq_length, blend->seed,
                       blend->shuffle ? "yes" : "no", blend->num_sources);
    for (int64_t s = 0; s < blend->num_sources; s++) {
        const loong_blend_source_info_t *source = &blend->sources[s].info;
        const loong_source_info_t *info = &source->info;
        loongi_text_printf(text, "source %" PRId64 " content: %016" PRIx64 "\n",
                           s, info->hash);
        if (info->tokens > 0) {
            loongi_text_printf(
                text,
                "source %" PRId64 " documents: %" PRId64 " from %" PRId64 "\n"
                "source %" PRId64 " tokens: %" PRId64 "\n",
                s, info->documents, info->first_document, s, info->tokens);
        } else {
            loongi_text_printf(text,
                               "source %" PRId64 " samples: %" PRId64 "\n", s,
                               info->samples);
        }
        if (info->pack != NULL) {
            loongi_text_printf(text, "source %" PRId64 " rows: %" PRId64 "\n",
                               s, info->samples);
        }
        loongi_text_printf(
            text, "source %" PRId64 " share: %" PRId64 "/%" PRId64 "\n", s,
            source->share, blend->table.period);
    }
    blend->fingerprint = XXH3_64bits(loongi_text_get(text), text->length);
    return text->status;
}

uint64_t loong_blend_fingerprint(const loong_blend_t *blend)
{
    return blend->fingerprint;
}

const char *loong_blend_describe(const loong_blend_t *blend)
{
    return loongi_text_get(&blend->description);
}

typedef struct line {
    const char *key;
    int key_length;
    const char *value;
    int value_length;
} line_t;

/* Takes the next "key: value" off *text; false at the end. A line without a
 * colon is all key. */
static bool next_line(const char **text, line_t *line)
{
    if (**text == '\0') {
        return false;
    }
    size_t length = strcspn(*text, "\n");
    const char *colon = memchr(*text, ':', length);
    line->key = *text;
    line->key_length = (int)(colon != NULL ? (size_t)(colon - *text) : length);
    line->value = *text + length;
    if (colon != NULL) {
        line->value = colon + 1 + (colon[1] == ' ');
    }
    line->value_length = (int)(*text + length - line->value);
    *text += length + ((*text)[length] == '\n');
    return true;
}

static bool find_line(const char *text, const line_t *wanted, line_t *found)
{
    while (next_line(&text, found)) {
        if (found->key_length == wanted->key_length &&
            memcmp(found->key, wanted->key, (size_t)wanted->key_length) == 0) {
            return true;
        }
    }
    return false;
}

static bool same_value(const line_t *a, const line_t *b)
{
    return a->value_length == b->value_length &&
           memcmp(a->value, b->value, (size_t)a->value_length) == 0;
}

loong_status_t loong_blend_compare(const loong_blend_t *blend,
                                   const char *earlier)
{
    const char *now = loong_blend_describe(blend);
    const char *walk = earlier;
    line_t was;
    line_t is;
    if (strcmp(now, earlier) == 0) {
        return LOONG_OK;
    }
    loong_status_t status =
        LOONG_FAIL(blend->ctx, LOONG_ERR_MISMATCH,
                   "data '%s' is not what the earlier run used:", blend->name);
    while (next_line(&walk, &was)) {
        if (!find_line(now, &was, &is)) {
            loongi_error_note(blend->ctx, "  %.*s: was %.*s, now absent",
                              was.key_length, was.key, was.value_length,
                              was.value);
        } else if (!same_value(&was, &is)) {
            loongi_error_note(blend->ctx, "  %.*s: was %.*s, now %.*s",
                              was.key_length, was.key, was.value_length,
                              was.value, is.value_length, is.value);
        }
    }
    for (walk = now; next_line(&walk, &is);) {
        if (!find_line(earlier, &is, &was)) {
            loongi_error_note(blend->ctx, "  %.*s: now %.*s, was absent",
                              is.key_length, is.key, is.value_length, is.value);
        }
    }
    return status;
}
