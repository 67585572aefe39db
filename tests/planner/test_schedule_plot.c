/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of cells: well-formed, every program drawn once at its time,
 * nothing over another, the idle share that the simulation counts. */
#include "fake_cell.h"
#include "rng.h"
#include "schedule_plot.h"
#include "test.h"

/* ---- well-formed XML ----------------------------------------------------- */

enum { MAX_DEPTH = 16, MAX_NAME = 32 };

typedef struct xml {
    const char *at;
    int depth;
    char open[MAX_DEPTH][MAX_NAME];
} xml_t;

static void name_of(xml_t *x, char name[MAX_NAME])
{
    size_t n = strcspn(x->at, " />=\n?");
    assert_true(n > 0 && n < MAX_NAME);
    memcpy(name, x->at, n);
    name[n] = '\0';
    x->at += n;
}

/* Text up to `end`: no '<', and '&' only in an entity. */
static void characters(xml_t *x, char end)
{
    static const char *const entities[] = {"&lt;", "&gt;", "&amp;"};
    for (; *x->at != end; x->at++) {
        bool entity = *x->at != '&';
        for (int64_t i = 0; i < LOONG_COUNT_OF(entities); i++) {
            entity = entity || strncmp(x->at, entities[i],
                                       strlen(entities[i])) == 0;
        }
        if (!entity || *x->at == '<' || *x->at == '\0') {
            fail_msg("not XML at: %.60s", x->at);
        }
    }
}

/* Behind '<'. */
static void tag(xml_t *x)
{
    char name[MAX_NAME];
    if (*x->at == '/') {
        x->at++;
        name_of(x, name);
        assert_true(x->depth > 0);
        assert_string_equal(name, x->open[--x->depth]);
        assert_int_equal(*x->at++, '>');
        return;
    }
    bool declaration = *x->at == '?';
    x->at += declaration;
    name_of(x, name);
    while (*x->at == ' ') {
        char attribute[MAX_NAME];
        x->at++;
        name_of(x, attribute);
        assert_memory_equal(x->at, "=\"", 2);
        x->at += 2;
        characters(x, '"');
        x->at++;
    }
    if (*x->at == '/' || declaration) {
        x->at++;
    } else {
        assert_true(x->depth < MAX_DEPTH);
        memcpy(x->open[x->depth++], name, sizeof(name));
    }
    assert_int_equal(*x->at++, '>');
}

static void assert_xml(const char *text)
{
    xml_t x = {text, 0, {{0}}};
    int roots = 0;
    while (*x.at != '\0') {
        if (*x.at != '<') {
            assert_true(x.depth > 0 || *x.at == '\n');
            characters(&x, *x.at == '\n' ? '\n' : '<');
            x.at += *x.at == '\n';
            continue;
        }
        roots += x.depth == 0 && x.at[1] != '?';
        x.at++;
        tag(&x);
    }
    assert_int_equal(x.depth, 0);
    assert_int_equal(roots, 1);
}

/* ---- what is drawn ------------------------------------------------------- */

static double number(const char *at, const char *name)
{
    char key[16];
    snprintf(key, sizeof(key), " %s=\"", name);
    const char *found = strstr(at, key);
    assert_non_null(found);
    return strtod(found + strlen(key), NULL);
}

/* Rectangles of entries: their number; in each lane one behind the other. */
static int64_t assert_lanes(const char *text)
{
    int64_t count = 0;
    double lane = -1.0;
    double end = 0.0;
    for (const char *at = text;
         (at = strstr(at, "<rect class=\"entry\"")) != NULL; at++) {
        double x = number(at, "x");
        end = number(at, "y") != lane ? 0.0 : end;
        lane = number(at, "y");
        assert_true(x >= end - 0.011); /* hundredths of a pixel */
        end = x + number(at, "width");
        count++;
    }
    return count;
}

static int64_t drawn_entries(const loong_cell_t *cell,
                             const loong_span_t *spans)
{
    int64_t count = 0;
    for (int r = 0; r < cell->params.ranks; r++) {
        for (int64_t i = 0; i < cell->ranks[r].num_entries; i++, spans++) {
            loong_entry_kind_t kind = cell->ranks[r].entries[i].kind;
            count += spans->end > spans->begin &&
                     (kind < LOONG_ENTRY_SEND_FORWARD ||
                      kind == LOONG_ENTRY_REDUCE);
        }
    }
    return count;
}

