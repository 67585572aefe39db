/* SPDX-License-Identifier: Apache-2.0
 *
 * Two programs step by step, so that each computes while collectives of the
 * other are under way. All ranks of a group must begin its collectives in the
 * same order, though their costs differ (uneven heads): where there are
 * collectives inside layers, their numbers alone make the order. */
#include "passes.h"

/* Flops that take as long as moving one byte, roughly, on all devices. */
static const double flops_per_byte = 64.0;

/* Steps that shards put in have none: they move parts of a rank's own, and
 * other ranks may have more of them or fewer. */
static double weight(const loong_step_t *step)
{
    return step->cost.bytes + step->cost.flops / flops_per_byte;
}

/* A collective inside a layer, or a kernel with one. Those of data parallelism
 * work in place: some ranks may have more of them or fewer, so they do not
 * count, though experts that tensor parallel ranks hold alike bring some to
 * ranks that cost differently. */
static bool is_anchor(const loong_step_t *step)
{
    const loong_kernel_t *k = step->kernel;
    return (k->communicates && step->query.num_out > 0) || k->joins;
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

static side_t side_of(const loong_program_t *p)
{
    side_t s = {p, 0, 0.0, 0.0, 0, 0};
    for (int64_t i = 0; i < p->num_steps; i++) {
        s.all += weight(&p->steps[i]);
        s.anchors += is_anchor(&p->steps[i]);
    }
    return s;
}

/* Whose next collective comes next: the k-th of n stands at (k + 1/2) / n of
 * its program. */
static int next_anchor(const side_t *a, const side_t *b)
{
    return (2 * b->begun + 1) * a->anchors < (2 * a->begun + 1) * b->anchors;
}

/* `last`: who began the last collective inside a layer. */
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
    /* Ranks of every group cost the same: none shares a layer. */
    return b->done * a->all < a->done * b->all;
}

void loongi_pass_interleave(const loong_program_t *a, const loong_program_t *b,
                            uint8_t *order)
{
    side_t side[2] = {side_of(a), side_of(b)};
    int last = 0;
    for (int64_t i = 0; i < a->num_steps + b->num_steps; i++) {
        int who = choose(&side[0], &side[1], last);
        side_t *s = &side[who];
        const loong_step_t *step = &s->program->steps[s->next++];
        s->done += weight(step);
        s->begun += is_anchor(step);
        last = is_anchor(step) ? who : last;
        order[i] = (uint8_t)who;
    }
}
