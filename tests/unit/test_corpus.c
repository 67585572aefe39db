/* SPDX-License-Identifier: Apache-2.0
 *
 * Corpora and the indexer: files, compression, JSON lines, and that the data
 * set does not depend on the number of threads. */
#include <sys/stat.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "data_test.h"
#include "loong/corpus.h"
#include "loong/indexer.h"

typedef struct fixture {
    loong_context_t *ctx;
    char dir[SCRATCH_SIZE];
} fixture_t;

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof(*f));
    f->ctx = test_context();
    scratch_make(f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    scratch_remove(f->ctx, f->dir);
    test_context_end(&f->ctx);
    free(f);
    return 0;
}

static void put(fixture_t *f, const char *name, const void *bytes,
                size_t length)
{
    char path[SCRATCH_SIZE];
    assert_ok(f->ctx,
              loongi_file_write(f->ctx, scratch_path(f->dir, name, path), bytes,
                                length));
}

static void put_text(fixture_t *f, const char *name, const char *text)
{
    put(f, name, text, strlen(text));
}

/* One gzip member, zstd frame or xz stream, appended to what is in `out`. */
static size_t pack_gzip(const char *text, size_t length, char *out, size_t room)
{
    z_stream z;
    memset(&z, 0, sizeof(z));
    assert_int_equal(
        deflateInit2(&z, 6, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)length;
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static size_t pack_zstd(const char *text, size_t length, char *out, size_t room)
{
    size_t n = ZSTD_compress(out, room, text, length, 3);
    assert_false(ZSTD_isError(n));
    return n;
}

static size_t pack_xz(const char *text, size_t length, char *out, size_t room)
{
    size_t n = 0;
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL,
                                             (const uint8_t *)text, length,
                                             (uint8_t *)out, &n, room),
                     LZMA_OK);
    return n;
}

typedef size_t (*pack_fn)(const char *, size_t, char *, size_t);

/* All records of a corpus, each followed by '|'; "!" and the status for an
 * error. */
static const char *read_all(fixture_t *f, const loong_corpus_params_t *params,
                            loong_text_t *text)
{
    loong_corpus_t *corpus = NULL;
    loong_record_t record;
    *text = loongi_text_begin(f->ctx);
    loong_status_t status = loong_corpus_create(f->ctx, params, &corpus);
    while (status == LOONG_OK) {
        char *copy = NULL;
        size_t length = 0;
        status = loong_corpus_next(corpus, &record);
        if (status != LOONG_OK || record.bytes == NULL) {
            break;
        }
        status = loong_record_text(f->ctx, &record, "text", &copy, &length);
        if (status == LOONG_OK) {
            loongi_text_append(text, copy, length);
            loongi_text_printf(text, "|");
            loong_record_free(f->ctx, &copy);
        }
    }
    if (status != LOONG_OK) {
        loongi_text_printf(text, "!%s", loong_status_text(status));
    } else {
        loong_corpus_info_t info;
        loong_corpus_get_info(corpus, &info);
        assert_int_equal(info.files_read, info.files);
        assert_int_equal(info.bytes_read, info.bytes);
    }
    loong_corpus_destroy(&corpus);
    return loongi_text_get(text);
}

static void check_read(fixture_t *f, const loong_corpus_params_t *params,
                       const char *expected)
{
    loong_text_t text;
    loong_context_clear_error(f->ctx);
    assert_string_equal(read_all(f, params, &text), expected);
    loongi_text_free(&text);
}

static void check_file(fixture_t *f, const char *name, bool split,
                       const char *expected)
{
    char path[SCRATCH_SIZE];
    const char *paths[] = {scratch_path(f->dir, name, path)};
    loong_corpus_params_t params = {paths, 1, NULL, split};
    check_read(f, &params, expected);
}

