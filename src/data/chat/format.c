/* SPDX-License-Identifier: Apache-2.0
 *
 * The formats of records: by which keys each is known, and what its parts are.
 * Called by prepare.c. Read chat.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "chat.h"

static bool is(const loong_json_t *json, loong_json_kind_t kind)
{
    return json != NULL && loongi_json_kind(json) == kind;
}

static bool has(const loong_json_t *record, const char *key)
{
    return loongi_json_get(record, key) != NULL;
}

static loong_status_t want(chat_conversation_t *c, const loong_json_t *record,
                           const char *key, loong_json_kind_t kind,
                           const loong_json_t **value_p)
{
    static const char *const names[] = {[LOONG_JSON_STRING] = "a text",
                                        [LOONG_JSON_ARRAY] = "a list",
                                        [LOONG_JSON_BOOL] = "true or false"};
    *value_p = loongi_json_get(record, key);
    LOONG_CHECK(c->ctx, *value_p != NULL, LOONG_ERR_FORMAT,
                "the record has no '%s'", key);
    LOONG_CHECK(c->ctx, is(*value_p, kind), LOONG_ERR_FORMAT,
                "'%s' is %s, must be %s", key, loongi_json_kind_text(*value_p),
                names[kind]);
    return LOONG_OK;
}

/* A text that is there and not empty. */
static const loong_json_t *text_of(const loong_json_t *record, const char *key)
{
    const loong_json_t *value = loongi_json_get(record, key);
    return loongi_json_string_length(value) > 0 ? value : NULL;
}

static void add_part(chat_conversation_t *c, const loong_json_t *text,
                     bool learned)
{
    c->part[c->num_parts].text = loongi_json_string(text);
    c->part[c->num_parts].length = loongi_json_string_length(text);
    c->part[c->num_parts++].learned = learned;
}

/* Messages from `from` on; the others are context. */
static loong_status_t add_list(chat_conversation_t *c, const loong_json_t *list,
                               const char *name, int64_t from)
{
    for (int64_t i = 0; i < loongi_json_count(list); i++) {
        char where[64];
        snprintf(where, sizeof(where), "%s[%" PRId64 "]", name, i);
        LOONG_TRY(
            loongi_chat_add(c, loongi_json_at(list, i), where, i >= from));
    }
    return LOONG_OK;
}

/* ---- openai -------------------------------------------------------------- */

static const char *const message_keys[] = {"messages", "conversations",
                                           "conversation", "texts", NULL};

static const char *messages_key(const loong_json_t *record)
{
    for (int i = 0; message_keys[i] != NULL; i++) {
        const loong_json_t *list = loongi_json_get(record, message_keys[i]);
        if (is(list, LOONG_JSON_ARRAY) &&
            has(loongi_json_at(list, 0), "role")) {
            return message_keys[i];
        }
    }
    return NULL;
}

static bool is_sharegpt(const chat_conversation_t *c,
                        const loong_json_t *record)
{
    const loong_json_t *list =
        loongi_json_get(record, c->tags[CHAT_TAG_messages]);
    return is(list, LOONG_JSON_ARRAY) &&
           has(loongi_json_at(list, 0), c->tags[CHAT_TAG_role]);
}

static bool is_openai(const chat_conversation_t *c, const loong_json_t *record)
{
    return messages_key(record) != NULL ||
           (!is_sharegpt(c, record) &&
            is(loongi_json_get(record, "messages"), LOONG_JSON_ARRAY));
}

static loong_status_t from_openai(chat_conversation_t *c,
                                  const loong_json_t *record)
{
    const char *key = messages_key(record);
    const loong_json_t *list = NULL;
    LOONG_TRY(want(c, record, key != NULL ? key : "messages", LOONG_JSON_ARRAY,
                   &list));
    LOONG_TRY(loongi_chat_take_tools(c, record));
    LOONG_TRY(loongi_chat_begin(c));
    LOONG_TRY(add_list(c, list, key != NULL ? key : "messages", 0));
    return loongi_chat_end(c);
}

/* ---- sharegpt ------------------------------------------------------------ */

static bool says(const chat_conversation_t *c, const char *role, chat_tag_t tag,
                 const char *also)
{
    return strcmp(role, c->tags[tag]) == 0 || strcmp(role, also) == 0;
}

