/* SPDX-License-Identifier: Apache-2.0
 *
 * Where tokens stand in the text: each is held against the bytes that it
 * spells, from the first to the last, so that a span is right or there is an
 * error. Called by sources of conversations. Read tokenizer_impl.h before. */
#include <inttypes.h>
#include <string.h>

#include "tokenizer_impl.h"

void loongi_spans_free(loong_text_encoder_t *e)
{
    loongi_free(e->ctx, e->followed.data);
    loongi_free(e->ctx, e->runs.run);
    loongi_free(e->ctx, e->added);
    loongi_free(e->ctx, e->spans);
}

static void enter_set(loong_text_encoder_t *e, const added_set_t *set)
{
    for (int64_t i = 0; i < set->count; i++) {
        e->added[set->tokens[i].id] = &set->tokens[i];
    }
}

static loong_status_t find_added(loong_text_encoder_t *e)
{
    const loong_tokenizer_t *t = e->tokenizer;
    if (e->added != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(e->ctx, (size_t)t->vocab.size, sizeof(*e->added),
                            "added tokens", &e->added));
    enter_set(e, &t->added_raw);
    enter_set(e, &t->added_normalized);
    return LOONG_OK;
}

/* ---- the text as it is after normalising --------------------------------- */

/* What stands between two added tokens, in NFC. */
static loong_status_t follow_between(loong_text_encoder_t *e, const char *text,
                                     size_t length, bool first)
{
    loong_buffer_t *out = &e->normal[0];
    int64_t before = e->runs.count;
    size_t at = (size_t)(text - e->following);
    (void)first;
    LOONG_TRY(loongi_buffer_add(e->ctx, &e->followed, e->following + e->copied,
                                at - e->copied)); /* added tokens */
    LOONG_TRY(
        loongi_nfc(e->ctx, e->tokenizer->nfc, text, length, out, &e->runs));
    bool changed = e->runs.count > before;
    for (int64_t i = before; i < e->runs.count; i++) {
        for (int k = 0; k < 2; k++) {
            e->runs.run[i].from[k] += at;
            e->runs.run[i].to[k] += e->followed.length;
        }
    }
    e->copied = at + length;
    return loongi_buffer_add(e->ctx, &e->followed, changed ? out->data : text,
                             changed ? out->length : length);
}

/* Leaves ids alone. */
static loong_status_t follow_normalizer(loong_text_encoder_t *e,
                                        const char **text_p, size_t *length_p)
{
    int64_t count = e->count;
    e->runs.count = 0;
    e->followed.length = 0;
    if (e->tokenizer->nfc == NULL ||
        loongi_utf8_skip_ascii(*text_p, 0, *length_p) == *length_p) {
        return LOONG_OK;
    }
    e->following = *text_p;
    e->copied = 0;
    LOONG_TRY(loongi_added_split(e, &e->tokenizer->added_raw, *text_p,
                                 *length_p, true, follow_between));
    LOONG_TRY(loongi_buffer_add(e->ctx, &e->followed, *text_p + e->copied,
                                *length_p - e->copied));
    e->count = count;
    *text_p = e->followed.data;
    *length_p = e->followed.length;
    return LOONG_OK;
}

/* Spans of the normalised text to spans of the text. */
static void map_back(loong_text_encoder_t *e)
{
    int64_t r = 0;
    int64_t shift = 0; /* of what stands behind the runs before r */
    for (int64_t i = 0; i < e->count; i++) {
        loong_token_span_t *s = &e->spans[i];
        const nfc_run_t *run = &e->runs.run[r];
        while (r < e->runs.count && s->begin >= (int64_t)run->to[1]) {
            shift = (int64_t)run->from[1] - (int64_t)run->to[1];
            run = &e->runs.run[++r];
        }
        bool inside = r < e->runs.count && s->begin >= (int64_t)run->to[0];
        int64_t begin = inside ? (int64_t)run->from[0] : s->begin + shift;
        int64_t end = s->end + shift;
        for (int64_t k = r; k < e->runs.count; k++) {
            const nfc_run_t *next = &e->runs.run[k];
            if (s->end <= (int64_t)next->to[0]) {
                break;
            }
            end = s->end <= (int64_t)next->to[1]
                      ? (int64_t)next->from[1]
                      : s->end + (int64_t)next->from[1] - (int64_t)next->to[1];
        }
        *s = (loong_token_span_t){begin, end};
    }
}

/* ---- tokens against text --------------------------------------------------
 */

typedef struct walk {
    const loong_text_encoder_t *e;
    const char *text;
    size_t length, at;
    const char *mark; /* stands for a blank; NULL: nothing does */
    size_t mark_length;
    const normalizer_t *prepend; /* before every text between added tokens */
    bool may_insert;             /* a blank in front of a word */
    bool begins; /* a text begins at `at` that is normalised on its own */
} walk_t;

/* False: the tokenizer rewrites text in another way. */
static bool read_rules(walk_t *w)
{
    const loong_tokenizer_t *t = w->e->tokenizer;
    for (int i = 0; i < t->num_normalizers; i++) {
        const normalizer_t *n = &t->normalizers[i];
        if (n->kind == NORMALIZE_PREPEND) {
            w->prepend = n;
        } else if (n->kind == NORMALIZE_REPLACE) {
            if (n->from_length != 1 || n->from[0] != ' ' || w->mark != NULL) {
                return false;
            }
            w->mark = n->to;
            w->mark_length = n->to_length;
        }
    }
    for (int i = 0; i < t->num_stages; i++) {
        const stage_t *s = &t->stages[i];
        w->may_insert = w->may_insert || s->kind != STAGE_SPLIT;
        if (s->kind == STAGE_METASPACE) {
            w->mark = s->literal;
            w->mark_length = s->literal_length;
        }
    }
    return true;
}

