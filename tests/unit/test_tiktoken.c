/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer of ranks (tiktoken.model), of Kimi's class: ids of the library
 * tiktoken (tests/oracle/tiktoken_ids.py wrote them). */
#include "file.h"
#include "loong/tokenizer.h"
#include "test.h"
#include "test_dir.h"

#define FOLDER LOONG_SOURCE_DIR "/tests/fixtures/tokenizer/kimi"

TEST_DIR(dir)

static void test_ids(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    loong_text_encoder_t *encoder = NULL;
    char line[4096], text[1024], token[64];
    int lines = 0;
    assert_ok(ctx, loong_tokenizer_load(ctx, FOLDER, &t));
    assert_ok(ctx, loong_text_encoder_create(ctx, t, &encoder));
    FILE *file = fopen(FOLDER "/ids.txt", "r");
    assert_non_null(file);
    for (; fgets(line, sizeof(line), file) != NULL; lines++) {
        const int32_t *ids = NULL;
        int64_t count = 0, i = 0;
        size_t length = 0;
        unsigned byte = 0;
        char *at = line;
        for (; sscanf(at, "%2x", &byte) == 1 && *at != ' '; at += 2) {
            text[length++] = (char)byte;
        }
        assert_ok(ctx, loong_text_encode(encoder, text, length, true, &ids,
                                         &count));
        while (*at == ' ') {
            assert_true(i < count);
            assert_int_equal(ids[i++], strtol(at + 1, &at, 10));
        }
        assert_int_equal(i, count);
    }
    fclose(file);
    assert_true(lines > 50);
    int32_t media = loong_tokenizer_token_to_id(t, "<|media_pad|>");
    assert_int_equal(media, 560 + 10);
    assert_ok(ctx, loong_tokenizer_peek(ctx, FOLDER, media, sizeof(token),
                                        token));
    assert_string_equal(token, "<|media_pad|>");
    assert_ok(ctx, loong_tokenizer_peek_id(ctx, FOLDER, token, &media));
    assert_int_equal(media, 560 + 10);
    assert_ok(ctx, loong_tokenizer_peek_id(ctx, FOLDER, "media", &media));
    assert_int_equal(media, -1);
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_EOS), 561);
    assert_int_equal(loong_tokenizer_get_vocab_size(t), 560 + 256);
    assert_int_equal(loong_tokenizer_save(ctx, t, in_dir("out.json")),
                     LOONG_ERR_UNSUPPORTED);
    loong_text_encoder_destroy(&encoder);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

static void put(const char *name, const char *text)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loongi_file_write(ctx, in_dir(name), text, strlen(text)));
    test_context_end(&ctx);
}

/* Another class, and lines that are none. */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *class_name, *ranks, *says;
    } cases[] = {
        {"QWenTokenizer", "IQ== 0\n", "\"QWenTokenizer\""},
        {"TikTokenTokenizer", "IQ== 0\nIQ== 1\n", "twice"},
        {"TikTokenTokenizer", "IQ== 0\n?? 1\n", "line 2"},
        {"TikTokenTokenizer", "IQ==\n", "line 1"},
        {"TikTokenTokenizer", "IQ== \n5\n", "line 1"},
        {"TikTokenTokenizer", "IQ== 5x\n", "line 1"},
        {"TikTokenTokenizer", "IQ== 0\n", "the byte 0x00 is no token"},
        {"TikTokenTokenizer", "", "empty"},
    };
    for (size_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_tokenizer_t *t = NULL;
        char config[128];
        snprintf(config, sizeof(config), "{\"tokenizer_class\": \"%s\"}",
                 cases[i].class_name);
        put("tokenizer_config.json", config);
        put("tiktoken.model", cases[i].ranks);
        assert_int_not_equal(loong_tokenizer_load(ctx, in_dir(""), &t),
                             LOONG_OK);
        if (strstr(loong_context_error(ctx), cases[i].says) == NULL) {
            fail_msg("%s", loong_context_error(ctx));
        }
        loong_context_destroy(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
