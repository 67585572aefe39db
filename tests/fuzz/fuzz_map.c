/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a map of names: refused, or every tensor has a place for its
 * rows. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "hf_map_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char *const keys[][2] = {
    {"num_layers", "2"},        {"hidden_size", "8"},
    {"ffn_hidden_size", "12"},  {"num_attention_heads", "2"},
    {"num_query_groups", "1"},  {"kv_channels", "4"},
    {"vocab_size", "9"},        {"max_position_embeddings", "16"},
    {"num_experts", "4"},       {"moe_ffn_hidden_size", "6"},
    {"qk_layernorm", "true"}};

static void load(loong_context_t *ctx, const char *family, const char *path)
{
    loong_pairs_t *model = NULL;
    loong_hf_map_t *map = NULL;
    if (loongi_pairs_create(ctx, &model) != LOONG_OK) {
        return;
    }
    loong_status_t status = loongi_pairs_set(model, "family", family);
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys) && status == LOONG_OK; i++) {
        if (strcmp(family, "llama") != 0 || strstr(keys[i][0], "exp") == NULL) {
            status = loongi_pairs_set(model, keys[i][0], keys[i][1]);
        }
    }
    if (status == LOONG_OK &&
        loongi_hf_map_load(ctx, model, path, &map) == LOONG_OK) {
        for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
            const loong_hf_param_t *p = loongi_hf_map_get(map, i);
            int64_t shape[LOONG_HF_DIMS];
            int ndim = loongi_hf_file_shape(p, shape);
            assert(ndim >= 1 && ndim <= 4 && p->run > 0);
            assert(p->stride >= p->run && p->offset >= 0);
            assert(loongi_hf_file_row(p, p->shape[0] / p->pieces - 1) <
                   loongi_hf_file_rows(p));
        }
        loongi_hf_map_destroy(&map);
    }
    loongi_pairs_destroy(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    loong_context_t *ctx = NULL;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/loong_fuzz_map_%d", (int)getpid());
    FILE *file = fopen(path, "wb");
    if (file == NULL || loong_context_create(NULL, &ctx) != LOONG_OK) {
        return 0;
    }
    fwrite(bytes, 1, size, file);
    fclose(file);
    load(ctx, "llama", path);
    load(ctx, "qwen3_moe", path);
    loong_context_destroy(&ctx);
    unlink(path);
    return 0;
}
