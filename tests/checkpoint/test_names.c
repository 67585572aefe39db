/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps of names from files, and e4m3 weights: directories are written here
 * element by element, and read through the library. */
#include <unistd.h>

#include "convert.h"
#include "file.h"
#include "hf_map_file.h"
#include "unit/memory_source.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

static void write_text(loong_context_t *ctx, const char *name,
                       const char *text)
{
    assert_ok(ctx, loongi_file_write(ctx, in_dir(name), text, strlen(text)));
}

/* Tensors that a test puts together. */
typedef struct bag {
    loong_context_t *ctx;
    loong_safetensors_set_writer_t *out;
    memory_t memory;
    void *owned[MEMORY_TENSORS];
    int64_t count;
} bag_t;

static void bag_open(bag_t *bag, loong_context_t *ctx, const char *path)
{
    loong_safetensors_set_params_t params = {path, 1 << 30, ""};
    memset(bag, 0, sizeof(*bag));
    bag->ctx = ctx;
    assert_ok(ctx, loongi_safetensors_set_create(ctx, &params, &bag->out));
}

/* Zeroed elements, to be filled before the bag is closed. */
static void *bag_add(bag_t *bag, const char *name, loong_dtype_t dtype,
                     int ndim, const int64_t *shape)
{
    int64_t handle = 0;
    size_t size = loong_dtype_size(dtype);
    assert_ok(bag->ctx, loongi_safetensors_set_declare(
                            bag->out, name, dtype, ndim, shape, &handle));
    void *data = calloc((size_t)loongi_shape_count(ndim, shape), size);
    assert_non_null(data);
    bag->memory.data[handle] = bag->owned[handle] = data;
    bag->memory.row_bytes[handle] =
        (size_t)(ndim > 1 ? shape[ndim - 1] : 1) * size;
    bag->count = handle + 1;
    return data;
}

static void bag_close(bag_t *bag)
{
    loong_meter_t meter = {NULL, NULL, 0, 0};
    loong_safetensors_source_t source = {from_memory, &bag->memory, &meter};
    assert_ok(bag->ctx, loongi_safetensors_set_fill(bag->out, &source));
    assert_ok(bag->ctx, loongi_safetensors_set_commit(bag->out));
    loongi_safetensors_set_destroy(&bag->out);
    for (int64_t i = 0; i < bag->count; i++) {
        free(bag->owned[i]);
    }
}

/* ---- other layouts of qwen3_moe ---- */

static const char moe_map[] =
    "tensors:\n"
    "  emb: embed_tokens.weight\n"
    "  b.#.n1: layers.#.input_layernorm.weight\n"
    "  b.#.n2: layers.#.post_attention_layernorm.weight\n"
    "  b.#.vqk:\n"
    "    holds: [layers.#.self_attn.v_proj.weight,\n"
    "            layers.#.self_attn.q_proj.weight,\n"
    "            layers.#.self_attn.k_proj.weight]\n"
    "    by_key_head: true\n"
    "  b.#.out: {holds: layers.#.self_attn.o_proj.weight, transposed: true}\n"
    "  b.#.qn: layers.#.self_attn.q_norm.weight\n"
    "  b.#.kn: layers.#.self_attn.k_norm.weight\n"
    "  b.#.route: layers.#.mlp.gate.weight\n"
    "  b.#.moe.up_gate:\n"
    "    holds: [layers.#.mlp.experts.@.up_proj.weight,\n"
    "            layers.#.mlp.experts.@.gate_proj.weight]\n"
    "    transposed: true\n"
    "  b.#.moe.down: layers.#.mlp.experts.@.down_proj.weight\n"
    "  end: {holds: norm.weight, as_row: true}\n"
    "ignore: [b.#.mask]\n";

typedef struct moe {
    const loong_hf_t *hf;
    bag_t *bag;
    int64_t heads, groups, channels, hidden, experts, ffn, vocab;
} moe_t;

