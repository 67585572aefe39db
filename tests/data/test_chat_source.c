/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of records as samples: every kind and compression, tables, what is
 * refused with file and line, what is kept and found again, shares, and two
 * processes at once. Tokens are the bytes of the texts. */
#include <lzma.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "chat.h"
#include "loong/chat.h"
#include "loong/register.h"
#include "test_dir.h"

TEST_DIR(dir)

enum { END = 256, VOCAB = 257 };

static void put(loong_context_t *ctx, const char *name, const char *text)
{
    assert_ok(ctx, loongi_file_write(ctx, in_dir(name), text, strlen(text)));
}

static loong_status_t open_chat(loong_context_t *ctx, const char *name,
                                loong_chat_options_t options,
                                loong_chat_t **chat_p)
{
    options.cache = options.cache != NULL ? options.cache : in_dir("cache");
    const loong_source_params_t params = {.data = "train",
                                          .path = in_dir(name),
                                          .tokenizer = "bytes",
                                          .chat = &options};
    return loong_chat_open(ctx, &params, chat_p);
}

/* Sample i is prompt and completion, of which this is learned, at a line. */
static void assert_sample(loong_context_t *ctx, const loong_chat_t *chat,
                          int64_t i, const char *prompt, const char *completion,
                          const char *where)
{
    loong_items_t items = {.ctx = ctx, .vocab_size = VOCAB};
    size_t first = strlen(prompt);
    size_t count = first + strlen(completion);
    assert_ok(ctx, loong_chat_read(chat, i, &items));
    const loong_item_t *item = &items.item[0];
    assert_int_equal(items.count, 1);
    assert_int_equal(item->type, LOONG_ITEM_TOKENS);
    assert_int_equal(item->size[0], count + 1);
    for (size_t t = 0; t < count; t++) {
        int byte =
            (unsigned char)(t < first ? prompt[t] : completion[t - first]);
        assert_int_equal(item->ids[t], byte);
        assert_int_equal(item->weight[t], t >= first);
        assert_int_equal(item->starts[t], t == 0);
    }
    assert_int_equal(item->ids[count], END);
    assert_int_equal(item->weight[count], 1);
    size_t length = strlen(item->name);
    assert_true(length > strlen(where));
    assert_string_equal(item->name + length - strlen(where), where);
    loong_items_free(&items);
}

static const char lines[] =
    "{\"prompt\": \"ab\", \"completion\": \" c\"}\n"
    "\n"
    "{\"id\": 7, \"prompt\": \"\", \"completion\": \"d\\u00e9\"}\r\n"
    "{\"prompt\": \"x\", \"completion\": \"y\"}";
static const char array[] =
    "[\n{\"prompt\": \"ab\", \"completion\": \" c\"},"
    "{\"prompt\": \"\",\n \"completion\": \"d\\u00e9\"}\n,\n"
    "{\"prompt\": \"x\", \"completion\": \"y\"}]\n";
static const char table[] = "\xEF\xBB\xBFprompt,note,completion\r\n"
                            "ab,\"1,2\",\" c\"\r\n"
                            ",\"two\nlines \"\"quoted\"\"\",d\xC3\xA9\n"
                            "x,,y";

static void check_three(loong_context_t *ctx, const char *name, const int at[3])
{
    char where[64];
    static const char *const texts[][2] = {
        {"ab", " c"}, {"", "d\xC3\xA9"}, {"x", "y"}};
    loong_chat_t *chat = NULL;
    loong_chat_info_t info;
    loong_chat_file_t file;
    assert_ok(ctx, open_chat(ctx, name, (loong_chat_options_t){0}, &chat));
    loong_chat_get_info(chat, &info);
    assert_int_equal(info.records, 3);
    assert_int_equal(info.samples, 3);
    assert_int_equal(info.tokens, 5 + 4 + 3);
    assert_int_equal(info.learned, 3 + 3 + 2);
    assert_int_equal(info.shortest, 3);
    assert_int_equal(info.median, 4);
    assert_int_equal(info.longest, 5);
    loong_chat_get_file(chat, 0, &file);
    assert_string_equal(file.format, "prompt_completion");
    for (int i = 0; i < 3; i++) {
        snprintf(where, sizeof(where), "%s:%d", name, at[i]);
        assert_sample(ctx, chat, i, texts[i][0], texts[i][1], where);
    }
    loong_chat_close(&chat);
}

