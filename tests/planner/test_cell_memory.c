/* SPDX-License-Identifier: Apache-2.0
 *
 * Cells on the memory that was planned: random components with edges between
 * them are run by the lists of all ranks, on exactly the planned bytes, which
 * are spoilt as soon as the plan gives them up. Messages are matched as MPI
 * does, at once or at the last moment. All that a kernel reads, and all
 * gradients, must be those of a reference in which every micro-batch has
 * storage of its own. */
#include <stdlib.h>
#include <string.h>

#include "fake_cell_replay.h"
#include "test.h"

/* ---- what is planted ----------------------------------------------------- */

/* The receive into an area that another micro-batch has stands before its last
 * reader. */
static void receive_early(replay_t *r, loong_rank_schedule_t *list)
{
    const loong_message_t *all = fake_cell_of(r)->params.messages;
    loong_entry_t *e = list->entries;
    for (int64_t k = 0; k < list->num_entries; k++) {
        bool back = e[k].kind == LOONG_ENTRY_RECV_EDGE_BACKWARD;
        int64_t i = k - 1;
        if (!loongi_entry_receives_edge(&e[k]) ||
            all[e[k].message].from_rank == all[e[k].message].to_rank) {
            continue;
        }
        while (i >= 0 &&
               (e[i].component != e[k].component || e[i].chunk != e[k].chunk ||
                e[i].area[back] != e[k].area[back])) {
            i--;
        }
        if (i >= 0 && e[i].micro_batch != e[k].micro_batch) {
            loong_entry_t moved = e[k];
            memmove(&e[i + 1], &e[i], (size_t)(k - i) * sizeof(*e));
            e[i] = moved;
            r->planted++;
            return;
        }
    }
}

static void swap_sends(replay_t *r, loong_rank_schedule_t *list)
{
    const loong_message_t *all = fake_cell_of(r)->params.messages;
    loong_entry_t *e = list->entries;
    for (int64_t k = 0; k < list->num_entries; k++) {
        for (int64_t i = 0; i < k; i++) {
            if (!loongi_entry_sends_edge(&e[k]) || e[i].kind != e[k].kind ||
                all[e[i].message].edge != all[e[k].message].edge ||
                all[e[i].message].to_rank != all[e[k].message].to_rank ||
                all[e[i].message].to_rank == all[e[i].message].from_rank) {
                continue;
            }
            int32_t message = e[i].message;
            e[i].message = e[k].message;
            e[k].message = message;
            r->planted++;
            return;
        }
    }
}

/* Two programs one behind the other, of components with other ranks each. */
static void swap_programs(replay_t *r, loong_rank_schedule_t *list)
{
    const loong_cell_component_t *all = fake_cell_of(r)->params.components;
    for (int64_t k = 1; k < list->num_entries && r->planted == 0; k++) {
        loong_entry_t *e = &list->entries[k - 1];
        if (e[0].component != e[1].component && e[0].micro_batch >= 0 &&
            loongi_entry_computes(&e[0]) && loongi_entry_computes(&e[1]) &&
            all[e[0].component].replicas > 1 &&
            all[e[1].component].replicas > 1) {
            loong_entry_t first = e[0];
            e[0] = e[1];
            e[1] = first;
            r->planted++;
        }
    }
}

static void damage_list(replay_t *r, loong_rank_schedule_t *list)
{
    for (int64_t k = 0; k < list->num_entries && fake_is(r, FAULT_AREA_SHARED);
         k++) {
        for (int d = 0; d < 2; d++) {
            r->planted += list->entries[k].area[d] > 0;
            list->entries[k].area[d] = LOONG_MIN(list->entries[k].area[d], 0);
        }
    }
    if (fake_is(r, FAULT_AREA_EARLY)) {
        receive_early(r, list);
    }
    if (fake_is(r, FAULT_MICRO_BATCH)) {
        swap_sends(r, list);
    }
    if (fake_is(r, FAULT_LOCKSTEP)) {
        swap_programs(r, list);
    }
}

static void overlay(replay_t *r, int rank)
{
    const loong_cell_t *cell = fake_cell_of(r);
    int second = cell->params.num_components > 1 ? cell->first_chunk[1] : 0;
    if (r->chunks[rank][0] != NULL && r->chunks[rank][second] != NULL &&
        second > 0) {
        r->ranks[rank]->places[second] = r->ranks[rank]->places[0];
        r->planted++;
    }
}