/* A call is {"name": ..., "arguments": ...} as a text, or a list of them. */
static loong_status_t add_calls(chat_conversation_t *c,
                                const loong_json_t *value, const char *where)
{
    loong_json_t *calls = NULL;
    loong_json_t *message = NULL;
    loong_text_t text = loongi_text_begin(c->ctx);
    LOONG_TRY(loongi_json_parse(c->ctx, loongi_json_string(value),
                                loongi_json_string_length(value),
                                "a function call", &calls));
    bool list = loongi_json_kind(calls) == LOONG_JSON_ARRAY;
    int64_t count = list ? loongi_json_count(calls) : 1;
    loongi_text_printf(&text, "{\"role\":\"assistant\",\"content\":\"\","
                              "\"tool_calls\":[");
    for (int64_t i = 0; i < count; i++) {
        loongi_text_printf(
            &text, "%s{\"type\":\"function\",\"function\":", i > 0 ? "," : "");
        loongi_text_json(&text, list ? loongi_json_at(calls, i) : calls);
        loongi_text_append(&text, "}", 1);
    }
    loongi_text_append(&text, "]}", 2);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_json_parse(c->ctx, text.data, text.length,
                                   "a function call", &message);
    }
    if (status == LOONG_OK) {
        status = loongi_chat_add(c, message, where, true);
    }
    loongi_json_destroy(&message);
    loongi_json_destroy(&calls);
    loongi_text_free(&text);
    return status;
}

static loong_status_t add_turn(chat_conversation_t *c, const loong_json_t *turn,
                               const char *where)
{
    const loong_json_t *name = loongi_json_get(turn, c->tags[CHAT_TAG_role]);
    const loong_json_t *value =
        loongi_json_get(turn, c->tags[CHAT_TAG_content]);
    const char *role = loongi_json_string(name);
    LOONG_CHECK(c->ctx,
                is(name, LOONG_JSON_STRING) && is(value, LOONG_JSON_STRING),
                LOONG_ERR_FORMAT, "%s has no texts '%s' and '%s'", where,
                c->tags[CHAT_TAG_role], c->tags[CHAT_TAG_content]);
    if (says(c, role, CHAT_TAG_function, "function_call")) {
        return add_calls(c, value, where);
    }
    bool user = says(c, role, CHAT_TAG_user, "user");
    bool assistant = says(c, role, CHAT_TAG_assistant, "assistant");
    bool system = says(c, role, CHAT_TAG_system, "system");
    bool tool = says(c, role, CHAT_TAG_tool, "tool");
    LOONG_CHECK(c->ctx, user || assistant || system || tool, LOONG_ERR_FORMAT,
                "%s: '%s' is '%s', known are %s, %s, %s, %s, %s and OpenAI's "
                "roles; data.chat.tags says others",
                where, c->tags[CHAT_TAG_role], role, c->tags[CHAT_TAG_user],
                c->tags[CHAT_TAG_assistant], c->tags[CHAT_TAG_system],
                c->tags[CHAT_TAG_tool], c->tags[CHAT_TAG_function]);
    return loongi_chat_say(c,
                           user        ? CHAT_USER
                           : assistant ? CHAT_ASSISTANT
                           : system    ? CHAT_SYSTEM
                                       : CHAT_TOOL,
                           value, true);
}

static loong_status_t from_sharegpt(chat_conversation_t *c,
                                    const loong_json_t *record)
{
    const loong_json_t *list = NULL;
    const loong_json_t *system = text_of(record, c->tags[CHAT_TAG_system]);
    LOONG_TRY(
        want(c, record, c->tags[CHAT_TAG_messages], LOONG_JSON_ARRAY, &list));
    LOONG_TRY(loongi_chat_take_tools(c, record));
    LOONG_TRY(loongi_chat_begin(c));
    if (system != NULL) {
        LOONG_TRY(loongi_chat_say(c, CHAT_SYSTEM, system, true));
    }
    for (int64_t i = 0; i < loongi_json_count(list); i++) {
        char where[64];
        snprintf(where, sizeof(where), "%.40s[%" PRId64 "]",
                 c->tags[CHAT_TAG_messages], i);
        LOONG_TRY(add_turn(c, loongi_json_at(list, i), where));
    }
    return loongi_chat_end(c);
}

/* ---- alpaca -------------------------------------------------------------- */