static void put_bytes(loong_context_t *ctx, const char *name, const void *bytes,
                      size_t length)
{
    assert_ok(ctx, loongi_file_write(ctx, in_dir(name), bytes, length));
}

static void test_kinds(void **state)
{
    (void)state;
    static const int in_lines[] = {1, 3, 4};
    static const int in_array[] = {2, 2, 5};
    static const int in_table[] = {2, 3, 5};
    uint8_t packed[1024];
    size_t length = 0;
    loong_context_t *ctx = test_context();
    put(ctx, "a.jsonl", lines);
    check_three(ctx, "a.jsonl", in_lines);
    put(ctx, "a.json", array);
    check_three(ctx, "a.json", in_array);
    put(ctx, "a.csv", table);
    check_three(ctx, "a.csv", in_table);
    put(ctx, "a.tsv", "completion\tprompt\n c\tab\nd\xC3\xA9\t\n\ny\tx\n");
    check_three(ctx, "a.tsv", (const int[]){2, 3, 5});
    gzFile gz = gzopen(in_dir("b.csv.gz"), "wb");
    assert_int_equal(gzwrite(gz, table, sizeof(table) - 1), sizeof(table) - 1);
    gzclose(gz);
    check_three(ctx, "b.csv.gz", in_table);
    assert_int_equal(lzma_easy_buffer_encode(
                         6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)lines,
                         sizeof(lines) - 1, packed, &length, sizeof(packed)),
                     LZMA_OK);
    put_bytes(ctx, "b.jsonl.xz", packed, length);
    check_three(ctx, "b.jsonl.xz", in_lines);
    put_bytes(ctx, "c.jsonl.xz", packed, length / 2);
    loong_chat_t *chat = NULL;
    assert_fails(ctx,
                 open_chat(ctx, "c.jsonl.xz", (loong_chat_options_t){0}, &chat),
                 LOONG_ERR_FORMAT, "is cut off");
    length = ZSTD_compress(packed, sizeof(packed), array, sizeof(array) - 1, 3);
    put_bytes(ctx, "b.json.zst", packed, length);
    check_three(ctx, "b.json.zst", in_array);
    test_context_end(&ctx);
}

static void test_text(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_chat_t *chat = NULL;
    put(ctx, "a.txt", "one line \n\n \nanother\n");
    assert_ok(ctx, open_chat(ctx, "a.txt", (loong_chat_options_t){0}, &chat));
    assert_sample(ctx, chat, 0, "", "one line", "a.txt:1");
    assert_sample(ctx, chat, 1, "", "another", "a.txt:4");
    loong_chat_close(&chat);
    test_context_end(&ctx);
}

static void test_refused(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_chat_t *chat = NULL;
    loong_chat_info_t info;
    char *text = NULL;
    size_t length = 0;
    const loong_chat_options_t skip = {.skip_refused = true};
    static const char *const told[] = {
        "bad.jsonl: refused records: 3 of 4, which data.chat.skip_refused "
        "leaves out; they are listed in ",
        "bad.jsonl:1: 'prompt' is a string and ",
        "bad.jsonl:2: JSON: ", "bad.jsonl:4: 'prompt' is missing and "};
    put(ctx, "bad.jsonl",
        "{\"prompt\": \"a\", \"completion\": 7}\n{\n"
        "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"text\": \"a\"}\n");
    assert_int_equal(
        open_chat(ctx, "bad.jsonl", (loong_chat_options_t){0}, &chat),
        LOONG_ERR_FORMAT);
    for (int64_t i = 0; i < LOONG_COUNT_OF(told); i++) {
        assert_non_null(strstr(loong_context_error(ctx), told[i]));
    }
    loong_context_clear_error(ctx);
    assert_ok(ctx, open_chat(ctx, "bad.jsonl", skip, &chat));
    loong_chat_get_info(chat, &info);
    assert_true(info.found); /* the same was tokenised */
    assert_int_equal(info.refused, 3);
    assert_int_equal(info.samples, 1);
    assert_sample(ctx, chat, 0, "a", "b", "bad.jsonl:3");
    assert_ok(ctx, loongi_file_read(ctx, info.refused_file, &text, &length));
    assert_non_null(strstr(text, "bad.jsonl:4: "));
    loongi_free(ctx, text);
    loong_chat_close(&chat);

    test_context_end(&ctx);
}

