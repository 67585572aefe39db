/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts of a trainer against one rank, in f64: loss, gradient norm,
 * parameters and moments after some steps. */
#include "layout_run.h"

/* Uneven heads, norms of heads, biases of q, k and v, dropout. */
#define QWEN                                                                  \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 42, "   \
    "num_attention_heads: 6, num_query_groups: 3, kv_channels: 8, "           \
    "vocab_size: 61, make_vocab_size_divisible_by: 8, "                       \
    "max_position_embeddings: 64, qk_layernorm: true, add_qkv_bias: true, "   \
    "hidden_dropout: 0.1, attention_dropout: 0.1, activation: swiglu, "       \
    "untie_embeddings_and_output_weights: false}"
/* Learned positions, LayerNorm, every bias, tied ends. */
#define GPT                                                                   \
    "{family: gpt2, num_layers: 2, hidden_size: 24, ffn_hidden_size: 50, "    \
    "num_attention_heads: 4, num_query_groups: 4, kv_channels: 6, "           \
    "vocab_size: 61, max_position_embeddings: 64}"
/* One key head, which all ranks hold. */
#define ONE_KEY                                                               \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 40, "   \
    "num_attention_heads: 5, num_query_groups: 1, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, qk_layernorm: true, "       \
    "add_qkv_bias: true, activation: swiglu, "                                \
    "untie_embeddings_and_output_weights: true}"

/* Untied, four layers. */
#define DEEP                                                                  \
    "{family: llama, num_layers: 4, hidden_size: 16, ffn_hidden_size: 24, "   \
    "num_attention_heads: 2, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, "                           \
    "untie_embeddings_and_output_weights: true}"

/* The same with LayerNorm, biases and dropout. */
#define DEEP_GPT                                                              \
    "{family: gpt2, num_layers: 4, hidden_size: 16, ffn_hidden_size: 24, "    \
    "num_attention_heads: 2, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, hidden_dropout: 0.1, "      \
    "untie_embeddings_and_output_weights: true}"

static layout_run_t make_run(const char *save, const char *model, int ranks,
                             const char *parallel)
{
    layout_run_t run = {.save = save, .model = model, .parallel = parallel,
                        .more = "", .dtype = "fp64", .ranks = ranks,
                        .micro_batch_size = 2, .steps = layout_steps()};
    return run;
}

typedef struct layout {
    int ranks;
    const char *parallel;
} layout_t;

static void check_layouts(const char *model, int count,
                          const layout_t *layouts)
{
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", model, 1, "{}");
    layout_run(&place, &one);
    assert_true(one.loss < log(LAYOUT_VOCAB)); /* it learns */
    for (int i = 0; i < count; i++) {
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(save, model, layouts[i].ranks,
                                    layouts[i].parallel);
        layout_run(&place, &run);
        layout_compare(&place, &run, &one, 1e-9);
    }
    layout_end(&place);
}

#define TP "tensor_model_parallel_size: "

static void tensor_parallel_qwen(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" TP "2}"},
        {3, "{" TP "3, bucket_bytes: 8192}"},
        {2, "{" TP "2, sequence_parallel: true}"},
        {4, "{" TP "2, sequence_parallel: true, bucket_bytes: 8192}"},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(layouts), layouts);
}

static void tensor_parallel_gpt(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" TP "2, data_parallel_sharding: none}"},
        {4, "{" TP "4, sequence_parallel: true}"},
    };
    check_layouts(GPT, LOONG_COUNT_OF(layouts), layouts);
}

static void tensor_parallel_one_key(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" TP "2}"},
        {4, "{" TP "4, sequence_parallel: true}"},
        {4, "{" TP "2}"},
    };
    check_layouts(ONE_KEY, LOONG_COUNT_OF(layouts), layouts);
}

#define PP "pipeline_model_parallel_size: "
#define LAYOUT "pipeline_model_parallel_layout: "

/* Some of the parameters stay as they are: all of a first stage of two. */
#define FROZEN ONE_KEY ", freeze: ['layers.0.*', '*embed*']"

