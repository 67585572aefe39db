/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates stay within bounds of steps, memory and depth; a text that grows
 * in a loop costs what is appended; values are built by hand; threads share a
 * template. */
#include <pthread.h>

#include "jinja.h"
#include "test.h"

static loong_status_t run(loong_context_t *ctx, const char *text,
                          const loong_jinja_limits_t *limits,
                          loong_jinja_output_t *out)
{
    loong_jinja_t *jinja = NULL;
    loong_jinja_values_t *values = NULL;
    loong_jinja_value_t variables;
    loong_status_t status = loongi_jinja_values_create(ctx, &values);
    if (status == LOONG_OK) {
        status = loongi_jinja_dict(values, &variables);
    }
    if (status == LOONG_OK) {
        status = loongi_jinja_parse(ctx, text, strlen(text), "t", &jinja);
    }
    if (status == LOONG_OK) {
        status = loongi_jinja_render(ctx, jinja, variables, limits, out);
    }
    loongi_jinja_destroy(&jinja);
    loongi_jinja_values_destroy(&values);
    return status;
}

static void refused(const char *text, const loong_jinja_limits_t *limits,
                    const char *says)
{
    loong_context_t *ctx = test_context();
    loong_jinja_output_t out = {0};
    assert_fails(ctx, run(ctx, text, limits, &out), LOONG_ERR_UNSUPPORTED,
                 says);
    loongi_jinja_output_free(&out);
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

static void test_bounds(void **state)
{
    const loong_jinja_limits_t small = {.max_steps = 100000,
                                        .max_bytes = 1 << 20};
    (void)state;
    refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL,
            "t:1:19: more than 200 macros, loops or values in each other");
    refused("{% for t in [1] recursive %}{{ loop([1]) }}{% endfor %}", NULL,
            "more than 200 macros, loops");
    refused("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}"
            "{% endfor %}",
            &small, "more than 100000 steps");
    refused("{% set ns = namespace(t='x') %}{% for i in range(99) %}"
            "{% set ns.t = ns.t + ns.t %}{% endfor %}",
            &small, "take more than 1048576 bytes");
    refused("{% for i in range(99999) %}{{ 'some text' }}{% endfor %}",
            &(const loong_jinja_limits_t){.max_bytes = 100000},
            "more than 100000 bytes of text");
    refused("{{ 'x' * 1000000000 }}", &small, "100000 steps");
    refused("{{ '%1000000000d' % 1 }}", &small, "100000 steps");
    refused("{{ [1] * 1000000000 }}", &small, "1048576 bytes");
    refused("{{ ' ' | center(1000000000) }}", &small, "bytes of text");
    /* The same list in itself 60 times is seen 2^60 times. */
    refused("{% set ns = namespace(a=[], b=[]) %}{% for i in range(60) %}"
            "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}"
            "{% endfor %}{{ ns.a == ns.b }}",
            &small, "100000 steps");
    refused("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", NULL,
            "in each other");
}

static void test_refused(void **state)
{
    (void)state;
    refused("a\n {% include 'b' %}", NULL, "t:2:5: 'include' is not offered");
    refused("{{ [1] | random }}", NULL, "t:1:10: 'random' is not offered");
    refused("{{ '<b>' | striptags }}", NULL, "'striptags' is not offered");
}

/* 200000 pieces in 16 MiB: a copy for each would be 20 GiB. */
static void test_append(void **state)
{
    loong_context_t *ctx = test_context();
    loong_jinja_output_t out = {0};
    const loong_jinja_limits_t limits = {.max_bytes = 64 << 20};
    (void)state;
    assert_ok(ctx,
              run(ctx,
                  "{% set ns = namespace(t='') %}"
                  "{% for i in range(100000) %}"
                  "{% set ns.t = ns.t ~ i % 10 %}{% set ns.t = ns.t + 'y' %}"
                  "{% endfor %}{{ ns.t | length }}",
                  &limits, &out));
    assert_string_equal(out.text, "200000");
    loongi_jinja_output_free(&out);
    test_context_end(&ctx);
}

