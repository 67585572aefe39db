/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading an arbitrary tokenizer.json; with what is accepted, a text is
 * encoded and its ids decoded. */
#include <stdlib.h>

#include "fuzz.h"
#include "loong/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(loong_context_t *ctx, const loong_tokenizer_t *t)
{
    static const char text[] = "ab  ab\xC3\xA9 \xE4\xBD\xA0\xF0\x9F\x98\x80 "
                               "<s>a'll 1234\r\n\xFF\xE1\x80 x";
    loong_text_encoder_t *encoder = NULL;
    const int32_t *ids = NULL;
    int64_t count = 0;
    char *back = NULL;
    size_t length = 0;
    require(loong_text_encoder_create(ctx, t, &encoder) == LOONG_OK);
    if (loong_text_encode(encoder, text, sizeof(text) - 1, true, &ids,
                          &count) == LOONG_OK) {
        for (int64_t i = 0; i < count; i++) {
            require(loong_tokenizer_id_to_token(t, ids[i]) != NULL);
        }
        require(loong_tokenizer_decode(ctx, t, ids, count, false, &back,
                                       &length) == LOONG_OK);
        loong_tokenizer_free_text(ctx, &back);
    }
    loong_text_encoder_destroy(&encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    loong_context_t *ctx = NULL;
    loong_tokenizer_t *t = NULL;
    require(loong_context_create(NULL, &ctx) == LOONG_OK);
    if (loong_tokenizer_parse(ctx, (const char *)data, size, "fuzz", &t) ==
        LOONG_OK) {
        use(ctx, t);
    } else {
        require(t == NULL && loong_context_error(ctx)[0] != '\0');
    }
    loong_tokenizer_destroy(&t);
    require(loong_context_alloc_bytes(ctx) == 0);
    loong_context_destroy(&ctx);
    return 0;
}
