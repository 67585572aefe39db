/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules: each generator over random sizes is proved by the validator;
 * damaged schedules are refused; the bubble is the one of theory. */
#include "rng.h"
#include "schedule_impl.h"
#include "test.h"

/* ---- one stage by hand -------------------------------------------------- */

static void test_one_stage(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_schedule_params_t params = {1, 1, 3, false, false};
    static const loong_entry_kind_t want[] = {
        LOONG_ENTRY_F, LOONG_ENTRY_B, LOONG_ENTRY_F,      LOONG_ENTRY_B,
        LOONG_ENTRY_F, LOONG_ENTRY_B, LOONG_ENTRY_REDUCE, LOONG_ENTRY_U};
    loong_schedule_t *s = NULL;
    assert_ok(ctx, loongi_schedule_create(ctx, "one_stage", &params, &s));
    const loong_rank_schedule_t *r = &s->ranks[0];
    assert_int_equal(r->num_entries, LOONG_COUNT_OF(want));
    for (int64_t k = 0; k < r->num_entries; k++) {
        const loong_entry_t *e = &r->entries[k];
        assert_int_equal(e->kind, want[k]);
        bool work = e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_B;
        assert_int_equal(e->micro_batch, work ? k / 2 : -1);
        assert_int_equal(e->slot, work ? 0 : -1);
    }
    assert_int_equal(r->chunks[0].slots, 1);
    loongi_schedule_destroy(&s);
    test_context_end(&ctx);
}

static void test_refusals(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_schedule_t *s = NULL;
    loong_schedule_params_t p = {2, 1, 4, false, false};
    assert_fails(ctx, loongi_schedule_create(ctx, "1f2b", &p, &s),
                 LOONG_ERR_ARG, "one_stage, 1f1b, interleaved");
    assert_fails(ctx, loongi_schedule_create(ctx, "one_stage", &p, &s),
                 LOONG_ERR_ARG, "2 ranks of 1 chunks, 1 of 1 is allowed");
    assert_fails(ctx, loongi_schedule_create(ctx, "interleaved", &p, &s),
                 LOONG_ERR_ARG, "1 chunk a rank, 2 or more are wanted; with 1 "
                                "it would be 1f1b");
    p.micro_batches = 3;
    p.chunks = 2;
    assert_fails(ctx, loongi_schedule_create(ctx, "interleaved", &p, &s),
                 LOONG_ERR_ARG, "3 micro-batches, a multiple of the 2 ranks");
    assert_fails(ctx, loongi_schedule_create(ctx, "1f1b", &p, &s),
                 LOONG_ERR_ARG, "2 chunks a rank, 1 is allowed");
    p.chunks = 1;
    p.pair = true;
    assert_fails(ctx, loongi_schedule_create(ctx, "zero_bubble_h1", &p, &s),
                 LOONG_ERR_ARG, "no pairs");
    p.chunks = 3;
    assert_fails(ctx, loongi_schedule_create(ctx, "zero_bubble_h1", &p, &s),
                 LOONG_ERR_ARG, "schedule zero_bubble_h1: 2 problems");
    p.chunks = 1;
    p.pair = false;
    p.micro_batches = 0;
    assert_fails(ctx, loongi_schedule_create(ctx, "1f1b", &p, &s),
                 LOONG_ERR_ARG, "0 micro-batches; at least 1");
    assert_null(s);
    test_context_end(&ctx);
}

/* ---- random sizes ------------------------------------------------------- */

static uint64_t draw(uint64_t seed, uint64_t index, uint64_t bound)
{
    return (uint64_t)(loongi_rng_uniform(seed, 0, index) * (double)bound);
}

