/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

static void trail_keeps_cause_first(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    assert_int_equal(LOONG_FAIL(ctx, LOONG_ERR_IO, "cannot read %s", "a.bin"),
                     LOONG_ERR_IO);
    loongi_error_note(ctx, "while opening the data set");
    const char *trail = loong_context_error(ctx);
    assert_non_null(strstr(trail, "test_base.c:"));
    assert_true(strstr(trail, "a.bin") < strstr(trail, "while opening"));
    loong_context_clear_error(ctx);
    assert_string_equal(loong_context_error(ctx), "");
    for (int i = 0; i < 3; i++) { /* whoever meets it */
        (void)LOONG_FAIL(ctx, LOONG_ERR_CONFIG, "%s", i == 1 ? "a" : "a cause");
        loongi_error_note(ctx, "%s", "wanted by a key");
    }
    assert_string_equal(loong_context_error(ctx),
                        "a cause\nwanted by a key\na\nwanted by a key");
    test_context_end(&ctx);
}

static void failing_allocation_is_an_error(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    void *p = NULL;
    loong_context_fail_alloc(ctx, 2);
    assert_ok(ctx, loongi_alloc(ctx, 10, "first", &p));
    loongi_free(ctx, p);
    assert_fails(ctx, loongi_alloc(ctx, 10, "second", &p), LOONG_ERR_MEMORY,
                 "second");
    assert_ok(ctx, loongi_alloc(ctx, 10, "third", &p));
    assert_int_equal((uintptr_t)p % 64, 0);
    loongi_free(ctx, p);
    assert_fails(ctx, loongi_calloc(ctx, SIZE_MAX, 16, "huge", &p),
                 LOONG_ERR_MEMORY, "huge");
    test_context_end(&ctx);
}

static void arena_and_text(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_arena_t *arena = NULL;
    assert_ok(ctx, loongi_arena_create(ctx, "arena", &arena));
    for (int i = 0; i < 10000; i++) {
        char *text = NULL;
        assert_ok(ctx, loongi_arena_printf(arena, &text, "layers.%d", i));
        assert_int_equal(atoi(text + 7), i);
    }
    loongi_arena_destroy(&arena);
    loong_text_t text = loongi_text_begin(ctx);
    for (int i = 0; i < 1000; i++) {
        loongi_text_printf(&text, "%d,", i % 10);
    }
    assert_int_equal(text.length, 2000);
    loongi_text_free(&text);
    test_context_end(&ctx);
}

static void edit_distance(void **state)
{
    (void)state;
    assert_int_equal(loongi_edit_distance("seq_lenght", "seq_length", 9), 2);
    assert_int_equal(loongi_edit_distance("", "abc", 9), 3);
    assert_int_equal(loongi_edit_distance("abc", "xyz", 1), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trail_keeps_cause_first),
        cmocka_unit_test(failing_allocation_is_an_error),
        cmocka_unit_test(arena_and_text),
        cmocka_unit_test(edit_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
