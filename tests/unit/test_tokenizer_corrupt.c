/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json that is damaged or asks for what is not supported: an error
 * that says what and where, and nothing is left behind. */
#include "test.h"

#include "loong/tokenizer.h"

typedef struct bad {
    const char *json;
    loong_status_t status;
    const char *message;
} bad_t;

#define VOCAB_ "\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}"
#define MODEL_ \
    "\"model\": {\"type\": \"BPE\", " VOCAB_ ", \"merges\": [\"a b\"]}"
#define IN_MODEL_(x_) "{\"model\": {" x_ "}}"
#define WITH_(x_) "{" MODEL_ ", " x_ "}"

static const bad_t structure[] = {
    {"", LOONG_ERR_FORMAT, "where"},
    {"[1]", LOONG_ERR_FORMAT, "found an array, must be an object"},
    {"{}", LOONG_ERR_FORMAT, "'model' is missing"},
    {"{\"model\": []}", LOONG_ERR_FORMAT, "'model' is an array"},
    {IN_MODEL_("\"type\": \"Unigram\""), LOONG_ERR_UNSUPPORTED, "'Unigram'"},
    {IN_MODEL_("\"type\": \"BPE\""), LOONG_ERR_FORMAT,
     "model.vocab is missing"},
    {IN_MODEL_("\"vocab\": []"), LOONG_ERR_FORMAT, "must be an object"},
    {IN_MODEL_("\"vocab\": {}"), LOONG_ERR_FORMAT, "model.vocab is empty"},
    {IN_MODEL_(VOCAB_), LOONG_ERR_FORMAT, "model.merges is missing"},
    {IN_MODEL_(VOCAB_ ", \"merges\": {}"), LOONG_ERR_FORMAT,
     "model.merges is an object, must be an array"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [], \"dropout\": 0.5"),
     LOONG_ERR_UNSUPPORTED, "model.dropout 0.5"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [], \"end_of_word_suffix\": \"</w>\""),
     LOONG_ERR_UNSUPPORTED, "model.end_of_word_suffix '</w>'"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [], \"byte_fallback\": 1"),
     LOONG_ERR_FORMAT, "byte_fallback is an integer, must be a boolean"},
};

static const bad_t ids[] = {
    {IN_MODEL_("\"vocab\": {\"a\": \"0\"}"), LOONG_ERR_FORMAT,
     "the id of 'a' is a string, must be an integer"},
    {IN_MODEL_("\"vocab\": {\"a\": 0.5}"), LOONG_ERR_FORMAT, "is a number"},
    {IN_MODEL_("\"vocab\": {\"a\": -1}"), LOONG_ERR_FORMAT,
     "token 'a' has id -1, allowed is 0 to 16777215"},
    {IN_MODEL_("\"vocab\": {\"a\": 16777216}"), LOONG_ERR_FORMAT,
     "token 'a' has id 16777216"},
    {IN_MODEL_("\"vocab\": {\"a\": 99999999999999999999}"), LOONG_ERR_FORMAT,
     "where"},
    {IN_MODEL_("\"vocab\": {\"a\": 0, \"b\": 0}"), LOONG_ERR_FORMAT,
     "tokens 'a' and 'b' both have id 0"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [\"a c\"]"), LOONG_ERR_FORMAT,
     "model.merges[0]: 'c' is not in the vocabulary"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [\"a b\", [\"b\", \"a\"]]"),
     LOONG_ERR_FORMAT, "model.merges[1]: 'ba' is not in the vocabulary"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [\"ab\"]"), LOONG_ERR_FORMAT,
     "model.merges[0] is 'ab', must be two tokens"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [[\"a\"]]"), LOONG_ERR_FORMAT,
     "model.merges[0] must be a string or two strings"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [], \"unk_token\": \"<unk>\""),
     LOONG_ERR_FORMAT, "model.unk_token '<unk>' is not in the vocabulary"},
    {IN_MODEL_(VOCAB_ ", \"merges\": [], \"unk_token\": 7"), LOONG_ERR_FORMAT,
     "model.unk_token is an integer, must be a string"},
    {WITH_("\"added_tokens\": {}"), LOONG_ERR_FORMAT,
     "added_tokens is an object, must be an array"},
    {WITH_("\"added_tokens\": [1]"), LOONG_ERR_FORMAT,
     "added_tokens: 'content' is missing"},
    {WITH_("\"added_tokens\": [{\"content\": \"x\"}]"), LOONG_ERR_FORMAT,
     "the id of 'x' is missing, must be an integer"},
    {WITH_("\"added_tokens\": [{\"content\": \"x\", \"id\": \"3\"}]"),
     LOONG_ERR_FORMAT, "the id of 'x' is a string, must be an integer"},
    {WITH_("\"added_tokens\": [{\"content\": \"x\", \"id\": 9}]"),
     LOONG_ERR_FORMAT, "the id of 'x' must be 3, found 9"},
    {WITH_("\"added_tokens\": [{\"content\": \"a\\u0000b\", \"id\": 3}]"),
     LOONG_ERR_UNSUPPORTED, "added_tokens.content has U+0000 in it"},
    {WITH_("\"added_tokens\": [{\"content\": \"\", \"id\": 3}]"),
     LOONG_ERR_FORMAT, "an empty token"},
};