static void test_files_refused(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_chat_t *chat = NULL;
    const loong_chat_options_t skip = {.skip_refused = true};
    put(ctx, "rows.csv", "prompt,completion\na,b\na,b,c\n");
    assert_fails(ctx,
                 open_chat(ctx, "rows.csv", (loong_chat_options_t){0}, &chat),
                 LOONG_ERR_FORMAT, "refused records: 1 of 2");
    put(ctx, "row.csv", "prompt,completion\na,b,c\n");
    assert_int_equal(
        open_chat(ctx, "row.csv", (loong_chat_options_t){0}, &chat),
        LOONG_ERR_FORMAT);
    assert_non_null(
        strstr(loong_context_error(ctx),
               "row.csv:2: a row of 3 cells, the table has 2 columns"));
    loong_context_clear_error(ctx);
    put(ctx, "quote.csv", "prompt,completion\na,\"b\n");
    assert_fails(ctx, open_chat(ctx, "quote.csv", skip, &chat),
                 LOONG_ERR_FORMAT, "quote.csv:2: a quoted cell has no end");
    put(ctx, "keys.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n");
    assert_fails(ctx, open_chat(ctx, "keys.jsonl", skip, &chat),
                 LOONG_ERR_FORMAT,
                 "keys.jsonl:1: the record is of no known format, its keys are "
                 "'question' 'answer'; formats are preference, kto");
    put(ctx, "a.parquet", "PAR1");
    bool arrow = loongi_chat_arrow_loads();
    assert_fails(ctx, open_chat(ctx, "a.parquet", skip, &chat),
                 arrow ? LOONG_ERR_FORMAT : LOONG_ERR_UNSUPPORTED,
                 arrow ? "a.parquet: Invalid: Parquet"
                       : "(-DLOONG_ARROW=DIR, docs/install.md), which this "
                         "build has not; this converts it:\n  python3 -c "
                         "\"import pandas; pandas.read_parquet('");
    put(ctx, "a.docx", "");
    assert_fails(ctx, open_chat(ctx, "a.docx", skip, &chat),
                 LOONG_ERR_UNSUPPORTED, "conversations are .jsonl");
    assert_fails(ctx, open_chat(ctx, "none.jsonl", skip, &chat),
                 LOONG_ERR_NOT_FOUND, "there is no such file");
    test_context_end(&ctx);
}

/* Opens a conversation with a template and returns the digest of what is kept,
 * of which the first bytes are `begin`. */
static void open_on(loong_context_t *ctx, const char *form, const char *date,
                    const char *begin, char digest[256])
{
    char path[256];
    loong_chat_t *chat = NULL;
    loong_chat_info_t info;
    loong_items_t items = {.ctx = ctx, .vocab_size = VOCAB};
    snprintf(path, sizeof(path), "%s", in_dir(form));
    assert_ok(ctx, open_chat(ctx, "day.jsonl",
                             (loong_chat_options_t){.template_name = path,
                                                    .train_on = "all",
                                                    .date = date},
                             &chat));
    assert_ok(ctx, loong_chat_read(chat, 0, &items));
    for (size_t t = 0; t < strlen(begin); t++) {
        assert_int_equal(items.item[0].ids[t], begin[t]);
    }
    loong_chat_get_info(chat, &info);
    snprintf(digest, 256, "%s", info.cache);
    loong_items_free(&items);
    loong_chat_close(&chat);
}

