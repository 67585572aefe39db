/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers of every supported shape give the ids and texts that the
 * `tokenizers` library gave (tests/oracle/tokenizer_fixtures.py), alone and
 * in threads. */
#include "file.h"
#include "test.h"

#include <pthread.h>
#include <unistd.h>

#include "json.h"
#include "loong/tokenizer.h"

static const char *const shapes[] = {"gpt2",
                                     "llama3",
                                     "deepseek",
                                     "o200k",
                                     "digits",
                                     "added",
                                     "llama2",
                                     "gemma",
                                     "metaspace_first",
                                     "metaspace_always",
                                     "metaspace_never"};

static void fixture(const char *shape, const char *suffix, char path[512])
{
    snprintf(path, 512, "%s/tests/fixtures/tokenizer/%s%s", LOONG_SOURCE_DIR,
             shape, suffix);
}

static void assert_ids(const char *shape, const loong_json_t *item,
                       const char *key, const int32_t *ids, int64_t count)
{
    const loong_json_t *expected = loongi_json_get(item, key);
    const char *text = loongi_json_string(loongi_json_get(item, "text"));
    for (int64_t i = 0; i < count && i < loongi_json_count(expected); i++) {
        int64_t id = loongi_json_int(loongi_json_at(expected, i));
        if (ids[i] != id) {
            fail_msg("%s, '%s', %s: id %d is %d, expected %d", shape, text, key,
                     (int)i, ids[i], (int)id);
        }
    }
    if (count != loongi_json_count(expected)) {
        fail_msg("%s, '%s', %s: %d ids, expected %d", shape, text, key,
                 (int)count, (int)loongi_json_count(expected));
    }
}

static void assert_bytes(const char *shape, const char *found, size_t length,
                         const char *expected)
{
    if (length != strlen(expected) || memcmp(found, expected, length) != 0) {
        fail_msg("%s: decoded '%s', expected '%s'", shape, found, expected);
    }
}

/* Token by token the text comes out as at once. */
static void check_stream(loong_context_t *ctx, const char *shape,
                         const loong_tokenizer_t *t, const int32_t *ids,
                         int64_t count)
{
    loong_text_stream_t stream = {0};
    size_t size = loong_text_stream_size(t);
    size_t length = 0;
    size_t at = 0;
    char *all = NULL;
    assert_ok(ctx,
              loong_tokenizer_decode(ctx, t, ids, count, false, &all, &length));
    char *pieces = malloc((size_t)(count + 1) * size);
    pieces[0] = '\0';
    for (int64_t i = 0; i < count; i++) {
        size_t n = loong_text_stream_put(&stream, t, ids[i], pieces + at);
        assert_true(n < size);
        assert_int_equal(strlen(pieces + at), n);
        at += n;
    }
    assert_int_equal(stream.num_held, 0);
    assert_bytes(shape, pieces, at, all);
    free(pieces);
    loong_tokenizer_free_text(ctx, &all);
}

static void check_shape(const char *shape)
{
    char path[512];
    char *text = NULL;
    size_t length = 0;
    const int32_t *ids = NULL;
    int64_t count = 0;
    loong_json_t *cases = NULL;
    loong_tokenizer_t *t = NULL;
    loong_text_encoder_t *encoder = NULL;
    loong_context_t *ctx = test_context();
    fixture(shape, ".json", path);
    assert_ok(ctx, loong_tokenizer_load(ctx, path, &t));
    assert_ok(ctx, loong_text_encoder_create(ctx, t, &encoder));
    fixture(shape, "_cases.json", path);
    assert_ok(ctx, loongi_json_load(ctx, path, &cases));
    assert_true(loongi_json_count(cases) > 50);
    for (int64_t i = 0; i < loongi_json_count(cases); i++) {
        const loong_json_t *item = loongi_json_at(cases, i);
        const loong_json_t *in = loongi_json_get(item, "text");
        const char *bytes = loongi_json_string(in);
        size_t size = loongi_json_string_length(in);
        assert_ok(ctx,
                  loong_text_encode(encoder, bytes, size, true, &ids, &count));
        assert_ids(shape, item, "special", ids, count);
        assert_ok(ctx,
                  loong_text_encode(encoder, bytes, size, false, &ids, &count));
        assert_ids(shape, item, "ids", ids, count);
        assert_ok(ctx, loong_tokenizer_decode(ctx, t, ids, count, true, &text,
                                              &length));
        const char *decoded =
            loongi_json_string(loongi_json_get(item, "decoded"));
        /* where the library loses bytes, ours are still there */
        if (strstr(decoded, "\xEF\xBF\xBD") == NULL) {
            assert_bytes(shape, text, length, decoded);
        }
        loong_tokenizer_free_text(ctx, &text);
        check_stream(ctx, shape, t, ids, count);
    }
    loongi_json_destroy(&cases);
    loong_text_encoder_destroy(&encoder);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

static void test_shapes(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        check_shape(shapes[i]);
    }
}