static int64_t key(const loong_pairs_t *model, const char *name)
{
    int64_t value = 0;
    assert_true(loongi_pairs_int(model, name, &value));
    return value;
}

static float *read_whole(const moe_t *m, int layer, const char *part)
{
    char name[128];
    if (layer < 0) {
        snprintf(name, sizeof(name), "%s", part);
    } else {
        snprintf(name, sizeof(name), "layers.%d.%s", layer, part);
    }
    const loong_hf_param_t *p =
        loongi_hf_map_find(loongi_hf_get_map(m->hf), name);
    assert_non_null(p);
    float *values = malloc((size_t)(p->shape[0] * p->shape[1]) * 4);
    assert_non_null(values);
    assert_ok(m->bag->ctx,
              loongi_hf_read(m->hf, name, 0, p->shape[0], LOONG_F32, values));
    return values;
}

static void copy(const moe_t *m, int layer, const char *part, const char *to,
                 int64_t rows, int64_t columns)
{
    char name[64];
    int64_t shape[2] = {rows, columns};
    if (layer < 0) {
        snprintf(name, sizeof(name), "%s", to);
    } else {
        snprintf(name, sizeof(name), "b.%d.%s", layer, to);
    }
    float *from = read_whole(m, layer, part);
    float *values =
        bag_add(m->bag, name, LOONG_F32, columns > 0 ? 2 : 1, shape);
    memcpy(values, from, (size_t)(rows * (columns > 0 ? columns : 1)) * 4);
    free(from);
}

/* For each key head: its value head, its query heads, itself. */
static void fuse_heads(const moe_t *m, int layer)
{
    char name[64];
    int64_t each = m->heads / m->groups;
    int64_t width = m->channels * m->hidden;
    int64_t shape[2] = {(each + 2) * m->groups * m->channels, m->hidden};
    float *q = read_whole(m, layer, "self_attn.q_proj.weight");
    float *k = read_whole(m, layer, "self_attn.k_proj.weight");
    float *v = read_whole(m, layer, "self_attn.v_proj.weight");
    snprintf(name, sizeof(name), "b.%d.vqk", layer);
    float *to = bag_add(m->bag, name, LOONG_F32, 2, shape);
    for (int64_t g = 0; g < m->groups; g++) {
        memcpy(to, v + g * width, (size_t)width * 4);
        memcpy(to + width, q + g * each * width, (size_t)(each * width) * 4);
        memcpy(to + (each + 1) * width, k + g * width, (size_t)width * 4);
        to += (each + 2) * width;
    }
    free(q);
    free(k);
    free(v);
}

static void turn_output(const moe_t *m, int layer)
{
    char name[64];
    int64_t width = m->heads * m->channels;
    int64_t shape[2] = {width, m->hidden};
    float *o = read_whole(m, layer, "self_attn.o_proj.weight");
    snprintf(name, sizeof(name), "b.%d.out", layer);
    float *to = bag_add(m->bag, name, LOONG_F32, 2, shape);
    for (int64_t r = 0; r < m->hidden; r++) {
        for (int64_t c = 0; c < width; c++) {
            to[c * m->hidden + r] = o[r * width + c];
        }
    }
    free(o);
}

/* [experts, hidden, up | gate] and [experts, hidden, ffn]. */
static void stack_experts(const moe_t *m, int layer)
{
    char name[64];
    int64_t both[3] = {m->experts, m->hidden, 2 * m->ffn};
    int64_t one[3] = {m->experts, m->hidden, m->ffn};
    float *from = read_whole(m, layer, "mlp.experts.gate_up_proj");
    snprintf(name, sizeof(name), "b.%d.moe.up_gate", layer);
    float *to = bag_add(m->bag, name, LOONG_F32, 3, both);
    for (int64_t e = 0; e < m->experts; e++) {
        for (int64_t r = 0; r < 2 * m->ffn; r++) {
            int64_t column = r < m->ffn ? m->ffn + r : r - m->ffn;
            for (int64_t h = 0; h < m->hidden; h++) {
                to[(e * m->hidden + h) * 2 * m->ffn + column] =
                    from[(e * 2 * m->ffn + r) * m->hidden + h];
            }
        }
    }
    free(from);
    from = read_whole(m, layer, "mlp.experts.down_proj");
    snprintf(name, sizeof(name), "b.%d.moe.down", layer);
    to = bag_add(m->bag, name, LOONG_F32, 3, one);
    memcpy(to, from, (size_t)(m->experts * m->hidden * m->ffn) * 4);
    free(from);
}