/* The day is part of the digest where a template shows it. */
static void test_date(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_chat_t *chat = NULL;
    char digest[4][256];
    char today[16];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    (void)strftime(today, sizeof(today), "%Y-%m-%d", &local);
    put(ctx, "day.jsonl",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"}]}\n");
    put(ctx, "day.jinja", "{{ strftime_now('%d %b %Y %H:%M') }} q");
    put(ctx, "plain.jinja", "text");
    open_on(ctx, "day.jinja", "2024-02-29", "29 Feb 2024 00:00 q", digest[0]);
    open_on(ctx, "day.jinja", today, "", digest[1]);
    open_on(ctx, "day.jinja", NULL, "", digest[2]);
    assert_string_not_equal(digest[0], digest[1]);
    assert_string_equal(digest[1], digest[2]);
    open_on(ctx, "plain.jinja", "2024-02-29", "text", digest[2]);
    open_on(ctx, "plain.jinja", NULL, "text", digest[3]);
    assert_string_equal(digest[2], digest[3]);
    static const char *const wrong[] = {"2023-02-29", "2024-2", "2024-02-290",
                                        "today"};
    for (int i = 0; i < 4; i++) {
        assert_fails(ctx,
                     open_chat(ctx, "day.jsonl",
                               (loong_chat_options_t){.date = wrong[i]}, &chat),
                     LOONG_ERR_CONFIG, "a day such as 2026-01-31 wanted");
    }
    test_context_end(&ctx);
}

static void test_options(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_chat_t *chat = NULL;
    static const char *const tags[] = {"usr=human"};
    put(ctx, "a.jsonl", lines);
    assert_fails(ctx,
                 open_chat(ctx, "a.jsonl",
                           (loong_chat_options_t){.tags = tags, .num_tags = 1},
                           &chat),
                 LOONG_ERR_CONFIG, "data.chat.tags: 'usr=human', must be as");
    assert_fails(ctx,
                 open_chat(ctx, "a.jsonl",
                           (loong_chat_options_t){.format = "chatml"}, &chat),
                 LOONG_ERR_CONFIG,
                 "data.chat.format: 'chatml', allowed are auto, preference");
    assert_fails(ctx,
                 open_chat(ctx, "a.jsonl",
                           (loong_chat_options_t){.train_on = "user"}, &chat),
                 LOONG_ERR_CONFIG, "data.chat.train_on: 'user'");
    assert_fails(ctx,
                 open_chat(ctx, "a.jsonl",
                           (loong_chat_options_t){.template_kwargs = "[1]"},
                           &chat),
                 LOONG_ERR_CONFIG, "template_kwargs is an array");
    /* A format that is said is not recognised. */
    assert_fails(ctx,
                 open_chat(ctx, "a.jsonl",
                           (loong_chat_options_t){.format = "text"}, &chat),
                 LOONG_ERR_FORMAT,
                 "refused records: 3 of 3; they are listed in ");
    assert_ok(ctx, open_chat(ctx, "a.jsonl",
                             (loong_chat_options_t){.train_on = "all"}, &chat));
    assert_sample(ctx, chat, 0, "", "ab c", "a.jsonl:1");
    loong_chat_close(&chat);
    test_context_end(&ctx);
}

/* A directory's files by name, sub-directories too; other files are no data.*/
static void test_directory(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_chat_t *chat = NULL;
    loong_chat_info_t info;
    loong_chat_file_t file;
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("all/b")));
    put(ctx, "all/c.txt", "last\n");
    put(ctx, "all/a.jsonl", "{\"prompt\": \"p\", \"completion\": \"q\"}\n");
    put(ctx, "all/README.md", "what it is\n");
    put(ctx, "all/b/x.csv", "text\nmiddle\n");
    assert_ok(ctx, open_chat(ctx, "all", (loong_chat_options_t){0}, &chat));
    loong_chat_get_info(chat, &info);
    assert_int_equal(info.files, 3);
    loong_chat_get_file(chat, 1, &file);
    assert_string_equal(file.format, "text");
    assert_sample(ctx, chat, 0, "p", "q", "all/a.jsonl:1");
    assert_sample(ctx, chat, 1, "", "middle", "all/b/x.csv:2");
    assert_sample(ctx, chat, 2, "", "last", "all/c.txt:1");
    loong_chat_close(&chat);
    bool arrow = loongi_chat_arrow_loads();
    put(ctx, "all/z.arrow", "ARROW1");
    assert_fails(ctx, open_chat(ctx, "all", (loong_chat_options_t){0}, &chat),
                 arrow ? LOONG_ERR_FORMAT : LOONG_ERR_UNSUPPORTED,
                 arrow ? "z.arrow: " : "z.arrow: arrow files are read with");
    test_context_end(&ctx);
}