static void test_spans(void **state)
{
    loong_context_t *ctx = test_context();
    loong_jinja_output_t out = {0};
    (void)state;
    assert_ok(ctx,
              run(ctx, "a{% generation %}bc{% endgeneration %}", NULL, &out));
    assert_true(out.spans_exact);
    assert_int_equal(out.num_spans, 1);
    assert_int_equal(out.spans[0].begin, 1);
    assert_int_equal(out.spans[0].end, 3);
    assert_ok(ctx, run(ctx,
                       "{% macro m() %}{% generation %}b{% endgeneration %}"
                       "{% endmacro %}{{ m() }}",
                       NULL, &out));
    assert_false(out.spans_exact);
    assert_string_equal(out.text, "b");
    loongi_jinja_output_free(&out);
    test_context_end(&ctx);
}

typedef struct job {
    const loong_jinja_t *jinja;
    bool equal;
} job_t;

/* {"messages": [{"role": "user", "content": "hi", "n": 1.5}], "on": true} */
static void build(loong_context_t *ctx, loong_jinja_values_t *values,
                  loong_jinja_value_t *variables)
{
    loong_jinja_value_t list, message;
    assert_ok(ctx, loongi_jinja_dict(values, variables));
    assert_ok(ctx, loongi_jinja_list(values, &list));
    assert_ok(ctx, loongi_jinja_dict(values, &message));
    assert_ok(ctx, loongi_jinja_set(values, message, "role",
                                    loongi_jinja_string("system", 6)));
    assert_ok(ctx, loongi_jinja_set(values, message, "content",
                                    loongi_jinja_string("hi there", 2)));
    assert_ok(ctx, loongi_jinja_set(values, message, "role",
                                    loongi_jinja_string("user", 4)));
    assert_ok(ctx,
              loongi_jinja_set(values, message, "n", loongi_jinja_real(1.5)));
    for (int i = 0; i < 20; i++) {
        assert_ok(ctx, loongi_jinja_add(values, list, message));
    }
    assert_ok(ctx, loongi_jinja_set(values, *variables, "messages", list));
    assert_ok(ctx, loongi_jinja_set(values, *variables, "on",
                                    loongi_jinja_bool(true)));
    assert_ok(ctx,
              loongi_jinja_set(values, *variables, "k", loongi_jinja_int(7)));
    assert_ok(ctx, loongi_jinja_set(values, *variables, "none_at_all",
                                    loongi_jinja_none()));
}

static void *render_often(void *argument)
{
    job_t *job = argument;
    loong_context_t *ctx = test_context();
    loong_jinja_values_t *values = NULL;
    loong_jinja_value_t variables;
    loong_jinja_output_t out = {0};
    job->equal = true;
    assert_ok(ctx, loongi_jinja_values_create(ctx, &values));
    for (int i = 0; i < 200; i++) {
        loongi_jinja_values_clear(values);
        build(ctx, values, &variables);
        assert_ok(ctx,
                  loongi_jinja_render(ctx, job->jinja, variables, NULL, &out));
        job->equal =
            job->equal && strcmp(out.text, "{'role': 'user', 'content': 'hi', "
                                           "'n': 1.5}20True7None") == 0;
    }
    loongi_jinja_output_free(&out);
    loongi_jinja_values_destroy(&values);
    test_context_end(&ctx);
    return NULL;
}

static void test_threads(void **state)
{
    static const char text[] =
        "{{ messages[0] }}{{ messages | length }}{{ on }}{{ k }}"
        "{{ none_at_all }}";
    enum { THREADS = 4 };
    loong_context_t *ctx = test_context();
    loong_jinja_t *jinja = NULL;
    pthread_t threads[THREADS];
    job_t jobs[THREADS];
    (void)state;
    assert_ok(ctx,
              loongi_jinja_parse(ctx, text, sizeof(text) - 1, "t", &jinja));
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job_t){.jinja = jinja};
        assert_int_equal(
            pthread_create(&threads[i], NULL, render_often, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(jobs[i].equal);
    }
    loongi_jinja_destroy(&jinja);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_append), cmocka_unit_test(test_spans),
        cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
