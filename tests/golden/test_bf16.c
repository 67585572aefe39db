/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16 against float64, inside what the type allows; and bugs that must leave
 * it.
 *
 * The envelope is measured by narrow.py on transformers: for each tensor the
 * root mean square, over runs with stochastic rounding, of the error's norm
 * and of its part along the tensor. An engine that rounds to nearest, at those
 * places or fewer, makes errors of half that variance. The norm of an error is
 * at worst one normal variable (all of it in one direction), so 3 times the
 * scale is 3 sqrt(2) = 4.2 of its standard deviations: one of about 40000
 * correct figures is outside, and there are about 2900. The bound belongs to
 * the statistics and not to the engine; it is not to be tuned.
 *
 * Small systematic errors hide in the rounding of one tensor, but have the
 * same sign everywhere, and roundings of different fixtures are independent.
 * So the errors along tensors, in units of their scales, are also pooled by
 * kind of parameter: the mean of a fixture's layers (which may depend on each
 * other), summed over the fixtures and divided by the root of their number,
 * has at most the spread of one of them: the same bound holds. */
#include "test.h"

#include "file.h"
#include "fixture.h"
#include "json.h"

#define ALLOWED 3.0

enum { MAX_KINDS = 64 };

/* Errors along the tensors of one kind: "layers.#.mlp.up_proj.weight". */
typedef struct kind {
    char name[80];
    double sum; /* over the tensors of the fixture at hand */
    int tensors;
    double total; /* over fixtures */
    int fixtures;
} kind_t;

typedef struct survey {
    double ratio; /* the worst, of a scale of the envelope */
    char what[600];
    int opened; /* fixtures that the device has kernels for */
    int num_kinds;
    kind_t kinds[MAX_KINDS];
} survey_t;

/* e = mine - theirs: its norm, and its part along theirs. */
static void measure(const double *mine, const double *theirs, int64_t count,
                    double *error_p, double *along_p)
{
    double squares = 0.0;
    double dot = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double e = mine[i] - theirs[i];
        squares += e * e;
        dot += e * theirs[i];
        norm += theirs[i] * theirs[i];
    }
    *error_p = sqrt(squares);
    *along_p = norm > 1e-24 ? dot / sqrt(norm) : 0.0;
}

static void note(survey_t *s, const char *name, const char *kind, double found,
                 double scale)
{
    double ratio = found == 0.0 ? 0.0 : fabs(found) / scale;
    if (!(ratio <= s->ratio)) { /* a NaN is the worst */
        s->ratio = ratio;
        snprintf(s->what, sizeof(s->what), "%s: %s %.3g, scale of bf16 %.3g",
                 name, kind, found, scale);
    }
}

static kind_t *kind_of(survey_t *s, const char *parameter)
{
    char name[80];
    int used = 0;
    for (const char *c = parameter; *c != '\0' && used < 79; c++) {
        name[used++] = *c >= '0' && *c <= '9' ? '#' : *c;
    }
    name[used] = '\0';
    for (int i = 0; i < s->num_kinds; i++) {
        if (strcmp(s->kinds[i].name, name) == 0) {
            return &s->kinds[i];
        }
    }
    assert_true(s->num_kinds < MAX_KINDS);
    kind_t *kind = &s->kinds[s->num_kinds++];
    memcpy(kind->name, name, sizeof(name));
    return kind;
}

static void weigh(survey_t *s, const loong_json_t *envelope, const char *name,
                  const fixture_grad_t *g)
{
    const loong_json_t *scales = loongi_json_get(envelope, name);
    double error = 0.0;
    double along = 0.0;
    if (scales == NULL) {
        fail_msg("%s is not in bf16.json", name);
    }
    double scale = loongi_json_real(loongi_json_at(scales, 1));
    measure(g->mine, g->theirs, g->count, &error, &along);
    note(s, name, "error", error, loongi_json_real(loongi_json_at(scales, 0)));
    note(s, name, "error along the tensor", along, scale);
    if (scale > 0.0) {
        kind_t *kind = kind_of(s, g->name);
        kind->sum += along / scale;
        kind->tensors++;
    }
}

