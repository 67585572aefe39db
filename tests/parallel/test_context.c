/* SPDX-License-Identifier: Apache-2.0
 *
 * Context parallel layouts against one rank: in f64 loss, gradient norm,
 * parameters and moments after some steps; the fast kernels within the bounds
 * of their types; validation; what is refused. */
#include "layout_run.h"

/* Grouped heads, norms of heads, biases, dropout everywhere, tied ends. */
#define QWEN                                                                  \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 42, "   \
    "num_attention_heads: 8, num_query_groups: 4, kv_channels: 6, "           \
    "vocab_size: 61, make_vocab_size_divisible_by: 8, "                       \
    "max_position_embeddings: 64, qk_layernorm: true, add_qkv_bias: true, "   \
    "hidden_dropout: 0.1, attention_dropout: 0.1, embedding_dropout: 0.1, "   \
    "activation: swiglu, "                                                    \
    "untie_embeddings_and_output_weights: false}"
/* A sliding window from layer 1 on, untied. */
#define WINDOW                                                                \
    "{family: qwen2, num_layers: 2, hidden_size: 24, ffn_hidden_size: 40, "   \
    "num_attention_heads: 4, num_query_groups: 4, kv_channels: 6, "           \
    "vocab_size: 61, max_position_embeddings: 64, window_size: 11, "          \
    "max_window_layers: 1, activation: swiglu, "                              \
    "untie_embeddings_and_output_weights: true}"
/* Learned positions, LayerNorm, every bias. */
#define GPT                                                                   \
    "{family: gpt2, num_layers: 2, hidden_size: 24, ffn_hidden_size: 50, "    \
    "num_attention_heads: 4, num_query_groups: 4, kv_channels: 6, "           \
    "vocab_size: 61, max_position_embeddings: 64}"
/* Two key heads, eight query heads to each. */
#define GROUPED                                                               \
    "{family: qwen3, num_layers: 1, hidden_size: 32, ffn_hidden_size: 40, "   \
    "num_attention_heads: 16, num_query_groups: 2, kv_channels: 4, "          \
    "vocab_size: 61, max_position_embeddings: 64, qk_layernorm: true, "       \
    "activation: swiglu, "                                                    \
    "untie_embeddings_and_output_weights: false}"
/* Three key heads, two query heads to each. */
#define UNEVEN                                                                \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 42, "   \
    "num_attention_heads: 6, num_query_groups: 3, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, activation: swiglu, "       \
    "attention_dropout: 0.1, "                                                \
    "untie_embeddings_and_output_weights: false}"

static layout_run_t make_run(const char *save, const char *model, int ranks,
                             const char *parallel)
{
    layout_run_t run = {.save = save, .model = model, .parallel = parallel,
                        .more = "", .dtype = "fp64", .ranks = ranks,
                        .micro_batch_size = 2, .global_batch_size = 8,
                        .seq_length = 64, .z_loss = 1e-3};
    run.steps = layout_long() ? layout_steps() : 6;
    return run;
}

typedef struct layout {
    int ranks;
    const char *parallel;
    const char *more;
    bool unpacked;
} layout_t;

static void check_layouts(const char *model, int count,
                          const layout_t *layouts)
{
    layout_place_t place = layout_begin();
    layout_run_t one[2];
    for (int i = 0; i < 2; i++) { /* packed and not */
        one[i] = make_run(i == 0 ? "packed" : "unpacked", model, 1, "{}");
        one[i].unpacked = i == 1;
        layout_run(&place, &one[i]);
    }
    assert_true(one[0].loss < log(LAYOUT_VOCAB)); /* it learns */
    assert_true(one[0].loss != one[1].loss);      /* there are documents */
    for (int i = 0; i < count; i++) {
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(save, model, layouts[i].ranks,
                                    layouts[i].parallel);
        run.more = layouts[i].more != NULL ? layouts[i].more : "";
        run.unpacked = layouts[i].unpacked;
        layout_run(&place, &run);
        layout_compare(&place, &run, &one[layouts[i].unpacked], 1e-9);
    }
    layout_end(&place);
}

