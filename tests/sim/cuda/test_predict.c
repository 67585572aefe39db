/* SPDX-License-Identifier: Apache-2.0
 *
 * The step that --dry-run predicts for a device that is not there, against the
 * arithmetic by hand. */
#include <stdlib.h>

#include "loong/comm.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "test.h"

enum { TEXT = 8192, MAX_KEYS = 10 };

/* Two layers, two heads of 128, 1024 tokens of bf16. */
static const char model[] =
    "model:\n"
    "  foundation: {family: llama, num_layers: 2, hidden_size: 256,\n"
    "    ffn_hidden_size: 1024, num_attention_heads: 2, kv_channels: 128,\n"
    "    num_query_groups: 2, vocab_size: 512, max_position_embeddings: 256}\n"
    "precision: {params_dtype: bf16}\n"
    "data: {seq_length: 256, train: [{path: none}]}\n"
    "train: {micro_batch_size: 2, global_batch_size: 4, train_iters: 1}\n"
    "optimizer: {lr: 1e-3}\n"
    "device: cuda\n";
enum {
    TOKENS = 1024,
    HIDDEN = 256,
    HEAD = 128,
    FFN = 1024,
    VOCAB = 512,
    LAYERS = 2,
    LENGTH = 256
};

static loong_status_t predict(loong_context_t *ctx, int ranks,
                              const char *const *keys, char told[TEXT])
{
    loong_comm_t *comm = NULL;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    const char *text = NULL;
    loong_recipe_params_t with = {LOONG_SOURCE_DIR "/configs", 0, keys, 0,
                                  NULL};
    while (with.num_overrides < MAX_KEYS && keys[with.num_overrides] != NULL) {
        with.num_overrides++;
    }
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    assert_ok(ctx, loong_recipe_parse(ctx, "predict.yaml", model, &with,
                                      &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .plan_only = true, .plan_ranks = ranks};
    loong_status_t status = loong_trainer_create(ctx, &params, &trainer);
    if (status == LOONG_OK) {
        status = loong_trainer_predict(trainer, &text);
    }
    if (status == LOONG_OK) {
        snprintf(told, TEXT, "%s", text);
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    loong_comm_destroy(&comm);
    return status;
}

/* The number behind a word. */
static double number(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    if (at == NULL) {
        fail_msg("no '%s' in\n%s", word, text);
        return 0.0;
    }
    return strtod(at + strlen(word), NULL);
}

static void assert_close(double found, double wanted, double off)
{
    if (!(fabs(found - wanted) <= off)) {
        fail_msg("%.6g, wanted is %.6g, %.2g off at most", found, wanted, off);
    }
}

typedef struct figures {
    double step, products, attention, passes, gaps;
} figures_t;

static double take_step(const char *const *keys, int ranks, char text[TEXT])
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, predict(ctx, ranks, keys, text));
    test_context_end(&ctx);
    return number(text, "predicted step: ");
}

static figures_t take(const char *const *keys, int ranks, char text[TEXT])
{
    figures_t f;
    f.step = take_step(keys, ranks, text);
    f.products = number(text, "of a rank: products ");
    f.attention = number(text, ", attention ");
    f.passes = number(text, "passes over memory ");
    f.gaps = number(text, "between kernels ");
    return f;
}

/* Rates so low that every figure has its digits: 1 GFLOP/s and 1 GB/s. */
#define SLOW                                                                  \
    "predict.tflops=0.001", "predict.products=1", "predict.copy=1"

