/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations by templates of several kinds and tokenizers of several shapes:
 * the ids and masks of transformers (tests/oracle/chat.py), which are TRL's of
 * the last answer where TRL has one. */
#include "json.h"
#include "loong/chat.h"
#include "test_dir.h"

TEST_DIR(dir)

/* "pairs": of two texts, without a template. */
static const char *const train_on[] = {"assistant", "last", "pairs"};

/* The records of one way to train, a line each. */
static void write_records(loong_context_t *ctx, const loong_json_t *cases,
                          const char *of)
{
    loong_text_t text = loongi_text_begin(ctx);
    for (int64_t i = 0; i < loongi_json_count(cases); i++) {
        const loong_json_t *item = loongi_json_at(cases, i);
        const char *way = loongi_json_string(loongi_json_get(item, "train_on"));
        if (strcmp(way, of) == 0) {
            loongi_text_json(&text, loongi_json_get(item, "record"));
        }
        loongi_text_printf(&text, "\n");
    }
    assert_ok(
        ctx, loongi_file_write(ctx, in_dir("r.jsonl"), text.data, text.length));
    loongi_text_free(&text);
}

static void assert_row(const char *model, int64_t line,
                       const loong_json_t *expected, const loong_item_t *item)
{
    const loong_json_t *ids = loongi_json_at(expected, 0);
    const loong_json_t *mask = loongi_json_at(expected, 1);
    assert_int_equal(item->size[0], loongi_json_count(ids));
    for (int64_t t = 0; t < item->size[0]; t++) {
        int64_t id = loongi_json_int(loongi_json_at(ids, t));
        int64_t learned = loongi_json_int(loongi_json_at(mask, t));
        if (item->ids[t] != id || item->weight[t] != learned) {
            fail_msg("%s, case %d, token %d: %d learned %d, expected %d %d",
                     model, (int)line, (int)t, item->ids[t], item->weight[t],
                     (int)id, (int)learned);
        }
    }
}

/* Samples follow each other in the lines of cases that are not refused. */
static int64_t check_way(loong_context_t *ctx, const char *model,
                         const loong_json_t *cases, const char *way)
{
    char tokenizer[512];
    loong_chat_t *chat = NULL;
    loong_chat_info_t info;
    loong_items_t items = {.ctx = ctx, .vocab_size = INT32_MAX};
    int64_t sample = 0;
    int64_t refused = 0;
    snprintf(tokenizer, sizeof(tokenizer), "%s/tests/fixtures/chat/%s",
             LOONG_SOURCE_DIR, model);
    const loong_chat_options_t options = {
        .train_on = strcmp(way, "pairs") == 0 ? NULL : way,
        .skip_refused = true,
        .cache = in_dir("cache")};
    const loong_source_params_t params = {.data = "train",
                                          .path = in_dir("r.jsonl"),
                                          .tokenizer = tokenizer,
                                          .chat = &options};
    write_records(ctx, cases, way);
    assert_ok(ctx, loong_chat_open(ctx, &params, &chat));
    loong_chat_get_info(chat, &info);
    for (int64_t i = 0; i < loongi_json_count(cases); i++) {
        char line[32];
        const loong_json_t *item = loongi_json_at(cases, i);
        const loong_json_t *expected = loongi_json_get(item, "expected");
        if (strcmp(loongi_json_string(loongi_json_get(item, "train_on")),
                   way) != 0) {
            continue;
        }
        if (loongi_json_kind(expected) == LOONG_JSON_NULL) {
            refused++;
            continue;
        }
        assert_true(sample < info.samples);
        assert_ok(ctx, loong_chat_read(chat, sample++, &items));
        snprintf(line, sizeof(line), "r.jsonl:%lld", (long long)i + 1);
        assert_non_null(strstr(items.item[0].name, line));
        assert_row(model, i + 1, expected, &items.item[0]);
    }
    assert_int_equal(info.samples, sample);
    assert_int_equal(info.refused, refused);
    loong_items_free(&items);
    loong_chat_close(&chat);
    return sample;
}

