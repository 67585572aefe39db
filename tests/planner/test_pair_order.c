/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of programs on ranks that cost differently: tensor parallel ranks with
 * uneven heads whose experts are held by all of them gather experts together
 * (ZeRO-3), and data-parallel ranks may have devices of several kinds. Every
 * rank must begin what it shares with another in one order, whatever its own
 * steps weigh. */
#include "passes.h"
#include "rng.h"
#include "test.h"

enum { MAX_STEPS = 64, RANKS = 3 };

static const loong_kernel_t computes = {.name = "computes", .device = "cpu"};
static const loong_kernel_t collective = {
    .name = "collective", .device = "cpu", .communicates = true};
static const loong_kernel_t joining = {
    .name = "joining", .device = "cpu", .joins = true};

static int draw(uint64_t seed, int what, int index, int most)
{
    double u = loongi_rng_uniform(seed, (uint64_t)what, (uint64_t)index);
    return (int)(u * (most + 1));
}

/* The collectives that two programs begin, in order: side and number. */
typedef struct trace {
    int count;
    int what[4 * MAX_STEPS];
} trace_t;

/* What a step is, equal on all ranks. */
typedef enum kind { COMPUTES, LAYER, JOINS, EXPERTS, KINDS } kind_t;

/* A program of a seed as a rank has it: `bare` has no collective inside a
 * layer. Own steps weigh what they like, and before what experts share a rank
 * has gathers of its own, more of them or fewer, unless all are alike: bare. */
static void make(uint64_t seed, int rank, bool bare, loong_step_t *steps,
                 loong_program_t *p)
{
    int n = 2 + draw(seed, 0, 0, 12);
    memset(p, 0, sizeof(*p));
    memset(steps, 0, sizeof(*steps) * MAX_STEPS);
    p->steps = steps;
    for (int i = 0; i < n; i++) {
        kind_t kind = (kind_t)draw(seed, 1, i, KINDS - 1);
        uint64_t own = seed + 1000 * (uint64_t)(rank + 1);
        int gathers = kind == EXPERTS && !bare ? draw(own, 2, i, 2) : 0;
        for (int k = 0; k < gathers; k++) {
            steps[p->num_steps++].kernel = &collective;
        }
        loong_step_t *step = &steps[p->num_steps++];
        step->cost.bytes = draw(own, 3, i, 1000);
        step->cost.flops = draw(own, 4, i, 100000);
        step->kernel = &computes;
        if (kind == LAYER && !bare) {
            step->kernel = &collective;
            step->query.num_in = step->query.num_out = 1;
        } else if (kind == JOINS && !bare) {
            step->kernel = &joining;
            step->query.num_in = step->query.num_out = 1;
        } else if (kind == EXPERTS) {
            step->kernel = &collective;
            step->query.num_in = 1; /* in place */
            step->query.threads = 1; /* marks it: of all ranks */
            step->cost.bytes = step->cost.flops = 0.0;
        }
    }
}

static bool is_shared(const loong_step_t *step)
{
    return step->query.num_out > 0 || step->query.threads > 0;
}

static void trace_pair(uint64_t seed, int rank, bool bare, trace_t *t)
{
    static loong_step_t steps[2][MAX_STEPS];
    loong_program_t p[2];
    uint8_t order[2 * MAX_STEPS];
    int64_t next[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        make(2 * seed + (uint64_t)k, rank, bare, steps[k], &p[k]);
    }
    loongi_pass_interleave(&p[0], &p[1], order);
    t->count = 0;
    for (int64_t i = 0; i < p[0].num_steps + p[1].num_steps; i++) {
        int who = order[i];
        assert_true(next[who] < p[who].num_steps);
        if (is_shared(&p[who].steps[next[who]++])) {
            t->what[t->count++] = who;
        }
    }
    assert_true(next[0] == p[0].num_steps && next[1] == p[1].num_steps);
}

static void test_one_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        trace_t one;
        bool bare = seed % 5 == 0;
        trace_pair(seed, 0, bare, &one);
        for (int rank = 1; rank < RANKS; rank++) {
            trace_t other;
            trace_pair(seed, rank, bare, &other);
            assert_int_equal(other.count, one.count);
            for (int i = 0; i < one.count; i++) {
                if (other.what[i] != one.what[i]) {
                    fail_msg("seed %d: shared collective %d is of program %d "
                             "on rank %d, of %d on rank 0", (int)seed, i,
                             other.what[i], rank, one.what[i]);
                }
            }
        }
    }
}

/* Behind the last collective of a layer the other program computes first: that
 * is what goes on beside it. */
static void test_tail(void **state)
{
    (void)state;
    enum { STEPS = 4 };
    loong_step_t steps[2][STEPS];
    uint8_t order[2 * STEPS];
    loong_program_t p[2];
    memset(steps, 0, sizeof(steps));
    memset(p, 0, sizeof(p));
    for (int k = 0; k < 2; k++) {
        p[k].steps = steps[k];
        p[k].num_steps = STEPS;
        for (int i = 0; i < STEPS; i++) {
            steps[k][i].kernel = &computes;
            steps[k][i].cost.bytes = 1.0;
        }
        steps[k][1].kernel = &collective;
        steps[k][1].query.num_out = 1;
    }
    static const uint8_t wanted[] = {0, 0, 1, 1, 0, 0, 1, 1};
    loongi_pass_interleave(&p[0], &p[1], order);
    assert_memory_equal(order, wanted, sizeof(wanted));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_order),
        cmocka_unit_test(test_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
