/* SPDX-License-Identifier: Apache-2.0
 *
 * What is refused before anything is trained: an export that a family of the
 * user's own has no Hugging Face model type for. */
#include "loong/comm.h"
#include "loong/family.h"
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
    assert_int_equal(plan(ctx, 1, to_hf), LOONG_ERR_UNSUPPORTED);
    const char *error = loong_context_error(ctx);
    assert_non_null(strstr(error, "'house'"));
    assert_non_null(strstr(error, "gpt2, llama"));
    assert_non_null(strstr(error, "wanted for export.hf"));
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_family_cannot_be_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
