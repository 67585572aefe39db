/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json field by field, against what transformers was seen to do with
 * each (tests/golden/fields.py): a field that changes what a model computes is
 * mapped or refused by its name, never passed over. */
#include <unistd.h>

#include "file.h"
#include "hf_config.h"
#include "json.h"
#include "test.h"
#include "test_dir.h"

#define FIELDS LOONG_SOURCE_DIR "/tests/golden/fields.json"

TEST_DIR(dir)

static void add_members(loong_text_t *text, const loong_json_t *object,
                        const loong_json_t *without)
{
    for (const loong_json_member_t *m = loongi_json_first(object); m != NULL;
         m = loongi_json_next(object, m)) {
        const char *key = loongi_json_member_key(m);
        if (without == NULL || loongi_json_get(without, key) == NULL) {
            loongi_text_printf(text, ",");
            loongi_text_json_string(text, key);
            loongi_text_printf(text, ":");
            loongi_text_json(text, loongi_json_member_value(m));
        }
    }
}

/* Reads `base` with the members of `set` instead of its own. */
static loong_status_t take(loong_context_t *ctx, const loong_json_t *family,
                           const loong_json_t *set, loong_pairs_t **pairs_p)
{
    char path[64];
    const loong_json_t *inside = loongi_json_get(family, "inside");
    loong_text_t text = loongi_text_begin(ctx);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    loongi_text_printf(&text, "{\"model_type\":");
    loongi_text_json(&text, loongi_json_get(family, "model_type"));
    if (inside != NULL) {
        loongi_text_printf(&text, ",\"%s\":{\"return_dict\":true",
                           loongi_json_string(inside));
    }
    add_members(&text, loongi_json_get(family, "base"), set);
    add_members(&text, set, NULL);
    loongi_text_printf(&text, inside != NULL ? "}}" : "}");
    assert_ok(ctx, text.status);
    assert_ok(ctx, loongi_file_write(ctx, path, text.data, text.length));
    loongi_text_free(&text);
    return loongi_hf_config_read(ctx, dir, pairs_p);
}

static bool same_pairs(const loong_pairs_t *a, const loong_pairs_t *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (int64_t i = 0; i < a->count; i++) {
        const char *value = loongi_pairs_get(b, a->items[i].key);
        if (value == NULL || strcmp(value, a->items[i].value) != 0) {
            return false;
        }
    }
    return true;
}

/* The message must name one of the fields that were set. */
static bool names_one(const char *message, const loong_json_t *set)
{
    for (const loong_json_member_t *m = loongi_json_first(set); m != NULL;
         m = loongi_json_next(set, m)) {
        if (strstr(message, loongi_json_member_key(m)) != NULL) {
            return true;
        }
    }
    return false;
}

typedef struct tally {
    int mapped, refused, ignored;
} tally_t;

static void check_case(loong_context_t *ctx, const loong_json_t *family,
                       const loong_json_t *item, const loong_pairs_t *base,
                       tally_t *tally)
{
    const loong_json_t *set = loongi_json_get(item, "set");
    const loong_json_t *seen = loongi_json_get(item, "changes");
    bool harmless = loongi_json_kind(seen) == LOONG_JSON_BOOL &&
                    !loongi_json_bool(seen);
    loong_pairs_t *pairs = NULL;
    loong_text_t text = loongi_text_begin(ctx);
    loongi_text_json(&text, set);
    loong_status_t status = take(ctx, family, set, &pairs);
    if (status != LOONG_OK) {
        tally->refused++;
        if (status != LOONG_ERR_UNSUPPORTED ||
            !names_one(loong_context_error(ctx), set)) {
            fail_msg("%s: %s", loongi_text_get(&text),
                     loong_context_error(ctx));
        }
        loong_context_clear_error(ctx);
    } else if (!same_pairs(pairs, base)) {
        tally->mapped++;
    } else {
        tally->ignored++;
        if (!harmless) {
            fail_msg("%s: %s changes the model and is passed over",
                     loongi_json_string(loongi_json_get(family, "model_type")),
                     loongi_text_get(&text));
        }
    }
    loongi_pairs_destroy(&pairs);
    loongi_text_free(&text);
}

