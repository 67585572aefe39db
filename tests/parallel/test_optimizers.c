/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of optimizers beside AdamW: in f64 every layout gives the same to
 * 1e-9, states of the optimizer included; ZeRO gives the same bits; a run goes
 * on in another layout, and refuses states of another class. */
#include "layout_run.h"

/* Without biases of keys, whose gradient is rounding alone: lion takes the sign
 * of it. */
#define QWEN                                                                \
    "{family: qwen3, num_layers: 2, hidden_size: 24, ffn_hidden_size: 50, " \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "         \
    "vocab_size: 61, max_position_embeddings: 64}"
#define EXPERTS                                                     \
    "{family: qwen3_moe, num_layers: 2, hidden_size: 24, "          \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, " \
    "vocab_size: 61, max_position_embeddings: 64, num_experts: 4, " \
    "moe_ffn_hidden_size: 20, moe_router_topk: 2}"

#define TP "tensor_model_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define SHARD "data_parallel_sharding: "

static const char *const classes[] = {
    "name: lion, ema: {decay: 0.8}",
    "name: sgd, sgd_nesterov: true, ema: {decay: 0.8}"};

static layout_run_t make_run(const char *save, const char *optimizer, int ranks,
                             const char *parallel)
{
    layout_run_t run = {.save = save,
                        .model = QWEN,
                        .parallel = parallel,
                        .more = "",
                        .optimizer = optimizer,
                        .dtype = "fp64",
                        .ranks = ranks,
                        .micro_batch_size = 4,
                        .steps = 3};
    return run;
}

typedef struct layout {
    bool experts;
    int ranks;
    const char *parallel;
} layout_t;

static void layouts_agree(void **state)
{
    static const layout_t layouts[] = {
        {false, 3, "{" SHARD "optim, bucket_bytes: 8192}"},
        {false, 3, "{" SHARD "optim_grads, bucket_bytes: 8192}"},
        {false, 3, "{" SHARD "optim_grads_params, bucket_bytes: 8192}"},
        {false, 2, "{" TP "2, sequence_parallel: true}"},
        {false, 2, "{" PP "2}"},
        {true, 4,
         "{" TP "2, sequence_parallel: true, "
         "expert_model_parallel_size: 2}"},
    };
    (void)state;
    for (int c = 0; c < LOONG_COUNT_OF(classes); c++) {
        layout_place_t place = layout_begin();
        layout_run_t dense = make_run("dense", classes[c], 1, "{}");
        layout_run_t experts = make_run("experts", classes[c], 1, "{}");
        experts.model = EXPERTS;
        layout_run(&place, &dense);
        layout_run(&place, &experts);
        for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
            char save[16];
            snprintf(save, sizeof(save), "layout%d", i);
            layout_run_t run = make_run(save, classes[c], layouts[i].ranks,
                                        layouts[i].parallel);
            const layout_run_t *one = layouts[i].experts ? &experts : &dense;
            run.model = one->model;
            layout_run(&place, &run);
            layout_compare(&place, &run, one, 1e-9);
        }
        layout_end(&place);
    }
}

/* Each kind of parameter under a class of its own. */
static void groups_agree(void **state)
{
#define PARTED                                                            \
    "groups: [{scope: embed_tokens}, {scope: lm_head}, {scope: '*norm', " \
    "name: sgd}, "                                                        \
    "{scope: 'layers.*_proj', name: lion, lr: 1e-3, weight_decay: 0.3}"
    static const layout_t layouts[] = {
        {false, 3, "{" SHARD "optim_grads_params, bucket_bytes: 8192}"},
        {false, 2, "{" PP "2}"},
        {true, 4,
         "{" TP "2, sequence_parallel: true, "
         "expert_model_parallel_size: 2}"},
    };
    (void)state;
    layout_place_t place = layout_begin();
    layout_run_t dense = make_run("dense", PARTED "]", 1, "{}");
    layout_run_t experts = make_run(
        "experts", PARTED ", {scope: 'layers.*.gate', lr: 1e-4}]", 1, "{}");
    experts.model = EXPERTS;
    layout_run(&place, &dense);
    layout_run(&place, &experts);
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        const layout_run_t *one = layouts[i].experts ? &experts : &dense;
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(save, one->optimizer, layouts[i].ranks,
                                    layouts[i].parallel);
        run.model = one->model;
        layout_run(&place, &run);
        layout_compare(&place, &run, one, 1e-9);
    }
    layout_end(&place);
#undef PARTED
}