#define CP "context_parallel_size: "
#define TP "tensor_model_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define SP "sequence_parallel: true"
#define A2A "cp_comm_type: a2a"
#define P2P "cp_comm_type: p2p"
#define BOTH(sizes_)                                                          \
    "cp_comm_type: a2a+p2p, hierarchical_context_parallel_sizes: [" sizes_ "]"
#define FULL "recompute: {granularity: full}"

/* With dropout; alone and with every other axis. */
static void gathered_keys(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" CP "2}", NULL, false},
        {4, "{" CP "4}", NULL, true},
        {4, "{" CP "2, bucket_bytes: 8192}", FULL, false},
        {4, "{" CP "2, data_parallel_sharding: none}", NULL, false},
        {4, "{" CP "2, " TP "2, " SP "}", NULL, false},
        {4, "{" CP "2, " PP "2}", NULL, true},
        {8, "{" CP "2, " TP "2, " PP "2, " SP "}", "schedule: zero_bubble_h1",
         false},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(layouts), layouts);
}

static void gathered_windows(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" CP "2}", NULL, false},
        {4, "{" CP "4}", NULL, true},
    };
    check_layouts(WINDOW, LOONG_COUNT_OF(layouts), layouts);
}

static void gathered_positions(void **state)
{
    (void)state;
    static const layout_t learned[] = {
        {4, "{" CP "2, " TP "2}", NULL, false},
    };
    static const layout_t uneven[] = {
        {2, "{" CP "2}", NULL, false},
        {6, "{" CP "2, " TP "3}", NULL, false},
        {8, "{" CP "4, " PP "2}", NULL, false},
    };
    check_layouts(GPT, LOONG_COUNT_OF(learned), learned);
    check_layouts(UNEVEN, LOONG_COUNT_OF(uneven), uneven);
}

static void exchanged_heads(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" CP "2, " A2A "}", NULL, false},
        {4, "{" CP "4, " A2A "}", NULL, true},
        {4, "{" CP "2, " A2A "}", FULL, true},
        {4, "{" CP "2, " TP "2, " SP ", " A2A "}", NULL, false},
        {8, "{" CP "2, " TP "2, " PP "2, " A2A "}", "schedule: zero_bubble_h1",
         false},
    };
    static const layout_t windows[] = {
        {2, "{" CP "2, " A2A "}", NULL, false},
    };
    /* Fewer key heads than ranks, numbers that do not divide, and several
     * tensor parallel ranks with the same one. */
    static const layout_t few[] = {
        {2, "{" CP "2, " A2A "}", NULL, false},
        {6, "{" CP "2, " TP "3, " A2A ", data_parallel_sharding: none}", FULL,
         true},
    };
    static const layout_t shared[] = {
        {4, "{" CP "4, " A2A "}", NULL, true},
        {8, "{" CP "8, " A2A "}", NULL, false},
        {8, "{" CP "2, " TP "4, " SP ", " A2A "}", NULL, false},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(layouts), layouts);
    check_layouts(WINDOW, LOONG_COUNT_OF(windows), windows);
    check_layouts(UNEVEN, LOONG_COUNT_OF(few), few);
    check_layouts(GROUPED, LOONG_COUNT_OF(shared), shared);
}

/* Rings of neighbours that exchange heads. */
static void rings_of_exchanges(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {4, "{" CP "4, " BOTH("2, 2") "}", NULL, false},
        {8, "{" CP "8, " BOTH("2, 4") "}", FULL, true},
        {8, "{" CP "4, " TP "2, " SP ", " BOTH("2, 2") "}", NULL, false},
        {8, "{" CP "4, " PP "2, " BOTH("2, 2") "}",
         "schedule: zero_bubble_h1", false},
    };
    static const layout_t windows[] = {
        {4, "{" CP "4, " BOTH("2, 2") "}", NULL, false},
        {2, "{" CP "2, " BOTH("1, 2") "}", NULL, true},
    };
    static const layout_t few[] = {
        {4, "{" CP "4, " BOTH("2, 2") "}", NULL, false},
    };
    static const layout_t shared[] = {
        {8, "{" CP "8, " BOTH("4, 2") "}", NULL, true},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(layouts), layouts);
    check_layouts(WINDOW, LOONG_COUNT_OF(windows), windows);
    check_layouts(UNEVEN, LOONG_COUNT_OF(few), few);
    check_layouts(GROUPED, LOONG_COUNT_OF(shared), shared);
}

