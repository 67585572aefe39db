/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader tells a source which epoch it reads, whose order is its own, also
 * where a run goes on in the midst of one. */
#include "loong/loader.h"
#include "loong/register.h"
#include "test.h"

enum { T = 16, SAMPLES = 10, EPOCHS = 4, BATCH = 4 };

static loong_status_t open_epochs(loong_context_t *ctx,
                                  const loong_source_params_t *params,
                                  void **source_p)
{
    (void)ctx, (void)params;
    *source_p = NULL;
    return LOONG_OK;
}

static void info_of_epochs(const void *source, loong_source_info_t *info)
{
    (void)source;
    *info = (loong_source_info_t){
        .path = "epochs", .samples = SAMPLES, .tokens = SAMPLES * T};
}

/* Its tokens are its number, and in which epoch it is read. */
static loong_status_t read_epoch(const void *source, int64_t i,
                                 loong_items_t *items)
{
    LOONG_TRY(loong_items_begin(items, (T + 1) * 4 * sizeof(int64_t)));
    loong_item_t *item = &items->item[items->count++];
    *item = (loong_item_t){
        .type = LOONG_ITEM_TOKENS,
        .size = {T + 1},
        .ids = loong_items_take(items, (T + 1) * sizeof(*item->ids)),
        .weight = loong_items_take(items, T + 1),
        .starts = loong_items_take(items, T + 1)};
    memset(item->starts, 0, T + 1);
    memset(item->weight, 1, T + 1);
    for (int t = 0; t <= T; t++) {
        item->ids[t] = (int32_t)(items->epoch * SAMPLES + i);
    }
    (void)source;
    return LOONG_OK;
}

static const loong_source_class_t epochs_source = {.struct_size =
                                                       sizeof(epochs_source),
                                                   .name = "epochs",
                                                   .open = open_epochs,
                                                   .close = free, /* of NULL */
                                                   .get_info = info_of_epochs,
                                                   .read = read_epoch};

/* A source reads each sample once an epoch, in an order of that epoch, and is
 * told which it is; so is one that is read from any sample on. */
static void test_epochs(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_blend_t *blend = NULL;
    loong_blend_source_t source = {
        .path = "epochs", .weight = 1, .class_name = "epochs"};
    loong_blend_params_t train = {.name = "epochs",
                                  .sources = &source,
                                  .num_sources = 1,
                                  .seq_length = T,
                                  .seed = 5,
                                  .shuffle = true};
    loong_token_params_t tokens = {.vocab_size = 1000,
                                   .seq_length = T,
                                   .rows = BATCH,
                                   .context_parallel_size = 1};
    loong_loader_params_t p = {.processor = &loong_token_processor,
                               .config = &tokens,
                               .micro_batch_size = BATCH,
                               .global_batch_size = BATCH,
                               .data_parallel_size = 1};
    int32_t order[EPOCHS * SAMPLES];
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_register_source(ctx, &epochs_source));
    assert_ok(ctx, loong_blend_create(ctx, &train, &blend));
    p.blend = blend;
    for (int64_t from = 0; from < EPOCHS * SAMPLES; from += 3 * BATCH) {
        loong_loader_t *loader = NULL;
        assert_ok(ctx, loong_loader_create(ctx, &p, &loader));
        for (int64_t at = from; at < EPOCHS * SAMPLES; at += BATCH) {
            int32_t ids[BATCH * T];
            double sums[LOONG_MAX_NORMALISERS] = {0};
            loong_field_t field = {"tokens", LOONG_I32, BATCH * T, ids, NULL};
            assert_ok(ctx, loong_loader_check_step(loader, at, sums));
            assert_ok(ctx, loong_loader_fill(loader, at, 0, 1, &field));
            for (int64_t i = 0; i < BATCH; i++) {
                order[at + i] = from == 0 ? ids[i * T] : order[at + i];
                assert_int_equal(ids[i * T], order[at + i]);
                assert_int_equal(order[at + i] / SAMPLES, (at + i) / SAMPLES);
            }
        }
        loong_loader_destroy(&loader);
    }
    for (int e = 0; e < EPOCHS; e++) {
        int taken = 0;
        int moved = 0;
        for (int k = 0; k < SAMPLES; k++) {
            taken |= 1 << order[e * SAMPLES + k] % SAMPLES;
            moved += order[e * SAMPLES + k] % SAMPLES !=
                     order[(e + 1) % EPOCHS * SAMPLES + k] % SAMPLES;
        }
        assert_int_equal(taken, (1 << SAMPLES) - 1);
        assert_true(moved > 0);
    }
    loong_blend_destroy(&blend);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_epochs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
