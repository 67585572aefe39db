/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives beside computation: the same bits as in the order of the
 * programs, in every kind of layout. */
#include "layout_run.h"

#define DENSE                                                                 \
    "{family: qwen3, num_layers: 3, hidden_size: 24, ffn_hidden_size: 42, "   \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, make_vocab_size_divisible_by: 8, "                       \
    "max_position_embeddings: 64, qk_layernorm: true, add_qkv_bias: true, "   \
    "hidden_dropout: 0.1, activation: swiglu, "                               \
    "untie_embeddings_and_output_weights: false}"
#define EXPERTS                                                               \
    "{family: mixtral, num_layers: 2, hidden_size: 24, "                      \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, num_experts: 4, "           \
    "moe_router_topk: 2, moe_ffn_hidden_size: 20}"

/* Ranks have one and two key heads. */
#define UNEVEN                                                                \
    "{family: qwen3, num_layers: 4, hidden_size: 24, ffn_hidden_size: 42, "   \
    "num_attention_heads: 6, num_query_groups: 3, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, activation: swiglu, "       \
    "untie_embeddings_and_output_weights: false}"

#define TP "tensor_model_parallel_size: "
#define CP "context_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define EP "expert_model_parallel_size: "
#define SHARD "data_parallel_sharding: "

enum { STEPS = 3 };

typedef struct layout {
    const char *model;
    int ranks;
    const char *parallel;
} layout_t;

static layout_run_t run_of(const char *save, const layout_t *l,
                           const char *more)
{
    layout_run_t run = {.save = save, .model = l->model,
                        .parallel = l->parallel, .more = more,
                        .dtype = "fp32", .ranks = l->ranks,
                        .micro_batch_size = 2, .steps = STEPS};
    return run;
}

/* Two ways to run the same layout agree bit for bit. */
static void check_same(int count, const layout_t *layouts, const char *one,
                       const char *other)
{
    layout_place_t place = layout_begin();
    for (int i = 0; i < count; i++) {
        char save[2][16];
        snprintf(save[0], sizeof(save[0]), "one%d", i);
        snprintf(save[1], sizeof(save[1]), "other%d", i);
        layout_run_t a = run_of(save[0], &layouts[i], one);
        layout_run_t b = run_of(save[1], &layouts[i], other);
        layout_run(&place, &a);
        layout_run(&place, &b);
        layout_compare(&place, &b, &a, 0.0);
    }
    layout_end(&place);
}

/* With no least work every collective that can goes to the other thread. */
static void same_bits(void **state)
{
    (void)state;
    static const layout_t layouts[] = {
        {DENSE, 2, "{" TP "2}"},
        {DENSE, 2, "{" TP "2, sequence_parallel: true}"},
        {DENSE, 2, "{" SHARD "none, bucket_bytes: 4096}"},
        {DENSE, 3, "{" SHARD "optim, bucket_bytes: 4096}"},
        {DENSE, 2, "{" SHARD "optim_grads, bucket_bytes: 4096}"},
        {DENSE, 3, "{" SHARD "optim_grads_params, bucket_bytes: 4096}"},
        {DENSE, 2, "{" CP "2, cp_comm_type: p2p}"},
        {DENSE, 2, "{" CP "2, cp_comm_type: a2a}"},
        {DENSE, 4, "{" TP "2, " PP "2, sequence_parallel: true}"},
        {DENSE, 4, "{" PP "2, " SHARD "optim_grads_params, "
                   "bucket_bytes: 4096}\nschedule: zero_bubble_h1"},
        {EXPERTS, 2, "{" EP "2}"},
        {EXPERTS, 4, "{" EP "2, " SHARD "optim_grads, bucket_bytes: 4096}"},
    };
    check_same(LOONG_COUNT_OF(layouts), layouts, "comm: {overlap: false}",
               "comm: {overlap: true, overlap_work: 0}");
}

#define PAIRS "overlap_moe_expert_parallel_comm: "

/* The forward of one micro-batch with the backward of another: the same bits,
 * also where the ranks of a group have uneven programs. */
