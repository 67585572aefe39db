/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of every format as messages, by hand; how a format is known; what is
 * refused, and why. */
#include "test.h"

#include "chat.h"

typedef struct wanted {
    const char *format; /* that is recognised */
    const char *record;
    const char *messages; /* NULL: of texts, [0] the parts in "|", learned ones
                             in capitals */
    const char *learn;    /* a letter each: s u a t, a capital may be learned */
} wanted_t;

#define CALL                                                             \
    "\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{" \
    "\"name\":\"add\",\"arguments\":"

static const wanted_t wanted[] = {
    {"openai",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"be\"},{\"role\":"
     "\"user\",\"content\":\"q\",\"name\":\"Bo\"},{\"role\":\"assistant\","
     "\"content\":\"a\",\"weight\":0},{\"role\":\"user\",\"content\":"
     "[{\"type\":\"text\",\"text\":\"x\\n\"},{\"type\":\"text\",\"text\":"
     "\"\\\"y\"}]},{\"role\":\"assistant\",\"content\":\"b\","
     "\"reasoning_content\":\"r\",\"weight\":1}]}",
     "[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":"
     "\"q\",\"name\":\"Bo\"},{\"role\":\"assistant\",\"content\":\"a\","
     "\"weight\":0},{\"role\":\"user\",\"content\":\"x\\n\\\"y\"},{"
     "\"thinking\":\"r\",\"role\":\"assistant\",\"content\":\"b\","
     "\"reasoning_content\":\"r\",\"weight\":1}]",
     "SUaUA"},
    /* Reasoning by its three names, as transformers' _alias_reasoning_fields.
     */
    {"openai",
     "{\"messages\":[{\"role\":\"assistant\",\"reasoning\":\"q\",\"content\":"
     "\"b\"},{\"role\":\"assistant\",\"reasoning_content\":null,\"content\":"
     "\"b\",\"thinking\":\"t\",\"reasoning\":\"q\"},{\"thinking\":null,"
     "\"role\":\"assistant\",\"content\":\"b\",\"reasoning\":\"q\"}]}",
     "[{\"thinking\":\"q\",\"role\":\"assistant\",\"reasoning\":\"q\","
     "\"content\":\"b\",\"reasoning_content\":\"q\"},{\"thinking\":\"t\","
     "\"role\":\"assistant\",\"reasoning_content\":\"t\",\"content\":\"b\","
     "\"reasoning\":\"q\"},{\"thinking\":null,\"role\":\"assistant\","
     "\"content\":\"b\",\"reasoning\":\"q\",\"reasoning_content\":\"q\"}]",
     "AAA"},
    {"openai",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
     "\"assistant\",\"content\":null," CALL "\"{\\\"a\\\": 1}\"}}]},{\"role\":"
     "\"tool\",\"tool_call_id\":\"x\",\"content\":\"2\"},{\"role\":"
     "\"assistant\",\"content\":\"two\"}],\"tools\":[{\"type\":\"function\"}]}",
     "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
     "\"content\":null," CALL "{\"a\":1}}}]},{\"role\":\"tool\","
     "\"tool_call_id\":\"x\",\"content\":\"2\"},{\"role\":\"assistant\","
     "\"content\":\"two\"}]",
     "UATA"},
    {"openai",
     "{\"conversations\":[{\"role\":\"developer\",\"content\":\"d\"},"
     "{\"role\":\"assistant\",\"content\":\"a\"}]}",
     "[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"assistant\","
     "\"content\":\"a\"}]",
     "SA"},
    {"sharegpt",
     "{\"system\":\"be\",\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\","
     "\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":"
     "\"function_call\",\"value\":\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\""
     ": {\\\"a\\\": [1]}}\"},{\"from\":\"observation\",\"value\":\"2\"},"
     "{\"from\":\"gpt\",\"value\":\"a\"}]}",
     "[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":"
     "\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
     "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":"
     "[1]}}}]},{\"role\":\"tool\",\"content\":\"2\"},{\"role\":\"assistant\","
     "\"content\":\"a\"}]",
     "SUATA"},
    {"alpaca",
     "{\"instruction\":\"do\",\"input\":\"this\\u0000\",\"output\":\"done\","
     "\"system\":\"\",\"history\":[[\"q\",\"a\"]]}",
     "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
     "\"content\":\"a\"},{\"role\":\"user\",\"content\":\"do\\nthis\\u0000\"},"
     "{\"role\":\"assistant\",\"content\":\"done\"}]",
     "UAUA"},
    {"alpaca",
     "{\"prompt\":\"do\",\"query\":\"\",\"response\":\"done\",\"system\":"
     "\"be\"}",
     "[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\","
     "\"content\":\"do\"},{\"role\":\"assistant\",\"content\":\"done\"}]",
     "SUA"},
    {"prompt_completion", "{\"prompt\":\"a b\",\"completion\":\" c\"}", NULL,
     "a b| C"},
    {"prompt_completion",
     "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
     "\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"r\"}],"
     "\"completion\":[{\"role\":\"assistant\",\"content\":\"b\"}]}",
     "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
     "\"content\":\"a\"},{\"role\":\"user\",\"content\":\"r\"},{\"role\":"
     "\"assistant\",\"content\":\"b\"}]",
     "uauA"},
    {"preference",
     "{\"prompt\":\"q\",\"chosen\":\"good\",\"rejected\":\"bad\"}", NULL,
     "q|GOOD"},
    {"preference",
     "{\"chosen\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
     "\"assistant\",\"content\":\"y\"}],\"rejected\":[{\"role\":\"user\","
     "\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"n\"}]}",
     "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
     "\"content\":\"y\"}]",
     "uA"},
    {"vqa", "{\"context\":\"q?\",\"answers\":\"a\"}",
     "[{\"role\":\"user\",\"content\":\"q?\"},{\"role\":\"assistant\","
     "\"content\":\"a\"}]",
     "UA"},
    {"vqa",
     "{\"context\":\"q?\",\"answers\":[\"a\",\"b\",\"c\"],\"answer_weights\":"
     "[0.5,1,1]}",
     "[{\"role\":\"user\",\"content\":\"q?\"},{\"role\":\"assistant\","
     "\"content\":\"b\"}]",
     "UA"},
    {"caption", "{\"caption\":\"a\"}",
     "[{\"role\":\"user\",\"content\":\"\"},{\"role\":\"assistant\","
     "\"content\":\"a\"}]",
     "UA"},
    {"kto", "{\"prompt\":\"q\",\"completion\":\"good\",\"label\":true}", NULL,
     "q|GOOD"},
    {"text", "{\"text\":\"all of it\"}", NULL, "ALL OF IT"},
};