/* Sizes that the generator takes. */
static loong_schedule_params_t random_params(const loong_schedule_kind_t *kind,
                                             uint64_t seed)
{
    loong_schedule_params_t p = {.ranks = 1, .chunks = 1, .micro_batches = 1};
    char reason[LOONG_REASON_SIZE];
    p.ranks = 1 + (int)draw(seed, 0, 8);
    p.chunks = 1 + (int)draw(seed, 1, 4);
    p.micro_batches = 1 + (int)draw(seed, 2, 24);
    p.pair = kind->pairs && draw(seed, 3, 2);
    p.folded = kind->evaluate && draw(seed, 6, 2);
    if (kind->accepts != NULL && !kind->accepts(&p, reason)) {
        p.chunks = kind->folded ? 2 : 1;
    }
    if (kind->accepts != NULL && !kind->accepts(&p, reason)) {
        p.chunks = 2 + (int)draw(seed, 1, 3);
        p.micro_batches = p.ranks * (1 + (int)draw(seed, 5, 5));
    }
    if (kind->accepts != NULL && !kind->accepts(&p, reason)) {
        p.ranks = p.chunks = 1;
    }
    return p;
}

static void test_random_sizes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int kind = 0; loongi_schedule_kinds[kind] != NULL; kind++) {
        for (uint64_t seed = 0; seed < 1500; seed++) {
            loong_schedule_params_t p =
                random_params(loongi_schedule_kinds[kind], seed);
            loong_schedule_t *s = NULL;
            assert_ok(ctx, loongi_schedule_create(
                               ctx, loongi_schedule_kinds[kind]->name, &p,
                               &s));
            if (loongi_schedule_check(s) != LOONG_OK) {
                fail_msg("%s: %d ranks, %d chunks, %d micro-batches, pair %d: "
                         "%s", s->kind->name, p.ranks, p.chunks,
                         p.micro_batches, p.pair,
                         loong_context_error(ctx));
            }
            loongi_schedule_destroy(&s);
        }
    }
    test_context_end(&ctx);
}

/* ---- bubbles ------------------------------------------------------------ */

/* Equal stages: F takes f of a rank's time, B and W likewise. */
static double simulate(loong_context_t *ctx, const char *name,
                       const loong_schedule_params_t *p, double f, double b,
                       double w)
{
    loong_stage_cost_t costs[64];
    loong_simulation_t simulation;
    loong_schedule_t *s = NULL;
    memset(costs, 0, sizeof(costs));
    for (int i = 0; i < p->ranks * p->chunks; i++) {
        costs[i].seconds[LOONG_ENTRY_F] = f / p->chunks;
        costs[i].seconds[LOONG_ENTRY_B] = b / p->chunks;
        costs[i].seconds[LOONG_ENTRY_W] = w / p->chunks;
    }
    assert_ok(ctx, loongi_schedule_create(ctx, name, p, &s));
    assert_ok(ctx, loongi_schedule_simulate(s, costs, NULL, &simulation));
    double work = p->ranks * p->micro_batches * (f + b + w);
    assert_true(fabs(simulation.busy - work) <= 1e-9 * work);
    loongi_schedule_destroy(&s);
    return simulation.seconds;
}

static void assert_theory(const char *name, const loong_schedule_params_t *p,
                          double seconds, double theory)
{
    if (fabs(seconds - theory) > 1e-9 * theory) {
        fail_msg("%s, %d ranks, %d chunks, %d micro-batches: %g s, by theory "
                 "%g s", name, p->ranks, p->chunks, p->micro_batches, seconds,
                 theory);
    }
}

static void test_bubbles(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int m = ranks; m <= 4 * ranks; m++) {
            loong_schedule_params_t p = {ranks, 1, m, false, false};
            assert_theory("1f1b", &p, simulate(ctx, "1f1b", &p, 1, 2, 0),
                          3.0 * (m + ranks - 1));
            assert_theory("zero_bubble_h1", &p,
                          simulate(ctx, "zero_bubble_h1", &p, 1, 1, 1),
                          3.0 * m + (ranks - 1));
            p.chunks = 2;
            if (m >= 2 * ranks - 1) {
                assert_theory("zero_bubble_v", &p,
                              simulate(ctx, "zero_bubble_v", &p, 1, 1, 1),
                              3.0 * m + (ranks - 1) / 2.0);
            }
            for (int chunks = 2; chunks <= 4 && m % ranks == 0; chunks++) {
                p.chunks = chunks;
                assert_theory("interleaved", &p,
                              simulate(ctx, "interleaved", &p, 1, 2, 0),
                              3.0 * m + 3.0 * (ranks - 1) / chunks);
            }
        }
    }
    test_context_end(&ctx);
}

