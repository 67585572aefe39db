/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of low rank in layouts against one rank, in f64: loss, gradient
 * norm, parameters and moments after some steps. Both matrices start as normal
 * numbers, so that every gradient counts from the first step on. */
#include "layout_job.h"
#include "layout_run.h"
#include "trainer_impl.h"

/* Uneven heads, norms of heads, biases of q, k and v, tied ends. */
#define QWEN                                                                \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 42, " \
    "num_attention_heads: 6, num_query_groups: 3, kv_channels: 8, "         \
    "vocab_size: 61, make_vocab_size_divisible_by: 8, "                     \
    "max_position_embeddings: 64, qk_layernorm: true, add_qkv_bias: true, " \
    "activation: swiglu, untie_embeddings_and_output_weights: false}"
/* One key head, which all ranks hold. */
#define ONE_KEY                                                             \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 40, " \
    "num_attention_heads: 5, num_query_groups: 1, kv_channels: 8, "         \
    "vocab_size: 61, max_position_embeddings: 64, activation: swiglu, "     \
    "untie_embeddings_and_output_weights: true}"
/* Learned positions, LayerNorm, every bias, dropout. */
#define GPT                                                                \
    "{family: gpt2, num_layers: 4, hidden_size: 16, ffn_hidden_size: 24, " \
    "num_attention_heads: 2, num_query_groups: 2, kv_channels: 8, "        \
    "vocab_size: 61, max_position_embeddings: 64, hidden_dropout: 0.1, "   \
    "untie_embeddings_and_output_weights: true}"
/* Short queries and short keys. */
#define LATENT                                                           \
    "{family: deepseek_v2, num_layers: 2, hidden_size: 24, "             \
    "ffn_hidden_size: 32, num_attention_heads: 4, q_lora_rank: 12, "     \
    "kv_lora_rank: 8, qk_head_dim: 8, qk_pos_emb_head_dim: 4, "          \
    "v_head_dim: 6, num_experts: 4, moe_router_topk: 2, "                \
    "moe_ffn_hidden_size: 12, moe_shared_expert_intermediate_size: 12, " \
    "moe_layer_freq: '[0]+[1]', vocab_size: 61, max_position_embeddings: 64}"

/* One layer of experts, one without. */
#define MIXTURE                                                              \
    "{family: qwen2_moe, num_layers: 2, hidden_size: 24, ffn_hidden_size: " \
    "32, num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "      \
    "num_experts: 4, moe_router_topk: 2, moe_ffn_hidden_size: 12, "          \
    "moe_shared_expert_intermediate_size: 12, moe_layer_freq: '[0]+[1]', "   \
    "vocab_size: 61, max_position_embeddings: 64}"

#define START                                                           \
    "training_phase: pretrain\n"                                        \
    "init: {by_scope: [{scope: '*.lora_A', method: normal, std: 0.2}, " \
    "{scope: '*.lora_B', method: normal, std: 0.2}]}\n"

/* Some of what is packed together has no adapter, ranks and scales differ. */
#define SOME                                                               \
    START "finetune: {method: lora, rank: 4, alpha: 6, dropout: 0.1, "     \
          "target_modules: [embed_tokens, q_proj, v_proj, o_proj, up_proj, " \
          "down_proj], "                                                   \
          "exclude_modules: [layers.1.mlp.up_proj], "                      \
          "rank_pattern: [{scope: v_proj, rank: 3}], "                     \
          "alpha_pattern: [{scope: 'layers.1.*', alpha: 2}]}\n"
#define ALL                                                                    \
    START "finetune: {method: lora, rank: 3, dropout: 0.2, use_rslora: true, " \
          "bias: all, modules_to_save: [norm], "                             \
          "target_modules: [layers, lm_head]}\n"
/* Both ends. */
#define ENDS                                                              \
    START "finetune: {method: lora, rank: 4, alpha: 6, dropout: 0.1, "    \
          "target_modules: [embed_tokens, q_proj, v_proj, up_proj, "      \
          "lm_head], rank_pattern: [{scope: lm_head, rank: 3}]}\n"

