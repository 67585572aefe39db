/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer of --tokenizer, as loong-data index and inspect use it. Read
 * loong/tokenizer.h before. */
#include <stdlib.h>
#include <string.h>

#include "loong/tokenizer.h"
#include "loong_data.h"

static loong_status_t create(void *user, loong_context_t *ctx, void **encoder_p)
{
    loong_text_encoder_t *encoder = NULL;
    loong_status_t status = loong_text_encoder_create(ctx, user, &encoder);
    *encoder_p = encoder;
    return status;
}

static loong_status_t encode(void *encoder, const char *text, size_t length,
                             const int32_t **ids_p, int64_t *count_p)
{
    return loong_text_encode(encoder, text, length, false, ids_p, count_p);
}

static void destroy(void *encoder)
{
    loong_text_encoder_t *e = encoder;
    loong_text_encoder_destroy(&e);
}

static const loong_encoder_ops_t ops = {create, encode, destroy};

loong_status_t data_tokenizer_open(loong_context_t *ctx, const char *name,
                                   data_tokenizer_t *tokenizer)
{
    loong_tokenizer_t *t = NULL;
    loong_status_t status = strcmp(name, "bytes") == 0
                                ? loong_tokenizer_bytes(ctx, &t)
                                : loong_tokenizer_load(ctx, name, &t);
    if (status != LOONG_OK) {
        return status;
    }
    tokenizer->vocab_size = loong_tokenizer_get_vocab_size(t);
    tokenizer->eod_id = loong_tokenizer_get_role(t, LOONG_TOKEN_EOD);
    tokenizer->encoder = &ops;
    tokenizer->encoder_user = t;
    return LOONG_OK;
}

int64_t data_tokenizer_id(const data_tokenizer_t *tokenizer, const char *text)
{
    return loong_tokenizer_token_to_id(tokenizer->encoder_user, text);
}

void data_tokenizer_close(loong_context_t *ctx, data_tokenizer_t *tokenizer)
{
    loong_tokenizer_t *t = tokenizer->encoder_user;
    (void)ctx;
    loong_tokenizer_destroy(&t);
    tokenizer->encoder_user = NULL;
}

loong_status_t data_tokenizer_decode(loong_context_t *ctx,
                                     const data_tokenizer_t *tokenizer,
                                     const int32_t *ids, int64_t count,
                                     char **text_p, size_t *length_p)
{
    char *text = NULL;
    size_t length = 0;
    loong_status_t status = loong_tokenizer_decode(
        ctx, tokenizer->encoder_user, ids, count, true, &text, &length);
    if (status != LOONG_OK) {
        return status;
    }
    *text_p = malloc(length + 1);
    if (*text_p == NULL) {
        status = LOONG_ERR_MEMORY;
    } else {
        memcpy(*text_p, text, length + 1);
        *length_p = length;
    }
    loong_tokenizer_free_text(ctx, &text);
    return status;
}
