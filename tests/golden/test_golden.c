/* SPDX-License-Identifier: Apache-2.0
 *
 * Every fixture of transformers: logits, losses of tokens, the gradient of
 * every parameter, in f64 to 1e-9 and in f32 to 1e-5 (gradients 1e-4), with
 * and without passes. The bounds are those of the number formats. */
#include "test.h"

#include "fixture.h"

/* Latent attention computed the other way; other models are not run. */
static void absorb(loong_decoder_config_t *model)
{
    model->mla_absorb = LOONG_ABSORB_YES;
}

typedef struct variant {
    const char *name;
    fixture_params_t params;
    double bound;
    double grad_bound;
} variant_t;

static const variant_t variants[] = {
    {"f64 plain", {.dtype = LOONG_F64}, 1e-9, 1e-9},
    {"f64 fused",
     {.dtype = LOONG_F64, .fuse = true, .in_place = true, .threads = true},
     1e-9,
     1e-9},
    {"f64 recompute layers",
     {.dtype = LOONG_F64, .fuse = true, .in_place = true,
      .recompute = "layers.*"},
     1e-9,
     1e-9},
    {"f64 recompute core",
     {.dtype = LOONG_F64, .in_place = true,
      .recompute = "layers.*.self_attn.core"},
     1e-9,
     1e-9},
    {"f64 absorbed",
     {.dtype = LOONG_F64, .fuse = true, .in_place = true, .change = absorb},
     1e-9,
     1e-9},
    {"f32 absorbed",
     {.dtype = LOONG_F32, .fuse = true, .in_place = true, .change = absorb},
     1e-5,
     1e-4},
    {"f32 fused",
     {.dtype = LOONG_F32, .fuse = true, .in_place = true, .threads = true},
     1e-5,
     1e-4},
};

/* ||a - b|| / ||b||, or the plain norm of the difference when b is 0 (GPT-2's
 * key bias has no gradient). */
static double relative(const double *a, const double *b, int64_t n)
{
    double diff = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm > 1e-24 ? sqrt(diff / norm) : sqrt(diff);
}

static void compare(const char *what, const double *mine,
                    const double *theirs, int64_t n, double bound)
{
    double error = relative(mine, theirs, n);
    if (!(error <= bound)) {
        fail_msg("%s: relative error %.3g, bound %.3g", what, error, bound);
    }
}

static void check_losses(fixture_t *f, double bound)
{
    int64_t n = 0;
    int64_t count = 0;
    double *mine = fixture_losses(f, &count);
    const double *nll = fixture_find(f, "nll", &n);
    const double *weights = fixture_find(f, "loss_weights", &n);
    double *weighted = malloc((size_t)n * sizeof(*weighted));
    double total = 0.0;
    assert_int_equal(count, n);
    for (int64_t i = 0; i < n; i++) {
        weighted[i] = nll[i] * weights[i];
        total += mine[i];
    }
    compare("losses of tokens", mine, weighted, n, bound);
    const double *golden_sum = fixture_find(f, "loss_sum", &n);
    assert_true(fabs(total - *golden_sum) <= bound * fabs(*golden_sum));
    free(weighted);
    free(mine);
}

static int opened; /* by the test that runs */

static void fixture_matches(const char *name, const void *user)
{
    const variant_t *v = user;
    fixture_t f;
    int64_t n = 0;
    int64_t count = 0;
    if (!fixture_open(&f, name, &v->params)) {
        print_message("%s: not on %s\n", name, FIXTURE_DEVICE);
        return;
    }
    opened++;
    if (v->params.change == absorb && f.config.kv_lora_rank == 0) {
        fixture_close(&f);
        return;
    }
    print_message("%s, %s\n", name, v->name);
    double *logits = fixture_logits(&f, &count);
    const double *golden = fixture_find(&f, "logits", &n);
    assert_int_equal(count, n);
    compare("logits", logits, golden, n, v->bound);
    free(logits);
    check_losses(&f, v->bound);
    for (int64_t i = 0; i < fixture_num_grads(&f); i++) {
        fixture_grad_t g;
        fixture_grad_get(&f, i, &g);
        compare(g.golden, g.mine, g.theirs, g.count, v->grad_bound);
        fixture_grad_free(&g);
    }
    if (v == variants) { /* the model is the same in all */
        fixture_all_grads(&f);
    }
    fixture_close(&f);
}

static void all_fixtures(void **state)
{
    opened = 0;
    int seen = fixture_each(fixture_matches, *state);
    assert_true((seen >= 62 && opened == seen) ||
                getenv("LOONG_FIXTURE") != NULL);
}

/* ---- blocks --------------------------------------------------------------
 *
 * A fixture is worth something when it sees that a block is left out or taken
 * for another: each of these must move the logits far beyond the bound. */

typedef struct block {
    const char *name;
    const char *fixture;
    void (*change)(loong_decoder_config_t *model);
    const char *dropped; /* a parameter that becomes zeros; NULL: none */
} block_t;

static void no_scaling(loong_decoder_config_t *m)
{
    m->rope.scaling = LOONG_ROPE_DEFAULT;
}

static void plain_scores(loong_decoder_config_t *m)
{
    m->softmax_scale = 1.0 / sqrt(m->kv_channels);
}

static void no_mscale(loong_decoder_config_t *m)
{
    m->rope.mscale = m->rope.mscale_all_dim = 0.0;
}

static void all_channels(loong_decoder_config_t *m)
{
    m->rope.rotary_dim = m->kv_channels;
}

static void other_pairs(loong_decoder_config_t *m)
{
    m->rope_interleaved = !m->rope_interleaved;
}

static void no_groups(loong_decoder_config_t *m)
{
    m->router.num_groups = 0;
}

