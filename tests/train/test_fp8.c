/* SPDX-License-Identifier: Apache-2.0
 *
 * Training that begins with e4m3 weights in blocks of 128 x 128, as
 * DeepSeek-V3 is published, is bit for bit the one that begins with the
 * products, which are made here by hand; on one rank and on several. */
#include <math.h>

#include "convert.h"
#include "file.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "safetensors.h"
#include "train_job.h"

enum { BLOCK = 128, STEPS = 2, MOST = 256 };

/* Sizes that blocks do not divide; the first layer has no experts. */
static const char config_text[] =
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"],\n"
    "\"model_type\": \"deepseek_v3\", \"hidden_size\": 144,\n"
    "\"intermediate_size\": 272, \"num_hidden_layers\": 2,\n"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4,\n"
    "\"q_lora_rank\": 136, \"kv_lora_rank\": 132, \"qk_nope_head_dim\": 32,\n"
    "\"qk_rope_head_dim\": 16, \"v_head_dim\": 32, \"vocab_size\": 61,\n"
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6,\n"
    "\"n_routed_experts\": 4, \"n_shared_experts\": 1, \"n_group\": 2,\n"
    "\"topk_group\": 1, \"num_experts_per_tok\": 2,\n"
    "\"moe_intermediate_size\": 136, \"first_k_dense_replace\": 1,\n"
    "\"routed_scaling_factor\": 2.5, \"tie_word_embeddings\": false,\n"
    "\"num_nextn_predict_layers\": 0, \"torch_dtype\": \"%s\"%s}\n";
static const char quantization[] =
    ",\n\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": "
    "\"e4m3\",\n\"activation_scheme\": \"dynamic\", \"weight_block_size\": "
    "[128, 128]}";

typedef enum kind { PLAIN, BITS, SCALES, PRODUCTS } kind_t;

/* A tensor of the files; the number tells what is in it. */
typedef struct entry {
    kind_t kind;
    int number;
    loong_dtype_t dtype;
    int64_t columns;
} entry_t;

typedef struct files {
    loong_context_t *ctx;
    loong_safetensors_set_writer_t *set;
    loong_dtype_t dtype; /* of config.json */
    bool fp8;
    entry_t entries[MOST]; /* by handle */
    int scaled; /* tensors that are e4m3 in one of the directories */
} files_t;

/* ---- the weights -------------------------------------------------------- */

static uint32_t draw(int number, int64_t row, int64_t column)
{
    uint64_t x = (uint64_t)number * 1000003u + (uint64_t)row * 4099u +
                 (uint64_t)column;
    x = (x + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32);
}

/* Either sign, from subnormal numbers on, up to 3.75. */
static uint8_t bits_at(int number, int64_t row, int64_t column)
{
    uint32_t r = draw(number, row, column);
    return (uint8_t)((r & 0x80u) | (r >> 8) % 0x47u);
}

static float value_of(uint8_t bits)
{
    int exponent = bits >> 3 & 15;
    double part = (bits & 7) / 8.0;
    double value = exponent == 0 ? ldexp(part, -6)
                                 : ldexp(1.0 + part, exponent - 7);
    return (float)(bits & 0x80 ? -value : value);
}

static float scale_at(int number, int64_t row, int64_t column)
{
    return 0.02f + 1e-6f * (float)(draw(number + 1000, row, column) % 30000u);
}

static float element(const entry_t *e, int64_t row, int64_t column)
{
    if (e->kind == SCALES) {
        return scale_at(e->number, row, column);
    }
    if (e->kind == PRODUCTS) {
        return value_of(bits_at(e->number, row, column)) *
               scale_at(e->number, row / BLOCK, column / BLOCK);
    }
    float noise = (float)(draw(e->number, row, column) % 2001u) - 1000.0f;
    return (e->columns == 1 ? 1.0f : 0.0f) + 5e-5f * noise;
}

static loong_status_t fill(void *user, int64_t index, int64_t row,
                           int64_t rows, void *buffer, const void **data_p)
{
    const files_t *f = user;
    const entry_t *e = &f->entries[index];
    size_t size = loong_dtype_size(e->dtype);
    (void)data_p;
    for (int64_t i = 0; i < rows * e->columns; i++) {
        int64_t r = row + i / e->columns;
        int64_t c = i % e->columns;
        char *to = (char *)buffer + (size_t)i * size;
        if (e->kind == BITS) {
            *to = (char)bits_at(e->number, r, c);
            continue;
        }
        float value = element(e, r, c);
        LOONG_TRY(loongi_convert(f->ctx, LOONG_F32, &value, e->dtype, to, 1));
    }
    return LOONG_OK;
}

/* ---- the files ---------------------------------------------------------- */

static void declare(files_t *f, const char *name, entry_t e, int ndim,
                    const int64_t *shape)
{
    int64_t handle = 0;
    e.columns = ndim > 1 ? shape[1] : 1;
    assert_ok(f->ctx, loongi_safetensors_set_declare(f->set, name, e.dtype,
                                                     ndim, shape, &handle));
    assert_true(handle < MOST);
    f->entries[handle] = e;
}

/* As published: matrices but the embedding, the head and the router. */
static bool is_scaled(const char *name, int ndim)
{
    return ndim == 2 && strstr(name, "embed_tokens") == NULL &&
           strstr(name, "lm_head") == NULL &&
           strstr(name, "mlp.gate.weight") == NULL;
}