static void load(loong_context_t *ctx, const char *shape, loong_tokenizer_t **t,
                 loong_text_encoder_t **encoder)
{
    char path[512];
    fixture(shape, ".json", path);
    assert_ok(ctx, loong_tokenizer_load(ctx, path, t));
    assert_ok(ctx, loong_text_encoder_create(ctx, *t, encoder));
}

/* A long text of one word takes the merge queue through its paces, and must
 * be what the same text gives when merged naively: 2^k times one letter is
 * cut by tokens that are in the vocabulary. Here: decoding gives it back. */
static void test_long_words(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    loong_text_encoder_t *encoder = NULL;
    const int32_t *ids = NULL;
    int64_t count = 0;
    size_t length = 0;
    char *text = malloc(SIZE);
    char *back = NULL;
    for (int i = 0; i < SIZE; i++) {
        text[i] = "thesaurus"[(i * 7 + i / 9) % 9];
    }
    load(ctx, "llama3", &t, &encoder);
    assert_ok(ctx, loong_text_encode(encoder, text, SIZE, false, &ids, &count));
    assert_true(count < SIZE);
    assert_ok(
        ctx, loong_tokenizer_decode(ctx, t, ids, count, false, &back, &length));
    assert_int_equal(length, SIZE);
    assert_memory_equal(back, text, SIZE);
    loong_tokenizer_free_text(ctx, &back);
    free(text);
    loong_text_encoder_destroy(&encoder);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

/* Bytes that are no UTF-8, and what Python reads in their place. */
static void test_invalid_utf8(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a\xFFz", "a\xEF\xBF\xBDz"},
        {"\xC3", "\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE2\x82z", "\xEF\xBF\xBDz"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
        {"\xF4\x90\x80\x80",
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE2\x82\xF0\x9F\x98\x80", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
    };
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    loong_text_encoder_t *encoder = NULL;
    const int32_t *ids = NULL;
    int64_t count = 0;
    size_t length = 0;
    char *text = NULL;
    load(ctx, "llama3", &t, &encoder);
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        assert_ok(ctx,
                  loong_text_encode(encoder, cases[i][0], strlen(cases[i][0]),
                                    false, &ids, &count));
        assert_ok(ctx, loong_tokenizer_decode(ctx, t, ids, count, false, &text,
                                              &length));
        assert_bytes(cases[i][0], text, length, cases[i][1]);
        loong_tokenizer_free_text(ctx, &text);
    }
    loong_text_encoder_destroy(&encoder);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

static void test_stream_holds_back(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    loong_text_stream_t stream = {0};
    assert_ok(ctx, loong_tokenizer_bytes(ctx, &t));
    char *text = malloc(loong_text_stream_size(t));
    assert_int_equal(loong_text_stream_put(&stream, t, 0xE4, text), 0);
    assert_int_equal(loong_text_stream_put(&stream, t, 0xBD, text), 0);
    assert_int_equal(loong_text_stream_put(&stream, t, 0xA0, text), 3);
    assert_string_equal(text, "\xE4\xBD\xA0");
    assert_int_equal(loong_text_stream_put(&stream, t, 0xF0, text), 0);
    assert_int_equal(loong_text_stream_put(&stream, t, 'x', text), 4);
    assert_string_equal(text, "\xEF\xBF\xBDx");
    assert_int_equal(loong_text_stream_put(&stream, t, 0xFF, text), 3);
    assert_int_equal(loong_text_stream_put(&stream, t, 5000, text), 0);
    free(text);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

/* Roles: special tokens by their usual names, unless tokenizer_config.json
 * says otherwise; an ordinary token of such a name is none. */
static void test_roles(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 2, \"content\": \"<|endoftext|>\","
        " \"special\": true, \"normalized\": false, \"single_word\": false,"
        " \"lstrip\": false, \"rstrip\": false}],"
        " \"model\": {\"type\": \"BPE\", \"merges\": [],"
        " \"vocab\": {\"<s>\": 0, \"x\": 1, \"<|endoftext|>\": 2}}}";
    static const char config[] =
        "{\"bos_token\": {\"content\": \"x\"}, \"eos_token\": null}";
    char dir[] = "/tmp/loong_roles_XXXXXX";
    char path[64];
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    assert_ok(ctx, loongi_file_write(ctx, path, json, strlen(json)));
    assert_ok(ctx, loong_tokenizer_load(ctx, dir, &t));
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_BOS), -1);
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_EOS), 2);
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_EOD), 2);
    loong_tokenizer_destroy(&t);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    assert_ok(ctx, loongi_file_write(ctx, path, config, strlen(config)));
    assert_ok(ctx, loong_tokenizer_load(ctx, dir, &t));
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_BOS), 1);
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_EOS), -1);
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_EOD), 2);
    loong_tokenizer_destroy(&t);
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    test_context_end(&ctx);
}

