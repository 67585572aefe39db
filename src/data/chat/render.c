/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation as a text, and which bytes of it are learned. Where a template
 * marks what an assistant generates, that is it; else the text of the messages
 * up to one must be the beginning of the text of all, and what it adds is its
 * own. Called by encode.c. Read chat.h before. */
#include <inttypes.h>
#include <string.h>

#include "chat.h"

/* ---- rendering ----------------------------------------------------------- */

static loong_status_t set_members(chat_worker_t *w, loong_jinja_value_t dict,
                                  const loong_json_t *object)
{
    const loong_json_member_t *it = loongi_json_first(object);
    for (; it != NULL; it = loongi_json_next(object, it)) {
        loong_jinja_value_t value;
        LOONG_TRY(loongi_jinja_from_json(w->values,
                                         loongi_json_member_value(it), &value));
        LOONG_TRY(loongi_jinja_set(w->values, dict, loongi_json_member_key(it),
                                   value));
    }
    return LOONG_OK;
}

static loong_status_t set_tools(chat_worker_t *w, loong_jinja_value_t dict)
{
    loong_jinja_value_t tools = loongi_jinja_none();
    if (w->conversation.tools != NULL) {
        LOONG_TRY(
            loongi_jinja_from_json(w->values, w->conversation.tools, &tools));
    }
    LOONG_TRY(loongi_jinja_set(w->values, dict, "tools", tools));
    return loongi_jinja_set(w->values, dict, "documents", loongi_jinja_none());
}

/* The first `count` messages, without number `except` (-1: none). */
static loong_status_t render(chat_worker_t *w, int64_t count, int64_t except,
                             bool prompt, loong_jinja_output_t *out)
{
    const chat_conversation_t *c = &w->conversation;
    const chat_template_t *t = w->form;
    loong_jinja_value_t variables, messages, message;
    loongi_jinja_values_clear(w->values);
    LOONG_TRY(loongi_jinja_dict(w->values, &variables));
    LOONG_TRY(loongi_jinja_list(w->values, &messages));
    for (int64_t i = 0; i < count; i++) {
        if (i != except) {
            LOONG_TRY(loongi_jinja_from_json(
                w->values, loongi_json_at(c->messages, i), &message));
            LOONG_TRY(loongi_jinja_add(w->values, messages, message));
        }
    }
    LOONG_TRY(loongi_jinja_set(w->values, variables, "messages", messages));
    LOONG_TRY(set_tools(w, variables));
    LOONG_TRY(loongi_jinja_set(w->values, variables, "add_generation_prompt",
                               loongi_jinja_bool(prompt)));
    LOONG_TRY(set_members(w, variables, t->tokens));
    LOONG_TRY(set_members(w, variables, t->kwargs));
    LOONG_TRY(set_members(w, variables, c->kwargs));
    const loong_jinja_t *jinja =
        c->tools != NULL && t->with_tools != NULL ? t->with_tools : t->jinja;
    const loong_jinja_limits_t limits = {.now = t->now};
    return loongi_jinja_render(w->ctx, jinja, variables, &limits, out);
}

/* ---- what a message adds ------------------------------------------------- */

static loong_status_t add_span(chat_worker_t *w, size_t begin, size_t end)
{
    if (begin == end) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_grow(w->ctx, &w->learned, &w->learned_room,
                          w->num_learned + 1, sizeof(*w->learned),
                          "learned bytes"));
    w->learned[w->num_learned++] = (loong_jinja_span_t){begin, end};
    return LOONG_OK;
}

/* w->part must be how w->whole begins. */
static loong_status_t check_prefix(chat_worker_t *w, int64_t k,
                                   const char *what)
{
    const loong_jinja_output_t *a = &w->part;
    const loong_jinja_output_t *b = &w->whole;
    size_t at = 0;
    while (at < a->length && at < b->length && a->text[at] == b->text[at]) {
        at++;
    }
    LOONG_CHECK(w->ctx, at == a->length, LOONG_ERR_UNSUPPORTED,
                "messages[%" PRId64 "]: the template writes %s otherwise when "
                "it is followed by the rest, from byte %zu on: '%.20s', alone "
                "'%.20s'; so what is learned cannot be told: a template with "
                "generation blocks tells it, or data.chat.train_on: last where "
                "the last answer can be told",
                k, what, at, b->text + at, a->text + at);
    return LOONG_OK;
}

/* The bytes that message k adds to those before; of an assistant's without
 * what asks for it. */
static loong_status_t find_span(chat_worker_t *w, int64_t k, size_t span[2])
{
    const chat_conversation_t *c = &w->conversation;
    bool answer = c->message[k].role == CHAT_ASSISTANT;
    span[0] = 0;
    span[1] = w->whole.length;
    if (k > 0 || answer) {
        LOONG_TRY(render(w, k, -1, answer, &w->part));
        LOONG_TRY(check_prefix(w, k, "what stands before it"));
        span[0] = w->part.length;
    }
    if (k + 1 < c->count) {
        LOONG_TRY(render(w, k + 1, -1, false, &w->part));
        LOONG_TRY(check_prefix(w, k, "it"));
        span[1] = w->part.length;
    }
    LOONG_CHECK(w->ctx, span[0] <= span[1], LOONG_ERR_UNSUPPORTED,
                "messages[%" PRId64 "]: the template asks for an answer with "
                "more than the answer has",
                k);
    return LOONG_OK;
}

/* ---- what is learned ----------------------------------------------------- */