static void write_moe(loong_context_t *ctx, const loong_hf_t *hf)
{
    bag_t bag;
    const loong_pairs_t *model = loongi_hf_model(hf);
    moe_t m = {hf, &bag, key(model, "num_attention_heads"),
               key(model, "num_query_groups"), key(model, "kv_channels"),
               key(model, "hidden_size"), key(model, "num_experts"),
               key(model, "moe_ffn_hidden_size"), key(model, "vocab_size")};
    int64_t one[] = {1};
    bag_open(&bag, ctx, in_dir("moe"));
    copy(&m, -1, "embed_tokens.weight", "emb", m.vocab, m.hidden);
    copy(&m, -1, "norm.weight", "end", 1, m.hidden);
    copy(&m, -1, "lm_head.weight", "lm_head.weight", m.vocab, m.hidden);
    for (int layer = 0; layer < (int)key(model, "num_layers"); layer++) {
        copy(&m, layer, "input_layernorm.weight", "n1", m.hidden, 0);
        copy(&m, layer, "post_attention_layernorm.weight", "n2", m.hidden, 0);
        copy(&m, layer, "self_attn.q_norm.weight", "qn", m.channels, 0);
        copy(&m, layer, "self_attn.k_norm.weight", "kn", m.channels, 0);
        copy(&m, layer, "mlp.gate.weight", "route", m.experts, m.hidden);
        fuse_heads(&m, layer);
        turn_output(&m, layer);
        stack_experts(&m, layer);
    }
    (void)bag_add(&bag, "b.0.mask", LOONG_I64, 1, one);
    bag_close(&bag);
}

static void same_params(loong_context_t *ctx, const loong_hf_t *a,
                        const loong_hf_t *b)
{
    const loong_hf_map_t *map = loongi_hf_get_map(a);
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        size_t bytes = (size_t)(p->shape[0] * p->shape[1]) * 4;
        char *x = malloc(bytes);
        char *y = malloc(bytes);
        assert_ok(ctx, loongi_hf_read(a, p->name, 0, p->shape[0], LOONG_F32,
                                      x));
        /* in two calls, cut at an odd row */
        int64_t cut = p->shape[0] / 3;
        assert_ok(ctx, loongi_hf_read(b, p->name, 0, cut, LOONG_F32, y));
        assert_ok(ctx,
                  loongi_hf_read(b, p->name, cut, p->shape[0] - cut, LOONG_F32,
                                 y + (size_t)(cut * p->shape[1]) * 4));
        if (memcmp(x, y, bytes) != 0) {
            fail_msg("%s differs", p->name);
        }
        free(x);
        free(y);
    }
}