static void pipeline_parallel(void **state)
{
    (void)state;
    static const layout_t frozen[] = {
        {2, "{" PP "2, " LAYOUT "Et|tL}"},
        {4, "{" PP "2, " LAYOUT "Et|tL, data_parallel_sharding: optim_grads}\n"
            "schedule: zero_bubble_h1"},
        {2, "{" PP "2, " LAYOUT "Et|tL, "
            "data_parallel_sharding: optim_grads_params}"},
    };
    static const layout_t tied[] = {
        {2, "{" PP "2}"},
        {2, "{" PP "2}\nschedule: zero_bubble_h1"},
        {4, "{" PP "2, " TP "2, sequence_parallel: true}"},
        {4, "{" PP "2, data_parallel_sharding: none}"},
    };
    static const layout_t untied[] = {
        {2, "{" PP "2, bucket_bytes: 8192}"},
        {4, "{" PP "2}\nschedule: zero_bubble_h1"},
        {2, "{" PP "2}\nschedule: zero_bubble_h1\n"
            "recompute: {granularity: full}"},
        {2, "{" PP "2, " LAYOUT "E|t|t|L}\nschedule: zero_bubble_v\n"
            "recompute: {granularity: selective, scopes: ['layers.*.mlp']}"},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(tied), tied);
    check_layouts(GPT, 1, tied);
    check_layouts(ONE_KEY, LOONG_COUNT_OF(untied), untied);
    check_layouts(FROZEN, LOONG_COUNT_OF(frozen), frozen);
}

#define SHARD "data_parallel_sharding: "

/* Gradients and parameters shared out, alone and with all else. */
static void sharded_data_parallel(void **state)
{
    (void)state;
    static const layout_t qwen[] = {
        {2, "{" SHARD "optim_grads, bucket_bytes: 4096}"},
        {3, "{" SHARD "optim_grads_params, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads_params}"},
        {4, "{" SHARD "optim_grads, " TP "2, sequence_parallel: true, "
            "bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads_params, " TP "2, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads_params, " PP "2, bucket_bytes: 4096}\n"
            "schedule: zero_bubble_h1"},
    };
    static const layout_t gpt[] = {
        {4, "{" SHARD "optim_grads, " PP "2, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads_params, " PP "2, bucket_bytes: 4096}"},
        {6, "{" SHARD "optim_grads_params, " TP "2, sequence_parallel: true, "
            "bucket_bytes: 4096}\nrecompute: {granularity: full}"},
        {4, "{" SHARD "optim_grads_params, " PP "2, " LAYOUT "E|t|t|L, "
            "bucket_bytes: 4096}"},
    };
    static const layout_t untied[] = {
        {4, "{" SHARD "optim_grads, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads_params, " PP "2, bucket_bytes: 8192}"},
        {8, "{" SHARD "optim_grads_params, " PP "2, " TP "2, "
            "sequence_parallel: true, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads_params, context_parallel_size: 2, "
            "bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads, " PP "2, " LAYOUT "E|t|t|L, "
            "bucket_bytes: 4096}\nschedule: zero_bubble_v"},
        {4, "{" SHARD "optim_grads_params, " PP "2, " LAYOUT "E|t|t|L, "
            "bucket_bytes: 4096}\nschedule: zero_bubble_v"},
    };
    static const layout_t frozen[] = {
        {3, "{" SHARD "optim_grads, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads_params, bucket_bytes: 4096}"},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(qwen), qwen);
    check_layouts(GPT, LOONG_COUNT_OF(gpt), gpt);
    check_layouts(ONE_KEY, LOONG_COUNT_OF(untied), untied);
    check_layouts(FROZEN, LOONG_COUNT_OF(frozen), frozen);
}

/* Several chunks a rank, stages that are not alike. */
static void pipeline_chunks(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" PP "2, " LAYOUT "Ett|L}"},
        {2, "{" PP "2, " LAYOUT "E|ttL}\nschedule: zero_bubble_h1"},
        {2, "{" PP "2, " LAYOUT "E|t|t|L}"},
        {4, "{" PP "2, " LAYOUT "E|t|t|L, " TP "2}"},
        {4, "{" PP "2, " LAYOUT "E|t|t|L, data_parallel_sharding: none}"},
    };
    static const layout_t deep[] = {
        {2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1}"},
        {2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 2}"},
        {2, "{" PP "2, " LAYOUT "E|t|ttt|L}\nschedule: zero_bubble_v"},
        {4, "{" PP "2, " LAYOUT "Et|t|t|tL}\nschedule: zero_bubble_v"},
        {3, "{" PP "3, " LAYOUT "E|t|t|t|t|L}"},
        {4, "{" PP "2, " LAYOUT "E|t|tt|tL, " SHARD "optim_grads_params, "
            "bucket_bytes: 4096}"},
        {4, "{" PP "2, " TP "2, sequence_parallel: true, "
            "num_layers_per_virtual_pipeline_stage: 1}"},
    };
    check_layouts(QWEN, 3, layouts);
    check_layouts(GPT, LOONG_COUNT_OF(layouts), layouts);
    check_layouts(DEEP, LOONG_COUNT_OF(deep), deep);
}