static void check_plot(loong_context_t *ctx, const loong_cell_t *cell,
                       uint64_t seed)
{
    static const char *const names[] = {"<first>", "second", "third", "last"};
    loong_simulation_t simulation;
    loong_stage_cost_t *costs = NULL;
    loong_span_t *spans = NULL;
    char shown[64];
    int64_t count = loongi_schedule_spans(cell->ranks, cell->params.ranks);
    int stages = loongi_cell_stage(cell, cell->params.num_components, 0);
    assert_ok(ctx, loongi_calloc(ctx, (size_t)stages, sizeof(*costs), "costs",
                                 &costs));
    for (int i = 0; i < stages; i++) {
        for (int k = 0; k < LOONG_ENTRY_COUNT; k++) {
            costs[i].seconds[k] = 1e-3 + loongi_rng_uniform(
                seed, (uint64_t)i, (uint64_t)k);
        }
    }
    assert_ok(ctx, loongi_calloc(ctx, (size_t)count, sizeof(*spans), "spans",
                                 &spans));
    assert_ok(ctx, loongi_cell_simulate(cell, costs, spans, &simulation));
    loong_simulation_t total = loongi_spans_total(cell, spans);
    assert_true(fabs(total.seconds - simulation.seconds) < 1e-9);
    assert_true(fabs(total.busy - simulation.busy) < 1e-9 * total.busy);
    loong_plot_panel_t panels[] = {{"simulated", spans}, {"a<b>&c", spans}};
    loong_schedule_plot_t plot = {cell, names, "<of> \"both\" & \x01", 2,
                                  panels};
    loong_text_t text = loongi_text_begin(ctx);
    loongi_schedule_plot(&plot, &text);
    assert_int_equal(text.status, LOONG_OK);
    const char *svg = loongi_text_get(&text);
    assert_xml(svg);
    assert_int_equal(assert_lanes(svg), 2 * drawn_entries(cell, spans));
    snprintf(shown, sizeof(shown), "simulated: %.2f ms, idle %.1f %%",
             1e3 * simulation.seconds, 100.0 * simulation.bubble);
    assert_non_null(strstr(svg, shown));
    assert_non_null(strstr(svg, "a&lt;b&gt;&amp;c: "));
    assert_true((strstr(svg, ">&lt;first&gt;</text>") != NULL) ==
                (cell->params.num_components > 1));
    loongi_text_free(&text);
    loongi_free(ctx, spans);
    loongi_free(ctx, costs);
}

static void test_every_kind(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const int32_t rank[] = {0, 1, 2, 3};
    for (int k = 0; loongi_schedule_kinds[k] != NULL; k++) {
        const loong_schedule_kind_t *kind = loongi_schedule_kinds[k];
        for (int i = 0; i < 16; i++) {
            loong_schedule_params_t p = {
                .ranks = 1 + i % 4,
                .chunks = 1 + i / 8,
                .micro_batches = 4 * (1 + i % 3),
                .pair = kind->pairs && i % 2 == 1};
            char reason[LOONG_REASON_SIZE];
            if (kind->accepts != NULL && !kind->accepts(&p, reason)) {
                continue;
            }
            loong_cell_component_t component = {
                kind->name, p, 1, rank, 0, NULL};
            loong_cell_params_t params = {.join = "coupled",
                                          .ranks = p.ranks,
                                          .num_components = 1,
                                          .components = &component};
            loong_cell_t *cell = NULL;
            assert_ok(ctx, loongi_cell_create(ctx, &params, &cell));
            check_plot(ctx, cell, (uint64_t)i);
            loongi_cell_destroy(&cell);
        }
    }
    test_context_end(&ctx);
}

static void test_components(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (uint64_t seed = 0; seed < 60; seed++) {
        fake_cell_t fake;
        loong_cell_t *cell = NULL;
        fake_cell_draw(seed, seed % 2 == 0 ? "coupled" : "phases", &fake);
        assert_ok(ctx, loongi_cell_create(ctx, &fake.params, &cell));
        check_plot(ctx, cell, seed);
        loongi_cell_destroy(&cell);
    }
    test_context_end(&ctx);
}

