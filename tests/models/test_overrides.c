/* SPDX-License-Identifier: Apache-2.0
 *
 * Every preset with keys of a recipe in place of its own: widths, vocabulary,
 * experts, rope, tying. What fits together is planned, with as many parameters
 * as follow from the change; what does not is refused by the name of a key. */
#include "decoder_config.h"
#include "loong/comm.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "preset.h"
#include "test.h"

enum { MOST = 12, LAYERS = 4, VOCAB = 1000, EXPERTS = 16 };

typedef struct change {
    const char *what;
    char text[MOST][96]; /* "foundation.vocab_size=1000" */
    int count;
} change_t;

typedef struct subject {
    loong_context_t *ctx;
    const char *name;
    const loong_pairs_t *pairs; /* of the preset, with LAYERS layers */
    loong_decoder_config_t c;
    int64_t parameters;
    int64_t mixtures; /* layers with experts */
} subject_t;

static void add(change_t *change, const char *key, int64_t value)
{
    assert_true(change->count < MOST);
    snprintf(change->text[change->count++], sizeof(change->text[0]),
             "foundation.%s=%lld", key, (long long)value);
}

static void add_text(change_t *change, const char *key, const char *value)
{
    assert_true(change->count < MOST);
    snprintf(change->text[change->count++], sizeof(change->text[0]),
             "foundation.%s=%s", key, value);
}

/* ---- what fits ----------------------------------------------------------- */

static int64_t smaller_width(const subject_t *s, change_t *change)
{
    int64_t width = 8 * (int64_t)s->c.kv_channels;
    add(change, "hidden_size", width);
    add(change, "num_attention_heads", 8);
    add(change, "num_query_groups",
        s->c.num_query_groups == s->c.num_attention_heads ? 8 : 2);
    return -1; /* too many matrices for a formula */
}

static int64_t fewer_words(const subject_t *s, change_t *change)
{
    int64_t tables = s->c.tied ? 1 : 2;
    add(change, "vocab_size", VOCAB);
    return s->parameters -
           tables * s->c.hidden_size * (s->c.vocab_size - VOCAB);
}

static int64_t narrow_ffn(const subject_t *s, change_t *change)
{
    int64_t matrices = s->c.mlp == LOONG_MLP_SWIGLU ? 3 : 2;
    int64_t less = s->c.ffn_hidden_size - 640;
    int64_t layers = LAYERS - s->mixtures;
    add(change, "ffn_hidden_size", 640);
    if (loongi_pairs_get(s->pairs, "moe_ffn_hidden_size") == NULL) {
        layers += s->mixtures * s->c.num_experts; /* they follow it */
    }
    return s->parameters - layers * less * (matrices * s->c.hidden_size +
                                            (s->c.mlp_bias ? 1 : 0));
}

/* An expert has three matrices, a row of the router and perhaps its bias. */
static int64_t fewer_experts(const subject_t *s, change_t *change)
{
    const loong_decoder_config_t *c = &s->c;
    int sets = c->vision_ffn > 0 ? 2 : 1;
    int64_t widths = c->moe_ffn_hidden_size + c->vision_ffn;
    int64_t each = 3 * widths * c->hidden_size +
                   sets * (c->hidden_size + (c->expert_bias ? 1 : 0));
    if (c->num_experts <= EXPERTS) {
        return 0;
    }
    add(change, "num_experts", EXPERTS);
    return s->parameters - s->mixtures * (c->num_experts - EXPERTS) * each;
}

static int64_t narrow_experts(const subject_t *s, change_t *change)
{
    if (s->c.num_experts == 0) {
        return 0;
    }
    add(change, "moe_ffn_hidden_size", 96);
    return s->parameters - s->mixtures * s->c.num_experts * 3 *
                               s->c.hidden_size *
                               (s->c.moe_ffn_hidden_size - 96);
}

static int64_t other_rope(const subject_t *s, change_t *change)
{
    if (s->c.learned_positions) {
        return 0;
    }
    add(change, "rotary_base", 5000);
    if (s->c.rope.scaling == LOONG_ROPE_DEFAULT) {
        add_text(change, "rope_scaling.type", "linear");
        add_text(change, "rope_scaling.factor", "2");
    }
    return s->parameters;
}

