/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers of tiktoken's files: a line a token, its bytes in base64 and its
 * rank, which is its id. Two tokens merge where their bytes together are one,
 * the lowest rank first. By which pattern texts are cut stands in Python beside
 * it; the class that tokenizer_config.json names tells it, and names special
 * tokens, which come behind the ranks. Called by tokenizer.c. Read
 * tokenizer_impl.h before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

enum { MOST_BYTES = 1024 }; /* of a token */

/* Of the script Han in Unicode 16, and characters of words but those. */
#define HAN                                                                  \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}"     \
    "\\x{3007}\\x{3021}-\\x{3029}\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}"     \
    "\\x{4e00}-\\x{9fff}\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}\\x{16fe2}"    \
    "\\x{16fe3}\\x{16ff0}-\\x{16ff1}\\x{20000}-\\x{2a6df}\\x{2a700}-"        \
    "\\x{2b739}\\x{2b740}-\\x{2b81d}\\x{2b820}-\\x{2cea1}\\x{2ceb0}-"        \
    "\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-"        \
    "\\x{3134a}\\x{31350}-\\x{323af}"
#define OTHERS(kinds_) "(?:(?![" HAN "])[" kinds_ "\\p{Lm}\\p{Lo}\\p{M}])"
#define UPPER OTHERS("\\p{Lu}\\p{Lt}")
#define LOWER OTHERS("\\p{Ll}")
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define BEHIND "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const struct {
    const char *class_name, *pattern;
    int64_t special; /* ids behind the ranks */
} kinds[] = {
    /* Kimi's (Moonshot AI), tokenization_kimi.py */
    {"TikTokenTokenizer",
     "[" HAN "]+|" BEFORE UPPER "*" LOWER "+" BEHIND "|" BEFORE UPPER
     "+" LOWER "*" BEHIND "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     256},
};

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* The bytes of base64 up to a blank, as characters of the byte-level alphabet;
 * 0: it is none, or too long. */
static size_t decode(const char *from, const char *end, char *to)
{
    unsigned bits = 0;
    int count = 0;
    size_t length = 0, bytes = 0;
    for (; from < end && *from != ' ' && *from != '='; from++) {
        int digit = digit_of(*from);
        if (digit < 0 || bytes == MOST_BYTES) {
            return 0;
        }
        bits = bits << 6 | (unsigned)digit;
        count += 6;
        if (count >= 8) {
            count -= 8;
            length += (size_t)loongi_utf8_put(
                loongi_byte_to_point((unsigned char)(bits >> count)),
                to + length);
            bytes++;
        }
    }
    return length;
}

static loong_status_t load_vocab(loong_tokenizer_t *t, const char *text,
                                 size_t size)
{
    char token[4 * MOST_BYTES];
    int64_t lines = 0;
    for (const char *at = text; at < text + size; at++) {
        lines += *at == '\n';
    }
    LOONG_TRY(loongi_vocab_reserve(t->ctx, &t->vocab, lines + 1024));
    lines = 0;
    for (const char *at = text, *end; at < text + size; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + size - at));
        end = end != NULL ? end : text + size;
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        char *behind = NULL;
        size_t length = blank != NULL ? decode(at, blank, token) : 0;
        long long rank = blank != NULL ? strtoll(blank + 1, &behind, 10) : -1;
        bool ends = behind == end || (behind == end - 1 && *behind == '\r');
        lines++;
        if (end == at) {
            continue;
        }
        token[length] = '\0';
        LOONG_CHECK(t->ctx, length > 0 && rank >= 0 && ends,
                    LOONG_ERR_FORMAT,
                    "line %lld is no token in base64 and its rank",
                    (long long)lines);
        LOONG_TRY(loongi_vocab_add(t, rank, token, length));
        t->vocab.tokens[rank].in_model = true;
    }
    LOONG_CHECK(t->ctx, t->vocab.count > 0, LOONG_ERR_FORMAT, "is empty");
    for (unsigned b = 0; b < 256; b++) { /* whatever a text has is tokens */
        int length =
            loongi_utf8_put(loongi_byte_to_point((unsigned char)b), token);
        LOONG_CHECK(t->ctx,
                    loongi_vocab_find(&t->vocab, token, (size_t)length) >= 0,
                    LOONG_ERR_FORMAT, "the byte 0x%02x is no token", b);
    }
    return LOONG_OK;
}

