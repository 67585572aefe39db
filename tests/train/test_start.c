/* SPDX-License-Identifier: Apache-2.0
 *
 * What is refused before anything is trained: an export that a family of the
 * user's own has no Hugging Face model type for, a recipe that one rank alone
 * cannot take; and what is not: keys of the user's own at a resume. */
#include "loong/comm.h"
#include "loong/family.h"
#include "loong/ops.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "train_job.h"

static const char recipe_text[] =
    "model:\n"
    "  foundation: {family: house, num_layers: 1, hidden_size: 16,\n"
    "    num_attention_heads: 2, vocab_size: 61,\n"
    "    max_position_embeddings: 32}\n"
    "data: {seq_length: 16, train: [{path: none}]}\n"
    "train: {global_batch_size: 1, train_iters: 1}\n"
    "optimizer: {lr: 1e-3}\n"
    "checkpoint: {save: none}\n";

static loong_status_t plan(loong_context_t *ctx, int num_overrides,
                           const char *const *overrides)
{
    loong_recipe_params_t params = {NULL, num_overrides, overrides, 0, NULL};
    loong_recipe_t *recipe = NULL;
    loong_comm_t *comm = NULL;
    loong_trainer_t *trainer = NULL;
    assert_ok(ctx, loong_recipe_parse(ctx, "test", recipe_text, &params,
                                      &recipe));
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    loong_trainer_params_t run = {.comm = comm, .recipe = recipe,
                                  .plan_only = true};
    loong_status_t status = loong_trainer_create(ctx, &run, &trainer);
    loong_trainer_destroy(&trainer);
    loong_comm_destroy(&comm);
    loong_recipe_destroy(&recipe);
    return status;
}

static void an_unknown_family_cannot_be_exported(void **state)
{
    (void)state;
    static const char *const to_hf[] = {"+export.hf=none"};
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    loong_family_t house = *loong_find_family(ctx, "llama");
    house.name = "house";
    assert_ok(ctx, loong_register_family(ctx, &house));
    assert_ok(ctx, plan(ctx, 0, NULL)); /* it trains */
    assert_int_equal(plan(ctx, 1, to_hf), LOONG_ERR_CONFIG);
    const char *error = loong_context_error(ctx);
    assert_non_null(strstr(error, "'house'"));
    assert_non_null(strstr(error, "gpt2, llama"));
    assert_non_null(strstr(error, "wanted for export.hf"));
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

/* ---- ports that nothing binds -------------------------------------------- */

static loong_status_t build_with_pixels(loong_graph_t *graph,
                                        const void *config,
                                        const loong_model_request_t *request)
{
    loong_context_t *ctx = loong_graph_context(graph);
    loong_graph_input(graph, "pixels", LOONG_F32,
                      loong_shape_2d(request->rows, 3));
    return loong_find_family(ctx, "llama")->build(graph, config, request);
}

/* The family's own loss beside that of the Llama. */
static loong_status_t build_with_loss(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request,
                                      const char *name, const char *normaliser)
{
    loong_context_t *ctx = loong_graph_context(graph);
    const loong_loss_params_t loss = {.name = name, .normaliser = normaliser};
    LOONG_TRY(loong_find_family(ctx, "llama")->build(graph, config, request));
    loong_loss(graph,
               loong_graph_input(graph, "loss_weight",
                                 loong_graph_precision(graph).wide,
                                 loong_shape_1d(request->rows)),
               &loss);
    return loong_graph_status(graph);
}

static loong_status_t build_by_pixels(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    return build_with_loss(graph, config, request, "own", "pixels");
}

static loong_status_t build_two_alike(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    return build_with_loss(graph, config, request, "lm", "tokens");
}

static loong_status_t build_nothing(loong_graph_t *graph, const void *config,
                                    const loong_model_request_t *request)
{
    loong_model_request_t logits = *request;
    logits.head = LOONG_MODEL_LOGITS;
    return loong_find_family(loong_graph_context(graph), "llama")
        ->build(graph, config, &logits);
}

static void ports_that_nothing_binds_are_refused(void **state)
{
    (void)state;
    static const struct {
        loong_status_t (*build)(loong_graph_t *graph, const void *config,
                                const loong_model_request_t *request);
        const char *error;
    } cases[] = {
        {build_with_pixels, "reads an input 'pixels', which token data does "
                            "not have: it has tokens, labels"},
        {build_by_pixels, "loss 'own' is divided by 'pixels', which token "
                          "data does not sum"},
        {build_two_alike, "declares two losses 'lm'"},
        {build_nothing, "foundation is trained, but no loss reads what it "
                        "makes"}};
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        assert_ok(ctx, loong_register_builtin(ctx));
        loong_family_t house = *loong_find_family(ctx, "llama");
        house.name = "house";
        house.build = cases[i].build;
        assert_ok(ctx, loong_register_family(ctx, &house));
        assert_int_not_equal(plan(ctx, 0, NULL), LOONG_OK);
        const char *error = loong_context_error(ctx);
        if (strstr(error, cases[i].error) == NULL) {
            fail_msg("'%s' is not in: %s", cases[i].error, error);
        }
        loong_context_clear_error(ctx);
        test_context_end(&ctx);
    }
}