static void maps_place_every_element(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_hf_t *plain = NULL;
    loong_hf_t *other = NULL;
    loong_hf_open_params_t params = {.dir = in_dir("moe"),
                                     .map = in_dir("moe.yaml")};
    write_text(ctx, "moe.yaml", moe_map);
    assert_ok(ctx, loongi_hf_open(ctx, FIXTURES "/qwen3_moe", &plain));
    write_moe(ctx, plain);
    assert_ok(ctx, loongi_file_copy(ctx, FIXTURES "/qwen3_moe/config.json",
                                    in_dir("moe/config.json")));
    assert_ok(ctx, loongi_hf_open_as(ctx, &params, &other));
    same_params(ctx, plain, other);

    /* printed, the map is the same map */
    loong_text_t text = loongi_text_begin(ctx);
    loong_hf_t *again = NULL;
    loongi_hf_map_print(loongi_hf_get_map(other), &text);
    write_text(ctx, "again.yaml", loongi_text_get(&text));
    loongi_text_free(&text);
    params.map = in_dir("again.yaml");
    params.dir = in_dir("moe");
    assert_ok(ctx, loongi_hf_open_as(ctx, &params, &again));
    same_params(ctx, plain, again);
    loongi_hf_close(&again);
    loongi_hf_close(&other);
    loongi_hf_close(&plain);
    test_context_end(&ctx);
}

/* ---- wrong maps ---- */

static void wrong_maps_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *map, *text;
    } cases[] = {
        {"a: 1\n", "no map 'tensors'"},
        {"tensors: {x: embed_token.weight}\n",
         "line 1: 'embed_token.weight' is no parameter of the family llama; "
         "nearest: embed_tokens.weight"},
        {"tensors:\n  x: layers.#.mlp.up_proj.weight\n",
         "line 2: 'x' and 'layers.#.mlp.up_proj.weight' need a # for the "
         "layer"},
        {"tensors:\n  x: norm.weight\n  y: norm.weight\n",
         "line 3: 'norm.weight' is in 'x' (line 2) as well"},
        {"tensors:\n  x: {holds: norm.weight, transposed: true}\n",
         "the vector 'norm.weight', which cannot be transposed"},
        {"tensors:\n  x: {holds: norm.weight, turned: true}\n",
         "'turned' is not known beside holds"},
        {"tensors:\n  x: {holds: norm.weight, transposed: maybe}\n",
         "transposed must be true or false"},
        {"tensors:\n  x: {transposed: true}\n", "does not say what it holds"},
        {"tensors:\n  x: {}\n", "does not say what it holds"},
        {"tensors:\n  x: [[]]\n", "must hold names of parameters"},
        {"tensors: {}\nignored: []\n", "neither tensors nor ignore"},
        {"tensors: {}\nignore: x\n", "ignore must be a list"},
        {"tensors: [", "wrong.yaml"},
        {"tensors:\n  e.@: norm.weight\n", "an @ only for experts"},
    };
    loong_context_t *ctx = test_context();
    loong_hf_t *hf = NULL;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_hf_open_params_t params = {.dir = FIXTURES "/llama3_gqa_tied",
                                         .map = in_dir("wrong.yaml")};
        write_text(ctx, "wrong.yaml", cases[i].map);
        assert_fails(ctx, loongi_hf_open_as(ctx, &params, &hf),
                     LOONG_ERR_CONFIG, cases[i].text);
    }
    loong_hf_open_params_t gone = {.dir = FIXTURES "/llama3_gqa_tied",
                                   .map = in_dir("gone.yaml")};
    assert_fails(ctx, loongi_hf_open_as(ctx, &gone, &hf), LOONG_ERR_NOT_FOUND,
                 "gone.yaml");
    /* The map is right, the files have other names. */
    write_text(ctx, "other.yaml",
               "tensors: {model.embed_token.weight: embed_tokens.weight}\n");
    gone.map = in_dir("other.yaml");
    assert_fails(ctx, loongi_hf_open_as(ctx, &gone, &hf), LOONG_ERR_MISMATCH,
                 "missing: model.embed_token.weight");
    assert_fails(ctx, loongi_hf_open_as(ctx, &gone, &hf), LOONG_ERR_MISMATCH,
                 "; nearest: model.embed_tokens.weight");
    test_context_end(&ctx);
}

/* ---- e4m3 ---- */

