/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation as tokens with weights. Called by prepare.c, on several
 * threads. Read chat.h before. */
#include <string.h>

#include "chat.h"

loong_status_t loongi_chat_worker_create(const chat_template_t *form,
                                         const loong_tokenizer_t *tokenizer,
                                         chat_rules_t rules,
                                         const chat_image_rules_t *images,
                                         chat_worker_t **worker_p)
{
    chat_worker_t *w = NULL;
    loong_context_t *ctx = NULL;
    LOONG_TRY(loong_context_create(NULL, &ctx));
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*w), "encoder of conversations", &w);
    if (status != LOONG_OK) {
        loong_context_destroy(&ctx);
        return status;
    }
    w->ctx = ctx;
    w->form = form;
    w->tokenizer = tokenizer;
    w->rules = rules;
    w->conversation.ctx = ctx;
    w->conversation.text = loongi_text_begin(ctx);
    w->conversation.image_paths = loongi_text_begin(ctx);
    w->conversation.rules = *images;
    w->image_paths = loongi_text_begin(ctx);
    w->image_id = images->token != NULL
                      ? loong_tokenizer_token_to_id(tokenizer, images->token)
                      : -1;
    w->video_id =
        images->videos != NULL
            ? loong_tokenizer_token_to_id(tokenizer, images->video_token)
            : -1;
    w->plain = loongi_text_begin(ctx);
    w->expanded = loongi_text_begin(ctx);
    status = loong_text_encoder_create(ctx, tokenizer, &w->encoder);
    if (status == LOONG_OK) {
        status = loongi_jinja_values_create(ctx, &w->values);
    }
    if (status != LOONG_OK) {
        loongi_chat_worker_destroy(&w);
        return status;
    }
    *worker_p = w;
    return LOONG_OK;
}

void loongi_chat_worker_destroy(chat_worker_t **worker)
{
    chat_worker_t *w = *worker;
    if (w == NULL) {
        return;
    }
    loong_context_t *ctx = w->ctx;
    loongi_chat_conversation_free(&w->conversation);
    loong_text_encoder_destroy(&w->encoder);
    loongi_jinja_values_destroy(&w->values);
    loongi_jinja_output_free(&w->whole);
    loongi_jinja_output_free(&w->part);
    loongi_text_free(&w->plain);
    loongi_text_free(&w->expanded);
    loongi_free(ctx, w->images);
    loongi_free(ctx, w->part_at);
    loongi_text_free(&w->image_paths);
    loongi_free(ctx, w->learned);
    loongi_free(ctx, w->inserted);
    loongi_free(ctx, w->turns);
    loongi_free(ctx, w->starts);
    loongi_free(ctx, w->ids);
    loongi_free(ctx, w->weight);
    loongi_free(ctx, w);
    loong_context_destroy(&ctx);
    *worker = NULL;
}

static loong_status_t room(chat_worker_t *w, int64_t more)
{
    LOONG_TRY(loongi_grow(w->ctx, &w->ids, &w->ids_room, w->count + more,
                          sizeof(*w->ids), "tokens of conversations"));
    LOONG_TRY(loongi_grow(w->ctx, &w->starts, &w->starts_room, w->count + more,
                          1, "tokens of conversations"));
    return loongi_grow(w->ctx, &w->weight, &w->weight_room, w->count + more, 1,
                       "tokens of conversations");
}

/* There is room. */
static void put(chat_worker_t *w, int32_t id, bool learned, uint8_t starts)
{
    w->ids[w->count] = id;
    w->weight[w->count] = learned;
    w->starts[w->count++] = starts;
}

/* Tokens of which a byte is learned are; a turn begins with the first token
 * that has none of what stands before it. */
