/* SPDX-License-Identifier: Apache-2.0
 *
 * Training that begins with e4m3 weights in blocks of 128 x 128, as
 * DeepSeek-V3 is published, is bit for bit the one that begins with the
 * products, which are made here by hand; on one rank and on several. */
#include "file.h"
#include "fp8_files.h"
#include "train_job.h"

enum { STEPS = 2 };

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
    "\"num_nextn_predict_layers\": 0, \"torch_dtype\": \"%s\"}\n";

static void write_dir(const job_place_t *place, const char *name, bool fp8,
                      const char *dtype)
{
    char dir[128], path[170], text[2048];
    fp8_files_t f = {.dir = dir, .config = text, .fp8 = fp8,
                     .block = {128, 128}, .max_shard_bytes = 200000};
    f.dtype = strcmp(dtype, "float32") == 0 ? LOONG_F32 : LOONG_BF16;
    snprintf(dir, sizeof(dir), "%s/%s", place->dir, name);
    snprintf(text, sizeof(text), config_text, dtype);
    assert_int_equal(fp8_write(place->ctx, &f).scaled,
                     2 * 5 + 3 + 3 + 4 * 3);
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
    assert_true(loongi_file_exists(path)); /* several files */
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
