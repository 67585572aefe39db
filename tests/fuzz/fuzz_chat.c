/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of conversations with arbitrary bytes: cut into records, each read as
 * what it looks like and as any other format. Input: u8 kind of file, u8
 * format, then the file. */
#include <stdio.h>
#include <string.h>

#include "chat.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const tags[CHAT_TAGS] = {
#define TEXT_OF(name_, text_) text_,
    CHAT_TAG_LIST(TEXT_OF)
#undef TEXT_OF
};

static void check_conversation(const chat_conversation_t *c)
{
    static volatile char last; /* all bytes can be read */
    for (int i = 0; c->messages == NULL && i < c->num_parts; i++) {
        last = c->part[i].length > 0 ? c->part[i].text[c->part[i].length - 1]
                                     : last;
    }
    require(c->messages != NULL || c->num_parts > 0);
    require(c->messages == NULL || loongi_json_count(c->messages) == c->count);
}

static void convert(chat_conversation_t *c, const chat_record_t *record,
                    const chat_format_t *format)
{
    if (loongi_chat_convert(c, format, record) == LOONG_OK) {
        check_conversation(c);
    }
    if (c->json != NULL) {
        const chat_format_t *looks = loongi_chat_format_of(c, c->json);
        if (looks != NULL && looks != format &&
            loongi_chat_convert(c, looks, record) == LOONG_OK) {
            check_conversation(c);
        }
    }
}

static void read_file(loong_context_t *ctx, const char *path,
                      const chat_format_t *format)
{
    chat_conversation_t c = {.ctx = ctx,
                             .tags = tags,
                             .use_chosen = true,
                             .text = loongi_text_begin(ctx)};
    chat_reader_t *reader = NULL;
    chat_record_t record = {0};
    int64_t line = 1;
    const chat_file_t file = {.path = (char *)path};
    loong_status_t status = loongi_chat_reader_create(ctx, &file, &reader);
    while (status == LOONG_OK) {
        status = loongi_chat_reader_next(reader, &record);
        if (status != LOONG_OK || record.bytes == NULL) {
            break;
        }
        require(record.line >= line);
        line = record.line;
        convert(&c, &record, format);
        loong_context_clear_error(ctx);
    }
    loongi_chat_reader_destroy(&reader);
    loongi_chat_conversation_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const kinds[] = {"jsonl", "json", "csv", "tsv", "txt"};
    char path[64];
    loong_context_t *ctx = NULL;
    if (size < 2) {
        return 0;
    }
    int formats = 0;
    while (loongi_chat_formats[formats].name != NULL) {
        formats++;
    }
    snprintf(path, sizeof(path), "fuzz_chat.%d.%s", (int)getpid(),
             kinds[data[0] % 5]);
    put_file(path, data + 2, size - 2);
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    size_t before = loong_context_alloc_bytes(ctx);
    read_file(ctx, path, &loongi_chat_formats[data[1] % formats]);
    require(loong_context_alloc_bytes(ctx) == before);
    loong_context_destroy(&ctx);
    unlink(path);
    return 0;
}
