/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses of routers, alone, and the gradient of every parameter: what
 * router_losses.py wrote down from the formulas, in f64 to 1e-9 and in f32 to
 * 1e-5 (gradients 1e-4). Gradients are compared by their norm and by sums with
 * random signs, which tell the norm of a difference; why that is enough stands
 * there. */
#include "test.h"

#include <unistd.h>

#include "fixture.h"
#include "json.h"

enum { SUMS = 8 };

static void aux_loss(loong_decoder_config_t *m)
{
    m->aux_loss_coeff = 1.0;
    m->balance = LOONG_BALANCE_MICRO_BATCH;
    m->router_z_loss_coeff = 0.0;
}

static void seq_aux_loss(loong_decoder_config_t *m)
{
    aux_loss(m);
    m->balance = LOONG_BALANCE_SEQUENCE;
}

static void pooled_aux_loss(loong_decoder_config_t *m)
{
    aux_loss(m);
    m->balance = LOONG_BALANCE_POOLED;
}

static void z_loss(loong_decoder_config_t *m)
{
    aux_loss(m);
    m->aux_loss_coeff = 0.0;
    m->router_z_loss_coeff = 1.0;
}

typedef struct router_loss {
    const char *name;
    void (*change)(loong_decoder_config_t *model);
    int row; /* of gradients in the files */
} router_loss_t;

static const router_loss_t kinds[] = {
    {"aux_loss", aux_loss, 0},
    {"seq_aux_loss", seq_aux_loss, 1},
    {"z_loss", z_loss, 2},
    {"transformers", pooled_aux_loss, 3},
};

typedef struct variant {
    const char *name;
    const router_loss_t *loss;
    loong_dtype_t dtype;
    const char *recompute;
    double bound, grad_bound;
    int wanted; /* fixtures */
    int opened;
    double worst, worst_grad;
} variant_t;

/* -1 or 1 for element i and sum k: bit k of splitmix64. */
static double sign_of(int64_t i, int k)
{
    uint64_t x = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (x >> k) & 1 ? -1.0 : 1.0;
}

/* The error of a gradient, relative where there is one; theirs: the norm and
 * the sums. */
static double error_of(const fixture_grad_t *g, const double *theirs)
{
    double sum[SUMS] = {0};
    double squares = 0.0;
    double error = 0.0;
    for (int64_t i = 0; i < g->count; i++) {
        squares += g->mine[i] * g->mine[i];
        for (int k = 0; k < SUMS; k++) {
            sum[k] += sign_of(g->place[i], k) * g->mine[i];
        }
    }
    for (int k = 0; k < SUMS; k++) {
        double d = sum[k] - theirs[1 + k];
        error += d * d / SUMS;
    }
    error = fmax(sqrt(error), fabs(sqrt(squares) - theirs[0]));
    return theirs[0] > 1e-12 ? error / theirs[0] : error;
}

static const double *find(loong_safetensors_t *file, const char *name,
                          int64_t columns)
{
    const loong_safetensor_t *t = loongi_safetensors_find(file, name);
    if (t == NULL) {
        fail_msg("%s is not in the file", name);
        return NULL;
    }
    assert_int_equal(t->shape[t->ndim - 1], columns);
    return t->data;
}

static void compare_all(fixture_t *f, variant_t *v, loong_safetensors_t *file)
{
    double theirs = *find(file, v->loss->name, 1);
    double error = fabs(fixture_router_loss(f) - theirs) / theirs;
    v->worst = fmax(v->worst, error);
    if (!(error <= v->bound)) {
        fail_msg("%s: relative error %.3g", v->loss->name, error);
    }
    for (int64_t i = 0; i < fixture_num_grads(f); i++) {
        fixture_grad_t g;
        fixture_grad_get(f, i, &g);
        const double *row =
            find(file, g.golden, 1 + SUMS) + v->loss->row * (1 + SUMS);
        error = error_of(&g, row);
        v->worst_grad = fmax(v->worst_grad, error);
        if (!(error <= v->grad_bound)) {
            fail_msg("%s of %s: relative error %.3g", g.golden, v->loss->name,
                     error);
        }
        fixture_grad_free(&g);
    }
}

/* What transformers adds to its loss is there where its class adds something:
 * the other losses of a fixture are always there. */