/* ---- random costs ------------------------------------------------------- */

static void random_costs(const loong_schedule_t *s, uint64_t seed,
                         loong_stage_cost_t *costs)
{
    for (int i = 0; i < loongi_schedule_stages(s); i++) {
        for (int k = 0; k < LOONG_ENTRY_COUNT; k++) {
            costs[i].seconds[k] = loongi_rng_uniform(
                seed, 1, (uint64_t)(i * LOONG_ENTRY_COUNT + k));
        }
    }
}

/* The step is no shorter than the busiest rank and than the way of one
 * micro-batch, scales with the costs, and no cost shortens it. */
static void check_costs(loong_context_t *ctx, const loong_schedule_t *s,
                        uint64_t seed)
{
    loong_stage_cost_t costs[64];
    loong_simulation_t a;
    loong_simulation_t b;
    double way = 0.0;
    memset(costs, 0, sizeof(costs));
    int stages = loongi_schedule_stages(s);
    int kinds[2] = {s->kind->evaluate ? LOONG_ENTRY_E : LOONG_ENTRY_F,
                    LOONG_ENTRY_B};
    random_costs(s, seed, costs);
    assert_ok(ctx, loongi_schedule_simulate(s, costs, NULL, &a));
    for (int i = 0; i < stages; i++) {
        for (int k = 0; k < (s->kind->evaluate ? 1 : 2); k++) {
            way += costs[i].seconds[kinds[k]];
        }
        if (i + 1 < stages) {
            way += costs[i].seconds[LOONG_ENTRY_SEND_FORWARD];
        }
        if (i > 0 && !s->kind->evaluate) {
            way += costs[i].seconds[LOONG_ENTRY_SEND_BACKWARD];
        }
    }
    assert_true(a.seconds >= way - 1e-9);
    assert_true(a.seconds >= a.busy / s->params.ranks - 1e-9);
    assert_true(a.bubble >= -1e-12 && a.bubble < 1.0);
    int stage = (int)draw(seed, 9, (uint64_t)stages);
    int kind = (int)draw(seed, 10, LOONG_ENTRY_COUNT);
    costs[stage].seconds[kind] += 1.0;
    assert_ok(ctx, loongi_schedule_simulate(s, costs, NULL, &b));
    assert_true(b.seconds >= a.seconds);
    costs[stage].seconds[kind] -= 1.0;
    for (int i = 0; i < stages; i++) {
        for (int k = 0; k < LOONG_ENTRY_COUNT; k++) {
            costs[i].seconds[k] *= 2.0;
        }
    }
    assert_ok(ctx, loongi_schedule_simulate(s, costs, NULL, &b));
    assert_true(fabs(b.seconds - 2.0 * a.seconds) < 1e-9 * a.seconds);
}

/* ---- damage ------------------------------------------------------------- */

static loong_entry_t *find_entry(loong_rank_schedule_t *r,
                                 loong_entry_kind_t kind, int chunk, int mb)
{
    for (int64_t k = 0; k < r->num_entries; k++) {
        loong_entry_t *e = &r->entries[k];
        if (e->kind == kind && e->chunk == chunk && e->micro_batch == mb) {
            return e;
        }
    }
    return NULL;
}

static void swap_entries(loong_entry_t *a, loong_entry_t *b)
{
    loong_entry_t swap = *a;
    int32_t pair = a->pair;
    *a = *b;
    a->pair = pair;
    swap.pair = b->pair;
    *b = swap;
}

