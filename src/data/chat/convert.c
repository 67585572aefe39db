/* SPDX-License-Identifier: Apache-2.0
 *
 * From a record to messages as templates read them: roles checked, parts of
 * texts put together, arguments of tool calls parsed. Called by the formats of
 * format.c. Read chat.h before. */
#include <inttypes.h>
#include <string.h>

#include "chat.h"
#include "utf8.h"

static const struct {
    const char *name;
    chat_role_t role;
} roles[] = {{"system", CHAT_SYSTEM}, {"developer", CHAT_SYSTEM},
             {"user", CHAT_USER},     {"assistant", CHAT_ASSISTANT},
             {"tool", CHAT_TOOL},     {"function", CHAT_TOOL},
             {"ipython", CHAT_TOOL}};

static const char *const said[] = {[CHAT_SYSTEM] = "system",
                                   [CHAT_USER] = "user",
                                   [CHAT_ASSISTANT] = "assistant",
                                   [CHAT_TOOL] = "tool"};

loong_status_t loongi_chat_begin(chat_conversation_t *c)
{
    c->text.length = 0;
    loongi_text_append(&c->text, "[", 1);
    LOONG_TRY(loongi_chat_take_images(c, c->json));
    return c->text.status;
}

static loong_status_t add_role(chat_conversation_t *c, chat_role_t role,
                               bool may_learn)
{
    LOONG_TRY(loongi_grow(c->ctx, &c->message, &c->room, c->count + 1,
                          sizeof(*c->message), "messages"));
    c->message[c->count++] =
        (chat_message_t){role, may_learn, role == CHAT_TOOL};
    loongi_text_printf(&c->text, "%s{", c->count > 1 ? "," : "");
    return c->text.status;
}

loong_status_t loongi_chat_say(chat_conversation_t *c, chat_role_t role,
                               const loong_json_t *content, bool may_learn)
{
    LOONG_TRY(add_role(c, role, may_learn));
    loongi_text_printf(&c->text, "\"role\":\"%s\",\"content\":", said[role]);
    LOONG_TRY(loongi_chat_put_content(c, content, said[role]));
    loongi_text_append(&c->text, "}", 1);
    return c->text.status;
}

/* ---- a message in OpenAI's form ------------------------------------------ */

static loong_status_t find_role(chat_conversation_t *c,
                                const loong_json_t *message, const char *where,
                                chat_role_t *role_p, bool *odd_p)
{
    const loong_json_t *json = loongi_json_get(message, "role");
    const char *name = loongi_json_string(json);
    LOONG_CHECK(c->ctx, json != NULL, LOONG_ERR_FORMAT, "%s has no 'role'",
                where);
    LOONG_CHECK(c->ctx, loongi_json_kind(json) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT, "%s: role is %s, must be a string", where,
                loongi_json_kind_text(json));
    for (int64_t i = 0; i < LOONG_COUNT_OF(roles); i++) {
        if (strcmp(roles[i].name, name) == 0) {
            *role_p = roles[i].role;
            *odd_p = *role_p == CHAT_TOOL || strcmp(name, said[*role_p]) != 0;
            return LOONG_OK;
        }
    }
    return LOONG_FAIL(c->ctx, LOONG_ERR_FORMAT,
                      "%s: role is '%s', known are system, developer, user, "
                      "assistant, tool, function, ipython",
                      where, name);
}

static loong_status_t put_content(chat_conversation_t *c,
                                  const loong_json_t *message,
                                  const loong_json_t *content,
                                  const char *where)
{
    if (loongi_json_kind(content) != LOONG_JSON_NULL) {
        return loongi_chat_put_content(c, content, where);
    }
    LOONG_CHECK(c->ctx,
                loongi_json_count(loongi_json_get(message, "tool_calls")) > 0,
                LOONG_ERR_FORMAT,
                "%s: content is null, which goes with tool calls alone", where);
    loongi_text_printf(&c->text, "null");
    return c->text.status;
}

/* Arguments that are JSON in a text, as OpenAI has them, as what they say:
 * templates want a mapping. */