static void declare_piece(files_t *f, const loong_hf_map_t *map,
                          const loong_hf_param_t *p, int64_t piece)
{
    char name[256];
    int64_t shape[3];
    int ndim = loongi_hf_file_shape(p, shape);
    int number = (int)(p->first_piece + piece);
    snprintf(name, sizeof(name), "%s%s",
             p->prefixed ? loongi_hf_map_prefix(map) : "",
             loongi_hf_piece_name(p, piece));
    entry_t e = {PLAIN, number, p->exact ? LOONG_F32 : f->dtype, 0};
    if (is_scaled(name, ndim)) {
        e.kind = f->fp8 ? BITS : PRODUCTS;
        e.dtype = f->fp8 ? LOONG_F8_E4M3 : f->dtype;
        f->scaled++;
    }
    declare(f, name, e, ndim, shape);
    if (e.kind == BITS) {
        size_t used = strlen(name);
        entry_t scales = {SCALES, number, LOONG_F32, 0};
        int64_t blocks[2] = {(shape[0] + BLOCK - 1) / BLOCK,
                             (shape[1] + BLOCK - 1) / BLOCK};
        snprintf(name + used, sizeof(name) - used, "_scale_inv");
        declare(f, name, scales, 2, blocks);
    }
}

static void write_dir(const job_place_t *place, const char *name, bool fp8,
                      const char *dtype)
{
    files_t f = {0};
    char dir[128], path[160], text[2048];
    loong_pairs_t *model = NULL;
    loong_hf_map_t *map = NULL;
    f.ctx = place->ctx;
    f.fp8 = fp8;
    f.dtype = strcmp(dtype, "float32") == 0 ? LOONG_F32 : LOONG_BF16;
    snprintf(dir, sizeof(dir), "%s/%s", place->dir, name);
    assert_ok(f.ctx, loongi_dir_remove(f.ctx, dir));
    assert_ok(f.ctx, loongi_dir_make(f.ctx, dir));
    snprintf(path, sizeof(path), "%s/config.json", dir);
    snprintf(text, sizeof(text), config_text, dtype, fp8 ? quantization : "");
    assert_ok(f.ctx, loongi_file_write(f.ctx, path, text, strlen(text)));
    assert_ok(f.ctx, loongi_hf_config_read(f.ctx, dir, &model));
    assert_ok(f.ctx, loongi_hf_map_create(f.ctx, model, &map));
    loong_safetensors_set_params_t set = {dir, 200000, ""};
    assert_ok(f.ctx, loongi_safetensors_set_create(f.ctx, &set, &f.set));
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        for (int64_t k = 0; k < p->pieces; k++) {
            declare_piece(&f, map, p, k);
        }
    }
    assert_int_equal(f.scaled, 2 * 5 + 3 + 3 + 4 * 3);
    loong_meter_t meter = {0};
    loong_safetensors_source_t source = {fill, &f, &meter};
    assert_ok(f.ctx, loongi_safetensors_set_fill(f.set, &source));
    assert_ok(f.ctx, loongi_safetensors_set_commit(f.set));
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
    assert_true(loongi_file_exists(path)); /* several files */
    loongi_safetensors_set_destroy(&f.set);
    loongi_hf_map_destroy(&map);
    loongi_pairs_destroy(&model);
}

/* ---- the training ------------------------------------------------------- */

typedef struct trained {
    double loss[STEPS + 1], norm[STEPS + 1];
} trained_t;

static trained_t train(const job_place_t *place, const char *from, int ranks,
                       const char *parallel)
{
    static job_result_t result;
    trained_t t;
    char overrides[1024], path[128];
    snprintf(path, sizeof(path), "%s/log", place->dir);
    assert_ok(place->ctx, loongi_dir_remove(place->ctx, path));
    snprintf(overrides, sizeof(overrides),
             "~model.foundation\n~checkpoint.save\ninit.from_hf=$DIR/%s\n"
             "train.train_iters=%d\ntrain.global_batch_size=2\n%s",
             from, STEPS, parallel);
    job_run(place, ranks, overrides, &result);
    if (result.status != LOONG_OK) {
        fail_msg("%s on %d ranks: %s", from, ranks, result.error);
    }
    assert_int_equal(job_metrics(place, NULL, "loss", t.loss, STEPS + 1),
                     STEPS);
    assert_int_equal(job_metrics(place, NULL, "grad_norm", t.norm, STEPS + 1),
                     STEPS);
    return t;
}

static void assert_near(const trained_t *a, const trained_t *b, double bound)
{
    for (int i = 0; i < STEPS; i++) {
        if (!(fabs(a->loss[i] - b->loss[i]) <= bound * fabs(b->loss[i]) &&
              fabs(a->norm[i] - b->norm[i]) <= bound * fabs(b->norm[i]))) {
            fail_msg("step %d: loss %.17g and %.17g, norm %.17g and %.17g",
                     i + 1, a->loss[i], b->loss[i], a->norm[i], b->norm[i]);
        }
    }
}

static const char layout[] = "parallel.tensor_model_parallel_size=2\n"
                             "parallel.sequence_parallel=true\n"
                             "parallel.pipeline_model_parallel_size=2\n"
                             "parallel.expert_model_parallel_size=2\n";

/* In f64, so that layouts agree as well. What config.json names as the type is
 * in the weights: of bf16 they are rounded to it, and train otherwise. */
static void blocks_train_as_their_products(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"bfloat16", "float32"};
    job_place_t place = job_begin();
    trained_t wide[2];
    for (int i = 0; i < 2; i++) {
        write_dir(&place, "fp8", true, dtypes[i]);
        write_dir(&place, "wide", false, dtypes[i]);
        wide[i] = train(&place, "wide", 1, "");
        trained_t fp8 = train(&place, "fp8", 1, "");
        assert_near(&fp8, &wide[i], 0.0);
        if (i == 0) {
            fp8 = train(&place, "fp8", 4, layout);
            assert_near(&fp8, &wide[i], 1e-9);
        }
    }
    assert_true(wide[0].loss[0] != wide[1].loss[0]);
    job_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_train_as_their_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