static void check_model(const char *model)
{
    char path[512];
    loong_json_t *cases = NULL;
    int64_t samples = 0;
    loong_context_t *ctx = test_context();
    snprintf(path, sizeof(path), "%s/tests/fixtures/chat/%s/cases.json",
             LOONG_SOURCE_DIR, model);
    assert_ok(ctx, loongi_json_load(ctx, path, &cases));
    for (int64_t i = 0; i < LOONG_COUNT_OF(train_on); i++) {
        const char *way = train_on[i];
        bool wanted = false;
        for (int64_t k = 0; k < loongi_json_count(cases); k++) {
            const loong_json_t *item = loongi_json_at(cases, k);
            wanted =
                wanted ||
                strcmp(loongi_json_string(loongi_json_get(item, "train_on")),
                       way) == 0;
        }
        samples += wanted ? check_way(ctx, model, cases, way) : 0;
    }
    assert_true(samples >= 8);
    loongi_json_destroy(&cases);
    test_context_end(&ctx);
}

static void test_models(void **state)
{
    (void)state;
    static const char *const models[] = {"chatml", "generation", "inst",
                                         "forgets"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(models); i++) {
        check_model(models[i]);
    }
}

/* ---- what is learned, as text -------------------------------------------- */

#define SAY(role_, text_) "{\"role\":\"" role_ "\",\"content\":\"" text_ "\"}"
#define END "<|im_end|>"
#define HEAD(role_) "<|im_start|>" role_ "\n"

static const struct {
    const char *model, *record;
    loong_chat_options_t options;
    const char *learned; /* runs, with | behind each */
} rules[] = {
    {"chatml",
     "{\"messages\":[" SAY(
         "user", "q") ",{\"role\":\"assistant\","
                      "\"content\":\"one\",\"weight\":0}," SAY(
                          "user", "r") "," SAY("assistant", "two") "]}",
     {0},
     "two" END "\n|"},
    {"generation",
     "{\"messages\":[" SAY(
         "user", "q") ",{\"role\":\"assistant\","
                      "\"content\":\"one\",\"weight\":0}," SAY(
                          "user", "r") "," SAY("assistant", "two") "]}",
     {0},
     "two" END "|"},
    {"generation",
     "{\"messages\":[" SAY("user", "q") "," SAY("assistant", "one") "," SAY(
         "user", "r") "," SAY("assistant", "two") "]}",
     {.train_on = "last"},
     "two" END "|"},
    {"generation",
     "{\"messages\":[" SAY("user", "q") "," SAY("assistant", "one") "]}",
     {.train_on = "all"},
     HEAD("user") "q" END "\n" HEAD("assistant") "one" END "\n|"},
    {"chatml",
     "{\"messages\":[" SAY("user", "q") "," SAY("tool", "3") "," SAY(
         "assistant", "one") "]}",
     {.train_on = "all"},
     HEAD("user") "q" END "\n|" HEAD("assistant") "one" END "\n|"},
    {"chatml",
     "{\"messages\":[" SAY("user", "q") "," SAY("tool", "3") "," SAY(
         "assistant", "one") "]}",
     {.train_on_tool_results = true},
     HEAD("tool") "3" END "\n|one" END "\n|"},
    {"chatml",
     "{\"prompt\":[" SAY("user", "q") "," SAY("assistant", "one") "," SAY(
         "user", "r") "],\"completion\":[" SAY("assistant", "two") "]}",
     {0},
     "two" END "\n|"},
    {"chatml",
     "{\"chosen\":[" SAY("user", "q") "," SAY(
         "assistant", "one") "],"
                             "\"rejected\":[" SAY("user", "q") "," SAY(
                                 "assistant", "no") "]}",
     {.use_chosen = true},
     "one" END "\n|"},
    {"chatml", "{\"prompt\":\"a b\",\"completion\":\" c\"}", {0}, " c" END "|"},
    {"inst",
     "{\"prompt\":\"a b\",\"completion\":\" c\"}",
     {0},
     "c</s>|" /* its decoder drops the first blank */},
    {"chatml",
     "{\"messages\":[" SAY("user", "q") "," SAY("assistant", "one") "]}",
     {.template_name = "qwen2.5"},
     "one" END "|"},
};

