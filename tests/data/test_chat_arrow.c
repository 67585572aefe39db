/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of Parquet and Arrow files are those that `datasets` has of them
 * (tests/oracle/arrow_files.py); what is damaged is an error. */
#include <stdlib.h>

#include "chat.h"
#include "file.h"
#include "loong/chat.h"
#include "loong/register.h"
#include "test_dir.h"

TEST_DIR(dir)

static const char fixtures[] = LOONG_SOURCE_DIR "/tests/fixtures/chat/arrow/";
static const char *const files[] = {
    "snappy.parquet",     "zstd.parquet",   "groups.parquet",  "large.parquet",
    "numbers.parquet",    "others.parquet", "batches.parquet", "stream.arrow",
    "dictionary.parquet", "file.feather"};

/* Of the next record, written by one writer; NULL: there are no more. */
static char *next(loong_context_t *ctx, chat_reader_t *reader, int64_t *line_p)
{
    chat_record_t record = {.bytes = NULL};
    loong_json_t *json = NULL;
    loong_text_t text = loongi_text_begin(ctx);
    assert_ok(ctx, loongi_chat_reader_next(reader, &record));
    if (record.bytes == NULL) {
        return NULL;
    }
    *line_p = record.line;
    assert_ok(ctx, loongi_json_parse(ctx, record.bytes, record.length, "a row",
                                     &json));
    loongi_text_json(&text, json);
    loongi_json_destroy(&json);
    return text.data;
}

static void test_rows(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int i = 0; i < LOONG_COUNT_OF(files); i++) {
        char path[2][512];
        chat_reader_t *reader[2];
        char *row[2] = {NULL, NULL};
        int64_t line[2] = {0, 0};
        int64_t rows = 0;
        snprintf(path[0], 512, "%s%s", fixtures, files[i]);
        snprintf(path[1], 512, "%s%.*s.jsonl", fixtures,
                 (int)strcspn(files[i], "."), files[i]);
        for (int k = 0; k < 2; k++) {
            const chat_file_t file = {.path = path[k]};
            assert_ok(ctx, loongi_chat_reader_create(ctx, &file, &reader[k]));
        }
        do {
            for (int k = 0; k < 2; k++) {
                loongi_free(ctx, row[k]);
                row[k] = next(ctx, reader[k], &line[k]);
            }
            if (row[1] != NULL) {
                assert_non_null(row[0]);
                assert_string_equal(row[0], row[1]);
                assert_int_equal(line[0], ++rows);
            }
        } while (row[1] != NULL);
        assert_null(row[0]);
        assert_true(rows >= 5);
        loongi_chat_reader_destroy(&reader[0]);
        loongi_chat_reader_destroy(&reader[1]);
    }
    test_context_end(&ctx);
}

/* Every file, cut and with a byte changed: rows or an error, each read. */
static void test_damaged(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    int errors = 0;
    for (int i = 0; i < 6 * LOONG_COUNT_OF(files); i++) {
        char path[512];
        char *bytes = NULL;
        size_t length = 0;
        chat_reader_t *reader = NULL;
        chat_record_t record = {.bytes = ""};
        snprintf(path, sizeof(path), "%s%s", fixtures, files[i / 6]);
        assert_ok(ctx, loongi_file_read(ctx, path, &bytes, &length));
        snprintf(path, sizeof(path), "%s/%d%s", dir, i, files[i / 6]);
        bytes[length * (size_t)(i % 6 + 1) / 7] ^= 0x55;
        size_t kept = i % 6 == 0 ? length - 9 : length;
        assert_ok(ctx, loongi_file_write(ctx, path, bytes, kept));
        loongi_free(ctx, bytes);
        const chat_file_t file = {.path = path};
        loong_status_t status = loongi_chat_reader_create(ctx, &file, &reader);
        while (status == LOONG_OK && record.bytes != NULL) {
            status = loongi_chat_reader_next(reader, &record);
        }
        assert_true(status == LOONG_OK || status == LOONG_ERR_FORMAT);
        errors += status != LOONG_OK;
        loongi_chat_reader_destroy(&reader);
        loong_context_clear_error(ctx);
    }
    assert_true(errors >= LOONG_COUNT_OF(files)); /* those that were cut */
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_damaged)};
    if (!loongi_chat_arrow_loads()) {
        puts("SKIPPED: built without Arrow (-DLOONG_ARROW=DIR)");
        return 0;
    }
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
