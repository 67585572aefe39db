/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts over ranks against one rank, in f64: loss, gradient norm,
 * parameters and moments after some steps, on layouts drawn at random. */
#include "layout_run.h"
#include "native.h"
#include "rng.h"

#define COMMON                                                                \
    "hidden_size: 24, ffn_hidden_size: 40, "                   \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, num_experts: 8, "           \
    "moe_ffn_hidden_size: 20, "
/* Losses of the router over a micro-batch, dropout. */
#define SOFTMAX                                                               \
    "{family: qwen3_moe, " COMMON "num_layers: 2, qk_layernorm: true, "       \
    "hidden_dropout: 0.1, "                                                   \
    "moe_router_topk: 3, moe_aux_loss_coeff: 0.05, moe_z_loss_coeff: 0.01}"
/* A shared expert behind a gate, groups of experts, balance of sequences. */
#define SIGMOID                                                               \
    "{family: qwen2_moe, " COMMON "num_layers: 2, moe_router_topk: 4, "       \
    "moe_router_score_function: sigmoid, moe_router_num_groups: 4, "          \
    "moe_router_group_topk: 2, moe_router_topk_scaling_factor: 2.5, "         \
    "moe_router_enable_expert_bias: true, "                                   \
    "moe_router_bias_update_rate: 0.02, "                                     \
    "moe_shared_expert_intermediate_size: 28, "                               \
    "moe_router_load_balancing_type: seq_aux_loss, moe_aux_loss_coeff: 0.05}"

/* Layers without experts in front and between. */
#define MIXED                                                                 \
    "{family: qwen3_moe, " COMMON "num_layers: 4, qk_layernorm: true, "       \
    "moe_router_topk: 3, moe_layer_freq: '[0]*2+[1,0]', "                     \
    "moe_aux_loss_coeff: 0.05}"

static layout_run_t make_run(const char *save, const char *model, int ranks,
                             const char *parallel)
{
    layout_run_t run = {.save = save, .model = model, .parallel = parallel,
                        .more = "", .dtype = "fp64", .ranks = ranks,
                        .micro_batch_size = 2, .steps = layout_steps()};
    return run;
}

static void check_layouts(const char *model, int count,
                          const char *const *layouts, const int *ranks)
{
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", model, 1, "{}");
    layout_run(&place, &one);
    for (int i = 0; i < count; i++) {
        char save[24];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(save, model, ranks[i], layouts[i]);
        layout_run(&place, &run);
        layout_compare(&place, &run, &one, 1e-9);
    }
    layout_end(&place);
}

/* Layouts take turns with the models, but in the long tests. */
static void check_models(int count, const char *const *layouts,
                         const int *ranks)
{
    static const char *const models[] = {SOFTMAX, SIGMOID};
    enum { MODELS = LOONG_COUNT_OF(models), MOST = 16 };
    bool all = layout_long();
    assert_in_range(count, 1, MOST);
    for (int m = 0; m < MODELS; m++) {
        const char *chosen[MOST];
        int of[MOST];
        int n = 0;
        for (int i = 0; i < count; i++) {
            if (all || i % MODELS == m) {
                chosen[n] = layouts[i];
                of[n++] = ranks[i];
            }
        }
        check_layouts(models[m], n, chosen, of);
    }
}

#define TP "tensor_model_parallel_size: "
#define SP "sequence_parallel: true"
#define EP "expert_model_parallel_size: "
#define ETP "expert_tensor_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define CP "context_parallel_size: "
#define SHARD "data_parallel_sharding: "
#define A2A "moe_token_dispatcher_type: alltoall"

static void chosen_layouts(void **state)
{
    (void)state;
    static const char *const layouts[] = {
        "{}", "{" EP "2}", "{" EP "2, " SHARD "none, bucket_bytes: 8192}",
        "{" EP "4}", "{" TP "2, " SP "}", "{" TP "2, " SP ", " EP "4}",
        "{" PP "2, " EP "2}\nschedule: zero_bubble_h1", "{" EP "2, " A2A "}",
        "{" TP "2, " SP ", " EP "4, " A2A "}",
        "{" PP "2, " EP "2, " A2A "}\nschedule: zero_bubble_h1",
        "{" ETP "3}", "{" ETP "2, " EP "2}", "{" ETP "2, " EP "2, " A2A "}",
        "{" TP "2, " SP ", " ETP "4, " SHARD "optim_grads_params}",
        "{" TP "2, " SP ", " CP "2, " EP "2}"};
    static const int ranks[] = {2, 2, 4, 4, 2, 4, 4, 2, 4, 4, 3, 4, 4, 4, 4};
    check_models(LOONG_COUNT_OF(layouts), layouts, ranks);
}