static void other_sums(loong_decoder_config_t *m)
{
    m->router.group_scores = m->router.group_scores == 1 ? 2 : 1;
}

static void no_factor(loong_decoder_config_t *m)
{
    m->router.scaling_factor = 1.0;
}

static void other_score(loong_decoder_config_t *m)
{
    m->router.score = m->router.score == LOONG_SCORE_SOFTMAX
                          ? LOONG_SCORE_SIGMOID
                          : LOONG_SCORE_SOFTMAX;
    m->router.pre_softmax = false;
}

static void other_softmax(loong_decoder_config_t *m)
{
    m->router.pre_softmax = !m->router.pre_softmax;
}

#define BIAS ".mlp.gate.e_score_correction_bias"
static const block_t blocks[] = {
    {"yarn", "llama_yarn", no_scaling, NULL},
    {"yarn of latent attention", "deepseek_v2_yarn", no_scaling, NULL},
    {"mscale in the softmax", "deepseek_v2_yarn", plain_scores, NULL},
    {"mscale in the tables", "deepseek_v2_yarn", no_mscale, NULL},
    {"mscale in the softmax", "kimi_k2_yarn", plain_scores, NULL},
    {"dynamic NTK", "internlm2_dynamic", no_scaling, NULL},
    {"a part of a head rotated", "minimax_m2", all_channels, NULL},
    {"a part of a head rotated", "minimax_m2_packed", all_channels, NULL},
    {"neighbours rotated", "ernie4_5_gqa", other_pairs, NULL},
    {"neighbours rotated", "deepseek_v2_lite", other_pairs, NULL},
    {"halves rotated", "deepseek_v3_halves", other_pairs, NULL},
    {"neighbours of a part rotated", "glm_gqa", other_pairs, NULL},
    {"norm of each head", "qwen3_gqa_tied", NULL,
     "layers.1.self_attn.q_norm.weight"},
    {"norm over all heads", "minimax_m2", NULL,
     "layers.1.self_attn.k_norm.weight"},
    {"shared expert", "deepseek_v2_lite", NULL,
     "layers.0.mlp.shared_expert.down_proj.weight"},
    {"shared expert behind a gate", "qwen2_moe", NULL,
     "layers.0.mlp.shared_expert_gate.weight"},
    {"shared expert beside two sets", "ernie4_5_vl_moe", NULL,
     "layers.1.mlp.shared_expert.down_proj.weight"},
    {"experts of images", "ernie4_5_vl_moe", NULL,
     "layers.1.mlp.vision_moe.experts.down_proj"},
    {"router of images", "ernie4_5_vl_moe_untied", NULL,
     "layers.1.mlp.vision_moe.gate.weight"},
    {"groups by their best expert", "deepseek_v2_groups", no_groups, NULL},
    {"groups by their best expert", "deepseek_v2_groups", other_sums, NULL},
    {"groups by two experts", "deepseek_v3_groups", no_groups, NULL},
    {"groups by two experts", "deepseek_v3_groups", other_sums, NULL},
    {"scaled weights", "deepseek_v2_groups", no_factor, NULL},
    {"scaled weights", "deepseek_v3_groups", no_factor, NULL},
    {"bias of the choice", "deepseek_v3_groups", NULL, "layers.1" BIAS},
    {"bias of the choice", "kimi_k2", NULL, "layers.0" BIAS},
    {"bias of the choice", "minimax_m2", NULL, "layers.0" BIAS},
    {"bias of the choice", "ernie4_5_moe", NULL, "layers.0" BIAS},
    {"bias of the choice in two sets", "ernie4_5_vl_moe", NULL,
     "layers.1" BIAS},
    {"sigmoid", "minimax_m2", other_score, NULL},
    {"softmax", "mixtral", other_score, NULL},
    {"softmax before the choice", "deepseek_v2_lite", other_softmax, NULL},
    {"softmax behind the choice", "qwen3_moe", other_softmax, NULL},
};

static void blocks_are_seen(void **state)
{
    const char *only = getenv("LOONG_FIXTURE");
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(blocks); i++) {
        const block_t *b = &blocks[i];
        fixture_params_t params = {.dtype = LOONG_F64,
                                   .fuse = true,
                                   .in_place = true,
                                   .change = b->change};
        fixture_t f;
        int64_t n = 0;
        int64_t count = 0;
        if (only != NULL && strcmp(only, b->fixture) != 0) {
            continue;
        }
        fixture_open(&f, b->fixture, &params);
        if (b->dropped != NULL) {
            fixture_drop(&f, b->dropped);
        }
        double *logits = fixture_logits(&f, &count);
        double error = relative(logits, fixture_find(&f, "logits", &n), count);
        print_message("%s, %s: %.1e without it\n", b->fixture, b->name,
                      error);
        if (!(error > 1e-5)) {
            fail_msg("%s does not see %s", b->fixture, b->name);
        }
        free(logits);
        fixture_close(&f);
    }
}

/* Devices but the processor have fp32 alone: the last one. */
int main(void)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(variants) + 1];
    int64_t first = strcmp(FIXTURE_DEVICE, "cpu") == 0
                        ? 0
                        : LOONG_COUNT_OF(variants) - 1;
    for (int64_t i = 0; i < LOONG_COUNT_OF(variants); i++) {
        const variant_t *v = &variants[LOONG_MAX(i, first)];
        struct CMUnitTest test = {v->name, all_fixtures, NULL, NULL,
                                  (void *)(uintptr_t)v};
        tests[i] = test;
    }
    size_t count = (size_t)(LOONG_COUNT_OF(variants) - first);
    if (first == 0) {
        const struct CMUnitTest test = cmocka_unit_test(blocks_are_seen);
        tests[count++] = test;
    }
    return _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
}
