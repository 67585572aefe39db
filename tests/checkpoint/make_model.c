/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a LLaMA model directory of any size, bf16.
 *
 *   make_model DIR LAYERS HIDDEN VOCABULARY sparse|dense SHARD_BYTES
 *
 * sparse: all tensors but the final norm are holes of the files, so that
 * hundreds of gigabytes take no disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "hf_weights.h"
#include "safetensors.h"

enum { MOST = 4096 };

typedef struct model {
    bool dense;
    int64_t norm; /* handle */
    int64_t count;
    int64_t row[MOST]; /* elements of a row */
} model_t;

/* Numbers between 2^-7 and 2^-6 with either sign. */
static loong_status_t fill(void *user, int64_t index, int64_t row,
                           int64_t rows, void *buffer, const void **data_p)
{
    const model_t *m = user;
    uint16_t *bits = buffer;
    uint64_t state =
        (uint64_t)(index * 1000003 + row + 1) * 0x9e3779b97f4a7c15u;
    if (!m->dense && index != m->norm) {
        *data_p = NULL;
        return LOONG_OK;
    }
    for (int64_t i = 0; i < rows * m->row[index]; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bits[i] = (uint16_t)((state & 0x807f) | 0x3c00);
    }
    return LOONG_OK;
}

static void declare(model_t *m, loong_safetensors_set_writer_t *out,
                    const char *name, int64_t rows, int64_t columns)
{
    int64_t shape[2] = {rows, columns};
    int ndim = columns > 0 ? 2 : 1;
    int64_t handle = 0;
    if (loongi_safetensors_set_declare(out, name, LOONG_BF16, ndim, shape,
                                       &handle) != LOONG_OK ||
        handle >= MOST) {
        exit(1);
    }
    m->row[handle] = columns > 0 ? columns : 1;
    m->norm = strcmp(name, "model.norm.weight") == 0 ? handle : m->norm;
}

static void declare_all(model_t *m, loong_safetensors_set_writer_t *out,
                        int64_t layers, int64_t hidden, int64_t vocabulary)
{
    static const struct {
        const char *name;
        int rows, columns; /* 1: hidden, 3: the feed-forward, 0: a vector */
    } parts[] = {{"input_layernorm", 1, 0},
                 {"self_attn.q_proj", 1, 1},
                 {"self_attn.k_proj", 1, 1},
                 {"self_attn.v_proj", 1, 1},
                 {"self_attn.o_proj", 1, 1},
                 {"post_attention_layernorm", 1, 0},
                 {"mlp.gate_proj", 3, 1},
                 {"mlp.up_proj", 3, 1},
                 {"mlp.down_proj", 1, 3}};
    const int64_t size[4] = {0, hidden, 0, hidden * 8 / 3 / 64 * 64};
    declare(m, out, "model.embed_tokens.weight", vocabulary, hidden);
    for (int64_t layer = 0; layer < layers; layer++) {
        for (int64_t i = 0; i < LOONG_COUNT_OF(parts); i++) {
            char name[128];
            snprintf(name, sizeof(name), "model.layers.%" PRId64 ".%s.weight",
                     layer, parts[i].name);
            declare(m, out, name, size[parts[i].rows], size[parts[i].columns]);
        }
    }
    declare(m, out, "model.norm.weight", hidden, 0);
    declare(m, out, "lm_head.weight", vocabulary, hidden);
}

static loong_status_t write_config(loong_context_t *ctx, const char *dir,
                                   int64_t layers, int64_t hidden,
                                   int64_t vocabulary)
{
    char path[4096], text[1024];
    snprintf(path, sizeof(path), "%s/config.json", dir);
    snprintf(text, sizeof(text),
             "{\"model_type\": \"llama\", \"num_hidden_layers\": %" PRId64
             ", \"hidden_size\": %" PRId64 ", \"intermediate_size\": %" PRId64
             ", \"num_attention_heads\": %" PRId64
             ", \"vocab_size\": %" PRId64
             ", \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, "
             "\"torch_dtype\": \"bfloat16\"}\n",
             layers, hidden, hidden * 8 / 3 / 64 * 64, hidden / 64, vocabulary);
    return loongi_file_write(ctx, path, text, strlen(text));
}

int main(int argc, char **argv)
{
    static model_t model;
    loong_context_t *ctx = NULL;
    loong_safetensors_set_writer_t *out = NULL;
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t source = {fill, &model, &meter};
    if (argc != 7 || loong_context_create(NULL, &ctx) != LOONG_OK) {
        fprintf(stderr, "usage: make_model DIR LAYERS HIDDEN VOCABULARY "
                        "sparse|dense SHARD_BYTES\n");
        return 2;
    }
    int64_t layers = atoll(argv[2]);
    int64_t hidden = atoll(argv[3]);
    int64_t vocabulary = atoll(argv[4]);
    loong_safetensors_set_params_t set = {argv[1], atoll(argv[6]), ""};
    model.dense = strcmp(argv[5], "dense") == 0;
    loong_status_t status = loongi_safetensors_set_create(ctx, &set, &out);
    if (status == LOONG_OK) {
        declare_all(&model, out, layers, hidden, vocabulary);
        status = loongi_safetensors_set_fill(out, &source);
    }
    if (status == LOONG_OK) {
        status = loongi_safetensors_set_commit(out);
    }
    if (status == LOONG_OK) {
        status = write_config(ctx, argv[1], layers, hidden, vocabulary);
    }
    loongi_safetensors_set_destroy(&out);
    if (status != LOONG_OK) {
        fprintf(stderr, "make_model: %s\n", loong_context_error(ctx));
    }
    loong_context_destroy(&ctx);
    return status == LOONG_OK ? 0 : 1;
}
