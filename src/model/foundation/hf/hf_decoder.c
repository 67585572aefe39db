/* SPDX-License-Identifier: Apache-2.0
 *
 * What decoders give to readers and writers of Hugging Face files. Listed in
 * src/registry/hf_kinds.c. Read hf_kind.h and decoder_config.h before. */
#include "hf_decoder.h"

#include "decoder_config.h"

static loong_status_t check(loong_context_t *ctx, const loong_pairs_t *keys)
{
    loong_decoder_config_t config;
    return loongi_decoder_configure(ctx, keys, &config);
}

static loong_status_t add_unstated(void *user, const char *key,
                                   const char *value)
{
    return loongi_pairs_get(user, key) != NULL
               ? LOONG_OK
               : loongi_pairs_set(user, key, value);
}

static loong_status_t state(loong_context_t *ctx, loong_pairs_t *keys)
{
    loong_decoder_config_t config;
    LOONG_TRY(loongi_decoder_configure(ctx, keys, &config));
    return loongi_decoder_state(&config, add_unstated, keys);
}

static const loong_hf_fixed_t like[] = {{"qwen", "qwen2"},
                                        {"internlm2", "llama"},
                                        {"mimo", "qwen2"},
                                        {"kimi_k2", "deepseek_v3"},
                                        {NULL, NULL}};

const loong_hf_kind_t loongi_hf_decoder = {.role = "foundation",
                                           .types = loongi_hf_decoder_types,
                                           .names = loongi_hf_decoder_names,
                                           .generates = true,
                                           .check = check,
                                           .fill = loongi_decoder_fill,
                                           .state = state,
                                           .size = loongi_hf_decoder_size,
                                           .read = loongi_hf_decoder_read,
                                           .write = loongi_hf_decoder_write,
                                           .choose = loongi_hf_decoder_choose,
                                           .tell = loongi_hf_decoder_tell,
                                           .unread = loongi_hf_decoder_unread,
                                           .guess = loongi_hf_decoder_guess,
                                           .like = like};