/* An encoder whose two replicas feed the two stages' first by hand: everything
 * waits for the slower message, and its gradient comes back. */
static void test_edge_by_hand(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const int32_t rank[] = {0, 1};
    loong_schedule_params_t one = {.ranks = 1, .chunks = 1, .micro_batches = 1};
    loong_schedule_params_t two = {.ranks = 2, .chunks = 1, .micro_batches = 1};
    loong_cell_component_t components[] = {{"one_stage", one, 2, rank, 0, NULL},
                                           {"1f1b", two, 1, rank, 0, NULL}};
    loong_cell_edge_t edge = {0, 1, 0, 0, true};
    loong_message_t messages[] = {{0, false, 0, 0, 0, 0},
                                  {0, false, 1, 0, 0, 0},
                                  {0, true, 0, 0, 0, 0},
                                  {0, true, 0, 0, 1, 0}};
    loong_cell_params_t params = {"coupled", 2,     2, components,
                                  1,         &edge, 4, messages};
    loong_stage_cost_t costs[3];
    loong_simulation_t simulation;
    loong_cell_t *cell = NULL;
    memset(costs, 0, sizeof(costs));
    costs[0].seconds[LOONG_ENTRY_F] = 4.0;
    costs[0].seconds[LOONG_ENTRY_B] = 8.0;
    costs[0].seconds[LOONG_ENTRY_SEND_EDGE_FORWARD] = 0.5;
    for (int i = 1; i < 3; i++) {
        costs[i].seconds[LOONG_ENTRY_F] = 1.0;
        costs[i].seconds[LOONG_ENTRY_B] = 2.0;
        costs[i].seconds[LOONG_ENTRY_SEND_FORWARD] = 0.25;
        costs[i].seconds[LOONG_ENTRY_SEND_EDGE_BACKWARD] = 0.125;
    }
    assert_ok(ctx, loongi_cell_create(ctx, &params, &cell));
    assert_ok(ctx, loongi_cell_check(cell));
    assert_ok(ctx, loongi_cell_simulate(cell, costs, NULL, &simulation));
    /* 4 + 0.5, 1 + 0.25 + 1, 2 + 2 + 0.125, 8 */
    assert_true(fabs(simulation.seconds - 18.875) < 1e-12);
    assert_true(fabs(simulation.busy - 2 * (4 + 8 + 1 + 2)) < 1e-12);
    assert_int_equal(loongi_cell_stage(cell, 1, 1), 2);
    loongi_cell_destroy(&cell);
    test_context_end(&ctx);
}

/* Two stages of equal programs by hand: 1F1B of 2 micro-batches, B twice F. */
static void test_by_hand(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_schedule_params_t p = {.ranks = 2, .chunks = 1, .micro_batches = 2};
    loong_stage_cost_t costs[2];
    loong_simulation_t simulation;
    loong_span_t spans[64];
    loong_schedule_t *s = NULL;
    memset(costs, 0, sizeof(costs));
    for (int i = 0; i < 2; i++) {
        costs[i].seconds[LOONG_ENTRY_F] = 1.0;
        costs[i].seconds[LOONG_ENTRY_B] = 2.0;
    }
    assert_ok(ctx, loongi_schedule_create(ctx, "1f1b", &p, &s));
    assert_true(loongi_schedule_spans(s->ranks, 2) <= LOONG_COUNT_OF(spans));
    assert_ok(ctx, loongi_schedule_simulate(s, costs, spans, &simulation));
    assert_true(simulation.seconds == 9.0);
    assert_true(fabs(simulation.bubble - 1.0 / 3.0) < 1e-12);
    /* F0 F1, wait, B0, wait, B1; F0 B0 F1 B1 a second later */
    static const double begins[2][4] = {{0, 1, 4, 7}, {1, 2, 4, 5}};
    for (int r = 0; r < 2; r++) {
        int at = 0;
        const loong_span_t *own = spans + loongi_schedule_spans(s->ranks, r);
        for (int64_t i = 0; i < s->ranks[r].num_entries; i++) {
            if (own[i].end > own[i].begin) {
                assert_true(at < 4 && own[i].begin == begins[r][at]);
                at++;
            }
        }
        assert_int_equal(at, 4);
    }
    loongi_schedule_destroy(&s);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_components),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_edge_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