/* ---- ranks of which one cannot start ------------------------------------- */

typedef struct start {
    loong_status_t status[2];
    char error[2][1024];
} start_t;

/* The first looks for its device among those of all ranks of the machine; the
 * second has no learning rate. */
static loong_status_t start_rank(loong_context_t *ctx, loong_comm_t *comm,
                                 void *user)
{
    static const char *const devices[] = {"+devices=['cpu:0-1']",
                                          "~optimizer.lr"};
    start_t *s = user;
    int rank = loong_comm_rank(comm);
    loong_recipe_params_t params = {NULL, 1 + rank, devices, 0, NULL};
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_recipe_parse(ctx, "test", recipe_text, &params, &recipe));
    LOONG_TRY(loong_recipe_set(recipe, "model.foundation.family", "llama",
                               "test"));
    LOONG_TRY(loong_recipe_set(recipe, "train.global_batch_size", "2",
                               "test"));
    loong_trainer_params_t run = {.comm = comm, .recipe = recipe,
                                  .plan_only = true};
    s->status[rank] = loong_trainer_create(ctx, &run, &trainer);
    snprintf(s->error[rank], sizeof(s->error[rank]), "%s",
             loong_context_error(ctx));
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    loong_context_clear_error(ctx);
    return LOONG_OK;
}

static void all_ranks_learn_why_one_cannot_start(void **state)
{
    static start_t s;
    (void)state;
    loong_context_t *ctx = test_context();
    loong_threads_params_t params = {.size = 2};
    assert_ok(ctx, loong_threads_run(ctx, &params, start_rank, &s));
    for (int r = 0; r < 2; r++) {
        const char *wanted = r == 0 ? "rank 1 cannot start" : "optimizer.lr";
        if (s.status[r] != LOONG_ERR_CONFIG ||
            strstr(s.error[r], wanted) == NULL) {
            fail_msg("rank %d: %s: %s", r, loong_status_text(s.status[r]),
                     s.error[r]);
        }
    }
    test_context_end(&ctx);
}

/* ---- keys of one's own --------------------------------------------------- */

typedef struct own {
    const job_place_t *place;
    const char *rooms;
    loong_trainer_state_t state;
} own_t;

/* One rank; the family is a Llama by another name. */
static loong_status_t train_house(loong_context_t *ctx, own_t *own)
{
    static const loong_recipe_key_t keys[] = {
        {"house.rooms", LOONG_RECIPE_INT, "4", 1, 9, NULL, LOONG_RESUME_SAME,
         "of the house"}};
    char data[128], save[128];
    const char *const overrides[] = {data, save, "+checkpoint.load=auto",
                                     own->rooms};
    loong_recipe_params_t params = {NULL, own->rooms != NULL ? 4 : 2,
                                    overrides, 1, keys};
    loong_recipe_t *recipe = NULL;
    loong_comm_t *comm = NULL;
    loong_trainer_t *trainer = NULL;
    snprintf(data, sizeof(data), "data.train=[{path: %s/data}]",
             own->place->dir);
    snprintf(save, sizeof(save), "checkpoint.save=%s/save", own->place->dir);
    assert_ok(ctx, loong_recipe_parse(ctx, "test", recipe_text, &params,
                                      &recipe));
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    loong_trainer_params_t run = {.comm = comm, .recipe = recipe};
    loong_status_t status = loong_trainer_create(ctx, &run, &trainer);
    if (status == LOONG_OK) {
        status = loong_trainer_run(trainer);
        own->state = loong_trainer_get_state(trainer);
    }
    loong_trainer_destroy(&trainer);
    loong_comm_destroy(&comm);
    loong_recipe_destroy(&recipe);
    return status;
}

static void own_keys_live_through_a_resume(void **state)
{
    (void)state;
    job_place_t p = job_begin();
    own_t own = {.place = &p};
    assert_ok(p.ctx, loong_register_builtin(p.ctx));
    loong_family_t house = *loong_find_family(p.ctx, "llama");
    house.name = "house";
    house.state = NULL;
    assert_ok(p.ctx, loong_register_family(p.ctx, &house));
    assert_ok(p.ctx, train_house(p.ctx, &own));
    own.rooms = "+house.rooms=4"; /* what they are by default */
    assert_ok(p.ctx, train_house(p.ctx, &own));
    assert_int_equal(own.state.step, 1);
    own.rooms = "+house.rooms=5";
    assert_fails(p.ctx, train_house(p.ctx, &own), LOONG_ERR_MISMATCH,
                 "house.rooms: 4 in the checkpoint, now 5");
    /* What a house has by default, the house alone knows. */
    own.rooms = "+model.foundation.window_size=0";
    assert_fails(p.ctx, train_house(p.ctx, &own), LOONG_ERR_MISMATCH,
                 "window_size: not set in the checkpoint, now 0");
    job_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_that_nothing_binds_are_refused),
        cmocka_unit_test(an_unknown_family_cannot_be_exported),
        cmocka_unit_test(all_ranks_learn_why_one_cannot_start),
        cmocka_unit_test(own_keys_live_through_a_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