static void nothing_is_passed_over(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_json_t *families = NULL;
    assert_ok(ctx, loongi_json_load(ctx, FIELDS, &families));
    assert_int_equal(loongi_json_count(families), 18);
    for (int64_t f = 0; f < loongi_json_count(families); f++) {
        const loong_json_t *family = loongi_json_at(families, f);
        const loong_json_t *cases = loongi_json_get(family, "cases");
        tally_t tally = {0, 0, 0};
        loong_pairs_t *base = NULL;
        assert_ok(ctx, take(ctx, family, NULL, &base));
        for (int64_t i = 0; i < loongi_json_count(cases); i++) {
            check_case(ctx, family, loongi_json_at(cases, i), base, &tally);
        }
        loongi_pairs_destroy(&base);
        print_message(
            "%-8s %d mapped, %d refused, %d change nothing\n",
            loongi_json_string(loongi_json_get(family, "model_type")),
            tally.mapped, tally.refused, tally.ignored);
        assert_true(tally.mapped >= 10 && tally.refused >= 3);
    }
    loongi_json_destroy(&families);
    test_context_end(&ctx);
}

/* One table for both ends of the language model, of whole models: what is tied
 * by config.json where the top says true, or false, and text_config true, false
 * or nothing; as from_pretrained of transformers 5.23 does it with a file that
 * has one table. */
static void ties_of_whole_models(void **state)
{
    static const struct {
        const char *type, *text, *tied;
    } rows[] = {{"internvl", "qwen2", "111000"},
                {"llava", "llama", "111100"},
                {"llava_onevision", "qwen2", "111100"},
                {"paligemma", "gemma", "111000"},
                {"qwen2_vl", "qwen2_vl_text", "111100"},
                {"qwen2_5_vl", "qwen2_5_vl_text", "111100"},
                {"qwen3_vl", "qwen3_vl_text", "111000"},
                {"qwen3_vl_moe", "qwen3_vl_moe_text", "111000"},
                {"glm4v", "glm4v_text", "111100"}};
    static const char *const said[] = {"true", "false", NULL};
    loong_context_t *ctx = test_context();
    (void)state;
    for (int64_t i = 0; i < 6 * LOONG_COUNT_OF(rows); i++) {
        const char *top = said[i % 6 / 3], *inside = said[i % 3];
        loong_text_t text = loongi_text_begin(ctx);
        loong_json_t *json = NULL;
        loong_pairs_t *pairs = NULL;
        loongi_text_printf(
            &text,
            "{\"model_type\":\"%s\",\"tie_word_embeddings\":%s,"
            "\"vision_config\":{},\"text_config\":{\"model_type\":\"%s\","
            "\"num_hidden_layers\":2,\"hidden_size\":64,"
            "\"intermediate_size\":96,\"num_attention_heads\":4,"
            "\"num_key_value_heads\":4,\"vocab_size\":31,"
            "\"max_position_embeddings\":32%s%s%s}}",
            rows[i / 6].type, top, rows[i / 6].text,
            strstr(rows[i / 6].type, "moe") != NULL
                ? ",\"num_experts\":4,\"moe_intermediate_size\":96"
                : "",
            inside != NULL ? ",\"tie_word_embeddings\":" : "",
            inside != NULL ? inside : "");
        assert_ok(ctx, loongi_json_parse(ctx, text.data, text.length,
                                         "config.json", &json));
        if (loongi_hf_config_read_json(ctx, "config.json", json, "foundation",
                                       &pairs) != LOONG_OK) {
            fail_msg("%s: %s", rows[i / 6].type, loong_context_error(ctx));
        }
        if (loongi_pairs_true(pairs, "untie_embeddings_and_output_weights") ==
            (rows[i / 6].tied[i % 6] == '1')) {
            fail_msg("%s: tied %s", rows[i / 6].type, text.data);
        }
        loongi_pairs_destroy(&pairs);
        loongi_json_destroy(&json);
        loongi_text_free(&text);
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_passed_over),
        cmocka_unit_test(ties_of_whole_models),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
