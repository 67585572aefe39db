/* SPDX-License-Identifier: Apache-2.0
 *
 * The join that fills gaps of a pipeline beside that of phases: how long steps
 * take, and what they keep. */
#include <math.h>

#include "cell_impl.h"
#include "fake_cell.h"
#include "rng.h"
#include "test.h"

static uint64_t seeds = 500;

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

typedef struct filled {
    fake_cell_t fake;
    loong_stage_cost_t costs[2 * FAKE_CELL_STAGES]; /* of all stages */
} filled_t;

/* Every replica sends from its last stage to the ranks of the first, the
 * encoder to the projector of each rank that it has. */
static void draw_edges(fake_cell_t *fake, bool frozen)
{
    loong_cell_params_t *p = &fake->params;
    int total = fake->components[0].params.micro_batches;
    for (int e = 0; e < p->num_edges; e++) {
        const loong_cell_component_t *of = &fake->components[e];
        bool inner = e + 1 < p->num_edges;
        int readers = inner ? p->ranks : of[1].replicas;
        int last = of->params.ranks - 1;
        fake->edges[e] = (loong_cell_edge_t){e, e + 1, last, 0, !frozen};
        for (int i = 0; i < total * of->replicas * readers; i++) {
            int m = i % total;
            int replica = i / total % of->replicas;
            int from = of->rank[replica * of->params.ranks + last];
            int to = i / total / of->replicas;
            if (inner && to % of->replicas != replica) {
                continue;
            }
            to = inner ? to : of[1].rank[to * of[1].params.ranks];
            fake->messages[p->num_messages++] =
                (loong_message_t){e, false, from, m, to, m};
            if (!frozen) {
                fake->messages[p->num_messages++] =
                    (loong_message_t){e, true, to, m, from, m};
            }
        }
    }
}

/* A pipeline of one replica or two tensor parallel ranks, and before it one
 * component or two on the same ranks, which read micro-batches by turns, the
 * first of one stage or two. */
static void draw_filled(uint64_t seed, const char *join, filled_t *f)
{
    static const char *const kinds[] = {"1f1b", "interleaved", "zero_bubble_h1",
                                        "zero_bubble_v"};
    loong_cell_params_t *p = &f->fake.params;
    uint64_t drawn = 0;
#define DRAW(bound_) ((int)(loongi_rng_uniform(seed, 1, drawn++) * (bound_)))
    memset(f, 0, sizeof(*f));
    int kind = DRAW(4);
    int tp = 1 + DRAW(2);
    int stages = 2 + DRAW(kind == 0 ? 5 : 2);
    int chunks = kind == 1 || kind == 3 ? 2 : 1;
    int before = 1 + DRAW(2);
    int total = stages * (1 + DRAW(6));
    bool frozen = DRAW(4) == 0;
    int own = stages % 2 == 0 ? 1 + DRAW(2) : 1; /* of the encoder */
    *p = (loong_cell_params_t){.join = join,
                               .ranks = tp * stages,
                               .num_components = before + 1,
                               .components = f->fake.components,
                               .num_edges = before,
                               .edges = f->fake.edges,
                               .messages = f->fake.messages};
    int stage = 0;
    for (int c = 0; c <= before; c++) {
        bool last = c == before;
        loong_cell_component_t *of = &f->fake.components[c];
        of->schedule = last                 ? kinds[kind]
                       : frozen             ? "evaluate"
                       : c == 0 && own == 2 ? "1f1b"
                                            : "one_stage";
        of->params.ranks = last ? stages : c == 0 ? own : 1;
        of->params.chunks = last ? chunks : 1;
        of->params.micro_batches = total;
        of->replicas = last ? tp : p->ranks / of->params.ranks;
        of->turn = last ? 0 : 1;
        of->rank = f->fake.rank[c];
        of->work = f->fake.work[c];
        for (int i = 0; i < p->ranks; i++) { /* stage by stage */
            int each = of->params.ranks;
            f->fake.rank[c][i] = i % each * of->replicas + i / each;
        }
        int count = of->params.ranks * of->params.chunks;
        for (int i = 0; i < count; i++, stage++) {
            loong_stage_work_t *w = &f->fake.work[c][i];
            bool split = last && kind >= 2;
            bool light = own == 2 && c == 1 && !last; /* a projector */
            int64_t forward = 1 + DRAW(last ? 30 : light ? 3 : 20);
            *w = (loong_stage_work_t){forward, forward, forward};
            double *seconds = f->costs[stage].seconds;
            seconds[LOONG_ENTRY_F] = seconds[LOONG_ENTRY_E] = (double)forward;
            seconds[LOONG_ENTRY_B] = (split ? 1.0 : 2.0) * (double)forward;
            seconds[LOONG_ENTRY_W] = split ? (double)forward : 0.0;
        }
    }
#undef DRAW
    draw_edges(&f->fake, frozen);
}

/* Hardly ever longer than phases, often shorter; never more in memory, but for
 * what waits between stages of a frozen encoder; equal work. */
static void test_gaps_are_filled(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    double sum[2] = {0.0, 0.0}, staged[2] = {0.0, 0.0};
    uint64_t count = seeds;
    int shorter = 0;
    for (uint64_t seed = 0; seed < count; seed++) {
        static filled_t f;
        loong_simulation_t total[2];
        int64_t slots[2];
        for (int i = 0; i < 2; i++) {
            loong_cell_t *cell = NULL;
            draw_filled(seed, i == 0 ? "phases" : "bubbles", &f);
            if (loongi_cell_create(ctx, &f.fake.params, &cell) != LOONG_OK ||
                loongi_cell_check(cell) != LOONG_OK ||
                loongi_cell_simulate(cell, f.costs, NULL, &total[i]) !=
                    LOONG_OK) {
                fail_msg("%s, seed %llu: %s", f.fake.params.join,
                         (unsigned long long)seed, loong_context_error(ctx));
            }
            slots[i] = count_slots(cell, 0);
            sum[i] += total[i].seconds;
            staged[i] +=
                f.fake.components[0].params.ranks > 1 ? total[i].seconds : 0.0;
            loongi_cell_destroy(&cell);
        }
        const loong_cell_component_t *first = &f.fake.components[0];
        double most = first->params.ranks > 1 ? 1.05 : 1.01;
        if (total[1].seconds > most * total[0].seconds) {
            fail_msg("seed %llu: %g, phases %g", (unsigned long long)seed,
                     total[1].seconds, total[0].seconds);
        }
        assert_true(slots[1] <= slots[0] ||
                    (first->params.ranks > 1 &&
                     strcmp(first->schedule, "evaluate") == 0));
        assert_true(fabs(total[0].busy - total[1].busy) < 1e-6);
        shorter += total[1].seconds < 0.99 * total[0].seconds;
    }
    print_message("%d of %llu shorter by 1 %%, mean %.3f of phases, with "
                  "encoders of two stages %.3f\n",
                  shorter, (unsigned long long)count, sum[1] / sum[0],
                  staged[1] / staged[0]);
    assert_true(shorter > (int)count / 3);
    assert_true(staged[1] < 0.99 * staged[0]);
    test_context_end(&ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gaps_are_filled)};
    seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : seeds;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