/* By the definition: sign, 4 bits of exponent, 3 of fraction. */
static double by_hand(uint8_t bits)
{
    double sign = bits >= 128 ? -1.0 : 1.0;
    int exponent = bits / 8 % 16;
    int fraction = bits % 8;
    if (exponent == 15 && fraction == 7) {
        return NAN;
    }
    return sign * (exponent == 0
                       ? fraction / 8.0 * pow(2, -6)
                       : (1 + fraction / 8.0) * pow(2, exponent - 7));
}

static void e4m3_is_exact(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int i = 0; i < 256; i++) {
        uint8_t bits = (uint8_t)i;
        double wide = 0;
        assert_ok(ctx, loongi_convert(ctx, LOONG_F8_E4M3, &bits, LOONG_F64,
                                      &wide, 1));
        double value = by_hand(bits);
        assert_true(isnan(value) ? isnan(wide) : wide == value);
    }
    assert_true(by_hand(0x7e) == 448); /* the largest */
    uint8_t bits = 0;
    float one = 1;
    assert_fails(ctx,
                 loongi_convert(ctx, LOONG_F32, &one, LOONG_F8_E4M3, &bits, 1),
                 LOONG_ERR_UNSUPPORTED, "no conversion from fp32");
    test_context_end(&ctx);
}

enum { WIDE = 300, TALL = 150 }; /* no multiples of 128 */

static float scale_of(int kind, int64_t r, int64_t c)
{
    int64_t block = kind == 0   ? 0
                    : kind == 1 ? r
                                : r / 128 * 3 + c / 128;
    return 0.001f + 0.01f * (float)block;
}

static void add_scale(bag_t *bag, const char *name, int kind, int64_t rows,
                      int64_t columns)
{
    int64_t shape[2] = {kind == 0 ? 1 : kind == 1 ? rows : (rows + 127) / 128,
                        kind == 2 ? (columns + 127) / 128 : 1};
    float *values = bag_add(bag, name, LOONG_F32, 2, shape);
    for (int64_t r = 0; r < shape[0]; r++) {
        for (int64_t c = 0; c < shape[1]; c++) {
            values[r * shape[1] + c] =
                kind == 2 ? scale_of(kind, 128 * r, 128 * c)
                          : scale_of(kind, r, 0);
        }
    }
}

/* One layer; every matrix of it is e4m3 with one kind of scales. */
static void write_fp8(loong_context_t *ctx, int kind, const char *suffix)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } parts[] = {{"self_attn.q_proj", WIDE, WIDE},
                 {"self_attn.k_proj", WIDE, WIDE},
                 {"self_attn.v_proj", WIDE, WIDE},
                 {"self_attn.o_proj", WIDE, WIDE},
                 {"mlp.gate_proj", TALL, WIDE},
                 {"mlp.up_proj", TALL, WIDE},
                 {"mlp.down_proj", WIDE, TALL}};
    bag_t bag;
    char name[128];
    int64_t table[2] = {5, WIDE}, vector[1] = {WIDE};
    bag_open(&bag, ctx, in_dir("fp8"));
    (void)bag_add(&bag, "model.embed_tokens.weight", LOONG_BF16, 2, table);
    (void)bag_add(&bag, "model.norm.weight", LOONG_BF16, 1, vector);
    (void)bag_add(&bag, "model.layers.0.input_layernorm.weight", LOONG_BF16, 1,
                  vector);
    (void)bag_add(&bag, "model.layers.0.post_attention_layernorm.weight",
                  LOONG_BF16, 1, vector);
    for (int64_t i = 0; i < LOONG_COUNT_OF(parts); i++) {
        int64_t shape[2] = {parts[i].rows, parts[i].columns};
        snprintf(name, sizeof(name), "model.layers.0.%s.weight",
                 parts[i].name);
        uint8_t *bits = bag_add(&bag, name, LOONG_F8_E4M3, 2, shape);
        for (int64_t k = 0; k < shape[0] * shape[1]; k++) {
            bits[k] = (uint8_t)(k * 37 % 251) % 127;
        }
        snprintf(name, sizeof(name), "model.layers.0.%s.weight%s",
                 parts[i].name, suffix);
        if (suffix[0] != '\0') {
            add_scale(&bag, name, kind, shape[0], shape[1]);
        }
    }
    bag_close(&bag);
}