/* Products: six operations a token for each of their parameters. */
static void by_hand(void **state)
{
    static const char *const slow[MAX_KEYS] = {SLOW};
    static const char *const local[MAX_KEYS] = {
        SLOW, "train.attention_backend=local"};
    static const char *const twice[MAX_KEYS] = {
        "predict.tflops=0.002", "predict.products=1", "predict.copy=2"};
    char text[TEXT];
    double layer = 4.0 * HIDDEN * HIDDEN + 3.0 * HIDDEN * FFN;
    double products =
        6.0 * TOKENS * (LAYERS * layer + (double)HIDDEN * VOCAB) * 1e-9;
    /* Causal half forward, 2.5 times that backward, at cuDNN's 61 and 43 %, or
     * at our 26 and 14. */
    double half = 2.0 * TOKENS * (LENGTH + 1) * HIDDEN * LAYERS * 1e-9;
    double attention = half / 0.61 + 2.5 * half / 0.43;
    double own = half / 0.26 + 2.5 * half / 0.14;
    (void)state;
    figures_t f = take(slow, 1, text);
    print_message("%s", text);
    assert_close(f.products, 1e3 * products, 0.1);
    assert_close(f.attention, 1e3 * attention, 0.1);
    assert_close(f.step,
                        f.products + f.attention + f.passes + f.gaps, 0.25);
    assert_non_null(strstr(text, "predicted, not measured"));
    assert_non_null(strstr(text, "of an H200"));
    /* The gradients of half the scores, in bf16, are written and read. */
    double scores = half / (4.0 * HEAD) * 4.0 / 0.85;
    figures_t l = take(local, 1, text);
    assert_close(l.attention, 1e3 * own, 0.1);
    assert_close(f.passes - l.passes, 1e3 * scores, 0.2);
    figures_t g = take(twice, 1, text);
    assert_close(2.0 * g.products, f.products, 0.2);
    assert_close(2.0 * g.attention, f.attention, 0.2);
    assert_close(2.0 * g.passes, f.passes, 0.2);
    assert_close(g.gaps, f.gaps, 0.0);
}

/* With graphs less time passes between kernels, and nothing else changes. */
static void graphs(void **state)
{
    static const char *const with[MAX_KEYS] = {
        SLOW, "train.cuda_graph_impl=local"};
    static const char *const without[MAX_KEYS] = {SLOW};
    char text[TEXT];
    (void)state;
    figures_t f = take(with, 1, text);
    figures_t g = take(without, 1, text);
    assert_close(3.0 * f.gaps, g.gaps, 0.031);
    assert_close(f.passes, g.passes, 0.0);
}

/* Two tensor parallel ranks sum 2 x 2 times a layer and micro-batch, and for
 * the embedding, and what the loss needs; the wires are all that counts. */
static void wires(void **state)
{
    static const char *const near[MAX_KEYS] = {
        SLOW, "parallel.tensor_model_parallel_size=2", "predict.link=0.001",
        "predict.network=0.0001", "comm.overlap=false"};
    static const char *const far[MAX_KEYS] = {
        SLOW, "parallel.tensor_model_parallel_size=2", "predict.link=0.001",
        "predict.network=0.0001", "predict.machine=1"};
    char text[TEXT];
    (void)state;
    take(near, 2, text);
    double one = number(text, ", collectives ");
    double exposed = number(text, "of these ");
    print_message("%s", text);
    /* 2 (n - 1) / n times the bytes of 512 tokens in bf16. */
    double sum = 512.0 * HIDDEN * 2.0 / 0.001e9;
    double count = one * 1e-3 / sum;
    assert_true(count > 2.0 * (4.0 * LAYERS + 1.0));
    assert_true(count < 2.0 * (4.0 * LAYERS + 3.0));
    assert_close(exposed, one, 0.1); /* nothing runs beside them */
    take(far, 2, text);
    double ten = number(text, ", collectives ");
    assert_close(ten, 10.0 * one, 0.01 * ten);
}

/* A pipeline of two equal stages: messages and the idle share of the simulated
 * schedule. */
static void pipeline(void **state)
{
    static const char *const keys[MAX_KEYS] = {
        SLOW, "parallel.pipeline_model_parallel_size=2",
        "train.global_batch_size=8"};
    static const char *const late[MAX_KEYS] = {
        SLOW, "parallel.pipeline_model_parallel_size=2",
        "train.global_batch_size=8", "predict.link=0.0001"};
    char text[TEXT];
    (void)state;
    figures_t f = take(keys, 2, text);
    double idle = number(text, "idle ");
    print_message("%s", text);
    assert_true(idle > 100.0 / 5.0 * 0.8 && idle < 60.0);
    figures_t g = take(late, 2, text);
    /* 512 tokens there and back, 2.6 s each, in the way at least once. */
    assert_true(g.step > f.step + 2.0 * 2621.0);
}

static void refused(void **state)
{
    static const char *const on_cpu[MAX_KEYS] = {"device=cpu",
                                                 "predict.device=h200"};
    static const char *const other[MAX_KEYS] = {"predict.device=a100"};
    char text[TEXT];
    loong_context_t *ctx = test_context();
    (void)state;
    assert_fails(ctx, predict(ctx, 1, on_cpu, text), LOONG_ERR_CONFIG,
                 "this run is on the processor");
    test_context_end(&ctx);
    take(other, 1, text);
    assert_non_null(strstr(text, "of an A100: products 218.4 of 312 TFLOP/s"));
}