static loong_status_t add_text(chat_worker_t *w, const char *text,
                               size_t length, bool add_special)
{
    loong_text_tokens_t tokens;
    int64_t k = 0;    /* the first learned span that ends behind the token */
    int64_t j = 0;    /* likewise, inserted */
    int64_t turn = 0; /* the first one that has not begun */
    LOONG_TRY(loong_text_encode_spans(w->encoder, text, length, add_special,
                                      &tokens));
    const loong_token_span_t *spans = tokens.spans;
    int32_t bounds[2];
    bool bound =
        loong_tokenizer_image_bounds(w->tokenizer, w->image_id, bounds);
    int64_t more = 1;
    for (int64_t i = 0; i < tokens.count && bound; i++) {
        more += tokens.ids[i] == w->image_id ? 2 : 0;
    }
    LOONG_TRY(room(w, tokens.count + more));
    for (int64_t i = 0; i < tokens.count; i++) {
        bool image = bound && tokens.ids[i] == w->image_id;
        while (k < w->num_learned &&
               (int64_t)w->learned[k].end <= spans[i].begin) {
            k++;
        }
        while (j < w->num_inserted &&
               (int64_t)w->inserted[j].end <= spans[i].begin) {
            j++;
        }
        bool inserted = j < w->num_inserted &&
                        (int64_t)w->inserted[j].begin <= spans[i].begin;
        bool learned = !inserted && k < w->num_learned &&
                       spans[i].end > spans[i].begin &&
                       (int64_t)w->learned[k].begin < spans[i].end;
        uint8_t starts = i == 0 ? LOONG_START_DOCUMENT : 0;
        if (turn < w->num_turns && (int64_t)w->turns[turn] <= spans[i].begin) {
            starts |= LOONG_START_TURN;
            turn++;
        }
        if (image) {
            put(w, bounds[0], false, starts);
            put(w, tokens.ids[i], false, 0);
            put(w, bounds[1], false, 0);
        } else {
            put(w, tokens.ids[i], learned, starts);
        }
    }
    return LOONG_OK;
}

/* Texts stand behind each other without a template, as the tokenizer begins a
 * text, and are ended. */
static loong_status_t encode_plain(chat_worker_t *w)
{
    const chat_conversation_t *c = &w->conversation;
    int32_t end = loong_tokenizer_get_role(w->tokenizer, LOONG_TOKEN_EOS);
    int64_t before = w->count;
    w->num_learned = w->num_turns = 0;
    w->plain.length = 0;
    LOONG_TRY(loongi_grow(w->ctx, &w->learned, &w->learned_room, 2,
                          sizeof(*w->learned), "learned bytes"));
    for (int i = 0; i < c->num_parts; i++) {
        size_t begin = w->plain.length;
        loongi_text_append(&w->plain, c->part[i].text, c->part[i].length);
        if (c->part[i].learned || w->rules.train_on == CHAT_TRAIN_ALL) {
            w->learned[w->num_learned++] =
                (loong_jinja_span_t){begin, w->plain.length};
        }
    }
    LOONG_TRY(w->plain.status);
    const char *text = loongi_text_get(&w->plain);
    size_t length = w->plain.length;
    LOONG_TRY(loongi_chat_expand(w, &text, &length));
    LOONG_TRY(add_text(w, text, length, true));
    bool ended = w->count > before && w->ids[w->count - 1] == end;
    if (end >= 0 && !ended) {
        w->starts[w->count] = w->count == before ? LOONG_START_DOCUMENT : 0;
        w->ids[w->count++] = end; /* there is room */
    }
    if (end >= 0) {
        w->weight[w->count - 1] = 1;
    }
    return LOONG_OK;
}

loong_status_t loongi_chat_encode(chat_worker_t *w, int64_t *learned_p)
{
    int64_t before = w->count;
    if (w->conversation.messages == NULL) {
        LOONG_TRY(encode_plain(w));
    } else {
        LOONG_TRY(loongi_chat_render(w));
        const char *text = w->whole.text;
        size_t length = w->whole.length;
        LOONG_TRY(loongi_chat_expand(w, &text, &length));
        LOONG_TRY(add_text(w, text, length, false));
    }
    LOONG_TRY(loongi_chat_place_images(w, before));
    *learned_p = 0;
    for (int64_t i = before + 1; i < w->count; i++) {
        *learned_p += w->weight[i];
    }
    LOONG_CHECK(w->ctx, w->count > before, LOONG_ERR_FORMAT,
                "it has no tokens");
    LOONG_CHECK(w->ctx, w->count > before + 1, LOONG_ERR_FORMAT,
                "nothing of it is learned: it is one token, and the first of "
                "a text is not predicted");
    LOONG_CHECK(w->ctx, *learned_p > 0, LOONG_ERR_FORMAT,
                "nothing of it is learned: there is no such answer");
    return LOONG_OK;
}
