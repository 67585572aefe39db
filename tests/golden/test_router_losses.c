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

enum { SUMS = 8 };

static void aux_loss(loong_decoder_config_t *m)
{
    m->aux_loss_coeff = 1.0;
    m->sequence_balance = false;
    m->router_z_loss_coeff = 0.0;
}

static void seq_aux_loss(loong_decoder_config_t *m)
{
    aux_loss(m);
    m->sequence_balance = true;
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
};

typedef struct variant {
    const char *name;
    const router_loss_t *loss;
    loong_dtype_t dtype;
    const char *recompute;
    double bound, grad_bound;
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

static void fixture_matches(const char *name, const void *user)
{
    variant_t *v = (variant_t *)(uintptr_t)user;
    fixture_params_t params = {.dtype = v->dtype,
                               .fuse = true,
                               .in_place = true,
                               .recompute = v->recompute,
                               .change = v->loss->change};
    loong_safetensors_t *file = NULL;
    fixture_t f;
    char path[600];
    snprintf(path, sizeof(path), "%s/%s/router_losses.safetensors", FIXTURES,
             name);
    if (access(path, R_OK) != 0 || !fixture_open(&f, name, &params)) {
        return;
    }
    print_message("%s, %s\n", name, v->name);
    assert_ok(f.ctx, loongi_safetensors_open(f.ctx, path, &file));
    compare_all(&f, v, file);
    loongi_safetensors_close(&file);
    fixture_close(&f);
    v->opened++;
}

static void all_fixtures(void **state)
{
    variant_t *v = *state;
    fixture_each(fixture_matches, v);
    print_message("%s: %d fixtures, loss %.1e, gradients %.1e\n", v->name,
                  v->opened, v->worst, v->worst_grad);
    assert_true(v->opened >= 17 || getenv("LOONG_FIXTURE") != NULL);
}

int main(void)
{
    variant_t variants[] = {
        {"aux_loss f64", &kinds[0], LOONG_F64, NULL, 1e-9, 1e-9, 0, 0, 0},
        {"seq_aux_loss f64", &kinds[1], LOONG_F64, NULL, 1e-9, 1e-9, 0, 0, 0},
        {"z_loss f64", &kinds[2], LOONG_F64, NULL, 1e-9, 1e-9, 0, 0, 0},
        {"aux_loss f32 recompute", &kinds[0], LOONG_F32, "layers.*", 1e-5,
         1e-4, 0, 0, 0},
    };
    struct CMUnitTest tests[LOONG_COUNT_OF(variants)];
    for (int64_t i = 0; i < LOONG_COUNT_OF(variants); i++) {
        struct CMUnitTest test = {variants[i].name, all_fixtures, NULL, NULL,
                                  &variants[i]};
        tests[i] = test;
    }
    return _cmocka_run_group_tests("router_losses", tests,
                                   LOONG_COUNT_OF(tests), NULL, NULL);
}