static loong_status_t put_arguments(chat_conversation_t *c,
                                    const loong_json_t *arguments,
                                    const char *where)
{
    loong_json_t *parsed = NULL;
    if (loongi_json_kind(arguments) == LOONG_JSON_OBJECT) {
        loongi_text_json(&c->text, arguments);
        return c->text.status;
    }
    LOONG_CHECK(c->ctx, loongi_json_kind(arguments) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT,
                "%s: arguments of a tool call are %s, must be an object or its "
                "text",
                where, loongi_json_kind_text(arguments));
    LOONG_TRY(loongi_json_parse(c->ctx, loongi_json_string(arguments),
                                loongi_json_string_length(arguments),
                                "arguments of a tool call", &parsed));
    loongi_text_json(&c->text, parsed);
    loongi_json_destroy(&parsed);
    return c->text.status;
}

static void put_key(loong_text_t *text, bool first, const char *key)
{
    loongi_text_append(text, ",", !first);
    loongi_text_json_string(text, key);
    loongi_text_append(text, ":", 1);
}

/* A call's mapping, or that of its function. */
static loong_status_t put_call(chat_conversation_t *c, const loong_json_t *call,
                               const char *where)
{
    const loong_json_member_t *it = loongi_json_first(call);
    bool first = true;
    LOONG_CHECK(c->ctx, loongi_json_kind(call) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s: a tool call is %s, must be an object",
                where, loongi_json_kind_text(call));
    loongi_text_append(&c->text, "{", 1);
    for (; it != NULL; it = loongi_json_next(call, it), first = false) {
        const char *key = loongi_json_member_key(it);
        const loong_json_t *value = loongi_json_member_value(it);
        put_key(&c->text, first, key);
        if (strcmp(key, "function") == 0) {
            LOONG_TRY(put_call(c, value, where));
        } else if (strcmp(key, "arguments") == 0) {
            LOONG_TRY(put_arguments(c, value, where));
        } else {
            loongi_text_json(&c->text, value);
        }
    }
    loongi_text_append(&c->text, "}", 1);
    return c->text.status;
}

static loong_status_t put_calls(chat_conversation_t *c,
                                const loong_json_t *calls, const char *where)
{
    if (loongi_json_kind(calls) == LOONG_JSON_NULL) {
        loongi_text_printf(&c->text, "null");
        return c->text.status;
    }
    LOONG_CHECK(c->ctx, loongi_json_kind(calls) == LOONG_JSON_ARRAY,
                LOONG_ERR_FORMAT, "%s: tool_calls is %s, must be a list", where,
                loongi_json_kind_text(calls));
    loongi_text_append(&c->text, "[", 1);
    for (int64_t i = 0; i < loongi_json_count(calls); i++) {
        const loong_json_t *call = loongi_json_at(calls, i);
        const loong_json_t *function = loongi_json_get(call, "function");
        const loong_json_t *name =
            loongi_json_get(function != NULL ? function : call, "name");
        LOONG_CHECK(c->ctx, loongi_json_kind(name) == LOONG_JSON_STRING,
                    LOONG_ERR_FORMAT, "%s: a tool call without a name", where);
        loongi_text_append(&c->text, ",", i > 0);
        LOONG_TRY(put_call(c, call, where));
    }
    loongi_text_append(&c->text, "]", 1);
    return c->text.status;
}

/* 1, true or not given: it may be learned. */
static loong_status_t find_weight(chat_conversation_t *c,
                                  const loong_json_t *message,
                                  const char *where, bool *learned_p)
{
    const loong_json_t *weight = loongi_json_get(message, "weight");
    loong_json_kind_t kind = loongi_json_kind(weight);
    double value = kind == LOONG_JSON_BOOL ? loongi_json_bool(weight)
                                           : loongi_json_real(weight);
    if (weight == NULL || kind == LOONG_JSON_NULL) {
        return LOONG_OK;
    }
    LOONG_CHECK(c->ctx,
                (kind == LOONG_JSON_INT || kind == LOONG_JSON_REAL ||
                 kind == LOONG_JSON_BOOL) &&
                    (value == 0.0 || value == 1.0),
                LOONG_ERR_FORMAT, "%s: weight must be 0 or 1", where);
    *learned_p = *learned_p && value != 0.0;
    return LOONG_OK;
}

