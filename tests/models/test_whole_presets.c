/* SPDX-License-Identifier: Apache-2.0
 *
 * Presets of several components against the published models: as many
 * parameters of each component as transformers' own class has
 * (published_vl.py), the keys that config.json says, and the largest ones
 * planned in a layout that one would choose, within two seconds of one core. */
#include <time.h>

#include "graph_impl.h"
#include "hf_config.h"
#include "hf_kind.h"
#include "json.h"
#include "loong/comm.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "preset.h"
#include "projector.h"
#include "test.h"
#include "vision.h"

enum { ROLES = 3 };
static const char *const roles[ROLES] = {"image_encoder", "image_projector",
                                         "foundation"};

typedef struct place {
    loong_context_t *ctx;
    loong_json_t *published;
} place_t;

/* The projector is as wide as what stands beside it. */
static void load_all(loong_context_t *ctx, const char *name,
                     loong_pairs_t *keys[ROLES])
{
    for (int i = 0; i < ROLES; i++) {
        keys[i] = preset_load_role(ctx, name, roles[i]);
    }
    assert_ok(ctx, loongi_pairs_set(keys[1], "input_size",
                                    loongi_pairs_get(keys[0], "hidden_size")));
    assert_ok(ctx, loongi_pairs_set(keys[1], "hidden_size",
                                    loongi_pairs_get(keys[2], "hidden_size")));
    const char *deep = loongi_pairs_get(keys[2], "num_deep_features");
    if (deep != NULL) {
        assert_ok(ctx, loongi_pairs_set(keys[1], "num_deep_features", deep));
    }
}

/* ---- parameters ---------------------------------------------------------- */

static int64_t count_vision(loong_context_t *ctx, const loong_pairs_t *keys)
{
    enum { ROWS = 4096 };
    loong_vision_config_t c;
    loong_graph_t *graph = NULL;
    assert_ok(ctx, loongi_vision_configure(ctx, keys, &c));
    const loong_model_request_t request = {.rows = ROWS,
                                           .max_seqlen = ROWS,
                                           .max_segments = 1,
                                           .train = true,
                                           .begins = true,
                                           .ends = true,
                                           .num_layers = (int)c.num_layers};
    assert_ok(ctx, loong_graph_create(
                       ctx, (loong_precision_t){LOONG_F32, LOONG_F32}, &graph));
    assert_ok(ctx, loongi_vision_build(graph, &c, &request));
    int64_t count = preset_count(graph, "");
    loong_graph_destroy(&graph);
    return count;
}

static int64_t count_projector(loong_context_t *ctx, const loong_pairs_t *keys)
{
    loong_projector_config_t c;
    loong_graph_t *graph = NULL;
    const loong_model_request_t request = {
        .rows = 64, .train = true, .packed_rows = 72};
    assert_ok(ctx, loongi_projector_configure(ctx, keys, &c));
    assert_ok(ctx, loong_graph_create(
                       ctx, (loong_precision_t){LOONG_F32, LOONG_F32}, &graph));
    assert_ok(ctx, loongi_projector_build(graph, &c, &request));
    int64_t count = preset_count(graph, "");
    loong_graph_destroy(&graph);
    return count;
}

static void published_counts(void *user, const char *name)
{
    const place_t *at = user;
    const loong_json_t *entry = loongi_json_get(at->published, name);
    loong_pairs_t *keys[ROLES];
    preset_size_t size;
    if (entry == NULL) {
        fail_msg("%s is not in published_vl.json", name);
    }
    const loong_json_t *counts = loongi_json_get(entry, "parameters");
    load_all(at->ctx, name, keys);
    preset_measure(at->ctx, keys[2], &size);
    const int64_t own[ROLES] = {count_vision(at->ctx, keys[0]),
                                count_projector(at->ctx, keys[1]),
                                size.parameters};
    for (int i = 0; i < ROLES; i++) {
        int64_t theirs = loongi_json_int(loongi_json_get(counts, roles[i]));
        if (own[i] != theirs) {
            fail_msg("%s: %lld parameters of %s, published %lld", name,
                     (long long)own[i], roles[i], (long long)theirs);
        }
        loongi_pairs_destroy(&keys[i]);
    }
}

/* ---- keys ---------------------------------------------------------------- */

static void compare(const char *name, const char *role, const loong_pairs_t *a,
                    const loong_pairs_t *b)
{
    for (int64_t i = 0; i < a->count; i++) {
        const loong_pair_t *p = &a->items[i];
        const char *other = loongi_pairs_get(b, p->key);
        bool is_free = strstr(p->key, "init_") != NULL ||
                       strstr(p->key, "dropout") != NULL;
        if (!is_free && (other == NULL || strcmp(p->value, other) != 0)) {
            fail_msg("%s: %s.%s is %s here, %s there", name, role, p->key,
                     p->value, other != NULL ? other : "absent");
        }
    }
}

