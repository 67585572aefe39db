/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes: units, reading by a wrong path, keys nobody reads, and what a
 * resumed run may change. */
#include "decoder_config.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "resume_check.h"
#include "test.h"

enum { LOG_SIZE = 4000 };

static void keep_log(void *user, loong_log_level_t level, const char *line)
{
    char *log = user;
    size_t length = strlen(log);
    (void)level;
    snprintf(log + length, LOG_SIZE - length, "%s\n", line);
}

static loong_context_t *log_context(char log[LOG_SIZE])
{
    loong_context_params_t params = {keep_log, log, LOONG_LOG_INFO};
    loong_context_t *ctx = NULL;
    log[0] = '\0';
    assert_int_equal(loong_context_create(&params, &ctx), LOONG_OK);
    return ctx;
}

static loong_recipe_t *parse(loong_context_t *ctx, const char *text,
                             const char *override)
{
    loong_recipe_params_t params = {NULL, override != NULL, &override, 0, NULL};
    loong_recipe_t *recipe = NULL;
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", text, &params, &recipe));
    return recipe;
}

/* ---- units ---- */

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *override;
        const char *path;
        double value;
    } good[] = {
        {"train.train_tokens=30M", "train.train_tokens", 30e6},
        {"train.train_tokens=1.5B", "train.train_tokens", 1.5e9},
        {"train.train_tokens=2T", "train.train_tokens", 2e12},
        {"train.train_iters=2k", "train.train_iters", 2000},
        {"train.train_iters=1e3", "train.train_iters", 1000},
        {"parallel.bucket_bytes=1MiB", "parallel.bucket_bytes", 1048576},
        {"parallel.bucket_bytes=1GB", "parallel.bucket_bytes", 1e9},
        {"parallel.bucket_bytes=8192B", "parallel.bucket_bytes", 8192},
        {"seed=1", "parallel.bucket_bytes", 33554432},
        {"train.max_wall_time=90m", "train.max_wall_time", 5400},
        {"train.max_wall_time=1500ms", "train.max_wall_time", 1.5},
        {"train.max_wall_time=2d", "train.max_wall_time", 172800},
    };
    static const struct {
        const char *override;
        const char *message;
    } bad[] = {
        {"train.train_tokens=30m", "a whole number such as 2000, 2k or 30M"},
        {"train.train_iters=1.5", "found 1.5, a whole number such as"},
        {"train.train_iters=0.0001k", "found 0.0001k"},
        {"train.train_iters=1kk", "found 1kk"},
        {"parallel.bucket_bytes=1M", "a size such as 4096, 32MiB or 1GB"},
        {"parallel.bucket_bytes=1KiB", "found 1KiB, allowed 4096 to"},
        {"train.max_wall_time=1MiB", "a time such as"},
        {"seed=1k", "found 1k, a whole number wanted"},
    };
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(good); i++) {
        loong_recipe_t *r = parse(ctx, "", good[i].override);
        assert_float_equal(loong_recipe_real(r, good[i].path), good[i].value,
                           0);
        assert_int_equal(loong_recipe_status(r), LOONG_OK);
        loong_recipe_destroy(&r);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(bad); i++) {
        loong_recipe_params_t params = {NULL, 1, &bad[i].override, 0, NULL};
        loong_recipe_t *r = NULL;
        assert_fails(ctx, loong_recipe_parse(ctx, "r.yaml", "", &params, &r),
                     LOONG_ERR_CONFIG, bad[i].message);
    }
    test_context_end(&ctx);
}