static int64_t other_tying(const subject_t *s, change_t *change)
{
    int64_t table = s->c.hidden_size * s->c.vocab_size;
    add_text(change, "untie_embeddings_and_output_weights",
             s->c.tied ? "true" : "false");
    return s->parameters + (s->c.tied ? table : -table);
}

typedef int64_t fit_fn(const subject_t *s, change_t *change);

static const struct fit {
    const char *what;
    fit_fn *make; /* parameters then; 0: nothing to change, -1: not told */
} fits[] = {
    {"width", smaller_width},   {"vocabulary", fewer_words},
    {"feed-forward", narrow_ffn}, {"experts", fewer_experts},
    {"width of experts", narrow_experts}, {"rope", other_rope},
    {"tying", other_tying},
};

/* ---- a dry run ----------------------------------------------------------- */

static loong_status_t plan(const subject_t *s, const change_t *change,
                           char *text_p, size_t size)
{
    char recipe_text[128], layers[40];
    const char *overrides[MOST + 1] = {layers};
    loong_recipe_params_t rp = {LOONG_SOURCE_DIR "/configs", 1, overrides, 0,
                                NULL};
    loong_comm_t *comm = NULL;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    const char *text = "";
    snprintf(layers, sizeof(layers), "foundation.num_layers=%d", LAYERS);
    snprintf(recipe_text, sizeof(recipe_text), "model: %s\ndevice: cpu\n",
             s->name);
    for (int i = 0; i < change->count; i++) {
        overrides[rp.num_overrides++] = change->text[i];
    }
    assert_ok(s->ctx, loong_comm_create_self(s->ctx, NULL, &comm));
    loong_status_t status =
        loong_recipe_parse(s->ctx, "dry.yaml", recipe_text, &rp, &recipe);
    if (status == LOONG_OK) {
        loong_trainer_params_t tp = {.comm = comm, .recipe = recipe,
                                     .plan_only = true, .plan_ranks = 1};
        status = loong_trainer_create(s->ctx, &tp, &trainer);
    }
    if (status == LOONG_OK) {
        status = loong_trainer_describe(trainer, &text);
    }
    snprintf(text_p, size, "%s", text);
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    loong_comm_destroy(&comm);
    return status;
}

static void measure(const subject_t *s, const change_t *change,
                    preset_size_t *size)
{
    loong_pairs_t *pairs = preset_load(s->ctx, s->name);
    char layers[8];
    snprintf(layers, sizeof(layers), "%d", LAYERS);
    assert_ok(s->ctx, loongi_pairs_set(pairs, "num_layers", layers));
    for (int i = 0; i < change->count; i++) {
        char key[96];
        const char *text = change->text[i] + strlen("foundation.");
        const char *equals = strchr(text, '=');
        snprintf(key, sizeof(key), "%.*s", (int)(equals - text), text);
        assert_ok(s->ctx, loongi_pairs_set(pairs, key, equals + 1));
    }
    preset_measure(s->ctx, pairs, size);
    loongi_pairs_destroy(&pairs);
}

/* A rope that was changed is the one that the graph turns by. */
static void rope_is_changed(const subject_t *s, const preset_size_t *size)
{
    const loong_rope_table_attr_t *was = &s->c.rope;
    bool scaled = was->scaling != LOONG_ROPE_DEFAULT;
    if (s->c.learned_positions) {
        assert_true(size->rope.base == 0.0);
        return;
    }
    if (size->rope.base != 5000.0 ||
        size->rope.scaling != (scaled ? was->scaling : LOONG_ROPE_LINEAR) ||
        size->rope.factor != (scaled ? was->factor : 2.0)) {
        fail_msg("%s: base %g, scaling %d, factor %g", s->name,
                 size->rope.base, (int)size->rope.scaling, size->rope.factor);
    }
}

/* Each change alone has the parameters that follow from it; together they are
 * planned. */
static void fits_are_planned(const subject_t *s)
{
    static char text[1 << 14];
    char wanted[64];
    preset_size_t size;
    change_t all = {.what = "all"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(fits); i++) {
        change_t one = {.what = fits[i].what};
        int64_t parameters = fits[i].make(s, &one);
        measure(s, &one, &size);
        if (parameters > 0 && size.parameters != parameters) {
            fail_msg("%s, %s: %lld parameters, %lld wanted", s->name,
                     fits[i].what, (long long)size.parameters,
                     (long long)parameters);
        }
        (void)fits[i].make(s, &all);
    }
    measure(s, &all, &size);
    rope_is_changed(s, &size);
    assert_ok(s->ctx, plan(s, &all, text, sizeof(text)));
    snprintf(wanted, sizeof(wanted), "parameters: %lld (",
             (long long)size.parameters);
    if (strstr(text, wanted) == NULL) {
        fail_msg("%s: '%s' is not in:\n%s", s->name, wanted, text);
    }
}