static bool is_alpaca(const chat_conversation_t *c, const loong_json_t *record)
{
    (void)c;
    return (has(record, "instruction") && has(record, "output")) ||
           (has(record, "prompt") && has(record, "response"));
}

/* The instruction, and on a line of its own what it is about. */
static loong_status_t say_instruction(chat_conversation_t *c,
                                      const loong_json_t *instruction,
                                      const loong_json_t *input)
{
    loong_json_t *both = NULL;
    if (input == NULL) {
        return loongi_chat_say(c, CHAT_USER, instruction, true);
    }
    loong_text_t text = loongi_text_begin(c->ctx);
    loongi_text_json(&text, instruction);
    text.length--; /* its last quote, and the first of the other */
    loongi_text_printf(&text, "\\n");
    size_t at = text.length;
    loongi_text_json(&text, input);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        memmove(text.data + at, text.data + at + 1, text.length - at - 1);
        text.length--;
        status = loongi_json_parse(c->ctx, text.data, text.length,
                                   "an instruction", &both);
    }
    if (status == LOONG_OK) {
        status = loongi_chat_say(c, CHAT_USER, both, true);
    }
    loongi_json_destroy(&both);
    loongi_text_free(&text);
    return status;
}

static loong_status_t say_history(chat_conversation_t *c,
                                  const loong_json_t *history)
{
    bool none = history == NULL || is(history, LOONG_JSON_NULL) ||
                loongi_json_string_length(history) == 0;
    LOONG_CHECK(c->ctx, none || is(history, LOONG_JSON_ARRAY), LOONG_ERR_FORMAT,
                "'history' is %s, must be a list of pairs",
                loongi_json_kind_text(history));
    for (int64_t i = 0; i < loongi_json_count(history); i++) {
        const loong_json_t *pair = loongi_json_at(history, i);
        for (int k = 0; k < 2; k++) {
            const loong_json_t *text = loongi_json_at(pair, k);
            LOONG_CHECK(c->ctx,
                        loongi_json_count(pair) == 2 &&
                            is(text, LOONG_JSON_STRING),
                        LOONG_ERR_FORMAT,
                        "history[%" PRId64 "] is no pair of texts", i);
            LOONG_TRY(loongi_chat_say(c, k == 0 ? CHAT_USER : CHAT_ASSISTANT,
                                      text, true));
        }
    }
    return LOONG_OK;
}

static loong_status_t from_alpaca(chat_conversation_t *c,
                                  const loong_json_t *record)
{
    bool other = !has(record, "instruction") && has(record, "prompt");
    const loong_json_t *instruction = NULL;
    const loong_json_t *output = NULL;
    const loong_json_t *system = text_of(record, "system");
    const loong_json_t *input = text_of(record, other ? "query" : "input");
    LOONG_TRY(want(c, record, other ? "prompt" : "instruction",
                   LOONG_JSON_STRING, &instruction));
    LOONG_TRY(want(c, record, other ? "response" : "output", LOONG_JSON_STRING,
                   &output));
    LOONG_TRY(loongi_chat_take_tools(c, record));
    LOONG_TRY(loongi_chat_begin(c));
    if (system != NULL) {
        LOONG_TRY(loongi_chat_say(c, CHAT_SYSTEM, system, true));
    }
    LOONG_TRY(say_history(c, loongi_json_get(record, "history")));
    LOONG_TRY(say_instruction(c, instruction, input));
    LOONG_TRY(loongi_chat_say(c, CHAT_ASSISTANT, output, true));
    return loongi_chat_end(c);
}

/* ---- prompt and completion ----------------------------------------------- */

/* `answer` is what is learned behind record.prompt. */
static loong_status_t from_pair(chat_conversation_t *c,
                                const loong_json_t *record, const char *key)
{
    const loong_json_t *prompt = loongi_json_get(record, "prompt");
    const loong_json_t *answer = loongi_json_get(record, key);
    bool texts = is(prompt, LOONG_JSON_STRING) && is(answer, LOONG_JSON_STRING);
    bool lists = is(prompt, LOONG_JSON_ARRAY) && is(answer, LOONG_JSON_ARRAY);
    LOONG_CHECK(c->ctx, texts || lists, LOONG_ERR_FORMAT,
                "'prompt' is %s and '%s' is %s, must be two texts or two lists "
                "of messages",
                prompt != NULL ? loongi_json_kind_text(prompt) : "missing", key,
                answer != NULL ? loongi_json_kind_text(answer) : "missing");
    if (texts) {
        add_part(c, prompt, false);
        add_part(c, answer, true);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_chat_take_tools(c, record));
    LOONG_TRY(loongi_chat_begin(c));
    LOONG_TRY(add_list(c, prompt, "prompt", INT64_MAX));
    LOONG_TRY(add_list(c, answer, key, 0));
    return loongi_chat_end(c);
}

