/* SPDX-License-Identifier: Apache-2.0
 *
 * Moments in bf16, rounded stochastically: every layout draws the same, so that
 * layouts agree as they do without (in f64 to 1e-9, bit for bit where fp32
 * does); checkpoints keep them as they are, and take the other type in. */
#include "convert.h"
#include "layout_run.h"
#include "native.h"

#define GPT                                                                   \
    "{family: gpt2, num_layers: 2, hidden_size: 24, ffn_hidden_size: 50, "    \
    "num_attention_heads: 4, num_query_groups: 4, kv_channels: 6, "           \
    "vocab_size: 61, max_position_embeddings: 64, hidden_dropout: 0.1}"
#define EXPERTS                                                               \
    "{family: qwen3_moe, num_layers: 2, hidden_size: 24, "                    \
    "num_attention_heads: 4, num_query_groups: 2, kv_channels: 8, "           \
    "vocab_size: 61, max_position_embeddings: 64, num_experts: 4, "           \
    "moe_ffn_hidden_size: 20, moe_router_topk: 2}"

/* Of 8 shares of its parameters one begins with padding between two. */
#define PADDED                                                                \
    "{family: gpt2, num_layers: 2, hidden_size: 20, ffn_hidden_size: 50, "    \
    "num_attention_heads: 4, num_query_groups: 4, kv_channels: 6, "           \
    "vocab_size: 61, max_position_embeddings: 64, hidden_dropout: 0.1}"

#define BF16 "exp_avg_dtype: bf16, exp_avg_sq_dtype: bf16"
#define BY_CHANCE BF16 ", stochastic_rounding: true"
#define TP "tensor_model_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define SP "sequence_parallel: true"
#define EP "expert_model_parallel_size: "
#define ETP "expert_tensor_parallel_size: "
#define SHARD "data_parallel_sharding: "

static layout_run_t make_run(const char *save, const char *dtype, int ranks,
                             const char *parallel)
{
    layout_run_t run = {.save = save, .model = GPT, .parallel = parallel,
                        .more = "", .optimizer = BY_CHANCE, .dtype = dtype,
                        .ranks = ranks, .micro_batch_size = 4, .steps = 3};
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
    layout_run_t one = make_run("one", "fp64", 1, "{}");
    one.model = model;
    layout_run(&place, &one);
    for (int i = 0; i < count; i++) {
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run =
            make_run(save, "fp64", layouts[i].ranks, layouts[i].parallel);
        run.model = model;
        layout_run(&place, &run);
        layout_compare(&place, &run, &one, 1e-9);
    }
    layout_end(&place);
}

static void layouts_agree(void **state)
{
    static const layout_t layouts[] = {
        {3, "{" SHARD "optim_grads_params, bucket_bytes: 8192}"},
        {2, "{" TP "2, bucket_bytes: 8192}"},
        {2, "{" PP "2}"}, /* both ends have the embedding */
    };
    (void)state;
    check_layouts(GPT, LOONG_COUNT_OF(layouts), layouts);
}

static void layouts_of_experts_agree(void **state)
{
    static const layout_t layouts[] = {
        {4, "{" TP "2, " SP ", " EP "2, " ETP "1}"},
        {4, "{" TP "2, " SP ", " EP "2, " ETP "2}"},
    };
    (void)state;
    check_layouts(EXPERTS, LOONG_COUNT_OF(layouts), layouts);
}

/* One micro-batch to a rank; parts of unlike sizes. */
static void check_sharding(const char *model, int ranks, const char *parallel)
{
    layout_place_t place = layout_begin();
    layout_run_t none = make_run("none", "bf16", ranks, "{" SHARD "none}");
    layout_run_t all = make_run("all", "bf16", ranks, parallel);
    none.model = all.model = model;
    none.micro_batch_size = all.micro_batch_size = 24 / ranks;
    layout_run(&place, &none);
    layout_run(&place, &all);
    layout_compare(&place, &all, &none, 0.0);
    layout_end(&place);
}

static void sharding_is_bit_equal(void **state)
{
    (void)state;
    check_sharding(GPT, 3,
                   "{" SHARD "optim_grads_params, bucket_bytes: 8192}");
    check_sharding(PADDED, 8, "{" SHARD "optim}");
}

/* On as many ranks, in bf16, bit for bit; on another number in f64. */
static void resume_goes_on(void **state)
{
    static const struct {
        const char *dtype;
        int ranks;
        double bound;
    } cases[] = {{"bf16", 2, 0.0}, {"fp64", 3, 1e-9}};
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        layout_place_t place = layout_begin();
        layout_run_t whole = make_run("whole", cases[i].dtype, 2, "{}");
        layout_run_t first = make_run("parts", cases[i].dtype, 2, "{}");
        layout_run_t second =
            make_run("parts", cases[i].dtype, cases[i].ranks, "{}");
        first.stop_at = 2;
        second.load = "auto";
        layout_run(&place, &whole);
        layout_run(&place, &first);
        layout_run(&place, &second);
        layout_compare(&place, &second, &whole, cases[i].bound);
        layout_end(&place);
    }
}