#define PLAN "moe_capacity_plan: "
#define AGAIN "\nrecompute: {granularity: full}"
#define SOME                                                                  \
    "\nrecompute: {granularity: selective, scopes: ['layers.*.mlp.experts']}"
#define H1 "\nschedule: zero_bubble_h1"

/* Rows laid out for a part of an even share: every layer runs in several
 * rounds, in every program. */
static void rounds(void **state)
{
    (void)state;
    static const char *const layouts[] = {
        "{" PLAN "0.3}", "{" PLAN "0.2}" AGAIN, "{" PLAN "0.4}" SOME,
        "{" EP "2, " PLAN "0.3}", "{" EP "4, " A2A ", " PLAN "0.3}",
        "{" EP "4, " A2A ", " PLAN "0.3}" AGAIN,
        "{" EP "2, " A2A ", " PLAN "0.4, " SHARD "optim_grads_params}" SOME,
        "{" PP "2, " EP "2, " PLAN "0.3}" H1,
        "{" PP "2, " EP "2, " A2A ", " PLAN "0.3, " SHARD "optim_grads}" H1,
        "{" PP "2, " EP "2, " A2A ", " PLAN "0.3}" H1 AGAIN,
        "{" ETP "2, " EP "2, " A2A ", " PLAN "0.2}",
        "{" TP "2, " SP ", " ETP "4, " PLAN "0.2, " SHARD
        "optim_grads_params}",
        "{" TP "2, " SP ", " EP "4, " A2A ", " PLAN "0.3}"
        "\ncomm: {overlap: true, overlap_work: 0}",
        "{" PP "2, " EP "2, overlap_moe_expert_parallel_comm: true, "
        "num_layers_per_virtual_pipeline_stage: 1, " A2A ", " PLAN "0.2}"};
    static const int ranks[] = {1, 1, 1, 2, 4, 4, 2, 4, 4, 4, 4, 4, 4, 4};
    check_models(LOONG_COUNT_OF(layouts), layouts, ranks);
}

/* Stages without a router have no loss of it. */
static void layers_without_experts(void **state)
{
    (void)state;
    static const char *const layouts[] = {
        "{" EP "2}", "{" PP "2}", "{" PP "4, " EP "2, " A2A "}",
        "{" TP "2, " SP ", " PP "2, num_layers_per_virtual_pipeline_stage: 1}"};
    static const int ranks[] = {2, 2, 8, 4};
    check_layouts(MIXED, LOONG_COUNT_OF(layouts), layouts, ranks);
}

/* From the product of data, tensor, context, expert and pipeline parallel and
 * of what is shared out; every day parity_moe draws others. */
static void random_layouts(void **state)
{
    (void)state;
    static const char *const shardings[] = {"none", "optim", "optim_grads",
                                            "optim_grads_params"};
    enum { COUNT = 8 };
    if (!layout_long()) {
        skip();
    }
    char text[COUNT][384];
    const char *layouts[COUNT];
    int ranks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        enum { DRAWS = 8 };
        int draw[DRAWS];
        for (int k = 0; k < DRAWS; k++) {
            draw[k] = (int)(1e6 * loongi_rng_uniform(
                                      7, 1, (uint64_t)(DRAWS * i + k)));
        }
        int tp = draw[0] % 2 ? 2 : 1;
        int pp = draw[1] % 3 == 0 ? 2 : 1;
        int dp = 1 << draw[2] % 2;
        int cp = draw[5] % 2 ? 2 : 1;
        int most = tp * cp * dp;
        int ep = 1 << draw[3] % 4;
        ep = ep > most ? most : ep;
        int etp = draw[7] % 2 && 2 * ep <= most ? 2 : 1;
        ranks[i] = tp * cp * pp * dp;
        snprintf(text[i], sizeof(text[i]),
                 "{" TP "%d, sequence_parallel: %s, " CP "%d, " PP "%d, " EP
                 "%d, " ETP "%d, " SHARD "%s, moe_token_dispatcher_type: %s}",
                 tp, tp > 1 ? "true" : "false", cp, pp, ep, etp,
                 shardings[draw[4] % 4],
                 draw[6] % 2 ? "alltoall" : "allgather");
        layouts[i] = text[i];
        print_message("%d ranks, %s\n", ranks[i], text[i]);
    }
    check_models(COUNT, layouts, ranks);
}