static void add_decoded(loong_context_t *ctx, const loong_chat_t *chat,
                        const int32_t *ids, int64_t count, loong_text_t *text)
{
    char *run = NULL;
    size_t length = 0;
    assert_ok(ctx, loong_tokenizer_decode(ctx, loong_chat_tokenizer(chat), ids,
                                          count, false, &run, &length));
    loongi_text_append(text, run, length);
    loongi_text_append(text, "|", 1);
    loong_tokenizer_free_text(ctx, &run);
}

static loong_status_t open_record(loong_context_t *ctx, const char *model,
                                  const char *record,
                                  loong_chat_options_t options,
                                  loong_chat_t **chat_p)
{
    char tokenizer[512];
    snprintf(tokenizer, sizeof(tokenizer), "%s/tests/fixtures/chat/%s",
             LOONG_SOURCE_DIR, model);
    options.cache = in_dir("cache");
    const loong_source_params_t params = {.data = "train",
                                          .path = in_dir("one.jsonl"),
                                          .tokenizer = tokenizer,
                                          .chat = &options};
    if (record != NULL) { /* else as it is */
        assert_ok(ctx,
                  loongi_file_write(ctx, params.path, record, strlen(record)));
    }
    return loong_chat_open(ctx, &params, chat_p);
}

static void test_rules(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_items_t items = {.ctx = ctx, .vocab_size = INT32_MAX};
    for (int64_t i = 0; i < LOONG_COUNT_OF(rules); i++) {
        loong_chat_t *chat = NULL;
        loong_text_t text = loongi_text_begin(ctx);
        assert_ok(ctx, open_record(ctx, rules[i].model, rules[i].record,
                                   rules[i].options, &chat));
        assert_ok(ctx, loong_chat_read(chat, 0, &items));
        const loong_item_t *item = &items.item[0];
        for (int64_t t = 0, end = 0; t < item->size[0]; t = end + 1) {
            for (end = t; end < item->size[0] && item->weight[end];) {
                end++;
            }
            if (end > t) {
                add_decoded(ctx, chat, item->ids + t, end - t, &text);
            }
        }
        assert_string_equal(loongi_text_get(&text), rules[i].learned);
        loongi_text_free(&text);
        loong_chat_close(&chat);
    }
    loong_items_free(&items);
    test_context_end(&ctx);
}

