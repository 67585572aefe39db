/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizers that loong-data index and inspect can use. */
#include <stdlib.h>
#include <string.h>

#include "loong_data.h"

enum { BYTE_EOD = 256 };

typedef struct byte_encoder {
    int32_t *ids;
    size_t capacity;
} byte_encoder_t;

static loong_status_t byte_create(void *user, loong_context_t *ctx,
                                  void **encoder_p)
{
    (void)user;
    (void)ctx;
    *encoder_p = calloc(1, sizeof(byte_encoder_t));
    return *encoder_p != NULL ? LOONG_OK : LOONG_ERR_MEMORY;
}

static loong_status_t byte_encode(void *encoder, const char *text,
                                  size_t length, const int32_t **ids_p,
                                  int64_t *count_p)
{
    byte_encoder_t *e = encoder;
    if (length > e->capacity) {
        free(e->ids);
        e->capacity = 0;
        e->ids = malloc(2 * length * sizeof(*e->ids));
        if (e->ids == NULL) {
            return LOONG_ERR_MEMORY;
        }
        e->capacity = 2 * length;
    }
    for (size_t i = 0; i < length; i++) {
        e->ids[i] = (uint8_t)text[i];
    }
    *ids_p = e->ids;
    *count_p = (int64_t)length;
    return LOONG_OK;
}

static void byte_destroy(void *encoder)
{
    byte_encoder_t *e = encoder;
    free(e->ids);
    free(e);
}

static const loong_encoder_ops_t byte_ops = {byte_create, byte_encode,
                                             byte_destroy};

loong_status_t data_tokenizer_open(loong_context_t *ctx, const char *name,
                                   data_tokenizer_t *tokenizer)
{
    (void)ctx;
    (void)name;
    tokenizer->vocab_size = BYTE_EOD + 1;
    tokenizer->eod_id = BYTE_EOD;
    tokenizer->encoder = &byte_ops;
    tokenizer->encoder_user = NULL;
    return LOONG_OK;
}

void data_tokenizer_close(loong_context_t *ctx, data_tokenizer_t *tokenizer)
{
    (void)ctx;
    (void)tokenizer;
}

loong_status_t data_tokenizer_decode(loong_context_t *ctx,
                                     const data_tokenizer_t *tokenizer,
                                     const int32_t *ids, int64_t count,
                                     char **text_p, size_t *length_p)
{
    (void)ctx;
    (void)tokenizer;
    char *text = malloc((size_t)count + 1);
    size_t length = 0;
    if (text == NULL) {
        return LOONG_ERR_MEMORY;
    }
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && ids[i] < BYTE_EOD) {
            text[length++] = (char)ids[i];
        }
    }
    text[length] = '\0';
    *text_p = text;
    *length_p = length;
    return LOONG_OK;
}