#define CAPACITY(factor_, policy_)                                            \
    "{family: qwen3_moe, " COMMON "num_layers: 2, qk_layernorm: true, "       \
    "hidden_dropout: 0.1, moe_router_topk: 3, moe_aux_loss_coeff: 0.05, "     \
    "moe_z_loss_coeff: 0.01, moe_expert_capacity_factor: " factor_            \
    ", moe_token_drop_policy: " policy_ "}"

/* Experts with room for all tokens drop none, others some, and not the same
 * ones by both policies; ranks drop tokens of their own whatever the
 * dispatcher. */
static void experts_drop_tokens(void **state)
{
    (void)state;
    static const char *const models[] = {
        SOFTMAX, CAPACITY("2.7", "probs"), CAPACITY("0.9", "probs"),
        CAPACITY("0.9", "position")};
    layout_place_t place = layout_begin();
    layout_run_t runs[LOONG_COUNT_OF(models)];
    char names[LOONG_COUNT_OF(models)][8];
    for (int i = 0; i < LOONG_COUNT_OF(models); i++) {
        snprintf(names[i], sizeof(names[i]), "run%d", i);
        runs[i] = make_run(names[i], models[i], 1, "{}");
        layout_run(&place, &runs[i]);
    }
    layout_compare(&place, &runs[1], &runs[0], 0.0);
    assert_true(fabs(runs[2].loss - runs[0].loss) > 1e-6);
    assert_true(fabs(runs[3].loss - runs[0].loss) > 1e-6);
    assert_true(fabs(runs[3].loss - runs[2].loss) > 1e-6);
    layout_run_t a = make_run("gather", models[2], 4, "{" EP "4}");
    layout_run_t b = make_run("a2a", models[2], 4,
                              "{" EP "2, " ETP "2, " A2A "}");
    layout_run(&place, &a);
    layout_run(&place, &b);
    layout_compare(&place, &b, &a, 1e-9);
    layout_end(&place);
}

/* Tokens that go to the ranks of their experts alone meet the same products in
 * the same order as those that go everywhere, in every type. */
static void dispatchers_agree(void **state)
{
    (void)state;
    static const char *const types[] = {"fp64", "fp32", "bf16"};
    layout_place_t place = layout_begin();
    for (int i = 0; i < LOONG_COUNT_OF(types); i++) {
        char names[2][32];
        snprintf(names[0], sizeof(names[0]), "%s_gather", types[i]);
        snprintf(names[1], sizeof(names[1]), "%s_a2a", types[i]);
        layout_run_t a = make_run(names[0], SOFTMAX, 4, "{" EP "4}");
        layout_run_t b = make_run(names[1], SOFTMAX, 4,
                                  "{" EP "4, " A2A "}");
        a.dtype = b.dtype = types[i];
        layout_run(&place, &a);
        layout_run(&place, &b);
        layout_compare(&place, &b, &a, 0.0);
    }
    layout_end(&place);
}

/* Parameters, biases and moments go from layout to layout. */
static void change_layouts(const char *model)
{
    static const char *const layouts[] = {
        "{}", "{" EP "4}", "{" TP "2, " SP ", " EP "2}",
        "{" ETP "2, " EP "2}", "{" EP "2}", "{" ETP "4}"};
    static const int ranks[] = {1, 4, 4, 4, 2, 4};
    layout_place_t place = layout_begin();
    layout_run_t whole = make_run("whole", model, 1, "{}");
    layout_run_t parts = make_run("parts", model, 1, "{}");
    whole.steps = parts.steps = LOONG_COUNT_OF(layouts);
    layout_run(&place, &whole);
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        parts.ranks = ranks[i];
        parts.parallel = layouts[i];
        parts.stop_at = i + 1;
        parts.load = i > 0 ? "auto" : NULL;
        layout_run(&place, &parts);
    }
    layout_compare(&place, &parts, &whole, 1e-9);
    layout_end(&place);
}