/* An added token is named without its vocabulary; no other is. */
static void test_peek(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\": {\"vocab\": {\"\\\"added_tokens\\\": [\": 0,"
        " \"added_tokens\": 1, \"a\": 2}},\n \"added_tokens\" :\n [{\"id\": 3,"
        " \"content\": \"<]\\\"[>\"},"
        " {\"id\": 9, \"content\": \"<picture>\"}]}";
    loong_context_t *ctx = test_context();
    char token[32];
    char path[] = "/tmp/peek.XXXXXX";
    int file = mkstemp(path);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    static const struct {
        int32_t id;
        size_t room;
        const char *token;
    } cases[] = {{3, 32, "<]\"[>"}, {9, 32, "<picture>"}, {9, 9, ""},
                 {2, 32, ""},       {1, 32, ""}};
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        assert_ok(ctx, loong_tokenizer_peek(ctx, path, cases[i].id,
                                            cases[i].room, token));
        assert_string_equal(token, cases[i].token);
    }
    unlink(path);
    assert_int_equal(loong_tokenizer_peek(ctx, path, 3, 32, token),
                     LOONG_ERR_NOT_FOUND);
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

static void test_bytes(void **state)
{
    (void)state;
    static const char text[] = "\xFF<|endoftext|>";
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    loong_text_encoder_t *encoder = NULL;
    const int32_t *ids = NULL;
    int64_t count = 0;
    char *back = NULL;
    size_t length = 0;
    assert_ok(ctx, loong_tokenizer_bytes(ctx, &t));
    assert_ok(ctx, loong_text_encoder_create(ctx, t, &encoder));
    assert_int_equal(loong_tokenizer_get_vocab_size(t), 257);
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_EOD), 256);
    assert_int_equal(loong_tokenizer_get_role(t, LOONG_TOKEN_PAD), -1);
    assert_int_equal(loong_tokenizer_token_to_id(t, "<|endoftext|>"), 256);
    assert_ok(ctx, loong_text_encode(encoder, text, sizeof(text) - 1, true,
                                     &ids, &count));
    assert_int_equal(count, 14);
    assert_int_equal(ids[0], 255);
    assert_int_equal(ids[1], '<');
    assert_ok(ctx,
              loong_tokenizer_decode(ctx, t, ids, count, true, &back, &length));
    assert_memory_equal(back, text, sizeof(text));
    loong_tokenizer_free_text(ctx, &back);
    int32_t wrong[2] = {65, 257};
    assert_fails(ctx,
                 loong_tokenizer_decode(ctx, t, wrong, 2, true, &back, &length),
                 LOONG_ERR_ARG, "id 257 at place 1 is no token");
    assert_fails(ctx, loong_tokenizer_save(ctx, t, "none.json"),
                 LOONG_ERR_UNSUPPORTED, "has no tokenizer.json");
    loong_text_encoder_destroy(&encoder);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

typedef struct worker {
    const loong_tokenizer_t *tokenizer;
    int64_t ids;
    uint64_t sum;
} worker_t;

static void *work(void *user)
{
    worker_t *w = user;
    loong_context_t *ctx = NULL;
    loong_text_encoder_t *encoder = NULL;
    char text[64];
    if (loong_context_create(NULL, &ctx) != LOONG_OK ||
        loong_text_encoder_create(ctx, w->tokenizer, &encoder) != LOONG_OK) {
        return user;
    }
    for (int i = 0; i < 20000; i++) {
        const int32_t *ids = NULL;
        int64_t count = 0;
        int n = snprintf(text, sizeof(text), "word%d caf\xC3\xA9 e\xCC\x81 %d",
                         i % 997, i * 31);
        if (loong_text_encode(encoder, text, (size_t)n, false, &ids, &count) !=
            LOONG_OK) {
            return user;
        }
        for (int64_t k = 0; k < count; k++) {
            w->sum = w->sum * 31 + (uint64_t)ids[k];
        }
        w->ids += count;
    }
    loong_text_encoder_destroy(&encoder);
    loong_context_destroy(&ctx);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    loong_context_t *ctx = test_context();
    loong_tokenizer_t *t = NULL;
    loong_text_encoder_t *encoder = NULL;
    worker_t workers[THREADS];
    pthread_t threads[THREADS];
    load(ctx, "added", &t, &encoder);
    for (int i = 0; i < THREADS; i++) {
        worker_t w = {t, 0, 0};
        workers[i] = w;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_null(result);
        assert_true(workers[i].ids > 20000);
        assert_int_equal(workers[i].sum, workers[0].sum);
    }
    loong_text_encoder_destroy(&encoder);
    loong_tokenizer_destroy(&t);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_stream_holds_back),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_peek),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