static bool is_pair(const chat_conversation_t *c, const loong_json_t *record)
{
    (void)c;
    return has(record, "prompt") && has(record, "completion");
}

static loong_status_t from_prompt(chat_conversation_t *c,
                                  const loong_json_t *record)
{
    return from_pair(c, record, "completion");
}

/* ---- preferences --------------------------------------------------------- */

static loong_status_t check_asked(chat_conversation_t *c, const char *what)
{
    LOONG_CHECK(c->ctx, c->use_chosen, LOONG_ERR_UNSUPPORTED,
                "%s: there is no training on preferences yet; with "
                "data.chat.use_chosen what was preferred is learned as in "
                "fine-tuning",
                what);
    return LOONG_OK;
}

static bool is_preference(const chat_conversation_t *c,
                          const loong_json_t *record)
{
    (void)c;
    return has(record, "chosen") && has(record, "rejected");
}

/* The messages that both lists begin with. */
static loong_status_t count_common(chat_conversation_t *c,
                                   const loong_json_t *a, const loong_json_t *b,
                                   int64_t *common_p)
{
    loong_text_t x = loongi_text_begin(c->ctx);
    loong_text_t y = loongi_text_begin(c->ctx);
    int64_t most = LOONG_MIN(loongi_json_count(a), loongi_json_count(b));
    bool same = true;
    *common_p = 0;
    while (same && *common_p < most) {
        x.length = y.length = 0;
        loongi_text_json(&x, loongi_json_at(a, *common_p));
        loongi_text_json(&y, loongi_json_at(b, *common_p));
        same = strcmp(loongi_text_get(&x), loongi_text_get(&y)) == 0;
        *common_p += same;
    }
    loong_status_t status = x.status != LOONG_OK ? x.status : y.status;
    loongi_text_free(&x);
    loongi_text_free(&y);
    return status;
}

static loong_status_t from_preference(chat_conversation_t *c,
                                      const loong_json_t *record)
{
    const loong_json_t *chosen = NULL;
    int64_t common = 0;
    LOONG_TRY(check_asked(c, "a preference pair (chosen, rejected)"));
    if (has(record, "prompt")) {
        return from_pair(c, record, "chosen");
    }
    LOONG_TRY(want(c, record, "chosen", LOONG_JSON_ARRAY, &chosen));
    LOONG_TRY(
        count_common(c, chosen, loongi_json_get(record, "rejected"), &common));
    LOONG_TRY(loongi_chat_take_tools(c, record));
    LOONG_TRY(loongi_chat_begin(c));
    LOONG_TRY(add_list(c, chosen, "chosen", common));
    return loongi_chat_end(c);
}

static bool is_kto(const chat_conversation_t *c, const loong_json_t *record)
{
    return is_pair(c, record) && has(record, "label");
}

static loong_status_t from_kto(chat_conversation_t *c,
                               const loong_json_t *record)
{
    const loong_json_t *label = NULL;
    LOONG_TRY(check_asked(c, "an answer with a label (KTO)"));
    LOONG_TRY(want(c, record, "label", LOONG_JSON_BOOL, &label));
    c->left_out = !loongi_json_bool(label);
    return from_pair(c, record, "completion");
}

/* ---- captions and questions about pictures ------------------------------ */

/* A user's message: the record's pictures and videos, in front of the text
 * where it does not say where they are. */
