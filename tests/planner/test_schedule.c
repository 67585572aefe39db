/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"
#include "test.h"

static void test_one_stage(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_schedule_params_t params = {1, 1, 3, false, false};
    static const loong_entry_kind_t want[] = {
        LOONG_ENTRY_P, LOONG_ENTRY_F,      LOONG_ENTRY_B,
        LOONG_ENTRY_F, LOONG_ENTRY_B,      LOONG_ENTRY_F,
        LOONG_ENTRY_B, LOONG_ENTRY_REDUCE, LOONG_ENTRY_U};
    loong_schedule_t *s = NULL;
    assert_ok(ctx, loongi_schedule_create(ctx, "one_stage", &params, &s));
    const loong_rank_schedule_t *r = &s->ranks[0];
    assert_int_equal(r->num_entries, LOONG_COUNT_OF(want));
    for (int64_t k = 0; k < r->num_entries; k++) {
        const loong_entry_t *e = &r->entries[k];
        assert_int_equal(e->kind, want[k]);
        bool work = e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_B;
        assert_int_equal(e->micro_batch, work ? (k - 1) / 2 : -1);
        assert_int_equal(e->slot, work ? 0 : -1);
    }
    assert_int_equal(r->chunks[0].slots, 1);
    loongi_schedule_destroy(&s);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