static const bad_t stages[] = {
    {WITH_("\"normalizer\": {\"type\": \"NFKD\"}"), LOONG_ERR_UNSUPPORTED,
     "normalizer 'NFKD' is not supported"},
    {WITH_("\"normalizer\": {\"type\": \"Sequence\"}"), LOONG_ERR_FORMAT,
     "normalizer.normalizers is missing, must be an array"},
    {WITH_("\"pre_tokenizer\": {\"type\": \"Sequence\", "
           "\"pretokenizers\": 1}"),
     LOONG_ERR_FORMAT, "pre_tokenizer.pretokenizers is an integer"},
    {WITH_("\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}"),
     LOONG_ERR_UNSUPPORTED, "'BertPreTokenizer' is not supported"},
    {WITH_("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": "
           "\"Isolated\", \"pattern\": {\"Regex\": \"(\"}}"),
     LOONG_ERR_FORMAT, "'('"},
    {WITH_("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": "
           "\"Isolated\", \"pattern\": {\"Regex\": \"a\\\\C\"}}"),
     LOONG_ERR_UNSUPPORTED, "'\\C' is not supported"},
    {WITH_("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": "
           "\"Isolated\", \"pattern\": {\"Regex\": \"\\\\Qa\"}}"),
     LOONG_ERR_UNSUPPORTED, "'\\Q' is not supported"},
    {WITH_("\"decoder\": {\"type\": \"Sequence\", \"decoders\": {}}"),
     LOONG_ERR_FORMAT, "decoder.decoders is an object, must be an array"},
    {WITH_("\"decoder\": {\"type\": \"WordPiece\"}"), LOONG_ERR_UNSUPPORTED,
     "decoder 'WordPiece' is not supported"},
    {WITH_("\"post_processor\": {\"type\": \"Sequence\"}"), LOONG_ERR_FORMAT,
     "post_processor.processors is missing, must be an array"},
    {WITH_("\"post_processor\": {\"type\": \"BertProcessing\"}"),
     LOONG_ERR_UNSUPPORTED, "'BertProcessing' is not supported"},
    {WITH_("\"post_processor\": {\"type\": \"TemplateProcessing\"}"),
     LOONG_ERR_FORMAT, "post_processor.single is missing"},
    {WITH_("\"post_processor\": {\"type\": \"TemplateProcessing\", "
           "\"single\": [{\"SpecialToken\": {\"id\": \"s\"}}]}"),
     LOONG_ERR_FORMAT, "post_processor.special_tokens: 's' is missing"},
    {WITH_("\"post_processor\": {\"type\": \"TemplateProcessing\", "
           "\"single\": [{\"SpecialToken\": {\"id\": \"s\"}}], "
           "\"special_tokens\": {\"s\": {\"ids\": [70]}}}"),
     LOONG_ERR_FORMAT, "post_processor: there is no token 70"},
};

