/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in templates give what the published ones gave, by digests of what
 * these rendered (tests/oracle/jinja_named.py), and have a span for each turn
 * of an assistant. */
#include "jinja.h"
#include "named.h"
#include "test.h"
#include "value.h"

static int64_t check_name(loong_context_t *ctx, const loong_json_t *talks,
                          const loong_json_t *row)
{
    const char *name = loongi_json_string(loongi_json_get(row, "name"));
    const loong_json_t *digests = loongi_json_get(row, "digests");
    const loong_json_t *spans = loongi_json_get(row, "spans");
    const char *text = loongi_named_template(name);
    loong_jinja_t *jinja = NULL;
    loong_jinja_values_t *values = NULL;
    loong_jinja_output_t out = {0};
    int64_t equal = 0;
    assert_non_null(text);
    assert_ok(ctx, loongi_jinja_parse(ctx, text, strlen(text), name, &jinja));
    assert_true(loongi_jinja_has_generation(jinja));
    assert_ok(ctx, loongi_jinja_values_create(ctx, &values));
    for (int64_t i = 0; i < loongi_json_count(talks); i++) {
        char digest[32];
        loong_jinja_value_t variables;
        const loong_json_t *expected = loongi_json_at(digests, i);
        if (loongi_json_kind(expected) == LOONG_JSON_NULL) {
            continue; /* the published one refuses this conversation */
        }
        loongi_jinja_values_clear(values);
        assert_ok(ctx, loongi_jinja_from_json(values, loongi_json_at(talks, i),
                                              &variables));
        assert_ok(ctx, loongi_jinja_render(ctx, jinja, variables, NULL, &out));
        snprintf(digest, sizeof(digest), "%016llx",
                 (unsigned long long)jinja_hash_text(out.text, out.length));
        if (strcmp(digest, loongi_json_string(expected)) != 0) {
            fail_msg("%s, conversation %d:\n%s", name, (int)i, out.text);
        }
        assert_true(out.spans_exact);
        assert_int_equal(out.num_spans,
                         loongi_json_int(loongi_json_at(spans, i)));
        equal++;
    }
    loongi_jinja_output_free(&out);
    loongi_jinja_values_destroy(&values);
    loongi_jinja_destroy(&jinja);
    return equal;
}

static void test_names(void **state)
{
    loong_context_t *ctx = test_context();
    loong_json_t *all = NULL;
    (void)state;
    assert_ok(ctx, loongi_json_load(
                       ctx, LOONG_SOURCE_DIR "/tests/fixtures/jinja/named.json",
                       &all));
    const loong_json_t *names = loongi_json_get(all, "names");
    for (int64_t k = 0; k < loongi_json_count(names); k++) {
        const loong_json_t *row = loongi_json_at(names, k);
        const char *name = loongi_json_string(loongi_json_get(row, "name"));
        assert_string_equal(name, loongi_named_template_name(k));
        printf(
            "%s: %lld conversations equal\n", name,
            (long long)check_name(ctx, loongi_json_get(all, "variables"), row));
    }
    assert_null(loongi_named_template_name(loongi_json_count(names)));
    assert_null(loongi_named_template("nobody"));
    assert_null(loongi_named_template("-hf"));
    assert_string_equal(loongi_named_template("qwen3-hf"),
                        loongi_named_template("qwen3"));
    loongi_json_destroy(&all);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
