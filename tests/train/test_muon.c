/* SPDX-License-Identifier: Apache-2.0
 *
 * A training under Muon against the formula, written here once more; the
 * formula against torch.optim.Muon. */
#include "train_job.h"

#include "torch_muon.h"

/* ---- the formula --------------------------------------------------------- */

/* c [n,m] = a [n,k] times b [k,m]. */
static void multiply(const int64_t size[3], const double *a, const double *b,
                     double *c)
{
    int64_t n = size[0];
    int64_t k = size[1];
    int64_t m = size[2];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < k; l++) {
                sum += a[i * k + l] * b[l * m + j];
            }
            c[i * m + j] = sum;
        }
    }
}

static void transpose(int64_t n, int64_t m, const double *a, double *t)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m; j++) {
            t[j * n + i] = a[i * m + j];
        }
    }
}

static double *numbers(int64_t n)
{
    double *v = calloc((size_t)n, sizeof(*v));
    assert_non_null(v);
    return v;
}

/* Jordan et al. 2024: x [n,m] in place, n <= m; 5 steps. */
static void newton_schulz(int64_t n, int64_t m, double *x)
{
    double *a = numbers(n * n);
    double *b = numbers(n * n);
    double *next = numbers(n * m);
    double *t = numbers(n * m);
    double norm = 0.0;
    for (int64_t i = 0; i < n * m; i++) {
        norm += x[i] * x[i];
    }
    for (int64_t i = 0; i < n * m; i++) {
        x[i] /= fmax(sqrt(norm), 1e-7);
    }
    for (int step = 0; step < 5; step++) {
        transpose(n, m, x, t);
        multiply((const int64_t[3]){n, m, n}, x, t, a);
        multiply((const int64_t[3]){n, n, n}, a, a, b);
        for (int64_t i = 0; i < n * n; i++) {
            b[i] = 2.0315 * b[i] - 4.7750 * a[i];
        }
        multiply((const int64_t[3]){n, n, m}, b, x, next);
        for (int64_t i = 0; i < n * m; i++) {
            x[i] = 3.4445 * x[i] + next[i];
        }
    }
    free(a);
    free(b);
    free(next);
    free(t);
}

typedef struct settings {
    double lr, momentum, weight_decay;
    bool nesterov, match_rms;
} settings_t;

/* A step of p [n,m] with momentum b. */
static void muon(int64_t n, int64_t m, const settings_t *s, const double *g,
                 double *p, double *b)
{
    double *u = numbers(n * m);
    double *t = numbers(n * m);
    double size = s->match_rms ? 0.2 * sqrt((double)(n > m ? n : m))
                  : n > m      ? sqrt((double)n / (double)m)
                               : 1.0;
    for (int64_t i = 0; i < n * m; i++) {
        b[i] += (1.0 - s->momentum) * (g[i] - b[i]);
        u[i] = s->nesterov ? g[i] + s->momentum * (b[i] - g[i]) : b[i];
    }
    if (n > m) {
        transpose(n, m, u, t);
        newton_schulz(m, n, t);
        transpose(m, n, t, u);
    } else {
        newton_schulz(n, m, u);
    }
    for (int64_t i = 0; i < n * m; i++) {
        p[i] = p[i] * (1.0 - s->lr * s->weight_decay) - s->lr * size * u[i];
    }
    free(u);
    free(t);
}

/* Errors of 2^-53 grow by 3.4445 a step of Newton-Schulz at most. */
static const double bound = 1e-12;

static void formula_is_torch(void **state)
{
    (void)state;
    for (int c = 0; c < LOONG_COUNT_OF(torch_muon); c++) {
        settings_t s = {torch_lr, 0.9, 0.1, torch_muon[c].nesterov,
                        torch_muon[c].match_rms};
        int64_t size = torch_muon[c].rows * torch_muon[c].cols;
        double g[16];
        double p[16];
        double b[16] = {0.0};
        for (int i = 0; i < size; i++) {
            p[i] = cos(i);
        }
        for (int t = 0; t < TORCH_STEPS; t++) {
            for (int i = 0; i < size; i++) {
                g[i] = sin(1 + i + 3 * t);
            }
            muon(torch_muon[c].rows, torch_muon[c].cols, &s, g, p, b);
        }
        for (int i = 0; i < size; i++) {
            assert_true(fabs(p[i] - torch_muon[c].param[i]) <= bound);
        }
    }
}