/* ---- several kinds ------------------------------------------------------- */

#define MIXED "device=null", "devices=[cuda:0, xpu:1]"
#define SLOW_XPU "predict.device=p800_press", SLOW

/* Data-parallel ranks: each does what it does where all are of its kind, and
 * the step is that of the slower. */
static void mixed_replicas(void **state)
{
    static const char *const alone[MAX_KEYS] = {"device=xpu", SLOW_XPU};
    static const char *const both[MAX_KEYS] = {MIXED, SLOW_XPU};
    static const char *const shared[MAX_KEYS] = {
        MIXED, SLOW_XPU, "parallel.data_parallel_shares=[3,1]",
        "train.global_batch_size=8"};
    char text[TEXT];
    (void)state;
    double products = take(alone, 2, text).products;
    double step = take_step(both, 2, text);
    print_message("%s", text);
    assert_close(number(text, "of a rank on xpu: products "), products, 0.1);
    assert_close(number(text, "as 1 (xpu), of 1 micro-batches: "), step, 0.0);
    assert_true(number(text, "as 0 (cuda), of 1 micro-batches: ") < step);
    assert_non_null(strstr(text, "of its press figures"));
    assert_non_null(strstr(text, "of its datasheet"));
    (void)take_step(shared, 2, text);
    assert_non_null(strstr(text, "as 0 (cuda), of 3 micro-batches: "));
    assert_non_null(strstr(text, "as 1 (xpu), of 1 micro-batches: "));
    assert_close(number(text, "of a rank on xpu: products "), products, 0.1);
}

/* A pipeline: the faster kind should have more layers, and with these the step
 * takes what was told. */
static void mixed_stages(void **state)
{
#define EIGHT                                                                 \
    MIXED, "model.foundation.num_layers=8",                                   \
        "train.global_batch_size=16", "parallel.pipeline_model_parallel_size=2"
    static const char *const equal[MAX_KEYS] = {EIGHT};
    char text[TEXT], layout[64], key[128];
    (void)state;
    double step = take_step(equal, 2, text);
    print_message("%s", text);
    double told = number(text, "L takes ");
    const char *better = strstr(text, "pipeline_model_parallel_layout=");
    assert_int_equal(sscanf(better, "%*[^=]=%63s", layout), 1);
    snprintf(key, sizeof(key), "parallel.pipeline_model_parallel_layout=%s",
             layout);
    const char *const moved[MAX_KEYS] = {EIGHT, key};
    assert_true(told < step);
    assert_close(take_step(moved, 2, text), told, 0.02 * told);
}

static void mixed_refused(void **state)
{
    static const char *const no_card[MAX_KEYS] = {MIXED, SLOW};
    static const char *const other[MAX_KEYS] = {
        "device=null", "devices=[cuda:0, cpu:1]", "predict.device=p800_press"};
    static const char *const cpu[MAX_KEYS] = {"device=null",
                                              "devices=[cuda:0, cpu:1]"};
    static const char *const context[MAX_KEYS] = {
        MIXED, "parallel.context_parallel_size=2"};
    char text[TEXT];
    loong_context_t *ctx = test_context();
    (void)state;
    assert_fails(ctx, predict(ctx, 2, no_card, text), LOONG_ERR_CONFIG,
                 "predict.tflops: 0.001");
    test_context_end(&ctx);
    ctx = test_context();
    assert_fails(ctx, predict(ctx, 2, other, text), LOONG_ERR_CONFIG,
                 "predict.device names the card that rates are of");
    test_context_end(&ctx);
    ctx = test_context();
    assert_ok(ctx, predict(ctx, 2, cpu, text));
    assert_non_null(strstr(text, "no rates of device cpu are known"));
    test_context_end(&ctx);
    ctx = test_context();
    assert_ok(ctx, predict(ctx, 2, context, text));
    assert_non_null(strstr(text, "ranks that hold the same layers as rank"));
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),  cmocka_unit_test(graphs),
        cmocka_unit_test(wires),    cmocka_unit_test(pipeline),
        cmocka_unit_test(refused),
        cmocka_unit_test(mixed_replicas),
        cmocka_unit_test(mixed_stages),
        cmocka_unit_test(mixed_refused),
    };
    setenv("CUDASIM_DEVICES", "0", 1); /* planned, not there */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