static void test_text_files(void **state)
{
    fixture_t *f = *state;
    put_text(f, "a.txt", "one\n\ntwo\n");
    check_file(f, "a.txt", false, "one\n\ntwo\n|");
    check_file(f, "a.txt", true, "one\n|two\n|");
    put_text(f, "b.txt", "\n \n\none\r\nmore\r\n\r\n\t\ntwo");
    check_file(f, "b.txt", true, "one\r\nmore\r\n|two|");
    put_text(f, "c.txt", "");
    check_file(f, "c.txt", false, "");
    check_file(f, "c.txt", true, "");
    put_text(f, "d.txt", "\xef\xbb\xbfmarked");
    check_file(f, "d.txt", false, "marked|");
    put_text(f, "e.txt", "\xef\xbb");
    check_file(f, "e.txt", false, "\xef\xbb|");
    put_text(f, "f.txt", "\n\n \n");
    check_file(f, "f.txt", true, "");
}

static void test_json_lines(void **state)
{
    static const char *const broken[][2] = {
        {"{\"text\": \"a\"}\n{\"text\": \"b\"", ".jsonl:2: column 12"},
        {"\n\n[1]\n", ".jsonl:3: an integer, must be an object"},
        {"{\"text\": \"a\"}\n[1]\n", ".jsonl:2: an array, must be an object"},
        {"\"text\"\n", "a string, must be an object"},
        {"{\"body\": \"a\", \"n\": 1}\n",
         ".jsonl:1: no key 'text'; keys are: 'body' 'n'"},
        {"{}\n", "no key 'text'; keys are:"},
        {"{\"text\": 3}\n", "'text' is an integer, not a string"},
        {"{\"text\": null}\n", "'text' is null, not a string"},
        {"{\"text\": \"a\", \"text\": \"b\"}\n", "duplicate"},
        {"{\"text\": \"\\ud800\"}\n", ".jsonl:1: column "},
        {"{\"text\": \"\xff\"}\n", ".jsonl:1: column "},
    };
    fixture_t *f = *state;
    put_text(
        f, "a.jsonl",
        "{\"text\": \"one\\ntwo\"}\r\n\n  \n{\"id\": 1, \"text\": "
        "\"\\u4f60\\ud83d\\ude00\"}\n{\"text\": \"\"}\n{\"text\":\"end\"}");
    check_file(f, "a.jsonl", true,
               "one\ntwo|\xe4\xbd\xa0\xf0\x9f\x98\x80||end|");
    put_text(f, "b.json", "\xef\xbb\xbf{\"text\": \"a\"}\n");
    check_file(f, "b.json", false, "a|");
    for (int i = 0; i < LOONG_COUNT_OF(broken); i++) {
        loong_text_t text;
        char path[SCRATCH_SIZE];
        put_text(f, "x.jsonl", broken[i][0]);
        const char *paths[] = {scratch_path(f->dir, "x.jsonl", path)};
        loong_corpus_params_t params = {paths, 1, NULL, false};
        loong_context_clear_error(f->ctx);
        const char *result = read_all(f, &params, &text);
        assert_non_null(strstr(result, "!malformed or corrupt data"));
        loongi_text_free(&text);
        if (strstr(loong_context_error(f->ctx), broken[i][1]) == NULL) {
            fail_msg("'%s' is not in: %s", broken[i][1],
                     loong_context_error(f->ctx));
        }
    }
}

/* A line longer than every buffer. */
static void test_long_line(void **state)
{
    enum { LONG = 3000000 };
    fixture_t *f = *state;
    char path[SCRATCH_SIZE];
    loong_text_t text = loongi_text_begin(f->ctx);
    loong_text_t read;
    loongi_text_printf(&text, "{\"text\": \"");
    for (int i = 0; i < LONG; i++) {
        loongi_text_append(&text, i % 7 == 0 ? "x" : "y", 1);
    }
    loongi_text_printf(&text, "\"}\n{\"text\": \"next\"}\n");
    put(f, "l.jsonl", text.data, text.length);
    const char *paths[] = {scratch_path(f->dir, "l.jsonl", path)};
    loong_corpus_params_t params = {paths, 1, NULL, false};
    read_all(f, &params, &read);
    assert_int_equal(read.length, LONG + strlen("|next|"));
    assert_memory_equal(read.data, text.data + strlen("{\"text\": \""), LONG);
    loongi_text_free(&text);
    loongi_text_free(&read);
}

