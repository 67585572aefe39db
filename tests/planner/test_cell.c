/* SPDX-License-Identifier: Apache-2.0
 *
 * Cells: each join over random components is proved by the validator, which
 * finds what is planted; one component has its schedule's lists; refusals. */
#include "cell_impl.h"
#include "fake_cell.h"
#include "test.h"

/* ---- by hand ------------------------------------------------------------- */

/* An encoder on rank 0 and 1 (two replicas), a decoder with two stages on the
 * same ranks; each replica of the encoder makes what one micro-batch reads. */
static const int32_t two_ranks[] = {0, 1};
static const loong_cell_component_t two[] = {
    {"one_stage", {1, 1, 1, false, false}, 2, two_ranks, 0, NULL},
    {"1f1b", {2, 1, 2, false, false}, 1, two_ranks, 0, NULL}};
static const loong_cell_edge_t one_edge[] = {{0, 1, 0, 0, true}};
static const loong_message_t four[] = {{0, false, 0, 0, 0, 0},
                                       {0, false, 1, 0, 0, 1},
                                       {0, true, 0, 0, 0, 0},
                                       {0, true, 0, 1, 1, 0}};
static const loong_cell_params_t by_hand = {"coupled", 2,        2, two,
                                            1,         one_edge, 4, four};

static void assert_list(const loong_cell_t *cell, int rank, const char *want)
{
    const loong_rank_schedule_t *list = &cell->ranks[rank];
    loong_text_t text = loongi_text_begin(cell->ctx);
    for (int64_t k = 0; k < list->num_entries; k++) {
        const loong_entry_t *e = &list->entries[k];
        loongi_text_printf(&text, "%s%s", k > 0 ? ", " : "",
                           loongi_entry_name(e->kind));
        if (e->component >= 0) {
            loongi_text_printf(&text, " %d", (int)e->component);
        }
        if (e->micro_batch >= 0) {
            loongi_text_printf(&text, ".%d", (int)e->micro_batch);
        }
        for (int d = 0; d < 2; d++) {
            if (e->area[d] >= 0) {
                loongi_text_printf(&text, " %s %d", d == 0 ? "in" : "back",
                                   (int)e->area[d]);
            }
        }
    }
    assert_string_equal(loongi_text_get(&text), want);
    loongi_text_free(&text);
}

static void test_by_hand(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_cell_t *cell = NULL;
    assert_ok(ctx, loongi_cell_create(ctx, &by_hand, &cell));
    assert_ok(ctx, loongi_cell_check(cell));
    assert_list(cell, 0,
                "forward 0.0, send edge forward 0.0, "
                "receive edge forward 1.0 in 0, "
                "receive edge forward 1.1 in 1, "
                "forward 1.0 in 0, send forward 1.0, receive backward 1.0, "
                "forward 1.1 in 1, send forward 1.1, receive backward 1.1, "
                "backward 1.0 in 0, send edge backward 1.0, "
                "receive edge backward 0.0 back 0, "
                "backward 1.1 in 1, send edge backward 1.1, "
                "backward 0.0 back 0, reduce 0, reduce 1, update");
    assert_list(cell, 1,
                "forward 0.0, send edge forward 0.0, "
                "receive forward 1.0, forward 1.0, backward 1.0, "
                "send backward 1.0, receive forward 1.1, forward 1.1, "
                "backward 1.1, send backward 1.1, "
                "receive edge backward 0.0 back 0, backward 0.0 back 0, "
                "reduce 0, reduce 1, update");
    assert_int_equal(cell->ranks[0].chunks[0].areas[1], 1); /* encoder */
    assert_int_equal(cell->ranks[0].chunks[1].areas[0], 2);
    assert_int_equal(cell->ranks[1].chunks[0].areas[1], 1);
    assert_int_equal(cell->ranks[1].chunks[1].areas[0], 0);
    loongi_cell_destroy(&cell);
    test_context_end(&ctx);
}

/* ---- random cells -------------------------------------------------------- */

static uint64_t seeds = 1500;

/* Proved without costs, where hollow entries run; with them they do not. */
static void test_random(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static loong_stage_cost_t costs[2 * FAKE_COMPONENTS * FAKE_CELL_STAGES];
    loong_simulation_t total;
    for (int join = 0; loongi_join_kinds[join] != NULL; join++) {
        int64_t messages = 0, components = 0;
        for (uint64_t seed = 0; seed < seeds; seed++) {
            static fake_cell_t fake;
            loong_cell_t *cell = NULL;
            fake_cell_draw(seed, loongi_join_kinds[join]->name, &fake);
            if (loongi_cell_create(ctx, &fake.params, &cell) != LOONG_OK ||
                loongi_cell_check(cell) != LOONG_OK ||
                loongi_cell_simulate(cell, costs, NULL, &total) != LOONG_OK) {
                fail_msg("%s, seed %llu: %s", fake.params.join,
                         (unsigned long long)seed, loong_context_error(ctx));
            }
            messages += fake.params.num_messages;
            components += fake.params.num_components;
            loongi_cell_destroy(&cell);
        }
        assert_true(messages > 20 * (int64_t)seeds);
        assert_true(components > 2 * (int64_t)seeds);
    }
    test_context_end(&ctx);
}