/* Nothing else is trained: the reference of kl_loss is the model itself. */
#define ALONE \
    START "finetune: {method: lora, rank: 3, dropout: 0.2, use_rslora: true}\n"

typedef struct layout {
    int ranks;
    const char *parallel;
} layout_t;

static layout_run_t make_run(const char *save, const char *model, int ranks,
                             const char *parallel, const char *more)
{
    layout_run_t run = {.save = save,
                        .model = model,
                        .parallel = parallel,
                        .more = more,
                        .dtype = "fp64",
                        .ranks = ranks,
                        .micro_batch_size = 2,
                        .steps = layout_steps()};
    return run;
}

static double kl_loss; /* of the runs of a test */

static void check_layouts(const char *model, const char *more, int count,
                          const layout_t *layouts)
{
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", model, 1, "{}", more);
    one.kl_loss = kl_loss;
    layout_run(&place, &one);
    for (int i = 0; i < count; i++) {
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run =
            make_run(save, model, layouts[i].ranks, layouts[i].parallel, more);
        run.kl_loss = kl_loss;
        layout_run(&place, &run);
        layout_compare(&place, &run, &one, 1e-9);
    }
    layout_end(&place);
}

#define TP "tensor_model_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define CP "context_parallel_size: "
#define SP "sequence_parallel: true"
#define SHARD "data_parallel_sharding: "
#define ALL_AGAIN "\nrecompute: {granularity: full}"

static void packed(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" TP "2}"},
        {3, "{" TP "3}"},
        {4, "{" TP "2, " CP "2, " SP "}"},
        {2, "{" SHARD "optim_grads_params, bucket_bytes: 4096}" ALL_AGAIN},
        {4, "{" PP "2, " SHARD "optim_grads, bucket_bytes: 4096}\n"
            "schedule: zero_bubble_h1"},
        {4, "{" TP "2, " SP ", tp_comm_overlap: true}"},
    };
    kl_loss = 0.3;
    check_layouts(QWEN, SOME, LOONG_COUNT_OF(layouts), layouts);
    kl_loss = 0.0;
}

static void shared_keys(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" TP "2}"},
        {4, "{" TP "4, " SP "}"},
        {4, "{" TP "2, " SHARD "optim_grads_params}"},
    };
    kl_loss = 0.3;
    check_layouts(ONE_KEY, ENDS, LOONG_COUNT_OF(layouts), layouts);
    kl_loss = 0.0;
}

static void biases(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" TP "2, " SP "}" ALL_AGAIN},
        {2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1}"},
        {4, "{" PP "2, " TP "2, num_layers_per_virtual_pipeline_stage: 1}\n"
            "schedule: zero_bubble_v"},
        {2, "{" CP "2, cp_comm_type: p2p}"},
        {2, "{" SHARD "optim, bucket_bytes: 4096}"},
    };
    check_layouts(GPT, ALL, LOONG_COUNT_OF(layouts), layouts);
}

/* A divergence from the model without them, which has a stream of its own
 * between stages. */
static void stages(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1}" ALL_AGAIN},
        {4, "{" PP "2, " TP "2, " SP
            ", num_layers_per_virtual_pipeline_stage: 1}\n"
            "schedule: zero_bubble_v"},
    };
    kl_loss = 0.3;
    check_layouts(GPT, ALONE, LOONG_COUNT_OF(layouts), layouts);
    kl_loss = 0.0;
}

/* Of latent attention, and of the shared expert. */
static void latent(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" TP "2, " SP "}"},
        {2, "{expert_model_parallel_size: 2}"},
        {4, "{" TP "2, " SP ", expert_model_parallel_size: 2, "
            "expert_tensor_parallel_size: 1, "
            "moe_token_dispatcher_type: alltoall}" ALL_AGAIN},
    };
    kl_loss = 0.3;
    check_layouts(LATENT, ALONE, LOONG_COUNT_OF(layouts), layouts);
    kl_loss = 0.0;
}

