/* SPDX-License-Identifier: Apache-2.0
 *
 * The pre-tokenizer: each stage cuts the pieces of the stage before it. Called
 * by encode.c. Read tokenizer_impl.h before. */
#include <string.h>

#include "tokenizer_impl.h"

/* The next stage, or the merges behind the last one. */
static loong_status_t pass_on(loong_text_encoder_t *e, int index,
                              const char *text, size_t length, bool first)
{
    if (length == 0) {
        return LOONG_OK;
    }
    if (index + 1 < e->tokenizer->num_stages) {
        return loongi_stage_run(e, index + 1, text, length, first);
    }
    return loongi_bpe_word(e, text, length);
}

static loong_status_t split(loong_text_encoder_t *e, int index,
                            const char *text, size_t length, bool first)
{
    const stage_t *s = &e->tokenizer->stages[index];
    size_t done = 0; /* what has been passed on or dropped */
    size_t span[2] = {0, 0};
    for (size_t from = 0; from < length; from = span[1]) {
        LOONG_TRY(s->find(s, e, text, length, from, span));
        if (span[0] >= length) {
            break;
        }
        if (s->behavior == WITH_PREVIOUS) {
            LOONG_TRY(pass_on(e, index, text + done, span[1] - done,
                              first && done == 0));
            done = span[1];
            continue;
        }
        if (s->behavior != KEEP_MATCHES && done < span[0]) {
            LOONG_TRY(pass_on(e, index, text + done, span[0] - done,
                              first && done == 0));
        }
        if (s->behavior != KEEP_GAPS) {
            LOONG_TRY(pass_on(e, index, text + span[0], span[1] - span[0],
                              first && span[0] == 0));
        }
        done = span[1];
    }
    if (done < length && s->behavior != KEEP_MATCHES) {
        return pass_on(e, index, text + done, length - done,
                       first && done == 0);
    }
    return LOONG_OK;
}

static loong_status_t prefix_space(loong_text_encoder_t *e, int index,
                                   const char *text, size_t length, bool first)
{
    loong_buffer_t *b = &e->stage_text[index];
    if (text[0] == ' ') {
        return pass_on(e, index, text, length, first);
    }
    b->length = 0;
    LOONG_TRY(loongi_buffer_add(e->ctx, b, " ", 1));
    LOONG_TRY(loongi_buffer_add(e->ctx, b, text, length));
    return pass_on(e, index, b->data, b->length, first);
}

/* Blanks become marks, one is put before the text, and with `split` a word
 * begins at every mark. */
static loong_status_t metaspace(loong_text_encoder_t *e, int index,
                                const char *text, size_t length, bool first)
{
    const stage_t *s = &e->tokenizer->stages[index];
    loong_buffer_t *b = &e->stage_text[index];
    size_t mark = s->literal_length;
    bool marked = text[0] == ' ' ||
                  (length >= mark && memcmp(text, s->literal, mark) == 0);
    b->length = 0;
    if (!marked && (s->prepend == PREPEND_ALWAYS ||
                    (s->prepend == PREPEND_FIRST && first))) {
        LOONG_TRY(loongi_buffer_add(e->ctx, b, s->literal, mark));
    }
    for (size_t at = 0; at < length;) {
        const char *blank = memchr(text + at, ' ', length - at);
        size_t end = blank != NULL ? (size_t)(blank - text) : length;
        LOONG_TRY(loongi_buffer_add(e->ctx, b, text + at, end - at));
        if (blank != NULL) {
            LOONG_TRY(loongi_buffer_add(e->ctx, b, s->literal, mark));
            end++;
        }
        at = end;
    }
    size_t begin = 0;
    for (size_t from = mark; s->split && from < b->length;) {
        size_t span[2];
        LOONG_TRY(loongi_scan_literal()(s, e, b->data, b->length, from, span));
        if (span[0] >= b->length) {
            break;
        }
        LOONG_TRY(pass_on(e, index, b->data + begin, span[0] - begin,
                          first && begin == 0));
        begin = span[0];
        from = span[1];
    }
    return pass_on(e, index, b->data + begin, b->length - begin,
                   first && begin == 0);
}

loong_status_t loongi_stage_run(loong_text_encoder_t *e, int index,
                                const char *text, size_t length, bool first)
{
    if (index >= e->tokenizer->num_stages) {
        return loongi_bpe_word(e, text, length);
    }
    switch (e->tokenizer->stages[index].kind) {
    case STAGE_PREFIX_SPACE:
        return prefix_space(e, index, text, length, first);
    case STAGE_METASPACE:
        return metaspace(e, index, text, length, first);
    default:
        return split(e, index, text, length, first);
    }
}