/* Ends a fixture. */
static void pool(survey_t *s)
{
    for (int i = 0; i < s->num_kinds; i++) {
        kind_t *k = &s->kinds[i];
        k->total += k->tensors > 0 ? k->sum / k->tensors : 0.0;
        k->fixtures += k->tensors > 0;
        k->sum = 0.0;
        k->tensors = 0;
    }
}

static void note_pools(survey_t *s)
{
    for (int i = 0; i < s->num_kinds; i++) {
        const kind_t *k = &s->kinds[i];
        char name[128];
        snprintf(name, sizeof(name), "%s of %d fixtures", k->name,
                 k->fixtures);
        note(s, name, "pooled error", k->total / sqrt(k->fixtures), 1.0);
    }
}

static void weigh_all(fixture_t *f, const loong_json_t *envelope, survey_t *s)
{
    fixture_grad_t g = {.name = "logits"};
    int64_t n = 0;
    double total = 0.0;
    g.mine = fixture_logits(f, &g.count);
    g.theirs = (double *)(uintptr_t)fixture_find(f, "logits", &n);
    assert_int_equal(g.count, n);
    weigh(s, envelope, "logits", &g);
    free(g.mine);
    double *losses = fixture_losses(f, &n);
    for (int64_t i = 0; i < n; i++) {
        total += losses[i];
    }
    free(losses);
    g.name = "loss_sum";
    g.mine = &total;
    g.theirs = (double *)(uintptr_t)fixture_find(f, "loss_sum", &g.count);
    weigh(s, envelope, "loss_sum", &g);
    for (int64_t i = 0; i < fixture_num_grads(f); i++) {
        char name[600];
        fixture_grad_get(f, i, &g);
        snprintf(name, sizeof(name), g.parts > 1 ? "%s#%d" : "%s", g.golden,
                 g.part);
        weigh(s, envelope, name, &g);
        fixture_grad_free(&g);
    }
}

typedef struct bug {
    const char *name;
    const char *fixture; /* NULL: in all without experts */
    void (*change)(loong_decoder_config_t *model); /* or a bias is dropped: */
    const char *dropped;
} bug_t;

typedef struct job {
    survey_t *survey;
    const bug_t *bug; /* NULL: none */
} job_t;

static void run(const char *name, const void *user)
{
    const job_t *job = user;
    const bug_t *bug = job->bug;
    fixture_params_t params = {.dtype = LOONG_BF16,
                               .fuse = true,
                               .in_place = true,
                               .threads = bug == NULL,
                               .change = bug != NULL ? bug->change : NULL};
    fixture_t f;
    loong_json_t *envelope = NULL;
    char path[600];
    snprintf(path, sizeof(path), "%s/%s/bf16.json", FIXTURES, name);
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loongi_json_load(ctx, path, &envelope));
    params.routing = loongi_json_get(envelope, "routing");
    if ((params.routing == NULL || bug == NULL || bug->fixture != NULL) &&
        fixture_open(&f, name, &params)) {
        job->survey->opened++;
        if (bug != NULL && bug->dropped != NULL) {
            fixture_drop(&f, bug->dropped);
        }
        weigh_all(&f, envelope, job->survey);
        pool(job->survey);
        fixture_close(&f);
    }
    loongi_json_destroy(&envelope);
    test_context_end(&ctx);
}

static void fixtures_stay_inside(void **state)
{
    (void)state;
    survey_t s;
    job_t job = {&s, NULL};
    memset(&s, 0, sizeof(s));
    int seen = fixture_each(run, &job);
    note_pools(&s);
    print_message("%d fixtures, %d open: %.2f of %.0f: %s\n", seen, s.opened,
                  s.ratio, ALLOWED, s.what);
    if (!(s.ratio <= ALLOWED)) {
        fail_msg("outside the envelope: %s", s.what);
    }
    assert_true((seen >= 59 && s.opened == seen) ||
                getenv("LOONG_FIXTURE") != NULL);
}