#define OF_EXPERTS                                                         \
    START "finetune: {method: lora, rank: 3, alpha: 6, "                   \
          "target_modules: [q_proj, gate_up_proj, down_proj], "            \
          "rank_pattern: [{scope: experts.down_proj, rank: 2}]}\n"
#define EP "expert_model_parallel_size: "
#define ETP "expert_tensor_parallel_size: "
#define EXCHANGE "moe_token_dispatcher_type: alltoall"

static void experts(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" EP "2}"},
        {4, "{" TP "2, " SP ", " EP "2, " ETP "2}" ALL_AGAIN},
        {4, "{" TP "2, " SP ", " EP "4, " ETP "1, " EXCHANGE "}"},
        {4, "{" PP "2, " EP "2, " EXCHANGE ", " SHARD
            "optim_grads_params, bucket_bytes: 4096}"},
        {4, "{" CP "2, " EP "2, " SHARD "optim_grads, bucket_bytes: 4096}"},
        {4, "{" TP "2, " SP ", " ETP "2, " SHARD
            "optim, bucket_bytes: 4096}"},
    };
    kl_loss = 0.3;
    check_layouts(MIXTURE, OF_EXPERTS, LOONG_COUNT_OF(layouts), layouts);
    kl_loss = 0.0;
}

/* Biases of q, k and v. */
#define QWEN2                                                               \
    "{family: qwen2, num_layers: 2, hidden_size: 24, ffn_hidden_size: 42, " \
    "num_attention_heads: 6, num_query_groups: 3, vocab_size: 61, "         \
    "max_position_embeddings: 64}"

/* Lengths of rows begin as those of a base that is written. */
static void magnitudes(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        const char *keys;
        layout_t layouts[5];
    } kinds[] = {
        /* Some of what is packed together has no adapter. */
        {QWEN2,
         "alpha: 6, dropout: 0.1, bias: all, "
         "rank_pattern: [{scope: v_proj, rank: 2}], "
         "target_modules: [q_proj, v_proj, o_proj, gate_proj, up_proj, "
         "down_proj]",
         {{3, "{" TP "3}"},
          {4, "{" TP "2, " CP "2, " SP "}"},
          {2, "{" SHARD "optim_grads_params, bucket_bytes: 4096}" ALL_AGAIN},
          {4, "{" PP "2, " SHARD "optim_grads, bucket_bytes: 4096}\n"
              "schedule: zero_bubble_h1"},
          {4, "{" TP "2, " SP ", tp_comm_overlap: true}"}}},
        {ONE_KEY,
         "use_rslora: true",
         {{4, "{" TP "2, " SHARD "optim_grads_params}"}}},
        /* One adapter of q, k and v. */
        {GPT,
         "dropout: 0.2, target_modules: [linear_qkv, linear_proj]",
         {{4, "{" PP "2, " TP "2, num_layers_per_virtual_pipeline_stage: 1}\n"
              "schedule: zero_bubble_v"}}},
    };
    for (int k = 0; k < LOONG_COUNT_OF(kinds); k++) {
        layout_place_t place = layout_begin();
        char more[1024];
        snprintf(more, sizeof(more), "export: {hf: %s/base}\n", place.dir);
        layout_run_t base = make_run("start", kinds[k].model, 1, "{}", more);
        base.global_batch_size = 4;
        layout_run(&place, &base);
        snprintf(more, sizeof(more),
                 "training_phase: pretrain\n"
                 "init: {from_hf: %s/base, by_scope: [{scope: '*.lora_B', "
                 "method: normal, std: 0.2}]}\n"
                 "finetune: {method: lora, rank: 3, use_dora: true, %s}\n",
                 place.dir, kinds[k].keys);
        layout_run_t one = make_run("one", kinds[k].model, 1, "{}", more);
        layout_run(&place, &one);
        for (int i = 0; i < 5 && kinds[k].layouts[i].ranks > 0; i++) {
            const layout_t *layout = &kinds[k].layouts[i];
            char save[16];
            snprintf(save, sizeof(save), "layout%d", i);
            layout_run_t run = make_run(save, kinds[k].model, layout->ranks,
                                        layout->parallel, more);
            layout_run(&place, &run);
            layout_compare(&place, &run, &one, 1e-9);
        }
        layout_end(&place);
    }
}

