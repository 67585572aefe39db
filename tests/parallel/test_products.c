/* SPDX-License-Identifier: Apache-2.0
 *
 * Products beside the collectives of tensor parallel ranks
 * (parallel.tp_comm_overlap). */
#include "isa.h"
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

/* All ranks hold all experts, but their other steps cost differently. */
#define UNEVEN_EXPERTS                                                        \
    "{family: mixtral, num_layers: 2, hidden_size: 24, "                      \
    "num_attention_heads: 6, num_query_groups: 3, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, num_experts: 4, "           \
    "moe_router_topk: 2, moe_ffn_hidden_size: 20}"

#define TP "tensor_model_parallel_size: "
#define CP "context_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define EP "expert_model_parallel_size: "
#define PAIRS "overlap_moe_expert_parallel_comm: true"
#define SHARD "data_parallel_sharding: "

/* The shared expert runs while rows of other experts are on their way. */
#define ROUNDS                                                                \
    "moe_capacity_plan: 0.5, moe_token_dispatcher_type: alltoall, "
#define SP "sequence_parallel: true"
#define PRODUCTS "tp_comm_overlap: true"
#define LATENT                                                                \
    "{family: deepseek_v3, num_layers: 2, hidden_size: 24, "                  \
    "ffn_hidden_size: 42, num_attention_heads: 4, q_lora_rank: 12, "          \
    "kv_lora_rank: 8, qk_head_dim: 6, qk_pos_emb_head_dim: 4, "               \
    "v_head_dim: 5, vocab_size: 61, max_position_embeddings: 64, "            \
    "num_experts: 4, moe_router_topk: 2, moe_ffn_hidden_size: 20, "           \
    "moe_shared_expert_intermediate_size: 20}"

enum { STEPS = 3 };

typedef struct variant {
    const char *model;
    int ranks;
    const char *parallel; /* the last brace comes later */
    const char *dtype;
    const char *more;
} variant_t;

/* Below AVX-512 oneDNN sums a row of fp32 or bf16 in an order that depends on
 * how many rows there are; our own products of fp64 never do. */
static const char *dtype_of(const variant_t *v)
{
    return loongi_isa() >= LOONG_ISA_LEVEL_avx512 ? v->dtype : "fp64";
}

/* With and without. */
static void run_both(const layout_place_t *place, int index,
                     const variant_t *v)
{
    char save[2][16];
    char parallel[2][200];
    char more[200];
    layout_run_t run[2];
    snprintf(more, sizeof(more), "comm: {overlap_work: 0}\n%s", v->more);
    for (int k = 0; k < 2; k++) {
        snprintf(save[k], sizeof(save[k]), "%s%d", k ? "rows" : "all", index);
        snprintf(parallel[k], sizeof(parallel[k]), "%s%s}", v->parallel,
                 k ? ", " PRODUCTS : "");
        memset(&run[k], 0, sizeof(run[k]));
        run[k].save = save[k];
        run[k].model = v->model;
        run[k].parallel = parallel[k];
        run[k].more = more;
        run[k].dtype = dtype_of(v);
        run[k].ranks = v->ranks;
        run[k].micro_batch_size = v->ranks == 3 ? 3 : 2;
        run[k].steps = STEPS;
        layout_run(place, &run[k]);
    }
    layout_compare(place, &run[1], &run[0], 0.0);
}

/* Products on the rows of one rank after the other: the same bits as on all
 * rows at once, for every kind of product that has neighbours on other ranks,
 * with every neighbour of it in a program. */
static void products(void **state)
{
    (void)state;
    static const variant_t cases[] = {
        {DENSE, 2, "{" TP "2, " SP, "fp32", ""},
        {DENSE, 2, "{" TP "2, " SP, "bf16", ""},
        {DENSE, 4, "{" TP "4, " SP, "fp64", ""}, /* key heads twice */
        {UNEVEN, 3, "{" TP "3, " SP, "bf16", ""},
        {UNEVEN, 2, "{" TP "2, " SP ", " PAIRS, "fp32", ""},
        {LATENT, 2, "{" TP "2, " SP, "fp32", ""},
        {EXPERTS, 4, "{" TP "2, " EP "4, " SP, "fp32", ""},
        {LATENT, 4, "{" TP "2, " EP "2, " ROUNDS SP, "fp32",
         "recompute: {granularity: full}"},
        {DENSE, 4, "{" TP "2, " CP "2, cp_comm_type: p2p, " SP, "fp32", ""},
        {DENSE, 2, "{" TP "2, " SP, "fp32",
         "recompute: {granularity: selective, scopes: [layers.*.mlp]}"},
        {DENSE, 2, "{" TP "2, " SP, "fp32",
         "recompute: {granularity: full}"},
        {UNEVEN, 4, "{" TP "2, " PP "2, " SP, "fp32",
         "schedule: zero_bubble_h1"},
        {UNEVEN, 4, "{" TP "2, " SP ", " SHARD "optim_grads_params, "
                     "bucket_bytes: 4096", "fp32", ""},
        {UNEVEN_EXPERTS, 4, "{" TP "2, " SP ", " SHARD "optim_grads_params, "
                            "bucket_bytes: 4096, " PAIRS, "fp32", ""},
    };
    layout_place_t place = layout_begin();
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        /* Its bf16 would be the fp64 of the one before it. */
        if (i != 1 || dtype_of(&cases[i]) == cases[i].dtype) {
            run_both(&place, i, &cases[i]);
        }
    }
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