/* A Hugging Face directory comes to ranks that have parts of each expert. */
static void imports_come_to_parts(void **state)
{
    (void)state;
    static const char model[] =
        "{family: qwen3_moe, num_layers: 3, hidden_size: 24, "
        "ffn_hidden_size: 40, num_attention_heads: 2, num_query_groups: 1, "
        "kv_channels: 12, vocab_size: 97, max_position_embeddings: 64, "
        "rotary_base: 1e6, qk_layernorm: true, num_experts: 4, "
        "moe_ffn_hidden_size: 12, moe_router_topk: 2, "
        "moe_layer_freq: '[0]+[1]*2'}";
    static const char from[] = "init: {from_hf: " LOONG_SOURCE_DIR
                               "/tests/golden/fixtures/qwen3_moe_dense}";
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", model, 1, "{}");
    layout_run_t parts = make_run("parts", model, 4, "{" ETP "2, " EP "2}");
    one.more = parts.more = from;
    layout_run(&place, &one);
    layout_run(&place, &parts);
    layout_compare(&place, &parts, &one, 1e-9);
    layout_end(&place);
}

static void checkpoints_change_layout(void **state)
{
    (void)state;
    change_layouts(SIGMOID);
    if (layout_long()) {
        change_layouts(SOFTMAX);
    }
}

/* The biases of the first layer after a run. */
static void read_biases(const layout_place_t *place, const char *save,
                        double biases[8])
{
    loong_checkpoint_t *ck = NULL;
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", place->dir, save);
    assert_ok(place->ctx, loongi_checkpoint_open(place->ctx, path, &ck));
    const loong_checkpoint_tensor_t *t = loongi_checkpoint_find(
        ck, "param", "foundation.layers.0.mlp.gate.e_score_correction_bias");
    assert_non_null(t);
    assert_ok(place->ctx,
              loongi_checkpoint_read_rows(ck, t, 0, 8, LOONG_F64, biases));
    loongi_checkpoint_close(&ck);
}

/* A step moves every bias by the rate, up where an expert has too few tokens;
 * over steps the choices of the first layer, whose input changes slowly, come
 * nearer to one another: biases that have gone up come down again. */
static void biases_follow(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    double biases[8];
    int up = 0;
    int down = 0;
    int turned = 0;
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", SIGMOID, 2, "{" EP "2}");
    one.steps = STEPS;
    one.stop_at = 1;
    layout_run(&place, &one);
    read_biases(&place, "one", biases);
    for (int e = 0; e < 8; e++) {
        assert_true(biases[e] == 0.0 || fabs(fabs(biases[e]) - 0.02) < 1e-15);
        up += biases[e] > 0.0;
        down += biases[e] < 0.0;
    }
    assert_true(up > 0 && down > 0);
    layout_run_t many = make_run("many", SIGMOID, 1, "{}");
    many.steps = STEPS;
    layout_run(&place, &many);
    read_biases(&place, "many", biases);
    for (int e = 0; e < 8; e++) {
        turned += fabs(biases[e]) < 0.02 * (STEPS - 1);
    }
    assert_true(turned >= 4);
    layout_end(&place);
}

/* In fp32 the losses of the first steps, in bf16 the whole curve, which the
 * choices of experts let wander: within half a unit of its 8 bits. */
static void narrow_types(void **state)
{
    (void)state;
    enum { STEPS = 20 };
    static const struct {
        const char *dtype;
        int steps;
        double bound;
    } types[] = {{"fp32", 5, 1e-5}, {"bf16", STEPS, 0x1p-8}};
    static const char *const layouts[] = {
        "{" EP "2}", "{" TP "2, " SP ", " EP "2}", "{" EP "2, " A2A "}",
        "{" PP "2}"};
    static const int ranks[] = {2, 2, 4, 2};
    double one_losses[STEPS];
    double losses[STEPS];
    for (int i = 0; i < LOONG_COUNT_OF(types); i++) {
        layout_place_t place = layout_begin();
        layout_run_t one = make_run("one", SOFTMAX, 1, "{}");
        one.dtype = types[i].dtype;
        one.steps = types[i].steps;
        one.losses = one_losses;
        layout_run(&place, &one);
        assert_true(one_losses[one.steps - 1] < one_losses[0]);
        for (int k = 0; k < LOONG_COUNT_OF(layouts); k++) {
            char save[16];
            snprintf(save, sizeof(save), "run%d", k);
            layout_run_t run = make_run(save, SOFTMAX, ranks[k], layouts[k]);
            run.dtype = one.dtype;
            run.steps = one.steps;
            run.losses = losses;
            layout_run(&place, &run);
            for (int s = 0; s < one.steps; s++) {
                double apart = fabs(losses[s] - one_losses[s]) / one_losses[s];
                if (!(apart <= types[i].bound)) {
                    fail_msg("%s, %s: step %d, loss %g, one rank has %g",
                             one.dtype, layouts[k], s + 1, losses[s],
                             one_losses[s]);
                }
            }
        }
        layout_end(&place);
    }
}