/* Rows of 128 elements, of which two ranks of TP have a block each. */
#define BLOCKS                                                            \
    "{family: llama, num_layers: 2, hidden_size: 128, "                   \
    "ffn_hidden_size: 128, num_attention_heads: 4, num_query_groups: 2, " \
    "kv_channels: 32, vocab_size: 61, max_position_embeddings: 64, "      \
    "untie_embeddings_and_output_weights: true}"

typedef struct codes {
    const char *keys;
    layout_t layouts[5];
} codes_t;

/* A base is written, and each layout quantises what it reads of it. The last
 * codes are refused in a layout, with this text. */
static void check_codes(const char *model, int count, const codes_t *kinds,
                        const layout_t *refused, const char *text)
{
    layout_place_t place = layout_begin();
    char more[1024];
    snprintf(more, sizeof(more), "export: {hf: %s/base}\n", place.dir);
    layout_run_t base = make_run("start", model, 1, "{}", more);
    base.global_batch_size = 4;
    layout_run(&place, &base);
    for (int k = 0; k < count; k++) {
        snprintf(more, sizeof(more),
                 "training_phase: pretrain\n"
                 "init: {from_hf: %s/base, by_scope: [{scope: '*.lora_A', "
                 "method: normal, std: 0.2}, {scope: '*.lora_B', method: "
                 "normal, std: 0.2}]}\n"
                 "finetune: {method: qlora, rank: 3, %s}\n",
                 place.dir, kinds[k].keys);
        char save[2][16];
        snprintf(save[0], sizeof(save[0]), "one%d", k);
        layout_run_t one = make_run(save[0], model, 1, "{}", more);
        one.global_batch_size = 8;
        /* With 0.3 rounding becomes 3.2e-9 of one moment of the first, with
         * 0.2, 0.4 or 1 at most 2.1e-10 of any. */
        one.kl_loss = 1.0;
        layout_run(&place, &one);
        for (int i = 0; i < 5 && kinds[k].layouts[i].ranks > 0; i++) {
            snprintf(save[1], sizeof(save[1]), "layout%d.%d", k, i);
            layout_run_t run =
                make_run(save[1], model, kinds[k].layouts[i].ranks,
                         kinds[k].layouts[i].parallel, more);
            run.global_batch_size = 8;
            run.kl_loss = one.kl_loss;
            layout_run(&place, &run);
            layout_compare(&place, &run, &one, 1e-9);
        }
    }
    layout_run_t cut =
        make_run("cut", model, refused->ranks, refused->parallel, more);
    cut.refusal = text;
    layout_run(&place, &cut);
    layout_end(&place);
}

static void quantized(void **state)
{
    (void)state;
    static const codes_t kinds[] = {
        {"quantization: int8",
         {{4, "{" TP "4, " SP "}"}, {2, "{" SHARD "optim_grads_params}"}}},
        {"quantization: nf4, double_quantization: true",
         {{4, "{" TP "2, " SHARD "optim_grads_params}"}}},
        {"quantization: nf4",
         {{2, "{" TP "2}"},
          {4, "{" TP "2, " SP ", " SHARD "optim_grads_params, "
              "bucket_bytes: 4096}" ALL_AGAIN},
          {2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1}"},
          {2, "{" CP "2}"},
          {2, "{" SHARD "optim_grads, bucket_bytes: 4096}"}}},
    };
    static const layout_t cut = {4, "{" TP "4}"};
    check_codes(BLOCKS, LOONG_COUNT_OF(kinds), kinds, &cut,
                "layers.0.self_attn.o_proj.weight has rows of 128 elements, "
                "of which a rank has 32 from 0 on: these are no whole blocks "
                "of 64");
}