/* Pairs too. */
static void test_one_component(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    int compared = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        static fake_cell_t fake;
        fake_cell_draw(seed, "coupled", &fake);
        loong_cell_component_t *c = &fake.components[0];
        loong_cell_t *cell = NULL;
        fake.params.num_components = 1;
        fake.params.num_edges = 0;
        fake.params.num_messages = 0;
        bool train = strcmp(c->schedule, "evaluate") != 0;
        c->params.pair = train && seed % 3 == 0;
        if (loongi_schedule_accept(ctx, c->schedule, &c->params) != LOONG_OK) {
            c->params.pair = false; /* the generator has none */
        }
        assert_ok(ctx, loongi_cell_create(ctx, &fake.params, &cell));
        assert_ok(ctx, loongi_cell_check(cell));
        for (int i = 0; i < c->replicas * c->params.ranks; i++) {
            const loong_rank_schedule_t *a =
                &cell->schedules[0]->ranks[i % c->params.ranks];
            const loong_rank_schedule_t *b = &cell->ranks[c->rank[i]];
            assert_int_equal(a->num_entries, b->num_entries);
            assert_memory_equal(a->entries, b->entries,
                                (size_t)a->num_entries * sizeof(*a->entries));
            assert_memory_equal(a->chunks, b->chunks,
                                (size_t)c->params.chunks * sizeof(*a->chunks));
            compared++;
        }
        loongi_cell_destroy(&cell);
    }
    assert_true(compared > 1200);
    test_context_end(&ctx);
}

/* Slots of a component over all ranks. */
static int64_t count_slots(const loong_cell_t *cell, int component)
{
    int64_t slots = 0;
    for (int r = 0; r < cell->params.ranks; r++) {
        for (int c = cell->first_chunk[component];
             c < cell->first_chunk[component + 1]; c++) {
            slots += cell->ranks[r].chunks[c].slots;
        }
    }
    return slots;
}

/* An encoder before a decoder of two stages, of 16 micro-batches each: as many
 * of the encoder live as of the decoder's first stage; in phases all; in two
 * passes one in either. */
static void test_slots_of_an_encoder(void **state)
{
    (void)state;
    static const char *const joins[] = {"coupled", "phases", "two_pass"};
    static const int64_t slots[] = {2, 16, 1};
    loong_context_t *ctx = test_context();
    loong_message_t messages[32];
    const loong_cell_component_t components[] = {
        {"one_stage", {1, 1, 16, false, false}, 1, two_ranks, 0, NULL},
        {"1f1b", {2, 1, 16, false, false}, 1, two_ranks, 0, NULL}};
    for (int i = 0; i < 32; i++) {
        messages[i] = (loong_message_t){0, i % 2 == 1, 0, i / 2, 0, i / 2};
    }
    for (int join = 0; join < 3; join++) {
        const loong_cell_params_t params = {
            joins[join], 2, 2, components, 1, one_edge, 32, messages};
        loong_cell_t *cell = NULL;
        assert_ok(ctx, loongi_cell_create(ctx, &params, &cell));
        assert_ok(ctx, loongi_cell_check(cell));
        assert_int_equal(count_slots(cell, 0), slots[join]);
        assert_int_equal(cell->ranks[0].chunks[1].areas[0],
                         join == 0 ? 2 : 16);
        assert_int_equal(cell->ranks[0].chunks[0].areas[1], join == 0 ? 1 : 16);
        assert_int_equal(cell->params.num_components, join == 2 ? 3 : 2);
        assert_true(join < 2 || cell->ranks[0].chunks[2].slots == 1);
        loongi_cell_destroy(&cell);
    }
    test_context_end(&ctx);
}

/* The coupled join never keeps more of a component than phases do. */
static void test_coupled_keeps_less(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (uint64_t seed = 0; seed < 300; seed++) {
        static fake_cell_t fake;
        loong_cell_t *cells[2] = {NULL, NULL};
        for (int join = 0; join < 2; join++) {
            fake_cell_draw(seed, join == 0 ? "coupled" : "phases", &fake);
            assert_ok(ctx, loongi_cell_create(ctx, &fake.params, &cells[join]));
        }
        for (int c = 0; c < fake.params.num_components - 1; c++) {
            assert_true(count_slots(cells[0], c) <= count_slots(cells[1], c));
        }
        loongi_cell_destroy(&cells[0]);
        loongi_cell_destroy(&cells[1]);
    }
    test_context_end(&ctx);
}

