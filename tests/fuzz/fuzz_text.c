/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding arbitrary bytes and decoding the ids gives the bytes back, with
 * U+FFFD for what is not UTF-8. Input: u8 tokenizer, then the text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "loong/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Spans of what is UTF-8 follow each other to the end of the text. */
static void require_spans(const loong_context_t *ctx,
                          loong_text_encoder_t *encoder, const char *text,
                          size_t size)
{
    loong_text_tokens_t tokens;
    int64_t end = 0;
    loong_status_t status =
        loong_text_encode_spans(encoder, text, size, false, &tokens);
    if (status == LOONG_ERR_ARG) {
        require(strstr(loong_context_error(ctx), "UTF-8") != NULL);
        return;
    }
    require(status == LOONG_OK);
    for (int64_t i = 0; i < tokens.count; i++) {
        require(tokens.spans[i].begin <= end && tokens.spans[i].end >= end);
        end = tokens.spans[i].end;
    }
    require(end == (int64_t)size);
}

/* Length of the character at the start, or of what one U+FFFD stands for:
 * the longest beginning of a character, or one byte. */
static size_t character(const uint8_t *s, size_t size, bool *valid_p)
{
    size_t want = s[0] < 0x80                   ? 1
                  : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                  : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                  : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                : 0;
    uint8_t low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    size_t n = 1;
    while (n < want && n < size && s[n] >= low && s[n] <= high) {
        low = 0x80;
        high = 0xBF;
        n++;
    }
    *valid_p = n == want;
    return n;
}

static void require_same(const char *found, size_t length, const uint8_t *text,
                         size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < size;) {
        bool valid = false;
        size_t n = character(text + i, size - i, &valid);
        const void *expected =
            valid ? (const void *)(text + i) : "\xEF\xBF\xBD";
        size_t bytes = valid ? n : 3;
        require(at + bytes <= length &&
                memcmp(found + at, expected, bytes) == 0);
        at += bytes;
        i += n;
    }
    require(at == length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const shapes[] = {"llama3", "deepseek", "o200k",
                                         "digits"};
    static loong_context_t *ctx = NULL;
    static loong_tokenizer_t *tokenizers[4];
    loong_text_encoder_t *encoder = NULL;
    const int32_t *ids = NULL;
    int64_t count = 0;
    char *back = NULL;
    size_t length = 0;
    if (size == 0) {
        return 0;
    }
    if (ctx == NULL) {
        require(loong_context_create(NULL, &ctx) == LOONG_OK);
    }
    int shape = data[0] % 4;
    if (tokenizers[shape] == NULL) {
        char path[512];
        snprintf(path, sizeof(path), "%s/tests/fixtures/tokenizer/%s.json",
                 LOONG_SOURCE_DIR, shapes[shape]);
        require(loong_tokenizer_load(ctx, path, &tokenizers[shape]) ==
                LOONG_OK);
    }
    size_t before = loong_context_alloc_bytes(ctx);
    require(loong_text_encoder_create(ctx, tokenizers[shape], &encoder) ==
            LOONG_OK);
    require(loong_text_encode(encoder, (const char *)data + 1, size - 1, false,
                              &ids, &count) == LOONG_OK);
    require(loong_tokenizer_decode(ctx, tokenizers[shape], ids, count, false,
                                   &back, &length) == LOONG_OK);
    require_same(back, length, data + 1, size - 1);
    loong_tokenizer_free_text(ctx, &back);
    require_spans(ctx, encoder, (const char *)data + 1, size - 1);
    loong_context_clear_error(ctx);
    loong_text_encoder_destroy(&encoder);
    require(loong_context_alloc_bytes(ctx) == before);
    return 0;
}