/* Likewise, of which two ranks share out the channels of an expert. */
#define BLOCKS_OF_EXPERTS                                                    \
    "{family: qwen3_moe, num_layers: 2, hidden_size: 64, ffn_hidden_size: "  \
    "64, num_attention_heads: 8, num_query_groups: 4, kv_channels: 32, "     \
    "num_experts: 4, moe_router_topk: 2, moe_ffn_hidden_size: 128, "         \
    "vocab_size: 61, max_position_embeddings: 64}"

static void quantized_experts(void **state)
{
    (void)state;
#define TUNED                                           \
    ", target_modules: [q_proj, gate_up_proj, "         \
    "experts.down_proj], rank_pattern: [{scope: experts.down_proj, rank: 2}]"
    static const codes_t kinds[] = {
        {"quantization: int8", {{2, "{" EP "2}"}}},
        {"quantization: nf4, double_quantization: true" TUNED,
         {{4, "{" TP "2, " SP ", " EP "4, " ETP "1, " EXCHANGE ", " SHARD
              "optim_grads_params, bucket_bytes: 4096}"}}},
        {"quantization: nf4" TUNED,
         {{2, "{" SHARD "optim_grads_params}" ALL_AGAIN},
          {4, "{" TP "2, " SP ", " EP "2, " ETP "2}" ALL_AGAIN},
          {4, "{" PP "2, " EP "2}"}}},
    };
    static const layout_t cut = {4, "{" TP "4, " SP ", " ETP "4}"};
    check_codes(BLOCKS_OF_EXPERTS, LOONG_COUNT_OF(kinds), kinds, &cut,
                "layers.0.mlp.experts.down_proj has rows of 128 elements, of "
                "which a rank has 32 from 0 on: these are no whole blocks of "
                "64");
}

/* Products dy' x of a step, and those that are as large as a fixed matrix: no
 * rank of an adapter reaches a width of the model. */
static int products, large;

static loong_status_t count_products(loong_trainer_t *trainer)
{
    const loong_model_chunk_t *c =
        trainer->component->stages[0]->chunk[LOONG_VARIANT_TRAIN];
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        for (int64_t i = 0; i < c->programs[p].num_steps; i++) {
            const loong_kernel_query_t *q = &c->programs[p].steps[i].query;
            const loong_karg_t *dw = &q->arg[q->num_in];
            if (strncmp(q->op, "linear_dw", strlen("linear_dw")) != 0) {
                continue;
            }
            products++;
            large += LOONG_MIN(dw->dim[0], dw->dim[1]) > 7;
        }
    }
    return LOONG_OK;
}

static void nothing_is_summed_for_what_is_fixed(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    char text[2048];
    layout_job_t job = {
        .path = "test", .text = text, .ranks = 1, .work = count_products};
    snprintf(text, sizeof(text),
             "model: {foundation: %s}\nprecision: {params_dtype: fp32}\n"
             "data: {seq_length: 16, train: [{path: %s/data}]}\n"
             "train: {global_batch_size: 2, train_iters: 1}\n"
             "optimizer: {lr: 1e-3}\ndevice: cpu\n%s",
             QWEN, place.dir, SOME);
    assert_ok(place.ctx, layout_job_run(place.ctx, &job));
    assert_int_equal(products, 1 + 4 + 5 + 3 + 4); /* a, b of each layer */
    assert_int_equal(large, 0);
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed),
        cmocka_unit_test(nothing_is_summed_for_what_is_fixed),
        cmocka_unit_test(shared_keys),
        cmocka_unit_test(biases),
        cmocka_unit_test(stages),
        cmocka_unit_test(latent),
        cmocka_unit_test(experts),
        cmocka_unit_test(magnitudes),
        cmocka_unit_test(quantized),
        cmocka_unit_test(quantized_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
