/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations by templates of several kinds and tokenizers of several shapes:
 * the ids and masks of transformers (tests/oracle/chat.py), which are TRL's of
 * the last answer where TRL has one. */
#include "json.h"
#include "loong/chat.h"
#include "test_dir.h"

TEST_DIR(dir)

static const char *const train_on[] = {"assistant", "last"};

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
        .train_on = way, .skip_refused = true, .cache = in_dir("cache")};
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
    for (int i = 0; i < 2; i++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