static void check(const bad_t *bad, int64_t count)
{
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < count; i++) {
        loong_tokenizer_t *t = NULL;
        loong_status_t status = loong_tokenizer_parse(
            ctx, bad[i].json, strlen(bad[i].json), "where", &t);
        const char *error = loong_context_error(ctx);
        if (status != bad[i].status || strstr(error, bad[i].message) == NULL ||
            strstr(error, "where") == NULL) {
            fail_msg("%s\n  gives %s: %s\n  expected %s", bad[i].json,
                     loong_status_text(status), error, bad[i].message);
        }
        assert_null(t);
        loong_context_clear_error(ctx);
    }
    test_context_end(&ctx);
}

static void test_structure(void **state)
{
    (void)state;
    check(structure, LOONG_COUNT_OF(structure));
}

static void test_ids(void **state)
{
    (void)state;
    check(ids, LOONG_COUNT_OF(ids));
}

static void test_stages(void **state)
{
    (void)state;
    check(stages, LOONG_COUNT_OF(stages));
}

/* A file that ends early is refused wherever it ends. */
static void test_truncated(void **state)
{
    static char text[1 << 16];
    loong_context_t *ctx = test_context();
    (void)state;
    FILE *file =
        fopen(LOONG_SOURCE_DIR "/tests/fixtures/tokenizer/llama2.json", "rb");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof(text), file);
    fclose(file);
    while (size > 0 && text[size - 1] != '}') {
        size--;
    }
    assert_true(size > 10000);
    for (size_t length = 0; length < size; length += 7) {
        loong_tokenizer_t *t = NULL;
        assert_fails(ctx, loong_tokenizer_parse(ctx, text, length, "cut", &t),
                     LOONG_ERR_FORMAT, "cut");
        assert_null(t);
    }
    test_context_end(&ctx);
}

static void decoded(loong_context_t *ctx, const char *json, const int32_t *ids_,
                    int64_t count, const char *expected)
{
    loong_tokenizer_t *t = NULL;
    char *text = NULL;
    size_t length = 0;
    assert_ok(ctx, loong_tokenizer_parse(ctx, json, strlen(json), "where", &t));
    assert_ok(ctx, loong_tokenizer_decode(ctx, t, ids_, count, false, &text,
                                          &length));
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    loong_tokenizer_free_text(ctx, &text);
    loong_tokenizer_destroy(&t);
}

/* A decoder that removes a text does not shorten the others. */
static void test_replace_by_nothing(void **state)
{
    static const int32_t all[] = {0, 1, 2};
    loong_context_t *ctx = test_context();
    (void)state;
    decoded(ctx,
            "{\"model\": {\"vocab\": {\"_long_token\": 0, \"x\": 1, "
            "\"__\": 2}, \"merges\": []}, \"decoder\": {\"type\": "
            "\"Replace\", \"pattern\": {\"String\": \"_\"}, \"content\": "
            "\"\"}}",
            all, 3, "longtokenx");
    test_context_end(&ctx);
}

/* Only two hexadecimal digits make a byte. */
static void test_byte_spelling(void **state)
{
    static const int32_t all[] = {0, 1, 2, 3};
    loong_context_t *ctx = test_context();
    (void)state;
    decoded(ctx,
            "{\"model\": {\"vocab\": {\"<0x41>\": 0, \"<0x 1>\": 1, "
            "\"<0x-1>\": 2, \"<0xG1>\": 3}, \"merges\": []}, \"decoder\": "
            "{\"type\": \"ByteFallback\"}}",
            all, 4, "A<0x 1><0x-1><0xG1>");
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_replace_by_nothing),
        cmocka_unit_test(test_byte_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