/* The losses of the router have their gradients: without them the run is
 * another one. */
static void losses_count(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    layout_run_t with = make_run("with", SOFTMAX, 1, "{}");
    layout_run_t without = make_run(
        "without",
        "{family: qwen3_moe, " COMMON "num_layers: 2, qk_layernorm: true, "
        "hidden_dropout: 0.1, moe_router_topk: 3}", 1, "{}");
    layout_run(&place, &with);
    layout_run(&place, &without);
    assert_true(fabs(with.loss - without.loss) > 1e-6);
    layout_end(&place);
}

/* The z-loss of two sets of experts is a mean over the tokens of the step, so
 * what a micro-batch happens to hold of each set does not count. */
static void z_loss_of_two_sets(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    layout_run_t one = make_run(
        "one",
        "{family: mixtral, " COMMON "num_layers: 2, moe_z_loss_coeff: 0.02, "
        "moe_vision_ffn_hidden_size: 12}", 1, "{}");
    one.vision_ids = "[3, 5, 7, 11, 13, 17, 19, 23]";
    layout_run_t four = one;
    one.micro_batch_size = 1;
    four.micro_batch_size = 4;
    four.save = "four";
    layout_run(&place, &one);
    layout_run(&place, &four);
    layout_compare(&place, &four, &one, 1e-9);
    layout_end(&place);
}

/* Whatever is wrong with a layout is told before anything starts. */
static void impossible_layouts(void **state)
{
    (void)state;
#define DENSE                                                                 \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 40, "   \
    "num_attention_heads: 4, vocab_size: 61, max_position_embeddings: 64}"
#define NOWHERE                                                               \
    "{family: qwen3_moe, " COMMON "num_layers: 2, moe_layer_freq: '[0]*2'}"
#define THREE                                                                 \
    "{family: qwen3_moe, " COMMON "num_layers: 2, moe_layer_freq: '[1]*3'}"
#define RATED                                                                 \
    "{family: qwen3_moe, " COMMON "num_layers: 2, "                           \
    "moe_router_bias_update_rate: 0.01}"
#define POOLED                                                                \
    "{family: qwen3_moe, " COMMON "num_layers: 2, moe_aux_loss_coeff: 0.01, " \
    "moe_router_load_balancing_type: pooled_aux_loss}"
    static const struct {
        const char *model;
        int ranks;
        const char *parallel;
        const char *text;
    } cases[] = {
        {POOLED, 2, "{pipeline_model_parallel_size: 2}",
         "pooled_aux_loss counts the choices of all layers, so the model is "
         "not cut"},
        {POOLED, 1, "{pipeline_model_parallel_layout: 'Et|tL'}",
         "so the model is not cut: neither by pipeline_model_parallel_size "
         "(1) nor by"},
        {NOWHERE, 1, "{}", "moe_layer_freq: found [0]*2: no layer has"},
        {THREE, 1, "{}", "found [1]*3: 3 layers, there are 2"},
        {RATED, 1, "{}", "has no effect without moe_router_enable_expert_bias"},
        {SOFTMAX, 3, "{" EP "3}",
         "expert_model_parallel_size 3 does not divide num_experts 8"},
        {DENSE, 2, "{" EP "2}",
         "expert_model_parallel_size 2: the model has no experts"},
        {DENSE, 2, "{" ETP "2}",
         "expert_tensor_parallel_size 2: the model has no experts"},
        {SOFTMAX, 4, "{" ETP "3}", "expert tensor x expert x pipeline = 3 x"},
        {SOFTMAX, 2, "{" TP "2}", "takes sequence_parallel: true"},
        {SOFTMAX, 3, "{" EP "2}", "3 ranks are no multiple of expert"},
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
        cmocka_unit_test(chosen_layouts),
        cmocka_unit_test(rounds),
        cmocka_unit_test(layers_without_experts),
        cmocka_unit_test(random_layouts),
        cmocka_unit_test(experts_drop_tokens),
        cmocka_unit_test(dispatchers_agree),
        cmocka_unit_test(narrow_types),
        cmocka_unit_test(imports_come_to_parts),
        cmocka_unit_test(checkpoints_change_layout),
        cmocka_unit_test(biases_follow),
        cmocka_unit_test(losses_count),
        cmocka_unit_test(z_loss_of_two_sets),
        cmocka_unit_test(impossible_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