/* ---- a training ---------------------------------------------------------- */

#define COMMON "optimizer.lr_decay_style=constant\noptimizer.clip_grad=0\n"
#define REST                                                                \
    "{scope: embed_tokens, name: sgd, lr: 0}, {scope: '*norm', name: sgd, " \
    "lr: 0}"

static void run(const job_place_t *p, const char *keys)
{
    job_result_t r;
    job_run(p, 2, keys, &r);
    if (r.status != LOONG_OK) {
        fail_msg("%s", r.error);
    }
}

/* Gradients are what plain SGD of rate 1 takes off; where they come from after
 * a step of Muon, a run that goes on with SGD tells. */
static double error_of(const job_place_t *p, const char *name, int64_t rows,
                       const settings_t *s)
{
    double *start = NULL;
    double *moved = NULL;
    double *got = NULL;
    double *buffer = NULL;
    char full[128];
    double most = 0.0;
    snprintf(full, sizeof(full), "foundation.%s", name);
    int64_t n = job_tensor(p, "start", "param", full, &start);
    assert_int_equal(job_tensor(p, "sgd", "param", full, &moved), n);
    assert_int_equal(job_tensor(p, "muon", "param", full, &got), n);
    assert_int_equal(job_tensor(p, "muon", "momentum_buffer", full, &buffer),
                     n);
    double *b = numbers(n);
    for (int64_t i = 0; i < n; i++) {
        moved[i] = start[i] - moved[i]; /* the gradient */
    }
    muon(rows, n / rows, s, moved, start, b);
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(start[i] - got[i]));
        most = fmax(most, fabs(b[i] - buffer[i]));
    }
    free(start);
    free(moved);
    free(got);
    free(buffer);
    free(b);
    return most;
}

static const struct {
    const char *name;
    int64_t rows;
} matrices[] = {{"layers.0.self_attn.k_proj.weight", 8},
                {"layers.1.self_attn.o_proj.weight", 24},
                {"layers.0.mlp.up_proj.weight", 40},
                {"layers.1.mlp.down_proj.weight", 24}};

/* The gradient is known to 2^-53 of the parameter, some 1e-13 of itself, and
 * Newton-Schulz makes 3.4445^5 of it at most. */
static void training_follows_the_formula(void **state)
{
    static const settings_t settings[] = {{0.02, 0.95, 0.1, true, false},
                                          {0.02, 0.95, 0.1, true, true}};
    (void)state;
    for (int c = 0; c < LOONG_COUNT_OF(settings); c++) {
        job_place_t p = job_begin();
        run(&p, COMMON "train.train_iters=1\noptimizer.lr=0\n"
                       "checkpoint.save=$DIR/start\n");
        run(&p, COMMON "train.train_iters=1\noptimizer={name: sgd, lr: 1, "
                       "sgd_momentum: 0, weight_decay: 0}\n"
                       "checkpoint.save=$DIR/sgd\n" COMMON);
        char keys[600];
        snprintf(keys, sizeof(keys),
                 COMMON "train.train_iters=1\noptimizer.lr=0.02\n"
                        "optimizer.weight_decay=0.1\n"
                        "optimizer.muon_scale_mode=%s\n"
                        "optimizer.groups=[{scope: layers.*_proj, "
                        "name: muon}, " REST "]\n"
                        "checkpoint.save=$DIR/muon\n",
                 settings[c].match_rms ? "match_rms_adamw" : "original");
        run(&p, keys);
        for (int i = 0; i < LOONG_COUNT_OF(matrices); i++) {
            double e =
                error_of(&p, matrices[i].name, matrices[i].rows, &settings[c]);
            if (!(e < 1e-9)) {
                fail_msg("%s: off by %g", matrices[i].name, e);
            }
        }
        job_end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formula_is_torch),
        cmocka_unit_test(training_follows_the_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
