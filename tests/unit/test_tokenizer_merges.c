/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging against the definition: of all pairs of neighbours the one with the
 * lowest rank is merged, the leftmost first, until there is none. The tables
 * are drawn at random, so they tear characters apart, join halves of two, and
 * use tokens before they are made. And normalising, where the tables of
 * utf8proc are newer than those of `tokenizers`. */
#include "test.h"

#include "json.h"
#include "loong/tokenizer.h"

enum { MAX_TOKENS = 512, MAX_MERGES = 200, MAX_TEXT = 128, TABLES = 400 };

typedef struct piece {
    char bytes[MAX_TEXT];
    int length;
} piece_t;

typedef struct table {
    piece_t tokens[MAX_TOKENS]; /* 256 bytes first; the index is the id */
    int num_tokens;
    int merges[MAX_MERGES][3]; /* left, right, result; the index is the rank */
    int num_merges;
} table_t;

static uint32_t state;

static int draw(int below)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)below);
}

/* Characters of all widths that share bytes, so that pairs come again. */
static int draw_text(char *text, int chars)
{
    static const char *const letters[] = {
        "a",            "b",
        " ",            "\xC3\xA9",
        "\xC3\xAD",     "\xE4\xB8\xAD",
        "\xE4\xB8\x81", "\xE5\x9B\xBD",
        "\xE5\x9B\x9B", "\xE2\x82\xAC",
        "\xF0\x9F\x99\x82"};
    int n = 0;
    for (int i = 0; i < chars; i++) {
        const char *c = letters[draw(LOONG_COUNT_OF(letters))];
        memcpy(text + n, c, strlen(c));
        n += (int)strlen(c);
    }
    return n;
}

static int find(const table_t *t, const char *bytes, int length)
{
    for (int i = 0; i < t->num_tokens; i++) {
        if (t->tokens[i].length == length &&
            memcmp(t->tokens[i].bytes, bytes, (size_t)length) == 0) {
            return i;
        }
    }
    return -1;
}

static int rank_of(const table_t *t, int left, int right)
{
    for (int i = 0; i < t->num_merges; i++) {
        if (t->merges[i][0] == left && t->merges[i][1] == right) {
            return i;
        }
    }
    return -1;
}

/* A merge of two tokens that stand side by side in a text. */
static void add_merge(table_t *t)
{
    char text[MAX_TEXT];
    int length = draw_text(text, 8);
    int begin = draw(length);
    int a = 1 + draw(5);
    int b = 1 + draw(5);
    if (begin + a + b > length) {
        return;
    }
    int left = find(t, text + begin, a);
    int right = find(t, text + begin + a, b);
    if (left < 0 || right < 0 || rank_of(t, left, right) >= 0) {
        return;
    }
    int result = find(t, text + begin, a + b);
    if (result < 0) {
        result = t->num_tokens++;
        memcpy(t->tokens[result].bytes, text + begin, (size_t)(a + b));
        t->tokens[result].length = a + b;
    }
    int *m = t->merges[t->num_merges++];
    m[0] = left;
    m[1] = right;
    m[2] = result;
}

static void draw_table(table_t *t, int merges, bool shuffled)
{
    t->num_merges = 0;
    t->num_tokens = 256;
    for (int b = 0; b < 256; b++) {
        t->tokens[b].bytes[0] = (char)b;
        t->tokens[b].length = 1;
    }
    for (int tries = 0; tries < 20000 && t->num_merges < merges; tries++) {
        add_merge(t);
    }
    for (int i = t->num_merges - 1; shuffled && i > 0; i--) {
        int other[3];
        int j = draw(i + 1);
        memcpy(other, t->merges[i], sizeof(other));
        memcpy(t->merges[i], t->merges[j], sizeof(other));
        memcpy(t->merges[j], other, sizeof(other));
    }
}

/* A token in the byte-level alphabet, as a JSON string. */
static void spell(loong_text_t *out, const piece_t *token)
{
    char text[2 * MAX_TEXT + 1];
    int n = 0;
    for (int i = 0; i < token->length; i++) {
        int b = (unsigned char)token->bytes[i];
        int point = b <= 0x20                ? 0x100 + b
                    : b >= 0x7F && b <= 0xA0 ? 0x121 + b - 0x7F
                    : b == 0xAD              ? 0x143
                                             : b;
        if (point < 0x80) {
            text[n++] = (char)point;
        } else {
            text[n++] = (char)(0xC0 | point >> 6);
            text[n++] = (char)(0x80 | (point & 0x3F));
        }
    }
    text[n] = '\0';
    loongi_text_json_string(out, text);
}