/* The reasoning of a message, by any of its names; NULL: there is none. */
static const loong_json_t *find_reasoning(const loong_json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking",
                                        "reasoning"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        const loong_json_t *value = loongi_json_get(message, names[i]);
        if (loongi_json_kind(value) != LOONG_JSON_NULL) {
            return value;
        }
    }
    return NULL;
}

/* A member but for content and calls. Templates read `reasoning_content` or
 * `thinking`: as in transformers both are there if either is, or `reasoning`.
 * `thinking` was put. */
static void put_member(chat_conversation_t *c, bool first, const char *key,
                       const loong_json_t *value, const loong_json_t *reasoning)
{
    if (reasoning != NULL && strcmp(key, "thinking") == 0) {
        return;
    }
    bool standard = strcmp(key, "reasoning_content") == 0;
    put_key(&c->text, first, key);
    loongi_text_json(&c->text,
                     reasoning != NULL && standard ? reasoning : value);
}

loong_status_t loongi_chat_add(chat_conversation_t *c,
                               const loong_json_t *message, const char *where,
                               bool may_learn)
{
    chat_role_t role = CHAT_USER;
    bool first = true;
    bool odd = false;
    LOONG_CHECK(c->ctx, loongi_json_kind(message) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s is %s, must be an object", where,
                loongi_json_kind_text(message));
    LOONG_TRY(find_role(c, message, where, &role, &odd));
    LOONG_TRY(find_weight(c, message, where, &may_learn));
    LOONG_TRY(add_role(c, role, may_learn));
    c->message[c->count - 1].odd = odd;
    LOONG_CHECK(c->ctx,
                loongi_json_get(message, "content") != NULL ||
                    loongi_json_get(message, "tool_calls") != NULL,
                LOONG_ERR_FORMAT, "%s has no 'content'", where);
    const loong_json_t *reasoning = find_reasoning(message);
    if (reasoning != NULL) {
        const loong_json_t *thinking = loongi_json_get(message, "thinking");
        put_member(c, true, "thinking", thinking != NULL ? thinking : reasoning,
                   NULL);
        first = false;
    }
    const loong_json_member_t *it = loongi_json_first(message);
    for (; it != NULL; it = loongi_json_next(message, it), first = false) {
        const char *key = loongi_json_member_key(it);
        const loong_json_t *value = loongi_json_member_value(it);
        if (strcmp(key, "content") == 0) {
            put_key(&c->text, first, key);
            LOONG_TRY(put_content(c, message, value, where));
        } else if (strcmp(key, "tool_calls") == 0) {
            put_key(&c->text, first, key);
            LOONG_TRY(put_calls(c, value, where));
        } else {
            put_member(c, first, key, value, reasoning);
        }
    }
    if (reasoning != NULL &&
        loongi_json_get(message, "reasoning_content") == NULL) {
        put_member(c, false, "reasoning_content", reasoning, NULL);
    }
    loongi_text_append(&c->text, "}", 1);
    return c->text.status;
}

/* ---- the record ---------------------------------------------------------- */

loong_status_t loongi_chat_end(chat_conversation_t *c)
{
    loongi_text_append(&c->text, "]", 1);
    LOONG_TRY(c->text.status);
    LOONG_CHECK(c->ctx, c->count > 0, LOONG_ERR_FORMAT, "there is no message");
    LOONG_TRY(loongi_chat_check_images(c));
    LOONG_TRY(loongi_json_parse(c->ctx, c->text.data, c->text.length,
                                "messages", &c->made));
    c->messages = c->made;
    return LOONG_OK;
}