/* All problems are told, or as many as the trail holds and how many more. */
static void test_many_problems(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_text_t text = loongi_text_begin(ctx);
    loong_recipe_t *r = NULL;
    int more = 0;
    for (int i = 0; i < 400; i++) {
        loongi_text_printf(&text, "unheard_of_%d: 1\n", i);
    }
    assert_int_equal(
        loong_recipe_parse(ctx, "r.yaml", loongi_text_get(&text), NULL, &r),
        LOONG_ERR_CONFIG);
    const char *trail = loong_context_error(ctx);
    assert_non_null(strstr(trail, "the recipe: 400 problems"));
    assert_non_null(strstr(trail, "r.yaml:1: unknown key unheard_of_0"));
    assert_non_null(strstr(trail, "r.yaml:100: unknown key unheard_of_99"));
    assert_int_equal(sscanf(strrchr(trail, '\n'), "\n  and %d more", &more), 1);
    assert_true(more > 0 && more < 300);
    loongi_text_free(&text);
    test_context_end(&ctx);
}

/* ---- reading ---- */

static void ask_int(const loong_recipe_t *r, const char *path)
{
    assert_int_equal(loong_recipe_int(r, path), 0);
}

static void ask_real(const loong_recipe_t *r, const char *path)
{
    assert_float_equal(loong_recipe_real(r, path), 0.0, 0);
}

static void ask_bool(const loong_recipe_t *r, const char *path)
{
    assert_false(loong_recipe_bool(r, path));
}

static void ask_text(const loong_recipe_t *r, const char *path)
{
    assert_null(loong_recipe_text(r, path));
}

static void ask_count(const loong_recipe_t *r, const char *path)
{
    assert_int_equal(loong_recipe_count(r, path), 0);
}

static void ask_set(const loong_recipe_t *r, const char *path)
{
    assert_false(loong_recipe_is_set(r, path));
}

static void test_wrong_reads(void **state)
{
    (void)state;
    static const struct {
        void (*ask)(const loong_recipe_t *r, const char *path);
        const char *path;
    } cases[] = {
        {ask_int, "train.no_such"},
        {ask_int, "optimizer.lr"},
        {ask_int, "train"},
        {ask_int, "data.train[0]"},
        {ask_real, "device"},
        {ask_real, "data.train[0].nothing"},
        {ask_bool, "seed"},
        {ask_text, "recompute"},
        {ask_text, "seed[0]"},
        {ask_count, "seed"},
        {ask_count, "recompute.scopez"},
        {ask_set, "train.train_itres"},
        {ask_set, "train.rampup_batch_size[0].x"},
    };
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_recipe_t *r = parse(ctx, "", NULL);
        assert_int_equal(loong_recipe_status(r), LOONG_OK);
        cases[i].ask(r, cases[i].path);
        assert_int_equal(loong_recipe_status(r), LOONG_ERR_INTERNAL);
        assert_non_null(strstr(loong_context_error(ctx), cases[i].path));
        loong_context_clear_error(ctx);
        loong_recipe_destroy(&r);
    }
    /* Right ones, also where nothing is set. */
    loong_recipe_t *r = parse(ctx, "", NULL);
    ask_count(r, "data.train");
    ask_count(r, "data.train[3].split_");
    assert_int_equal(loong_recipe_status(r), LOONG_ERR_INTERNAL);
    loong_context_clear_error(ctx);
    loong_recipe_destroy(&r);
    r = parse(ctx, "", NULL);
    ask_text(r, "data.train[3].path");
    ask_int(r, "train.rampup_batch_size[2]");
    ask_text(r, "recompute.scopes[0]");
    ask_set(r, "data.validation");
    assert_int_equal(loong_recipe_status(r), LOONG_OK);
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static loong_status_t ignore(void *user, const char *key, const char *value)
{
    (void)user;
    (void)key;
    (void)value;
    return LOONG_OK;
}