static bool wants(const chat_worker_t *w, int64_t k, int64_t last)
{
    const chat_message_t *m = &w->conversation.message[k];
    if (!m->may_learn) {
        return false;
    }
    if (m->role == CHAT_TOOL) {
        return w->rules.tool_results;
    }
    switch (w->rules.train_on) {
    case CHAT_TRAIN_ALL:
        return true;
    case CHAT_TRAIN_LAST:
        return k == last;
    default:
        return m->role == CHAT_ASSISTANT;
    }
}

/* Of messages[from .. to) those that are wanted, or with `others` those that
 * are not. */
static loong_status_t learn_messages(chat_worker_t *w, int64_t last,
                                     bool others)
{
    const chat_conversation_t *c = &w->conversation;
    size_t end = 0;
    for (int64_t k = 0; k < c->count; k++) {
        size_t span[2];
        if (wants(w, k, last) != others) {
            LOONG_TRY(find_span(w, k, span));
            if (others && end < span[0]) {
                LOONG_TRY(add_span(w, end, span[0]));
            }
            if (!others) {
                LOONG_TRY(add_span(w, span[0], span[1]));
            }
            end = span[1];
        }
    }
    return others && end < w->whole.length ? add_span(w, end, w->whole.length)
                                           : LOONG_OK;
}

/* Blocks of the template stand for the assistants' messages, in order. */
static loong_status_t learn_blocks(chat_worker_t *w, int64_t last)
{
    const chat_conversation_t *c = &w->conversation;
    int64_t answers = 0;
    int64_t wanted = 0;
    for (int64_t k = 0; k < c->count; k++) {
        bool answer = c->message[k].role == CHAT_ASSISTANT;
        answers += answer;
        wanted += answer && wants(w, k, last);
    }
    bool each = answers == w->whole.num_spans;
    LOONG_CHECK(w->ctx, each || wanted == answers, LOONG_ERR_UNSUPPORTED,
                "the template has %" PRId64 " generation blocks for %" PRId64
                " answers, of which %" PRId64 " are to be learned",
                w->whole.num_spans, answers, wanted);
    for (int64_t k = 0, block = 0; each && k < c->count; k++) {
        if (c->message[k].role == CHAT_ASSISTANT) {
            const loong_jinja_span_t *s = &w->whole.spans[block++];
            if (wants(w, k, last)) {
                LOONG_TRY(add_span(w, s->begin, s->end));
            }
        } else if (wants(w, k, last)) { /* a tool's result */
            size_t span[2];
            LOONG_TRY(find_span(w, k, span));
            LOONG_TRY(add_span(w, span[0], span[1]));
        }
    }
    for (int64_t i = 0; !each && i < w->whole.num_spans; i++) {
        LOONG_TRY(add_span(w, w->whole.spans[i].begin, w->whole.spans[i].end));
    }
    return LOONG_OK;
}

/* A message that leaves no trace is not left out in silence. */
static loong_status_t check_odd(chat_worker_t *w)
{
    const chat_conversation_t *c = &w->conversation;
    for (int64_t k = 0; k < c->count; k++) {
        if (!c->message[k].odd) {
            continue;
        }
        if (render(w, c->count, k, false, &w->part) != LOONG_OK) {
            loong_context_clear_error(w->ctx); /* it cannot be left out */
            continue;
        }
        LOONG_CHECK(w->ctx, strcmp(w->part.text, w->whole.text) != 0,
                    LOONG_ERR_UNSUPPORTED,
                    "messages[%" PRId64 "]: the template leaves out its role, "
                    "'%s'",
                    k,
                    loongi_json_string(loongi_json_get(
                        loongi_json_at(c->messages, k), "role")));
    }
    return LOONG_OK;
}

/* Where users' messages begin, for conversations that may be cut there; one
 * that cannot be told is no place to cut. */
static loong_status_t find_turns(chat_worker_t *w)
{
    const chat_conversation_t *c = &w->conversation;
    int64_t users = 0;
    for (int64_t k = 0; k < c->count; k++) {
        users += c->message[k].role == CHAT_USER;
    }
    LOONG_TRY(loongi_grow(w->ctx, &w->turns, &w->turns_room, users + 1,
                          sizeof(*w->turns), "turns"));
    for (int64_t k = 1; users > 1 && k < c->count; k++) {
        if (c->message[k].role != CHAT_USER) {
            continue;
        }
        if (render(w, k, -1, false, &w->part) != LOONG_OK) {
            loong_context_clear_error(w->ctx);
        } else if (w->part.length <= w->whole.length &&
                   memcmp(w->part.text, w->whole.text, w->part.length) == 0) {
            w->turns[w->num_turns++] = w->part.length;
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_chat_render(chat_worker_t *w)
{
    const chat_conversation_t *c = &w->conversation;
    int64_t last = c->count - 1;
    LOONG_CHECK(w->ctx, w->form->jinja != NULL, LOONG_ERR_CONFIG,
                "the model has no chat template: data.chat.template names one");
    while (last >= 0 && c->message[last].role != CHAT_ASSISTANT) {
        last--;
    }
    w->num_learned = w->num_turns = 0;
    LOONG_TRY(render(w, c->count, -1, false, &w->whole));
    LOONG_TRY(check_odd(w));
    LOONG_TRY(find_turns(w));
    if (w->rules.train_on == CHAT_TRAIN_ALL) {
        return learn_messages(w, last, true);
    }
    LOONG_CHECK(w->ctx, w->whole.spans_exact, LOONG_ERR_UNSUPPORTED,
                "the template has a generation block inside of a macro, a set "
                "block or a call block, where its place in the text is not "
                "known");
    return w->whole.num_spans > 0 ? learn_blocks(w, last)
                                  : learn_messages(w, last, false);
}
