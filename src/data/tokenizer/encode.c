/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to ids: the order of the steps. Called by sources of texts, samples
 * and tools of data. Read tokenizer_impl.h before. */
#include <string.h>

#include "tokenizer_impl.h"

loong_status_t loong_text_encoder_create(loong_context_t *ctx,
                                         const loong_tokenizer_t *tokenizer,
                                         loong_text_encoder_t **encoder_p)
{
    loong_text_encoder_t *e = NULL;
    loong_status_t status = loongi_alloc(ctx, sizeof(*e), "text encoder", &e);
    if (status != LOONG_OK) {
        return status;
    }
    e->ctx = ctx;
    e->tokenizer = tokenizer;
    status = loongi_calloc(ctx, (size_t)1 << LOONG_CACHE_BITS,
                           sizeof(*e->cache), "word cache", &e->cache);
    if (status != LOONG_OK) {
        loong_text_encoder_destroy(&e);
        return status;
    }
    *encoder_p = e;
    return LOONG_OK;
}

void loong_text_encoder_destroy(loong_text_encoder_t **encoder)
{
    loong_text_encoder_t *e = *encoder;
    if (e == NULL) {
        return;
    }
    loongi_regex_scratch_destroy(&e->regex);
    for (int i = 0; i < LOONG_MAX_STAGES; i++) {
        loongi_free(e->ctx, e->stage_text[i].data);
    }
    loongi_free(e->ctx, e->spelled.data);
    loongi_free(e->ctx, e->normal[0].data);
    loongi_free(e->ctx, e->normal[1].data);
    loongi_free(e->ctx, e->repaired.data);
    loongi_spans_free(e);
    loongi_free(e->ctx, e->heap);
    loongi_free(e->ctx, e->symbols);
    loongi_free(e->ctx, e->cache);
    loongi_free(e->ctx, e->ids);
    loongi_free(e->ctx, e);
    *encoder = NULL;
}

static loong_status_t replace(loong_text_encoder_t *e, const normalizer_t *n,
                              const char *text, size_t length,
                              loong_buffer_t *out)
{
    stage_t literal = {0};
    literal.literal = n->from;
    literal.literal_length = n->from_length;
    size_t done = 0;
    while (done < length) {
        size_t span[2];
        LOONG_TRY(loongi_scan_literal()(&literal, e, text, length, done, span));
        LOONG_TRY(loongi_buffer_add(e->ctx, out, text + done, span[0] - done));
        if (span[0] < length) {
            LOONG_TRY(loongi_buffer_add(e->ctx, out, n->to, n->to_length));
        }
        done = span[1];
    }
    return LOONG_OK;
}

/* Each normalizer reads what the one before it wrote; two buffers take
 * turns. */
loong_status_t loongi_normalize(loong_text_encoder_t *e, const char **text_p,
                                size_t *length_p)
{
    const loong_tokenizer_t *t = e->tokenizer;
    int turn = 0;
    for (int i = 0; i<t->num_normalizers && * length_p> 0; i++) {
        const normalizer_t *n = &t->normalizers[i];
        loong_buffer_t *out = &e->normal[turn];
        bool changed = true;
        out->length = 0;
        if (n->kind == NORMALIZE_NFC) {
            e->runs.count = 0;
            LOONG_TRY(
                loongi_nfc(e->ctx, t->nfc, *text_p, *length_p, out, &e->runs));
            changed = e->runs.count > 0;
        } else if (n->kind == NORMALIZE_PREPEND) {
            LOONG_TRY(loongi_buffer_add(e->ctx, out, n->to, n->to_length));
            LOONG_TRY(loongi_buffer_add(e->ctx, out, *text_p, *length_p));
        } else {
            LOONG_TRY(replace(e, n, *text_p, *length_p, out));
        }
        if (changed) {
            *text_p = out->data;
            *length_p = out->length;
            turn = 1 - turn;
        }
    }
    return LOONG_OK;
}

static loong_status_t cut(loong_text_encoder_t *e, const char *text,
                          size_t length, bool first)
{
    return loongi_stage_run(e, 0, text, length, first);
}

static loong_status_t normalize_and_cut(loong_text_encoder_t *e,
                                        const char *text, size_t length,
                                        bool first)
{
    LOONG_TRY(loongi_normalize(e, &text, &length));
    return loongi_added_split(e, &e->tokenizer->added_normalized, text, length,
                              first, cut);
}

static loong_status_t encode_bytes(loong_text_encoder_t *e, const char *text,
                                   size_t length)
{
    LOONG_TRY(loongi_ids_room(e, (int64_t)length));
    for (size_t i = 0; i < length; i++) {
        e->ids[e->count++] = (unsigned char)text[i];
    }
    return LOONG_OK;
}

static loong_status_t add_ids(loong_text_encoder_t *e, const int32_t *ids,
                              int64_t count)
{
    LOONG_TRY(loongi_ids_room(e, count));
    for (int64_t i = 0; i < count; i++) {
        e->ids[e->count++] = ids[i];
    }
    return LOONG_OK;
}

loong_status_t loong_text_encode(loong_text_encoder_t *e, const char *text,
                                 size_t length, bool add_special,
                                 const int32_t **ids_p, int64_t *count_p)
{
    const loong_tokenizer_t *t = e->tokenizer;
    e->count = 0;
    LOONG_TRY(loongi_ids_room(e, 1)); /* ids of an empty text are not NULL */
    if (t->bytes) {
        LOONG_TRY(encode_bytes(e, text, length));
    } else {
        if (!loongi_utf8_valid(text, length)) {
            LOONG_TRY(loongi_utf8_repair(e->ctx, text, length, &e->repaired));
            text = e->repaired.data;
            length = e->repaired.length;
        }
        if (add_special) {
            LOONG_TRY(add_ids(e, t->template_before, t->num_before));
        }
        LOONG_TRY(loongi_added_split(e, &t->added_raw, text, length, true,
                                     normalize_and_cut));
        if (add_special) {
            LOONG_TRY(add_ids(e, t->template_after, t->num_after));
        }
    }
    *ids_p = e->ids;
    *count_p = e->count;
    return LOONG_OK;
}