/* Gives the slot of micro-batch 1 to micro-batch 0, both alive. */
static bool collide(loong_rank_schedule_t *r)
{
    loong_entry_t *b = find_entry(r, LOONG_ENTRY_B, 0, 0);
    loong_entry_t *f = find_entry(r, LOONG_ENTRY_F, 0, 1);
    if (b == NULL || f == NULL || f > b) {
        return false;
    }
    for (int64_t k = 0; k < r->num_entries; k++) {
        loong_entry_t *e = &r->entries[k];
        e->slot = e->chunk == 0 && e->micro_batch == 0 ? f->slot : e->slot;
    }
    return true;
}

enum { DAMAGES = 9 };

/* False where the schedule has no such place. */
static bool damage(loong_schedule_t *s, int how, uint64_t seed)
{
    loong_rank_schedule_t *r =
        &s->ranks[draw(seed, 20, (uint64_t)s->params.ranks)];
    int64_t at = (int64_t)draw(seed, 21, (uint64_t)r->num_entries);
    loong_entry_t *e = &r->entries[at];
    loong_entry_kind_t work = s->kind->evaluate ? LOONG_ENTRY_E : LOONG_ENTRY_F;
    loong_entry_t *a = find_entry(r, work, 0, 0);
    loong_entry_t *b = find_entry(r, work, 0, 1);
    switch (how) {
    case 0: /* an entry is missing */
        for (int64_t k = 0; k < r->num_entries; k++) {
            r->entries[k].pair = -1;
        }
        memmove(e, e + 1, sizeof(*e) * (size_t)(r->num_entries - 1 - at));
        r->num_entries--;
        return true;
    case 1: /* an entry stands there twice, another not */
        *e = r->entries[at > 0 ? at - 1 : 1];
        return true;
    case 2: /* backward before forward */
        b = find_entry(r, LOONG_ENTRY_B, 0, 0);
        if (b == NULL) {
            return false;
        }
        swap_entries(a, b);
        return true;
    case 3: /* micro-batch 1 before 0 */
        if (b == NULL) {
            return false;
        }
        swap_entries(a, b);
        return true;
    case 4:
        if (e->slot < 0) {
            return false;
        }
        e->slot++;
        return true;
    case 5: /* more slots than needed */
        r->chunks[0].slots++;
        return true;
    case 6:
        e->peer = e->peer >= 0 ? -1 : 0;
        return true;
    case 7:
        e->pair = e->pair >= 0 ? -1 : (int32_t)(at > 0 ? at - 1 : 1);
        return true;
    default:
        return collide(r);
    }
}

static void test_random_costs_and_damage(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    int done[DAMAGES] = {0};
    for (int kind = 0; loongi_schedule_kinds[kind] != NULL; kind++) {
        for (uint64_t seed = 0; seed < 400; seed++) {
            int how = (int)(seed % DAMAGES);
            loong_schedule_params_t p =
                random_params(loongi_schedule_kinds[kind], seed);
            loong_schedule_t *s = NULL;
            assert_ok(ctx, loongi_schedule_create(
                               ctx, loongi_schedule_kinds[kind]->name, &p,
                               &s));
            check_costs(ctx, s, seed);
            if (damage(s, how, seed)) {
                done[how]++;
                if (loongi_schedule_check(s) != LOONG_ERR_INTERNAL) {
                    fail_msg("%s, seed %d: damage %d goes unnoticed",
                             s->kind->name, (int)seed, how);
                }
                loong_context_clear_error(ctx);
            }
            loongi_schedule_destroy(&s);
        }
    }
    for (int how = 0; how < DAMAGES; how++) {
        assert_true(done[how] >= 20);
    }
    test_context_end(&ctx);
}

/* Every rank's own list is in order, only together they wait for each other:
 * one rank works on its later chunk first. */