/* What is refused, of records that are well-formed. */
static void test_told(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char *const cases[][3] = {
        {"inst", "{\"messages\":[" SAY("user", "q") "," SAY("tool", "r") "]}",
         "one.jsonl:1: "},
        {"chatml", "{\"messages\":[" SAY("user", "q") "]}",
         "nothing of it is learned: there is no such answer"},
        {"forgets",
         "{\"messages\":[" SAY("user", "q") "," SAY(
             "assistant", "<think>t</think>a") "," SAY("user",
                                                       "r") "," SAY("assistant",
                                                                    "b") "]}",
         "messages[1]: the template writes it otherwise when it is followed by "
         "the rest, from byte "},
        {"generation",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":null,"
         "\"tool_calls\":[{\"name\":\"f\"}]}]}",
         "tokenizer_config.json"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_chat_t *chat = NULL;
        assert_int_equal(open_record(ctx, cases[i][0], cases[i][1],
                                     (loong_chat_options_t){0}, &chat),
                         LOONG_ERR_FORMAT);
        if (strstr(loong_context_error(ctx), cases[i][2]) == NULL) {
            fail_msg("'%s' is not in: %s", cases[i][2],
                     loong_context_error(ctx));
        }
        loong_context_clear_error(ctx);
    }
    loong_chat_t *chat = NULL;
    assert_fails(
        ctx,
        open_record(ctx, "chatml", cases[1][1],
                    (loong_chat_options_t){.template_name = "none of them"},
                    &chat),
        LOONG_ERR_CONFIG,
        "data.chat.template: there is no template 'none of them', of the "
        "model or built in are ");
    test_context_end(&ctx);
}

/* A block in a macro has no place that is known: nothing is guessed. */
static void test_macro_block(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char text[] =
        "{% macro m(t) %}{% generation %}{{ t }}{% endgeneration %}"
        "{% endmacro %}{% for x in messages %}{{ m(x.content) }}{% endfor %}";
    loong_chat_t *chat = NULL;
    FILE *file = fopen("test_chat_masks_macro.jinja", "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_not_equal(
        open_record(
            ctx, "chatml",
            "{\"messages\":[" SAY("user", "q") "," SAY("assistant", "one") "]}",
            (loong_chat_options_t){.template_name =
                                       "test_chat_masks_macro.jinja"},
            &chat),
        LOONG_OK);
    if (strstr(loong_context_error(ctx), "inside of a macro") == NULL) {
        fail_msg("%s", loong_context_error(ctx));
    }
    loong_context_clear_error(ctx);
    remove("test_chat_masks_macro.jinja");
    test_context_end(&ctx);
}

/* A message that quotes a part of a character: what is kept can be read. */
static void test_quoted(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char record[] = "{\"messages\":[" SAY("user", "q") "," SAY(
        "assistant", "<think></"
                     "think>"
                     "\\u00e9\\u00e9"
                     "\\u00e9\\u00e"
                     "9") "," SAY("user", "r") "," SAY("assistant", "b") "]}";
    for (int again = 0; again < 2; again++) {
        loong_chat_t *chat = NULL;
        assert_int_equal(open_record(ctx, "forgets", again == 0 ? record : NULL,
                                     (loong_chat_options_t){0}, &chat),
                         LOONG_ERR_FORMAT);
        assert_non_null(strstr(loong_context_error(ctx),
                               "refused records: 1 of 1; they are listed in "));
        loong_context_clear_error(ctx);
    }
    test_context_end(&ctx);
}

/* Turns begin where users' messages do, when there are several. */
static void test_turns(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_chat_t *chat = NULL;
    loong_items_t items = {.ctx = ctx, .vocab_size = INT32_MAX};
    loong_text_t text = loongi_text_begin(ctx);
    assert_ok(
        ctx,
        open_record(
            ctx, "chatml",
            "{\"messages\":[" SAY("system", "s") "," SAY("user", "q") "," SAY(
                "assistant", "a") "," SAY("user", "r") "," SAY("assistant",
                                                               "b") "]}",
            (loong_chat_options_t){0}, &chat));
    assert_ok(ctx, loong_chat_read(chat, 0, &items));
    const loong_item_t *item = &items.item[0];
    assert_int_equal(item->starts[0], LOONG_START_DOCUMENT);
    for (int64_t t = 0, begin = 0; t < item->size[0]; t++) {
        bool last = t + 1 == item->size[0];
        if (last || item->starts[t + 1] & LOONG_START_TURN) {
            add_decoded(ctx, chat, item->ids + begin, t + 1 - begin, &text);
            begin = t + 1;
        }
    }
    assert_string_equal(
        loongi_text_get(&text),
        HEAD("system") "s" END "\n|" HEAD("user") "q" END "\n" HEAD(
            "assistant") "a" END
                         "\n|" HEAD("user") "r" END
                                            "\n" HEAD("assistant") "b" END
                                                                   "\n|");
    loongi_text_free(&text);
    loong_items_free(&items);
    loong_chat_close(&chat);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),      cmocka_unit_test(test_rules),
        cmocka_unit_test(test_told),        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_macro_block), cmocka_unit_test(test_quoted)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