static bool stands(const walk_t *w, const char *bytes, size_t length)
{
    return w->length - w->at >= length &&
           memcmp(w->text + w->at, bytes, length) == 0;
}

static void skip_blanks(walk_t *w)
{
    while (w->at < w->length) {
        size_t next = w->at;
        uint32_t point = loongi_utf8_get(w->text + w->at, &next);
        if (!(w->e->tokenizer->chars[point] & LOONG_CHAR_SPACE)) {
            break;
        }
        w->at = next;
    }
}

static bool eat_added(walk_t *w, const added_token_t *added)
{
    if (added->lstrip && !stands(w, added->text, added->length)) {
        skip_blanks(w);
    }
    bool found = stands(w, added->text, added->length);
    w->at += found ? added->length : 0;
    if (found && added->rstrip) {
        skip_blanks(w);
    }
    const added_set_t *raw = &w->e->tokenizer->added_raw;
    w->begins = added >= raw->tokens && added < raw->tokens + raw->count;
    return found;
}

/* What the token spells: bytes, or with marks for blanks. */
static const char *spelling(const loong_tokenizer_t *t, int32_t id, char *byte,
                            size_t *length_p)
{
    const token_t *token = &t->vocab.tokens[id];
    for (int b = 0; t->byte_fallback && b < 256; b++) {
        if (t->byte_ids[b] == id) {
            *byte = (char)b;
            *length_p = 1;
            return byte;
        }
    }
    *length_p = t->byte_level ? token->num_bytes : token->length;
    return t->byte_level ? token->bytes : token->text;
}

static bool eat_bytes(walk_t *w, const char *s, size_t n)
{
    size_t i = 0;
    if (w->begins && w->prepend != NULL) {
        size_t more = w->prepend->to_length;
        if (n < more || memcmp(s, w->prepend->to, more) != 0) {
            return false;
        }
        i = more;
    }
    w->begins = false;
    while (i < n) {
        bool mark = w->mark != NULL && n - i >= w->mark_length &&
                    memcmp(s + i, w->mark, w->mark_length) == 0;
        if (mark && stands(w, " ", 1)) {
            w->at++;
            i += w->mark_length;
        } else if (stands(w, s + i, 1)) {
            w->at++;
            i++;
        } else if (i == 0 && w->may_insert && (mark || s[0] == ' ')) {
            i += mark ? w->mark_length : 1;
        } else {
            return false;
        }
    }
    return true;
}

static loong_status_t walk_all(walk_t *w, int64_t before, int64_t after)
{
    const loong_text_encoder_t *e = w->e;
    const loong_tokenizer_t *t = e->tokenizer;
    w->begins = true;
    for (int64_t i = before; i < e->count - after; i++) {
        char byte = 0;
        size_t length = 0;
        size_t begin = w->at;
        const added_token_t *added = e->added[e->ids[i]];
        const char *s = spelling(t, e->ids[i], &byte, &length);
        bool found =
            added != NULL ? eat_added(w, added) : eat_bytes(w, s, length);
        LOONG_CHECK(e->ctx, found, LOONG_ERR_UNSUPPORTED,
                    "the tokenizer writes text in another way, which cannot be "
                    "followed: its token '%s' does not stand at byte %zu",
                    t->vocab.tokens[e->ids[i]].text, begin);
        size_t end = w->at;
        if (end == begin && end < w->length) { /* put in before a character */
            (void)loongi_utf8_get(w->text + begin, &end);
        }
        e->spans[i] = (loong_token_span_t){(int64_t)begin, (int64_t)end};
    }
    LOONG_CHECK(e->ctx, w->at == w->length, LOONG_ERR_UNSUPPORTED,
                "the tokenizer drops text: its tokens end at byte %zu of %zu",
                w->at, w->length);
    for (int64_t i = 0; i < after; i++) {
        e->spans[e->count - after + i] =
            (loong_token_span_t){(int64_t)w->length, (int64_t)w->length};
    }
    return LOONG_OK;
}

static loong_status_t follow(loong_text_encoder_t *e, const char *text,
                             size_t length, bool add_special)
{
    const loong_tokenizer_t *t = e->tokenizer;
    walk_t w = {.e = e, .text = text, .length = length};
    LOONG_CHECK(e->ctx, read_rules(&w), LOONG_ERR_UNSUPPORTED,
                "the tokenizer replaces text, which cannot be followed");
    LOONG_TRY(find_added(e));
    LOONG_TRY(follow_normalizer(e, &w.text, &w.length));
    LOONG_TRY(walk_all(&w, add_special ? t->num_before : 0,
                       add_special ? t->num_after : 0));
    map_back(e);
    return LOONG_OK;
}

loong_status_t loong_text_encode_spans(loong_text_encoder_t *e,
                                       const char *text, size_t length,
                                       bool add_special,
                                       loong_text_tokens_t *tokens)
{
    bool bytes = e->tokenizer->bytes;
    LOONG_CHECK(e->ctx, bytes || loongi_utf8_valid(text, length), LOONG_ERR_ARG,
                "the text is not UTF-8");
    LOONG_TRY(loong_text_encode(e, text, length, add_special, &tokens->ids,
                                &tokens->count));
    LOONG_TRY(loongi_grow(e->ctx, &e->spans, &e->spans_room, e->count + 1,
                          sizeof(*e->spans), "spans of tokens"));
    memset(e->spans, 0, (size_t)(e->count + 1) * sizeof(*e->spans));
    for (int64_t i = 0; bytes && i < e->count; i++) {
        e->spans[i] = (loong_token_span_t){i, i + 1};
    }
    tokens->spans = e->spans;
    return bytes ? LOONG_OK : follow(e, text, length, add_special);
}
