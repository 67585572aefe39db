/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans of tokens against those of the `tokenizers` library
 * (tests/oracle/tokenizer_spans.py), which are whole characters; and what
 * cannot be followed. */
#include "test.h"

#include "json.h"
#include "loong/tokenizer.h"
#include "unicode.h"

/* The byte where character number `at` begins. */
static int64_t byte_of(const char *text, size_t length, int64_t at)
{
    size_t byte = 0;
    while (at-- > 0 && byte < length) {
        (void)loongi_utf8_get(text + byte, &byte);
    }
    return (int64_t)byte;
}

/* To the ends of the characters that it has parts of. */
static void widen(const char *text, int64_t length, loong_token_span_t *s)
{
    while (s->begin > 0 && (text[s->begin] & 0xC0) == 0x80) {
        s->begin--;
    }
    while (s->end < length && (text[s->end] & 0xC0) == 0x80) {
        s->end++;
    }
}

/* U+0300 to U+036F, or a letter in front of them, or parts of Hangul. */
static bool marks_between(const char *text, int64_t begin, int64_t end)
{
    return end > begin && (strchr("\xCC\xCD\xE1", text[begin]) != NULL ||
                           strchr("\xCC\xCD", text[begin + 1]) != NULL);
}

static void check_text(loong_context_t *ctx, const char *shape,
                       loong_text_encoder_t *encoder, const loong_json_t *item)
{
    const loong_json_t *in = loongi_json_at(item, 0);
    const loong_json_t *expected = loongi_json_at(item, 1);
    const char *text = loongi_json_string(in);
    size_t length = loongi_json_string_length(in);
    loong_text_tokens_t tokens;
    assert_ok(ctx,
              loong_text_encode_spans(encoder, text, length, false, &tokens));
    assert_int_equal(2 * tokens.count, loongi_json_count(expected));
    for (int64_t i = 0; i < tokens.count; i++) {
        loong_token_span_t s = tokens.spans[i];
        int64_t want[2];
        for (int k = 0; k < 2; k++) {
            want[k] =
                byte_of(text, length,
                        loongi_json_int(loongi_json_at(expected, 2 * i + k)));
        }
        widen(text, (int64_t)length, &s);
        if (marks_between(text, s.begin, want[0]) ||
            marks_between(text, want[1], s.end)) {
            continue; /* the library leaves out what is composed */
        }
        if (s.begin != want[0] || s.end != want[1]) {
            fail_msg("%s, '%s': token %d is [%d, %d), expected [%d, %d)", shape,
                     text, (int)i, (int)s.begin, (int)s.end, (int)want[0],
                     (int)want[1]);
        }
    }
}

static void test_shapes(void **state)
{
    loong_json_t *all = NULL;
    loong_context_t *ctx = test_context();
    (void)state;
    assert_ok(ctx, loongi_json_load(ctx,
                                    LOONG_SOURCE_DIR
                                    "/tests/fixtures/tokenizer/spans.json",
                                    &all));
    const loong_json_member_t *it = loongi_json_first(all);
    for (; it != NULL; it = loongi_json_next(all, it)) {
        char path[512];
        loong_tokenizer_t *t = NULL;
        loong_text_encoder_t *encoder = NULL;
        const char *shape = loongi_json_member_key(it);
        const loong_json_t *items = loongi_json_member_value(it);
        snprintf(path, sizeof(path), "%s/tests/fixtures/tokenizer/%s.json",
                 LOONG_SOURCE_DIR, shape);
        assert_ok(ctx, loong_tokenizer_load(ctx, path, &t));
        assert_ok(ctx, loong_text_encoder_create(ctx, t, &encoder));
        for (int64_t i = 0; i < loongi_json_count(items); i++) {
            check_text(ctx, shape, encoder, loongi_json_at(items, i));
        }
        loong_text_encoder_destroy(&encoder);
        loong_tokenizer_destroy(&t);
    }
    loongi_json_destroy(&all);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