/* Counts merges, or adds them where there is room. */
static int64_t find_merges(loong_tokenizer_t *t, bool adds)
{
    int64_t count = 0;
    for (int64_t id = 0; id < t->vocab.size; id++) {
        const token_t *token = &t->vocab.tokens[id];
        size_t at = 0;
        while (token->text != NULL && at < token->length) {
            (void)loongi_utf8_get(token->text + at, &at);
            size_t rest = token->length - at;
            int32_t left = loongi_vocab_find(&t->vocab, token->text, at);
            int32_t right = left >= 0 && rest > 0
                                ? loongi_vocab_find(&t->vocab,
                                                    token->text + at, rest)
                                : -1;
            if (right >= 0 && adds) {
                const merge_t merge = {
                    (uint64_t)(uint32_t)left << 32 | (uint32_t)right,
                    (uint32_t)id, (int32_t)id};
                loongi_merges_put(&t->merges, merge);
            }
            count += right >= 0;
        }
    }
    return count;
}

/* The name of a special token; reserved ones have one by their number. */
static const char *name_of(const loong_json_t *decoder, int64_t id,
                           char reserved[64])
{
    char key[24];
    snprintf(key, sizeof(key), "%lld", (long long)id);
    snprintf(reserved, 64, "<|reserved_token_%lld|>", (long long)id);
    const loong_json_t *own = loongi_json_get(decoder, key);
    const loong_json_t *content = loongi_json_get(own, "content");
    return content != NULL ? loongi_json_string(content) : reserved;
}

/* All that a tokenizer.json says beside the model. */
static void describe(const loong_tokenizer_t *t, const loong_json_t *config,
                     int64_t kind, loong_text_t *text)
{
    const loong_json_t *decoder =
        loongi_json_get(config, "added_tokens_decoder");
    char reserved[64];
    loongi_text_printf(text,
                       "{\"pre_tokenizer\":{\"type\":\"Sequence\","
                       "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                       "{\"Regex\":");
    loongi_text_json_string(text, kinds[kind].pattern);
    loongi_text_printf(text,
                       "},\"behavior\":\"Isolated\",\"invert\":false},"
                       "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                       "\"trim_offsets\":true,\"use_regex\":false}]},"
                       "\"decoder\":{\"type\":\"ByteLevel\"},"
                       "\"added_tokens\":[");
    for (int64_t i = 0; i < kinds[kind].special; i++) {
        int64_t id = t->vocab.count + i;
        loongi_text_printf(text, "%s{\"id\":%lld,\"special\":true,\"content\":",
                           i > 0 ? "," : "", (long long)id);
        loongi_text_json_string(text, name_of(decoder, id, reserved));
        loongi_text_printf(text, "}");
    }
    loongi_text_printf(text, "]}");
}

loong_status_t loongi_load_tiktoken(loong_tokenizer_t *t, const char *text,
                                    size_t size, const loong_json_t *config,
                                    loong_json_t **rest_p)
{
    const char *name =
        loongi_json_string(loongi_json_get(config, "tokenizer_class"));
    int64_t kind = 0;
    while (kind < LOONG_COUNT_OF(kinds) &&
           strcmp(kinds[kind].class_name, name) != 0) {
        kind++;
    }
    LOONG_CHECK(t->ctx, kind < LOONG_COUNT_OF(kinds), LOONG_ERR_UNSUPPORTED,
                "how it cuts texts is not known: tokenizer_config.json says "
                "tokenizer_class \"%s\", of which TikTokenTokenizer (Kimi's) "
                "is known",
                name);
    LOONG_TRY(load_vocab(t, text, size));
    LOONG_TRY(
        loongi_merges_create(t->ctx, find_merges(t, false), &t->merges));
    (void)find_merges(t, true);
    t->ignore_merges = true;
    loong_text_t rest = loongi_text_begin(t->ctx);
    describe(t, config, kind, &rest);
    loong_status_t status =
        rest.status == LOONG_OK
            ? loongi_json_parse(t->ctx, rest.data, rest.length, name, rest_p)
            : rest.status;
    loongi_text_free(&rest);
    return status;
}