static void open_checkpoint(const layout_place_t *place, const char *name,
                            loong_checkpoint_t **ck)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    assert_ok(place->ctx, loongi_checkpoint_open(place->ctx, path, ck));
}

/* Moments of the first are those of the second, rounded to nearest when they
 * are bf16. */
static void check_moments(const layout_place_t *place, const char *name,
                          loong_dtype_t dtype, const char *before)
{
    loong_checkpoint_t *now = NULL;
    loong_checkpoint_t *old = NULL;
    int count = 0;
    open_checkpoint(place, name, &now);
    open_checkpoint(place, before, &old);
    for (int64_t i = 0; i < loongi_checkpoint_count(now); i++) {
        const loong_checkpoint_tensor_t *x = loongi_checkpoint_get(now, i);
        const loong_checkpoint_tensor_t *y =
            loongi_checkpoint_find(old, x->kind, x->name);
        assert_non_null(y);
        if (strcmp(x->kind, "param") == 0) {
            continue;
        }
        int64_t n = x->shape[0] * (x->ndim > 1 ? x->shape[1] : 1);
        float *values = calloc((size_t)n, 2 * sizeof(*values));
        assert_non_null(values);
        assert_int_equal(x->dtype, dtype);
        assert_ok(place->ctx, loongi_checkpoint_read_rows(
                                  now, x, 0, x->shape[0], LOONG_F32, values));
        assert_ok(place->ctx,
                  loongi_checkpoint_read_rows(old, y, 0, y->shape[0],
                                              LOONG_F32, values + n));
        for (int64_t k = 0; k < n; k++) {
            float want = values[n + k];
            want = dtype == LOONG_BF16
                       ? loongi_bf16_to_f32(loongi_f32_to_bf16(want)) : want;
            assert_true(values[k] == want);
        }
        free(values);
        count++;
    }
    assert_true(count > 20);
    loongi_checkpoint_close(&now);
    loongi_checkpoint_close(&old);
}

/* fp32, then bf16, then fp32 again. */
static void moments_change_their_type(void **state)
{
    (void)state;
    layout_place_t place = layout_begin();
    char from[600];
    layout_run_t wide = make_run("wide", "bf16", 2, "{}");
    layout_run_t half = make_run("half", "bf16", 2, "{}");
    layout_run_t again = make_run("again", "bf16", 3, "{}");
    wide.optimizer = again.optimizer = NULL;
    half.save_only = again.save_only = true;
    layout_run(&place, &wide);
    snprintf(from, sizeof(from), "%s/wide", place.dir);
    half.load = from;
    layout_run(&place, &half);
    check_moments(&place, "half", LOONG_BF16, "wide");
    snprintf(from, sizeof(from), "%s/half", place.dir);
    again.load = from;
    layout_run(&place, &again);
    check_moments(&place, "again", LOONG_F32, "half");
    layout_end(&place);
}

/* A step errs by 2^-8 of itself, so the way that the loss has gone does not
 * by more. */
static void curve_is_near_that_of_fp32(void **state)
{
    static const char *const how[] = {BF16, BY_CHANCE};
    enum { STEPS = 24 };
    double want[STEPS];
    double got[STEPS];
    (void)state;
    layout_place_t place = layout_begin();
    layout_run_t wide = make_run("wide", "fp32", 1, "{}");
    wide.optimizer = NULL;
    wide.losses = want;
    wide.steps = STEPS;
    layout_run(&place, &wide);
    assert_true(wide.loss < want[0] - 0.1); /* it learns */
    for (int i = 0; i < LOONG_COUNT_OF(how); i++) {
        layout_run_t run = make_run(i == 0 ? "near" : "chance", "fp32", 1,
                                    "{}");
        run.optimizer = how[i];
        run.losses = got;
        run.steps = STEPS;
        layout_run(&place, &run);
        double worst = 0.0;
        for (int k = 0; k < STEPS; k++) {
            worst = fmax(worst, fabs(got[k] - want[k]));
        }
        assert_true(worst > 0.0);
        assert_true(worst <= 0x1p-8 * (want[0] - wide.loss));
    }
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_agree),
        cmocka_unit_test(layouts_of_experts_agree),
        cmocka_unit_test(sharding_is_bit_equal),
        cmocka_unit_test(resume_goes_on),
        cmocka_unit_test(moments_change_their_type),
        cmocka_unit_test(curve_is_near_that_of_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