/* ---- what does not fit --------------------------------------------------- */

static void is_refused(const subject_t *s, const char *key, const char *value,
                       const char *wanted)
{
    static char text[256];
    change_t change = {.what = key};
    add_text(&change, key, value);
    loong_status_t status = plan(s, &change, text, sizeof(text));
    const char *error = loong_context_error(s->ctx);
    if (status != LOONG_ERR_CONFIG || strstr(error, wanted) == NULL) {
        fail_msg("%s, %s=%s: '%s' expected, found status %d: %s", s->name,
                 key, value, wanted, (int)status, error);
    }
    loong_context_clear_error(s->ctx);
}

static void misfits_are_refused(const subject_t *s)
{
    const loong_decoder_config_t *c = &s->c;
    char value[32];
    if (loongi_pairs_get(s->pairs, "num_query_groups") != NULL &&
        c->num_query_groups > 1) {
        snprintf(value, sizeof(value), "%d", c->num_query_groups + 1);
        is_refused(s, "num_attention_heads", value, "num_query_groups");
    }
    if (loongi_pairs_get(s->pairs, "kv_channels") == NULL &&
        c->kv_lora_rank == 0) {
        snprintf(value, sizeof(value), "%lld", (long long)c->hidden_size + 1);
        is_refused(s, "hidden_size", value, "does not divide hidden_size");
    }
    if (c->num_experts > 0) {
        snprintf(value, sizeof(value), "%d", c->router.topk - 1);
        is_refused(s, "num_experts", value, "moe_router_topk: found ");
        is_refused(s, "moe_layer_freq", "'[1]*5'", "moe_layer_freq: found ");
    } else {
        is_refused(s, "moe_ffn_hidden_size", "96",
                   "moe_ffn_hidden_size: has no effect without num_experts");
    }
    if (c->learned_positions) {
        is_refused(s, "rotary_base", "5000",
                   "rotary_base: has no effect with position_embedding_type "
                   "learned_absolute");
    } else if (c->rope.scaling == LOONG_ROPE_DEFAULT) {
        is_refused(s, "rope_scaling.type", "yarn",
                   "rope_scaling.factor: must be set");
    }
    is_refused(s, "vocab_size", "0", "vocab_size: found 0");
    is_refused(s, "hiden_size", "64",
               "did you mean model.foundation.hidden_size?");
}

/* ---- all presets --------------------------------------------------------- */

typedef void check_fn(const subject_t *s);

typedef struct job {
    loong_context_t *ctx;
    check_fn *check;
} job_t;

static void examine(void *user, const char *name)
{
    const job_t *job = user;
    preset_size_t size;
    loong_pairs_t *pairs = preset_load(job->ctx, name);
    subject_t s = {.ctx = job->ctx, .name = name, .pairs = pairs};
    change_t none = {.what = "nothing"};
    char layers[8];
    snprintf(layers, sizeof(layers), "%d", LAYERS);
    assert_ok(s.ctx, loongi_pairs_set(pairs, "num_layers", layers));
    assert_ok(s.ctx, loongi_decoder_configure(s.ctx, pairs, &s.c));
    measure(&s, &none, &size);
    s.parameters = size.parameters;
    for (int i = 0; i < LAYERS && s.c.num_experts > 0; i++) {
        s.mixtures += s.c.kinds.of[i] != 0;
    }
    job->check(&s);
    loongi_pairs_destroy(&pairs);
}

static void all_presets(check_fn *check)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    job_t job = {ctx, check};
    assert_true(preset_each(examine, &job) >= 66);
    test_context_end(&ctx);
}

static void test_fits(void **state)
{
    (void)state;
    all_presets(fits_are_planned);
}

static void test_misfits(void **state)
{
    (void)state;
    all_presets(misfits_are_refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fits),
                                       cmocka_unit_test(test_misfits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