/* gzip, zstd and xz: two members in a file, any place where it is cut off, one
 * flipped byte. */
static void test_compressed(void **state)
{
    enum { LONGEST_MAGIC = 6 };
    static const pack_fn packs[] = {pack_gzip, pack_zstd, pack_xz};
    static const char *const names[] = {"a.jsonl.gz", "a.jsonl.zst",
                                        "a.jsonl.xz"};
    static const char first[] = "{\"text\": \"one\"}\n{\"text\":";
    static const char second[] = " \"two\"}\n";
    fixture_t *f = *state;
    char bytes[1024];
    for (int i = 0; i < 3; i++) {
        size_t cut = packs[i](first, strlen(first), bytes, sizeof(bytes));
        size_t length = cut + packs[i](second, strlen(second), bytes + cut,
                                       sizeof(bytes) - cut);
        put(f, names[i], bytes, length);
        check_file(f, names[i], false, "one|two|");
        for (size_t n = LONGEST_MAGIC; n < length; n++) {
            if (n == cut) { /* a whole member: the JSON is what breaks */
                continue;
            }
            put(f, names[i], bytes, n);
            loong_text_t text;
            char path[SCRATCH_SIZE];
            const char *paths[] = {scratch_path(f->dir, names[i], path)};
            loong_corpus_params_t params = {paths, 1, NULL, false};
            loong_context_clear_error(f->ctx);
            assert_non_null(strstr(read_all(f, &params, &text), "!malformed"));
            assert_non_null(strstr(loong_context_error(f->ctx), "is cut off"));
            loongi_text_free(&text);
        }
    }
    size_t length = pack_gzip(second, strlen(second), bytes, sizeof(bytes));
    bytes[length - 6] ^= 1; /* the checksum */
    put(f, "a.txt.gz", bytes, length);
    check_file(f, "a.txt.gz", false, "!malformed or corrupt data");
    assert_non_null(strstr(loong_context_error(f->ctx), "broken gzip data"));
    loong_context_clear_error(f->ctx);
}

static void test_directories(void **state)
{
    fixture_t *f = *state;
    char sub[SCRATCH_SIZE];
    char path[SCRATCH_SIZE];
    char bytes[256];
    assert_int_equal(mkdir(scratch_path(f->dir, "sub", sub), 0777), 0);
    put_text(f, "b.rst", "B");
    put_text(f, "a.txt", "A");
    put_text(f, "sub/c.rst", "C");
    put(f, "d.rst.gz", bytes, pack_gzip("D", 1, bytes, sizeof(bytes)));
    put_text(f, "e.png", "no");
    put_text(f, "norst", "no");
    assert_int_equal(
        symlink("c.rst", scratch_path(f->dir, "sub/link.rst", path)), 0);
    assert_int_equal(symlink("..", scratch_path(f->dir, "sub/loop.rst", path)),
                     0);
    const char *paths[] = {f->dir, "missing"};
    loong_corpus_params_t params = {paths, 1, ".rst,.txt", false};
    check_read(f, &params, "A|B|D|C|C|");
    params.suffixes = ".rst";
    check_read(f, &params, "B|D|C|C|");
    params.suffixes = ".md";
    check_read(f, &params, "!not found");
    assert_non_null(
        strstr(loong_context_error(f->ctx), "no file that ends in .md under"));
    params.num_paths = 2;
    params.suffixes = NULL;
    check_read(f, &params, "!not found");
    assert_non_null(strstr(loong_context_error(f->ctx), "'missing'"));
    assert_int_equal(
        symlink("nowhere", scratch_path(f->dir, "dangling.rst", path)), 0);
    params.num_paths = 1;
    check_read(f, &params, "!input or output failed");
    loong_context_clear_error(f->ctx);
}

/* The encoder of these tests: one id a byte; '#' fails, and a text that is
 * only "-" gives nothing. */
typedef struct byte_encoder {
    loong_context_t *ctx;
    int32_t ids[4096];
} byte_encoder_t;