static void rings(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {2, "{" CP "2, " P2P "}", NULL, false},
        {4, "{" CP "4, " P2P "}", NULL, true},
        {4, "{" CP "2, " P2P "}", FULL, true},
        {8, "{" CP "4, " TP "2, " SP ", " P2P "}", NULL, false},
        {8, "{" CP "2, " TP "2, " PP "2, " P2P "}", "schedule: zero_bubble_h1",
         false},
    };
    static const layout_t some[] = {
        {2, "{" CP "2, " P2P "}", NULL, false},
        {4, "{" CP "4, " P2P "}", NULL, true},
    };
    check_layouts(QWEN, LOONG_COUNT_OF(layouts), layouts);
    check_layouts(WINDOW, LOONG_COUNT_OF(some), some);
    check_layouts(UNEVEN, 1, some);
}

/* The fast kernels, within the bounds of their types over a few steps. */
static void narrow_types(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        double loss;
    } types[] = {{"fp32", 1e-5}, {"bf16", 1e-2}};
    static const char *const kinds[] = {
        "{" CP "2}", "{" CP "2, " A2A "}", "{" CP "2, " P2P "}",
        "{" CP "4, " BOTH("2, 2") "}"};
    for (int i = 0; i < LOONG_COUNT_OF(types); i++) {
        layout_place_t place = layout_begin();
        layout_run_t one = make_run("one", QWEN, 1, "{}");
        one.steps = 5;
        one.dtype = types[i].dtype;
        layout_run(&place, &one);
        for (int k = 0; k < LOONG_COUNT_OF(kinds); k++) {
            char save[16];
            snprintf(save, sizeof(save), "two%d", k);
            layout_run_t two = make_run(save, QWEN, k < 3 ? 2 : 4, kinds[k]);
            two.steps = 5;
            two.dtype = types[i].dtype;
            layout_run(&place, &two);
            assert_true(fabs(two.loss - one.loss) <=
                        types[i].loss * one.loss);
        }
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
        {QWEN, 3, "{" CP "2}", "3 ranks are no multiple of"},
        {QWEN, 3, "{" CP "3}",
         "data.seq_length: 64 is no multiple of 6 (2 x "
         "parallel.context_parallel_size), nearest: 60, 66"},
        {UNEVEN, 4, "{" CP "4, " A2A "}",
         "cp_comm_type: 6 query heads of tensor parallel rank 0 are no "
         "multiple of the 4 ranks that exchange heads"},
        {UNEVEN, 8, "{" CP "4, " TP "2, " BOTH("4, 1") "}",
         "2 query heads of tensor parallel rank 0"},
        {QWEN, 4, "{" CP "4, cp_comm_type: a2a+p2p}",
         "hierarchical_context_parallel_sizes: found 0 numbers, "
         "parallel.cp_comm_type a2a+p2p wants [a2a, p2p]"},
        {QWEN, 4, "{" CP "4, " BOTH("2, 4") "}",
         "hierarchical_context_parallel_sizes: 2 x 4 is not "
         "parallel.context_parallel_size 4"},
        {QWEN, 4, "{" CP "4, " P2P
                  ", hierarchical_context_parallel_sizes: [2, 2]}",
         "belongs to parallel.cp_comm_type a2a+p2p alone"},
        {QWEN, 24, "{" CP "8, " TP "3, " SP "}",
         "sequence_parallel: 16 tokens"},
    };
    layout_place_t place = layout_begin();
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        layout_run_t run = make_run("none", cases[i].model, cases[i].ranks,
                                    cases[i].parallel);
        run.refusal = cases[i].text;
        layout_run(&place, &run);
    }
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathered_keys),
        cmocka_unit_test(gathered_windows),
        cmocka_unit_test(gathered_positions),
        cmocka_unit_test(exchanged_heads),
        cmocka_unit_test(rings),
        cmocka_unit_test(rings_of_exchanges),
        cmocka_unit_test(narrow_types),
        cmocka_unit_test(impossible_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
