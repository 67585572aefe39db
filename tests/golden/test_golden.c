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
    {"f64 plain", {LOONG_F64, false, false, NULL, NULL, NULL}, 1e-9, 1e-9},
    {"f64 fused", {LOONG_F64, true, true, NULL, NULL, NULL}, 1e-9, 1e-9},
    {"f64 recompute layers",
     {LOONG_F64, true, true, "layers.*", NULL, NULL},
     1e-9,
     1e-9},
    {"f64 recompute core",
     {LOONG_F64, false, true, "layers.*.self_attn.core", NULL, NULL},
     1e-9,
     1e-9},
    {"f64 absorbed", {LOONG_F64, true, true, NULL, absorb, NULL}, 1e-9, 1e-9},
    {"f32 absorbed", {LOONG_F32, true, true, NULL, absorb, NULL}, 1e-5, 1e-4},
    {"f32 fused", {LOONG_F32, true, true, NULL, NULL, NULL}, 1e-5, 1e-4},
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
    fixture_close(&f);
}

static void all_fixtures(void **state)
{
    opened = 0;
    int seen = fixture_each(fixture_matches, *state);
    assert_true((seen >= 21 && opened >= 21) ||
                getenv("LOONG_FIXTURE") != NULL);
}

/* Devices but the processor have fp32 alone: the last one. */
int main(void)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(variants)];
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
    return _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
}
