/* SPDX-License-Identifier: Apache-2.0
 *
 * From ids to text, at once or token by token. Called by src/features/sample.c
 * and tools of data. Read loong/tokenizer.h before. */
#include <string.h>

#include "tokenizer_impl.h"

static const token_t *get(const loong_tokenizer_t *t, int32_t id)
{
    return id >= 0 && id < t->vocab.size && t->vocab.tokens[id].text != NULL
               ? &t->vocab.tokens[id]
               : NULL;
}

/* Blanks that the decoder takes from the first token. */
static size_t stripped(const loong_tokenizer_t *t, const char *text,
                       size_t length)
{
    size_t n = 0;
    while (n < (size_t)t->strip_left && n < length && text[n] == ' ') {
        n++;
    }
    return n;
}

loong_status_t loong_tokenizer_decode(loong_context_t *ctx,
                                      const loong_tokenizer_t *t,
                                      const int32_t *ids, int64_t count,
                                      bool skip_special, char **text_p,
                                      size_t *length_p)
{
    loong_buffer_t out = {0};
    bool first = true;
    loong_status_t status = loongi_buffer_room(ctx, &out, 1);
    for (int64_t i = 0; i < count && status == LOONG_OK; i++) {
        const token_t *token = get(t, ids[i]);
        if (token == NULL) {
            status =
                LOONG_FAIL(ctx, LOONG_ERR_ARG,
                           "id %d at place %lld is no token, the "
                           "vocabulary has 0 to %lld",
                           ids[i], (long long)i, (long long)t->vocab.size - 1);
        } else if (!(skip_special && token->special)) {
            size_t skip =
                first ? stripped(t, token->bytes, token->num_bytes) : 0;
            first = false;
            status = loongi_buffer_add(ctx, &out, token->bytes + skip,
                                       token->num_bytes - skip);
        }
    }
    if (status == LOONG_OK) {
        status = loongi_buffer_add(ctx, &out, "", 1);
    }
    if (status != LOONG_OK) {
        loongi_free(ctx, out.data);
        return status;
    }
    *text_p = out.data;
    *length_p = out.length - 1;
    return LOONG_OK;
}

void loong_tokenizer_free_text(loong_context_t *ctx, char **text)
{
    loongi_free(ctx, *text);
    *text = NULL;
}

/* Every byte, and every one held back, may come out as U+FFFD. */
size_t loong_text_stream_size(const loong_tokenizer_t *t)
{
    return 3 * (t->longest + 4) + 1;
}

/* Whole characters of `in` to out; what may still become one stays. */
static size_t take_whole(loong_text_stream_t *stream, const char *in,
                         size_t length, char *out)
{
    size_t n = 0;
    size_t at = 0;
    stream->num_held = 0;
    while (at < length) {
        int bad = 0;
        int size = loongi_utf8_check(in + at, length - at, &bad);
        if (size > 0) {
            memcpy(out + n, in + at, (size_t)size);
            n += (size_t)size;
            at += (size_t)size;
        } else if ((size_t)bad == length - at && loongi_utf8_begins(in[at])) {
            memcpy(stream->held, in + at, length - at);
            stream->num_held = (int)(length - at);
            break;
        } else {
            memcpy(out + n, "\xEF\xBF\xBD", 3);
            n += 3;
            at += (size_t)bad;
        }
    }
    return n;
}

size_t loong_text_stream_put(loong_text_stream_t *stream,
                             const loong_tokenizer_t *t, int32_t id, char *text)
{
    const token_t *token = get(t, id);
    text[0] = '\0';
    if (token == NULL || token->num_bytes == 0) {
        return 0;
    }
    const char *bytes = token->bytes;
    size_t length = token->num_bytes;
    if (!stream->started) {
        size_t skip = stripped(t, bytes, length);
        bytes += skip;
        length -= skip;
        stream->started = true;
    }
    /* The input stands behind the room that the output can overtake. */
    char *in = text + 2 * (t->longest + 4);
    size_t held = (size_t)stream->num_held;
    memcpy(in, stream->held, held);
    memcpy(in + held, bytes, length);
    size_t n = take_whole(stream, in, held + length, text);
    text[n] = '\0';
    return n;
}