/* Both ends on one rank, tied. */
static void tied_ends_together(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" PP "2, " LAYOUT "E|t|t|L}\nschedule: zero_bubble_v"},
        {4, "{" PP "2, " LAYOUT "E|t|t|L, data_parallel_sharding: none}\n"
            "schedule: zero_bubble_v"},
        {8, "{" PP "2, " LAYOUT "E|t|t|L, " TP "2, " SHARD "optim_grads, "
            "bucket_bytes: 4096}\nschedule: zero_bubble_v"},
        {4, "{" PP "2, " LAYOUT "E|t|t|L, " SHARD "optim_grads_params, "
            "bucket_bytes: 4096}\nschedule: zero_bubble_v"},
        {1, "{" LAYOUT "Et|tL}\nschedule: zero_bubble_v"},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(layouts), layouts);
    check_layouts(GPT, 1, layouts);
}

/* Untied models: the same bits in every pipeline and schedule, and with
 * recomputation. */
static void check_bits(const char *model, const char *dtype)
{
    static const layout_t layouts[] = {
        {2, "{" PP "2}"},
        {2, "{" PP "2}\nschedule: zero_bubble_h1"},
        {4, "{" PP "4}\nrecompute: {granularity: full}"},
        {2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1}"},
        {2, "{" PP "2, " LAYOUT "E|t|ttt|L}\nschedule: zero_bubble_v"},
        {1, "{}\nrecompute: {granularity: full}"},
        {2, "{" PP "2}\nschedule: zero_bubble_h1\n"
            "recompute: {granularity: full}"},
    };
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", model, 1, "{}");
    one.dtype = dtype;
    one.steps = layout_long() ? 5 : 3;
    layout_run(&place, &one);
    for (int k = 0; k < LOONG_COUNT_OF(layouts); k++) {
        char save[16];
        snprintf(save, sizeof(save), "pipe%d", k);
        layout_run_t run = make_run(save, model, layouts[k].ranks,
                                    layouts[k].parallel);
        run.dtype = dtype;
        run.steps = one.steps;
        layout_run(&place, &run);
        layout_compare(&place, &run, &one, 0.0);
    }
    layout_end(&place);
}

static void pipelines_are_bit_equal(void **state)
{
    (void)state;
    check_bits(DEEP, "fp32");
    check_bits(DEEP_GPT, "bf16");
    if (layout_long()) {
        check_bits(DEEP, "fp64");
        check_bits(DEEP, "bf16");
        check_bits(DEEP_GPT, "fp32");
    }
}

/* What works in fp32 in a bf16 model does so wherever the model is cut, also
 * between stages and at the borders of what is run again. */