static loong_tokenizer_t *make(loong_context_t *ctx, const table_t *t)
{
    loong_tokenizer_t *tokenizer = NULL;
    loong_text_t out = loongi_text_begin(ctx);
    loongi_text_printf(&out,
                       "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                       "\"add_prefix_space\": false, \"use_regex\": false},\n"
                       "\"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (int i = 0; i < t->num_tokens; i++) {
        loongi_text_printf(&out, i > 0 ? ", " : "");
        spell(&out, &t->tokens[i]);
        loongi_text_printf(&out, ": %d", i);
    }
    loongi_text_printf(&out, "}, \"merges\": [");
    for (int i = 0; i < t->num_merges; i++) {
        loongi_text_printf(&out, i > 0 ? ", [" : "[");
        spell(&out, &t->tokens[t->merges[i][0]]);
        loongi_text_printf(&out, ", ");
        spell(&out, &t->tokens[t->merges[i][1]]);
        loongi_text_printf(&out, "]");
    }
    loongi_text_printf(&out, "]}}");
    assert_ok(ctx, loong_tokenizer_parse(ctx, loongi_text_get(&out), out.length,
                                         "drawn", &tokenizer));
    loongi_text_free(&out);
    return tokenizer;
}

/* The definition. */
static int merge(const table_t *t, const char *text, int length, int *ids)
{
    for (int i = 0; i < length; i++) {
        ids[i] = (unsigned char)text[i];
    }
    for (;;) {
        int best = -1;
        int place = 0;
        for (int i = 0; i + 1 < length; i++) {
            int rank = rank_of(t, ids[i], ids[i + 1]);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                place = i;
            }
        }
        if (best < 0) {
            return length;
        }
        ids[place] = t->merges[best][2];
        length--;
        memmove(ids + place + 1, ids + place + 2,
                (size_t)(length - place - 1) * sizeof(*ids));
    }
}

static void check_text(loong_text_encoder_t *encoder, const table_t *t)
{
    char text[MAX_TEXT];
    int expected[MAX_TEXT];
    const int32_t *ids = NULL;
    int64_t count = 0;
    int length = draw_text(text, 1 + draw(24));
    int n = merge(t, text, length, expected);
    assert_int_equal(loong_text_encode(encoder, text, (size_t)length, false,
                                       &ids, &count),
                     LOONG_OK);
    for (int i = 0; i < n && i < count; i++) {
        if (ids[i] != expected[i]) {
            fail_msg("'%.*s': id %d is %d, expected %d", length, text, i,
                     ids[i], expected[i]);
        }
    }
    assert_int_equal(count, n);
}

static void merges_are_as_defined(void **unused)
{
    (void)unused;
    static table_t table;
    state = 1;
    for (int i = 0; i < TABLES; i++) {
        loong_context_t *ctx = test_context();
        loong_text_encoder_t *encoder = NULL;
        draw_table(&table, 1 + draw(MAX_MERGES), i % 2 == 1);
        loong_tokenizer_t *tokenizer = make(ctx, &table);
        assert_ok(ctx, loong_text_encoder_create(ctx, tokenizer, &encoder));
        for (int j = 0; j < 100; j++) {
            check_text(encoder, &table);
        }
        loong_text_encoder_destroy(&encoder);
        loong_tokenizer_destroy(&tokenizer);
        test_context_end(&ctx);
    }
}

/* Marks that Unicode 15 added do not change places with others, and do not
 * stand between a letter and its mark without being seen. */
static void newer_marks_stay(void **unused)
{
    (void)unused;
    static const char *const texts[] = {
        "a\xCC\xA7\U00010EFD\xCC\x81", "a\U00011F41\xCC\x81",
        "a\U0001E08F\xCC\xA7", "a\U0001E4EC\xCC\x81",
        "\xEA\xB0\x80\xE1\x86\xA7"};
    char path[512];
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    loong_text_encoder_t *encoder = NULL;
    snprintf(path, sizeof(path), "%s/tests/fixtures/tokenizer/added.json",
             LOONG_SOURCE_DIR);
    assert_ok(ctx, loong_tokenizer_load(ctx, path, &t));
    assert_ok(ctx, loong_text_encoder_create(ctx, t, &encoder));
    for (int i = 0; i < LOONG_COUNT_OF(texts); i++) {
        const int32_t *ids = NULL;
        int64_t count = 0;
        char *back = NULL;
        size_t length = 0;
        assert_ok(ctx, loong_text_encode(encoder, texts[i], strlen(texts[i]),
                                         false, &ids, &count));
        assert_ok(ctx, loong_tokenizer_decode(ctx, t, ids, count, false, &back,
                                              &length));
        assert_string_equal(back, texts[i]);
        loong_tokenizer_free_text(ctx, &back);
    }
    loong_text_encoder_destroy(&encoder);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_as_defined),
        cmocka_unit_test(newer_marks_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