static loong_status_t byte_create(void *user, loong_context_t *ctx,
                                  void **encoder_p)
{
    byte_encoder_t *encoder = NULL;
    LOONG_CHECK(ctx, user == NULL, LOONG_ERR_NOT_FOUND, "no such tokenizer");
    LOONG_TRY(loongi_alloc(ctx, sizeof(*encoder), "byte encoder", &encoder));
    encoder->ctx = ctx;
    *encoder_p = encoder;
    return LOONG_OK;
}

static loong_status_t byte_encode(void *encoder, const char *text,
                                  size_t length, const int32_t **ids_p,
                                  int64_t *count_p)
{
    byte_encoder_t *e = encoder;
    for (size_t i = 0; i < length; i++) {
        LOONG_CHECK(e->ctx, text[i] != '#', LOONG_ERR_FORMAT, "byte %zu is #",
                    i);
        e->ids[i] = (uint8_t)text[i];
    }
    *ids_p = e->ids;
    *count_p = strcmp(text, "-") == 0 ? 0 : (int64_t)length;
    return LOONG_OK;
}

static void byte_destroy(void *encoder)
{
    byte_encoder_t *e = encoder;
    loongi_free(e->ctx, e);
}

static const loong_encoder_ops_t byte_ops = {byte_create, byte_encode,
                                             byte_destroy};

/* Stops the work once something has been written. */
static loong_status_t stop_at_once(void *user,
                                   const loong_index_result_t *so_far)
{
    (void)user;
    return so_far->documents > 0 ? LOONG_ERR_INTERRUPTED : LOONG_OK;
}