#define FP8_CONFIG                                                            \
    "{\"model_type\":\"llama\",\"hidden_size\":300,\"intermediate_size\":150," \
    "\"num_hidden_layers\":1,\"num_attention_heads\":3,\"vocab_size\":5,"     \
    "\"max_position_embeddings\":16,\"tie_word_embeddings\":true,"            \
    "\"torch_dtype\":\"bfloat16\",\"quantization_config\":{%s}}"

static void write_fp8_config(loong_context_t *ctx, const char *quantization)
{
    char text[1024];
    snprintf(text, sizeof(text), FP8_CONFIG, quantization);
    write_text(ctx, "fp8/config.json", text);
}

static void check_fp8(const loong_hf_t *hf, loong_context_t *ctx, int kind)
{
    static float single[TALL * WIDE];
    static uint16_t half[TALL * WIDE];
    const char *name = "layers.0.mlp.up_proj.weight";
    assert_int_equal(loongi_hf_dtype(hf, name), LOONG_BF16);
    assert_ok(ctx, loongi_hf_read(hf, name, 7, TALL - 7, LOONG_F32, single));
    assert_ok(ctx, loongi_hf_read(hf, name, 7, TALL - 7, LOONG_BF16, half));
    for (int64_t r = 7; r < TALL; r++) {
        for (int64_t c = 0; c < WIDE; c++) {
            int64_t k = r * WIDE + c;
            float value = (float)by_hand((uint8_t)(k * 37 % 251) % 127) *
                          scale_of(kind, r, c);
            int64_t at = (r - 7) * WIDE + c;
            assert_int_equal(half[at], loongi_f32_to_bf16(value));
            assert_true(single[at] == loongi_bf16_to_f32(half[at]));
        }
    }
}

static void fp8_is_multiplied_out(void **state)
{
    (void)state;
    static const struct {
        int kind;
        const char *suffix, *config;
    } cases[] = {
        {2, "_scale_inv", "\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
                          "\"weight_block_size\":[128,128]"},
        {0, "_scale", "\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\""},
        {1, "_scale", "\"quant_method\":\"compressed-tensors\","
                      "\"format\":\"float-quantized\""},
    };
    loong_context_t *ctx = test_context();
    loong_hf_t *hf = NULL;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        write_fp8(ctx, cases[i].kind, cases[i].suffix);
        write_fp8_config(ctx, cases[i].config);
        assert_ok(ctx, loongi_hf_open(ctx, in_dir("fp8"), &hf));
        check_fp8(hf, ctx, cases[i].kind);
        loongi_hf_close(&hf);
    }
    write_fp8_config(ctx, "\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"");
    assert_fails(ctx, loongi_hf_open(ctx, in_dir("fp8"), &hf),
                 LOONG_ERR_UNSUPPORTED, "e4m3 is read");
    write_fp8(ctx, 2, "_scale_inv");
    write_fp8_config(ctx, "\"quant_method\":\"fp8\","
                          "\"weight_block_size\":[64,64]");
    assert_fails(ctx, loongi_hf_open(ctx, in_dir("fp8"), &hf),
                 LOONG_ERR_MISMATCH, "of blocks of 64 x 64");
    write_fp8(ctx, 2, "");
    write_fp8_config(ctx, "\"quant_method\":\"fp8\"");
    assert_fails(ctx, loongi_hf_open(ctx, in_dir("fp8"), &hf),
                 LOONG_ERR_MISMATCH,
                 "missing: model.layers.0.self_attn.q_proj.weight_scale_inv");
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_place_every_element),
        cmocka_unit_test(wrong_maps_are_explained),
        cmocka_unit_test(e4m3_is_exact),
        cmocka_unit_test(fp8_is_multiplied_out),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