/* ---- bugs ----------------------------------------------------------------
 *
 * What changes less than bf16 rounds (the two forms of gelu) cannot be seen
 * here; test_golden.c sees it. */

static void scale_1_percent(loong_decoder_config_t *m)
{
    m->softmax_scale = 1.01 / sqrt(m->kv_channels);
}

static void scale_of_hidden(loong_decoder_config_t *m)
{
    m->softmax_scale =
        1.0 / sqrt((double)m->hidden_size / m->num_attention_heads);
}

static void other_base(loong_decoder_config_t *m)
{
    m->rope.base *= 0.9;
}

static void no_scaling(loong_decoder_config_t *m)
{
    m->rope.scaling = LOONG_ROPE_DEFAULT;
}

static void attention_factor_1(loong_decoder_config_t *m)
{
    m->rope.attention_factor = 1.0;
}

static void tenfold_epsilon(loong_decoder_config_t *m)
{
    m->norm_eps *= 10.0;
}

static void wider_window(loong_decoder_config_t *m)
{
    m->window_size++;
}

static void window_everywhere(loong_decoder_config_t *m)
{
    m->max_window_layers = 0;
}

static void heavier_experts(loong_decoder_config_t *m)
{
    m->router.scaling_factor *= 1.02;
}

static void weights_before_choice(loong_decoder_config_t *m)
{
    m->router.pre_softmax = !m->router.pre_softmax;
}

static void no_scale(loong_decoder_config_t *m)
{
    m->router.scaling_factor = 1.0;
}

static const bug_t bugs[] = {
    {"scale of attention 1 % off", NULL, scale_1_percent, NULL},
    {"scale from hidden / heads", "qwen3_yarn", scale_of_hidden, NULL},
    {"rotary base 10 % off", NULL, other_base, NULL},
    {"llama3 scaling left out", "llama31_rope_mqa", no_scaling, NULL},
    {"yarn's factor left out", "llama_yarn", attention_factor_1, NULL},
    {"epsilon of another size", "gpt2_untied", tenfold_epsilon, NULL},
    {"window one key wider", "qwen2_window", wider_window, NULL},
    {"window in every layer", "qwen2_window", window_everywhere, NULL},
    {"weights of experts 2 % off", "mixtral", heavier_experts, NULL},
    {"softmax over all experts", "qwen3_moe", weights_before_choice, NULL},
    {"scaling of experts left out", "deepseek_v3_groups", no_scale, NULL},
    {"bias of k dropped", "qwen2_gqa", NULL, "layers.1.self_attn.k_proj.bias"},
    {"bias of o dropped", "llama_bias_mqa", NULL,
     "layers.0.self_attn.o_proj.bias"},
    {"bias of the norm dropped", "gpt2_tied", NULL, "norm.bias"},
};

static void bugs_leave(void **state)
{
    survey_t s;
    job_t job = {&s, *state};
    memset(&s, 0, sizeof(s));
    if (job.bug->fixture != NULL) {
        run(job.bug->fixture, &job);
    } else {
        fixture_each(run, &job);
    }
    note_pools(&s);
    print_message("%s: %.1f of %.0f: %s\n", job.bug->name, s.ratio, ALLOWED,
                  s.what);
    if (s.ratio <= ALLOWED) {
        fail_msg("%s stays inside the envelope", job.bug->name);
    }
}

/* Bugs are planted in the model, not in a device: once is enough. */
int main(void)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(bugs) + 1];
    bool cpu = strcmp(FIXTURE_DEVICE, "cpu") == 0;
    struct CMUnitTest all = cmocka_unit_test(fixtures_stay_inside);
    tests[0] = all;
    for (int64_t i = 0; i < LOONG_COUNT_OF(bugs); i++) {
        struct CMUnitTest test = {bugs[i].name, bugs_leave, NULL, NULL,
                                  (void *)(uintptr_t)&bugs[i]};
        tests[i + 1] = test;
    }
    return _cmocka_run_group_tests("golden_bf16", tests,
                                   cpu ? LOONG_COUNT_OF(tests) : 1, NULL,
                                   NULL);
}