/* ---- damage -------------------------------------------------------------- */

enum {
    DROP_SEND, /* a message that one side has not */
    DROP_RECEIVE,
    TWICE,
    RECEIVE_LATE, /* behind who reads it */
    SEND_EARLY,   /* before what makes it */
    WRONG_MESSAGE,
    WRONG_MICRO_BATCH,
    AREA_TAKEN, /* of another that is alive */
    AREA_OF_READER,
    AREA_TOO_MUCH,
    SLOT_TAKEN,
    NO_SUCH_COMPONENT,
    DAMAGES
};

static void remove_entry(loong_rank_schedule_t *list, int64_t at)
{
    memmove(&list->entries[at], &list->entries[at + 1],
            (size_t)(list->num_entries - at - 1) * sizeof(*list->entries));
    list->num_entries--;
}

static void swap(loong_entry_t *a, loong_entry_t *b)
{
    loong_entry_t c = *a;
    *a = *b;
    *b = c;
}

static int64_t find(const loong_rank_schedule_t *list, int64_t from,
                    loong_entry_kind_t kind)
{
    int64_t k = from;
    while (k < list->num_entries && list->entries[k].kind != kind) {
        k++;
    }
    return k < list->num_entries ? k : -1;
}

/* On rank 0 the two receives stand before F 1.0 and F 1.1. */
static void damage(loong_cell_t *cell, int what)
{
    loong_rank_schedule_t *list = &cell->ranks[0];
    loong_entry_t *e = list->entries;
    int64_t first = find(list, 0, LOONG_ENTRY_F);
    int64_t send = find(list, 0, LOONG_ENTRY_SEND_EDGE_FORWARD);
    int64_t recv = find(list, 0, LOONG_ENTRY_RECV_EDGE_FORWARD);
    int64_t read = find(list, first + 1, LOONG_ENTRY_F);
    int64_t last = find(list, read + 1, LOONG_ENTRY_F);
    switch (what) {
    case DROP_SEND:
        remove_entry(list, send);
        break;
    case DROP_RECEIVE:
        remove_entry(list, recv);
        break;
    case TWICE:
        e[find(list, 0, LOONG_ENTRY_REDUCE)] = e[recv];
        break;
    case RECEIVE_LATE:
        swap(&e[recv], &e[read]);
        break;
    case SEND_EARLY:
        swap(&e[first], &e[send]);
        break;
    case WRONG_MESSAGE:
        e[recv].message = 1;
        e[find(list, recv + 1, LOONG_ENTRY_RECV_EDGE_FORWARD)].message = 0;
        break;
    case WRONG_MICRO_BATCH:
        e[recv].micro_batch = 1;
        break;
    case AREA_TAKEN: /* with all that read it */
        for (int64_t k = 0; k < list->num_entries; k++) {
            e[k].area[0] = LOONG_MIN(e[k].area[0], 0);
        }
        break;
    case AREA_OF_READER:
        e[last].area[0] = 0;
        break;
    case AREA_TOO_MUCH:
        list->chunks[1].areas[0]++;
        break;
    case SLOT_TAKEN:
        e[send].slot = 1;
        break;
    default:
        e[recv].component = 2;
        break;
    }
}

static void test_damage(void **state)
{
    (void)state;
    static const char *const says[DAMAGES] = {
        "is sent by rank 0",
        "area 0 of 2, -1 is that of its messages",
        "stands there twice",
        "stands behind entry 2, which reads message 0",
        "stands before entry 1, which makes message 0",
        "message 0 is of component 1, chunk 0, micro-batch 0, forward",
        "is that of its messages",
        "area 0 is taken already",
        "area 0 of 2, 1 is that of its messages",
        "3 times area, at most 2 live at one time",
        "slot 1 of 1",
        "no such component"};
    loong_context_t *ctx = test_context();
    for (int what = 0; what < DAMAGES; what++) {
        loong_cell_t *cell = NULL;
        assert_ok(ctx, loongi_cell_create(ctx, &by_hand, &cell));
        damage(cell, what);
        if (loongi_cell_check(cell) == LOONG_OK) {
            fail_msg("damage %d is not found", what);
        }
        assert_fails(ctx, loongi_cell_check(cell), LOONG_ERR_INTERNAL,
                     says[what]);
        loongi_cell_destroy(&cell);
    }
    test_context_end(&ctx);
}