/* Whole matrices, wherever their parts are; what cannot be is refused. */
static void muon_agrees(void **state)
{
#define MUON                                                               \
    "groups: [{scope: embed_tokens}, {scope: lm_head}, {scope: '*norm'}, " \
    "{scope: 'layers.*_proj', name: muon}"
    static const layout_t layouts[] = {
        {false, 3, "{" SHARD "none}"},
        {false, 3, "{" SHARD "optim, bucket_bytes: 8192}"},
        {false, 3, "{" SHARD "optim_grads}"},
        {false, 3, "{" SHARD "optim_grads_params, bucket_bytes: 8192}"},
        {false, 2, "{" TP "2, sequence_parallel: true}"},
        {false, 4, "{" TP "2, bucket_bytes: 8192, " SHARD "optim}"},
        {false, 4, "{" TP "2, " SHARD "optim_grads_params}"},
        {false, 2, "{" PP "2}"},
        {true, 4,
         "{" TP "2, sequence_parallel: true, "
         "expert_model_parallel_size: 4, "
         "expert_tensor_parallel_size: 1}"},
        {true, 2, "{" SHARD "optim_grads_params}"},
    };
    (void)state;
    layout_place_t place = layout_begin();
    layout_run_t dense = make_run("dense", MUON "]", 1, "{}");
    layout_run_t experts =
        make_run("experts", MUON ", {scope: 'layers.*.gate'}]", 1, "{}");
    experts.model = EXPERTS;
    layout_run(&place, &dense);
    layout_run(&place, &experts);
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        const layout_run_t *one = layouts[i].experts ? &experts : &dense;
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(save, one->optimizer, layouts[i].ranks,
                                    layouts[i].parallel);
        run.model = one->model;
        layout_run(&place, &run);
        layout_compare(&place, &run, one, 1e-9);
    }
    layout_run_t cut = make_run("cut", experts.optimizer, 2,
                                "{" TP "2, sequence_parallel: true, "
                                "expert_tensor_parallel_size: 2}");
    cut.model = EXPERTS;
    cut.failure = "class muon takes whole matrices";
    layout_run(&place, &cut);
    layout_run_t vectors = make_run("vectors", "name: muon", 1, "{}");
    vectors.failure = "layers.0.input_layernorm.weight is no matrix";
    layout_run(&place, &vectors);
    layout_end(&place);
#undef MUON
}

/* With states in bf16, rounded by chance. */
static void sharding_is_bit_equal(void **state)
{
    static const char *const in_bf16[] = {
        "name: lion, exp_avg_dtype: bf16, stochastic_rounding: true",
        "name: sgd, momentum_buffer_dtype: bf16, stochastic_rounding: true"};
    (void)state;
    for (int c = 0; c < LOONG_COUNT_OF(in_bf16); c++) {
        layout_place_t place = layout_begin();
        layout_run_t none = make_run("none", in_bf16[c], 3, "{" SHARD "none}");
        layout_run_t all =
            make_run("all", in_bf16[c], 3,
                     "{" SHARD "optim_grads_params, bucket_bytes: 8192}");
        none.dtype = all.dtype = "bf16";
        none.micro_batch_size = all.micro_batch_size = 8;
        layout_run(&place, &none);
        layout_run(&place, &all);
        layout_compare(&place, &all, &none, 0.0);
        layout_end(&place);
    }
}

static void resume_goes_on(void **state)
{
    (void)state;
    for (int c = 0; c < LOONG_COUNT_OF(classes); c++) {
        layout_place_t place = layout_begin();
        layout_run_t whole = make_run("whole", classes[c], 2, "{}");
        layout_run_t first = make_run("parts", classes[c], 2, "{}");
        layout_run_t second =
            make_run("parts", classes[c], 3, "{" SHARD "optim_grads_params}");
        first.stop_at = 2;
        second.load = "auto";
        layout_run(&place, &whole);
        layout_run(&place, &first);
        layout_run(&place, &second);
        layout_compare(&place, &second, &whole, 1e-9);
        layout_end(&place);
    }
}

static void another_class_is_refused(void **state)
{
    layout_place_t place = layout_begin();
    layout_run_t adamw = make_run("parts", NULL, 1, "{}");
    layout_run_t lion = make_run("parts", "name: lion", 1, "{}");
    (void)state;
    adamw.stop_at = 2;
    lion.load = "auto";
    lion.failure = "optimizer.name";
    layout_run(&place, &adamw);
    layout_run(&place, &lion);
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_agree),
        cmocka_unit_test(groups_agree),
        cmocka_unit_test(muon_agrees),
        cmocka_unit_test(sharding_is_bit_equal),
        cmocka_unit_test(resume_goes_on),
        cmocka_unit_test(another_class_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
