/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates give what jinja2 gave, or are refused where it refuses:
 *   test_jinja FILE [TIMES]   of {"templates": [...], "cases": [...]}, made by
 *                             tests/oracle/jinja_*.py; with TIMES the time of
 *                             so many renderings of each is printed
 * A case has a template (its number), variables (a mapping, or the number of
 * one of "variables"), and "text", with "spans" where they are asked for; or
 * no text where jinja2 fails. */
#include "jinja.h"
#include "json.h"
#include "test.h"

static const char *path;
static int times;

static int64_t number(const loong_json_t *json, const char *key)
{
    return loongi_json_int(loongi_json_get(json, key));
}

typedef struct tally {
    int64_t cases, refused, wrong;
    double seconds;
} tally_t;

static void show(tally_t *tally, const loong_json_t *one, const char *what,
                 const char *found)
{
    const loong_json_t *text = loongi_json_get(one, "text");
    if (tally->wrong++ < 40) {
        fprintf(stderr, "%s: %s\n  expected: %s\n  found:    %s\n",
                loongi_json_string(loongi_json_get(one, "name")), what,
                text == NULL ? "an error" : loongi_json_string(text), found);
    }
}

static bool same_spans(const loong_json_t *spans,
                       const loong_jinja_output_t *out)
{
    if (loongi_json_count(spans) != out->num_spans) {
        return false;
    }
    for (int64_t i = 0; i < out->num_spans; i++) {
        const loong_json_t *span = loongi_json_at(spans, i);
        if ((size_t)loongi_json_int(loongi_json_at(span, 0)) !=
                out->spans[i].begin ||
            (size_t)loongi_json_int(loongi_json_at(span, 1)) !=
                out->spans[i].end) {
            return false;
        }
    }
    return true;
}

static void check_output(tally_t *tally, const loong_json_t *one,
                         loong_status_t status, const char *error,
                         const loong_jinja_output_t *out)
{
    const loong_json_t *text = loongi_json_get(one, "text");
    const loong_json_t *spans = loongi_json_get(one, "spans");
    const loong_json_t *says = loongi_json_get(one, "error");
    if (status != LOONG_OK) {
        tally->refused++;
        if (text != NULL) {
            show(tally, one, "refused", error);
        } else if (strstr(error, ":") == NULL ||
                   (says != NULL &&
                    strstr(error, loongi_json_string(says)) == NULL)) {
            show(tally, one, "says something else", error);
        }
    } else if (text == NULL) {
        show(tally, one, "not refused", out->text);
    } else if (out->length != loongi_json_string_length(text) ||
               memcmp(out->text, loongi_json_string(text), out->length) != 0) {
        show(tally, one, "another text", out->text);
    } else if (spans != NULL && !same_spans(spans, out)) {
        show(tally, one, "other spans", out->text);
    }
}

/* Variables are made of JSON each time, as for a record of a file. */
static void measure(loong_context_t *ctx, const loong_jinja_t *jinja,
                    const loong_json_t *given, tally_t *tally)
{
    loong_jinja_output_t out = {0};
    loong_jinja_values_t *values = NULL;
    loong_jinja_value_t variables;
    double begin = loongi_now();
    assert_ok(ctx, loongi_jinja_values_create(ctx, &values));
    for (int i = 0; i < times; i++) {
        loongi_jinja_values_clear(values);
        assert_ok(ctx, loongi_jinja_from_json(values, given, &variables));
        assert_ok(ctx, loongi_jinja_render(ctx, jinja, variables, NULL, &out));
    }
    loongi_jinja_output_free(&out);
    loongi_jinja_values_destroy(&values);
    tally->seconds += loongi_now() - begin;
}

static void check_case(loong_context_t *ctx, const loong_json_t *all,
                       const loong_json_t *one, loong_jinja_t **templates,
                       tally_t *tally)
{
    loong_jinja_output_t out = {0};
    loong_jinja_limits_t limits = {0};
    loong_jinja_values_t *values = NULL;
    loong_jinja_value_t variables;
    int64_t k = number(one, "template");
    const loong_json_t *text =
        loongi_json_at(loongi_json_get(all, "templates"), k);
    const loong_json_t *given = loongi_json_get(one, "variables");
    loong_status_t status = LOONG_OK;
    limits.now = number(all, "now");
    if (loongi_json_kind(given) == LOONG_JSON_INT) {
        given = loongi_json_at(loongi_json_get(all, "variables"),
                               loongi_json_int(given));
    }
    loong_context_clear_error(ctx);
    assert_ok(ctx, loongi_jinja_values_create(ctx, &values));
    assert_ok(ctx, loongi_jinja_from_json(values, given, &variables));
    if (templates[k] == NULL) {
        status = loongi_jinja_parse(ctx, loongi_json_string(text),
                                    loongi_json_string_length(text), "case",
                                    &templates[k]);
    }
    if (status == LOONG_OK) {
        status =
            loongi_jinja_render(ctx, templates[k], variables, &limits, &out);
    }
    check_output(tally, one, status, loong_context_error(ctx), &out);
    if (status == LOONG_OK) {
        measure(ctx, templates[k], given, tally);
    }
    tally->cases++;
    loongi_jinja_output_free(&out);
    loongi_jinja_values_destroy(&values);
}

static void test_cases(void **state)
{
    loong_context_t *ctx = test_context();
    loong_json_t *all = NULL;
    tally_t tally = {0};
    (void)state;
    assert_ok(ctx, loongi_json_load(ctx, path, &all));
    const loong_json_t *cases = loongi_json_get(all, "cases");
    int64_t num = loongi_json_count(loongi_json_get(all, "templates"));
    loong_jinja_t **templates = calloc((size_t)num, sizeof(*templates));
    for (int64_t i = 0; i < loongi_json_count(cases); i++) {
        check_case(ctx, all, loongi_json_at(cases, i), templates, &tally);
    }
    for (int64_t k = 0; k < num; k++) {
        loongi_jinja_destroy(&templates[k]);
    }
    free(templates);
    loongi_json_destroy(&all);
    printf("%lld templates, %lld cases, %lld of them refused: %lld differ\n",
           (long long)num, (long long)tally.cases, (long long)tally.refused,
           (long long)tally.wrong);
    if (times > 0) {
        printf("%.6f seconds\n", tally.seconds);
    }
    assert_true(tally.cases > 0);
    assert_int_equal(tally.wrong, 0);
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    path = argc > 1 ? argv[1] : "";
    times = argc > 2 ? atoi(argv[2]) : 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