/* Each list for itself is right, together they wait for each other. */
static void test_deadlock(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    const loong_message_t messages[] = {{0, false, 0, 0, 1, 0},
                                        {0, false, 1, 0, 0, 1}};
    const loong_cell_component_t components[] = {
        {"one_stage", {1, 1, 1, false, false}, 2, two_ranks, 0, NULL},
        {"one_stage", {1, 1, 2, false, false}, 2, two_ranks, 0, NULL}};
    const loong_cell_edge_t edges[] = {{0, 1, 0, 0, false}};
    const loong_cell_params_t params = {"coupled", 2,     2, components,
                                        1,         edges, 2, messages};
    loong_cell_t *cell = NULL;
    assert_ok(ctx, loongi_cell_create(ctx, &params, &cell));
    assert_ok(ctx, loongi_cell_check(cell));
    for (int r = 0; r < 2; r++) { /* rank 1 begins the messages in turn */
        loong_rank_schedule_t *list = &cell->ranks[r];
        int64_t a = find(list, 0, LOONG_ENTRY_SEND_EDGE_FORWARD);
        int64_t b = find(list, 0, LOONG_ENTRY_RECV_EDGE_FORWARD);
        assert_int_equal(b > a ? b - a : a - b, 1);
        if (r == 1) {
            swap(&list->entries[a], &list->entries[b]);
        }
    }
    assert_fails(ctx, loongi_cell_check(cell), LOONG_ERR_INTERNAL,
                 "rank 1 waits in entry");
    loongi_cell_destroy(&cell);
    /* Programs of replicas run together: not in two orders. */
    assert_ok(ctx, loongi_cell_create(ctx, &params, &cell));
    int64_t first = find(&cell->ranks[1], 0, LOONG_ENTRY_REDUCE);
    loong_entry_t *e = &cell->ranks[1].entries[first];
    assert_true(e[1].kind == LOONG_ENTRY_REDUCE);
    swap(&e[0], &e[1]);
    assert_fails(ctx, loongi_cell_check(cell), LOONG_ERR_INTERNAL,
                 "reduce of component 0, chunk 0, micro-batch -1; rank 1 waits "
                 "in entry");
    loongi_cell_destroy(&cell);
    test_context_end(&ctx);
}

/* ---- refusals ------------------------------------------------------------ */

static void refuse(loong_context_t *ctx, const loong_cell_params_t *params,
                   const char *says)
{
    loong_cell_t *cell = NULL;
    assert_fails(ctx, loongi_cell_create(ctx, params, &cell), LOONG_ERR_ARG,
                 says);
    assert_null(cell);
}

static void test_refusals(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_cell_params_t p = by_hand;
    p.join = "joined";
    refuse(ctx, &p, "there is no join joined; there are coupled, phases");
    p = by_hand;
    p.ranks = 1;
    refuse(ctx, &p, "component 0: rank 1, 0 to 0 are there");
    loong_cell_component_t components[2] = {two[0], two[1]};
    p = by_hand;
    p.components = components;
    const int32_t twice[] = {1, 1};
    components[0].rank = twice;
    refuse(ctx, &p, "component 0 has rank 1 twice");
    components[0] = two[0];
    components[1].params.pair = true;
    refuse(ctx, &p, "pairs are there without other components only");
    components[1] = two[1];
    components[1].schedule = "evaluate";
    refuse(ctx, &p, "component 0 is trained, the last one is evaluated");
    components[1].schedule = "1f2b";
    refuse(ctx, &p, "of component 1");
    p = by_hand;
    loong_cell_edge_t edge = {1, 0, 0, 0, true};
    p.edges = &edge;
    refuse(ctx, &p, "edge 0 goes from component 1 to 0");
    edge = (loong_cell_edge_t){0, 1, 0, 2, true};
    refuse(ctx, &p, "to stage 2 of 2");
    edge = (loong_cell_edge_t){0, 1, 0, 0, false};
    refuse(ctx, &p, "message 2 goes back on edge 0");
    edge.gradient = true;
    components[0].schedule = "evaluate";
    components[1] = two[1];
    p.components = components;
    refuse(ctx, &p, "edge 0 has gradients, component 0 is not trained");
    p = by_hand;
    loong_message_t messages[] = {four[0], four[0]};
    p.messages = messages;
    p.num_messages = 2;
    refuse(ctx, &p, "is that of");
    messages[1].to_rank = 1;
    refuse(ctx, &p, "message 1 reaches rank 1");
    messages[1] = four[1];
    messages[1].from_micro_batch = 1;
    refuse(ctx, &p, "message 1 leaves rank 1, micro-batch 1 of 1");
    messages[1].edge = 1;
    refuse(ctx, &p, "of edge 1, there are 1");
    test_context_end(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_one_component),
        cmocka_unit_test(test_slots_of_an_encoder),
        cmocka_unit_test(test_coupled_keeps_less),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_refusals),
    };
    seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : seeds;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