static const char *const tags[CHAT_TAGS] = {
#define TEXT_OF(name_, text_) text_,
    CHAT_TAG_LIST(TEXT_OF)
#undef TEXT_OF
};

static chat_conversation_t begin(loong_context_t *ctx)
{
    return (chat_conversation_t){.ctx = ctx,
                                 .tags = tags,
                                 .use_chosen = true,
                                 .text = loongi_text_begin(ctx)};
}

static chat_record_t record_of(const char *text)
{
    return (chat_record_t){.bytes = text, .length = strlen(text), .line = 1};
}

static const chat_format_t *recognise(chat_conversation_t *c, const char *text)
{
    loong_json_t *json = NULL;
    assert_ok(c->ctx,
              loongi_json_parse(c->ctx, text, strlen(text), "r", &json));
    const chat_format_t *format = loongi_chat_format_of(c, json);
    loongi_json_destroy(&json);
    return format;
}

static void assert_parts(const chat_conversation_t *c, const char *expected)
{
    char found[128] = "";
    size_t n = 0;
    for (int i = 0; i < c->num_parts; i++) {
        if (i > 0) {
            found[n++] = '|';
        }
        for (size_t k = 0; k < c->part[i].length; k++) {
            char byte = c->part[i].text[k];
            bool small = byte >= 'a' && byte <= 'z';
            found[n++] =
                (char)(c->part[i].learned && small ? byte - 'a' + 'A' : byte);
        }
    }
    assert_string_equal(found, expected);
}

static void assert_messages(const chat_conversation_t *c, const wanted_t *w)
{
    loong_text_t text = loongi_text_begin(c->ctx);
    char learn[32] = "";
    loongi_text_json(&text, c->messages);
    assert_string_equal(loongi_text_get(&text), w->messages);
    for (int64_t i = 0; i < c->count; i++) {
        learn[i] =
            (c->message[i].may_learn ? "SUAT" : "suat")[c->message[i].role];
    }
    assert_string_equal(learn, w->learn);
    loongi_text_free(&text);
}

static void test_formats(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    chat_conversation_t c = begin(ctx);
    for (int64_t i = 0; i < LOONG_COUNT_OF(wanted); i++) {
        const wanted_t *w = &wanted[i];
        const chat_record_t record = record_of(w->record);
        const chat_format_t *format = recognise(&c, w->record);
        assert_non_null(format);
        assert_string_equal(format->name, w->format);
        assert_ptr_equal(format, loongi_chat_format_named(w->format));
        assert_ok(ctx, loongi_chat_convert(&c, format, &record));
        assert_false(c.left_out);
        if (w->messages == NULL) {
            assert_null(c.messages);
            assert_parts(&c, w->learn);
        } else {
            assert_messages(&c, w);
        }
    }
    const chat_record_t bad =
        record_of("{\"prompt\":\"q\",\"completion\":\"bad\",\"label\":false}");
    assert_ok(ctx,
              loongi_chat_convert(&c, loongi_chat_format_named("kto"), &bad));
    assert_true(c.left_out);
    assert_null(recognise(&c, "{\"question\":\"q\"}"));
    assert_null(recognise(&c, "[1]"));
    loongi_chat_conversation_free(&c);
    test_context_end(&ctx);
}