static void fixture_matches(const char *name, const void *user)
{
    variant_t *v = (variant_t *)(uintptr_t)user;
    fixture_params_t params = {.dtype = v->dtype,
                               .fuse = true,
                               .in_place = true,
                               .recompute = v->recompute,
                               .change = v->loss->change};
    loong_safetensors_t *file = NULL;
    loong_context_t *ctx = test_context();
    fixture_t f;
    char path[600];
    snprintf(path, sizeof(path), "%s/%s/router_losses.safetensors", FIXTURES,
             name);
    if (access(path, R_OK) == 0) {
        assert_ok(ctx, loongi_safetensors_open(ctx, path, &file));
    }
    bool there = file != NULL &&
                 (v->loss->change != pooled_aux_loss ||
                  loongi_safetensors_find(file, v->loss->name) != NULL);
    if (there && fixture_open(&f, name, &params)) {
        print_message("%s, %s\n", name, v->name);
        compare_all(&f, v, file);
        fixture_close(&f);
        v->opened++;
    }
    loongi_safetensors_close(&file);
    test_context_end(&ctx);
}

static void all_fixtures(void **state)
{
    variant_t *v = *state;
    fixture_each(fixture_matches, v);
    print_message("%s: %d fixtures, loss %.1e, gradients %.1e\n", v->name,
                  v->opened, v->worst, v->worst_grad);
    assert_true(v->opened >= v->wanted || getenv("LOONG_FIXTURE") != NULL);
}

/* Of a record, balance counts the experts that tokens go to, a bias or not. Let
 * all go to 0 1 2, then to 1 2 3, and so on around: every expert is counted
 * alike in the end, and E / (k n) sum over e of c_e s_e has the mean 1. One
 * layer has experts, so that its scores stay what they are. */
static void records_are_counted(void **state)
{
    enum { EXPERTS = 8, TOPK = 3 };
    double sum = 0.0;
    (void)state;
    for (int turn = 0; turn < EXPERTS; turn++) {
        loong_context_t *ctx = test_context();
        loong_text_t text = loongi_text_begin(ctx);
        loong_json_t *routing = NULL;
        fixture_params_t params = {.dtype = LOONG_F64, .change = aux_loss};
        fixture_t f;
        loongi_text_printf(&text, "{\"1\": [");
        for (int t = 0; t < 2 * 31; t++) {
            loongi_text_printf(&text, "%s[%d, %d, %d]", t > 0 ? ", " : "",
                               turn, (turn + 1) % EXPERTS,
                               (turn + 2) % EXPERTS);
        }
        loongi_text_printf(&text, "]}");
        assert_ok(ctx, loongi_json_parse(ctx, loongi_text_get(&text),
                                         text.length, "routing", &routing));
        params.routing = routing;
        fixture_open(&f, "deepseek_v3_groups", &params);
        assert_int_equal(f.config.num_experts, EXPERTS);
        assert_int_equal(f.config.router.topk, TOPK);
        assert_int_equal(f.batch * f.tokens, 2 * 31);
        assert_true(f.config.expert_bias);
        sum += fixture_router_loss(&f);
        fixture_close(&f);
        loongi_json_destroy(&routing);
        loongi_text_free(&text);
        test_context_end(&ctx);
    }
    if (!(fabs(sum / EXPERTS - 1.0) <= 1e-12)) {
        fail_msg("the mean over all experts is %.15g, not 1", sum / EXPERTS);
    }
}

int main(void)
{
    variant_t variants[] = {
        {"aux_loss f64", &kinds[0], LOONG_F64, NULL, 1e-9, 1e-9, 19, 0, 0, 0},
        {"seq_aux_loss f64", &kinds[1], LOONG_F64, NULL, 1e-9, 1e-9, 19, 0, 0,
         0},
        {"z_loss f64", &kinds[2], LOONG_F64, NULL, 1e-9, 1e-9, 19, 0, 0, 0},
        {"pooled_aux_loss f64", &kinds[3], LOONG_F64, NULL, 1e-9, 1e-9, 11, 0,
         0, 0},
        {"aux_loss f32 recompute", &kinds[0], LOONG_F32, "layers.*", 1e-5,
         1e-4, 19, 0, 0, 0},
        {"seq_aux_loss f32", &kinds[1], LOONG_F32, NULL, 1e-5, 1e-4, 19, 0, 0,
         0},
        {"z_loss f32", &kinds[2], LOONG_F32, NULL, 1e-5, 1e-4, 19, 0, 0, 0},
        {"pooled_aux_loss f32 recompute", &kinds[3], LOONG_F32, "layers.*",
         1e-5, 1e-4, 11, 0, 0, 0},
    };
    struct CMUnitTest tests[LOONG_COUNT_OF(variants) + 1];
    for (int64_t i = 0; i < LOONG_COUNT_OF(variants); i++) {
        struct CMUnitTest test = {variants[i].name, all_fixtures, NULL, NULL,
                                  &variants[i]};
        tests[i] = test;
    }
    const struct CMUnitTest records = cmocka_unit_test(records_are_counted);
    tests[LOONG_COUNT_OF(variants)] = records;
    return _cmocka_run_group_tests("router_losses", tests,
                                   LOONG_COUNT_OF(tests), NULL, NULL);
}