static loong_status_t say_seen(chat_conversation_t *c, const char *text)
{
    loong_text_t whole = loongi_text_begin(c->ctx);
    loong_text_t json = loongi_text_begin(c->ctx);
    loong_json_t *content = NULL;
    loongi_chat_put_markers(c, text, &whole);
    loongi_text_printf(&whole, "%s", text);
    loongi_text_json_string(&json, loongi_text_get(&whole));
    loong_status_t status =
        whole.status != LOONG_OK ? whole.status : json.status;
    if (status == LOONG_OK) {
        status = loongi_json_parse(c->ctx, json.data, json.length, "a question",
                                   &content);
    }
    if (status == LOONG_OK) {
        status = loongi_chat_say(c, CHAT_USER, content, true);
    }
    loongi_json_destroy(&content);
    loongi_text_free(&json);
    loongi_text_free(&whole);
    return status;
}

static bool is_caption(const chat_conversation_t *c, const loong_json_t *record)
{
    (void)c;
    return has(record, "caption");
}

static loong_status_t from_caption(chat_conversation_t *c,
                                   const loong_json_t *record)
{
    const loong_json_t *caption = NULL;
    LOONG_TRY(want(c, record, "caption", LOONG_JSON_STRING, &caption));
    LOONG_TRY(loongi_chat_begin(c));
    LOONG_TRY(say_seen(c, ""));
    LOONG_TRY(loongi_chat_say(c, CHAT_ASSISTANT, caption, true));
    return loongi_chat_end(c);
}

static bool is_vqa(const chat_conversation_t *c, const loong_json_t *record)
{
    (void)c;
    return has(record, "context") && has(record, "answers");
}

/* The answer, or the first of those that weigh most. */
static const loong_json_t *best_answer(const loong_json_t *record)
{
    const loong_json_t *answers = loongi_json_get(record, "answers");
    const loong_json_t *weights = loongi_json_get(record, "answer_weights");
    int64_t best = 0;
    if (!is(answers, LOONG_JSON_ARRAY)) {
        return answers;
    }
    for (int64_t i = 1; i < loongi_json_count(weights); i++) {
        best = loongi_json_real(loongi_json_at(weights, i)) >
                       loongi_json_real(loongi_json_at(weights, best))
                   ? i
                   : best;
    }
    return best < loongi_json_count(answers) ? loongi_json_at(answers, best)
                                             : NULL;
}

static loong_status_t from_vqa(chat_conversation_t *c,
                               const loong_json_t *record)
{
    const loong_json_t *context = NULL;
    const loong_json_t *answer = best_answer(record);
    LOONG_TRY(want(c, record, "context", LOONG_JSON_STRING, &context));
    LOONG_CHECK(c->ctx, is(answer, LOONG_JSON_STRING), LOONG_ERR_FORMAT,
                "'answers' is no text and no list of texts");
    LOONG_TRY(loongi_chat_begin(c));
    LOONG_TRY(say_seen(c, loongi_json_string(context)));
    LOONG_TRY(loongi_chat_say(c, CHAT_ASSISTANT, answer, true));
    return loongi_chat_end(c);
}

/* ---- text ---------------------------------------------------------------- */

static bool is_text(const chat_conversation_t *c, const loong_json_t *record)
{
    (void)c;
    return has(record, "text");
}

static loong_status_t from_text(chat_conversation_t *c,
                                const loong_json_t *record)
{
    const loong_json_t *text = NULL;
    LOONG_TRY(want(c, record, "text", LOONG_JSON_STRING, &text));
    add_part(c, text, true);
    return LOONG_OK;
}

/* The first that matches: those that want more come before. */
const chat_format_t loongi_chat_formats[] = {
    {"preference", is_preference, from_preference},
    {"kto", is_kto, from_kto},
    {"prompt_completion", is_pair, from_prompt},
    {"openai", is_openai, from_openai},
    {"sharegpt", is_sharegpt, from_sharegpt},
    {"alpaca", is_alpaca, from_alpaca},
    {"vqa", is_vqa, from_vqa},
    {"caption", is_caption, from_caption},
    {"text", is_text, from_text},
    {NULL, NULL, NULL}};

const chat_format_t *loongi_chat_format_named(const char *name)
{
    const chat_format_t *format = loongi_chat_formats;
    while (format->name != NULL && strcmp(format->name, name) != 0) {
        format++;
    }
    return format->name != NULL ? format : NULL;
}

const chat_format_t *loongi_chat_format_of(const chat_conversation_t *c,
                                           const loong_json_t *record)
{
    const chat_format_t *format = loongi_chat_formats;
    while (format->name != NULL && !format->matches(c, record)) {
        format++;
    }
    return format->name != NULL ? format : NULL;
}