/* The config.json of a component: the whole one, or in a model that no class
 * has its own; NULL: it has none. */
static const loong_json_t *config_of(const place_t *at, const char *name,
                                     const char *role)
{
    const loong_json_t *config =
        loongi_json_get(loongi_json_get(at->published, name), "config");
    return loongi_json_get(config, "model_type") != NULL
               ? config
               : loongi_json_get(config, role);
}

static void published_config(void *user, const char *name)
{
    const place_t *at = user;
    loong_pairs_t *keys[ROLES];
    load_all(at->ctx, name, keys);
    for (int i = 0; i < ROLES; i++) {
        loong_pairs_t *theirs = NULL;
        const loong_json_t *config = config_of(at, name, roles[i]);
        const loong_hf_kind_t *kind =
            loongi_hf_kind_find(at->ctx, loongi_pairs_get(keys[i], "family"));
        if (config == NULL) {
            loongi_pairs_destroy(&keys[i]);
            continue;
        }
        assert_ok(at->ctx, loongi_hf_config_read_json(at->ctx, name, config,
                                                      roles[i], &theirs));
        assert_ok(at->ctx, kind->fill(at->ctx, keys[i]));
        assert_ok(at->ctx, kind->fill(at->ctx, theirs));
        compare(name, roles[i], keys[i], theirs);
        compare(name, roles[i], theirs, keys[i]);
        loongi_pairs_destroy(&theirs);
        loongi_pairs_destroy(&keys[i]);
    }
}

static void test_counts(void **state)
{
    place_t *at = *state;
    assert_int_equal(preset_each_whole(published_counts, at),
                     loongi_json_count(at->published));
}

static void test_configs(void **state)
{
    assert_true(preset_each_whole(published_config, *state) > 0);
}

/* Of a model whose language model is not here encoder and projector are, and
 * that is told. */
static void test_encoder_alone(void **state)
{
    static const char text[] =
        "{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": false,"
        " \"vision_config\": {\"model_type\": \"qwen3_5_vision\","
        " \"depth\": 12, \"hidden_size\": 768, \"out_hidden_size\": 1024},"
        " \"text_config\": {\"model_type\": \"qwen3_5_text\"}}";
    const place_t *at = *state;
    loong_json_t *json = NULL;
    loong_pairs_t *keys[ROLES] = {NULL};
    assert_ok(at->ctx,
              loongi_json_parse(at->ctx, text, strlen(text), "q", &json));
    for (int i = 0; i < 2; i++) {
        assert_ok(at->ctx, loongi_hf_config_read_json(at->ctx, "q", json,
                                                      roles[i], &keys[i]));
    }
    assert_string_equal(loongi_pairs_get(keys[0], "family"), "qwen3_vl_vision");
    assert_string_equal(loongi_pairs_get(keys[0], "num_layers"), "12");
    assert_null(loongi_pairs_get(keys[0], "deepstack_layers"));
    assert_string_equal(loongi_pairs_get(keys[1], "input_size"), "768");
    assert_string_equal(loongi_pairs_get(keys[1], "hidden_size"), "1024");
    assert_int_equal(
        loongi_hf_config_read_json(at->ctx, "q", json, roles[2], &keys[2]),
        LOONG_ERR_UNSUPPORTED);
    assert_non_null(strstr(loong_context_error(at->ctx), "'qwen3_5_text'"));
    loong_context_clear_error(at->ctx);
    loongi_pairs_destroy(&keys[0]);
    loongi_pairs_destroy(&keys[1]);
    loongi_json_destroy(&json);
}

/* ---- plans --------------------------------------------------------------- */

#define TP "parallel.tensor_model_parallel_size="
#define SP "parallel.sequence_parallel=true"
#define PP "parallel.pipeline_model_parallel_size="
#define EP "parallel.expert_model_parallel_size="
#define PATCHES "data.max_patches=4096"
#define A2A "parallel.moe_token_dispatcher_type=alltoall"
#define VISION_IDS "data.vision_token_ids=[100295, 101304, 101305]"
#define ON_8 "parallel.pipeline_model_parallel_layout=Et*11|(t*12|)*6t*11L"
#define ON_61 "parallel.pipeline_model_parallel_layout=Et*5|(t*8|)*6t*8L"
static const double SECONDS = 2.0;