#define ONE(message_) "{\"messages\":[" message_ "]}"
static const struct {
    const char *format, *record, *why;
} refused[] = {
    {"openai", "{\"messages\":[", "JSON: column 13"},
    {"openai", "[]", "the record is an array, must be an object"},
    {"openai", "{\"text\":\"a\"}", "the record has no 'messages'"},
    {"openai", "{\"messages\":7}", "'messages' is an integer, must be a list"},
    {"openai", "{\"messages\":[]}", "there is no message"},
    {"openai", ONE("7"), "messages[0] is an integer, must be an object"},
    {"openai", ONE("{\"content\":\"a\"}"), "messages[0] has no 'role'"},
    {"openai", ONE("{\"role\":5,\"content\":\"a\"}"),
     "messages[0]: role is an integer, must be a string"},
    {"openai", "{\"text\":\"a\"}\r{\"text\":\"b\"}",
     "more behind the value, one is wanted\n(its lines end in CR alone"},
    {"openai", ONE("{\"role\":\"bot\",\"content\":\"a\"}"),
     "messages[0]: role is 'bot', known are system, developer"},
    {"openai", ONE("{\"role\":\"user\"}"), "messages[0] has no 'content'"},
    {"openai", ONE("{\"role\":\"user\",\"content\":null}"),
     "messages[0]: content is null, which goes with tool calls alone"},
    {"openai", ONE("{\"role\":\"user\",\"content\":{}}"),
     "content is an object, must be a text or a list of them"},
    {"openai",
     ONE("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}"),
     "part 0 of its content is of type 'image_url', this source has texts"},
    {"openai", ONE("{\"role\":\"user\",\"content\":[3]}"),
     "part 0 of its content is an integer, must be a text or an object with"},
    {"openai", ONE("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}"),
     "part 0 of its content is of type 'text': its 'text' is missing"},
    {"openai", ONE("{\"role\":\"user\",\"content\":\"a\",\"weight\":0.5}"),
     "messages[0]: weight must be 0 or 1"},
    {"openai",
     ONE("{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}"),
     "messages[0]: a tool call without a name"},
    {"openai",
     ONE("{\"role\":\"assistant\",\"content\":\"\"," CALL "\"{\"}}]}"),
     "arguments of a tool call: column"},
    {"openai",
     "{\"tools\":{},\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
     "tools is an object, must be a list"},
    {"sharegpt", "{\"conversations\":[{\"from\":\"me\",\"value\":\"a\"}]}",
     "conversations[0]: 'from' is 'me', known are human, gpt"},
    {"sharegpt", "{\"conversations\":[{\"from\":\"gpt\"}]}",
     "conversations[0] has no texts 'from' and 'value'"},
    {"alpaca", "{\"instruction\":\"a\"}", "the record has no 'output'"},
    {"alpaca", "{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"q\"]]}",
     "history[0] is no pair of texts"},
    {"prompt_completion", "{\"prompt\":\"a\",\"completion\":[]}",
     "'prompt' is a string and 'completion' is an array, must be two texts or"},
    {"kto", "{\"prompt\":\"a\",\"completion\":\"b\",\"label\":1}",
     "'label' is an integer, must be true or false"},
    {"vqa", "{\"context\":\"q\",\"answers\":[]}",
     "'answers' is no text and no list of texts"},
    {"text", "{\"text\":\"\\ud800\"}", "JSON: column"},
};

static void test_refused(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    chat_conversation_t c = begin(ctx);
    for (int64_t i = 0; i < LOONG_COUNT_OF(refused); i++) {
        const chat_record_t record = record_of(refused[i].record);
        loong_status_t status = loongi_chat_convert(
            &c, loongi_chat_format_named(refused[i].format), &record);
        assert_true(status == LOONG_ERR_FORMAT ||
                    status == LOONG_ERR_UNSUPPORTED);
        if (strstr(loong_context_error(ctx), refused[i].why) == NULL) {
            fail_msg("%s: '%s', expected '%s'", refused[i].record,
                     loong_context_error(ctx), refused[i].why);
        }
        loong_context_clear_error(ctx);
    }
    c.use_chosen = false;
    const chat_record_t pair = record_of(wanted[8].record);
    assert_fails(
        ctx,
        loongi_chat_convert(&c, loongi_chat_format_named("preference"), &pair),
        LOONG_ERR_UNSUPPORTED,
        "a preference pair (chosen, rejected): there is no training");
    const chat_record_t label = record_of(wanted[10].record);
    assert_fails(
        ctx, loongi_chat_convert(&c, loongi_chat_format_named("kto"), &label),
        LOONG_ERR_UNSUPPORTED, "an answer with a label (KTO): there is no");
    loongi_chat_conversation_free(&c);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