static loong_source_info_t info_of(loong_context_t *ctx, const char *name,
                                   double begin, double end, char first[64])
{
    const loong_source_class_t *class_ = NULL;
    void *source = NULL;
    loong_source_info_t info;
    loong_items_t items = {.ctx = ctx, .vocab_size = VOCAB};
    const loong_chat_options_t options = {.cache = in_dir("cache")};
    const loong_source_params_t params = {.data = "train",
                                          .path = in_dir(name),
                                          .split_begin = begin,
                                          .split_end = end,
                                          .tokenizer = "bytes",
                                          .chat = &options};
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_find_source(ctx, "chat", &class_));
    assert_ok(ctx, class_->open(ctx, &params, &source));
    class_->get_info(source, &info);
    assert_ok(ctx, class_->peek(source, 0, &items));
    assert_true(items.item[0].size[0] > 0 && items.item[0].ids == NULL);
    snprintf(first, 64, "%s", strrchr(items.item[0].name, ':'));
    loong_items_free(&items);
    class_->close(source);
    return info;
}

static void test_shares(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char first[64];
    put(ctx, "s.jsonl", lines);
    loong_source_info_t all = info_of(ctx, "s.jsonl", 0, 0, first);
    assert_int_equal(all.samples, 3);
    assert_string_equal(first, ":1");
    loong_source_info_t rest = info_of(ctx, "s.jsonl", 0.5, 1, first);
    assert_int_equal(rest.samples, 2);
    assert_string_equal(first, ":3");
    /* The hash is of what is learned, wherever it stands. */
    put(ctx, "t.jsonl", lines);
    assert_true(all.hash == info_of(ctx, "t.jsonl", 0, 0, first).hash);
    put(ctx, "t.jsonl", "{\"prompt\": \"ab\", \"completion\": \" d\"}\n");
    assert_true(all.hash != info_of(ctx, "t.jsonl", 0, 0, first).hash);
    assert_int_equal(info_of(ctx, "t.jsonl", 0, 0, first).samples, 1);
    test_context_end(&ctx);
}

/* Several processes find nothing: one makes it, all have it. */
static void test_processes(void **state)
{
    (void)state;
    enum { PROCESSES = 4 };
    loong_context_t *ctx = test_context();
    put(ctx, "p.jsonl", lines);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            loong_context_t *own = NULL;
            loong_chat_t *chat = NULL;
            loong_chat_info_t info;
            bool fine =
                loong_context_create(NULL, &own) == LOONG_OK &&
                open_chat(own, "p.jsonl",
                          (loong_chat_options_t){.cache = in_dir("shared")},
                          &chat) == LOONG_OK;
            if (fine) {
                loong_chat_get_info(chat, &info);
                fine = info.samples == 3;
            }
            _exit(!fine ? 2 : info.found ? 1 : 0);
        }
    }
    int made = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_true(wait(&status) > 0 && WIFEXITED(status));
        assert_int_not_equal(WEXITSTATUS(status), 2);
        made += WEXITSTATUS(status) == 0;
    }
    assert_int_equal(made, 1);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),     cmocka_unit_test(test_text),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_files_refused),
        cmocka_unit_test(test_date),      cmocka_unit_test(test_options),
        cmocka_unit_test(test_directory), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_processes)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
