/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of a recipe over parameters: how they start, how much they decay,
 * which stay fixed. */
#include "train_job.h"

typedef struct moments {
    double mean;
    double std;
    double max; /* of the absolute values */
} moments_t;

static moments_t measure(const job_place_t *p, const char *name)
{
    double *v = NULL;
    char full[128];
    moments_t m = {0.0, 0.0, 0.0};
    snprintf(full, sizeof(full), "foundation.%s", name);
    int64_t n = job_tensor(p, "save", "param", full, &v);
    for (int64_t i = 0; i < n; i++) {
        m.mean += v[i] / (double)n;
        m.max = fmax(m.max, fabs(v[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        m.std += (v[i] - m.mean) * (v[i] - m.mean) / (double)n;
    }
    m.std = sqrt(m.std);
    free(v);
    return m;
}

/* Starts alone: a learning rate of zero leaves parameters as they began. */
#define START "train.train_iters=1\noptimizer.lr=0\n"

/* n numbers: their deviation lies within 5 deviations of its estimate,
 * std / sqrt(2 n) for a normal, less for the others. */
static void assert_std(const moments_t *m, double std, double n)
{
    if (fabs(m->std - std) > 5.0 * std / sqrt(2.0 * n) ||
        fabs(m->mean) > 5.0 * std / sqrt(n)) {
        fail_msg("mean %g, deviation %g, wanted 0, %g", m->mean, m->std, std);
    }
}

static void parameters_start_as_the_recipe_says(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    job_run(&p, 2,
            START "model.foundation.init_method_std=0.05\n"
                  "model.foundation.embedding_init_method_std=0.5\n"
                  "model.foundation.use_scaled_init_method=true\n"
                  "init.by_scope=["
                  "{scope: layers.0.mlp, method: uniform, std: 0.3}, "
                  "{scope: '*.mlp.down_proj', method: zeros}, "
                  "{scope: '*.q_proj.weight', method: truncated_normal}, "
                  "{scope: 'layers.1.*layernorm.weight', method: normal}]\n",
            &r);
    assert_int_equal(r.status, LOONG_OK);
    moments_t m = measure(&p, "embed_tokens.weight");
    assert_std(&m, 0.5, 61 * 24);
    m = measure(&p, "layers.0.self_attn.k_proj.weight");
    assert_std(&m, 0.05, 8 * 24);
    m = measure(&p, "layers.1.self_attn.o_proj.weight");
    assert_std(&m, 0.05 / sqrt(4.0), 24 * 24); /* sqrt(2 x 2 layers) */
    m = measure(&p, "layers.0.mlp.up_proj.weight");
    assert_std(&m, 0.3, 40 * 24);
    assert_true(m.max <= 0.3 * sqrt(3.0) && m.max > 0.29 * sqrt(3.0));
    m = measure(&p, "layers.0.mlp.down_proj.weight"); /* the last rule */
    assert_true(m.max == 0.0);
    m = measure(&p, "layers.1.mlp.down_proj.weight");
    assert_true(m.max == 0.0);
    m = measure(&p, "layers.1.self_attn.q_proj.weight");
    assert_true(m.max <= 3.0 * 0.05 && m.max > 2.0 * 0.05);
    m = measure(&p, "layers.1.input_layernorm.weight");
    assert_std(&m, 0.05, 24);
    m = measure(&p, "layers.0.input_layernorm.weight");
    assert_true(m.max == 1.0 && fabs(m.mean - 1.0) < 1e-14);
    job_end(&p);
}

/* Relative difference of a parameter of two runs. */
static double difference(const job_place_t *p, const char *save,
                         const char *other, const char *name)
{
    double *v[2] = {NULL, NULL};
    double most = 0.0;
    int64_t n = job_tensor(p, save, "param", name, &v[0]);
    assert_int_equal(job_tensor(p, other, "param", name, &v[1]), n);
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(v[0][i] - v[1][i]) / (1e-3 + fabs(v[1][i])));
    }
    free(v[0]);
    free(v[1]);
    return most;
}

/* One step from the same start: a group moves as under its class, rate and
 * decay alone. */
static void groups_move_as_if_alone(void **state)
{
#define ONE_STEP "train.train_iters=1\noptimizer.lr_decay_style=constant\n"
    static const struct {
        const char *save;
        const char *name; /* of a parameter of that group */
        const char *keys;
    } alone[] = {
        {"lion", "foundation.embed_tokens.weight",
         "optimizer.name=lion\noptimizer.lr=0.001\noptimizer.weight_decay=2\n"},
        {"sgd", "foundation.layers.1.mlp.down_proj.weight",
         "optimizer.name=sgd\noptimizer.lr=0.05\n"},
        {"adamw", "foundation.layers.1.self_attn.k_proj.weight",
         "optimizer.lr=0.01\n"}};
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    char keys[512];
    job_run(&p, 2,
            ONE_STEP "optimizer.lr=0.01\ncheckpoint.save=$DIR/groups\n"
                     "optimizer.groups=[{scope: embed_tokens, name: lion, "
                     "lr: 0.001, weight_decay: 2}, {scope: '*norm'}, "
                     "{scope: layers.*.self_attn.*_proj}, "
                     "{scope: layers.*.mlp, name: sgd, lr: 0.05}]\n",
            &r);
    if (r.status != LOONG_OK) {
        fail_msg("%s", r.error);
    }
    for (int i = 0; i < LOONG_COUNT_OF(alone); i++) {
        snprintf(keys, sizeof(keys), ONE_STEP "%scheckpoint.save=$DIR/%s\n",
                 alone[i].keys, alone[i].save);
        job_run(&p, 2, keys, &r);
        assert_int_equal(r.status, LOONG_OK);
    }
    for (int i = 0; i < LOONG_COUNT_OF(alone); i++) {
        for (int k = 0; k < LOONG_COUNT_OF(alone); k++) {
            double d = difference(&p, "groups", alone[k].save, alone[i].name);
            if ((i == k) != (d < 1e-13)) {
                fail_msg("%s differs by %g from a run of %s", alone[i].name, d,
                         alone[k].save);
            }
        }
    }
    job_end(&p);
#undef ONE_STEP
}

/* After one step from the same start the difference that decay makes is
 * lr x weight_decay x factor x the start, whatever Adam does besides. */
static double decay_of(const job_place_t *p, const char *name)
{
    double *v[3] = {NULL, NULL, NULL};
    static const char *const saves[] = {"start", "none", "rules"};
    double most = 0.0;
    double least = 1e9;
    char full[128];
    int64_t n = 0;
    snprintf(full, sizeof(full), "foundation.%s", name);
    for (int i = 0; i < 3; i++) {
        n = job_tensor(p, saves[i], "param", full, &v[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double factor = (v[1][i] - v[2][i]) / (0.01 * 0.5 * v[0][i]);
        if (fabs(v[0][i]) > 1e-3) {
            most = fmax(most, factor);
            least = fmin(least, factor);
        }
    }
    for (int i = 0; i < 3; i++) {
        free(v[i]);
    }
    if (most - least > 1e-6) {
        fail_msg("%s: factors from %g to %g", name, least, most);
    }
    return most;
}

static void weight_decay_follows_the_rules(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    job_result_t r;
    job_run(&p, 2, START "checkpoint.save=$DIR/start\n", &r);
    assert_int_equal(r.status, LOONG_OK);
    job_run(&p, 2,
            "train.train_iters=1\noptimizer.lr=0.01\n"
            "optimizer.weight_decay=0\noptimizer.lr_decay_style=constant\n"
            "checkpoint.save=$DIR/none\n",
            &r);
    assert_int_equal(r.status, LOONG_OK);
    job_run(&p, 2,
            "train.train_iters=1\noptimizer.lr=0.01\n"
            "optimizer.weight_decay=0.5\noptimizer.lr_decay_style=constant\n"
            "optimizer.weight_decay_rules=["
            "{scope: embed_tokens, factor: 0}, "
            "{scope: layers.1, factor: 0.5}, "
            "{scope: 'layers.1.*norm*', factor: 2}]\n"
            "checkpoint.save=$DIR/rules\n",
            &r);
    assert_int_equal(r.status, LOONG_OK);
    assert_true(fabs(decay_of(&p, "embed_tokens.weight")) < 1e-6);
    assert_true(fabs(decay_of(&p, "layers.0.mlp.up_proj.weight") - 1) < 1e-6);
    assert_true(fabs(decay_of(&p, "layers.0.input_layernorm.weight")) < 1e-6);
    assert_true(fabs(decay_of(&p, "layers.1.mlp.up_proj.weight") - .5) < 1e-6);
    assert_true(fabs(decay_of(&p, "layers.1.input_layernorm.weight") - 2) <
                1e-6);
    job_end(&p);
}

static void assert_refused(const job_place_t *p, const char *overrides,
                           const char *what)
{
    job_result_t r;
    job_run(p, 1, overrides, &r);
    if (r.status == LOONG_OK || strstr(r.error, what) == NULL) {
        fail_msg("status %d, wanted in the message: %s, found: %s", r.status,
                 what, r.error);
    }
}

static void rules_that_cannot_hold_are_refused(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    assert_refused(&p, "model.freeze=[norm, 're:layers.(0|1']\n",
                   "model.freeze[1]: found 're:layers.(0|1', which is no "
                   "extended regular expression: Unmatched ( or \\(");
    assert_refused(&p, "model.freeze=['re:^blocks']\n",
                   "model.freeze[0]: no parameter matches re:^blocks");
    assert_refused(&p, "model.freeze=[layers.7]\n",
                   "model.freeze[0]: no parameter matches layers.7; their "
                   "names are embed_tokens.weight to norm.weight");
    assert_refused(&p,
                   "optimizer.weight_decay_rules=[{scope: lm_head, factor: 1}]"
                   "\ninit.by_scope=[{scope: laers}]\n",
                   "optimizer.weight_decay_rules[0].scope: no parameter "
                   "matches lm_head");
    assert_refused(&p, "init.by_scope=[{scope: laers}]\n",
                   "init.by_scope[0].scope: no parameter matches laers");
    assert_refused(&p, "optimizer.weight_decay_rules=[{scope: layers}]\n",
                   "optimizer.weight_decay_rules[0].factor: not set");
    assert_refused(&p, "init.by_scope=[{scope: layers, method: gauss}]\n",
                   "init.by_scope[0].method: found gauss, allowed: normal");
    assert_refused(&p,
                   "optimizer.weight_decay_rules=[{scope: '*.q_proj', "
                   "factor: 0}]\n",
                   "must match both of them or neither");
    assert_refused(&p,
                   "optimizer.groups=[{scope: layers, name: lion}, "
                   "{scope: '*.mlp'}, {scope: norm}]\n",
                   "layers.0.mlp.gate_proj.weight is in the scopes of items 0 "
                   "and 1");
    assert_refused(&p,
                   "optimizer.groups=[{scope: layers, name: lion}, "
                   "{scope: norm}]\n",
                   "embed_tokens.weight is in no scope");
    assert_refused(&p, "optimizer.groups=[{scope: '*'}, {scope: laers}]\n",
                   "optimizer.groups[1].scope: no parameter matches laers");
    assert_refused(&p, "optimizer.groups=[{scope: '*.q_proj', name: sgd}]\n",
                   "must match both of them or neither");
    assert_refused(&p, "model.freeze=['*gate*']\n",
                   "layers.0.mlp.gate_proj.weight and "
                   "layers.0.mlp.up_proj.weight are rows of one matrix: globs "
                   "of model.freeze, ");
    assert_refused(&p,
                   "init.from_hf=/nowhere\ninit.by_scope=[{scope: layers}]\n",
                   "/nowhere");
    job_end(&p);
}

/* What bf16 holds of values that are saved as masters. */
static void round_to_bf16(double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float value = (float)values[i];
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        bits = (bits + 0x8000u) & 0xFFFF0000u;
        memcpy(&value, &bits, sizeof(bits));
        values[i] = value;
    }
}

/* They are saved as they are stored, in bf16 without what it does not hold,
 * and after the run has gone on. */
static void check_frozen(const char *dtype, const char *parallel)
{
    job_place_t p = job_begin();
    job_result_t r;
    double *v[2] = {NULL, NULL};
    char more[400];
    const char *const names[] = {"foundation.embed_tokens.weight",
                                 "foundation.layers.0.mlp.up_proj.weight"};
    snprintf(more, sizeof(more), START "checkpoint.save=$DIR/start\n%s%s",
             dtype, parallel);
    job_run(&p, 2, more, &r);
    assert_int_equal(r.status, LOONG_OK);
    for (int steps = 2; steps <= 4; steps += 2) {
        snprintf(more, sizeof(more),
                 "model.freeze=[embed_tokens]\ncheckpoint.load=auto\n"
                 "train.train_iters=%d\n%s%s", steps, dtype, parallel);
        job_run(&p, 2, more, &r);
        assert_int_equal(r.status, LOONG_OK);
    }
    for (int i = 0; i < 2; i++) {
        int64_t n = job_tensor(&p, "start", "param", names[i], &v[0]);
        job_tensor(&p, "save", "param", names[i], &v[1]);
        if (i == 0 && dtype[0] != '\0') {
            round_to_bf16(v[0], n);
        }
        bool same = memcmp(v[0], v[1], (size_t)n * sizeof(double)) == 0;
        assert_int_equal(same, i == 0);
        free(v[0]);
        free(v[1]);
    }
    job_end(&p);
}

static void frozen_parameters_stay(void **state)
{
    static const char *const parallel[] = {
        "parallel.data_parallel_sharding=optim\n",
        "parallel.data_parallel_sharding=optim_grads_params\n"};
    (void)state;
    check_frozen("", "");
    for (int64_t i = 0; i < LOONG_COUNT_OF(parallel); i++) {
        check_frozen("precision.params_dtype=bf16\n", parallel[i]);
    }
}

static bool moved(const job_place_t *p, const char *save, const char *name)
{
    double *v[2] = {NULL, NULL};
    char full[128];
    snprintf(full, sizeof(full), "foundation.%s", name);
    int64_t n = job_tensor(p, "start", "param", full, &v[0]);
    job_tensor(p, save, "param", full, &v[1]);
    bool same = memcmp(v[0], v[1], (size_t)n * sizeof(double)) == 0;
    free(v[0]);
    free(v[1]);
    return !same;
}

/* Layers at an end, and all that is not named. */
static void parts_of_a_model_stay(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        bool moves[3]; /* the first layer, the second one, the last norm */
    } runs[] = {
        {"model.foundation.freeze_first_layers=1\n", {false, true, true}},
        {"model.foundation.freeze_last_layers=1\n", {true, false, true}},
        {"model.freeze=['re:^layers\\.[1-9]\\.']\n", {true, false, true}},
        {"model.trainable=[norm]\n", {false, false, true}},
        {"model.trainable=['layers.*.mlp']\nmodel.freeze=[layers.1]\n",
         {true, false, false}},
    };
    job_place_t p = job_begin();
    job_result_t r;
    job_run(&p, 1, START "checkpoint.save=$DIR/start\n", &r);
    assert_int_equal(r.status, LOONG_OK);
    for (int i = 0; i < LOONG_COUNT_OF(runs); i++) {
        char keys[256];
        char save[16];
        snprintf(save, sizeof(save), "save%d", i);
        snprintf(keys, sizeof(keys),
                 "train.train_iters=3\ncheckpoint.save=$DIR/%s\n%s", save,
                 runs[i].keys);
        job_run(&p, 1, keys, &r);
        assert_int_equal(r.status, LOONG_OK);
        assert_int_equal(moved(&p, save, "layers.0.mlp.down_proj.weight"),
                         runs[i].moves[0]);
        assert_int_equal(moved(&p, save, "layers.1.mlp.down_proj.weight"),
                         runs[i].moves[1]);
        assert_int_equal(moved(&p, save, "norm.weight"), runs[i].moves[2]);
    }
    assert_refused(&p, "model.foundation.freeze_last_layers=3\n",
                   "found 3, the component has 2 layers");
    assert_refused(&p, "model.trainable=[layers.7]\n",
                   "model.trainable[0]: no parameter matches layers.7");
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_start_as_the_recipe_says),
        cmocka_unit_test(weight_decay_follows_the_rules),
        cmocka_unit_test(groups_move_as_if_alone),
        cmocka_unit_test(rules_that_cannot_hold_are_refused),
        cmocka_unit_test(frozen_parameters_stay),
        cmocka_unit_test(parts_of_a_model_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