static void test_unread(void **state)
{
    (void)state;
    char log[LOG_SIZE];
    loong_context_t *ctx = log_context(log);
    loong_recipe_t *r = parse(ctx,
                              "seed: 1\n"
                              "name: null\n"
                              "device: cpu\n"
                              "data:\n"
                              "  train: [{path: a,\n"
                              "    weight: 1}]\n"
                              "eval: {interval: 3, sample: {top_k: 2}}\n"
                              "recompute: {scopes: [a, b]}\n"
                              "train: {rampup_batch_size: [1, 2, 3]}\n",
                              "comm.timeout=9");
    assert_int_equal(loong_recipe_int(r, "seed"), 1);
    assert_string_equal(loong_recipe_text(r, "data.train[0].path"), "a");
    assert_int_equal(loong_recipe_count(r, "recompute.scopes"), 2);
    assert_ok(ctx, loong_recipe_each(r, "eval", ignore, NULL));
    loong_recipe_warn_unread(r);
    assert_string_equal(
        log,
        "r.yaml:3: device is set, but nothing in this run reads it\n"
        "r.yaml:6: data.train[0].weight is set, but nothing in this run reads "
        "it\n"
        "r.yaml:9: train.rampup_batch_size is set, but nothing in this run "
        "reads it\n"
        "command line: comm.timeout is set, but nothing in this run reads "
        "it\n");
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static void test_where(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r =
        parse(ctx, "\ndata:\n  train:\n    - path: x\n", "seed=3");
    assert_string_equal(loong_recipe_where(r, "data.train[0].path"),
                        "r.yaml:4");
    assert_string_equal(loong_recipe_where(r, "seed"), "command line");
    assert_string_equal(loong_recipe_where(r, "log.interval"), "default");
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

/* ---- resuming
 * ----------------------------------------------------------------- */

static const char saved[] = "train: {train_iters: 2k, global_batch_size: 8,\n"
                            "        rampup_batch_size: [2, 2, 100]}\n"
                            "optimizer: {adam_eps: 1e-3, adam_beta1: 0.9}\n"
                            "data: {train: [{path: a}, {path: b}],\n"
                            "       seq_length: 64}\n"
                            "model: {freeze: [a, b]}\n"
                            "log: {interval: 5}\n"
                            "checkpoint: {async: True}\n";

static loong_status_t collect(void *user, const loong_recipe_change_t *change)
{
    char *text = user;
    size_t length = strlen(text);
    snprintf(text + length, LOG_SIZE - length, "%s: %s -> %s %d\n",
             change->path, change->before != NULL ? change->before : "(none)",
             change->after != NULL ? change->after : "(none)",
             (int)change->resume);
    return strcmp(change->path, "stop.here") == 0 ? LOONG_ERR_INTERRUPTED
                                                  : LOONG_OK;
}

static void test_compare(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char text[LOG_SIZE] = "";
    loong_recipe_t *before = parse(ctx, saved, NULL);
    /* The same values, written otherwise; defaults written out. */
    loong_recipe_t *after = parse(
        ctx,
        "log: {interval: 5.0}\n"
        "model: {freeze: [\"a\", 'b']}\n"
        "data: {seq_length: 64, train: [{path: a}, {path: b, max_epochs: 0}],\n"
        "       validation: []}\n"
        "optimizer: {adam_eps: 0.001, adam_beta1: 0.90, weight_decay: 0.1}\n"
        "train: {train_iters: 2000, global_batch_size: 8,\n"
        "        rampup_batch_size: [2, 2.0, 1e2], max_wall_time: 0s}\n"
        "checkpoint: {async: true}\n",
        "parallel.bucket_bytes=33554432");
    assert_ok(ctx, loong_recipe_compare(before, after, collect, text));
    assert_string_equal(text, "");
    loong_recipe_destroy(&after);
    after = parse(ctx,
                  "train: {train_iters: 3k, global_batch_size: 8}\n"
                  "optimizer: {adam_eps: 2e-3}\n"
                  "data: {train: [{path: a}, {path: c, weight: 2}, {path: d}]"
                  "}\n"
                  "model: {freeze: [a, b, c]}\n",
                  NULL);
    assert_ok(ctx, loong_recipe_compare(before, after, collect, text));
    assert_string_equal(text,
                        "model.freeze: [a, b] -> [a, b, c] 0\n"
                        "data.train[1].path: b -> c 1\n"
                        "data.train[2].path: (none) -> d 1\n"
                        "data.train[1].weight: (none) -> 2.0 1\n"
                        "data.seq_length: 64 -> (none) 0\n"
                        "train.rampup_batch_size: [2, 2, 100] -> (none) 0\n"
                        "train.train_iters: 2000 -> 3000 1\n"
                        "optimizer.adam_eps: 0.001 -> 0.002 0\n"
                        "log.interval: 5 -> 10 1\n");
    loong_recipe_destroy(&after);
    loong_recipe_destroy(&before);
    test_context_end(&ctx);
}

static void test_resume(void **state)
{
    (void)state;
    char log[LOG_SIZE];
    loong_context_t *ctx = log_context(log);
    loong_recipe_t *before = parse(ctx, saved, NULL);
    loong_recipe_t *after = parse(ctx, saved, "log.interval=9");
    assert_ok(ctx, loong_recipe_check_resume(before, after));
    assert_string_equal(log,
                        "changed since the checkpoint: log.interval: 5 -> 9\n");
    loong_recipe_destroy(&after);
    log[0] = '\0';

    after = parse(ctx, saved, "train.global_batch_size=16");
    assert_ok(ctx, loong_recipe_set(after, "model.freeze[0]", "z", "me"));
    assert_int_equal(loong_recipe_check_resume(before, after),
                     LOONG_ERR_MISMATCH);
    assert_non_null(
        strstr(loong_context_error(ctx), "resume.override: 2 problems"));
    assert_non_null(strstr(loong_context_error(ctx),
                           "command line: train.global_batch_size: 8 in the "
                           "checkpoint, now 16"));
    assert_non_null(strstr(loong_context_error(ctx),
                           "model.freeze: [a, b] in the checkpoint, now [z, "
                           "b]"));
    loong_context_clear_error(ctx);
    assert_string_equal(log, "");
    loong_recipe_destroy(&after);
    loong_recipe_destroy(&before);
    test_context_end(&ctx);
}

/* A key, or a map or list it is in; not a name that only begins alike. */
static void test_override(void **state)
{
    (void)state;
    static const struct {
        const char *names;
        bool allows;
    } cases[] = {
        {"[train.global_batch_size]", true},
        {"[seed, train]", true},
        {"[train.global_batch]", false},
        {"[trai]", false},
        {"[optimizer]", false},
        {"[]", false},
    };
    char log[LOG_SIZE];
    loong_context_t *ctx = log_context(log);
    loong_recipe_t *before = parse(ctx, saved, NULL);
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        char override[128];
        snprintf(override, sizeof(override), "resume.override=%s",
                 cases[i].names);
        loong_recipe_t *after = parse(ctx, saved, override);
        assert_ok(ctx, loong_recipe_set(after, "train.global_batch_size", "16",
                                        "me"));
        log[0] = '\0';
        assert_int_equal(loong_recipe_check_resume(before, after),
                         cases[i].allows ? LOONG_OK : LOONG_ERR_MISMATCH);
        assert_true(strstr(log, "8 -> 16 (resume.override)") != NULL ||
                    !cases[i].allows);
        assert_true(loong_recipe_may_change(after, "train.global_batch_size") ==
                    cases[i].allows);
        loong_context_clear_error(ctx);
        loong_recipe_destroy(&after);
    }
    loong_recipe_t *after = parse(ctx, saved, "resume.override=[data]");
    assert_true(loong_recipe_may_change(after, "data.train[0].path"));
    assert_true(loong_recipe_may_change(after, "data"));
    loong_recipe_destroy(&after);
    loong_recipe_destroy(&before);
    test_context_end(&ctx);
}

/* ---- models ---- */

#define LLAMA "family: llama"
#define EXPERTS                                                 \
    "family: deepseek_v3, num_experts: 4, kv_lora_rank: 8, "    \
    "qk_head_dim: 8, qk_pos_emb_head_dim: 8, v_head_dim: 8"
#define F "model.foundation."

static loong_recipe_t *parse_model(loong_context_t *ctx, const char *keys)
{
    char text[1000];
    snprintf(text, sizeof(text),
             "model: {foundation: {%s, num_layers: 3, hidden_size: 32,\n"
             "  num_attention_heads: 4, vocab_size: 64,\n"
             "  max_position_embeddings: 16}}\n", keys);
    return parse(ctx, text, NULL);
}

static loong_status_t set_key(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

static loong_status_t add_key(void *user, const char *key, const char *value)
{
    return loongi_pairs_get(user, key) == NULL ? set_key(user, key, value)
                                               : LOONG_OK;
}

/* The keys of a model, as a trainer has them. */
static loong_pairs_t *state_model(loong_context_t *ctx,
                                  const loong_recipe_t *recipe)
{
    loong_decoder_config_t config;
    loong_pairs_t *keys = NULL;
    assert_ok(ctx, loongi_pairs_create(ctx, &keys));
    assert_ok(ctx,
              loong_recipe_each(recipe, "model.foundation", set_key, keys));
    assert_ok(ctx, loongi_decoder_configure(ctx, keys, &config));
    assert_ok(ctx, loongi_decoder_state(&config, add_key, keys));
    return keys;
}

/* The metadata of a checkpoint, of a time when families had other defaults:
 * other is "key", which was not stated, or "key=value", parted by spaces. */
static loong_pairs_t *metadata_of(loong_context_t *ctx, const char *keys,
                                  const char *other)
{
    const char *text = NULL;
    loong_pairs_t *meta = NULL;
    loong_recipe_t *recipe = parse_model(ctx, keys);
    loong_pairs_t *model = state_model(ctx, recipe);
    assert_ok(ctx, loongi_pairs_create(ctx, &meta));
    assert_ok(ctx, loong_recipe_print(recipe, false, &text));
    assert_ok(ctx, loongi_pairs_set(meta, "recipe", text));
    for (int64_t i = 0; i < model->count; i++) {
        const loong_pair_t *pair = &model->items[i];
        const char *at = strstr(other, pair->key);
        char path[128];
        char value[64];
        size_t length = strlen(pair->key);
        snprintf(path, sizeof(path), F "%s", pair->key);
        snprintf(value, sizeof(value), "%s", pair->value);
        if (at == NULL || strchr("= ", at[length]) == NULL ||
            sscanf(at + length, "=%63s", value) == 1) {
            assert_ok(ctx, loongi_pairs_set(meta, path, value));
        }
    }
    loongi_pairs_destroy(&model);
    loong_recipe_destroy(&recipe);
    return meta;
}

static const struct {
    const char *before;
    const char *other;
    const char *after;
    const char *told; /* NULL: it goes on */
} models[] = {
    {LLAMA, "", LLAMA ", num_query_groups: 4, rotary_base: 1e4", NULL},
    {LLAMA, "", LLAMA ", rope_scaling: {type: none}", NULL},
    {LLAMA, "", LLAMA ", make_vocab_size_divisible_by: 128", NULL},
    {LLAMA ", num_query_groups: 4", "", LLAMA, NULL},
    {EXPERTS, "", EXPERTS ", moe_router_norm_topk_prob: true", NULL},
    /* 8 ** -0.5 is not 1 / sqrt(8), by a rounding. */
    {LLAMA, "", LLAMA ", softmax_scale: 0.3535533905932738", NULL},
    {LLAMA, "", LLAMA ", softmax_scale: 0.3535533906", "now 0.3535533906"},
    {LLAMA, "", LLAMA ", num_query_groups: 2",
     "r.yaml:1: " F "num_query_groups: 4 in the checkpoint, now 2"},
    {LLAMA ", num_query_groups: 2", "", LLAMA,
     "default: " F "num_query_groups: 2 in the checkpoint, now 4; set it "
     "to 2 to go on as before"},
    {LLAMA, "untie_embeddings_and_output_weights=false", LLAMA,
     F "untie_embeddings_and_output_weights: false in the checkpoint, now "
       "true; set it to false to go on as before"},
    {LLAMA, "untie_embeddings_and_output_weights=false",
     LLAMA ", untie_embeddings_and_output_weights: false", NULL},
    {EXPERTS, "moe_router_score_function moe_router_norm_topk_prob ", EXPERTS,
     F "moe_router_score_function: softmax in the checkpoint, now "
       "sigmoid; set it to softmax to go on as before"},
    {EXPERTS, "moe_router_topk_scaling_factor ", EXPERTS,
     F "moe_router_topk_scaling_factor: 1.0 in the checkpoint, now 2.5; "
       "set it to 1.0 to go on as before"},
    {EXPERTS, "moe_router_enable_expert_bias ", EXPERTS,
     F "moe_router_enable_expert_bias: false in the checkpoint, now true; "
       "set it to false to go on as before"},
    {EXPERTS, "moe_router_topk_scaling_factor ",
     EXPERTS ", moe_router_topk_scaling_factor: 1", NULL},
    {EXPERTS, "window_size qk_layernorm_whole ", EXPERTS, NULL},
    {EXPERTS ", moe_layer_freq: '[0]*1+[1]*2'", "",
     EXPERTS ", moe_layer_freq: '[0]+[1]*'", NULL},
    {EXPERTS, "", EXPERTS ", moe_layer_freq: 1", NULL},
    {EXPERTS, "", EXPERTS ", moe_layer_freq: '[0]+[1]*'",
     F "moe_layer_freq: 1 in the checkpoint, now [0]*1+[1]*"},
};

/* Models are compared by what they are. */
static void test_models(void **state)
{
    (void)state;
    const loong_status_t codes[] = {LOONG_ERR_MISMATCH, LOONG_ERR_CONFIG};
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int64_t i = 0; i < LOONG_COUNT_OF(models); i++) {
        loong_pairs_t *meta =
            metadata_of(ctx, models[i].before, models[i].other);
        loong_recipe_t *after = parse_model(ctx, models[i].after);
        loong_pairs_t *model = state_model(ctx, after);
        const loong_model_keys_t keys = {1, {"foundation"}, {model}};
        for (int e = 0; e < 2; e++) {
#define CHECK loongi_resume_check(meta, after, &keys, "fp32", e > 0)
            if (models[i].told == NULL) {
                assert_ok(ctx, CHECK);
            } else {
                assert_fails(ctx, CHECK, codes[e], models[i].told);
            }
        }
        loongi_pairs_destroy(&model);
        loong_recipe_destroy(&after);
        loongi_pairs_destroy(&meta);
    }
    test_context_end(&ctx);
}

/* ---- every allocation fails once
 * -------------------------------------------------- */

static loong_status_t use(loong_context_t *ctx)
{
    static const char *const overrides[] = {"seed=3", "data.train[0].path=z"};
    loong_recipe_params_t params = {NULL, 2, overrides, 0, NULL};
    loong_recipe_t *a = NULL;
    loong_recipe_t *b = NULL;
    const char *text = NULL;
    char changes[LOG_SIZE] = "";
    loong_status_t status = loong_recipe_parse(ctx, "a", saved, &params, &a);
    if (status == LOONG_OK) {
        status = loong_recipe_parse(ctx, "b", saved, NULL, &b);
    }
    if (status == LOONG_OK) {
        status = loong_recipe_set(a, "name", "x", "me");
    }
    if (status == LOONG_OK) {
        status = loong_recipe_print(a, true, &text);
    }
    if (status == LOONG_OK) {
        status = loong_recipe_compare(a, b, collect, changes);
    }
    loong_recipe_destroy(&a);
    loong_recipe_destroy(&b);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    loong_status_t status = LOONG_ERR_MEMORY;
    uint64_t n = 0;
    while (status != LOONG_OK) {
        loong_context_t *ctx = test_context();
        loong_context_fail_alloc(ctx, ++n);
        status = use(ctx);
        if (status != LOONG_OK) {
            assert_int_equal(status, LOONG_ERR_MEMORY);
        }
        test_context_end(&ctx);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_many_problems),
        cmocka_unit_test(test_wrong_reads),
        cmocka_unit_test(test_unread),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_override),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