typedef struct plan {
    const char *model;
    int ranks;
    bool daily;
    const char *overrides[8];
} plan_t;
static const plan_t plans[] = {
    {"qwen3_vl/qwen3_vl_235b_a22b",
     128,
     true,
     {TP "4", SP, PP "8", EP "16", A2A, ON_8, PATCHES}},
    {"internvl3.5/internvl3.5_241b_a28b",
     128,
     false,
     {TP "4", SP, PP "8", EP "16", A2A, ON_8}},
    {"qwen2.5_vl/qwen2.5_vl_72b", 64, false, {TP "8", SP, PP "4", PATCHES}},
    {"qwen2_vl/qwen2_vl_72b", 64, false, {TP "8", SP, PP "4", PATCHES}},
    {"llava_onevision/llava_onevision_72b", 64, false, {TP "8", SP, PP "4"}},
    {"llava_onevision1.5/llava_onevision1.5_8b", 64, false,
     {TP "4", SP, PP "4", PATCHES}},
    {"glm4.1v/glm4.1v_9b", 64, false, {TP "8", SP, PP "4", PATCHES}},
    {"ernie4.5_vl/ernie4.5_vl_28b_a3b",
     64,
     false,
     {TP "4", SP, PP "4", EP "8", A2A, PATCHES, VISION_IDS}},
    {"qianfan_vl/qianfan_vl_70b", 64, false, {TP "8", SP, PP "4"}},
    {"internvl2.5/internvl2.5_78b", 64, false, {TP "8", SP, PP "4"}},
    {"kimi_k2.5/kimi_k2.5_1t",
     64,
     false,
     {TP "2", SP, PP "8", EP "8", A2A, ON_61, PATCHES}},
    {"qwen_vit_llama3/qwen_vit_llama3_8b", 8, false, {TP "2", SP, PATCHES}},
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tells_parameters(const plan_t *plan, const loong_json_t *entry,
                             const char *text)
{
    const loong_json_t *counts = loongi_json_get(entry, "parameters");
    for (int i = 0; i < ROLES; i++) {
        char wanted[128];
        snprintf(wanted, sizeof(wanted), "%s%sparameters: %lld (",
                 i < 2 ? roles[i] : "", i < 2 ? ": " : "",
                 (long long)loongi_json_int(loongi_json_get(counts, roles[i])));
        if (strstr(text, wanted) == NULL) {
            fail_msg("%s: '%s' is not told: %s", plan->model, wanted, text);
        }
    }
    assert_non_null(strstr(text, "memory by stage, of its largest rank:\n"));
}

static void plan_one(const loong_json_t *published, const plan_t *plan)
{
    char text[600];
    const char *told = NULL;
    loong_comm_t *comm = NULL;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    loong_context_t *ctx = test_context();
    loong_recipe_params_t params = {LOONG_SOURCE_DIR "/configs", 0,
                                    plan->overrides, 0, NULL};
    double begin = cpu_seconds();
    while (params.num_overrides < LOONG_COUNT_OF(plan->overrides) &&
           plan->overrides[params.num_overrides] != NULL) {
        params.num_overrides++;
    }
    snprintf(text, sizeof(text),
             "model: %s\nrecompute: {granularity: full}\ndevice: cpu\n"
             "precision: {params_dtype: fp32}\n"
             "data: {seq_length: 4096, max_images: 4}\n"
             "train: {micro_batch_size: 1, global_batch_size: 64, "
             "train_iters: 1}\noptimizer: {lr: 1e-5}\n",
             plan->model);
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    assert_ok(ctx, loong_recipe_parse(ctx, "dry.yaml", text, &params, &recipe));
    loong_trainer_params_t trained = {.comm = comm,
                                      .recipe = recipe,
                                      .plan_only = true,
                                      .plan_ranks = plan->ranks};
    assert_ok(ctx, loong_trainer_create(ctx, &trained, &trainer));
    assert_ok(ctx, loong_trainer_describe(trainer, &told));
    tells_parameters(plan, loongi_json_get(published, plan->model), told);
    assert_ok(ctx, loong_trainer_predict(trainer, &told));
    double seconds = cpu_seconds() - begin;
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    loong_comm_destroy(&comm);
    test_context_end(&ctx);
    print_message("%s: %.2f s of one core\n", plan->model, seconds);
    if (seconds >= SECONDS && getenv("LOONG_ANY_TIME") == NULL) {
        fail_msg("%s: %.2f s of one core, %.1f are allowed", plan->model,
                 seconds, SECONDS);
    }
}

static void test_plans(void **state)
{
    const place_t *at = *state;
    for (int i = 0; i < LOONG_COUNT_OF(plans); i++) {
        if (plans[i].daily || getenv("LOONG_PLANS") != NULL) {
            plan_one(at->published, &plans[i]);
        }
    }
}

static int set_up(void **state)
{
    static place_t place;
    *state = &place;
    place.ctx = test_context();
    assert_ok(place.ctx, loong_register_builtin(place.ctx));
    assert_ok(place.ctx, loongi_json_load(place.ctx,
                                          LOONG_SOURCE_DIR
                                          "/tests/models/published_vl.json",
                                          &place.published));
    return 0;
}

static int tear_down(void **state)
{
    place_t *place = *state;
    loongi_json_destroy(&place->published);
    test_context_end(&place->ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts), cmocka_unit_test(test_configs),
        cmocka_unit_test(test_encoder_alone), cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
