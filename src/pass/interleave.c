/* SPDX-License-Identifier: Apache-2.0
 *
 * Two programs step by step, so that each computes while collectives of the
 * other are under way. All ranks of a group must begin its collectives in the
 * same order, though their costs differ (uneven heads, devices of other kinds):
 * their numbers alone make the order. Called by src/engine/memory_plan.c. Read
 * passes.h before. */
#include "passes.h"

/* Flops that take as long as moving one byte, roughly, on all devices. */
static const double flops_per_byte = 64.0;

/* Steps that shards put in have none: they move parts of a rank's own, and
 * other ranks may have more of them or fewer. */
static double weight(const loong_step_t *step)
{
    return step->cost.bytes + step->cost.flops / flops_per_byte;
}

/* A collective, or a kernel with one. Those of data parallelism work in place:
 * where ranks share a layer some may have more of them or fewer, so beside
 * those `inside` layers they do not count, though experts that tensor parallel
 * ranks hold alike bring some to ranks that cost differently. */
static bool is_anchor(const loong_step_t *step, bool inside)
{
    const loong_kernel_t *k = step->kernel;
    return (k->communicates && (!inside || step->query.num_out > 0)) ||
           k->joins;
}

static int64_t count_anchors(const loong_program_t *p, bool inside)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->num_steps; i++) {
        count += is_anchor(&p->steps[i], inside);
    }
    return count;
}

/* One of the two on its way. */
typedef struct side {
    const loong_program_t *program;
    int64_t next;
    double all; /* weights of all steps, and of those done */
    double done;
    int64_t anchors; /* of all, and begun */
    int64_t begun;
} side_t;

static side_t side_of(const loong_program_t *p, bool inside)
{
    side_t s = {p, 0, 0.0, 0.0, count_anchors(p, inside), 0};
    for (int64_t i = 0; i < p->num_steps; i++) {
        s.all += weight(&p->steps[i]);
    }
    return s;
}

/* Whose next collective comes next: the k-th of n stands at (k + 1/2) / n of
 * its program. */
static int next_anchor(const side_t *a, const side_t *b)
{
    return (2 * b->begun + 1) * a->anchors < (2 * a->begun + 1) * b->anchors;
}

/* `last`: who began the last collective. */
static int choose(const side_t *a, const side_t *b, int last)
{
    if (a->next == a->program->num_steps ||
        b->next == b->program->num_steps) {
        return a->next == a->program->num_steps;
    }
    if (a->begun < a->anchors && b->begun < b->anchors) {
        return next_anchor(a, b);
    }
    if (a->begun < a->anchors || b->begun < b->anchors) {
        return a->begun == a->anchors; /* what is left of them */
    }
    if (a->anchors + b->anchors > 0) {
        return 1 - last; /* beside it */
    }
    return b->done * a->all < a->done * b->all;
}

void loongi_pass_interleave(const loong_program_t *a, const loong_program_t *b,
                            uint8_t *order)
{
    bool inside = count_anchors(a, true) + count_anchors(b, true) > 0;
    side_t side[2] = {side_of(a, inside), side_of(b, inside)};
    int last = 0;
    for (int64_t i = 0; i < a->num_steps + b->num_steps; i++) {
        int who = choose(&side[0], &side[1], last);
        side_t *s = &side[who];
        const loong_step_t *step = &s->program->steps[s->next++];
        s->done += weight(step);
        s->begun += is_anchor(step, inside);
        last = is_anchor(step, inside) ? who : last;
        order[i] = (uint8_t)who;
    }
}