static void wide_scopes_are_bit_equal(void **state)
{
#define AGAIN(scopes_) \
    "recompute: {granularity: selective, scopes: [" scopes_ "]}"
#define LATENT                                                                \
    "{family: deepseek_v3, num_layers: 4, hidden_size: 16, "                  \
    "ffn_hidden_size: 24, num_attention_heads: 2, kv_lora_rank: 10, "         \
    "qk_head_dim: 8, qk_pos_emb_head_dim: 4, v_head_dim: 6, vocab_size: 61, " \
    "max_position_embeddings: 64, untie_embeddings_and_output_weights: true}"
    static const char *const models[] = {DEEP, DEEP_GPT, LATENT};
    static const char *const types[] = {
        "bf16, fp32_scopes: ['*']",
        "bf16, fp32_scopes: ['layers.1.*', 'layers.2']",
        "bf16, fp32_scopes: ['*norm*', 'layers.2']"};
    static const struct {
        int ranks;
        const char *parallel;
        const char *more;
    } cuts[] = {{2, "{" PP "2}", ""},
                {1, "{}", AGAIN("'*norm*'")},
                {1, "{}", AGAIN("layers.*.mlp, layers.*.self_attn")},
                {2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1}",
                 "schedule: interleaved\nrecompute: {granularity: full}"}};
    (void)state;
    layout_place_t place = layout_begin();
    for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
        char name[24];
        snprintf(name, sizeof(name), "one%d", t);
        layout_run_t one = make_run(name, models[t], 1, "{}");
        one.dtype = types[t];
        one.steps = 3;
        layout_run(&place, &one);
        for (int i = 0; i < LOONG_COUNT_OF(cuts); i++) {
            char save[24];
            layout_run_t run = one;
            snprintf(save, sizeof(save), "cut%d%d", t, i);
            run.save = save;
            run.ranks = cuts[i].ranks;
            run.parallel = cuts[i].parallel;
            run.more = cuts[i].more;
            layout_run(&place, &run);
            layout_compare(&place, &run, &one, 0.0);
        }
    }
    layout_end(&place);
}

/* Parameters and moments go from layout to layout; the run goes on as if
 * nothing had been. */
static void checkpoints_change_layout(void **state)
{
    (void)state;
    static const char *const models[] = {GPT, QWEN, ONE_KEY};
    static const layout_t layouts[] = {
        {1, "{}"},
        {2, "{" TP "2}"},
        {4, "{" PP "2, " TP "2, sequence_parallel: true}"},
        {2, "{}"},
        {4, "{" TP "4, sequence_parallel: true}"},
        {2, "{" PP "2}\nschedule: zero_bubble_h1"},
        {3, "{" SHARD "optim_grads_params, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads, " TP "2}"},
        {4, "{" SHARD "optim_grads_params, " PP "2}"},
        {4, "{" SHARD "none}"},
        {4, "{" TP "2, context_parallel_size: 2}"},
        {2, "{" PP "2, " LAYOUT "E|t|t|L}"},
        {2, "{" PP "2, " LAYOUT "E|t|t|L}\nschedule: zero_bubble_v"},
    };
    for (int m = 0; m < (layout_long() ? LOONG_COUNT_OF(models) : 1); m++) {
        layout_place_t place = layout_begin();
        layout_run_t whole = make_run("whole", models[m], 1, "{}");
        layout_run_t parts = make_run("parts", models[m], 1, "{}");
        whole.steps = parts.steps = LOONG_COUNT_OF(layouts);
        layout_run(&place, &whole);
        for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
            if (m == 1 && i == 4) {
                continue; /* three key heads */
            }
            parts.ranks = layouts[i].ranks;
            parts.parallel = layouts[i].parallel;
            parts.stop_at = i + 1;
            parts.load = i > 0 ? "auto" : NULL;
            layout_run(&place, &parts);
        }
        layout_compare(&place, &parts, &whole, 1e-9);
        layout_end(&place);
    }
}

/* A checkpoint that is loaded and saved again without a step between, by one
 * layout after the other, is the same. */
static void resharding_is_bit_equal(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"bf16", "fp32", "fp64"};
    static const layout_t layouts[] = {
        {3, "{" TP "3}"},
        {3, "{" SHARD "optim_grads_params, bucket_bytes: 4096}"},
        {4, "{" SHARD "optim_grads, " PP "2}"},
        {4, "{" SHARD "optim_grads_params, " TP "2, bucket_bytes: 4096}"},
        {1, "{}"},
    };
    for (int i = 0; i < (layout_long() ? LOONG_COUNT_OF(dtypes) : 1); i++) {
        layout_place_t place = layout_begin();
        layout_run_t first = make_run("first", QWEN, 2, "{" TP "2}");
        char save[16];
        char from[128];
        first.steps = 3;
        first.dtype = dtypes[i];
        layout_run(&place, &first);
        snprintf(from, sizeof(from), "%s/first", place.dir);
        for (int k = 0; k < LOONG_COUNT_OF(layouts); k++) {
            snprintf(save, sizeof(save), "again%d", k);
            layout_run_t again = make_run(save, QWEN, layouts[k].ranks,
                                          layouts[k].parallel);
            again.steps = 3;
            again.dtype = dtypes[i];
            again.load = from;
            again.save_only = true;
            layout_run(&place, &again);
            again.loss = first.loss; /* of no step at all */
            again.grad_norm = first.grad_norm;
            layout_compare(&place, &again, &first, 0.0);
            snprintf(from, sizeof(from), "%s/again%d", place.dir, k);
        }
        layout_end(&place);
    }
}