static loong_status_t build(fixture_t *f, const char *name, int threads,
                            void *user, loong_index_result_t *result)
{
    char path[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    const char *paths[] = {scratch_path(f->dir, name, path)};
    loong_corpus_params_t params = {paths, 1, NULL, false};
    loong_corpus_t *corpus = NULL;
    assert_ok(f->ctx, loong_corpus_create(f->ctx, &params, &corpus));
    loong_index_params_t index = {
        corpus,    "text", scratch_path(f->dir, "set", prefix),
        LOONG_U16, 256,    threads,
        &byte_ops, user,   NULL,
        NULL,      false,  false,  0};
    loong_status_t status = loong_index_build(f->ctx, &index, result);
    loong_corpus_destroy(&corpus);
    return status;
}

static void write_lines(fixture_t *f, const char *name, int64_t lines,
                        int64_t bad)
{
    loong_text_t text = loongi_text_begin(f->ctx);
    for (int64_t i = 0; i < lines; i++) {
        loongi_text_printf(&text, "{\"n\": %lld, \"text\": \"%s%0*lld\"}\n",
                           (long long)i, i == bad ? "#" : "", 1 + (int)(i % 90),
                           (long long)i);
    }
    loongi_text_printf(&text, "{\"text\": \"-\"}\n");
    put(f, name, text.data, text.length);
    loongi_text_free(&text);
}

static void test_indexer(void **state)
{
    enum { LINES = 60000 };
    static const int threads[] = {1, 2, 5};
    fixture_t *f = *state;
    char prefix[SCRATCH_SIZE];
    uint64_t hash = 0;
    write_lines(f, "a.jsonl", LINES, -1);
    for (int i = 0; i < LOONG_COUNT_OF(threads); i++) {
        loong_index_result_t result;
        loong_dataset_t *ds = NULL;
        loong_dataset_info_t info;
        assert_ok(f->ctx, build(f, "a.jsonl", threads[i], NULL, &result));
        assert_int_equal(result.documents, LINES);
        assert_int_equal(result.empty, 1);
        assert_ok(f->ctx,
                  loong_dataset_create(
                      f->ctx, scratch_path(f->dir, "set", prefix), &ds));
        loong_dataset_get_info(ds, &info);
        assert_int_equal(info.documents, LINES);
        assert_int_equal(info.tokens, result.tokens);
        assert_int_equal(result.text_bytes, result.tokens - LINES + 1);
        for (int64_t d = 0; d < LINES; d += 997) {
            int32_t ids[128];
            char expected[128];
            int64_t n = loong_dataset_get_start(ds, d + 1) -
                        loong_dataset_get_start(ds, d);
            assert_ok(f->ctx,
                      loong_dataset_read(ds, loong_dataset_get_start(ds, d), n,
                                         257, ids));
            snprintf(expected, sizeof(expected), "%0*lld", 1 + (int)(d % 90),
                     (long long)d);
            assert_int_equal(n, strlen(expected) + 1);
            for (int64_t t = 0; t < n - 1; t++) {
                assert_int_equal(ids[t], expected[t]);
            }
            assert_int_equal(ids[n - 1], 256);
        }
        assert_true(i == 0 || info.hash == hash);
        hash = info.hash;
        loong_dataset_destroy(&ds);
    }
}

static void test_indexer_failures(void **state)
{
    fixture_t *f = *state;
    loong_index_result_t result;
    char path[SCRATCH_SIZE];
    write_lines(f, "a.jsonl", 30000, 29000);
    assert_fails(f->ctx, build(f, "a.jsonl", 3, NULL, &result),
                 LOONG_ERR_FORMAT, "while encoding");
    assert_fails(f->ctx, build(f, "a.jsonl", 3, NULL, &result),
                 LOONG_ERR_FORMAT, "a.jsonl:29001");
    assert_fails(f->ctx, build(f, "a.jsonl", 3, f, &result),
                 LOONG_ERR_NOT_FOUND, "no such tokenizer");
    put_text(f, "b.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
    assert_fails(f->ctx, build(f, "b.jsonl", 2, NULL, &result),
                 LOONG_ERR_FORMAT, "b.jsonl:2: 'text' is an integer");
    put_text(f, "c.txt", "-");
    assert_fails(f->ctx, build(f, "c.txt", 1, NULL, &result), LOONG_ERR_FORMAT,
                 "gave no token (1 documents without one, 0 broken "
                 "lines left out)");
    assert_fails(f->ctx, build(f, "c.txt", 0, NULL, &result), LOONG_ERR_ARG,
                 "0 threads");
    put_text(f, "d.txt.gz", "\x1f\x8b");
    assert_fails(f->ctx, build(f, "d.txt.gz", 1, NULL, &result),
                 LOONG_ERR_FORMAT, "is cut off");
    assert_false(loongi_file_exists(scratch_path(f->dir, "set.idx", path)));
    assert_false(loongi_file_exists(scratch_path(f->dir, "set.idx.tmp", path)));
    assert_false(loongi_file_exists(scratch_path(f->dir, "set.bin.tmp", path)));
}

static void test_indexer_is_stopped(void **state)
{
    fixture_t *f = *state;
    char path[SCRATCH_SIZE];
    char prefix[SCRATCH_SIZE];
    loong_corpus_t *corpus = NULL;
    loong_index_result_t result;
    write_lines(f, "a.jsonl", 60000, -1);
    const char *paths[] = {scratch_path(f->dir, "a.jsonl", path)};
    loong_corpus_params_t params = {paths, 1, NULL, false};
    assert_ok(f->ctx, loong_corpus_create(f->ctx, &params, &corpus));
    loong_index_params_t index = {0};
    index.corpus = corpus;
    index.json_key = "text";
    index.prefix = scratch_path(f->dir, "set", prefix);
    index.dtype = LOONG_U16;
    index.append_id = -1;
    index.threads = 2;
    index.encoder = &byte_ops;
    index.progress = stop_at_once;
    assert_int_equal(loong_index_build(f->ctx, &index, &result),
                     LOONG_ERR_INTERRUPTED);
    loong_corpus_destroy(&corpus);
    assert_false(loongi_file_exists(scratch_path(f->dir, "set.idx", path)));
    assert_false(loongi_file_exists(scratch_path(f->dir, "set.bin.tmp", path)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_json_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compressed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_directories, setup, teardown),
        cmocka_unit_test_setup_teardown(test_indexer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_indexer_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_indexer_is_stopped, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