static void pairs(void **state)
{
    (void)state;
    static const layout_t layouts[][2] = {
        {{EXPERTS, 2, "{" EP "2, " PAIRS "false}"},
         {EXPERTS, 2, "{" EP "2, " PAIRS "true}"}},
        {{EXPERTS, 4, "{" EP "2, " PP "2, " PAIRS "false}"},
         {EXPERTS, 4, "{" EP "2, " PP "2, " PAIRS "true}"}},
        {{UNEVEN, 2, "{" TP "2, sequence_parallel: true, " PAIRS "false}"},
         {UNEVEN, 2, "{" TP "2, sequence_parallel: true, " PAIRS "true}"}},
        {{UNEVEN, 4, "{" TP "2, " SHARD "optim_grads_params, "
                     "bucket_bytes: 4096, " PAIRS "false}"},
         {UNEVEN, 4, "{" TP "2, " SHARD "optim_grads_params, "
                     "bucket_bytes: 4096, " PAIRS "true}"}},
        {{UNEVEN, 4, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1, "
                     PAIRS "false}"},
         {UNEVEN, 4, "{" PP "2, num_layers_per_virtual_pipeline_stage: 1, "
                     PAIRS "true}"}},
        {{DENSE, 2, "{" CP "2, cp_comm_type: p2p, " PAIRS "false}"},
         {DENSE, 2, "{" CP "2, cp_comm_type: p2p, " PAIRS "true}"}},
    };
    layout_place_t place = layout_begin();
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        char save[2][16];
        layout_run_t run[2];
        for (int k = 0; k < 2; k++) {
            snprintf(save[k], sizeof(save[k]), "%s%d", k ? "pair" : "one", i);
            run[k] = run_of(save[k], &layouts[i][k], "comm: {overlap_work: 0}");
            layout_run(&place, &run[k]);
        }
        layout_compare(&place, &run[1], &run[0], 0.0);
    }
    layout_run_t refused = run_of("refused", &layouts[1][1],
                                  "schedule: zero_bubble_h1");
    refused.refusal = "it has no pairs of forward and backward";
    layout_run(&place, &refused);
    layout_end(&place);
}

#define BF16 "grad_reduce_in_bf16: "

/* Gradients on their way in bf16: the curve stays, within the rounding of one
 * number in it; the same bits with and without ZeRO-1, twice, and in a lane. */
static void reduce_in_bf16(void **state)
{
    (void)state;
    enum { LONGEST = 40 };
    static const int steps[] = {2, 5, 10, 20, LONGEST};
    static const layout_t layouts[] = {
        {DENSE, 3, "{" SHARD "optim, bucket_bytes: 4096}"},
        {DENSE, 3, "{" SHARD "optim, bucket_bytes: 4096, " BF16 "true}"},
        {DENSE, 3, "{" SHARD "none, bucket_bytes: 4096, " BF16 "true}"},
        {DENSE, 3, "{" SHARD "optim_grads_params, bucket_bytes: 4096, " BF16
                   "true}"},
    };
    layout_place_t place = layout_begin();
    layout_run_t run[4];
    char save[4][16];
    double losses[4][LONGEST];
    for (int k = 0; k < 4; k++) {
        snprintf(save[k], sizeof(save[k]), "bf16_%d", k);
        run[k] = run_of(save[k], &layouts[k],
                        k == 2 ? "comm: {overlap: false}"
                               : "comm: {overlap_work: 0}");
        run[k].steps = LONGEST;
        run[k].micro_batch_size = 8; /* one micro-batch a rank */
        run[k].losses = losses[k];
        layout_run(&place, &run[k]);
    }
    for (int i = 0; i < LOONG_COUNT_OF(steps); i++) {
        int at = steps[i] - 1;
        assert_true(fabs(losses[1][at] - losses[0][at]) <=
                    losses[0][at] / 256.0);
    }
    assert_true(run[0].grad_norm != run[1].grad_norm);
    layout_compare(&place, &run[2], &run[1], 0.0);
    layout_compare(&place, &run[3], &run[1], 0.0);
    assert_memory_equal(losses[2], losses[1], sizeof(losses[1]));
    assert_memory_equal(losses[3], losses[1], sizeof(losses[1]));
    layout_run_t wide = run_of("wide", &layouts[1], "");
    wide.dtype = "fp64";
    wide.refusal = "gradients of precision.params_dtype fp64 are not sent in "
                   "bf16";
    layout_run(&place, &wide);
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(pairs),
        cmocka_unit_test(reduce_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