/* The fast kernels, within the bounds of their types over a few steps. */
static void narrow_types(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        double loss;
    } types[] = {{"fp32", 1e-5}, {"bf16", 1e-2}};
    for (int i = 0; i < LOONG_COUNT_OF(types); i++) {
        layout_place_t place = layout_begin();
        layout_run_t one = make_run("one", QWEN, 1, "{}");
        layout_run_t two = make_run("two", QWEN, 2,
                                    "{" TP "2, sequence_parallel: true}");
        one.steps = two.steps = 5;
        one.dtype = two.dtype = types[i].dtype;
        layout_run(&place, &one);
        layout_run(&place, &two);
        assert_true(fabs(two.loss - one.loss) <= types[i].loss * one.loss);
        layout_end(&place);
    }
}

/* Whatever is wrong with a layout is told before anything starts. */
static void impossible_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int ranks;
        const char *parallel;
        const char *text;
    } cases[] = {
        {QWEN, 3, "{" TP "2}", "3 ranks are no multiple of"},
        {ONE_KEY, 6, "{" TP "6}", "num_attention_heads is 5"},
        {GPT, 2, "{" PP "2, " LAYOUT "E|t|t|L}\nschedule: 1f1b",
         "2 chunks a rank, 1 is allowed"},
        {GPT, 2, "{" PP "2, " LAYOUT "E|t|tL}", "3 stages, a multiple of"},
        {DEEP, 2, "{" PP "2, num_layers_per_virtual_pipeline_stage: 3}",
         "no multiple of it times 2 ranks"},
        {GPT, 3, "{" TP "3, sequence_parallel: true}",
         "sequence_parallel: 32 tokens"},
    };
    layout_place_t place = layout_begin();
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        layout_run_t run = make_run("none", cases[i].model, cases[i].ranks,
                                    cases[i].parallel);
        run.refusal = cases[i].text;
        layout_run(&place, &run);
    }
    layout_run_t ramp = make_run("none", GPT, 2, "{" PP "2, " LAYOUT
                                                 "E|t|t|L}");
    ramp.ramp = 6;
    ramp.refusal = "3 micro-batches, a multiple of the 2 ranks";
    layout_run(&place, &ramp);
    layout_end(&place);
}

/* Steps grow, and with them the schedule and its slots. */
static void ramp_up(void **state)
{
    (void)state;
    static const char *const parallel[] = {
        "{}", "{" PP "2, " LAYOUT "E|t|t|L}",
        "{" PP "2}\nschedule: zero_bubble_h1"};
    static const char *const saves[] = {"ramp0", "ramp1", "ramp2"};
    layout_place_t place = layout_begin();
    layout_run_t runs[LOONG_COUNT_OF(parallel)];
    for (int i = 0; i < LOONG_COUNT_OF(parallel); i++) {
        runs[i] = make_run(saves[i], QWEN, i > 0 ? 2 : 1, parallel[i]);
        runs[i].ramp = 4;
        layout_run(&place, &runs[i]);
        layout_compare(&place, &runs[i], &runs[0], 1e-9);
    }
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel_qwen),
        cmocka_unit_test(tensor_parallel_gpt),
        cmocka_unit_test(tensor_parallel_one_key),
        cmocka_unit_test(pipeline_parallel),
        cmocka_unit_test(sharded_data_parallel),
        cmocka_unit_test(pipeline_chunks),
        cmocka_unit_test(tied_ends_together),
        cmocka_unit_test(pipelines_are_bit_equal),
        cmocka_unit_test(wide_scopes_are_bit_equal),
        cmocka_unit_test(checkpoints_change_layout),
        cmocka_unit_test(resharding_is_bit_equal),
        cmocka_unit_test(narrow_types),
        cmocka_unit_test(ramp_up),
        cmocka_unit_test(impossible_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