static void test_deadlock(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_schedule_params_t p = {2, 3, 4, false, false};
    loong_schedule_t *s = NULL;
    assert_ok(ctx, loongi_schedule_create(ctx, "interleaved", &p, &s));
    loong_rank_schedule_t *r = &s->ranks[0];
    for (int64_t k = 0; k < r->num_entries; k++) {
        int32_t c = r->entries[k].chunk;
        r->entries[k].chunk = c > 0 ? 3 - c : c;
    }
    loong_chunk_slots_t swap = r->chunks[1];
    r->chunks[1] = r->chunks[2];
    r->chunks[2] = swap;
    assert_fails(ctx, loongi_schedule_check(s), LOONG_ERR_INTERNAL,
                 "deadlock; rank 0 waits in entry");
    loongi_schedule_destroy(&s);
    test_context_end(&ctx);
}

/* A pair runs at one time: what its first entry gives up, its second cannot
 * have. */
static void test_slots_of_a_pair(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_schedule_params_t p = {1, 1, 2, true, false};
    loong_schedule_t *s = NULL;
    assert_ok(ctx, loongi_schedule_create(ctx, "one_stage", &p, &s));
    loong_rank_schedule_t *r = &s->ranks[0];
    loong_entry_t *f = find_entry(r, LOONG_ENTRY_F, 0, 1);
    loong_entry_t *b = find_entry(r, LOONG_ENTRY_B, 0, 0);
    assert_true(f->pair == b - r->entries && b->pair == f - r->entries);
    swap_entries(f, b); /* now the backward of 0 stands first */
    assert_int_equal(f->kind, LOONG_ENTRY_B);
    loong_entry_writer_t w = {s, 0, 0, r, NULL};
    assert_ok(ctx, loongi_schedule_colour(&w, r->chunks));
    assert_int_equal(r->chunks[0].slots, 2);
    assert_ok(ctx, loongi_schedule_check(s));
    b->slot = f->slot;
    assert_fails(ctx, loongi_schedule_check(s), LOONG_ERR_INTERNAL, "slot");
    loongi_schedule_destroy(&s);
    test_context_end(&ctx);
}

/* The memory that each schedule needs, in micro-batches. */
static void test_slots(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        loong_schedule_params_t params;
        int rank;
        loong_chunk_slots_t want;
    } cases[] = {
        {"one_stage", {1, 1, 8, false, false}, 0, {1, {0, 0}}},
        {"one_stage", {1, 1, 8, true, false}, 0, {2, {0, 0}}},
        {"1f1b", {4, 1, 8, false, false}, 0, {4, {0, 0}}},
        {"1f1b", {4, 1, 8, false, false}, 3, {1, {0, 0}}},
        {"1f1b", {4, 1, 8, true, false}, 0, {5, {0, 0}}},
        {"zero_bubble_h1", {4, 1, 8, false, false}, 0, {4, {0, 0}}},
        {"zero_bubble_h1", {4, 1, 8, false, false}, 3, {4, {0, 0}}},
        {"interleaved", {4, 2, 8, false, false}, 0, {8, {0, 0}}},
        {"interleaved", {4, 2, 8, false, false}, 3, {5, {0, 0}}},
        {"evaluate", {4, 2, 8, false, false}, 0, {1, {0, 0}}},
    };
    loong_context_t *ctx = test_context();
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_schedule_t *s = NULL;
        assert_ok(ctx, loongi_schedule_create(ctx, cases[i].name,
                                              &cases[i].params, &s));
        loong_chunk_slots_t got = s->ranks[cases[i].rank].chunks[0];
        if (memcmp(&got, &cases[i].want, sizeof(got)) != 0) {
            fail_msg("case %d, %s: %d slots", i, cases[i].name, got.slots);
        }
        loongi_schedule_destroy(&s);
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stage),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_random_sizes),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_slots_of_a_pair),
        cmocka_unit_test(test_bubbles),
        cmocka_unit_test(test_random_costs_and_damage),
        cmocka_unit_test(test_deadlock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