static bool replay(replay_t *r)
{
    bool good = true;
    r->world.seen = &r->seen;
    for (int rank = 0; rank < fake_cell_of(r)->params.ranks && good; rank++) {
        damage_list(r, &fake_cell_of(r)->ranks[rank]);
        good = fake_replay_plan(r, rank) == LOONG_OK;
        if (fake_is(r, FAULT_OVERLAID)) {
            overlay(r, rank);
        }
    }
    return good && fake_replay_cell(r);
}

/* ---- cases --------------------------------------------------------------- */

typedef struct counters {
    int64_t reused, carried, hollow, met, tied, areas, windows, components;
} counters_t;

/* What went wrong, "" for nothing. */
static bool run_case(loong_context_t *ctx, uint64_t seed, const char *join,
                     fault_t fault, counters_t *n, char error[1000])
{
    static fake_components_t fake;
    replay_t *r = calloc(1, sizeof(*r));
    r->fake = &fake;
    r->fault = fault;
    assert_ok(ctx, fake_components_create(ctx, seed, join, &fake));
    if (fault == FAULT_NONE) {
        assert_ok(ctx, loongi_cell_check(fake.cell));
    }
    fake_components_reference(&fake, &r->seen, &r->grads);
    bool good = replay(r);
    snprintf(error, 1000, "%.300s %.600s", r->world.error,
             good ? "" : loong_context_error(ctx));
    n->reused += r->reused;
    n->carried += r->carried;
    n->hollow += r->hollow;
    n->met += r->met_in_all;
    n->tied += r->tied;
    n->areas += r->areas;
    n->windows += r->windows;
    n->components += fake.cell->params.num_components;
    bool planted = r->planted > 0;
    for (int rank = 0; rank < FAKE_RANKS; rank++) {
        loongi_memory_plan_destroy(&r->ranks[rank]);
    }
    fake_world_free(&r->world);
    fake_table_free(&r->seen);
    fake_table_free(&r->grads);
    fake_components_destroy(&fake);
    free(r);
    loong_context_clear_error(ctx);
    return fault == FAULT_NONE || planted ? good : true;
}

static void test_random(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    const char *most = getenv("LOONG_PLANNER_SEEDS");
    uint64_t seeds = most != NULL ? (uint64_t)atoll(most) : 100;
    char error[1000];
    assert_ok(ctx, fake_register(ctx));
    for (int join = 0; loongi_join_kinds[join] != NULL; join++) {
        const char *name = loongi_join_kinds[join]->name;
        counters_t n = {0};
        for (uint64_t seed = 0; seed < seeds; seed++) {
            if (!run_case(ctx, seed, name, FAULT_NONE, &n, error)) {
                fail_msg("%s, seed %d: %s", name, (int)seed, error);
            }
        }
        print_message("%s: %lld components, %lld slots taken over, %lld "
                      "segments carried, %lld areas, %lld windows, %lld hollow "
                      "entries, %lld collectives, %lld ties of three and "
                      "more\n",
                      name, (long long)n.components, (long long)n.reused,
                      (long long)n.carried, (long long)n.areas,
                      (long long)n.windows, (long long)n.hollow,
                      (long long)n.met, (long long)n.tied);
        int64_t least = (int64_t)seeds;
        assert_true(n.components > 2 * least && n.reused > least &&
                    n.carried > least && n.areas > least && n.windows > least &&
                    n.hollow > least / 2 && n.met > least &&
                    n.tied > least / 4);
    }
    test_context_end(&ctx);
}

/* Each is noticed. Not in every case where it was planted: what is too early
 * harms only where somebody else comes in between. */
static void test_planted(void **state)
{
    (void)state;
    enum { SEEDS = 300, LEAST = 3 };
    static const char *const texts[] = {
#define FAULT_TEXT(name_, text_) text_,
        FAULT_LIST(FAULT_TEXT)
#undef FAULT_TEXT
    };
    loong_context_t *ctx = test_context();
    char error[1000], sample[91];
    assert_ok(ctx, fake_register(ctx));
    for (int fault = 1; fault < FAULTS; fault++) {
        int noticed = 0;
        for (uint64_t seed = 0; seed < SEEDS && noticed < LEAST; seed++) {
            counters_t n = {0};
            if (!run_case(ctx, seed, loongi_join_kinds[seed % 3]->name,
                          (fault_t)fault, &n, error)) {
                noticed++;
                assert_true((fault != FAULT_HOLLOW_LEFT_OUT &&
                             fault != FAULT_HOLLOW_MEETS_LESS) ||
                            strstr(error, "waits in") != NULL);
                snprintf(sample, sizeof(sample), "%.90s", error);
            }
        }
        print_message("%-60s noticed %2d; %s\n", texts[fault], noticed,
                      noticed > 0 ? sample : "");
        assert_true(noticed >= LEAST);
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