/* A list, or the text of one. */
loong_status_t loongi_chat_take_tools(chat_conversation_t *c,
                                      const loong_json_t *record)
{
    const loong_json_t *tools = loongi_json_get(record, "tools");
    const loong_json_t *kwargs =
        loongi_json_get(record, "chat_template_kwargs");
    if (loongi_json_kind(tools) == LOONG_JSON_STRING &&
        loongi_json_string_length(tools) > 0) {
        LOONG_TRY(loongi_json_parse(c->ctx, loongi_json_string(tools),
                                    loongi_json_string_length(tools), "tools",
                                    &c->parsed_tools));
        tools = c->parsed_tools;
    }
    bool none = tools == NULL || loongi_json_kind(tools) == LOONG_JSON_NULL ||
                loongi_json_kind(tools) == LOONG_JSON_STRING;
    LOONG_CHECK(c->ctx, none || loongi_json_kind(tools) == LOONG_JSON_ARRAY,
                LOONG_ERR_FORMAT, "tools is %s, must be a list",
                loongi_json_kind_text(tools));
    c->tools = none || loongi_json_count(tools) == 0 ? NULL : tools;
    LOONG_CHECK(
        c->ctx, kwargs == NULL || loongi_json_kind(kwargs) == LOONG_JSON_OBJECT,
        LOONG_ERR_FORMAT, "chat_template_kwargs is %s, must be an object",
        loongi_json_kind_text(kwargs));
    c->kwargs = kwargs;
    return LOONG_OK;
}

static void forget(chat_conversation_t *c)
{
    loongi_json_destroy(&c->json);
    loongi_json_destroy(&c->made);
    loongi_json_destroy(&c->parsed_tools);
    c->messages = c->tools = c->kwargs = c->members = NULL;
    c->count = 0;
    c->num_parts = 0;
    c->left_out = false;
    memset(c->listed, 0, sizeof(c->listed));
    c->num_images = 0;
    c->image_paths.length = 0;
}

loong_status_t loongi_chat_convert(chat_conversation_t *c,
                                   const chat_format_t *format,
                                   const chat_record_t *record)
{
    forget(c);
    LOONG_CHECK(c->ctx, !record->broken, LOONG_ERR_FORMAT, "%.*s",
                (int)record->length, record->bytes);
    if (record->plain) {
        LOONG_CHECK(c->ctx, loongi_utf8_valid(record->bytes, record->length),
                    LOONG_ERR_FORMAT, "the text is not UTF-8");
        c->part[0].text = record->bytes;
        c->part[0].length = record->length;
        c->part[0].learned = true;
        c->num_parts = 1;
        return LOONG_OK;
    }
    loong_status_t status = loongi_json_parse(c->ctx, record->bytes,
                                              record->length, "JSON", &c->json);
    if (status == LOONG_ERR_FORMAT &&
        memchr(record->bytes, '\r', record->length) != NULL) {
        loongi_error_note(c->ctx, "(its lines end in CR alone: LF, or CR and "
                                  "LF, is wanted)");
    }
    LOONG_TRY(status);
    LOONG_CHECK(c->ctx, loongi_json_kind(c->json) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "the record is %s, must be an object",
                loongi_json_kind_text(c->json));
    const char *kind = c->path != NULL ? loongi_chat_kind(c->path) : NULL;
    if (kind != NULL && strcmp(kind, ".tar") == 0) {
        c->members = loongi_json_get(c->json, CHAT_MEMBERS);
    }
    if (c->members != NULL && c->mixed && !format->matches(c, c->json)) {
        format = loongi_chat_format_of(c, c->json);
        LOONG_CHECK(c->ctx, format != NULL, LOONG_ERR_FORMAT,
                    "the record is of no known format");
    }
    LOONG_TRY(format->convert(c, c->json));
    return c->num_parts > 0 ? loongi_chat_use_images(c, c->json) : LOONG_OK;
}

void loongi_chat_conversation_free(chat_conversation_t *c)
{
    forget(c);
    loongi_text_free(&c->text);
    loongi_text_free(&c->image_paths);
    loongi_free(c->ctx, c->images);
    loongi_free(c->ctx, c->message);
}
